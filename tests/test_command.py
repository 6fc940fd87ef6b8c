"""The command line: exact error texts, exit codes, JSON, silence, speed of --help."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipeline import cli
from tests.conftest import Pbm, kdd, skip_outside_ci

PBM = str(Path(sys.executable).with_name("pbm"))
GOOD = kdd(1, 2, 1) + b"\n"


def error(text: str) -> tuple[int, str, str]:
    return (1, "", f"pbm: error: {text}\n")


def test_a_missing_log(tmp_path: Path, pbm: Pbm) -> None:
    log = tmp_path / "no.txt"
    assert pbm("count", log, "-w", tmp_path) == error(
        f"there is no log at {log}; check the path, or make a synthetic log with `pbm synthesize`"
    )


def test_a_directory(tmp_path: Path, pbm: Pbm) -> None:
    assert pbm("count", tmp_path, "-w", tmp_path) == error(
        f"{tmp_path} is a directory; name the log file in it, e.g. {tmp_path}/training.txt"
    )


def test_a_pipe(tmp_path: Path, pbm: Pbm) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert pbm("count", tmp_path / "pipe", "-w", tmp_path) == error(
        f"{tmp_path}/pipe is not a regular file; pbm reads a log twice, so write the stream to a file first"
    )


def test_an_empty_log(tmp_path: Path, pbm: Pbm) -> None:
    log = tmp_path / "log.txt"
    log.touch()
    assert pbm("count", log, "-w", tmp_path) == error(f"{log} is empty; expected a log in format 'kdd2012'")
    log.write_bytes(b"\xef\xbb\xbf")
    assert pbm("count", log, "-w", tmp_path) == error(f"{log} is empty; expected a log in format 'kdd2012'")


def test_a_log_of_one_line(tmp_path: Path, pbm: Pbm) -> None:
    log = tmp_path / "a 'log' é.txt"
    log.write_bytes(GOOD)
    outcome = pbm("count", log, "-w", tmp_path)
    assert outcome.code == 0
    assert outcome.err == (
        "pbm: note: no query has 5 ads with 1,000 lines at each of 3 positions, so counts.parquet is empty; "
        "lower --min-displays, --min-ads or --positions\n"
    )
    assert outcome.out.startswith(
        "lines read                      1\n"
        "- rejected                      0\n"
        "- dropped: position above 3     0\n"
        "- dropped by the filter         1\n"
        "= kept                          0\n"
        "queries kept                    0\n"
        "ads kept                        0\n"
        "seconds "
    )


def test_a_log_without_permission(tmp_path: Path, pbm: Pbm) -> None:
    log = tmp_path / "log.txt"
    log.write_bytes(GOOD)
    log.chmod(0)
    if os.geteuid() == 0:  # root may read everything: be nobody for a moment
        tmp_path.chmod(0o755)
        for folder in (tmp_path, *tmp_path.parents[:2]):
            folder.chmod(0o755)
        os.seteuid(65534)
        try:
            outcome = pbm("count", log, "-w", tmp_path)
        finally:
            os.seteuid(0)
    else:
        outcome = pbm("count", log, "-w", tmp_path)
    assert outcome == error(f"cannot read {log}: Permission denied")


def test_a_file_name_that_is_no_text(tmp_path: Path, pbm: Pbm) -> None:
    log = tmp_path / os.fsdecode(b"a\xffb.txt")
    log.write_bytes(GOOD[:-1])
    outcome = pbm("count", log, "-w", tmp_path)
    assert outcome.code == 0
    assert "a\\udcffb.txt does not end with a newline" in outcome.err
    log.unlink()
    assert pbm("count", log, "-w", tmp_path).code == 1


@pytest.mark.parametrize("content", [Path(sys.executable).read_bytes()[:100_000], b"rubbish\n", b"\x00\x01"])
def test_a_file_without_a_good_line_is_no_log(content: bytes, tmp_path: Path, pbm: Pbm) -> None:
    log = tmp_path / "log"
    log.write_bytes(content)
    outcome = pbm("count", log, "-w", tmp_path)
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.startswith(f"pbm: error: {log} has no good line in format 'kdd2012'; the first is bad: ")
    assert not (tmp_path / "counts.parquet").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("é\n".encode("utf-16"), "is UTF-16 text; convert it to UTF-8"),
        (b"\xfd7zXZ\x00", "is xz data; unpack it first"),
    ],
)
def test_what_cannot_be_read_is_called_by_its_name(content: bytes, message: str, tmp_path: Path, pbm: Pbm) -> None:
    log = tmp_path / "log"
    log.write_bytes(content)
    assert pbm("count", log, "-w", tmp_path) == error(f"{log} {message}")


def test_an_output_that_is_no_file(tmp_path: Path, pbm: Pbm) -> None:
    os.mkfifo(tmp_path / "pipe")
    for out in (tmp_path / "pipe", tmp_path):
        assert pbm("synthesize", "-w", tmp_path, "--out", out) == error(
            f"cannot write {out}: it is not a regular file; name another"
        )
    assert (tmp_path / "pipe").is_fifo()


@pytest.mark.long
@pytest.mark.parametrize("engine", ["polars", "duckdb"])
def test_ctrl_c_is_answered_with_one_line(engine: str, default_workspace: Path, tmp_path: Path) -> None:
    """At moments spread over the whole run, the second pass included, where the engine holds the reins."""
    command = [PBM, "count", str(default_workspace / "raw" / "training.txt"), "-w", str(tmp_path), "--engine", engine]
    for _ in range(2):  # the first may have kernels to compile
        start = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        duration = time.perf_counter() - start
    interrupted = answered = 0
    for moment in (0.5, 0.6, 0.7, 0.75, 0.8, 0.85):
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            time.sleep(duration * moment)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate()
        if not out:  # else it was done before
            interrupted += 1
            answered += (process.returncode, err) == (130, "pbm: interrupted\n")
    assert interrupted >= 2
    assert answered >= interrupted - 1  # one may hit a library's own start or end, where no answer of ours is heard


def test_memory_does_not_follow_the_bad_lines(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_bytes(GOOD + b"\n" * 20_000_000)
    command = [PBM, "count", str(tmp_path / "log.txt"), "-w", str(tmp_path)]
    # Run by a small process of its own: a child's peak counts what its parent held when it was forked, and pytest holds much.
    code = (
        "import resource, subprocess, sys; ended = subprocess.run(sys.argv[1:], capture_output=True, text=True); "
        "print(ended.returncode, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, ended.stderr)"
    )
    told = subprocess.run([sys.executable, "-c", code, *command], capture_output=True, text=True, check=True).stdout
    returncode, peak_kib, err = told.split(maxsplit=2)
    assert returncode == "1"
    assert "lines are bad, and --max-bad-lines allows 1,000" in err
    assert int(peak_kib) < 768 * 1024


def test_a_workspace_without_permission(tmp_path: Path, pbm: Pbm) -> None:
    (tmp_path / "log.txt").write_bytes(GOOD)
    (tmp_path / "file").touch()
    outcome = pbm("count", tmp_path / "log.txt", "-w", tmp_path / "file")
    assert outcome == error(
        f"cannot write {tmp_path}/file/rejects.parquet: File exists; make room there, or choose another place"
    )


def test_a_full_disk(tmp_path: Path, default_workspace: Path, pbm: Pbm) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], capture_output=True, text=True)
    if mount.returncode:
        skip_outside_ci(f"no small disk can be mounted here: {mount.stderr.strip()}")
    try:
        assert pbm("synthesize", "-w", disk) == error(
            f"cannot write {disk}/raw/training.txt: No space left on device; make room there, or choose another place"
        )
        (disk / "counts.parquet").write_bytes(b"old")
        (disk / "filler").write_bytes(bytes(60 * 1024))
        outcome = pbm("count", default_workspace / "raw" / "training.txt", "-w", disk)
        assert outcome == error(
            f"cannot write {disk}/counts.parquet: No space left on device; make room there, or choose another place"
        )
        assert (disk / "counts.parquet").read_bytes() == b"old"
        assert sorted(path.name for path in disk.iterdir()) == ["counts.parquet", "filler", "raw"]
        assert list((disk / "raw").iterdir()) == []
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--positions", 4], "--positions is 4, expected 1 to 3, the positions of format 'kdd2012'"),
        (["--min-displays", 2**32], "--min-displays is 4294967296, expected 1 to 4294967295"),
        (
            ["--format", "kdd"],
            "there is no format 'kdd'; there are kdd2012, "
            "and any declaration of your own: --format FILE.toml (see `pbm formats`)",
        ),
        (["--format", "no.toml"], "cannot read the format 'no.toml': No such file or directory"),
    ],
)
def test_values_that_no_log_can_meet(arguments: list[object], message: str, tmp_path: Path, pbm: Pbm) -> None:
    (tmp_path / "log.txt").write_bytes(GOOD)
    assert pbm("count", tmp_path / "log.txt", "-w", tmp_path, *arguments) == error(message)


@pytest.mark.parametrize(
    "arguments", [["count"], ["count", "x", "--unit", "clicks"], ["count", "x", "--min-ads", "0"], ["nothing"]]
)
def test_wrong_usage_exits_with_2(arguments: list[str], pbm: Pbm) -> None:
    outcome = pbm(*arguments)
    assert outcome.code == 2
    assert "Usage: pbm" in outcome.err


def test_json_is_the_closing_result(tmp_path: Path, pbm: Pbm) -> None:
    (tmp_path / "log.txt").write_bytes(GOOD + b"\n")
    result = json.loads(pbm("count", tmp_path / "log.txt", "-w", tmp_path, "--json").out)
    assert (result["lines"], result["kept"], result["rejected"]) == (2, 0, {"empty line": 1})
    assert result["lines"] == result["kept"] + result["dropped_filter"] + result["dropped_positions"] + sum(
        result["rejected"].values()
    )


def test_formats_prints_a_declaration_to_start_from(tmp_path: Path, pbm: Pbm) -> None:
    assert pbm("formats").out.startswith("kdd2012  KDD Cup 2012 Track 2")
    (tmp_path / "copy.toml").write_text(pbm("formats", "kdd2012").out)
    (tmp_path / "log.txt").write_bytes(GOOD)
    assert pbm("count", tmp_path / "log.txt", "-w", tmp_path, "--format", tmp_path / "copy.toml").code == 0


def test_progress_is_shown_on_a_terminal_and_nowhere_else(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_bytes(GOOD * 1000)
    command = [
        PBM,
        "count",
        str(tmp_path / "log.txt"),
        "-w",
        str(tmp_path),
        "--min-displays",
        "1",
        "--min-ads",
        "1",
        "--positions",
        "1",
    ]
    piped = subprocess.run(command, capture_output=True, text=True, check=True)
    assert piped.stderr == ""
    ours, theirs = pty.openpty()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, env={**os.environ, "TERM": "xterm"}) as process:
        os.close(theirs)
        assert process.stdout
        shown = b""
        while True:
            try:
                piece = os.read(ours, 1 << 16)
            except OSError:  # the other end is closed
                break
            shown += piece
        table = process.stdout.read().decode()
    os.close(ours)
    assert b"reading" in shown
    assert b"counting" in shown
    assert table.splitlines()[:7] == piped.stdout.splitlines()[:7]


def test_every_command_is_in_the_readme() -> None:
    readme = (Path(__file__).parent.parent / "README.md").read_text()
    for command in cli.app.registered_commands:
        name = command.name or getattr(command.callback, "__name__", "")
        assert f"pbm {name}" in readme, f"`pbm {name}` is not in the README"


def test_help_and_version_answer_at_once() -> None:
    """Within 3 times `python -c pass` plus 0.3 s; the least of several runs, as machines are noisy."""

    def least(*command: str) -> float:
        times = []
        for _ in range(5):
            start = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True)
            times.append(time.perf_counter() - start)
        return min(times)

    bare = least(sys.executable, "-c", "pass")
    for option in ("--help", "--version"):
        assert least(PBM, option) <= 3 * bare + 0.3


def test_help_imports_nothing_heavy() -> None:
    heavy = ("numba", "polars", "duckdb", "pyarrow", "numpy", "rich.console")
    code = f"import sys, pipeline.cli; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "[]\n"
