"""CSV dialects: escapes, other quotes, newlines, compressed files."""

import codecs
import csv
import io
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.csv_samples import NAMES, sample, scan_by_hand
from transforms.core.infer.columns import infer_batches, infer_columns
from transforms.core.reasons import Reason
from transforms.errors import ConservationError, SourceError
from transforms.formats.csv.blocks import iter_blocks, read_header
from transforms.formats.csv.read import parse, read_raw
from transforms.formats.csv.scan import CsvDialect, Scan, offsets, pieces_of

SLASHED = CsvDialect(header=False, escape="\\")

# Escapes, quotes, delimiters and line ends in every order.
soup = st.text('\\\\",\n\rx', max_size=60).map(str.encode)
cell = st.sampled_from(
    [
        *("", "x", r"\"x", r"x\,y", "x\\\ny", "x\\\r\ny", r"\\", r"\\\"", r'"a\"b"'),
        *(r'"a\\"', r'"a""b\""', '"a\\\nb"', '5" pipe', r'"a"\"b"', r"\ x", r'"\\",'),
    ]
)
record = st.lists(cell, min_size=1, max_size=4).map(",".join)
ending = st.sampled_from(["\n", "\r\n", "\r", "\n\n"])


@st.composite
def tables(draw: Any) -> Any:
    """Records under several line ends, perhaps without the last one."""
    text = "".join(
        line + draw(ending) for line in draw(st.lists(record, min_size=1, max_size=8))
    )
    return (text.rstrip("\r\n") if draw(st.booleans()) else text).encode()


def rows_of(
    data: bytes, dialect: CsvDialect, block_bytes: int, names: Any = NAMES
) -> list[Any]:
    """Returns a file's rows by number, read in blocks; None for a wrong length."""
    found, numbers, refused, _ = read_all(
        data, dialect, names=names, block_bytes=block_bytes
    )
    cells = (dict(zip(names, values, strict=True)) for values in found)
    rows = dict(zip(numbers, cells, strict=True))
    return [rows.get(number) for number in range(len(numbers) + len(refused))]


# --- escapes -----------------------------------------------------------------------


@pytest.mark.parametrize("escape", ["\\", ""])
@given(
    data=st.lists(st.one_of(soup, tables()), min_size=1, max_size=12).map(b"\n".join),
    words=st.integers(1, 3),
    quote=st.sampled_from(['"', "'", ""]),
    delimiter=st.sampled_from([",", "\t"]),
)
@example(data=b"x" * 63 + b'\\",a\n"b', words=1, quote='"', delimiter=",")
@example(data=b"x" * 62 + b'\\\\",a\n', words=1, quote='"', delimiter=",")
@example(data=b"\\" * 131 + b"\nb\n", words=1, quote="", delimiter=",")
def test_a_scan_in_pieces_equals_a_scan_by_hand(
    data: Any, words: Any, quote: Any, delimiter: Any, escape: Any
) -> None:
    """Quotes, escapes, CRLF and blank lines carry over from piece to piece."""
    data = data.replace(b'"', quote.encode() or b'"')
    dialect = CsvDialect(delimiter=delimiter, quote=quote, escape=escape)
    scan = Scan(dialect)
    found, before = [], []
    base = line = 0
    for piece in pieces_of(io.BytesIO(data), words * 64):
        starts, lines = map(offsets, scan.advance(piece))
        found += (base + starts).tolist()
        before += (line + np.searchsorted(lines, starts)).tolist()
        base += len(piece)
        line += len(lines)
    is_open = scan.inside or scan.escaped
    assert (found, before, is_open) == scan_by_hand(data, dialect)


text = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=6)
hard = st.text('\\\\",\n\r\t x', max_size=6)


@given(
    grid=st.lists(st.tuples(*[st.one_of(text, hard)] * 3), max_size=10),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONE]),
    doubled=st.booleans(),
    delimiter=st.sampled_from([",", "\t"]),
    quote=st.sampled_from(['"', "'"]),
    block_bytes=st.integers(1, 60),
)
def test_escapes_are_read_as_pythons_csv_module_reads_them(
    grid: Any, quoting: Any, doubled: Any, delimiter: Any, quote: Any, block_bytes: Any
) -> None:
    """Whatever it writes with an escape, its own reader and this one read alike."""
    out = io.StringIO(newline="")
    options = {"delimiter": delimiter, "quotechar": quote, "escapechar": "\\"}
    writer = csv.writer(
        out, lineterminator="\n", quoting=quoting, doublequote=doubled, **options
    )
    writer.writerows(grid)
    written = out.getvalue()
    reader = csv.reader(
        io.StringIO(written, newline=""),
        quoting=csv.QUOTE_NONE if quoting == csv.QUOTE_NONE else csv.QUOTE_MINIMAL,
        **options,
    )
    # The module gives blank lines too, as rows of no fields.
    expected = [row for row in reader if row]
    shown = "" if quoting == csv.QUOTE_NONE else quote
    dialect = CsvDialect(
        delimiter=delimiter, quote=shown, header=False, escape="\\", columns=NAMES
    )
    rows = rows_of(written.encode(), dialect, block_bytes)
    found = [None if row is None else [v or "" for v in row.values()] for row in rows]
    assert found == [row if len(row) == 3 else None for row in expected]


def test_an_escape_at_the_end_of_the_file_is_an_error() -> None:
    """Arrow would drop it, and Python make a line end of it: the file was cut off."""
    message = r"f.csv, line 2: an escape \(\\\) .* has nothing to escape at the end"
    with pytest.raises(SourceError, match=message):
        rows_of(b"a,b,c\nd,e,f\\", SLASHED, 1)
    with pytest.raises(SourceError, match="line 1: an escape"):
        read_header(io.BytesIO(b"a,b\\"), CsvDialect(escape="\\"), "f.csv")


def test_a_header_may_hold_escapes() -> None:
    """Names are read by the rules of rows."""
    data = b'a\\,b,"c\\"d",e\\\nf\n1,2,3\n'
    dialect = CsvDialect(escape="\\")
    assert read_header(io.BytesIO(data), dialect, "f.csv").names == (
        "a,b",
        'c"d',
        "e\nf",
    )
    (block,) = iter_blocks(io.BytesIO(data), "f.csv", dialect, block_bytes=1)
    assert (block.start, block.first_line, block.rows) == (17, 3, 1)


# --- quotes, newlines --------------------------------------------------------------


def test_other_quotes_and_none() -> None:
    """`'` as the quote leaves `"` alone; with none, all quotes are text."""
    data = b"'a,1','say \"hi\"',\"c\n'it''s',x,5' pipe\n"
    dialect = CsvDialect(header=False, quote="'")
    assert [tuple(row.values()) for row in rows_of(data, dialect, 1)] == [
        ("a,1", 'say "hi"', '"c'),
        ("it's", "x", "5' pipe"),
    ]
    plain = CsvDialect(header=False, quote="")
    assert [tuple(row.values()) for row in rows_of(b'"a,b",c\n', plain, 1)] == [
        ('"a', 'b"', "c")
    ]


# --- blanks between cells ----------------------------------------------------------

blank_cells = st.sampled_from(["1", "-2.5", "x", '"a b"', '"say ""hi"""', '""', "é"])
blanks = st.text(" \t", min_size=1, max_size=3)


@given(
    lines=st.lists(st.tuples(blank_cells, blank_cells, blank_cells), max_size=8),
    block_bytes=st.integers(1, 200),
    data=st.data(),
)
def test_runs_of_blanks_are_one_delimiter(
    lines: Any, block_bytes: Any, data: Any
) -> None:
    """Rows and their lines are those of the same table with tabs, at any block size."""
    ends = [data.draw(st.sampled_from(["\n", "\r\n", " \n\t\n"])) for _ in lines]
    spaced = "".join(
        data.draw(st.text(" \t", max_size=2)) + data.draw(blanks).join(cells) + end
        for cells, end in zip(lines, ends, strict=True)
    ).encode()
    tabbed = "".join(
        "\t".join(cells) + end.strip(" \t").replace("\t", "")
        for cells, end in zip(lines, ends, strict=True)
    ).encode()
    whitespace = CsvDialect(delimiter="whitespace", header=False)
    assert rows_of(spaced, whitespace, block_bytes) == rows_of(
        tabbed, CsvDialect(delimiter="\t", header=False), block_bytes
    )
    blocks = iter_blocks(io.BytesIO(spaced), "f", whitespace, block_bytes=1)
    before = [spaced[: block.start].count(b"\n") + 1 for block in blocks]
    blocks = iter_blocks(io.BytesIO(spaced), "f", whitespace, block_bytes=1)
    assert [block.first_line for block in blocks] == before


# --- records that are no rows ------------------------------------------------------


def read_all(
    data: bytes,
    dialect: CsvDialect | None = None,
    *,
    names: tuple[Any, ...] | None = None,
    wanted: tuple[Any, ...] | None = None,
    block_bytes: int = 1,
) -> tuple[
    list[tuple[Any, ...]], list[int], list[tuple[int, Reason, str]], dict[str, int]
]:
    """Reads a file in blocks: rows of the wanted columns, numbers, refused, skipped."""
    dialect = dialect or CsvDialect()
    names = names or read_header(io.BytesIO(data), dialect, "f.csv").names
    wanted = names if wanted is None else wanted
    total = 0
    rows: list[tuple[Any, ...]] = []
    numbers: list[int] = []
    refused: list[tuple[int, Reason, str]] = []
    skipped: dict[str, int] = {}
    for block in iter_blocks(
        io.BytesIO(data), "f.csv", dialect, block_bytes=block_bytes
    ):
        assert block.first_row == total
        total += block.rows
        piece = data[block.start : block.stop]
        raw = read_raw(piece, block, dialect, names, wanted)
        columns = [column.to_pylist() for column in raw.columns.values()]
        rows += zip(*columns, strict=True)
        numbers += raw.numbers.tolist()
        refused += raw.refused
        for reason, count in raw.skipped.items():
            skipped[reason] = skipped.get(reason, 0) + count
    return rows, numbers, refused, skipped


MARK = codecs.BOM_UTF8


@pytest.mark.parametrize("block_bytes", [1, 1 << 20])
@pytest.mark.parametrize("wanted", [("id", "name"), ("name",), ("id",)])
@pytest.mark.parametrize(
    "header",
    [
        b"id,name\n",
        b'"id","name"\n',
        b"id,name\r\n\n",
        MARK + b"id,name\n",
        MARK + b'"id",name\n',
    ],
)
def test_a_repeated_header_is_skipped_and_counted(
    header: bytes, wanted: tuple[Any, ...], block_bytes: int
) -> None:
    """In tables of text too, whichever columns are wanted; row numbers stay."""
    data = header + b"a,b\n" + header + header + b"id,b\na,name\n" + header
    rows, numbers, refused, skipped = read_all(
        data, wanted=wanted, block_bytes=block_bytes
    )
    whole = [("a", "b"), ("id", "b"), ("a", "name")]
    places = [("id", "name").index(name) for name in wanted]
    assert rows == [tuple(row[place] for place in places) for row in whole]
    assert (numbers, refused) == ([0, 3, 4], [])
    assert skipped == {"repeated_header": 3}


@pytest.mark.parametrize("wanted", [("column_0", "a"), ("a",), ("column_0",)])
@pytest.mark.parametrize("header", [b",a\n", b'"","a"\n', MARK + b",a\n"])
def test_a_first_column_without_a_name(header: bytes, wanted: tuple[Any, ...]) -> None:
    """As pandas and R write an index; such a header may be repeated, too."""
    data = header + b"0,x\n" + header + b"0,a\n,x\n"
    rows, _, refused, skipped = read_all(data, wanted=wanted)
    whole = {"column_0": ["0", "0", None], "a": ["x", "a", "x"]}
    assert rows == list(zip(*[whole[name] for name in wanted], strict=True))
    assert (refused, skipped) == ([], {"repeated_header": 1})


def test_what_is_no_repeated_header_stays() -> None:
    """A single column may hold its own name; other names, spaces, a headless file."""
    assert read_all(b"word\na\nword\n")[0] == [("a",), ("word",)]
    assert read_all(b"a,b\nA,b\n a,b\n")[0] == [("A", "b"), (" a", "b")]
    bare = CsvDialect(header=False)
    again = b"column_0,column_1\n"
    assert read_all(b"a,b\n" + again, bare)[0][1] == ("column_0", "column_1")
    # The names given are not what the file's header says.
    given_names = CsvDialect(columns=("x", "y"))
    assert read_all(b"a,b\nx,y\n", given_names)[0] == [("x", "y")]


def test_a_repeated_header_beside_invalid_text_and_in_utf_16() -> None:
    """The exact path and transcoded files know it as well."""
    data = b"id,name\na,\xff\nid,name\n\xff,name\nid,\xff\n"
    rows, numbers, refused, skipped = read_all(data, block_bytes=1 << 20)
    assert (rows, numbers, skipped) == ([], [], {"repeated_header": 1})
    assert sorted(number for number, _, _ in refused) == [0, 2, 3]
    only_id = read_all(data, wanted=("id",), block_bytes=1 << 20)
    assert only_id[0] == [("a",), ("id",)]
    assert only_id[3] == {"repeated_header": 1}
    wide = "id,name\na,b\nid,name\n".encode("utf-16")
    names = ("id", "name")
    (block,) = iter_blocks(io.BytesIO(wide), "f.csv", CsvDialect(), block_bytes=1)
    raw = read_raw(wide, block, CsvDialect(), names, names)
    assert raw.skipped == {"repeated_header": 1}
    assert raw.columns["id"].to_pylist() == ["a"]


def test_a_sample_leaves_repeated_headers_out() -> None:
    """Joined files of numbers are numbers, however short they are."""
    data = b"n,x\n1,2\nn,x\n3,4\n"
    found = sample(data)
    assert found.columns["n"].to_pylist() == ["1", "3"]
    assert found.rows == 2


@pytest.mark.parametrize("block_bytes", [1, 1 << 20])
@pytest.mark.parametrize("header", [b"a,b\n1,x\n", b"a\n1\n"])
def test_a_lone_ctrl_z_is_skipped_and_counted(header: bytes, block_bytes: int) -> None:
    """DOS ended texts with it, and joined them as they were."""
    data = header + b"\x1a\r\n" + header.split(b"\n")[1] + b"\n\x1a"
    rows, numbers, refused, skipped = read_all(data, block_bytes=block_bytes)
    assert (len(rows), numbers, refused) == (2, [0, 2], [])
    assert skipped == {"end_mark": 2}


@given(data=st.one_of(soup, tables()), junk=st.integers(128, 255))
def test_text_that_is_not_valid_is_parsed_as_text_that_is(data: Any, junk: Any) -> None:
    """Bytes in place of a letter change no field's place and no row's length."""
    if scan_by_hand(data, SLASHED)[2] or not data:
        return
    clean = parse(data, NAMES, NAMES, SLASHED)
    dirty = parse(data.replace(b"x", bytes([junk])), NAMES, NAMES, SLASHED)
    assert dirty.indices.tolist() == clean.indices.tolist()
    assert dirty.miscounted == clean.miscounted
    for one, other in zip(dirty.columns, clean.columns, strict=True):
        back = [
            None if c is None else c.replace(bytes([junk]), b"x")
            for c in one.to_pylist()
        ]
        assert back == other.to_pylist()


# --- kinds from all rows -----------------------------------------------------------

odd = st.sampled_from(
    ["", "NA", "1", "-7", "0.5", "007", "x", "true", "nan", "1e39", '""', " 2"]
)


@given(
    rows=st.lists(st.tuples(odd, odd), min_size=1, max_size=40),
    repeats=st.sampled_from([1, 200]),
    block_bytes=st.integers(1, 500),
)
def test_kinds_from_all_blocks_are_those_of_the_whole_table(
    rows: Any, repeats: Any, block_bytes: Any
) -> None:
    """`infer: full` adds up over blocks what one look at everything says."""
    lines = [",".join(row) for row in rows] + ["1,1"] * repeats
    data = ("a,b\n" + "\n".join(lines) + "\n").encode()
    dialect, names = CsvDialect(), ("a", "b")

    def batches(size: Any) -> Iterator[Any]:
        for block in iter_blocks(io.BytesIO(data), "f.csv", dialect, block_bytes=size):
            piece = data[block.start : block.stop]
            yield read_raw(piece, block, dialect, names, names).columns

    (whole,) = batches(1 << 30)
    expected = infer_columns(whole, label_column="b")
    found = infer_batches(batches(block_bytes), label_column="b")
    assert found.features == expected.features
    for one, other in zip(found.evidence, expected.evidence, strict=True):
        assert (one.sampled, one.missing) == (other.sampled, other.missing)
        assert (one.minimum, one.maximum) == (other.minimum, other.maximum)


def test_a_block_of_another_number_of_rows_is_refused() -> None:
    """What was counted must be there, skipped records included."""
    data = b"a,b\n1,2\na,b\n3,4\n"
    (block,) = iter_blocks(io.BytesIO(data), "f.csv", CsvDialect(), block_bytes=99)
    assert block.rows == 3
    with pytest.raises(ConservationError, match="counted 3 records, the parser 2"):
        read_raw(data[4:12], block, CsvDialect(), ("a", "b"), ("a", "b"))
