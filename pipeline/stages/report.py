"""`pbm report`: tables and figures of a workspace on one page."""

from pathlib import Path
from typing import NamedTuple

from pipeline import saving
from pipeline.experiments import EXPERIMENTS
from pipeline.progress import progress
from pipeline.report.claims import Claim, Evidence, claims
from pipeline.report.page import page
from pipeline.report.reading import Findings, findings

PARTS = ("simulations", "regret", "bounds")


class Report(NamedTuple):
    """What was written, and what could not be shown."""

    page: Path
    figures: int
    claims: list[Claim]
    missing: list[str]


def report(workspace: Path, folder: Path) -> Report:
    """Write `index.html` with every figure as SVG and PNG beside it, all of them together."""
    with progress("reading", 3, unit="steps") as advance:
        found = findings(workspace)
        advance(1)
        checked = claims(evidence(found))
        made = page(found, checked)
        advance(2)
        with saving.saving(workspace) as save:
            for picture in made.pictures:
                save.file(folder / f"{picture.name}.svg").write(memoryview(picture.svg.encode()))
                save.file(folder / f"{picture.name}.png").write(memoryview(picture.png))
            save.file(folder / "index.html").write(memoryview(made.html.encode()))
        _sweep(folder, {picture.name for picture in made.pictures})
    return Report(folder / "index.html", len(made.pictures), checked, list(found.missing))


def evidence(found: Findings) -> Evidence:
    """What the claims are judged by."""
    parts = {part: {name: found.rows[key] for name in EXPERIMENTS if (key := f"{part}/{name}") in found.rows} for part in PARTS}
    return Evidence(found.rows.get("matrices"), found.rows.get("models"), *(parts[part] for part in PARTS))


def _sweep(folder: Path, names: set[str]) -> None:
    """Remove figures of an earlier report that this one does not have; nothing else in the folder is ours."""
    for stem in ("regret-", "displays-", "ctr-", "theta-", "kappa", "rank"):
        for path in (*folder.glob(f"{stem}*.svg"), *folder.glob(f"{stem}*.png")):
            if path.stem not in names:
                path.unlink()
