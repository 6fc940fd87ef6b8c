"""The parser's kernel accepts exactly the lines that `rules.broken` finds nothing wrong with, and reads them right."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pipeline import formats
from pipeline.formats import LogFormat
from pipeline.log import parser, rules
from pipeline.log.digits import PADDING, fits, number
from tests.conftest import kdd

KDD = formats.load("kdd2012")
SHOP = formats.declared(
    {
        "name": "shop",
        "separator": ",",
        "quote": '"',
        "roles": {"query": "term", "item": "sku", "position": "rank", "clicks": "click"},
        "columns": {
            "when": {"type": "any"},
            "term": {"type": "text"},
            "sku": {"type": "text"},
            "rank": {"min": 0, "max": 9},
            "click": {},
        },
    },
    "shop.toml",
)

Parsed = tuple[list[list[int]], list[int]]


def parse(lines: list[bytes], fmt: LogFormat, capacity: int = 1000) -> Parsed:
    """The columns of the good lines and the numbers of the bad ones, by the kernel, `capacity` lines at a time."""
    text = b"".join(line + b"\n" for line in lines)
    buffer = np.frombuffer(text + bytes(PADDING), np.uint8).copy()
    columns, bad = parser.output(capacity), np.empty((3, capacity), np.int64)
    at = n = 0
    good_rows: list[list[int]] = []
    bad_lines: list[int] = []
    while at < len(text):
        at, n_lines, n_good, n_bad = parser.parse(buffer, at, len(text), parser.layout(fmt), columns, bad)
        assert n_lines == n_good + n_bad
        good_rows += columns[:, :n_good].T.tolist()
        bad_lines += (n + bad[0, :n_bad]).tolist()
        assert [buffer[start:end].tobytes() for start, end in bad[1:, :n_bad].T] == [lines[n + k] for k in bad[0, :n_bad]]
        n += n_lines
    assert n == len(lines)
    return good_rows, bad_lines


def broken(lines: list[bytes], fmt: LogFormat) -> list[int]:
    return [number for number, line in enumerate(lines) if rules.broken(line, fmt) is not None]


@given(st.lists(st.binary(max_size=40).filter(lambda line: b"\n" not in line), min_size=1, max_size=5))
def test_any_bytes_are_judged_as_by_the_rules(lines: list[bytes]) -> None:
    for fmt in (KDD, SHOP):
        assert parse(lines, fmt)[1] == broken(lines, fmt)


FIELD = st.one_of(
    st.integers(0, 4).map(lambda n: str(n).encode()),
    st.integers(2**63 - 2, 2**64 + 2).map(lambda n: str(n).encode()),
    st.sampled_from(
        [b"", b" 1", b"+1", b"-1", b"1.7", b"1e2", b"0x10", b"1_601", b"007", b"\xc2\xb2", b"1\r", b"0" * 19 + b"1", b"\0"]
    ),
    st.integers(0, 10**25).map(lambda n: str(n).encode()),
)


@given(st.lists(st.lists(FIELD, min_size=11, max_size=13), min_size=1, max_size=4), st.sampled_from([b"", b"\r"]))
@example([[b"1"] * 12 + [b""]], b"")  # a trailing empty field
@example([[b"1"] * 12], b"\r")
def test_almost_right_lines_are_judged_as_by_the_rules(rows: list[list[bytes]], end: bytes) -> None:
    lines = [b"\t".join(fields) + end for fields in rows]
    assert parse(lines, KDD)[1] == broken(lines, KDD)


TEXT = st.one_of(
    st.text('ab," é\u202e😀<', max_size=6).map(str.encode),
    st.sampled_from(
        [
            b'"x"',
            b'"x""y"',
            b'"x',
            b'x"',
            b'"x"y',
            b'""',
            b'"a,b"',
            b"\xff",
            b"\xc3",
            b"\xed\xa0\x80",
            b"\xf5\x80\x80\x80",
            b"\xe0\x80\xaf",
        ]
    ),
)


@given(TEXT, TEXT, st.sampled_from([b"0", b"9", b"10", b'"3"', b'"3x"']), st.sampled_from([b"0", b"1", b"2"]))
def test_text_and_quotes_are_judged_and_read_as_by_the_rules(term: bytes, sku: bytes, rank: bytes, click: bytes) -> None:
    line = b",".join([b"today", term, sku, rank, click])
    rows, bad = parse([line], SHOP)
    assert bad == broken([line], SHOP)
    if rows:
        fields = rules.split(line, SHOP)
        starts, ends = (np.array([rows[0][row] for row in pair]) for pair in ((6, 8), (7, 9)))
        offsets, letters = np.empty(3, np.int64), np.empty(100, np.uint8)
        text = np.frombuffer(line + b"\n", np.uint8)
        parser.gather_text(text, starts, ends, ord('"'), offsets, letters)
        assert [letters[offsets[k] : offsets[k + 1]].tobytes() for k in (0, 1)] == fields[1:3]
        assert rows[0][2] == int(fields[3]) + 1  # ranks from 0 become positions from 1


@given(
    st.lists(
        st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1), st.integers(1, 3), st.integers(0, 3)),
        min_size=1,
        max_size=40,
    ),
    st.integers(1, 7),
)
def test_good_lines_are_read_whatever_the_capacity(cells: list[tuple[int, int, int, int]], capacity: int) -> None:
    lines = [kdd(query, ad, position, clicks, 3) for query, ad, position, clicks in cells]
    rows, bad = parse(lines, KDD, capacity)
    assert bad == []
    assert [tuple(row[:6]) for row in rows] == [(q, a, p, c, 3, 3) for q, a, p, c in cells]


@given(st.binary(max_size=30))
@example(b"18446744073709551615")
@example(b"18446744073709551616")
@example(b"99999999999999999999x")
def test_numbers_are_read_eight_digits_at_a_time(text: bytes) -> None:
    digits = len(text) - len(text.lstrip(b"0123456789"))
    value, length = number(np.frombuffer(text + b"\t" + bytes(PADDING), np.uint8), 0)
    assert length == digits
    assert int(value) == (int(text[:digits]) if digits else 0) % 2**64
    if digits > 0:
        small = int(text[:digits]) < 2**64 and digits <= 20 and not (digits == 20 and text.startswith(b"0"))
        assert bool(fits(value, length, text[0])) == small


@pytest.mark.parametrize("letter", ["é", "\u202e", "😀", "\U0010ffff", "\ue000", "\ud7ff"])
def test_utf8_is_accepted_and_every_cut_of_it_refused(letter: str) -> None:
    encoded = np.frombuffer(letter.encode(), np.uint8)
    assert parser.is_utf8(encoded, 0, encoded.size)
    assert not any(parser.is_utf8(encoded, 0, cut) for cut in range(1, encoded.size))


@given(st.binary(max_size=8))
def test_utf8_is_what_python_decodes(text: bytes) -> None:
    try:
        text.decode()
        valid = True
    except UnicodeDecodeError:
        valid = False
    assert parser.is_utf8(np.frombuffer(text, np.uint8), 0, len(text)) == valid
