"""The output directory: what is refused, what is replaced, what is never touched."""

import contextlib
import dataclasses
import errno
import itertools
import os
import pathlib
import shutil
import tempfile

import pytest

from beam_pipeline.planning.plan import make_plan
from beam_pipeline.settings.spec import make_spec
from tests.support.datasets import animals, seen_at, write_dataset
from tests.support.file_operations import CHANGES, failing_once
from tests.support.outputs import tree
from tests.support.sources import write_files
from transforms.core.manifest import MANIFEST_NAME
from transforms.errors import (
    MAX_MESSAGE_BYTES,
    CommitError,
    TargetError,
    UsageError,
)
from transforms.publishing import local, target
from transforms.storage import folders, retry
from transforms.storage.files import storage
from transforms.storage.paths import work_folder

Folder = pathlib.Path
OLD = {"train": animals(3, 2), "test": animals(1)}
NEW = {"train": animals(4, start=9)}


def build(parent: Folder, name: str = "out") -> Folder:
    """Returns a finished dataset in the work folder of a target."""
    folder = pathlib.Path(work_folder(str(parent / name))) / "job" / "dataset"
    folder.parent.mkdir(parents=True)
    write_dataset(folder, NEW)
    return folder


def published(parent: Folder, name: str = "out") -> dict[str, bytes | str | None]:
    found = tree(parent)
    work = os.path.basename(work_folder(str(parent / name)))
    return {path: data for path, data in found.items() if not path.startswith(work)}


def refused(directory: Folder, *, overwrite: bool = True) -> str:
    """Returns why a target is refused, after checking that nothing has changed."""
    parent = directory.parent
    before = tree(parent)
    with pytest.raises(TargetError) as caught:
        seen_at(str(directory), overwrite=overwrite)
    assert tree(parent) == before
    assert len(str(caught.value).encode()) <= MAX_MESSAGE_BYTES
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_paths_beside_the_target() -> None:
    """Unfinished work and refused rejects are siblings, on the same file system."""
    for given_path in ("/data/out", "/data/out/", "/data/x/../out"):
        assert work_folder(given_path) == "/data/.out.beam-tfrecord"
        assert target.rejects_path(given_path) == "/data/out.rejects.jsonl"


@pytest.mark.parametrize("overwrite", [False, True])
def test_fresh_targets(tmp_path: Folder, overwrite: bool) -> None:
    """A name that is free, below folders that are still missing, or an empty folder."""
    (tmp_path / "empty").mkdir()
    for name in ("new", "deep/er/new", "empty"):
        assert seen_at(str(tmp_path / name), overwrite=overwrite) == ""
    assert sorted(os.listdir(tmp_path)) == ["empty"]


def test_relative_targets(tmp_path: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bare name is in the working directory."""
    monkeypatch.chdir(tmp_path)
    assert seen_at("out", overwrite=False) == ""
    assert work_folder("out") == str(tmp_path / ".out.beam-tfrecord")


@pytest.mark.parametrize(
    ("made", "name", "why"),
    [
        ({"out": b"precious"}, "out", "is a file or a link"),
        ({"file": b"precious"}, "file/out", "writable"),
        ({"file": b"precious"}, "file/x/out", "writable"),
        # Its names say what may be deleted: when it was changed, nothing may.
        ({f"out/{MANIFEST_NAME}": b""}, "out", "cannot be replaced safely"),
        ({f"out/{MANIFEST_NAME}/x": b""}, "out", "cannot be replaced safely"),
        # There is no room for `.<name>.beam-tfrecord`.
        ({}, "x" * 250, "File name too long"),
        (
            {f"out/{index}.txt": b"precious" for index in range(8)},
            "out",
            "'0.txt', '1.txt', '2.txt', '3.txt', '4.txt' and 3 more",
        ),
    ],
)
@pytest.mark.parametrize("overwrite", [False, True])
def test_folder_that_is_no_dataset(
    tmp_path: Folder, made: dict[str, bytes], name: str, why: str, overwrite: bool
) -> None:
    """What is there is refused by its name, with or without --overwrite, and stays."""
    write_files(tmp_path, made)
    assert why in refused(tmp_path / name, overwrite=overwrite)


@pytest.mark.parametrize("slash", ["", "/"])
@pytest.mark.parametrize("leads_to", ["empty", "dataset", "nothing"])
def test_link_as_target(tmp_path: Folder, leads_to: str, slash: str) -> None:
    """A link is not replaced, nor what it leads to; a slash after it changes nothing.

    The work folder beside the link may be on another file system than its target.
    """
    (tmp_path / "empty").mkdir()
    write_dataset(tmp_path / "dataset", OLD)
    (tmp_path / "out").symlink_to(leads_to)
    with pytest.raises(TargetError, match="link"):
        seen_at(f"{tmp_path}/out{slash}")


def test_parent_that_is_not_writable(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder without the right to write is named before any input is read."""
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert repr(str(tmp_path)) in refused(tmp_path / "new" / "out")


def test_dataset_is_replaced_only_when_asked(tmp_path: Folder) -> None:
    """Without --overwrite the existing dataset is named and kept."""
    write_dataset(tmp_path / "out", OLD)
    message = refused(tmp_path / "out", overwrite=False)
    assert "'animals' of 6 records" in message
    assert "--overwrite" in message
    assert seen_at(str(tmp_path / "out")) != ""


@pytest.mark.parametrize(
    "name",
    [
        "notes.txt",
        "sub/model.bin",
        ".hidden",
        "animals-train.tfrecord-00000-of-00002-backup",
        "animals-train.tfrecord-00000-of-00099",
        "고양이",
        "[a]*",
        "line\nbreak",
    ],
)
@pytest.mark.parametrize("overwrite", [False, True])
def test_dataset_with_something_foreign(
    tmp_path: Folder, name: str, overwrite: bool
) -> None:
    """Anything that the manifest does not name is named, and nothing is touched."""
    write_dataset(tmp_path / "out", OLD)
    (tmp_path / "out" / name).parent.mkdir(exist_ok=True)
    (tmp_path / "out" / name).write_bytes(b"precious")
    message = refused(tmp_path / "out", overwrite=overwrite)
    assert repr(name.partition("/")[0]) in message


@pytest.mark.parametrize("name", ["a\0b", "", "x" * 256])
def test_names_that_cannot_be_made(tmp_path: Folder, name: str) -> None:
    """A path that no file system takes is a usage error before the work starts."""
    directory = str(tmp_path / name) if name else ""
    with pytest.raises(UsageError):
        make_plan(make_spec({"source": str(tmp_path), "output": directory}))


def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is tried again is tried again without a pause."""
    policy = dataclasses.replace(retry.POLICY, first_pause=0.0)
    monkeypatch.setattr(retry, "POLICY", policy)


class Publication:
    """Publications of one dataset, again and again from the same start.

    Attributes:
      directory: the target.
      wanted: the required contents in the end.
    """

    def __init__(self, root: Folder, standing: str) -> None:
        self._root, self._standing = root, standing
        self.directory = root / "out"
        folder, _ = self.begin()
        self.wanted = tree(folder)

    def begin(self) -> tuple[Folder, str]:
        """Returns a finished dataset and the contents of the target."""
        if self._root.exists():
            shutil.rmtree(self._root)
        self._root.mkdir()
        if self._standing == "empty":
            self.directory.mkdir()
        elif self._standing == "dataset":
            write_dataset(self.directory, OLD)
        seen = seen_at(str(self.directory))
        return build(self._root), seen

    def check(self, folder: Folder) -> None:
        """Asserts that it is published and nothing is left of it elsewhere."""
        assert tree(self.directory) == self.wanted
        assert os.listdir(folder.parent) == []
        own = {"out", os.path.basename(work_folder(str(self.directory)))}
        assert set(os.listdir(self._root)) == own


@pytest.mark.parametrize("lost", [False, True], ids=["undone", "lost"])
@pytest.mark.parametrize(
    "standing", ["nothing", "empty", "dataset", "without exchange"]
)
def test_a_transient_error_at_every_step_of_a_publication(
    standing: str, lost: bool, tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look and each change is tried again, and none is done twice (row 8).

    `lost`: a change is done and said to have failed. An exchange that is repeated then
    would put the old dataset back.
    """
    at_once(monkeypatch)
    if standing == "without exchange":
        monkeypatch.setattr(folders, "exchange", lambda *_: False)
        standing = "dataset"
    place = Publication(tmp_path / "place", standing)
    codes = itertools.cycle(
        (errno.EIO, errno.ESTALE, errno.EBUSY, errno.EINTR, errno.ETIMEDOUT)
    )
    failed = []
    for number in itertools.count():
        folder, seen = place.begin()
        with failing_once(number, next(codes), lost=lost) as calls:
            local.publish(str(folder), str(place.directory), seen=seen)
        if len(calls) <= number:
            break
        failed.append(calls[number])
        place.check(folder)
    assert CHANGES & set(failed)
    assert {"lstat", "fsync", "listdir"} <= set(failed)


@pytest.mark.parametrize("lost", [False, True], ids=["undone", "lost"])
@pytest.mark.parametrize("exchanges", [True, False])
def test_a_transient_error_at_every_step_of_a_recovery(
    exchanges: bool, lost: bool, tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a dead run has begun is ended, at whatever step it is disturbed."""
    at_once(monkeypatch)
    if not exchanges:
        monkeypatch.setattr(folders, "exchange", lambda *_: False)
    place = Publication(tmp_path / "place", "dataset")
    for number in itertools.count():
        folder, seen = place.begin()
        with monkeypatch.context() as patch:
            # It is killed as soon as one dataset has replaced the other.
            patch.setattr(local, "_confirm", dies)
            with pytest.raises(KeyboardInterrupt):
                local.publish(str(folder), str(place.directory), seen=seen)
        with failing_once(number, errno.EIO, lost=lost) as calls:
            local.recover(str(folder), str(place.directory))
        place.check(folder)
        if len(calls) <= number:
            break
    assert number > 10


def test_a_target_that_its_user_removes_after_a_kill(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next run has nothing to end; it does not fail."""
    place = Publication(tmp_path / "place", "dataset")
    folder, seen = place.begin()
    with monkeypatch.context() as patch:
        patch.setattr(local, "_clear_aside", dies)
        with pytest.raises(KeyboardInterrupt):
            local.publish(str(folder), str(place.directory), seen=seen)
    shutil.rmtree(place.directory)
    local.recover(str(folder), str(place.directory))
    assert not place.directory.exists()


def test_a_folder_that_cannot_be_renamed_keeps_the_dataset_before(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an exchange the old one was moved aside, and goes back."""
    place = Publication(tmp_path / "place", "dataset")
    folder, seen = place.begin()
    before = tree(place.directory)

    def rename(source: str, target: str) -> None:
        if source == str(folder):
            raise PermissionError(errno.EACCES, "refused", target)
        folders.rename(source, target)

    monkeypatch.setattr(folders, "exchange", lambda *_: False)
    monkeypatch.setattr(local, "rename", rename)
    with pytest.raises(PermissionError):
        local.publish(str(folder), str(place.directory), seen=seen)
    assert tree(place.directory) == before


def dies(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("seen_first", ["nothing", "empty", "dataset"])
@pytest.mark.parametrize(
    "appears", ["file", "folder", "dataset", "foreign", "gone", "link"]
)
def test_target_changed_since_the_start(
    tmp_path: Folder, seen_first: str, appears: str
) -> None:
    """If the target changed meanwhile: CommitError, and nothing is changed."""
    directory = tmp_path / "out"
    if seen_first == "empty":
        directory.mkdir()
    elif seen_first == "dataset":
        write_dataset(directory, OLD)
    seen = seen_at(str(directory))
    if appears == "foreign":
        directory.mkdir(exist_ok=True)
        (directory / "precious").write_bytes(b"precious")
    else:
        if directory.exists():
            directory.rename(tmp_path / "moved")
        if appears == "file":
            directory.write_bytes(b"precious")
        elif appears == "folder":
            directory.mkdir()
            (directory / "precious").write_bytes(b"precious")
        elif appears == "dataset":
            write_dataset(directory, {"train": animals(2, start=70)})
        elif appears == "link":
            (tmp_path / "elsewhere").mkdir()
            (tmp_path / "elsewhere/precious").write_bytes(b"precious")
            directory.symlink_to("elsewhere")
    folder = build(tmp_path)
    if appears == "gone" and seen_first != "dataset":
        # An empty folder may be removed meanwhile.
        local.publish(str(folder), str(directory), seen=seen)
        return
    before = tree(tmp_path)
    with pytest.raises(CommitError):
        local.publish(str(folder), str(directory), seen=seen)
    assert tree(tmp_path) == before


def test_the_same_dataset_made_again_is_another(tmp_path: Folder) -> None:
    """A run that committed equal bytes meanwhile has committed: this one fails."""
    directory = tmp_path / "out"
    write_dataset(directory, OLD)
    seen = seen_at(str(directory))
    directory.rename(tmp_path / "moved")
    write_dataset(directory, OLD)
    with pytest.raises(CommitError, match="another run"):
        local.publish(str(build(tmp_path)), str(directory), seen=seen)


@pytest.mark.parametrize(
    "name",
    ["[a-z]*?", "{a,b}", "a b", "#%", "line\nbreak", "-x", "한국어", "🐈", "x" * 200],
)
def test_any_name_can_be_a_target(tmp_path: Folder, name: str) -> None:
    """Names are paths and never patterns: fresh and overwritten alike."""
    for _ in range(2):
        directory = tmp_path / name
        seen = seen_at(str(directory))
        folder = build(tmp_path, name)
        wanted = tree(folder)
        local.publish(str(folder), str(directory), seen=seen)
        assert tree(directory) == wanted
        storage(work_folder(str(directory))).remove_tree()
    assert os.listdir(tmp_path) == [name]


@pytest.mark.skipif(os.geteuid() != 0, reason="makes files of another user")
@pytest.mark.parametrize(
    ("parent_mode", "mode", "inner", "why"),
    [
        (0o777, 0o755, 0o777, "not writable"),
        (0o1777, 0o777, 0o777, "sticky"),
        (0o777, 0o777, 0o755, "not writable"),
        (0o777, 0o777, 0o777, ""),
    ],
)
def test_a_dataset_of_another_user_is_refused_before_work(
    parent_mode: int, mode: int, inner: int, why: str
) -> None:
    """What the commit of an overwrite would be denied is found at the start."""
    # Others may not enter the folders of pytest.
    with tempfile.TemporaryDirectory() as parent:
        out = pathlib.Path(parent, "out")
        write_dataset(out, OLD)
        (out / "index").mkdir()
        (out / "index").chmod(inner)
        out.chmod(mode)
        os.chmod(parent, parent_mode)
        os.seteuid(65534)
        try:
            with contextlib.ExitStack() as stack:
                if why:
                    stack.enter_context(pytest.raises(TargetError, match=why))
                target.at(str(out)).check_replaceable()
        finally:
            os.seteuid(0)


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc")
def test_a_folder_that_takes_no_other_is_an_error() -> None:
    """The work folder is not tried again for ever where nothing can be made."""
    with pytest.raises(FileNotFoundError) as caught:
        target.at("/proc/out").held().__enter__()
    assert caught.value.filename.startswith("/proc/")
