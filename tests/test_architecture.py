"""The folder tree is the architecture: who may import whom."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# A module (or package) may import itself and these.
ALLOWED = {
    "pipeline.errors": set(),
    "pipeline.filter": set(),
    "pipeline.published": set(),
    "pipeline.progress": set(),
    "pipeline.near": set(),
    "pipeline.formats": {"pipeline.errors", "pipeline.near"},
    "pipeline.log": {"pipeline.errors", "pipeline.formats"},
    "pipeline.cluster": {"pipeline", "pipeline.errors", "pipeline.progress"},
    "pipeline.engines": {
        *("pipeline", "pipeline.cluster", "pipeline.errors", "pipeline.filter", "pipeline.formats", "pipeline.log"),
    },
    "pipeline.shards": {"bandits", "pipeline", "pipeline.cluster"},
    "pipeline.artefacts": {"pipeline.errors"},
    "pipeline.saving": {"pipeline", "pipeline.artefacts", "pipeline.errors"},
    "pipeline.synthesis": {"pipeline.filter", "pipeline.log", "pipeline.published"},
    "pipeline.listing": set(),
    "pipeline.experiments": set(),
    "pipeline.report": {
        *("bandits", "estimation", "pipeline", "pipeline.artefacts", "pipeline.errors", "pipeline.experiments"),
        *("pipeline.listing", "pipeline.published"),
    },
    "estimation": set(),
    "bandits": set(),
    "pipeline.stages": {
        *("bandits", "estimation", "pipeline.experiments", "pipeline.near", "pipeline.shards"),
        *("pipeline.artefacts", "pipeline.engines", "pipeline.errors", "pipeline.filter", "pipeline.formats"),
        *("pipeline.log", "pipeline.progress", "pipeline.report", "pipeline.saving", "pipeline.synthesis"),
    },
    "pipeline.cli": {
        *("bandits", "pipeline.cluster", "pipeline.experiments", "pipeline.listing", "pipeline.log"),
        *("pipeline", "pipeline.engines", "pipeline.errors", "pipeline.filter", "pipeline.formats", "pipeline.stages"),
    },
}
OURS = ("pipeline", "estimation", "bandits")
FORBIDDEN_NAMES = {"utils", "helpers", "common", "base", "misc"}


def imports(path: Path) -> set[str]:
    """The modules of ours that a file imports, `from pipeline import formats` as pipeline.formats."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            submodules = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {
                name
                if (ROOT / name.replace(".", "/")).with_suffix(".py").exists() or (ROOT / name.replace(".", "/")).is_dir()
                else str(node.module)
                for name in submodules
            }
    return {name for name in found if name.split(".")[0] in OURS}


def part(module: str) -> str:
    """The entry of the map that a module belongs to."""
    return ".".join(module.split(".")[:2]) if module.startswith("pipeline") else module.split(".")[0]


@pytest.mark.parametrize(
    "path",
    sorted([*ROOT.glob("pipeline/**/*.py"), *ROOT.glob("estimation/*.py"), *ROOT.glob("bandits/**/*.py")]),
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_imports_go_one_way(path: Path) -> None:
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    if module == "pipeline":
        assert not imports(path)
        return
    mine = part(module)
    foreign = {part(name) for name in imports(path)} - {mine}
    assert foreign <= ALLOWED[mine], f"{module} imports {foreign - ALLOWED[mine]}"


def test_the_rule_would_notice_a_wrong_import(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text("import numpy\nimport estimation.em\nfrom pipeline import cli\nfrom pipeline.stages.count import count\n")
    assert imports(wrong) == {"estimation.em", "pipeline.cli", "pipeline.stages.count"}
    assert part("pipeline.stages.count") == "pipeline.stages"
    assert not {"pipeline.cli", "pipeline.stages"} & set().union(
        *(ALLOWED[name] for name in ("pipeline.log", "pipeline.engines"))
    )


def test_no_file_has_a_name_that_says_nothing() -> None:
    assert not {path for path in ROOT.glob("[a-z]*/**/*.py") if path.stem in FORBIDDEN_NAMES and ".venv" not in path.parts}
