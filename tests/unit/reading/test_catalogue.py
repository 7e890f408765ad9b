"""Catalogues from shards, and their columns by ranges of records."""

import dataclasses
import itertools
import pathlib
from collections.abc import Sequence

import google_crc32c
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.datasets import ANIMALS, Row, animal, example
from tests.support.tfrecords import write
from transforms.core import catalogue
from transforms.core.catalogue import catalogue_features, catalogue_schema, write_part
from transforms.core.manifest import FileFacts
from transforms.core.schema import Feature, Kind
from transforms.core.tfrecord.reader import PayloadBatch
from transforms.core.tfrecord.writer import TFRecordWriter
from transforms.errors import DamageError, TFRecordError
from transforms.formats.tfrecord_files.dataset import Shard
from transforms.reading import catalogue_of_shards
from transforms.reading.catalogue import Catalogue
from transforms.reading.catalogue_of_shards import rows_of_shard, write_catalogue
from transforms.reading.rows import by_id

NAMES = {"animal": pa.array(["고양이", "dog", "goat"])}
FEATURES, _ = catalogue_features(ANIMALS, texts=True)
CLASSES = ("고양이", "dog", "goat")
NAMED = [
    dataclasses.replace(each, vocabulary=CLASSES) if each.kind is Kind.LABEL else each
    for each in FEATURES
]
COUNTS = (5, 0, 700)
SIZES = pa.schema([("_size", pa.int32()), ("_shard", pa.int32())])


@pytest.fixture(params=["none", "gzip", "zlib"])
def shards(
    tmp_path: pathlib.Path, request: pytest.FixtureRequest
) -> list[pathlib.Path]:
    start, paths = 0, []
    for index, count in enumerate(COUNTS):
        paths.append(tmp_path / f"shard-{index}.{request.param}")
        records = [record(number) for number in range(start, start + count)]
        paths[-1].write_bytes(write(records, request.param)[0])
        start += count
    return paths


def record(number: int) -> bytes:
    long = {"raw": bytes(3 << 20)} if number == 3 else {}
    names = ["고양이", "dog", "goat"]
    row = dict(animal(number)) | long
    return example(row | {"animal": names.index(row["animal"])})


def test_every_record_is_where_its_row_says(
    shards: list[pathlib.Path], tmp_path: pathlib.Path
) -> None:
    """Its bytes, their CRC32C and its features; also of long records."""
    path, schema = tmp_path / "a.pq", catalogue_schema(FEATURES, NAMES)
    parts = (rows_of_shard(str(s), n, FEATURES) for n, s in enumerate(shards))
    rows = itertools.chain.from_iterable(parts)
    assert write_part(str(path), rows, schema, NAMES) == sum(COUNTS)
    for number, row in enumerate(pq.read_table(path).to_pylist()):
        payload = record(number)
        assert row["_size"] == len(payload)
        assert row["_crc32c"] == google_crc32c.value(payload)
        wanted = animal(number)
        for name in ("id", "weight", "tame", "note", "animal"):
            assert row[name] == wanted.get(name)
        stored = shards[row["_shard"]].read_bytes()
        if shards[0].suffix != ".none":
            assert row["_offset"] is None
            continue
        begin = row["_offset"]
        assert stored[begin + 12 : begin + 12 + len(payload)] == payload


def test_ranges_over_row_groups_and_parts(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any range gives the rows that it has in the whole."""
    monkeypatch.setattr(catalogue, "_GROUP_ROWS", 4)
    paths, schema = [], catalogue_schema([], {})
    for part, count in enumerate((7, 0, 9)):
        longs = np.arange(count, dtype=np.int64) + 7 * (part > 0)
        own = catalogue.own_columns(part, longs, longs, longs.astype(np.uint32))
        paths.append(str(tmp_path / f"{part}.pq"))
        write_part(paths[-1], [own], schema, {})
    found = Catalogue(paths)
    assert len(found) == 16
    assert "_offset" in found.schema.names
    for start in range(17):
        for stop in range(start, 17):
            batches = found.batches(["_size", "_shard"], start, stop)
            table = pa.Table.from_batches(batches, SIZES)
            assert table["_size"].to_pylist() == [*range(start, stop)]
            assert table["_shard"].to_pylist() == [
                0 if i < 7 else 2 for i in range(start, stop)
            ]


def test_no_flipped_bit_of_values_is_silent(tmp_path: pathlib.Path) -> None:
    """Pages state their checksums; in the footer a file has none."""
    path = tmp_path / "a.pq"
    shard = tmp_path / "shard"
    with shard.open("wb") as file, TFRecordWriter(file) as writer:
        for number in range(40):
            writer.write(record(number + 10))
    batches = rows_of_shard(str(shard), 0, FEATURES)
    write_part(str(path), batches, catalogue_schema(FEATURES, NAMES), NAMES)
    good, names = path.read_bytes(), ["id", "animal", "_crc32c"]
    whole = pa.Table.from_batches(Catalogue([str(path)]).batches(names, 0, 40))
    noticed = 0
    footer = len(good) - 8 - int.from_bytes(good[-8:-4], "little")
    for place in range(4, footer, 7):
        path.write_bytes(
            good[:place] + bytes([good[place] ^ 1 << place % 8]) + good[place + 1 :]
        )
        try:
            found = Catalogue([str(path)])
            table = pa.Table.from_batches(found.batches(names, 0, len(found)))
        except DamageError:
            noticed += 1
        else:
            # Bytes of other columns, or of statistics.
            assert table.to_pylist() == whole.to_pylist()
    assert noticed


def test_a_file_that_is_none(tmp_path: pathlib.Path) -> None:
    """It is damage that names the file."""
    path = tmp_path / "a.pq"
    path.write_bytes(b"no parquet here")
    with pytest.raises(DamageError, match=r"a\.pq"):
        Catalogue([str(path)])


def test_parts_of_a_split(
    shards: list[pathlib.Path], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They hold the records of their shards, and are what their facts say."""
    monkeypatch.setattr(catalogue_of_shards, "part_ranges", lambda _: [(0, 2), (2, 3)])
    facts = written(stated(shards), tmp_path)
    assert [each.file for each in facts] == [
        "catalogue/train-00000-of-00002.pq",
        "catalogue/train-00001-of-00002.pq",
    ]
    for each in facts:
        data = (tmp_path / "out" / each.file).read_bytes()
        assert (each.bytes, each.crc32c) == (len(data), google_crc32c.value(data))
    found = Catalogue([str(tmp_path / "out" / each.file) for each in facts])
    assert len(found) == sum(COUNTS)
    table = pa.Table.from_batches(found.batches(["id"], 0, len(found)))
    assert table["id"].to_pylist() == [*range(sum(COUNTS))]


def test_typed_columns_are_those_of_the_records(tmp_path: pathlib.Path) -> None:
    """The catalogue gives columns of the same types and values as the shards do."""
    seconds = Feature("at", Kind.TIMESTAMP, unit="s")
    features = [*(each for each in NAMED if each.name != "note"), seconds]
    rows: list[Row] = [
        {**animal(number), "animal": number % 3, "at": number - 30}
        for number in range(60)
    ]
    del rows[7]["at"], rows[8]["animal"], rows[9]["weight"]
    records = [example(row) for row in rows]
    shard = tmp_path / "shard"
    shard.write_bytes(write(records, "none")[0])
    (facts,) = written([Shard(str(shard), "none", 60)], tmp_path, features)
    found = Catalogue([str(tmp_path / "out" / facts.file)])
    decoded = by_id(features).batch(PayloadBatch.of(records), "")
    table = pa.Table.from_batches(found.typed_batches(features, 0, 60))
    assert table.equals(pa.Table.from_batches([decoded]))


def test_a_damaged_shard_leaves_no_part(
    shards: list[pathlib.Path], tmp_path: pathlib.Path
) -> None:
    """Nor a temporary file."""
    data = shards[2].read_bytes()
    shards[2].write_bytes(data[:-40])
    with pytest.raises(TFRecordError):
        written(stated(shards), tmp_path)
    assert [each for each in (tmp_path / "out").rglob("*") if each.is_file()] == []


def written(
    shards: list[Shard], folder: pathlib.Path, features: Sequence[Feature] = NAMED
) -> list[FileFacts]:
    """Writes the catalogue of shards to a folder `out`."""
    out = folder / "out"
    (out / "catalogue").mkdir(parents=True)
    (out / "attempts").mkdir()
    attempts = str(out / "attempts")
    return write_catalogue(
        lambda name: str(out / name), "train", shards, features, attempts=attempts
    )


def stated(paths: list[pathlib.Path]) -> list[Shard]:
    """Returns the shards of the fixture with what is known of them."""
    return [
        Shard(str(path), path.suffix[1:], records=count)
        for path, count in zip(paths, COUNTS, strict=True)
    ]
