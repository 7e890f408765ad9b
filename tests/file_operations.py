"""Every file operation of the program, one by one: counted, stopped at, or failed.

What changes files goes through a few functions of `os`, through files opened for
writing, and through `renameat2`; within `watched` each call of them is an operation
that is announced to a hook before it is done. Half of a write is an operation too.
"""

import builtins
import contextlib
import io
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from transforms import files

__all__ = ["Hook", "watched"]

# (what, path): called before the operation; may raise, or not return.
Hook = Callable[[str, str], None]

_CALLS = (
    *("replace", "rename", "unlink", "remove", "rmdir", "mkdir", "link", "fsync"),
    *("truncate", "symlink"),
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
            if not self.closed:
                hook("close", str(self.name))
            super().close()

    def opening(file: Any, mode: str = "r", *rest: Any, **options: Any) -> Any:
        if not set(mode) & set("wxa+"):
            return plain_open(file, mode, *rest, **options)
        hook("open", str(file))
        if options.get("buffering") == 0 and "b" in mode:
            return Watched(file, mode.replace("b", ""))
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
        plain = files._rename_with
        patch.setattr(files, "_rename_with", announced("renameat2", plain))
        yield
