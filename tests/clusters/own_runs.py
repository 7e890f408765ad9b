"""Pipelines of one's own on engines, and task managers that are lost and replaced."""

import contextlib
import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import apache_beam as beam
import pytest
from clusters import notes as cluster
from clusters.notes import Cluster, Process

from beam_pipeline.engines.presets import ENGINES
from beam_pipeline.engines.submit import AddStages, RunHooks, run_on_engine
from beam_pipeline.own_pipelines.write_dataset import WriteDataset
from beam_pipeline.settings.spec import make_spec
from tests.clusters.runs import NAME, flags_for
from transforms.work.store import Store
from transforms.work.worker_check import Reports

Folder = pathlib.Path

# A loaded machine starts a task manager in a minute.
_READY_SECONDS = 600
_LOOK_SECONDS = 0.2


def run(
    engine: str,
    add: AddStages,
    folder: Folder,
    request: pytest.FixtureRequest,
    *beam_flags: str,
) -> None:
    """Runs a pipeline to its end on an engine, or on the runner inside Beam."""
    if engine == "local":
        options = beam.options.pipeline_options.PipelineOptions([*beam_flags])
        with beam.Pipeline(runner="FnApiRunner", options=options) as pipeline:
            add(pipeline)
        return
    _, _, _, *rest = flags_for(engine, request)
    given = {
        "source": "rows",
        "output": str(folder / "out"),
        "runner": engine,
        "workers": 4,
    }
    work = folder / f"engine-{engine}"
    hooks = RunHooks(beam_flags=[*rest[1:], *beam_flags])
    reports = Reports(str(work / "reports"), str(work / "attempts"))
    run_on_engine(ENGINES[engine], make_spec(given), add, hooks, reports)


def asked(cluster: Cluster, path: str) -> Any:
    """Returns what the pages of a cluster say."""
    with urllib.request.urlopen(cluster.web + path) as answer:
        return json.load(answer)


def until(holds: Callable[[], bool], what: str) -> None:
    """Waits for something, ten minutes at most."""
    end = time.monotonic() + _READY_SECONDS
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(_LOOK_SECONDS)


@contextlib.contextmanager
def replacing_losses() -> Iterator[None]:
    """Starts a task manager for each that is gone, as a cluster's supervisor does.

    Before and after it the tests' Flink has all of its task managers.
    """
    ended = threading.Event()

    def replace() -> None:
        while not ended.wait(_LOOK_SECONDS):
            _replace_gone()

    _replace_gone()
    until(_all_work, "task managers were started, and Flink does not have them")
    thread = threading.Thread(target=replace, name="replacing task managers")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        _replace_gone()
        until(_all_work, "a lost task manager was replaced, and Flink has fewer")


def _noted() -> Cluster:
    found = cluster.read_cluster("flink", NAME)
    assert found is not None
    return found


def _all_work() -> bool:
    found = _noted()
    return bool(asked(found, "/overview")["taskmanagers"] >= found.workers)


def _replace_gone() -> None:
    found = _noted()
    processes = [
        each if each.is_alive else _start(found, each.role) for each in found.processes
    ]
    if processes != [*found.processes]:
        # The command that stops the cluster goes by this note.
        cluster.write_cluster(dataclasses.replace(found, processes=tuple(processes)))


def _start(found: Cluster, role: str) -> Process:
    """Starts a process of a role again, as the job manager was started."""
    assert role.startswith("taskmanager"), f"the {role} of the tests' Flink is gone"
    variables = Folder(f"/proc/{found.processes[0].pid}/environ").read_bytes()
    pairs = (each.partition("=")[::2] for each in os.fsdecode(variables).split("\0"))
    environment = {name: value for name, value in pairs if name}
    home = Folder(environment["FLINK_HOME"])
    log = cluster.cluster_folder("flink", NAME) / "logs" / f"{role}-again.out"
    with log.open("ab") as output:
        child = subprocess.Popen(
            [home / "bin" / "taskmanager.sh", "start-foreground"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
    started = cluster.started_at(child.pid)
    assert started is not None
    return Process(child.pid, started, role)


@dataclasses.dataclass(frozen=True)
class Loss:
    """The loss of a worker's task manager at one point of its work, once.

    Attributes:
      folder: of its notes, on this machine.
      name: of the notes.
      stays: whether the worker then waits, stopped, until `resume`, and goes on as if
        it had not noticed; else it ends.
      others: processes that are lost at the same time.
    """

    folder: Folder
    name: str
    stays: bool = False
    others: tuple[int, ...] = ()

    def before(self, place: Any, name: str) -> None:
        """Lets it happen when this worker next calls a function.

        A worker that has stayed tells what became of the call.
        """
        real = getattr(place, name)
        if getattr(real, "loses", ""):
            return

        def call(*arguments: Any, **options: Any) -> Any:
            if not self.happen():
                return real(*arguments, **options)
            try:
                result = real(*arguments, **options)
            except BaseException as error:
                self._tell(f"{type(error).__name__}: {error}")
                raise
            self._tell("done")
            return result

        call.loses = True  # type: ignore[attr-defined]
        setattr(place, name, call)

    def happen(self) -> bool:
        """Kills the parent of this worker, and stops or ends it.

        Returns: True after a worker was stopped; False where it had happened before.
        """
        try:
            with (self.folder / self.name).open("x") as note:
                note.write(str(os.getpid()))
        except FileExistsError:
            return False
        parent = os.getppid()
        command = Folder(f"/proc/{parent}/cmdline").read_bytes()
        assert b"TaskManagerRunner" in command, command
        if self.stays:
            # A worker of ours ends with its task manager; one in a container may not.
            os.getppid = lambda: parent
        for pid in {parent, *self.others}:
            os.kill(pid, signal.SIGKILL)
        if not self.stays:
            os._exit(1)
        # Of the process, any thread may take a signal, and this one would go on for
        # a moment. The whole process stops all the same.
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
        return True

    def resume(self) -> str:
        """Lets the worker that has stayed go on; returns what became of its call."""
        os.kill(int((self.folder / self.name).read_text()), signal.SIGCONT)
        until(self._told.exists, f"the worker at {self.name!r} tells nothing")
        return self._told.read_text()

    def end(self) -> None:
        """Ends the worker that has stayed, if there is one."""
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            pid = int((self.folder / self.name).read_text())
            if os.fsencode(self.folder) in Folder(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)

    @property
    def _told(self) -> Folder:
        return self.folder / f"{self.name}-told"

    def _tell(self, what: str) -> None:
        partial = self.folder / f"{self.name}-{os.getpid()}"
        partial.write_text(what)
        partial.rename(self._told)


def task_managers() -> tuple[int, ...]:
    """Returns the processes of the tests' Flink that run tasks."""
    roles = [each for each in _noted().processes if each.role.startswith("task")]
    return tuple(each.pid for each in roles)


ROWS, _PARTS = 200_000, 40


def scored(output: Folder, *, loss: Loss | None = None, **settings: Any) -> AddStages:
    """The first example: generated rows, a score, a whole dataset.

    Args:
      output: the dataset's folder.
      loss: of a worker, when it stores its rows.
      settings: more of `WriteDataset`.
    """

    def make(part: int) -> Iterator[dict[str, Any]]:
        for number in range(part, ROWS, _PARTS):
            yield {
                "id": number,
                "name": f"name {number * 7919 % 1009}",
                "share": None if number % 17 == 0 else number / 8,
                "species": f"species {number % 5}",
            }

    def score(row: dict[str, Any]) -> dict[str, Any]:
        if loss is not None:
            loss.before(Store, "put_rows")
        return {**row, "score": row["id"] % 100 / 100}

    def add(pipeline: beam.Pipeline) -> None:
        (
            pipeline
            | "Parts" >> beam.Create(range(_PARTS))
            | "Make" >> beam.FlatMap(make)
            | "Score" >> beam.Map(score)
            | "Write"
            >> WriteDataset(
                output,
                label="species",
                splits={"train": 0.9, "test": 0.1},
                key="id",
                shared_output=True,
                **settings,
            )
        )

    return add
