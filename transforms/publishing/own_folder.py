"""A work folder on disk: recognised by its marker, otherwise never touched.

    .<name>.beam-tfrecord/
      made-by-beam-tfrecord      the marker
      lock                       held by the run that works here
      publishing                 held for a moment by the run that publishes
      <run>/                     unfinished work of a run; its name has a fixed form

The marker is the first file in the folder and the last one: without it the folder is
ours only if it is empty, but for a lock of a run that comes while another one removes
the folder. Links are not followed, and anything in the folder that is not in this
drawing is left where it is. The owner of the folder is not checked: a container or a
network file system may show another one.
"""

import contextlib
import dataclasses
import errno
import os
import re
import stat
import time
from collections.abc import Iterator

from transforms.errors import StorageError, TargetError, first_few
from transforms.storage import folders
from transforms.storage.files import storage
from transforms.storage.folders import exclusive_lock
from transforms.storage.paths import is_hidden
from transforms.storage.retry import persistently

_LOCK, _PUBLISHING, _MARKER = "lock", "publishing", "made-by-beam-tfrecord"
_ABOUT = (
    b"Unfinished work of beam-tfrecord. The next run for the same output goes on with\n"
    b"it, and `beam-tfrecord clean` removes it.\n"
)
# How many foreign names an error shows.
_SHOWN = 5
# Seconds that a publication waits for another one, and between two looks.
_PATIENCE = 120
_PAUSE = 0.1


@dataclasses.dataclass(frozen=True, slots=True)
class OwnFolder:
    """A work folder.

    Attributes:
      path: of the folder.
      runs: the form of the names that folders of runs have.
    """

    path: str
    runs: re.Pattern[str]

    def check(self) -> bool:
        """Returns whether the folder is there.

        Raises:
          TargetError: something else has its name, or it is not ours.
        """

        def look() -> bool:
            with contextlib.suppress(FileNotFoundError), self._opened() as descriptor:
                self._check(descriptor)
                return True
            return False

        return persistently(look, path=self.path)

    def make(self) -> None:
        """Makes the folder with its marker; it may exist.

        Raises: see `check`.
        """
        persistently(self._make, path=self.path)

    def _make(self) -> None:
        while True:
            try:
                with self._opened() as descriptor:
                    self._check(descriptor)
                    _mark(descriptor)
                    return
            except FileNotFoundError:
                parent = os.path.dirname(self.path)
                if not os.path.isdir(parent):
                    folders.make(parent)
                # Raises where a folder that is there takes no other, as /proc does.
                with contextlib.suppress(FileExistsError):
                    os.mkdir(self.path)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Makes the folder and holds its lock; afterwards removes it if it is empty.

        Raises:
          TargetError: another run holds it; or see `check`.
        """
        try:
            with self._locked(_LOCK):
                yield
        finally:
            with contextlib.suppress(OSError, StorageError):
                # If another run has come in between, the folder is that run's.
                self.remove_unused()

    def publishing(self) -> contextlib.AbstractContextManager[None]:
        """Holds the lock of publications, for which it waits.

        Runs that nobody holds the folder for (`transforms.publishing.target`)
        publish in turn, so that each sees what the one before it has done.

        Raises:
          TargetError: another run does not give it back; or see `check`.
        """
        return self._locked(_PUBLISHING, seconds=_PATIENCE)

    @contextlib.contextmanager
    def _locked(self, name: str, *, seconds: float = 0.0) -> Iterator[None]:
        """Holds a lock in the folder, which is made; waits for it for some seconds."""
        lock = os.path.join(self.path, name)
        limit = time.monotonic() + seconds
        with contextlib.ExitStack() as stack:
            while True:
                self.make()
                try:
                    stack.enter_context(exclusive_lock(lock))
                    break
                except FileNotFoundError:
                    # A run that has just ended has removed the folder in between.
                    continue
                except TargetError:
                    if time.monotonic() >= limit:
                        raise
                    time.sleep(_PAUSE)
            try:
                yield
            finally:
                storage(lock).remove_file(below=os.path.dirname(self.path))

    def run_names(self) -> list[str]:
        """Returns the names of the runs' folders; see `names`."""
        return self.names()[0]

    def remove_run(self, name: str) -> None:
        """Removes the folder of a run; it may be gone already."""
        path = os.path.join(self.path, name)
        storage(path).remove_tree(below=os.path.dirname(self.path))

    def remove_runs(self, *, but: str = "") -> None:
        """Removes the folders of all runs but one."""
        for name in self.run_names():
            if name != but:
                self.remove_run(name)

    def remove_unused(self) -> None:
        """Removes the folder if it holds nothing but its marker."""
        with (
            contextlib.suppress(FileNotFoundError),
            folders.opened(self.path) as descriptor,
        ):
            if set(os.listdir(descriptor)) - {_MARKER}:
                return
            removed = False
            try:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(_MARKER, dir_fd=descriptor)
                removed = folders.remove_empty(self.path)
            finally:
                if not removed:
                    # Another run has come: the folder is its, and needs the marker.
                    with contextlib.suppress(OSError):
                        _mark(descriptor)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        """Opens the folder; raises TargetError where something else is there."""
        path = self.path
        try:
            with folders.opened(path) as descriptor:
                yield descriptor
        except OSError as error:
            if error.errno in folders.NO_FOLDER:
                if (status := folders.status_of(path)) is None:
                    # A part of the path above it is no folder.
                    raise FileNotFoundError(*error.args, path) from error
                what = "a link" if stat.S_ISLNK(status.st_mode) else "not a folder"
                raise _not_ours(path, f"is {what}") from error
            # The longer of two names is this one, not the output's.
            if error.errno not in (errno.EACCES, errno.EPERM, errno.ENAMETOOLONG):
                raise
            raise _not_ours(path, f"cannot be: {error.strerror}") from error

    def _check(self, descriptor: int) -> None:
        """Raises TargetError where the folder is not ours, or a link is in it."""
        names = sorted(os.listdir(descriptor), key=os.fsencode)
        own = (_LOCK, _PUBLISHING, _MARKER)
        # What is hidden may be the system's.
        foreign = [n for n in names if n not in own and not is_hidden(n)]
        if foreign and _MARKER not in names:
            shown = first_few([*map(repr, foreign)], _SHOWN)
            raise _not_ours(self.path, f"was made by something else: it holds {shown}")
        for name in names:
            is_run = self.runs.fullmatch(name) is not None
            wanted = stat.S_IFDIR if is_run else stat.S_IFREG
            # A missing file belonged to another run, which has just ended.
            is_own = is_run or name in own
            if is_own and _type_of(name, descriptor) not in (0, wanted):
                what = "is a link, or of another type"
                raise _not_ours(os.path.join(self.path, name), what)
            if not is_run:
                continue
            with (
                contextlib.suppress(FileNotFoundError),
                folders.opened(name, folder=descriptor) as run,
            ):
                for entry in os.listdir(run):
                    if _type_of(entry, run) == stat.S_IFLNK:
                        path = os.path.join(self.path, name, entry)
                        raise _not_ours(path, "is a link")

    def names(self) -> tuple[list[str], list[str]]:
        """Returns the names of the runs' folders, and of what is not ours.

        Both are in byte order, and empty where the folder is missing.
        """
        path = self.path

        def look() -> tuple[list[str], list[str]]:
            runs, foreign = [], []
            with contextlib.suppress(FileNotFoundError), folders.opened(path) as at:
                for name in sorted(os.listdir(at), key=os.fsencode):
                    is_folder = _type_of(name, at) == stat.S_IFDIR
                    if self.runs.fullmatch(name) and is_folder:
                        runs.append(name)
                    elif name not in (_LOCK, _PUBLISHING, _MARKER):
                        foreign.append(name)
            return runs, foreign

        return persistently(look, path=self.path)


def _type_of(name: str, descriptor: int) -> int:
    """Returns the type of a file (see `stat.S_IFMT`); 0 for no file."""
    try:
        return stat.S_IFMT(os.lstat(name, dir_fd=descriptor).st_mode)
    except FileNotFoundError:
        return 0


def _not_ours(path: str, why: str) -> TargetError:
    """Returns the error about a work folder that is not ours, or not as we left it."""
    return TargetError(
        f"The work folder beside the output must be one that beam-tfrecord has made, "
        f"readable and writable, with no links in it; {path!r} {why}. Move it away, or "
        f"choose another output."
    )


def _mark(descriptor: int) -> None:
    """Puts the marker into a folder that may have it already."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with contextlib.suppress(FileExistsError):
        marker = os.open(_MARKER, flags, 0o666, dir_fd=descriptor)
        with os.fdopen(marker, "wb", buffering=0) as file:
            file.write(_ABOUT)
