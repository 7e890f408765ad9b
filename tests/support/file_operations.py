"""Announces the program's file operations, or makes one fail.

What changes files goes through a few functions of `os`, through files opened for
writing, and through `renameat2`; within `watched` each call of them is an operation
that is announced to a hook before it is done. Half of a write is an operation too.

`failing_once` makes one of these calls, or of those that only read, fail once.
"""

import builtins
import contextlib
import io
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from transforms.storage import folders

# (what, path): called before the operation; may raise, or not return.
Hook = Callable[[str, str], None]

_CALLS = (
    *("replace", "rename", "unlink", "remove", "rmdir", "mkdir", "link", "fsync"),
    *("truncate", "symlink"),
)
_LOOKS = ("listdir", "lstat", "stat", "scandir")
# Operations that may have succeeded although they reported a failure.
CHANGES = frozenset(
    ("replace", "rename", "unlink", "rmdir", "mkdir", "_rename_with_flags"),
)


@contextlib.contextmanager
def watched(hook: Hook) -> Iterator[None]:
    """Announces every file operation to the hook while it is open."""
    plain_open = builtins.open

    class Watched(io.FileIO):
        """A file that is open for writing; each write is announced, whole and half."""

        def write(self, data: Any, /) -> int:
            hook("write", str(self.name))
            view = memoryview(data).cast("B")
            half = len(view) // 2
            done = 0
            if half:
                done = super().write(view[:half])
                hook("half write", str(self.name))
            return done + super().write(view[done:])

        def close(self) -> None:
            # A close that fails frees the descriptor anyway.
            try:
                if not self.closed:
                    hook("close", str(self.name))
            finally:
                super().close()

    def opening(file: Any, mode: str = "r", *rest: Any, **options: Any) -> Any:
        if not set(mode) & set("wxa+"):
            return plain_open(file, mode, *rest, **options)
        hook("open", str(file))
        if options.get("buffering") == 0 and "b" in mode:
            return Watched(file, mode.replace("b", ""), opener=options.get("opener"))
        return plain_open(file, mode, *rest, **options)

    def announced(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def calling(*arguments: Any, **options: Any) -> Any:
            hook(name, " -> ".join(str(each) for each in arguments[:2]))
            return call(*arguments, **options)

        return calling

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(builtins, "open", opening)
        patch.setattr(io, "open", opening)
        for name in _CALLS:
            patch.setattr(os, name, announced(name, getattr(os, name)))
        plain = folders._rename_with_flags
        patch.setattr(folders, "_rename_with_flags", announced("renameat2", plain))
        yield


@contextlib.contextmanager
def failing_once(number: int, code: int, *, lost: bool = False) -> Iterator[list[str]]:
    """Makes the number-th call fail, from 0 on; yields the calls, as they are made.

    Args:
      number: of the call.
      code: of the error.
      lost: whether a call that changes something succeeds although it fails.
    """
    calls: list[str] = []

    def failing(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def calling(*arguments: Any, **options: Any) -> Any:
            calls.append(name)
            fails = len(calls) == number + 1
            if fails and lost and name in CHANGES:
                call(*arguments, **options)
            if fails:
                raise OSError(code, os.strerror(code), str(arguments[0]))
            return call(*arguments, **options)

        return calling

    places: list[tuple[Any, str]] = [
        *((os, name) for name in (*_CALLS, *_LOOKS, "open", "read", "pread")),
        *((folders, "_rename_with_flags"), (builtins, "open")),
    ]
    with pytest.MonkeyPatch.context() as patch:
        for place, name in places:
            patch.setattr(place, name, failing(name, getattr(place, name)))
        yield calls
