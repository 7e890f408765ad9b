"""Files of a source: as columns, and listed in files."""

import os
import pathlib

import pyarrow as pa
import pytest

from transforms.errors import InputError
from transforms.formats import input_files
from transforms.formats.file_runs import folder_notes
from transforms.formats.input_files import InputFiles, opened, write_listing
from transforms.formats.table import InputFile
from transforms.storage.file_list import FileList
from transforms.storage.local import LocalPath
from transforms.storage.paths import FileEntry
from transforms.storage.row_spool import BATCH_ROWS, RowSpool


def listed(names: list[str], root: str = "/data") -> InputFiles:
    entries = [FileEntry(name, 10 + at, at) for at, name in enumerate(names)]
    return InputFiles.listed(FileList.of(entries), root=root)


def test_files_are_what_their_entries_say() -> None:
    """Each has its path, its stamp and the bytes before it."""
    entries = [FileEntry("a.csv", 3, 5), FileEntry("b/ü.csv", 4, 6)]
    found = InputFiles.listed(FileList.of(entries), root="s3://bucket/in")
    assert list(found) == [
        InputFile("a.csv", "s3://bucket/in/a.csv", 3, 0, stamp=entries[0].stamp),
        InputFile("b/ü.csv", "s3://bucket/in/b/ü.csv", 4, 3, stamp=entries[1].stamp),
    ]
    assert found.origins.to_pylist() == ["a.csv", "b/ü.csv"]
    assert found.sizes.tolist() == [3, 4]


def test_indexing_is_that_of_a_sequence() -> None:
    """Negative indexes, slices with steps, and an error beyond the end."""
    names = [f"{number:05}.csv" for number in range(10_000)]
    found, plain = listed(names), list(listed(names))
    assert len(found) == len(plain)
    assert plain[-1].position == found[-1].position
    for index in (0, 9_999, -1, -10_000, 4_097):
        assert found[index] == plain[index]
    for part in (
        slice(None, None, 157),
        slice(5, -3),
        slice(None, None, -1),
        slice(5, 5),
    ):
        assert list(found[part]) == plain[part]
    for index in (10_000, -10_001):
        with pytest.raises(IndexError):
            found[index]


def test_chosen_files_keep_their_positions() -> None:
    """A format may leave files out: the others are where they were."""
    found = listed(["a", "b", "c"])
    chosen = InputFiles.of([found[0], found[2]], root="/data")
    assert list(chosen) == [found[0], found[2]]
    assert InputFiles.of(found, root="/data") is found
    assert len(listed([])) == 0
    assert list(listed([])) == []


def test_folders_that_hold_values_are_noted() -> None:
    """As Spark writes them: no column of the files has these values."""
    files = listed(["year=2023/month=1/a.parquet", "year=2024/month=2/b=c.parquet"])
    (note,) = folder_notes(files, {"value", "month"})
    assert "features: {year: {path: 'year=([^/]+)'}}" in note
    assert not [*folder_notes(files, ["month", "year"])]


def test_a_name_that_is_no_text_is_refused() -> None:
    """Origins are texts: the error names the file and the way out."""
    name = os.fsdecode(b"\xff.csv")
    with pytest.raises(InputError, match=r"b'\\xff\.csv'.*--exclude"):
        listed(["a.csv", name])


ROWS = 2 * BATCH_ROWS + 5


def written(path: pathlib.Path, first: int) -> str:
    """Writes a listing of numbers from `first` on."""
    table = pa.table({"number": pa.array(range(first, first + ROWS))})
    write_listing(RowSpool.of(table), str(path), attempts=str(path.parent))
    return str(path)


@pytest.mark.parametrize("held", [True, False])
def test_rows_of_a_listing(
    held: bool, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any rows, and all of them, whether it is held in memory or not."""
    if not held:
        monkeypatch.setattr(input_files, "_HELD_BYTES", 0)
    path = written(tmp_path / "listing", 0)
    with opened(path) as found:
        assert found.num_rows == ROWS
        for start, stop in (
            (0, 3),
            (BATCH_ROWS - 1, BATCH_ROWS + 1),
            (7, ROWS),
            (0, ROWS),
        ):
            rows = found.slice(start, stop - start)["number"].to_pylist()
            assert rows == list(range(start, stop))


def test_a_listing_is_read_once(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each further use costs a look at the file; another content is read again."""
    path = written(tmp_path / "listing", 0)
    reads = []
    real = LocalPath.read_bytes

    def read_bytes(path: LocalPath) -> bytes:
        reads.append(path.path)
        return real(path)

    monkeypatch.setattr(LocalPath, "read_bytes", read_bytes)
    for _ in range(3):
        with opened(path) as found:
            assert found.slice(0, 1)["number"].to_pylist() == [0]
    assert reads == [path]
    written(tmp_path / "listing", 1)
    with opened(path) as found:
        assert found.slice(0, 1)["number"].to_pylist() == [1]
    assert reads == [path, path]
