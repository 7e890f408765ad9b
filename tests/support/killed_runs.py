"""Runs in a process of their own that die or fail at one of their file operations."""

import hashlib
import json
import os
import pathlib
import signal
from collections.abc import Callable

from tests.support.direct_run import COMMITTED, forked
from tests.support.file_operations import watched
from tests.support.outputs import contents

Run = Callable[[], object]


def operations(run: Run) -> list[str]:
    """Returns the operations of an undisturbed run, in their order."""
    read_end, write_end = os.pipe()

    def counted() -> None:
        seen: list[str] = []
        with watched(lambda what, path: seen.append(what)):
            run()
        os.write(write_end, json.dumps(seen).encode())

    assert forked(counted) == COMMITTED
    os.close(write_end)
    with open(read_end, "rb") as pipe:
        return list(json.load(pipe))


def at_operation(
    run: Run, number: int, act: Callable[[], None], *, times: int = 1
) -> int:
    """Runs with an act at the number-th operation (and the next ones); its status."""

    def disturbed() -> None:
        seen = 0

        def hook(what: str, path: str) -> None:
            nonlocal seen
            seen += 1
            if number < seen <= number + times:
                act()

        with watched(hook):
            run()

    return forked(disturbed)


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def failing(code: int) -> Callable[[], None]:
    def fail() -> None:
        raise OSError(code, os.strerror(code))

    return fail


def whole_dataset(out: pathlib.Path) -> dict[str, str] | None:
    """Returns the digests of the files that a manifest names; None without one.

    A manifest whose files are not all there, or not as it says, is an error.
    """
    try:
        manifest = json.loads((out / "manifest.json").read_text())
    except FileNotFoundError:
        return None
    dataset = manifest["dataset"]
    shards = [shard for split in dataset["splits"] for shard in split["shards"]]
    beside = (*dataset["files"], *manifest["derived"])
    named = {facts["file"]: facts["bytes"] for facts in (*shards, *beside)}
    files = contents(out)
    assert {name: len(data) for name, data in files.items()} == named
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    return {**digests, "": dataset["digest"]}
