"""The file layer: whole or absent, exact names, and what a folder holds."""

import contextlib
import errno
import fcntl
import functools
import io
import multiprocessing
import os
import pathlib
import sys
import time
import unicodedata
from collections.abc import Callable, Iterator
from multiprocessing.synchronize import Event
from typing import Any

import pytest

from transforms.errors import (
    BusyError,
    CommitError,
    SourceError,
    StorageError,
    TargetError,
)
from transforms.storage import folders, local, retry
from transforms.storage.drafts import written
from transforms.storage.files import sizes_of, storage
from transforms.storage.folders import exclusive_lock
from transforms.storage.paths import FileEntry

Folder = pathlib.Path
AWKWARD = [
    "[a-z]*?.txt",
    "{a,b}",
    "two words",
    "line\nbreak",
    "고양이.jpg",
    unicodedata.normalize("NFD", "고양이é"),
    "🐈🐈.png",
    "-rf",
    "#%&;'\"",
    "x" * 250,
]


def contents(folder: Folder) -> dict[str, bytes | None]:
    """Returns every path below a folder: its bytes, or None for a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


@pytest.fixture
def attempts(tmp_path: Folder) -> Folder:
    folder = tmp_path / "attempts"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("name", AWKWARD)
def test_create_under_any_name(tmp_path: Folder, attempts: Folder, name: str) -> None:
    """A file appears under exactly its name, whatever a shell would make of it."""
    with storage(str(tmp_path / name)).create(attempts=str(attempts)) as file:
        file.write(b"data")
        assert not (tmp_path / name).exists()
    assert (tmp_path / name).read_bytes() == b"data"
    assert contents(attempts) == {}


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("failure", [ValueError, OSError, KeyboardInterrupt])
def test_create_is_whole_or_absent(
    tmp_path: Folder, attempts: Folder, failure: type[BaseException], durable: bool
) -> None:
    """After a failure the old file is unchanged, and no temporary file is left."""
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def fail() -> None:
        with storage(str(path)).create(attempts=str(attempts), durable=durable) as file:
            file.write(b"half")
            raise failure

    with pytest.raises(failure):
        fail()
    assert path.read_bytes() == b"old"
    assert contents(attempts) == {}


@pytest.mark.parametrize("most", [1, 7, 1000, 10**6])
def test_pieces_are_written_in_order(
    tmp_path: Folder, attempts: Folder, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """All of them, however few the system takes at once, and whatever their number."""
    pieces = [bytes([i % 251]) * (i % 5) for i in range(3000)]
    real = os.writev

    def writev(descriptor: int, some: list[bytes]) -> int:
        return real(descriptor, [b"".join(some)[:most]])

    monkeypatch.setattr(os, "writev", writev)
    path = str(tmp_path / "file")
    with written(storage(path).draft(attempts=str(attempts))) as file:
        file.write_all(pieces)  # type: ignore[attr-defined]
    assert (tmp_path / "file").read_bytes() == b"".join(pieces)


def test_short_writes_go_on(
    tmp_path: Folder, attempts: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system may take less than it is given, as that of a disk that fills up."""

    class Short(io.FileIO):
        def write(self, data: Any) -> int:
            return super().write(data[:7])

    def new_attempt(folder: str) -> io.FileIO:
        with real(folder) as file:
            return Short(file.name, "wb")

    real = local._open_attempt
    monkeypatch.setattr(local, "_open_attempt", new_attempt)
    path = tmp_path / "file"
    storage(str(path)).write_file(b"0123456789", attempts=str(attempts))
    assert path.read_bytes() == b"0123456789"


def test_create_fails_where_the_rename_does(tmp_path: Folder, attempts: Folder) -> None:
    """A name that cannot be given leaves nothing behind."""
    (tmp_path / "folder").mkdir()
    with (
        pytest.raises(OSError, match="directory"),
        storage(str(tmp_path / "folder")).create(attempts=str(attempts)) as file,
    ):
        file.write(b"x")
    assert contents(attempts) == {}


def write(folder: Folder, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())


def listed(folder: Folder) -> list[tuple[str, int, str]]:
    return [
        (entry.path, entry.size, entry.skipped)
        for entry in storage(str(folder)).list_tree()
    ]


def test_tree_is_listed_in_byte_order(tmp_path: Folder) -> None:
    """Paths are sorted by their bytes, whatever the directory's order."""
    names = ["b/2", "b/10", "a.txt", "a/z", "B", "é", "z", "고양이/1", "🐈"]
    write(tmp_path, *names)
    found = [entry.path for entry in storage(str(tmp_path)).list_tree()]
    assert found == sorted(names, key=str.encode)
    assert all(
        entry.size == len(entry.path.encode()) and entry.modified_ns
        for entry in storage(str(tmp_path)).list_tree()
    )


def test_awkward_names_are_listed(tmp_path: Folder) -> None:
    """Every name comes back unchanged; its NFC is its identity."""
    for name in AWKWARD:
        (tmp_path / name).write_bytes(b"")
    found = storage(str(tmp_path)).list_tree()
    assert sorted(entry.path for entry in found) == sorted(AWKWARD)
    decomposed = FileEntry(unicodedata.normalize("NFD", "é/å"), 0, 0)
    assert decomposed.origin == "é/å" != decomposed.path


def test_names_that_are_no_utf8_are_listed(tmp_path: Folder) -> None:
    """Undecodable bytes survive as surrogates, in their place in the order."""
    for name in (b"a", b"\xff.jpg", b"z\xe9"):
        with open(os.fsencode(tmp_path) + b"/" + name, "wb"):
            pass
    found = [os.fsencode(entry.path) for entry in storage(str(tmp_path)).list_tree()]
    assert found == [b"a", b"z\xe9", b"\xff.jpg"]


def test_hidden_names_are_counted_not_entered(tmp_path: Folder) -> None:
    """A hidden file or folder is one skipped entry, whatever it holds."""
    write(
        tmp_path,
        ".git/a/b",
        ".git/c",
        "x/.DS_Store",
        "x/1.jpg",
        "__MACOSX/x/._1.jpg",
        "x/Thumbs.db",
        "x/desktop.ini",
    )
    assert listed(tmp_path) == [
        (".git", 0, "hidden"),
        ("__MACOSX", 0, "hidden"),
        ("x/.DS_Store", 0, "hidden"),
        ("x/1.jpg", 7, ""),
        ("x/Thumbs.db", 0, "hidden"),
        ("x/desktop.ini", 0, "hidden"),
    ]


def test_links_to_files_and_folders(tmp_path: Folder) -> None:
    """A linked file has its target's size, a linked folder is entered once."""
    write(tmp_path, "elsewhere/a/1", "elsewhere/2")
    root = tmp_path / "root"
    root.mkdir()
    (root / "file").symlink_to(tmp_path / "elsewhere/2")
    (root / "folder").symlink_to(tmp_path / "elsewhere")
    assert listed(root) == [
        ("file", 11, ""),
        ("folder/2", 11, ""),
        ("folder/a/1", 13, ""),
    ]


def test_loops_end(tmp_path: Folder) -> None:
    """A folder that leads back to itself is entered once."""
    write(tmp_path, "a/1")
    (tmp_path / "a/up").symlink_to(tmp_path)
    (tmp_path / "a/here").symlink_to(".")
    assert listed(tmp_path) == [("a/1", 3, "")]


@pytest.mark.parametrize("target", ["nothing", "link.jpg"])
def test_links_to_nothing_and_to_themselves_are_listed(
    tmp_path: Folder, target: str
) -> None:
    """They are files that cannot be read later, and none that is left out."""
    (tmp_path / "link.jpg").symlink_to(target)
    write(tmp_path, "a.jpg")
    assert listed(tmp_path) == [("a.jpg", 5, ""), ("link.jpg", 0, "")]


scandir = os.scandir


@contextlib.contextmanager
def scanned(path: str, *, backwards: bool) -> Iterator[Iterator[os.DirEntry[str]]]:
    """`os.scandir` of a file system with another order."""
    with scandir(path) as found:
        yield iter(sorted(found, key=lambda entry: entry.name, reverse=backwards))


def test_listing_does_not_hang_on_directory_order(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two names of one folder: the same one counts, whatever was listed first."""
    write(tmp_path, "m/1.jpg")
    (tmp_path / "a").symlink_to("m")
    (tmp_path / "z").symlink_to("m")
    found = []
    for backwards in (False, True):
        ordered = functools.partial(scanned, backwards=backwards)
        monkeypatch.setattr(os, "scandir", ordered)
        found.append(listed(tmp_path))
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("code", "kind"), [(errno.EACCES, SourceError), (errno.EIO, StorageError)]
)
def test_unreadable_folder_is_an_error(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch, code: int, kind: type
) -> None:
    """A folder that cannot be read stops the listing, naming it: no silent gap."""
    write(tmp_path, "a/1", "locked/2")

    def refuse(path: str) -> Any:
        if path.endswith("locked"):
            raise OSError(code, os.strerror(code), path)
        return scandir(path)

    monkeypatch.setattr(retry, "POLICY", retry.RetryPolicy(first_pause=0.0))
    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(kind, match=f"locked.*{os.strerror(code)}"):
        storage(str(tmp_path)).list_tree()


def test_missing_root_is_an_error(tmp_path: Folder) -> None:
    """What is not there, or is a file, cannot be listed."""
    write(tmp_path, "file")
    for name in ("nothing", "file"):
        with pytest.raises(SourceError, match=name):
            storage(str(tmp_path / name)).list_tree()


def test_patterns(tmp_path: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that exists is no pattern, even with a star in it."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "b.csv", "a.csv", "c*.csv", "d/e.csv", "x.txt")
    (tmp_path / "folder.csv").mkdir()
    assert not storage("c*.csv").is_pattern()
    assert not storage("nothing.csv").is_pattern()
    assert storage("*.csv").is_pattern()
    assert storage("[ab].csv").is_pattern()
    assert storage("?.csv").is_pattern()
    assert storage("*.csv").expand() == ["a.csv", "b.csv", "c*.csv"]
    assert storage("**/*.csv").expand() == ["a.csv", "b.csv", "c*.csv", "d/e.csv"]
    assert storage("*.tsv").expand() == []


def test_sizes_of_the_files_that_are_there(tmp_path: Folder) -> None:
    """A file that is named twice is one; what is not there has no size."""
    first, second, gone = (str(tmp_path / name) for name in ("a", "b", "c"))
    pathlib.Path(first).write_bytes(b"xyz")
    pathlib.Path(second).write_bytes(b"")
    found = sizes_of([first, gone, second, first, "nowhere://x/y"])
    assert found == {first: 3, second: 0}


def test_read_bytes_of_what_has_no_size() -> None:
    """Files of /proc say that they are empty and are not."""
    if not os.path.exists("/proc/self/status"):
        pytest.skip("no /proc here")
    assert b"Pid:" in storage("/proc/self/status").read_bytes()


@pytest.mark.parametrize(("start", "stop"), [(0, 11), (9, 12), (10, 11), (50, 60)])
def test_read_range_of_a_shorter_file(tmp_path: Folder, start: int, stop: int) -> None:
    """A file that has become shorter is an error, never fewer bytes."""
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    with pytest.raises(OSError, match="shorter"):
        storage(str(path)).read_range(start, stop)


@pytest.mark.parametrize("name", AWKWARD)
def test_removal_is_exact(tmp_path: Folder, name: str) -> None:
    """Only the given name is removed, no pattern's match; it may already be absent."""
    neighbours = ["a.txt", "b.txt", "a", "b", "two", "words", "line", "x"]
    write(tmp_path, name, *neighbours)
    storage(str(tmp_path / name)).remove_file()
    storage(str(tmp_path / name)).remove_file()
    assert sorted(os.listdir(tmp_path)) == sorted(neighbours)
    folder = tmp_path / name
    folder.mkdir()
    write(folder, "inner")
    storage(str(folder)).remove_tree()
    storage(str(folder)).remove_tree()
    assert sorted(os.listdir(tmp_path)) == sorted(neighbours)


def test_remove_tree_does_not_follow_links(tmp_path: Folder) -> None:
    """What a link in the folder leads to stays."""
    write(tmp_path, "kept/1", "gone/2")
    (tmp_path / "gone/link").symlink_to(tmp_path / "kept")
    storage(str(tmp_path / "gone")).remove_tree()
    assert contents(tmp_path) == {"kept": None, "kept/1": b"kept/1"}


def test_what_comes_during_a_look_is_not_there(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder of that name is no file; a link that leads nowhere is something."""
    path, nowhere = tmp_path / "sets", tmp_path / "nowhere"
    nowhere.symlink_to(tmp_path / "gone")
    assert storage(str(nowhere)).standing() == "other"
    look = folders.status_of

    def slow(name: str, *, followed: bool = False) -> os.stat_result | None:
        status = look(name, followed=followed)
        path.mkdir(exist_ok=True)
        return status

    monkeypatch.setattr(folders, "status_of", slow)
    assert storage(str(path)).standing() == ""
    assert storage(str(path)).standing() == "folder"


def test_inside(tmp_path: Folder) -> None:
    """Links are resolved, a like beginning is not inside, a folder is in itself."""
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "ab").mkdir()
    (tmp_path / "link").symlink_to("a/b")
    inside = ("a", "a/", "a/b", "a/new/x", "link", "link/x")
    for name in (*inside, "ab", "a/../ab", "."):
        found = storage(str(tmp_path / name)).is_inside(str(tmp_path / "a"))
        assert found is (name in inside), name


def test_move_new(tmp_path: Folder) -> None:
    """A folder takes a free name, or that of an empty folder."""
    for name in ("fresh", "empty"):
        write(tmp_path, "new/1")
        if name == "empty":
            (tmp_path / name).mkdir()
        folders.move_new(str(tmp_path / "new"), str(tmp_path / name))
        assert not (tmp_path / "new").exists()
        assert contents(tmp_path / name) == {"1": b"new/1"}


@pytest.mark.parametrize("standing", ["file", "folder", "link", "dangling"])
def test_move_new_replaces_nothing(tmp_path: Folder, standing: str) -> None:
    """Whatever has appeared under the name stays, and so does the folder."""
    write(tmp_path, "new/1", "other/2")
    target = tmp_path / "target"
    if standing == "file":
        target.write_bytes(b"mine")
    elif standing == "folder":
        write(target, "mine")
    else:
        target.symlink_to("other" if standing == "link" else "nothing")
    before = contents(tmp_path)
    with pytest.raises(CommitError, match="has been made since"):
        folders.move_new(str(tmp_path / "new"), str(target))
    assert contents(tmp_path) == before


def test_exchange(tmp_path: Folder) -> None:
    """Two folders swap their names in one step, or nothing happens."""
    write(tmp_path, "a/1", "b/2")
    if not folders.exchange(str(tmp_path / "a"), str(tmp_path / "b")):
        pytest.skip("this file system cannot exchange")
    assert contents(tmp_path) == {"a": None, "a/2": b"b/2", "b": None, "b/1": b"a/1"}
    with pytest.raises(FileNotFoundError):
        folders.exchange(str(tmp_path / "a"), str(tmp_path / "nothing"))
    assert (tmp_path / "a/2").exists()


def test_exchange_on_other_systems(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is no such rename, it says so and changes nothing."""
    write(tmp_path, "a/1", "b/2")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not folders.exchange(str(tmp_path / "a"), str(tmp_path / "b"))
    assert (tmp_path / "a/1").exists()
    folders.move_new(str(tmp_path / "a"), str(tmp_path / "c"))
    assert (tmp_path / "c/1").exists()


def hold(path: str, held: Event) -> None:
    with exclusive_lock(path):
        held.set()
        time.sleep(60)


def test_lock_is_exclusive_and_freed(tmp_path: Folder) -> None:
    """A second holder is refused by name; after the first it may."""
    path = str(tmp_path / "lock")
    with (
        exclusive_lock(path),
        pytest.raises(BusyError, match=r"Only one run.*lock"),
        exclusive_lock(path),
    ):
        pass
    with exclusive_lock(path):
        pass


def test_lock_dies_with_its_process(tmp_path: Folder) -> None:
    """A killed run holds nothing."""
    path = str(tmp_path / "lock")
    context = multiprocessing.get_context("spawn")
    held = context.Event()
    process = context.Process(target=hold, args=(path, held))
    process.start()
    assert held.wait(30)
    with pytest.raises(TargetError), exclusive_lock(path):
        pass
    process.kill()
    process.join()
    with exclusive_lock(path):
        pass


@pytest.mark.parametrize(
    "make", [os.mkdir, os.mkfifo, lambda path: os.symlink("x", path)]
)
def test_what_has_the_name_of_a_lock_is_named(
    tmp_path: Folder, make: Callable[[str], None]
) -> None:
    """A link, a pipe or a folder is a fault of the target, and never locked."""
    path = str(tmp_path / "lock")
    make(path)
    with pytest.raises(TargetError, match="regular file"), exclusive_lock(path):
        pass
    assert os.listdir(tmp_path) == ["lock"]


def test_lock_is_of_the_name_not_of_a_removed_file(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that removes its lock file as it leaves does not let two others in.

    One of them has opened the file before the removal; the other creates it again.
    """
    path = str(tmp_path / "lock")
    real = fcntl.flock
    removed: list[bool] = []

    def flock(file: int, operation: int) -> None:
        if not removed:
            removed.append(True)
            os.unlink(path)
        real(file, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    with (
        exclusive_lock(path),
        pytest.raises(TargetError),
        exclusive_lock(path),
    ):
        pass
