"""`index`: where records are, for readers that look them up."""

import pathlib

import numpy as np
import pytest

from tests.support.datasets import write_records
from tests.support.outputs import flip
from tests.support.runs import command, done, failed
from transforms.core.tfrecord.frame import frame

Folder = pathlib.Path


def bare(folder: Folder, compression: str = "none") -> list[bytes]:
    """Writes two files without a manifest; returns the records of the first."""
    folder.mkdir()
    records = [bytes([n]) * (n * 7) for n in range(5)]
    write_records(folder / "a.tfrecord", records, compression)
    write_records(folder / "b.tfrecord", records[:2], compression)
    return records


def test_files_of_any_program(tmp_path: Folder) -> None:
    """Both forms, beside the files; a second run changes nothing."""
    records = bare(tmp_path / "d")
    for _ in range(2):
        run = done("index", tmp_path / "d")
        assert "7 records of 2 of 2 files" in run.out
    sizes = [len(frame(record)) for record in records]
    starts = [sum(sizes[:n]) for n in range(6)]
    index = tmp_path / "d" / "index"
    assert np.fromfile(index / "a.tfrecord.u64", "<u8").tolist() == starts
    lines = [f"{a} {b}\n" for a, b in zip(starts, sizes, strict=False)]
    assert (index / "a.tfrecord.idx").read_text() == "".join(lines)
    assert {path.name for path in index.iterdir()} == {
        f"{name}.tfrecord.{form}" for name in "ab" for form in ("u64", "idx")
    }


def test_files_of_several_folders(tmp_path: Folder) -> None:
    """Each folder has the indexes of its files; one cannot hold two of a name."""
    for name in "de":
        bare(tmp_path / name)
    failed(2, "index", tmp_path / "*" / "*.tfrecord", "-o", tmp_path / "out")
    run = done("index", tmp_path / "*" / "*.tfrecord")
    assert "14 records of 4 of 4 files" in run.out
    for name in "de":
        assert len([*(tmp_path / name / "index").iterdir()]) == 4


def test_an_index_that_differs_stays(tmp_path: Folder) -> None:
    """It may be somebody's; --overwrite replaces it."""
    bare(tmp_path / "d")
    path = tmp_path / "d" / "index" / "b.tfrecord.idx"
    path.parent.mkdir()
    path.write_bytes(b"0 1\n")
    run = failed(2, "index", tmp_path / "d")
    assert "b.tfrecord.idx" in run.err
    assert path.read_bytes() == b"0 1\n"
    assert command("index", tmp_path / "d", "--overwrite").code == 0
    assert path.read_bytes() == b"0 16\n16 23\n"


@pytest.mark.parametrize("place", [0, 9, 30])
def test_damage(tmp_path: Folder, place: int) -> None:
    """A damaged header is an error that names the record."""
    bare(tmp_path / "d")
    path = tmp_path / "d" / "b.tfrecord"
    flip(path, place if place < 12 else 16)
    run = failed(1, "index", tmp_path / "d")
    assert "b.tfrecord: record" in run.err
