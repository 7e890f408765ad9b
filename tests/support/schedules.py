"""Runs on one target in an object store, of which one at a time does one request.

A step is all that a run does up to its next request to the store. `explore` tries every
order of the steps of a few runs. A run is decided by the answers that it has got, so
what follows from a state, that is from the objects and from these answers, is tried
once. `Writers` draws orders of whole conversions by a seed, as in "A Randomized
Scheduler with Probabilistic Guarantees of Finding Bugs" (Burckhardt et al., 2010): the
run that is first in a random order goes on, and now and then becomes the last.
"""

import contextlib
import dataclasses
import itertools
import math
import random
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import google_crc32c
import pyarrow as pa
import pytest

from beam_pipeline.commands import clean
from beam_pipeline.running.convert import open_work_folder
from tests.support.memory_store import MemoryStore
from transforms.core.manifest import MANIFEST_NAME, Manifest
from transforms.core.model import Fact, PlaceFacts, ReadFacts, ShardFile
from transforms.core.placing.sharding import ShardCounts, Sharding
from transforms.core.placing.splitting import SplitRule
from transforms.core.schema import Feature, Kind, Schema
from transforms.core.statistics import Statistics
from transforms.core.tfrecord.index import index_file
from transforms.core.vocabulary import put_classes
from transforms.errors import (
    CommitError,
    ConservationError,
    StorageError,
    TargetError,
)
from transforms.publishing import bucket, target
from transforms.shards.shard_job import ShardLayout
from transforms.sidecars import tfds
from transforms.stages.commit import commit_dataset
from transforms.stages.job_plan import JobPlan, Publication
from transforms.storage import retry
from transforms.storage.files import storage
from transforms.storage.row_spool import RowSpool
from transforms.work.receipts import FinishedShards, ShardDone, keep_shards
from transforms.work.store import Store

_JOBS = 4
_WAIT_SECONDS = 60
# Steps of one writer, about.
_STEPS = 70
_RUN = threading.local()


class Killed(BaseException):
    """The process has ended, so it does nothing more."""


@dataclasses.dataclass
class _Run:
    """A process that works on the target.

    Attributes:
      number: of it.
      work: what it does; returns what has become of it.
      history: a digest of the answers that it has got.
      ends_at: the step before which it is killed or, where `fails`, fails.
    """

    number: int
    work: Callable[[], str]
    history: int = 0
    steps: int = 0
    turns: int = 0
    words: int = 0
    ends_at: int | None = None
    fails: bool = False
    killed: bool = False
    outcome: str = ""
    error: BaseException | None = None
    go: threading.Semaphore = dataclasses.field(
        default_factory=lambda: threading.Semaphore(0)
    )
    parked: threading.Semaphore = dataclasses.field(
        default_factory=lambda: threading.Semaphore(0)
    )

    more: Callable[[], bool] = lambda: False

    def wait(self) -> None:
        # To change threads takes longer than a step.
        if not self.more():
            self.parked.release()
            self.go.acquire()
        self.steps += 1
        if self.killed:
            raise Killed
        if self.ends_at is not None and self.steps >= self.ends_at:
            if self.fails:
                self.ends_at = None
                raise StorageError("It fails here.")
            self.killed = True
            raise Killed

    def main(self) -> None:
        _RUN.run = self
        self.go.acquire()
        try:
            self.outcome = "killed" if self.killed else self.work()
        except Killed:
            self.outcome = "killed"
        except (CommitError, TargetError) as error:
            self.outcome, self.error = "refused", error
        except StorageError as error:
            self.outcome, self.error = "failed", error
        except BaseException as error:  # noqa: BLE001 - raised again by `Turns.step`
            self.outcome, self.error = "error", error
        self.parked.release()


@contextlib.contextmanager
def in_turns() -> Iterator[None]:
    """Lets each run wait for its turn before each request, and notes the answers."""
    numbered = retry._numbered

    def in_turn(path: str, work: Callable[[], Any]) -> Any:
        run: _Run | None = getattr(_RUN, "run", None)
        if run is None:
            return numbered(path, work)
        run.wait()
        try:
            answer = numbered(path, work)
        except BaseException as error:
            run.history = hash((run.history, path, type(error).__name__))
            raise
        run.history = hash((run.history, path, _said(answer)))
        return answer

    def new_word() -> str:
        run: _Run | None = getattr(_RUN, "run", None)
        if run is None:
            return "0" * 12
        run.words += 1
        return f"{run.number:06x}{run.words:06x}"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(retry, "_numbered", in_turn)
        for module in (bucket, clean):
            patch.setattr(module, "new_word", new_word)
        yield


def _said(answer: Any) -> Any:
    """Returns what an answer of the store says, as something that can be hashed."""
    if isinstance(answer, list):
        return tuple(map(_said, answer))
    if isinstance(answer, pa.fs.FileInfo):
        is_file = answer.type == pa.fs.FileType.File
        return answer.path, is_file and (answer.size, answer.mtime_ns)
    if isinstance(answer, tuple):
        return tuple(map(_said, answer))
    if answer is None or isinstance(answer, bytes | str | int | float):
        return answer
    return repr(answer)


class Turns:
    """Runs that take turns.

    Attributes:
      runs: in the order in which they were given.
    """

    def __init__(self, works: Sequence[Callable[[], str]], first: int = 1) -> None:
        self.runs = [_Run(first + i, work) for i, work in enumerate(works)]
        self._threads = [
            threading.Thread(target=run.main, daemon=True) for run in self.runs
        ]
        for thread in self._threads:
            thread.start()

    @property
    def alive(self) -> list[int]:
        """The runs that have not ended."""
        return [i for i, run in enumerate(self.runs) if not run.outcome]

    @property
    def history(self) -> tuple[tuple[int, int, str], ...]:
        """What decides what the runs do next."""
        return tuple((run.history, run.turns, run.outcome) for run in self.runs)

    @property
    def outcomes(self) -> list[str]:
        return [run.outcome for run in self.runs]

    def step(self, number: int, more: Callable[[], bool] = lambda: False) -> None:
        """Lets one run go on to its next request.

        Args:
          number: of the run.
          more: called there; whether it goes on at once.
        """
        run = self.runs[number]
        failures: list[BaseException] = []

        def goes_on() -> bool:
            try:
                if not more():
                    return False
            except BaseException as error:  # noqa: BLE001 - raised again below
                failures.append(error)
                return False
            run.turns += 1
            return True

        run.more = goes_on
        run.turns += 1
        run.go.release()
        assert run.parked.acquire(timeout=_WAIT_SECONDS), "a run hangs"
        if run.outcome == "error" and run.error is not None:
            failures.append(run.error)
        for failure in failures:
            raise failure

    def finish(self, number: int, steps: int = 1 << 20) -> None:
        """Lets one run go on to its end, or for some steps."""
        left = itertools.count(steps - 1, -1)
        if steps and number in self.alive:
            self.step(number, lambda: next(left) > 0)

    def kill(self) -> None:
        """Ends all runs where they are."""
        for number in self.alive:
            self.runs[number].killed = True
            self.finish(number)
        for thread in self._threads:
            thread.join()


def explore(
    store: MemoryStore,
    begin: Callable[[], Turns],
    look: Callable[[Turns], None],
    *,
    switches: int | None = None,
) -> int:
    """Tries the orders of the steps of some runs; returns how many states there are.

    Args:
      store: that they work on.
      begin: empties it, and starts the runs in the same way each time.
      look: called in each new state.
      switches: how often at most a run waits in the middle for another; None for every
        order.
    """
    # How many switches were left there, at most.
    seen: dict[int, float] = {}
    waiting: list[tuple[tuple[int, ...], float]] = [
        ((), math.inf if switches is None else switches)
    ]
    while waiting:
        order, left = waiting.pop()
        turns = begin()
        for number, same in itertools.groupby(order):
            turns.finish(number, len([*same]))
        taken = list(order)

        def is_new(
            turns: Turns = turns, taken: list[int] = taken, left: float = left
        ) -> bool:
            state = hash((store.contents, turns.history))
            if seen.get(state, -1) >= left:
                return False
            if state not in seen:
                look(turns)
            seen[state] = left
            alive = turns.alive
            here = taken[-1] if taken and taken[-1] in alive else None
            if here is None:
                waiting.extend(((*taken, other), left) for other in alive[1:])
                taken.extend(alive[:1])
            else:
                if left:
                    waiting.extend(
                        ((*taken, other), left - 1) for other in alive if other != here
                    )
                taken.append(here)
            return bool(alive)

        while is_new():
            number = taken[-1]
            turns.step(number, is_new)
            if number in turns.alive:
                break
        turns.kill()
    return len(seen)


def plan_of(directory: str, work: str, job: str, seen: str) -> Any:
    """Returns what `open_work_folder` wants to know of a plan."""
    path = target.at(directory).work_path(work, seen=seen)
    return SimpleNamespace(
        spec=SimpleNamespace(keep_rejected_bytes=False),
        request=SimpleNamespace(steps=False),
        directory=directory,
        work_folder=path,
        work_digest=work,
        digest=job,
        inline=False,
        seen=seen,
        planned=SimpleNamespace(listing=RowSpool.of(pa.table({"path": ["a"]}))),
        splits=SimpleNamespace(store_tables=lambda store: None),
    )


class Writers:
    """Conversions on one target.

    Attributes:
      outcomes: what has become of each: "committed", "up to date", "refused",
        "failed" or "killed".
    """

    def __init__(self, directory: str, seed: int) -> None:
        self._directory = directory
        self._random = random.Random(seed)
        self._begun = 0
        self.outcomes: list[str] = []

    def run(self, look: Callable[[], object] = lambda: None) -> None:
        """Lets three writers run to their ends; `look` after each step."""
        draw = self._random
        jobs = [draw.randrange(_JOBS) for _ in range(3)]
        works = [lambda job=job: self._convert(job) for job in jobs]
        turns = Turns(works, self._begun + 1)
        self._begun += len(works)
        for run in turns.runs:
            if draw.random() < 0.3:
                run.ends_at, run.fails = draw.randrange(_STEPS), draw.random() < 0.3
        order = draw.sample(range(len(works)), len(works))
        changes = draw.randrange(1, 5)
        last = {draw.randrange(len(works) * _STEPS) for _ in range(changes)}
        step = 0
        while order:
            turns.step(order[0])
            look()
            if order[0] not in turns.alive:
                order.pop(0)
            elif step in last:
                order.append(order.pop(0))
            step += 1
        self.outcomes += turns.outcomes

    def _convert(self, job: int) -> str:
        """What the command `convert` does, without Beam in the middle."""
        # Jobs of one work differ in their inputs alone.
        digest, work = f"{job:032x}", f"{job % 2:032x}"
        there = target.at(self._directory)
        there.recover()
        seen = there.state()
        found = there.check_contents()
        if found is not None and found.run["job"] == digest:
            return "up to date"
        plan = plan_of(self._directory, work, digest, seen)
        try:
            with open_work_folder(plan) as (store, _):
                shards = []
                # In groups, of which the last may be of one shard.
                for start in range(0, _count(job), 2):
                    numbers = range(start, min(start + 2, _count(job)))
                    shards += _group(job, digest, store, numbers)
                commit(*(self._directory, job, digest, seen, store, shards))
        except ConservationError as error:
            raise CommitError("Others have written in between.") from error
        return "committed"


def _group(
    job: int, digest: str, store: Store, numbers: Iterable[int]
) -> list[ShardFile]:
    """Writes the shards of a group that are not there, and then their receipt."""
    finished = FinishedShards(store)
    shards, written = [], []
    for number in numbers:
        input_digest = f"{digest}-{number}"
        found = finished.find(input_digest)
        if found is None:
            found = ShardDone(_shard(job, store, number))
            written.append((input_digest, found))
        shards.append(found.shard)
    keep_shards(store, written)
    return shards


def _shard(job: int, store: Store, index: int) -> ShardFile:
    name = f"d-train.tfrecord-{index:05d}-of-{_count(job):05d}"
    data = f"{job} {index} ".encode() * (100 + job)
    storage(store.announce(name)).write_file(data, attempts="")
    facts = {"a": Statistics(1, minimum=0, maximum=1)}
    if _has_labels(job):
        facts["kind"] = Statistics(1, minimum=0, maximum=0, classes={0: 1})
    size, crc = len(data), google_crc32c.value(data)
    shard = ShardFile(name, "train", index, 1, size, size, crc, facts)
    offsets = len(data).to_bytes(8, "little").rjust(16, b"\0")
    beside = index_file(name)
    indexed = store.write_beside(beside, offsets)
    return dataclasses.replace(shard, indexes=(indexed,))


def _count(job: int) -> int:
    return (1, 2, 2, 3)[job]


def _has_labels(job: int) -> bool:
    return job >= 2


def commit(
    directory: str,
    job: int,
    digest: str,
    seen: str,
    store: Store,
    shards: list[ShardFile],
) -> None:
    """Publishes shards that are written, as the last stage of a job does."""
    rows = {("train", shard.index): 1 for shard in shards}
    features = [Feature("a", Kind.INT64)]
    if _has_labels(job):
        features.append(Feature("kind", Kind.LABEL, is_label=True))
    publication = Publication(
        directory=directory,
        seen=seen,
        job=digest,
        layout=ShardLayout("d", Schema(tuple(features)), Sharding(SplitRule(), {})),
        settings={"job": job},
        inputs={},
        # Two that have begun at the same time differ in nothing here.
        run={"started": "now"},
    )
    facts: list[Fact] = [
        ReadFacts("a", 0, len(shards)),
        PlaceFacts("a", 0, rows, {}),
        *shards,
    ]
    classes = {}
    if _has_labels(job):
        classes["kind"] = put_classes(pa.array(["x"]), store.put_pieces)
    plan = JobPlan(store, publication, vocabularies={})
    commit_dataset(facts, ShardCounts(rows, classes), plan)


def names_of(manifest: Manifest) -> list[str]:
    """Returns the sorted names of all that a dataset has in its target."""
    names = [MANIFEST_NAME, *manifest.root_names]
    if manifest.folder:
        names += [f"{manifest.folder}/{name}" for name in manifest.file_names[:-1]]
    return sorted(names)


def check_dataset(read: Callable[[str], bytes], *, pointers: bool) -> Manifest:
    """Raises AssertionError unless all that a manifest names is what it says.

    Args:
      read: returns a file of the target; KeyError if there is none.
      pointers: whether what shows other readers the way must be right already.
    """
    manifest = Manifest.from_bytes(read(MANIFEST_NAME))
    shards = [shard for split in manifest.splits for shard in split.shards]
    for facts in (*shards, *manifest.beside):
        data = read(manifest.path("", facts.file))
        found = len(data), google_crc32c.value(data)
        assert found == (facts.bytes, facts.crc32c), (facts.file, manifest.run)
    if pointers and manifest.folder:
        expected: Mapping[str, bytes] = tfds.pointers_to(manifest.folder, manifest)
        found_there = {name: read(name) for name in manifest.root_names}
        assert found_there == expected
    return manifest
