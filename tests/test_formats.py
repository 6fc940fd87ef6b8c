"""A format is a declaration; a wrong one is refused with the place and the way out."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from pipeline import formats
from pipeline.errors import FormatError
from pipeline.formats import Kind
from tests.conftest import Pbm

ROLES = '[roles]\nquery = "q"\nitem = "i"\nposition = "p"\nclicks = "c"\n'
TOP = 'name = "own"\nseparator = ","\n'
COLUMNS = "[columns]\nq = {}\ni = {}\np = {}\nc = {}\n"


def test_kdd2012_is_what_the_data_set_says() -> None:
    fmt = formats.load("kdd2012")
    names = "Click Impression DisplayURL AdID AdvertiserID Depth Position QueryID KeywordID TitleID DescriptionID UserID"
    assert [column.name for column in fmt.columns] == names.split()
    assert {column.kind for column in fmt.columns} == {Kind.INTEGER}
    assert fmt.column("DisplayURL").high == 2**64 - 1
    assert (fmt.column("Position").low, fmt.column("Position").high) == (1, 3)


WRONG = {
    "a key misspelled": (
        "seperator = 1\n" + TOP + ROLES + COLUMNS,
        "unknown key 'seperator' in the top level; did you mean 'separator'?",
    ),
    "no roles": (TOP + COLUMNS, "'roles' is missing in the top level"),
    "a role missing": (TOP + ROLES.replace('clicks = "c"\n', "") + COLUMNS, "'clicks' is missing in [roles]"),
    "a role unknown": (
        TOP + ROLES + 'user = "u"\n' + COLUMNS,
        "unknown key 'user' in [roles]; there are query, item, position, clicks",
    ),
    "two roles": (TOP + ROLES.replace('"i"', '"q"') + COLUMNS, "one column plays two roles: q, q, p, c"),
    "a column missing": (
        TOP + ROLES + COLUMNS.replace("q = {}\n", ""),
        "[roles] names the column 'q', which is not in [columns]",
    ),
    "no columns": (TOP + ROLES, "'columns' is missing in the top level"),
    "a separator of two": (
        'separator = "ab"\nname = "x"\n' + ROLES + COLUMNS,
        "'separator' is 'ab', expected one ASCII character",
    ),
    "a separator of digits": (
        'separator = "1"\nname = "x"\n' + ROLES + COLUMNS,
        "'separator' is '1', expected one ASCII character",
    ),
    "a quote that separates": (TOP + 'quote = ","\n' + ROLES + COLUMNS, "'separator' and 'quote' are both ','"),
    "a type unknown": (
        TOP + ROLES + COLUMNS + 'x = { type = "float" }',
        "type of [columns] x is 'float', expected one of integer, text, any",
    ),
    "a type of no type": (TOP + ROLES + COLUMNS + 'x = { type = ["x"] }', "type of [columns] x is ['x'], expected one of"),
    "a text position": (
        TOP + ROLES + COLUMNS.replace("p = {}", 'p = { type = "text" }'),
        "[columns] p is text, which only the query and",
    ),
    "an unchecked click": (
        TOP + ROLES + COLUMNS.replace("c = {}", 'c = { type = "any" }'),
        "[columns] c is clicks, so its type cannot",
    ),
    "a range of text": (
        TOP + ROLES + COLUMNS.replace("q = {}", 'q = { type = "text", max = 3 }'),
        "[columns] q has a range, which only",
    ),
    "a range upside down": (
        TOP + ROLES + COLUMNS.replace("p = {}", "p = { min = 3, max = 1 }"),
        "range of [columns] p is 3 to 1, expected",
    ),
    "ids beyond int64": (
        TOP + ROLES + COLUMNS.replace("q = {}", "q = { max = 9223372036854775808 }"),
        "range of [columns] q is 0 to",
    ),
    "header as a word": (
        TOP + 'header = "yes"\n' + ROLES + COLUMNS,
        "'header' in the top level is 'yes', expected true or false",
    ),
    "no table": (TOP + ROLES + COLUMNS + "x = 3", "[columns] x is 3, expected a table such as { min = 0 }"),
    "no TOML": ("name = ", "not valid TOML: "),
    "too deep": ("x = " + "[" * 5000, "not valid TOML: "),
    "too long a number": ("x = " + "1" * 5000, "not valid TOML: "),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_declaration_is_refused(what: str, tmp_path: Path) -> None:
    text, message = WRONG[what]
    path = tmp_path / "own.toml"
    path.write_text(text)
    with pytest.raises(FormatError) as refused:
        formats.load(str(path))
    assert str(refused.value).startswith(f"{path}: {message}")


def test_a_right_declaration_is_read(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(TOP + ROLES + COLUMNS)
    fmt = formats.load(str(path))
    assert (fmt.header, fmt.quote, fmt.member, fmt.roles.impressions) == (False, "", "*", None)
    assert (fmt.column("p").low, fmt.column("p").high) == (1, 127)


def test_a_header_without_a_column_of_the_format_is_refused(tmp_path: Path, pbm: Pbm) -> None:
    (tmp_path / "own.toml").write_text(TOP + "header = true\n" + ROLES)
    log = tmp_path / "log.csv"
    log.write_text("q,i,p,click\n1,1,1,1\n")
    assert pbm("count", log, "--format", tmp_path / "own.toml", "-w", tmp_path).err == (
        f"pbm: error: {log}:1: the column 'c' of format 'own' is not there; the file has 'q', 'i', 'p', 'click'; "
        "declare its names in a .toml and pass it with --format\n"
    )
    log.write_text("q,i,p,c,c\n1,1,1,1,1\n")
    assert pbm("count", log, "--format", tmp_path / "own.toml", "-w", tmp_path).err == (
        f"pbm: error: {log}:1: the column 'c' is there 2 times; rename one\n"
    )


def test_an_installed_package_has_every_module_and_format(tmp_path: Path) -> None:
    """What a wheel leaves out, an editable install hides."""
    root, copy = Path(__file__).parent.parent, tmp_path / "copy"
    shutil.copytree(root / "pipeline", copy / "pipeline", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(root / name, copy)
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path)]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, str(copy)], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    packed = set(zipfile.ZipFile(wheel).namelist())
    tree = {str(path.relative_to(root)) for pattern in ("*.py", "*.toml") for path in (root / "pipeline").rglob(pattern)}
    assert tree <= packed
