"""The program as a user runs it on a bucket, and what must hold of what it leaves."""

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import google_crc32c

from beam_pipeline.commands.clean import leftovers, remove
from tests.storage.conftest import Server
from tests.storage.fault_proxy import FaultProxy, Rule
from tests.support.outputs import contents
from tests.support.segments import program
from transforms.core.manifest import MANIFEST_NAME, Manifest
from transforms.publishing.bucket import BucketTarget

__all__ = [
    "Done",
    "Program",
    "assert_same",
    "assert_whole",
    "manifest_at",
    "until",
]

_ROOT = Path(__file__).parents[2]
_RUN_SECONDS = 600
_WAIT_SECONDS = 60
_FOREVER = 600


@dataclasses.dataclass(frozen=True, slots=True)
class Done:
    """How a run of the program has ended."""

    code: int
    out: str
    err: str


class HasEnvironment(Protocol):
    """A server that says how a program reaches it."""

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables of the program's environment."""


class Program:
    """The program, with what its environment says of a server.

    Attributes:
      environment: of the program.
    """

    def __init__(
        self,
        server: HasEnvironment,
        folder: Path,
        *,
        by: Sequence[str] = (),
        **environment: str,
    ) -> None:
        """Makes it.

        Args:
          server: that it finds.
          folder: where it runs.
          by: a command that is to start it, as `nsenter` with its options.
          environment: more variables.
        """
        self._folder = folder
        self._by = by
        # A user's accounts are taken off by the fixtures; what is left is the server.
        self.environment = {**os.environ, **server.environment, **environment}
        self.environment["PYTHONPATH"] = os.pathsep.join(
            [*filter(None, [environment.get("PYTHONPATH")]), str(_ROOT)]
        )

    def run(self, *arguments: object, code: int = 0) -> Done:
        """Runs it to its end, which must be this exit code without a traceback."""
        done = self.ended(self.started(*arguments))
        assert done.code == code, (
            f"{arguments}: {done.code}, {done.out}{done.err[-1500:]}"
        )
        assert "Traceback" not in done.err
        return done

    @contextlib.contextmanager
    def running(self, *arguments: object) -> Iterator["subprocess.Popen[str]"]:
        """Gives it while it runs; on leaving it and all its processes are killed."""
        process = self.started(*arguments)
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()

    def ended(self, process: "subprocess.Popen[str]") -> Done:
        """Waits for the end of a run."""
        out, err = process.communicate(timeout=_RUN_SECONDS)
        return Done(process.returncode, out, err)

    def started(self, *arguments: object) -> "subprocess.Popen[str]":
        """Starts it; `ended` waits for its end."""
        return subprocess.Popen(
            [*self._by, *program(*arguments)],
            cwd=self._folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )


# Python loads a module of this name, if there is one, before all others.
_HOST = """import os, socket
socket.gethostname = lambda: os.environ["HOST_OF_TEST"]
"""
_PUTS = ("PUT", "POST")


def program_on(
    server: HasEnvironment, folder: Path, host: str, **environment: str
) -> Program:
    """The program on a machine of another name, in a folder that is made for it."""
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(_HOST)
    named = {"PYTHONPATH": str(folder), "HOST_OF_TEST": host}
    return Program(server, folder, **named, **environment)


def kill(process: "subprocess.Popen[str]") -> None:
    """Kills a run with all its processes."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def stall(proxy: FaultProxy, contains: str, *, skip: int = 0) -> None:
    """Lets what is put wait from the n-th of these objects on."""
    proxy.set(
        Rule(
            "stall",
            seconds=_FOREVER,
            methods=_PUTS,
            contains=contains,
            skip=skip,
            times=None,
        )
    )


def puts(proxy: FaultProxy, contains: str) -> list[str]:
    """What was put under such names, or is being put."""
    return [
        each.target
        for each in proxy.requests
        if each.method in _PUTS and contains in each.target
    ]


def until(what: Callable[[], object]) -> None:
    """Waits until something holds."""
    end = time.monotonic() + _WAIT_SECONDS
    while not what():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


def manifest_at(server: Server, target: str) -> Manifest:
    """The manifest of a dataset in the bucket."""
    return Manifest.from_bytes(server.read(f"{target}/{MANIFEST_NAME}"), target)


def assert_whole(server: Server, target: str, *, alone: bool = True) -> Manifest:
    """The bucket holds a dataset of which every file is what its manifest says.

    Args:
      server: it.
      target: the dataset's folder.
      alone: whether it must hold nothing else under the names of the target and its
        work folder.
    """
    manifest = manifest_at(server, target)
    shards = [shard for split in manifest.splits for shard in split.shards]
    for facts in (*shards, *manifest.beside):
        data = server.read(manifest.path(target, facts.file))
        assert (len(data), google_crc32c.value(data)) == (facts.bytes, facts.crc32c)
    if alone:
        names = [MANIFEST_NAME, *manifest.root_names]
        if manifest.folder:
            names += [f"{manifest.folder}/{n}" for n in manifest.file_names[:-1]]
        assert server.keys(f"{target}/") == sorted(f"{target}/{name}" for name in names)
        assert server.keys(f".{target}.beam-tfrecord") == []
    return manifest


def assert_same(server: Server, target: str, local: Path) -> None:
    """A dataset in the bucket has the digest and the bytes of a local one."""
    expected = Manifest.from_bytes((local / MANIFEST_NAME).read_bytes())
    manifest = assert_whole(server, target)
    assert manifest.digest == expected.digest
    assert read_files(server, manifest, target) == contents(local)


def remove_left(server: Server, target: str) -> None:
    """Removes what runs that have ended have left, however young it is."""
    there = BucketTarget(f"{server.url}/{target}")
    for left in leftovers(there):
        assert remove(there, left, older_than=0.0)


def read_files(server: Server, manifest: Manifest, target: str) -> Mapping[str, bytes]:
    """The files of a dataset by name, without its manifest."""
    names = manifest.file_names[:-1]
    return {name: server.read(manifest.path(target, name)) for name in names}


def files_of(target: Mapping[str, bytes]) -> Mapping[str, bytes]:
    """The same of all files at a target, whose manifest names their folder."""
    folder = json.loads(target["manifest.json"])["run"]["folder"]
    return {
        name.removeprefix(f"{folder}/"): data
        for name, data in target.items()
        if name.startswith(f"{folder}/")
    }
