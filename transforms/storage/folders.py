"""Names, folders and locks on this machine: changes of them, each with retries.

Reads may simply be repeated. Changes may not: a network file system may have made the
change and lost the answer. A repeated rename would then fail because its source is
gone, and a repeated exchange would undo the first. So each change is confirmed by the
identity (device and inode) of what it moves or removes.

A dataset is published by one rename of its folder: one that replaces nothing, or one
that exchanges old and new (`renameat2(2)` with RENAME_NOREPLACE and RENAME_EXCHANGE).
"""

import contextlib
import ctypes
import errno
import fcntl
import functools
import os
import stat
import sys
from collections.abc import Callable, Iterator
from typing import IO

from transforms.errors import BusyError, CommitError, TargetError
from transforms.storage.retry import persistently

_AT_FDCWD = -100
_FOLDER_ITSELF = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
NO_FOLDER = {errno.ENOTDIR, errno.ELOOP, errno.EMLINK}
"""What systems say when a link, or what is no folder, is opened as one."""
_RENAME_NOREPLACE = 1
_RENAME_EXCHANGE = 2
# How renameat2 says that this kernel or file system has no such rename.
_NOT_SUPPORTED = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP}

_libc = ctypes.CDLL(None, use_errno=True)


def status_of(path: str, *, followed: bool = False) -> os.stat_result | None:
    """Returns the status of a name; None where it is absent or out of reach.

    Args:
      path: of anything.
      followed: whether a link counts as its target.

    Raises:
      StorageError: it could not be looked at, though it was tried again.
    """
    look = functools.partial(os.stat if followed else os.lstat, path)
    try:
        return persistently(look, path=path)
    except OSError:
        return None


@contextlib.contextmanager
def opened(path: str, *, folder: int | None = None) -> Iterator[int]:
    """Opens a folder, but not a link to one; yields a descriptor.

    Args:
      path: of the folder; only its last name may not be a link.
      folder: a descriptor of the folder that a relative path starts from.

    Raises:
      OSError: it cannot be opened; with an errno of `NO_FOLDER`, it is a link, or no
        folder.
    """
    work = functools.partial(os.open, path, _FOLDER_ITSELF, dir_fd=folder)
    descriptor = persistently(work, path=path)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def opened_below(path: str, root: str) -> Iterator[int]:
    """Opens a folder, and follows no link on the way there from `root`.

    Raises: see `opened`.
    """
    first, *others = os.path.relpath(path, root).split(os.sep)
    with contextlib.ExitStack() as stack:
        descriptor = stack.enter_context(opened(os.path.join(root, first)))
        for name in others:
            descriptor = stack.enter_context(opened(name, folder=descriptor))
        yield descriptor


def is_same(status: os.stat_result, path: str, *, folder: int | None = None) -> bool:
    """Whether a file has this name now; raises OSError where that is not known.

    Args:
      status: of the file.
      path: the name.
      folder: see `opened`.
    """
    try:
        return os.path.samestat(status, os.lstat(path, dir_fd=folder))
    except (FileNotFoundError, NotADirectoryError):
        return False


def _once_only(
    change: Callable[[], object],
    is_done: Callable[[], bool],
    *,
    path: str,
) -> None:
    """Makes a change exactly once, with retries.

    Args:
      change: one step. When it fails, it was not made, or its answer was lost.
      is_done: looks whether it was made; raises OSError where that is not known.
      path: see `retry.persistently`.

    Raises:
      OSError, StorageError: it was not made, or that is not known.
    """
    tried = False

    def once() -> None:
        nonlocal tried
        # The look after the last try may have failed too; so look before this one.
        if tried and is_done():
            return
        tried = True
        try:
            change()
        except OSError:
            if not is_done():
                raise

    persistently(once, path=path)


def remove(
    by: Callable[..., None], path: str, *, folder: int | None = None, shown: str = ""
) -> None:
    """Removes exactly what has a name now: what has it next may be somebody else's.

    Args:
      by: `os.unlink` or `os.rmdir`.
      path: the name.
      folder: see `opened`.
      shown: its path, for messages; by default `path`.
    """
    shown = shown or path
    before = persistently(lambda: os.lstat(path, dir_fd=folder), path=shown)
    _once_only(
        lambda: by(path, dir_fd=folder),
        lambda: not is_same(before, path, folder=folder),
        path=shown,
    )


def make(path: str) -> None:
    """Makes a folder and those above it; it may exist.

    Raises:
      OSError: it cannot be made, or one above it has gone meanwhile.
    """
    persistently(lambda: os.makedirs(path, exist_ok=True), path=path)


def remove_empty(path: str) -> bool:
    """Removes exactly this folder; it may be gone already.

    Returns False, with nothing changed, where something is in it or it is no folder.
    """
    try:
        remove(os.rmdir, path)
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise
        return False
    return True


def rename(source: str, target: str) -> None:
    """Renames a file on its file system, replacing the target; with retries.

    Raises:
      OSError: it could not be done; both are as they were.
      StorageError: nor could it when it was tried again.
    """
    _move(lambda: os.replace(source, target), source, target)


def _move(change: Callable[[], None], source: str, target: str) -> None:
    """Makes a change after which a file or folder has another name, once."""
    before = persistently(lambda: os.lstat(source), path=source)
    _once_only(change, lambda: is_same(before, target), path=target)


def move_new(source: str, target: str) -> None:
    """Renames a file or folder to a name that must not exist (or be an empty folder).

    Raises:
      CommitError: the target has appeared meanwhile; nothing has changed.
    """
    moved = status_of(source)
    # A folder replaces nothing but an empty one.
    is_safe = moved is not None and stat.S_ISDIR(moved.st_mode)

    def change() -> None:
        if is_safe or not _rename_with_flags(source, target, _RENAME_NOREPLACE):
            os.rename(source, target)

    try:
        _move(change, source, target)
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
            raise CommitError(
                f"The target must be as it was when the run started, but {target!r} "
                f"has been made since. Nothing was written there; run again."
            ) from error
        raise


def exchange(source: str, target: str) -> bool:
    """Swaps two folders in one step; afterwards `source` is the old target.

    Returns False, with nothing changed, where the system has no such rename.
    """
    new = persistently(lambda: os.lstat(source), path=source)
    old = persistently(lambda: os.lstat(target), path=target)
    supported = True

    def change() -> None:
        nonlocal supported
        supported = _rename_with_flags(source, target, _RENAME_EXCHANGE)

    def is_done() -> bool:
        return is_same(new, target) and is_same(old, source)

    _once_only(change, is_done, path=target)
    return supported


def _rename_with_flags(source: str, target: str, flags: int) -> bool:
    """Whether a rename with flags was done; False where the system has none such."""
    if sys.platform != "linux" or not hasattr(_libc, "renameat2"):
        return False
    status = _libc.renameat2(
        _AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), flags
    )
    if status == 0:
        return True
    code = ctypes.get_errno()
    if code in _NOT_SUPPORTED:
        return False
    raise OSError(code, os.strerror(code), target)


@contextlib.contextmanager
def exclusive_lock(path: str) -> Iterator[None]:
    """Holds a lock that the operating system drops when the process dies.

    Raises:
      BusyError: another process holds it.
      TargetError: its name is that of something else.
    """
    while True:
        with persistently(
            lambda: open(path, "ab", opener=_open_lock), path=path
        ) as file:
            persistently(functools.partial(_take_lock, file, path), path=path)
            held = functools.partial(is_same, os.fstat(file.fileno()), path)
            if persistently(held, path=path):
                yield
                return
        # The last holder has removed the file meanwhile. A lock on a removed file
        # protects nothing: another run would make and lock a new one.


def _open_lock(path: str, flags: int) -> int:
    """Opens a lock, but no link (it is never the file) and no pipe (it might block)."""
    flags |= os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        return os.open(path, flags, 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK, errno.ENXIO, errno.EISDIR):
            raise TargetError(
                f"The lock of a target must be a regular file; {path!r} is a link or "
                f"something else. Remove it, and run again."
            ) from error
        raise


def _take_lock(file: IO[bytes], path: str) -> None:
    """Locks the file for this process, without waiting; BusyError if another has it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise BusyError(
            f"Only one run may write to a target at a time; another holds "
            f"{path!r}. Wait for it, or write to another output."
        ) from error
