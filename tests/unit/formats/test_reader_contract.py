"""What every reader of tables owes: limits, samples of all parts, no shorter table."""

import gzip
import json
import pathlib
from collections.abc import Callable, Iterable

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.arrow_ipc import write as write_arrow
from tests.support.datasets import example
from tests.support.table_reading import listed, read_all, source_of
from transforms.core.schema import Feature, Kind, Schema
from transforms.core.tfrecord.frame import frame
from transforms.errors import SourceError, TFRecordError
from transforms.formats.columnar.arrow_ipc import ArrowReader
from transforms.formats.columnar.avro import AvroReader
from transforms.formats.columnar.numpy_files import NumpyReader
from transforms.formats.columnar.parquet import ParquetReader
from transforms.formats.csv.sample import CsvReader
from transforms.formats.json_lines import reader as json_lines
from transforms.formats.json_lines.reader import JsonLinesReader
from transforms.formats.table import TableReader
from transforms.formats.tfrecord_files.reader import TFRecordFiles

Folder = pathlib.Path


def arrow(path: Folder, numbers: range) -> None:
    table = pa.table({"i": numbers})
    write_arrow(path, table, stream=path.suffix == ".arrows", rows=100)


def parquet(path: Folder, numbers: range) -> None:
    pq.write_table(pa.table({"i": numbers}), path, row_group_size=100)


def avro(path: Folder, numbers: range) -> None:
    fields = [{"name": "i", "type": "long"}]
    schema = {"type": "record", "name": "R", "fields": fields}
    with path.open("wb") as out:
        fastavro.writer(out, schema, ({"i": n} for n in numbers), sync_interval=200)


def npz(path: Folder, numbers: range) -> None:
    save = np.savez if path.stem == "plain" else np.savez_compressed
    save(path, i=np.array(numbers))


def csv(path: Folder, numbers: range) -> None:
    text = "".join(f"{n}\n" for n in ["i", *numbers]).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)


def lines(path: Folder, numbers: Iterable[int]) -> None:
    text = "".join(json.dumps({"i": n}) + "\n\n" for n in numbers).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)


def tfrecord(path: Folder, numbers: Iterable[int]) -> None:
    data = b"".join(frame(example({"i": n, "t": "x" * 250})) for n in numbers)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


WRITERS: dict[str, tuple[TableReader, Callable[[Folder, range], None]]] = {
    "a.arrow": (ArrowReader(), arrow),
    "a.arrows": (ArrowReader(), arrow),
    "a.parquet": (ParquetReader(), parquet),
    "a.avro": (AvroReader(), avro),
    "plain.npz": (NumpyReader(), npz),
    "packed.npz": (NumpyReader(), npz),
    "a.csv": (CsvReader(), csv),
    "a.csv.gz": (CsvReader(), csv),
    "a.jsonl": (JsonLinesReader(), lines),
    "a.jsonl.gz": (JsonLinesReader(), lines),
    "a.tfrecord": (TFRecordFiles(), tfrecord),
    "a.tfrecord.gz": (TFRecordFiles(), tfrecord),
}


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("limit", [1, 99, 100, 101, 9999])
@pytest.mark.parametrize("block_bytes", [1, 3000])
def test_limit_takes_the_first_rows(
    name: str, limit: int, block_bytes: int, tmp_path: Folder
) -> None:
    """Inside a batch, row group or block too; the blocks hold this many rows."""
    format_, write = WRITERS[name]
    write(tmp_path / name, range(300))
    read = read_all(format_, tmp_path, [name], limit=limit, block_bytes=block_bytes)
    assert [*map(int, read.columns["i"])] == list(range(300))[:limit]
    assert sum(block.rows for block in read.blocks) == min(limit, 300)


# Of plain lines the last one alone is cut off: a reject.
CUT = [name for name in WRITERS if name not in ("a.csv", "a.jsonl")]


@pytest.mark.parametrize("name", CUT)
def test_a_file_that_was_cut_off_is_an_error(name: str, tmp_path: Folder) -> None:
    """It names the file, and its rows are never a shorter table."""
    format_, write = WRITERS[name]
    write(tmp_path / name, range(9_999))
    data = (tmp_path / name).read_bytes()
    for size in (len(data) - 3, len(data) // 2):
        (tmp_path / name).write_bytes(data[:size])
        with pytest.raises((SourceError, TFRecordError)) as caught:
            read_all(format_, tmp_path, [name])
        assert name in str(caught.value)


@pytest.mark.parametrize("name", WRITERS)
def test_a_file_that_changed_since_it_was_listed_is_an_error(
    name: str, tmp_path: Folder
) -> None:
    """A reader goes by the stamp of the listing, and a source names the file."""
    format_, write = WRITERS[name]
    write(tmp_path / name, range(30))
    schema = Schema((Feature("i", Kind.INT64),))
    source = source_of(format_, tmp_path, [name], schema)
    block = next(source.blocks(0))
    write(tmp_path / name, range(31))
    with pytest.raises(SourceError, match="it has changed since it was listed"):
        list(source.read(block))
    with pytest.raises(SourceError, match="it has changed since it was listed"):
        list(source.blocks(0))


SAMPLED = {
    "a.arrow": (ArrowReader, "sample_bytes"),
    "a.arrows": (ArrowReader, "sample_bytes"),
    "a.parquet": (ParquetReader, "sample_bytes"),
    "a.avro": (AvroReader, "sample_bytes"),
    "plain.npz": (NumpyReader, "sample_bytes"),
    "a.jsonl": (json_lines, "SAMPLE_BYTES"),
}


@pytest.mark.parametrize("name", SAMPLED)
def test_sample_is_spread_and_bounded(
    name: str, tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of all parts of a file, of a stream the first; how many there are."""
    count = 60_000
    monkeypatch.setattr(*SAMPLED[name], 1 << 16)
    format_, write = WRITERS[name]
    write(tmp_path / name, range(count))
    sample = format_.plan(listed(tmp_path, [name])).sample
    numbers = sample.columns["i"].to_pylist()
    assert numbers == sorted(set(numbers))
    assert sample.rows == len(numbers) < count // 2
    assert not sample.complete
    parts = {number * 10 // count for number in numbers}
    assert parts == {*range(2 if name == "a.arrows" else 10)}
    if name in ("a.arrow", "a.parquet", "plain.npz"):
        assert sample.total_rows == count
        return
    assert sample.total_rows is None
    size = (tmp_path / name).stat().st_size
    estimate = size * sample.rows / sample.sampled_bytes
    assert estimate == pytest.approx(count, rel=0.05)
