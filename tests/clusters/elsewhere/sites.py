"""A place with workers that share nothing with the submitter but a store.

submitter, store, job server of one run        this machine
pool                                           a machine with the program's image
Flink, its job server; Spark                   machines beside it, on its network
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest
from clusters.notes import cache_folder

from tests.clusters.elsewhere import images
from tests.clusters.elsewhere.containers import (
    IMAGE,
    Container,
    containers,
    image,
)
from tests.clusters.elsewhere.machines import Machine, Network, stop
from tests.clusters.runs import ROOT
from tests.storage.conftest import Server
from tests.storage.program import Program

__all__ = ["POOL", "Site", "served", "until"]

Folder = pathlib.Path

POOL = "localhost:50000"
"""The pool, as engines see it, which are on its network."""
_READY_SECONDS = 120


@dataclasses.dataclass
class Site:
    """Machines, a store that all of them reach, and what runs on them.

    Attributes:
      folder: of logs and of the submitter's files, on this machine.
      image: folder of the program's image.
      hidden: folders of this machine that are empty on all others.
      workers: the machine of the pool.
      network: between this machine and the others.
      side: folder of the submitter with what belongs to jobs.
      store: with a bucket.
    """

    folder: Folder
    image: Folder
    hidden: Sequence[Folder]
    workers: Machine
    network: Network
    side: Folder
    store: Server
    _machines: list[Machine] = dataclasses.field(default_factory=list)
    _logs: int = 0

    def submitter(self, *, within: bool = False, **environment: str) -> Program:
        """Returns the program on this machine, in a folder, HOME and TMPDIR of its own.

        Args:
          within: whether its engine is on the workers' network, with it.
          environment: more variables; an empty one is left out.
        """
        home = self.folder / "submitter"
        (home / "tmp").mkdir(parents=True, exist_ok=True)
        places = {
            "HOME": str(home),
            "TMPDIR": str(home / "tmp"),
            "XDG_CACHE_HOME": str(cache_folder().parent),
        }
        # It ends when this process does, as machines do.
        by = ["setpriv", "--pdeathsig", "KILL"]
        if within:
            by += ["nsenter", f"--net=/proc/{self.workers.pid}/ns/net"]
        made = Program(self.store, home, by=by, **places, **environment)
        made.environment = {k: v for k, v in made.environment.items() if v}
        return made

    def machine(self, name: str, given: Mapping[str, Folder]) -> Machine:
        """Starts another machine on the workers' network."""
        made = Machine(name, hidden=self.hidden, given=given, beside=self.workers)
        self._machines.append(made)
        # The name of the service in Kubernetes.
        made.shell(f"echo '{self.network.there} flink' | cat /etc/hosts - >/tmp/hosts")
        made.shell("mount --bind /tmp/hosts /etc/hosts")
        return made

    def addresses(self) -> dict[str, str]:
        """Returns the fields of a pod that Kubernetes fills in."""
        return {"status.podIP": self.network.there}

    def start(
        self,
        machine: Machine,
        container: Container,
        entry: Sequence[str] = (),
        environment: Mapping[str, str] = {},
    ) -> "subprocess.Popen[bytes]":
        """Starts a container's program on a machine.

        Args:
          machine: that has its image.
          container: of the examples.
          entry: the image's entry point.
          environment: instead of the store's variables that the container takes; an
            empty one is left out.
        """
        command = [*(container.command or entry), *container.arguments]
        of_store = self.store.environment if "store" in container.sources else {}
        variables = {
            "PATH": images.PATH,
            "HOME": "/tmp/home",
            **of_store,
            **container.environment,
            **environment,
        }
        given = {name: value for name, value in variables.items() if value}
        return machine.start(command, given, self.log(machine.name))

    def logs(self) -> str:
        """Returns the end of each log, for a test that fails."""
        texts = {
            path: path.read_text(errors="replace") for path in self.folder.glob("*.log")
        }
        return "\n".join(f"{path.name}: {text[-1500:]}" for path, text in texts.items())

    @property
    def own_folders(self) -> list[Folder]:
        """What is the submitter's alone."""
        return [self.folder, ROOT, Folder(sys.prefix)]

    def log(self, name: str) -> Folder:
        """Returns the file for what a program says."""
        self._logs += 1
        return self.folder / f"{name}-{self._logs}.log"

    def start_pool(
        self,
        at: str = POOL,
        by: Sequence[str] = (),
        machine: Machine | None = None,
        environment: Mapping[str, str] = {},
    ) -> "subprocess.Popen[bytes]":
        """Starts the pool of the examples; `stop` ends it.

        Args:
          at: its address, if it is another.
          by: a command that is to start it.
          machine: another one than the workers'.
          environment: instead of the store's variables; an empty one is left out.
        """
        said = image(IMAGE)
        pool = containers("flink.yaml", self.addresses())["pool"]
        words = pool.arguments or said.arguments
        ported = [each.replace(port_of(POOL), port_of(at)) for each in words]
        pool = dataclasses.replace(pool, arguments=tuple(ported))
        variables = {**said.environment, **environment}
        process = self.start(
            machine or self.workers, pool, [*by, *said.entry_point], variables
        )
        self.until_listening(at, process)
        return process

    @contextlib.contextmanager
    def running_pool(
        self,
        at: str = POOL,
        by: Sequence[str] = (),
        machine: Machine | None = None,
        environment: Mapping[str, str] = {},
    ) -> "Iterator[subprocess.Popen[bytes]]":
        """Keeps a pool meanwhile, killed or not; see `start_pool`."""
        process = self.start_pool(at, by, machine, environment)
        try:
            yield process
        finally:
            stop(process)

    def until_listening(self, address: str, process: "subprocess.Popen[bytes]") -> None:
        """Waits until a program listens at a port of the workers' network."""
        port = f":{int(port_of(address)):04X} "
        until(
            lambda: any(
                port in line and " 0A " in line
                for line in self.workers.shell("cat /proc/net/tcp*").splitlines()
            ),
            process,
            f"nothing listens at {address}; see {self.folder}",
        )

    def end(self) -> None:
        """Ends the machines, and with them all that runs there."""
        for machine in reversed(self._machines):
            machine.end()
        self._machines.clear()


def port_of(address: str) -> str:
    """Returns the port of an address."""
    return address.rpartition(":")[2]


@contextlib.contextmanager
def served(store: str, folder: Folder, host: str) -> Iterator[dict[str, Any]]:
    """Gives the state of an object store on this machine; see `scripts/storage`.

    It ends when this process does, as machines do.
    """
    if not (os.environ.get("GO") or shutil.which("go")):
        pytest.skip(f"the server of {store} is built by Go, which is not on the PATH")
    up = [sys.executable, str(ROOT / "scripts" / "storage"), store, "up", str(folder)]
    process = subprocess.Popen(
        [
            *("unshare", "--pid", "--mount-proc", "--fork", "--kill-child"),
            *("sh", "-c", '"$@" && read -r _', "sh", *up, "--host", host),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())
        process.kill()


def until(
    holds: Callable[[], bool], process: "subprocess.Popen[bytes]", what: str
) -> None:
    """Waits until something holds, while a program runs."""
    end = time.monotonic() + _READY_SECONDS
    while not holds():
        assert process.poll() is None, f"the program has ended: {what}"
        assert time.monotonic() < end, what
        time.sleep(0.2)
