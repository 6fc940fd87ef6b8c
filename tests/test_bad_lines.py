"""Bad lines are set aside with line number, reason and text; the same by every engine; and a wrong format is seen at once."""

from pathlib import Path

import pytest

from pipeline import artefacts
from pipeline.artefacts import COUNTS, REJECTS
from tests.conftest import Pbm, kdd

GOOD = kdd(1601, 7686695, 3)
FIELDS = GOOD.split(b"\t")


def changed(column: int, value: bytes) -> bytes:
    return b"\t".join([*FIELDS[:column], value, *FIELDS[column + 1 :]])


BAD = {
    "empty line": [b"", b"\r"],
    "too few fields (11 of 12)": [b"\t".join(FIELDS[:11])],
    "too few fields (1 of 12)": [b"rubbish", b" "],
    "too many fields (13 of 12)": [GOOD + b"\t1", GOOD + b"\t"],
    "NUL byte": [GOOD[:30] + b"\0" + GOOD[30:], b"\0\0\0", GOOD + b"\0"],
    "AdID is not a number": [
        changed(3, value) for value in (b"", b" 1601", b"+1601", b"-1", b"1.7", b"1e2", b"0x10", b"1_601", b"abc")
    ],
    "DisplayURL is not a number": [changed(2, b"9" * 21)],
    "UserID is not a number": [changed(11, b"7 "), changed(11, b"7\r\r")],
    "DisplayURL below 0 or beyond 64 bits": [changed(2, str(2**64).encode()), changed(2, b"0" * 19 + b"1")],
    "QueryID outside 0 to 9223372036854775807": [changed(7, str(2**63).encode())],
    "Impression outside 1 to 4294967295": [changed(1, b"0"), changed(1, str(2**32).encode())],
    "Click above Impression": [changed(0, b"2")],
    "Position above Depth": [changed(5, b"2")],
    "Position outside 1 to 3": [changed(6, b"0"), changed(6, b"4")],
    "Depth outside 1 to 3": [changed(5, b"4")],
}
CASES = [(reason, line) for reason, lines in BAD.items() for line in lines]


@pytest.mark.parametrize("engine", ["polars", "duckdb"])
def test_every_kind_of_bad_line_is_set_aside(engine: str, tmp_path: Path, pbm: Pbm) -> None:
    lines = [GOOD]
    expected = []
    for reason, line in CASES:
        expected.append((len(lines) + 1, reason, line.decode("latin-1").replace("\0", "\\x00")))
        lines += [line, GOOD + b"\r", changed(2, b"18446744073709551615")]
    log = tmp_path / "log.txt"
    log.write_bytes(b"\n".join(lines) + b"\n" + GOOD[:-30])
    expected.append((len(lines) + 1, "truncated last line", GOOD[:-30].decode()))

    outcome = pbm("count", log, "--engine", engine, "-w", tmp_path, "--min-displays", 1, "--min-ads", 1, "--positions", 3)
    assert outcome.code == 0
    rejects = artefacts.read(REJECTS, tmp_path)
    assert rejects.select("line", "reason", "text").rows() == expected
    assert set(rejects["file"]) == {"log.txt"}
    table = {" ".join(words): value for *words, value in map(str.split, outcome.out.splitlines())}
    assert table["lines read"] == str(len(lines) + 1)
    assert table["- rejected"] == str(len(expected))
    assert {reason: table[reason] for reason in BAD} == {reason: str(len(bad)) for reason, bad in BAD.items()}
    assert outcome.err.splitlines() == [
        f"pbm: note: {log} does not end with a newline; if its last line was cut inside its last field, no check can tell",
        f"pbm: note: bad lines are set aside in {tmp_path}/rejects.parquet; up to 1,000 are tolerated (--max-bad-lines)",
        "pbm: note: no query has 1 ad with 1 lines at each of 3 positions, so counts.parquet is empty; "
        "lower --min-displays, --min-ads or --positions",
    ]


def test_byte_order_mark_and_crlf_are_accepted(tmp_path: Path, pbm: Pbm) -> None:
    lines = [kdd(1, 1, position) for position in (1, 2, 3)]
    (tmp_path / "log.txt").write_bytes(b"\xef\xbb\xbf" + b"\r\n".join(lines) + b"\r\n")
    outcome = pbm("count", tmp_path / "log.txt", "-w", tmp_path, "--min-displays", 1, "--min-ads", 1, "--max-bad-lines", 0)
    assert outcome.code == 0
    assert artefacts.read(COUNTS, tmp_path).height == 3


def test_too_many_bad_lines_stop_the_count_and_change_nothing(tmp_path: Path, pbm: Pbm) -> None:
    log = tmp_path / "log.txt"
    log.write_bytes(b"\n".join([GOOD] * 5) + b"\n")
    assert pbm("count", log, "-w", tmp_path).code == 0
    before = {path.name: path.read_bytes() for path in tmp_path.glob("*.parquet")}
    log.write_bytes(b"\n".join([GOOD, b"", changed(0, b"2"), GOOD, changed(3, b"x")]) + b"\n")
    outcome = pbm("count", log, "-w", tmp_path, "--max-bad-lines", 2)
    assert outcome.code == 1
    assert outcome.out == ""
    assert outcome.err == (
        f"pbm: error: {log}: 3 of the first 5 lines are bad, and --max-bad-lines allows 2; nothing was changed; the first are\n"
        "  line 2: empty line: ''\n"
        f"  line 3: Click above Impression: {changed(0, b'2').decode()[:80]!r}\n"
        f"  line 5: AdID is not a number: {changed(3, b'x').decode()[:80]!r}\n"
        "correct them, declare the format of this log (see `pbm formats`), or raise --max-bad-lines to have them set aside\n"
    )
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.parquet")} == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["counts.parquet", "log.txt", "rejects.parquet"]
    assert pbm("count", log, "-w", tmp_path, "--max-bad-lines", 3).code == 0


ADVICE = "declare it in a .toml and pass it with --format (`pbm formats` shows a declaration)"
WRONG = {
    "commas": (
        GOOD.replace(b"\t", b","),
        "the fields are separated by commas (12 a line); expected 12 fields separated by tabs, as in format 'kdd2012'; " + ADVICE,
    ),
    "blanks": (
        GOOD.replace(b"\t", b" "),
        "the fields are separated by blanks (12 a line); expected 12 fields separated by tabs, as in format 'kdd2012'; " + ADVICE,
    ),
    "a column less": (
        b"\t".join(FIELDS[:11]),
        "each of the first 2 lines has 11 fields; expected 12 fields separated by tabs, as in format 'kdd2012'; " + ADVICE,
    ),
    "a column more": (
        b"\t".join([*FIELDS, b"1"]),
        "each of the first 2 lines has 13 fields; expected 12 fields separated by tabs, as in format 'kdd2012'; " + ADVICE,
    ),
    "prose": (
        b"nothing",
        "each of the first 2 lines has 1 field; expected 12 fields separated by tabs, as in format 'kdd2012'; " + ADVICE,
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_another_format_is_recognised_on_the_first_lines(what: str, tmp_path: Path, pbm: Pbm) -> None:
    line, message = WRONG[what]
    log = tmp_path / "log.txt"
    log.write_bytes(line + b"\n" + line + b"\n")
    assert pbm("count", log, "-w", tmp_path) == (1, "", f"pbm: error: {log}: {message}\n")


def test_a_header_is_recognised(tmp_path: Path, pbm: Pbm) -> None:
    log = tmp_path / "log.txt"
    log.write_bytes(b"\t".join(b"Click Impression DisplayURL AdID a b c d e f g h".split()) + b"\n" + GOOD + b"\n")
    assert pbm("count", log, "-w", tmp_path) == (
        1,
        "",
        f"pbm: error: {log}:1: the first line is a header ('Click', 'Impression', 'DisplayURL', ...), "
        "and format 'kdd2012' has none; "
        f"remove the line, or set header = true in a format of your own: {ADVICE}\n",
    )


def test_one_bad_first_line_is_no_other_format(tmp_path: Path, pbm: Pbm) -> None:
    log = tmp_path / "log.txt"
    log.write_bytes(b"# made on monday\n" + GOOD + b"\n")
    assert pbm("count", log, "-w", tmp_path).code == 0
    assert artefacts.read(REJECTS, tmp_path).rows() == [(1, "too few fields (1 of 12)", "# made on monday", "log.txt")]


def test_a_line_without_end_is_no_log(tmp_path: Path, pbm: Pbm) -> None:
    log = tmp_path / "log.txt"
    log.write_bytes(GOOD + b"\n" + b"7" * (1 << 22))
    outcome = pbm("count", log, "-w", tmp_path)
    assert outcome == (1, "", f"pbm: error: {log}: a line is longer than 2,097,152 bytes; this is no log in format 'kdd2012'\n")
