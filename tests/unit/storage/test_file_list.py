"""Files of a source as columns."""

import os
import unicodedata

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from beam_pipeline.planning.chosen_files import are_plain_images
from transforms.formats.file_names import IMAGE_SUFFIXES, is_image_name
from transforms.formats.registry import FORMATS
from transforms.storage import file_list
from transforms.storage.file_list import (
    FileList,
    FileLister,
    lines_of,
    origins_of,
    stamps_of,
)
from transforms.storage.paths import FileEntry

NAMES = st.text(
    st.characters(exclude_characters="\0/", exclude_categories=["Cs"]), min_size=1
)
ENTRIES = st.builds(
    FileEntry,
    path=st.lists(NAMES, min_size=1, max_size=3).map("/".join),
    size=st.integers(0, 2**62),
    modified_ns=st.integers(-(2**62), 2**62),
    skipped=st.sampled_from(["", "hidden"]),
)


@given(st.lists(ENTRIES))
def test_entries_come_back(entries: list[FileEntry]) -> None:
    """A list gives its entries as they were, with their stamps and origins."""
    found = FileList.of(entries)
    assert (list(found), len(found)) == (entries, len(entries))
    assert found.bytes == sum(entry.size for entry in entries)
    stamps = [stamp for batch in found.batches() for stamp in stamps_of(batch).tolist()]
    assert stamps == [entry.stamp for entry in entries]
    origins = [o for batch in found.batches() for o in origins_of(batch).to_pylist()]
    assert origins == [entry.origin.encode() for entry in entries]


@given(st.lists(ENTRIES))
def test_sorted_by_origin(entries: list[FileEntry]) -> None:
    """Files are sorted by the bytes of their origins, in any form of the paths."""
    found = FileList.of(entries).by_origin()
    origins = sorted(entry.origin.encode() for entry in entries)
    assert [entry.origin.encode() for entry in found] == origins


@given(st.lists(ENTRIES, unique_by=lambda entry: entry.path))
@example([FileEntry("0", 2**62, 0, ""), FileEntry("@", 2**62, 0, "")])
def test_lister_is_like_a_sorted_list(entries: list[FileEntry]) -> None:
    """What is found folder by folder is listed in the byte order of the paths."""
    lister = FileLister()
    for entry in entries:
        hidden = bool(entry.skipped)
        lister.add(entry.path, entry.size, entry.modified_ns, hidden=hidden)
    wanted = sorted(entries, key=lambda entry: os.fsencode(entry.path))
    found = lister.files()
    assert list(found) == wanted
    assert found.bytes == sum(entry.size for entry in wanted)


def test_found_twice_is_listed_once() -> None:
    """The last size counts of a path that was found twice, and is counted once."""
    lister = FileLister()
    for path, size, modified_ns in (("a/1", 5, 0), ("a/2", 6, 0), ("a/1", 7, 1)):
        lister.add(path, size, modified_ns)
    found = lister.files()
    assert list(found) == [FileEntry("a/1", 7, 1), FileEntry("a/2", 6, 0)]
    assert found.bytes == 13


def test_names_that_are_no_utf8() -> None:
    """Undecodable bytes survive; as an origin they are question marks."""
    path = os.fsdecode(b"\xff\xe9")
    lister = FileLister()
    lister.add(path, 1, 3)
    lister.add("b", 2, 4)
    found = lister.files()
    assert list(found) == [FileEntry("b", 2, 4), FileEntry(path, 1, 3)]
    (batch,) = found.by_origin().batches()
    assert origins_of(batch).to_pylist() == [b"??", b"b"]


def test_many_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of several batches is one list."""
    monkeypatch.setattr(file_list, "BATCH_ROWS", 2)
    entries = [FileEntry(f"{n}", n, n) for n in range(9)]
    found = FileList.of(entries)
    assert len(list(found.batches())) == 5
    assert found.first(3) == entries[:3]
    odd = found.filter(lambda batch: batch["size"].to_numpy() % 2 == 1)
    assert (list(odd), odd.bytes) == (entries[1::2], 16)


@given(st.lists(ENTRIES))
def test_lines(entries: list[FileEntry]) -> None:
    """Lines are what joining the text of each entry gives."""
    found = b"".join(
        lines_of(batch["path"], batch["size"], batch["modified"], end=b"\n")
        for batch in FileList.of(entries).batches()
    )
    lines = (f"{e.path}\0{e.size}\0{e.modified_ns}\n" for e in entries)
    assert found == "".join(lines).encode()


SUFFIXES = st.sampled_from(
    [*IMAGE_SUFFIXES, ".JPG", ".pſd", ".jp2\n", ".csv", ".bin", "", *"./"]
)


@given(st.lists(st.one_of(SUFFIXES, NAMES, st.just("-00001-of-00002"))).map("".join))
def test_plain_names_of_images(path: str) -> None:
    """A plain name of an image is one by the exact rule, and of no table's format."""
    for form in (path, unicodedata.normalize("NFD", path)):
        (is_plain,) = are_plain_images(pa.array([form.encode()])).tolist()
        if is_plain:
            assert is_image_name(form)
            claimed = [name for name, known in FORMATS.items() if known.takes(form)]
            assert set(claimed) == {"images", "pairs", "yolo"}
        elif is_image_name(form) and form.rpartition("/")[2].count(".") == 1:
            # Only letters that are none in ASCII keep a usual name from being plain.
            assert not form[-5:].isascii()
