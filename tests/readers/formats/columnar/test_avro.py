"""Avro end to end: sharded stems and archives, as TensorFlow reads them."""

import datetime
import decimal
import io
import pathlib
import tarfile
import zipfile
from typing import Any

import pytest

from tests.support.avro_sources import avro, row
from tests.support.outputs import dataset
from tests.support.runs import command, convert, refused

Folder = pathlib.Path


def read_back(out: Folder, split: str) -> list[tuple[Any, ...]]:
    """Returns the rows of a split as TensorFlow parses them, by id."""
    tf = pytest.importorskip("tensorflow")
    scalar = tf.io.FixedLenFeature
    features = {
        "id": scalar([], "int64"),
        "kind": scalar([], "string"),
        "weight": tf.io.VarLenFeature("float32"),
        "day": scalar([], "int64"),
        "tags": tf.io.VarLenFeature("string"),
        "price": scalar([], "string"),
    }
    shards = [
        str(out / shard["file"])
        for facts in dataset(out)["splits"]
        if facts["name"] == split
        for shard in facts["shards"]
    ]
    found = []
    for record in tf.data.TFRecordDataset(shards):
        parsed = tf.io.parse_single_example(record, features)
        values = [
            value.values.numpy().tolist()
            if isinstance(value, tf.sparse.SparseTensor)
            else value.numpy()
            for value in (parsed[name] for name in features)
        ]
        found.append(tuple(values))
    return sorted(found)


def expected(numbers: range) -> list[tuple[Any, ...]]:
    epoch = datetime.date(1970, 1, 1)
    out = []
    for given in map(row, numbers):
        weight = [] if given["weight"] is None else [given["weight"]]
        tags = [tag.encode() for tag in given["tags"]]
        price = str(given["price"].quantize(decimal.Decimal("0.01"))).encode()
        seconds = (given["day"] - epoch).days * 86_400
        kind = given["kind"].encode()
        out.append((given["id"], kind, weight, seconds, tags, price))
    return out


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_files_named_train_and_test_are_the_splits(
    tmp_path: Folder, codec: str
) -> None:
    """TensorFlow reads every value back, of both splits."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "train.avro").write_bytes(avro(0, 90, codec))
    (source / "test.avro").write_bytes(avro(90, 10, codec))
    convert(source, tmp_path / "out")
    assert read_back(tmp_path / "out", "train") == expected(range(90))
    assert read_back(tmp_path / "out", "test") == expected(range(90, 100))
    assert command("verify", tmp_path / "out").code == 0


def test_archives_of_avro_give_the_records_of_the_files(tmp_path: Folder) -> None:
    """From a zip and from a packed tar; the rows are those of the folder."""
    members = {f"{n}.avro": avro(30 * n, 30) for n in range(3)}
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as packed:
        for name, data in members.items():
            about = tarfile.TarInfo(name)
            about.size = len(data)
            packed.addfile(about, io.BytesIO(data))
    for name in ("a.zip", "a.tar.gz"):
        out = tmp_path / f"of-{name}"
        convert(tmp_path / name, out)
        assert read_back(out, "train") == expected(range(90))
    assert "null_values" not in refused(
        2, tmp_path / "a.zip", tmp_path / "no", "--delimiter", ";"
    )
