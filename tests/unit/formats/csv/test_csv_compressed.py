"""Compressed CSV files, and several files as one table."""

import dataclasses
import gzip
import hashlib
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.support.table_reading import listed
from transforms.core.reasons import Rejection
from transforms.core.schema import Feature, Kind, Schema
from transforms.errors import SourceError
from transforms.formats.csv import reader as csv_reader
from transforms.formats.csv.sample import CsvReader
from transforms.formats.file_runs import TableSource
from transforms.formats.raw_rows import RawRows
from transforms.formats.table import InputFile


def zstd(data: bytes) -> bytes:
    return pa.compress(data, codec="zstd", asbytes=True)


PACKERS = {".gz": gzip.compress, ".zst": zstd}


def stored(path: Path, data: bytes) -> InputFile:
    path.write_bytes(data)
    (file,) = listed(path.parent, [path.name])
    return file


def planned(*inputs: InputFile, **settings: Any) -> Any:
    reader = CsvReader(**settings)
    return reader.plan(inputs).reader


def pieces_read(
    reader: CsvReader,
    file: InputFile,
    *,
    limit: int | None = None,
    block_bytes: Any = 1 << 20,
) -> list[RawRows]:
    """Returns what a reader gives of a file: pieces in order."""
    out: list[RawRows] = []
    for block in reader.blocks(file, block_bytes=block_bytes, limit_rows=limit):
        out += reader.read(file, block, list(reader.names))
    return out


def table_read(pieces: list[RawRows]) -> list[tuple[int, tuple[str, str]]]:
    rows: list[tuple[int, tuple[str, str]]] = []
    for raw in pieces:
        columns = [column.to_pylist() for column in raw.columns.values()]
        cells = zip(*columns, strict=True)
        rows += zip(raw.numbers.tolist(), cells, strict=True)
    return rows


ROWS = "".join(f'{n},"line one\nline ""two"" of {n}, 한글"\r\n' for n in range(3_000))
CONTENT = ("n,text\r\n" + ROWS).encode()


@pytest.mark.parametrize("suffix", PACKERS)
@pytest.mark.parametrize("piece_bytes", [1, 1_000, 65_536, 1 << 30])
def test_pieces_of_a_compressed_file_are_the_rows_of_the_plain_one(
    suffix: str, piece_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At any size of pieces, with rows, numbers, lines and bounds that join up."""
    content = CONTENT[:20_000].rpartition(b"\r\n")[0] if piece_bytes == 1 else CONTENT
    plain = stored(tmp_path / "t.csv", content)
    file = stored(tmp_path / f"t.csv{suffix}", PACKERS[suffix](content))
    monkeypatch.setattr(csv_reader, "_PIECE_BYTES", piece_bytes)
    pieces = pieces_read(planned(file), file)
    whole = pieces_read(planned(plain), plain)
    assert table_read(pieces) == table_read(whole)
    assert sum(raw.block.rows for raw in pieces) == whole[-1].numbers[-1] + 1
    for one, two in itertools.pairwise(pieces):
        assert one.block.stop == two.block.start
        assert one.block.stop - one.block.start >= piece_bytes
        assert one.block.first_row + one.block.rows == two.block.first_row
        assert one.block.position <= two.block.position <= file.size
    for raw in pieces:
        before = content[: raw.block.start]
        assert raw.block.first_line == before.count(b"\n") + 1


@pytest.mark.parametrize("suffix", PACKERS)
@pytest.mark.parametrize("limit", [1, 7, 2_999, 3_000, 9_999])
def test_a_limit_holds_in_compressed_files(
    suffix: str, limit: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first rows up to the limit, however the file is cut."""
    monkeypatch.setattr(csv_reader, "_PIECE_BYTES", 10_000)
    file = stored(tmp_path / f"t.csv{suffix}", PACKERS[suffix](CONTENT))
    reader = planned(file)
    (block,) = reader.blocks(file, block_bytes=1, limit_rows=limit)
    assert block.rows == min(limit, 3_000)
    rows = table_read(pieces_read(reader, file, limit=limit))
    assert [number for number, _ in rows] == list(range(min(limit, 3_000)))


def test_several_gzip_members_and_zstd_frames_are_one_file(tmp_path: Path) -> None:
    """As `cat a.gz b.gz` makes them; a member ends anywhere, in a row too."""
    for suffix, pack in PACKERS.items():
        parts = [CONTENT[:9], CONTENT[9:1_003], b"", CONTENT[1_003:]]
        file = stored(tmp_path / f"t.csv{suffix}", b"".join(map(pack, parts)))
        rows = table_read(pieces_read(planned(file), file))
        assert len(rows) == 3_000
        assert rows[-1][1][0] == "2999"


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32", "cp949"])
@pytest.mark.parametrize("suffix", PACKERS)
def test_encodings_inside_compressed_files(
    suffix: str, encoding: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The marks are those of the content; UTF-16 is one piece."""
    monkeypatch.setattr(csv_reader, "_PIECE_BYTES", 5_000)
    data = CONTENT.decode().encode(encoding)
    file = stored(tmp_path / f"t.csv{suffix}", PACKERS[suffix](data))
    given = {"encoding": "cp949"} if encoding == "cp949" else {}
    reader = planned(file, **given)
    assert reader.names == ("n", "text")
    pieces = pieces_read(reader, file)
    assert (len(pieces) == 1) == encoding.startswith(("utf-16", "utf-32"))
    plain = stored(tmp_path / "t.csv", CONTENT)
    assert table_read(pieces) == table_read(pieces_read(planned(plain), plain))
    limited = pieces_read(reader, file, limit=5)
    assert table_read(limited) == table_read(pieces)[:5]


def test_a_file_is_unpacked_by_its_content(tmp_path: Path) -> None:
    """A plain file named .gz is read unchanged, and gzip named .csv is decompressed."""
    plain = stored(tmp_path / "plain.csv.gz", CONTENT)
    packed = stored(tmp_path / "packed.csv", gzip.compress(CONTENT))
    reader = planned(plain, packed)
    found = [table_read(pieces_read(reader, file)) for file in (plain, packed)]
    assert found[0] == found[1]
    assert len(found[0]) == 3_000


DAMAGE = {
    "cut": lambda data: data[: len(data) // 2],
    "cut in its last bytes": lambda data: data[:-2],
    # Near the start: without a checksum zstd cannot detect a change in every byte.
    "flipped": lambda data: data[:9] + bytes([255 - b for b in data[9:30]]) + data[30:],
    "with junk behind": lambda data: data + b"junk",
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("suffix", PACKERS)
def test_a_damaged_compressed_file_is_an_error_that_names_it(
    suffix: str, damage: str, tmp_path: Path
) -> None:
    """Never a shorter table: the file, what is wrong and what to do."""
    noise = np.random.default_rng(1).integers(0, 1 << 60, 20_000)
    content = b"n,m\n" + b"".join(b"%d,%d\n" % (i, n) for i, n in enumerate(noise))
    packed = PACKERS[suffix](content)
    whole = stored(tmp_path / f"t.csv{suffix}", packed)
    reader = planned(whole)
    assert len(table_read(pieces_read(reader, whole))) == 20_000
    bad = stored(tmp_path / f"t.csv{suffix}", DAMAGE[damage](packed))
    with pytest.raises(SourceError, match=r"must be whole.*t\.csv\.(gz|zst)") as error:
        pieces_read(reader, bad)
    message = str(error.value)
    assert message.count("Fetch or write it again.") == 1
    assert ": :" not in message


@pytest.mark.parametrize("suffix", PACKERS)
def test_an_empty_compressed_file_has_no_header(suffix: str, tmp_path: Path) -> None:
    """No byte of content, or no byte at all."""
    for data in (PACKERS[suffix](b""), b"", PACKERS[suffix](b"\n\n")):
        file = stored(tmp_path / f"t.csv{suffix}", data)
        with pytest.raises(SourceError, match=r"t\.csv.*: no header"):
            planned(file)


@pytest.mark.parametrize("suffix", ["", *PACKERS])
def test_rejects_of_compressed_files_name_row_line_and_bytes(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are those of the plain file: places count in the content."""
    monkeypatch.setattr(csv_reader, "_PIECE_BYTES", 700)
    lines = [b'%d,"two\nlines"' % n for n in range(200)]
    for number in (0, 57, 58, 133, 199):
        lines[number] = b"%d,bad,row" % number
    lines[101] = b'x,"\n\nword"'
    content = b"n,text\n\n" + b"\n".join(lines)
    data = PACKERS[suffix](content) if suffix else content
    file = stored(tmp_path / f"t.csv{suffix}", data)
    reader = planned(file)
    schema = Schema((Feature("n", Kind.INT64), Feature("text", Kind.TEXT)))
    source = TableSource(reader, str(tmp_path), "", schema)
    rejections: list[Rejection] = []
    rows = 0
    for block in reader.blocks(file, block_bytes=700, limit_rows=None):
        for reading in source.read(dataclasses.replace(block, origin=file.origin)):
            rejections += reading.rejections
            rows += reading.batch.rows.num_rows
    assert rows == 194
    assert [one.row for one in rejections] == [1, 58, 59, 102, 134, 200]
    for one in rejections:
        assert one.row is not None
        record = lines[one.row - 1]
        assert one.sha256 == hashlib.sha256(record).hexdigest()
        assert (
            one.line
            == content.index(record)
            - len(content[: content.index(record)].replace(b"\n", b""))
            + 1
        )
        assert one.source == file.origin


def test_plain_and_compressed_files_are_one_table(tmp_path: Path) -> None:
    """Each is read in its own format; .tsv has tabs, whatever other files there are."""
    one = stored(tmp_path / "1.csv", b"n,t\n1,a\n")
    two = stored(tmp_path / "2.csv.gz", gzip.compress(b"n,t\n2,b\n"))
    three = stored(tmp_path / "3.tsv", b"n\tt\n3\tc,d\n")
    four = stored(tmp_path / "4.tsv.zst", zstd(b"n\tt\n4\te\n"))
    reader = planned(one, two, three, four)
    found = [table_read(pieces_read(reader, f))[0][1] for f in (one, two, three, four)]
    assert found == [("1", "a"), ("2", "b"), ("3", "c,d"), ("4", "e")]
    sample = CsvReader().plan([one, two, three, four]).sample
    assert sample.columns["t"].to_pylist() == ["a", "b", "c,d", "e"]
    assert (sample.complete, sample.total_rows) == (True, 4)


def test_many_compressed_files_are_sampled_by_some(tmp_path: Path) -> None:
    """Memory and time of planning do not grow with the number of files."""
    inputs = [
        stored(tmp_path / f"{n:03}.csv.gz", gzip.compress(b"n\n%d\n" % n))
        for n in range(130)
    ]
    sample = CsvReader().plan(inputs).sample
    assert sample.columns["n"].to_pylist() == [str(n) for n in range(0, 130, 3)]
    assert (sample.complete, sample.total_rows) == (False, None)
    per_row = sample.sampled_bytes / sample.rows
    assert sum(f.size for f in inputs) / per_row == pytest.approx(130, rel=0.05)
