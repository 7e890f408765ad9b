"""The commands for TFRecord, given what is yet to be converted."""

import pathlib
import struct

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.datasets import write_records
from tests.support.image_sources import write_images
from tests.support.runs import command, convert, failed
from tests.support.sources import write_csv

Folder = pathlib.Path
READERS = ("inspect", "head", "verify", "repair")


def read(reader: str, path: Folder | str) -> str:
    """Runs a command over a path; it must end as wrong usage. Returns its message."""
    out = [f"{path}.repaired"] if reader == "repair" else []
    run = failed(2, reader, path, *out)
    assert run.out == ""
    assert "damage" not in run.err
    assert "binary mode" not in run.err
    return run.err


@pytest.fixture
def sources(tmp_path: Folder) -> list[Folder]:
    """Returns one source of each of some formats."""
    table = pa.table({"a": [1, 2]})
    pq.write_table(table, tmp_path / "t.parquet")
    (tmp_path / "t.jsonl").write_text('{"a": 1}\n')
    (tmp_path / "crlf.csv").write_bytes(b"a,b\r\n1,2\r\n3,4\r\n")
    (tmp_path / "empty.csv").touch()
    tree = tmp_path / "photos"
    write_images(tree, [f"train/cat/{number}.jpg" for number in range(3)])
    tables = tmp_path / "tables"
    write_csv(tables / "deep" / "er" / "t.csv", "a", ["1"])
    files = ("t.parquet", "t.jsonl", "crlf.csv", "empty.csv")
    image = tree / "train" / "cat" / "0.jpg"
    return [*(tmp_path / name for name in files), tree, image, tables]


@pytest.mark.parametrize("reader", READERS)
def test_the_commands_for_other_formats_are_named(
    sources: list[Folder], reader: str
) -> None:
    """A CSV or a folder of images is not called damaged."""
    for path in sources:
        message = read(reader, path)
        assert f"'beam-tfrecord spec {path}'" in message
        assert f"'beam-tfrecord convert {path} OUTPUT'" in message


@pytest.mark.parametrize("reader", READERS)
def test_datasets_below_a_folder_are_named(tmp_path: Folder, reader: str) -> None:
    """A folder of datasets names them."""
    source = write_csv(tmp_path / "t.csv", "a", ["1", "2"])
    convert(source, tmp_path / "all" / "x" / "1.0.0")
    assert f"'{tmp_path}/all/x/1.0.0'" in read(reader, tmp_path / "all")


def test_text_is_called_text(tmp_path: Folder) -> None:
    """A text under any name is no transfer that went wrong."""
    (tmp_path / "notes").write_bytes(b"first line\r\nsecond line\r\nthird\r\n")
    run = failed(1, "verify", tmp_path / "notes")
    assert "It looks like text." in run.out
    assert "binary mode" not in run.out


def test_records_of_any_file_name_are_read(tmp_path: Folder) -> None:
    """TFRecord in a file named like a CSV is TFRecord; damage in a shard is damage."""
    path = tmp_path / "rows.csv"
    write_records(path, [b"one", b"two"])
    assert command("verify", path).code == 0
    shard = tmp_path / "x.csv.tfrecord"
    shard.write_bytes(struct.pack("<Q", 3) + b"none")
    assert command("verify", shard).code == 1
