"""The files of a source as columns, and as a sequence."""

import os

import pytest

from transforms.errors import InputError
from transforms.formats.input_files import InputFiles
from transforms.formats.table import InputFile
from transforms.storage.entries import FileEntry
from transforms.storage.file_list import FileList


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
    for part in (slice(None, None, 157), slice(5, -3), slice(None, None, -1)):
        assert list(found[part]) == plain[part]
    for index in (10_000, -10_001):
        with pytest.raises(IndexError, match="10000 files"):
            found[index]


def test_chosen_files_keep_their_positions() -> None:
    """A format may leave files out: the others are where they were."""
    found = listed(["a", "b", "c"])
    chosen = InputFiles.of([found[0], found[2]], root="/data")
    assert list(chosen) == [found[0], found[2]]
    assert InputFiles.of(found, root="/data") is found
    assert len(listed([])) == 0
    assert list(listed([])) == []


def test_a_name_that_is_no_text_is_refused() -> None:
    """Origins are texts: the error names the file and the way out."""
    name = os.fsdecode(b"\xff.csv")
    with pytest.raises(InputError, match=r"b'\\xff\.csv'.*--exclude"):
        listed(["a.csv", name])
