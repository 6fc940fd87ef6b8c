"""`pbm simulate --resume`: the bytes of one clean run, whatever was played before, and nothing played twice."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from bandits.simulate import Played, Player, simulate
from pipeline import saving
from pipeline.artefacts import COUNTS, MODELS, Provenance
from pipeline.saving import Draft
from pipeline.stages import simulate as stage
from tests.conftest import Pbm

PBM = str(Path(sys.executable).with_name("pbm"))
SHORT = ("--runs", 6, "--horizon", 50, "--seed", 1)
PIE = "pbm-pie(epsilon=0.1, horizon=50)"  # a label with everything that file names may not like
ALL = ("--policies", f"bc-mp-ts,{PIE},pbm-ts")


class StoppedError(Exception):
    """As sudden as an end can be that a test survives."""


def model_file(path: Path, best: float = 0.3) -> Path:
    """Worlds of different sizes, the ids not in order; six runs with the seed 1 do not meet all of them."""
    worlds = {"query_id": [9, 7, 8, 6], "theta": [(best, 0.2), (0.1, 0.05, best), (best, 0.1), (best, 0.2)]}
    pl.DataFrame({**worlds, "kappa": [(1.0,), (0.9, 0.4), (1.0, 0.5), (1.0,)]}).write_parquet(path)
    return path


def files(workspace: Path) -> dict[str, bytes]:
    """Every file of a workspace, hidden ones too."""
    return {str(path.relative_to(workspace)): path.read_bytes() for path in workspace.rglob("*") if path.is_file()}


def watched(monkeypatch: pytest.MonkeyPatch, stop_before: str = "", on_play: Callable[[], object] = lambda: None) -> list[str]:
    """The labels of the policies that are played from now on."""
    labels: list[str] = []

    def play(player: Player, *arguments: object, **options: object) -> Played:
        if player.label == stop_before:
            raise StoppedError
        labels.append(player.label)
        on_play()
        return simulate(player, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(stage, "simulate", play)
    return labels


@pytest.fixture
def models(tmp_path: Path) -> Path:
    return model_file(tmp_path / "models.parquet")


@pytest.fixture
def clean(tmp_path: Path, models: Path, pbm: Pbm) -> dict[str, bytes]:
    """The files of one clean run."""
    assert pbm("simulate", "-w", tmp_path / "clean", "--models", models, *SHORT, *ALL).code == 0
    return files(tmp_path / "clean")


def test_policies_that_are_there_are_taken(
    tmp_path: Path, models: Path, clean: dict[str, bytes], pbm: Pbm, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("-w", tmp_path / "w", "--models", models, *SHORT)
    assert pbm("simulate", *options, "--policies", f"uniform,{PIE},bc-mp-ts").code == 0
    labels = watched(monkeypatch)
    outcome = pbm("simulate", "--resume", *options, *ALL, "--json")
    assert labels == ["pbm-ts"]
    assert outcome.err == f"pbm: note: taken from before: bc-mp-ts, {PIE}\n"
    taken = [row["microseconds_per_round"] is None for row in json.loads(outcome.out)]
    assert taken == [True, True, False]
    assert files(tmp_path / "w") == clean


def test_what_was_finished_before_a_crash_is_taken(
    tmp_path: Path, models: Path, clean: dict[str, bytes], pbm: Pbm, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("simulate", "--resume", "-w", tmp_path / "w", "--models", models, *SHORT, *ALL)
    for stop, expected in ((PIE, ["bc-mp-ts"]), ("pbm-ts", [PIE]), ("", ["pbm-ts"])):
        labels = watched(monkeypatch, stop)
        if stop:
            with pytest.raises(StoppedError):
                pbm(*options)
            assert not list((tmp_path / "w").rglob("kdd.parquet.*")), "a half file"
        else:
            assert pbm(*options).err == f"pbm: note: taken from before: bc-mp-ts, {PIE}\n"
        assert labels == expected
    assert files(tmp_path / "w") == clean


def test_if_all_is_there_nothing_changes(
    tmp_path: Path, models: Path, clean: dict[str, bytes], pbm: Pbm, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "clean").rglob("*.parquet")}
    table = pbm("simulate", "-w", tmp_path / "w", "--models", models, *SHORT, *ALL).out
    labels = watched(monkeypatch)
    outcome = pbm("simulate", "--resume", "-w", tmp_path / "clean", "--models", models, *SHORT, *ALL)
    assert labels == []
    assert [line.split()[:-1] for line in outcome.out.splitlines()] == [line.split()[:-1] for line in table.splitlines()]
    assert [line.split()[-1] for line in outcome.out.splitlines()[1:]] == ["-"] * 3
    assert files(tmp_path / "clean") == clean
    assert {path: path.stat().st_mtime_ns for path in times} == times


@pytest.mark.parametrize("other", ["--seed", "--runs", "--horizon", "--models", "package"])
@pytest.mark.parametrize("crashed", [False, True])
def test_what_was_played_otherwise_is_not_taken(
    other: str,
    crashed: bool,
    tmp_path: Path,
    models: Path,
    clean: dict[str, bytes],
    pbm: Pbm,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = ("simulate", "--resume", "-w", tmp_path / "w", "--models", models, *SHORT, *ALL)
    before = {"--models": ("--models", model_file(tmp_path / "others.parquet", 0.4)), "package": ()}.get(other, (other, 7))
    with monkeypatch.context() as patch:
        if other == "package":
            patch.setattr("pipeline.saving.__version__", "0.0.0")
        if crashed:
            watched(patch, "pbm-ts")
            with pytest.raises(StoppedError):
                pbm(*options, *before)
        else:
            assert pbm(*options, *before).code == 0
    labels = watched(monkeypatch)
    assert pbm(*options).err == ""
    assert labels == ["bc-mp-ts", PIE, "pbm-ts"]
    assert files(tmp_path / "w") == clean


def test_parts_and_files_that_are_not_whole_are_played_again(
    tmp_path: Path, models: Path, clean: dict[str, bytes], pbm: Pbm, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("simulate", "--resume", "-w", tmp_path / "w", "--models", models, *SHORT, *ALL)
    watched(monkeypatch, "pbm-ts")
    with pytest.raises(StoppedError):
        pbm(*options)
    first, second = sorted((tmp_path / "w").rglob("displays/kdd.parquet"))
    first.write_bytes(second.read_bytes())  # made from other simulations
    second.write_bytes(second.read_bytes()[:-100])
    labels = watched(monkeypatch)
    assert pbm(*options).code == 0
    assert labels == ["bc-mp-ts", PIE, "pbm-ts"]
    (tmp_path / "w" / "bounds" / "kdd.parquet").unlink()
    assert pbm(*options).code == 0
    assert files(tmp_path / "w") == clean
    assert len(labels) == 3


def test_a_kill_while_the_files_get_their_names_loses_nothing(
    tmp_path: Path, models: Path, clean: dict[str, bytes], pbm: Pbm, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("simulate", "-w", tmp_path / "w", "--models", models, *SHORT)
    assert pbm(*options, "--policies", PIE).code == 0
    publish = Draft.publish

    def stop_at_displays(draft: Draft) -> None:
        if draft.path == tmp_path / "w" / "displays" / "kdd.parquet":
            raise StoppedError
        publish(draft)

    with monkeypatch.context() as patch:
        patch.setattr(Draft, "publish", stop_at_displays)
        with pytest.raises(StoppedError):
            pbm(*options, *ALL, "--resume")
    labels = watched(monkeypatch)
    assert pbm(*options, *ALL, "--resume").code == 0
    assert labels == []
    assert files(tmp_path / "w") == clean


def test_sigkill_loses_only_the_policy_that_was_played(tmp_path: Path, models: Path, pbm: Pbm) -> None:
    size = ("--models", models, "--runs", 8, "--horizon", 40_000, "--policies", "oracle,pbm-ts")
    command = [PBM, *map(str, ("simulate", "--resume", "-w", tmp_path / "w", *size))]
    part = tmp_path / "w" / "simulations" / ".kdd.parts" / "oracle" / "displays" / "kdd.parquet"
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        while not part.exists() and process.poll() is None:
            time.sleep(0.001)
        process.kill()
        assert process.communicate()[0] == b""
    assert not (tmp_path / "w" / "simulations" / "kdd.parquet").exists()
    assert pbm("simulate", "--resume", "-w", tmp_path / "w", *size).err == "pbm: note: taken from before: oracle\n"
    assert pbm("simulate", "-w", tmp_path / "clean", *size).code == 0
    assert files(tmp_path / "w") == files(tmp_path / "clean")


def test_a_workspaces_models_are_those_that_were_read(tmp_path: Path, pbm: Pbm, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when they are fitted again while they are played: what was played is neither taken nor shown as of the new ones."""
    cells = [(query, ad, position) for query in ("x", "y") for ad in ("a", "b", "c") for position in (1, 2)]
    counts = pl.DataFrame(cells, orient="row", schema={"query_id": pl.String, "ad_id": pl.String, "position": pl.Int8})
    clicked = pl.Series([400, 200, 300, 150, 200, 100, 500, 100, 250, 50, 100, 20])
    rows = counts.with_columns(lines=pl.lit(1000), impressions=pl.lit(1000), clicked_lines=clicked, clicks=clicked)
    saving.write(COUNTS, rows, Provenance({"unit": "lines"}, {}), tmp_path)
    for command in (("matrices", "--bootstrap", 19), ("fit",)):
        assert pbm(*command, "-w", tmp_path).code == 0
    options = ("simulate", "--resume", "-w", tmp_path, *SHORT, "--policies", "oracle,uniform")
    assert pbm(*options).err == ""
    assert pbm("show", "simulations/kdd", "-w", tmp_path).code == 0
    assert pbm(*options).err == "pbm: note: taken from before: oracle, uniform\n"
    models = MODELS.path(tmp_path)
    old = models.read_bytes()
    assert pbm("fit", "--method", "newton", "-w", tmp_path).code == 0
    assert models.read_bytes() != old
    watched(monkeypatch, on_play=lambda: models.write_bytes(old))
    assert pbm(*options).err == ""
    assert "was made from another models.parquet" in pbm("show", "simulations/kdd", "-w", tmp_path).err
    assert pbm(*options).err == ""


@pytest.mark.parametrize("ids", [[7, 7], [7, None], pl.Series([7, 2**63], dtype=pl.UInt64), [0.5, 1.5], [[1], [2]]])
def test_ids_that_could_not_be_kept_are_refused_before_anything_is_played(ids: object, tmp_path: Path, pbm: Pbm) -> None:
    models = tmp_path / "models.parquet"
    pl.DataFrame({"query_id": ids, "theta": [[0.3, 0.2]] * 2, "kappa": [[1.0]] * 2}).write_parquet(models)
    assert pbm("simulate", "-w", tmp_path, "--models", models).err == (
        f"pbm: error: {models}: expected a query_id of its own in each row, an integer below 2^63 or a text\n"
    )
