"""From counts to models by the commands: the paper's table, the planted parameters, the warnings, the analysts' view."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pytest

from pipeline import artefacts, saving
from pipeline.artefacts import COUNTS, DIAGNOSTICS, MATRICES, MODELS, TRUTH, Provenance
from pipeline.listing import cell, listing
from pipeline.published import MODELS as PUBLISHED
from tests.conftest import ROOT, Pbm


@pytest.fixture
def estimated(default_workspace: Path, pbm: Pbm) -> Path:
    assert pbm("count", default_workspace / "raw" / "training.txt", "-w", default_workspace).code == 0
    assert pbm("matrices", "-w", default_workspace, "--bootstrap", 199).code == 0
    assert pbm("fit", "-w", default_workspace).code == 0
    return default_workspace


def counted(workspace: Path, rows: Sequence[tuple[object, object, int, int, int]], unit: str = "lines") -> None:
    """Write counts.parquet from (query, ad, position, displays, clicks)."""
    table = pl.DataFrame(rows, orient="row", schema=["query_id", "ad_id", "position", "lines", "clicked_lines"]).with_columns(
        pl.col("position").cast(pl.Int8), impressions=pl.col("lines"), clicks=pl.col("clicked_lines")
    )
    saving.write(COUNTS, table, Provenance({"unit": unit}, {}), workspace)


def test_the_table_is_the_papers(default_workspace: Path, estimated: Path, pbm: Pbm) -> None:
    outcome = pbm("fit", "-w", estimated)
    assert outcome.err == ""
    header, *lines = outcome.out.splitlines()
    assert header.split() == ["query_id", "n_ads", "records", "theta_min", "theta_max", "kappa", "p_value", "sigma2_ratio"]
    table = {int(words[0]): [float(word) for word in words[1:]] for words in map(str.split, lines)}
    assert list(table) == [model.query_id for model in sorted(PUBLISHED, key=lambda model: (len(model.theta), model.query_id))]
    for model in PUBLISHED:
        n_ads, records, *_ = table[model.query_id]
        assert (n_ads, records) == (len(model.theta), model.records)


def test_planted_parameters_lie_within_four_standard_errors(estimated: Path) -> None:
    """58 thetas and 16 kappas: a false alarm of 74 x 6e-5 = 0.5% over the choice of the seed, which is fixed."""
    models = artefacts.read(MODELS, estimated)
    truth = artefacts.read(TRUTH, estimated)
    thetas = models.explode("ad_ids", "theta", "theta_se").join(
        truth.filter(pl.col("position") == 1).rename({"ad_id": "ad_ids"}), on=["query_id", "ad_ids"], suffix="_true"
    )
    assert thetas.height == truth.height // 3
    assert (((thetas["theta"] / thetas["theta_true"]).log() / (thetas["theta_se"] / thetas["theta"])).abs() < 4).all()
    planted = {model.query_id: model.kappa for model in PUBLISHED}
    for query_id, kappa, se in models.select("query_id", "kappa", "kappa_se").iter_rows():
        for estimate, error, true in list(zip(kappa, se, planted[query_id], strict=True))[1:]:
            assert abs(np.log(estimate / true)) < 4 * error / estimate


def test_the_artefacts_keep_the_contract(estimated: Path) -> None:
    models = artefacts.read(MODELS, estimated)
    contract = (
        "query_id n_ads n_positions records theta_min theta_max ad_ids theta theta_se theta_low theta_high kappa kappa_se "
        "kappa_ref log_likelihood em_iterations converged g2 dof p_value dispersion"
    )
    assert models.columns[:21] == contract.split()
    for theta, low, high, kappa in models.select("theta", "theta_low", "theta_high", "kappa").iter_rows():
        assert theta == sorted(theta, reverse=True)
        assert all(a < b < c for a, b, c in zip(low, theta, high, strict=True))
        assert max(kappa) == 1
    assert (models["em_iterations"] > 0).all()
    matrices = artefacts.read(MATRICES, estimated)
    assert matrices.columns == ["query_id", "ad_id", "displays", "clicks", "ctr"]
    for displays, clicks, rates in matrices.select("displays", "clicks", "ctr").iter_rows():
        assert rates == [s / n for s, n in zip(clicks, displays, strict=True)]
    diagnostics = artefacts.read(DIAGNOSTICS, estimated)
    assert diagnostics.columns == list(DIAGNOSTICS.columns)
    assert (diagnostics["sigma2_p_value"] > 0.001).all()


def test_em_and_newton_write_the_same_models(estimated: Path, pbm: Pbm) -> None:
    em = artefacts.read(MODELS, estimated)
    assert pbm("fit", "-w", estimated, "--method", "newton").code == 0
    newton = artefacts.read(MODELS, estimated)
    assert (newton["em_iterations"] == 0).all()
    for column in ("theta", "theta_se", "kappa"):
        np.testing.assert_allclose(em[column].explode().to_numpy(), newton[column].explode().to_numpy(), rtol=1e-8)


def test_the_same_run_gives_the_same_bytes_and_no_query_moves_anothers_draws(tmp_path: Path, pbm: Pbm) -> None:
    rows = [(q, ad, l, 1000 + 50 * l, 90 // l + 10 * ad + q) for q in (1, 2, 3) for ad in range(5) for l in (1, 2, 3)]
    kept = {}
    for name, queries in (("a", (1, 2, 3)), ("b", (1, 2, 3)), ("c", (2,))):
        counted(tmp_path / name, [row for row in rows if row[0] in queries])
        assert pbm("matrices", "-w", tmp_path / name, "--bootstrap", 99, "--seed", 5).code == 0
        assert pbm("fit", "-w", tmp_path / name).code == 0
        kept[name] = [artefact.path(tmp_path / name).read_bytes() for artefact in (MATRICES, DIAGNOSTICS, MODELS)]
    assert kept["a"] == kept["b"]
    whole, alone = (artefacts.read(DIAGNOSTICS, tmp_path / name).filter(pl.col("query_id") == 2) for name in ("a", "c"))
    assert whole.equals(alone)


def test_text_ids_go_through(tmp_path: Path, pbm: Pbm) -> None:
    ids = ["<b>", "\u202ex", "a'b"]
    counted(tmp_path, [("<script>", ad, l, 1000, 90 // l + 7 * k) for k, ad in enumerate(ids) for l in (1, 2)])
    assert pbm("matrices", "-w", tmp_path).code == 0
    assert pbm("fit", "-w", tmp_path).code == 0
    assert artefacts.read(MODELS, tmp_path)["ad_ids"].to_list() == [ids[::-1]]
    shown = pbm("show", "models", "-w", tmp_path, "--columns", "query_id,ad_ids").out
    assert shown == "query_id  ad_ids\n<script>  a'b \\u202ex <b>\n"


def test_the_unit_of_the_counts_is_followed(tmp_path: Path, pbm: Pbm) -> None:
    rows = pl.DataFrame(
        {"query_id": [1, 1], "ad_id": [1, 1], "position": [1, 2], "lines": [10, 10], "clicked_lines": [3, 2]},
        schema_overrides={"position": pl.Int8},
    ).with_columns(impressions=pl.Series([100, 90]), clicks=pl.Series([5, 4]))
    for unit, displays in (("lines", [10, 10]), ("impressions", [100, 90])):
        saving.write(COUNTS, rows, Provenance({"unit": unit}, {}), tmp_path)
        assert f"counted in {unit}" in pbm("matrices", "-w", tmp_path).out
        assert artefacts.read(MATRICES, tmp_path)["displays"].to_list() == [displays]


def warned(tmp_path: Path, pbm: Pbm, clicks: list[list[int]], displays: int = 100_000) -> list[str]:
    """What `pbm fit` says of one query (7) with ads 10, 11, ..."""
    counted(
        tmp_path,
        [(7, 10 + k, l + 1, displays, s) for k, row in enumerate(clicks) for l, s in enumerate(row)]
        + [(8, 10 + k, l + 1, 1000, 100 // (l + 1)) for k in range(5) for l in range(len(clicks[0]))],
    )
    assert pbm("matrices", "-w", tmp_path, "--bootstrap", 19).code == 0
    outcome = pbm("fit", "-w", tmp_path)
    assert outcome.code == 0
    return [line.removeprefix("pbm: note: ") for line in outcome.err.splitlines()]


def test_warnings_name_query_and_ad(tmp_path: Path, pbm: Pbm) -> None:
    assert warned(tmp_path, pbm, [[900, 400, 300], [500, 250, 160], [300, 140, 98]]) == []
    assert warned(tmp_path, pbm, [[900, 400, 300], [0, 0, 0], [300, 140, 98]]) == [
        "query 7, ad 11: no click in 300,000 displays; theta is 0, and at most 1.1e-05 (95%)"
    ]
    assert warned(tmp_path, pbm, [[900, 0, 300], [500, 0, 160]]) == [
        "query 7, position 2: no click in 200,000 displays; kappa is 0, and at most 0.0014 (95%)",
        "query 7: kappa does not fall with the position (1.000, 0.000, 0.329); is the position column what it should be?",
    ]
    assert warned(tmp_path, pbm, [[400, 900, 300], [250, 500, 160], [140, 300, 98]]) == [
        "query 7: kappa does not fall with the position (0.465, 1.000, 0.328); is the position column what it should be?"
    ]
    rejected = warned(tmp_path, pbm, [[9000, 2500, 2000], [4000, 4000, 1600], [3000, 1400, 1980]])
    assert len(rejected) == 2
    assert re.fullmatch(
        r"query 7: the model is rejected \(G2 = [\d.]+ on 4 degrees of freedom, p = 0\); "
        r"its clicks are no product of kappa and theta",
        rejected[0],
    )
    assert re.fullmatch(
        r"query 7: dispersion [\d.]+, far above 1: clicks vary more than the model's; multiply its standard errors by [\d.]+",
        rejected[1],
    )
    assert warned(tmp_path, pbm, [[1000, 500], [300, 150]], displays=1000) == [
        "query 7, ad 10: clicked at every display at some position; kappa theta is at its limit 1 there, "
        "and theta has no standard error",
    ]
    both_ways = warned(tmp_path, pbm, [[500, 0], [0, 300]], displays=1000)  # rejected, but identified
    assert not any("left out" in warning for warning in both_ways)
    assert artefacts.read(MODELS, tmp_path)["query_id"].to_list() == [7, 8]
    assert warned(tmp_path, pbm, [[0, 0], [0, 0]], displays=1000) == ["query 7 has no click: it is left out"]
    assert artefacts.read(MODELS, tmp_path)["query_id"].to_list() == [8]


def test_what_cannot_be_estimated_is_refused(tmp_path: Path, pbm: Pbm) -> None:
    assert (
        pbm("matrices", "-w", tmp_path).err
        == f"pbm: error: there is no {tmp_path}/counts.parquet; make it with `pbm count LOG`\n"
    )
    assert pbm("fit", "-w", tmp_path).err == f"pbm: error: there is no {tmp_path}/matrices.parquet; make it with `pbm matrices`\n"
    counted(tmp_path, [(1, 1, 1, 10, 1), (1, 1, 2, 10, 1), (1, 2, 1, 10, 1)])
    assert pbm("matrices", "-w", tmp_path).err == (
        f"pbm: error: {tmp_path}/counts.parquet: ad 2 of query 1 has positions [1], expected 1 to 2; "
        "make it again with `pbm count LOG`\n"
    )
    saving.write(COUNTS, artefacts.read(COUNTS, tmp_path).clear(), Provenance({"unit": "lines"}, {}), tmp_path)
    assert pbm("matrices", "-w", tmp_path).err == (
        f"pbm: error: {tmp_path}/counts.parquet has no rows: no query passed the filter; count with a lower --min-displays\n"
    )
    counted(tmp_path, [(1, 1, 1, 10, 0), (1, 1, 2, 10, 0)])
    assert pbm("matrices", "-w", tmp_path).code == 0
    assert pbm("fit", "-w", tmp_path).err == (
        f"pbm: error: {tmp_path}/matrices.parquet: no query has a model: query 1 has no click: it is left out\n"
    )


def test_counts_and_matrices_that_are_none_are_refused(tmp_path: Path, pbm: Pbm) -> None:
    expected = "expected 0 <= clicks <= displays, and displays, at each position"
    for displays, clicks in ((10, 11), (0, 0)):
        counted(tmp_path, [(1, 1, 1, displays, clicks)])
        assert pbm("matrices", "-w", tmp_path) == (
            1,
            "",
            f"pbm: error: {tmp_path}/counts.parquet: ad 1 of query 1 has [{clicks}] clicks of [{displays}] displays, {expected}; "
            "make it again with `pbm count LOG`\n",
        )
    counted(tmp_path, [(1, 1, 1, 10, 1)], unit="pages")
    assert pbm("matrices", "-w", tmp_path).err == (
        f"pbm: error: {tmp_path}/counts.parquet says that it was counted in 'pages', expected one of lines, impressions; "
        "make it again with `pbm count LOG`\n"
    )
    counted(tmp_path, [(1, 1, 1, 10, 1), (1, 1, 2, 10, 1)])
    assert pbm("matrices", "-w", tmp_path).code == 0
    good = artefacts.read(MATRICES, tmp_path)
    for clicks_list in ([1], [1, None], [1, 11], []):
        broken = good.with_columns(clicks=pl.Series([clicks_list], dtype=pl.List(pl.Int64)))
        saving.write(MATRICES, broken, Provenance({"unit": "lines"}, {}), tmp_path)
        outcome = pbm("fit", "-w", tmp_path)
        assert (outcome.code, outcome.out) == (1, "")
        assert expected in outcome.err
    saving.write(MATRICES, good.clear(), Provenance({"unit": "lines"}, {}), tmp_path)
    assert "matrices.parquet has no rows" in pbm("fit", "-w", tmp_path).err


def test_parts_that_nothing_compares_are_named_by_their_ids() -> None:
    from estimation.tables import tables
    from pipeline.stages.fit import _left_out

    ads = pl.DataFrame({"query_id": ["q"] * 3, "ad_id": ["a", "b", "c"]})
    assert _left_out(tables([[5, 0], [6, 0], [0, 3]], [[90, 0], [90, 0], [0, 80]]), ads) == (
        "query 'q' is not connected: no count compares the scales of its parts, ads ['a', 'b'] with positions [1]; "
        "ads ['c'] with positions [2]; it is left out"
    )


def test_matrices_of_other_counts_are_refused(tmp_path: Path, pbm: Pbm) -> None:
    counted(tmp_path, [(1, 1, 1, 10, 1), (1, 1, 2, 10, 1)])
    assert pbm("matrices", "-w", tmp_path).code == 0
    counted(tmp_path, [(1, 1, 1, 10, 2), (1, 1, 2, 10, 1)])
    assert pbm("fit", "-w", tmp_path) == (
        1,
        "",
        f"pbm: error: {tmp_path}/matrices.parquet was made from another counts.parquet than the one beside it; "
        "run `pbm matrices` again\n",
    )


def test_json_has_the_table_and_the_warnings(tmp_path: Path, pbm: Pbm) -> None:
    counted(tmp_path, [(1, 1, 1, 10, 2), (1, 1, 2, 10, 1), (1, 2, 1, 10, 0), (1, 2, 2, 10, 0)])
    assert json.loads(pbm("matrices", "-w", tmp_path, "--json").out)["queries"] == 1
    result = json.loads(pbm("fit", "-w", tmp_path, "--json").out)
    assert result["models"][0]["records"] == 40
    assert result["models"][0]["p_value"] is None
    assert result["warnings"][0].startswith("query 1, ad 2: no click")


def test_show_any_artefact(estimated: Path, pbm: Pbm) -> None:
    for name in ("counts", "rejects", "truth", "matrices", "diagnostics", "models", "models.parquet", "raw/truth"):
        outcome = pbm("show", name, "-w", estimated)
        assert (outcome.code, outcome.err) == (0, "")
    assert pbm("show", "counts", "-w", estimated, "--rows", 2, "--columns", "query_id,position").out == (
        "query_id  position\n       1         1\n       1         2\n... 174 rows in all; --rows N shows more\n"
    )
    assert len(json.loads(pbm("show", "models", "-w", estimated, "--json").out)) == 8
    assert pbm("show", "model", "-w", estimated).err == "pbm: error: there is no artefact 'model'; did you mean 'models'?\n"
    assert pbm("show", "models", "-w", estimated, "--columns", "n_ads, n_ads").out.startswith("n_ads\n")
    assert pbm("show", "models", "-w", estimated, "--columns", "kapa").err == (
        "pbm: error: models has no column 'kapa'; did you mean 'kappa'?\n"
    )


def test_a_listing_is_as_wide_as_asked() -> None:
    rows = pl.DataFrame({"name": ["a", "bb"], "value": [1.23456, float("nan")], "ok": [True, False], "list": [[1, 2], []]})
    assert listing(rows, None) == ("name  value  ok   list\na     1.235  yes  1 2\nbb        -  no", [])
    assert listing(rows, 16) == ("name  value  ok\na     1.235  yes\nbb        -  no", ["list"])
    assert listing(rows, 10) == ("name  ok\na     yes\nbb    no", ["value", "list"])
    assert cell(["big ad", "x"]) == "'big ad' x"
    assert cell("x" * 100) == "x" * 37 + "..."
    assert cell(list(range(20))).endswith("10 11 ...")


def readme_code(language: str) -> list[str]:
    """The blocks of a language in the README's section for analysts."""
    section = (ROOT / "README.md").read_text().split("## The models, for an analyst")[1].split("\n## ")[0]
    return re.findall(rf"```{language}\n(.*?)```", section, re.S)


def test_the_readmes_answers_for_analysts_are_what_its_code_gives(estimated: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(estimated.parent)
    (estimated.parent / "data").symlink_to(estimated)
    try:
        (code,) = readme_code("python")
        scope: dict[str, pl.DataFrame] = {}
        exec(code, scope)
        assert str(scope["answer"]) in readme_code("text")[0]
        (query,) = readme_code("sql")
        answer = duckdb.sql(query)
        assert answer is not None
        assert str(answer.pl()) in readme_code("text")[1]
    finally:
        (estimated.parent / "data").unlink()
