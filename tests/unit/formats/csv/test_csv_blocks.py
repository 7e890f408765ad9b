"""Blocks end at true record ends: checked against Arrow and a scanner by hand."""

import io
import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.csv_samples import parse_whole, scan_by_hand
from transforms.core.model import Block
from transforms.errors import SourceError
from transforms.formats.csv import blocks as csv_blocks
from transforms.formats.csv.blocks import iter_blocks
from transforms.formats.csv.read import locate
from transforms.formats.csv.scan import CsvDialect

BARE = CsvDialect(header=False)

# Quotes, delimiters and line ends in every order, most of it not well formed.
soup = st.text('",\n\rx5', max_size=60)
field = st.one_of(
    st.sampled_from(["", "x", '""', '"a,b"', '"a\nb"', '"a\r\nb"', '"say ""hi"""']),
    st.sampled_from(['5" pipe', 'a"b"', '"a"b', '"a"b"c"', '"a" ', ' "a"', '""x"']),
)
record = st.lists(field, min_size=1, max_size=4).map(",".join)
ending = st.sampled_from(["\n", "\r\n", "\r", "\n\n", "\r\r\n", "\r\n\r\n"])


@st.composite
def tables(draw: Any) -> Any:
    """Records under one line end or several, perhaps without the last one."""
    ends = draw(st.one_of(ending.map(lambda e: [e]), st.lists(ending, min_size=1)))
    records = draw(st.lists(record, max_size=8))
    text = "".join(r + ends[i % len(ends)] for i, r in enumerate(records))
    text = draw(st.sampled_from(["", "\n", "\r\n\n"])) + text
    return text.rstrip("\r\n") if draw(st.booleans()) else text


files = st.one_of(tables(), soup).map(str.encode)


def blocks_of(
    data: bytes,
    dialect: CsvDialect = BARE,
    block_bytes: int = 1,
    limit_rows: int | None = None,
) -> list[Block]:
    return list(
        iter_blocks(
            io.BytesIO(data),
            "f.csv",
            dialect,
            block_bytes=block_bytes,
            limit_rows=limit_rows,
        )
    )


@given(data=files, block_bytes=st.integers(1, 40))
@example(data=b'a,"b\r\nc"\r\n\r\nd,5" pipe\r\n', block_bytes=1)
@example(data=b'"a"b"c"\n"d"\n', block_bytes=1)
@example(data=b"a\rb\r\nc\n\rd", block_bytes=1)
@example(data=b"\n\n", block_bytes=1)
@example(data=b'""\n', block_bytes=1)
def test_blocks_parsed_alone_equal_the_file_parsed_whole(
    data: Any, block_bytes: Any
) -> None:
    """At any block size the blocks join up, and give the rows with their numbers."""
    starts, lines, unclosed = scan_by_hand(data, BARE)
    if unclosed:
        with pytest.raises(SourceError, match=f"line {lines[-1] + 1}: a quote"):
            blocks_of(data, block_bytes=block_bytes)
        return
    blocks = blocks_of(data, block_bytes=block_bytes)
    rows = parse_whole(data, BARE)
    assert sum(block.rows for block in blocks) == len(rows) == len(starts)
    for block in blocks:
        alone = parse_whole(data[block.start : block.stop], BARE)
        assert alone == rows[block.first_row : block.first_row + block.rows]
        assert block.start == starts[block.first_row]
        assert block.first_line == lines[block.first_row] + 1
    for one, two in itertools.pairwise(blocks):
        assert one.stop == two.start
        assert one.first_row + one.rows == two.first_row
        assert one.stop - one.start >= block_bytes
    if blocks:
        assert blocks[0].first_row == 0
        assert blocks[-1].stop == len(data)


@given(data=tables().map(str.encode), pick=st.sets(st.integers(0, 9)))
def test_records_are_located_by_their_numbers(data: Any, pick: Any) -> None:
    """Start, end and line of any records, in one scan."""
    starts, lines, unclosed = scan_by_hand(data, BARE)
    if unclosed:
        return
    wanted = sorted(index for index in pick if index < len(starts))
    places = locate(data, BARE, np.array(wanted, np.int64))
    ends = [*starts[1:], len(data)]
    assert [array.tolist() for array in places] == [
        [each[index] for index in wanted] for each in (starts, ends, lines)
    ]


@given(data=tables().map(str.encode), limit=st.integers(0, 6), size=st.integers(1, 40))
def test_a_limit_takes_the_first_rows(data: Any, limit: Any, size: Any) -> None:
    """Blocks under a limit hold exactly this many rows, or all if there are fewer."""
    starts, _, unclosed = scan_by_hand(data, BARE)
    if unclosed:
        return
    blocks = blocks_of(data, block_bytes=size, limit_rows=limit)
    assert sum(block.rows for block in blocks) == min(limit, len(starts))
    rows = [r for b in blocks for r in parse_whole(data[b.start : b.stop], BARE)]
    assert rows == parse_whole(data, BARE)[:limit] if limit else rows == []
    ends = [*starts, len(data)]
    if blocks:
        assert blocks[-1].stop == ends[min(limit, len(starts))]


def test_a_stream_that_gives_less_than_asked_changes_nothing() -> None:
    """Raw files and sockets may: the pieces are filled up."""

    class Slow(io.BytesIO):
        def read(self, size: Any = -1, /) -> Any:
            return super().read(min(size, 7))

    data = b'1,"a\n\n"\n\n2,b\n3,c\n' * 20
    slow = list(iter_blocks(Slow(data), "f.csv", BARE, block_bytes=50))
    assert slow == blocks_of(data, block_bytes=50)
    arrow = iter_blocks(pa.BufferReader(data), "f.csv", BARE, block_bytes=50)
    assert slow == list(arrow)


def test_an_unclosed_quote_is_an_error_that_names_the_line_of_its_record() -> None:
    """Not the end of the file, where it shows."""
    data = b'a,b\n1,"x\ny"\n2,"z\n3,4\n5,6\n'
    with pytest.raises(
        SourceError, match=r'^f.csv, line 4: a quote \("\) .* not closed'
    ):
        blocks_of(data, CsvDialect())
    assert blocks_of(data, CsvDialect(quote=""))[-1].stop == len(data)


def test_a_record_over_the_limit_is_an_error_that_names_its_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At the limit it passes; a byte more, and its first line is named."""
    monkeypatch.setattr(csv_blocks, "MAX_RECORD_BYTES", 2 << 20)
    fits = b"1,2\n3," + b"x" * ((2 << 20) - 3) + b"\n5,6\n"
    assert sum(block.rows for block in blocks_of(fits)) == 3
    with pytest.raises(SourceError, match=r"line 2: the record .* longer than 2 MiB"):
        blocks_of(fits.replace(b"3,", b"3,y"))
    with pytest.raises(SourceError, match=r"line 2: the record .* longer than 2 MiB"):
        blocks_of(b'1,2\n3,"' + b"x\n" * (4 << 20))


def test_utf_16_is_one_block_of_the_whole_file() -> None:
    """Its line ends cannot be found in its bytes; rows and lines are still right."""
    data = 'a,b\n"1\n1",한\n\n2,글'.encode("utf-16")
    (block,) = blocks_of(data, CsvDialect())
    assert (block.start, block.stop) == (0, len(data))
    assert (block.first_row, block.first_line, block.rows) == (0, 2, 2)
    with pytest.raises(SourceError, match=r"f.csv: byte 34 .* not valid utf-16-le"):
        blocks_of(data + b"\x00", CsvDialect())


def test_utf_16_over_the_limit_asks_for_utf_8(monkeypatch: pytest.MonkeyPatch) -> None:
    """What would not fit in memory is refused before it is read."""
    monkeypatch.setattr(csv_blocks, "MAX_WHOLE_BYTES", 20)
    with pytest.raises(SourceError, match="convert it to UTF-8"):
        blocks_of("a,b\n1,2\n3,4\n".encode("utf-16"))
