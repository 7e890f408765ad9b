"""Runs of a few writers on one target, of which one at a time does one step.

A step is all that a writer does up to its next request to the store. Which one is next
says a seed, as in "A Randomized Scheduler with Probabilistic Guarantees of Finding
Bugs" (Burckhardt et al., 2010): the first in a random order, in which now and then the
one at work becomes the last. A fault of two or three steps in a certain order is found
so in a few hundred schedules.
"""

import contextlib
import dataclasses
import os
import random
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import google_crc32c
import pyarrow as pa
import pytest

from beam_pipeline.running.convert import open_work_folder
from transforms import files
from transforms.core.manifest import MANIFEST_NAME, FileFacts, Manifest
from transforms.core.model import Fact, PlaceFacts, ReadFacts, ShardFile
from transforms.core.placing.name_lists import put_classes
from transforms.core.placing.placement import Sharding, SplitRule
from transforms.core.placing.shard_rows import ShardCounts
from transforms.core.schema import Feature, Kind, Schema
from transforms.core.statistics import Statistics, StatisticsTable
from transforms.core.tfrecord.record_index import index_file
from transforms.errors import (
    CommitError,
    ConservationError,
    StorageError,
    TargetError,
)
from transforms.publishing import target, work_folder
from transforms.publishing.bucket import publication
from transforms.publishing.bucket import runs as bucket_runs
from transforms.publishing.bucket import target as bucket
from transforms.shards.shard_job import ShardLayout
from transforms.sidecars import tfds
from transforms.stages.commit import commit_dataset
from transforms.stages.job_plan import Publication
from transforms.storage import file_systems
from transforms.storage.object_store import Look
from transforms.storage.row_spool import RowSpool
from transforms.work import lease
from transforms.work.receipts import FinishedShards, ShardDone, keep_shards
from transforms.work.store import Store
from transforms.work.versions import look_at as store_look_at
from transforms.work.versions import put_if

__all__ = ["Writers", "check_dataset", "commit", "names_of"]

_JOBS = 4
_WAIT_SECONDS = 60
# Steps of one writer, about.
_STEPS = 70
# Of all writers, after which the lease of one that nobody hears of has expired.
_EXPIRY_STEPS = 20


class _Killed(BaseException):
    """The process has ended, so it does nothing more."""


@dataclasses.dataclass
class _Writer:
    """A run of the program on the target, as the store sees it.

    Attributes:
      number: its process, so to say.
      host: its machine, also from the store's view.
      job: what it converts; jobs of one work differ in their inputs alone.
      ends_at: the step before which it is killed or, where `fails`, fails.
      silent_at: the step from which on nobody hears of it, so that its lease expires
        though it goes on, as where it is paused or cut off; None for never.
      heard: when it was heard of last, by the clock of all; None for just now.
    """

    number: int
    host: str
    job: int
    ends_at: int | None
    fails: bool
    silent_at: int | None
    go: threading.Semaphore
    parked: threading.Semaphore
    heard: int | None = None
    steps: int = 0
    lives: bool = True
    outcome: str = ""
    error: BaseException | None = None

    @property
    def digest(self) -> str:
        return f"{self.job:032x}"

    @property
    def work(self) -> str:
        return f"{self.job % 2:032x}"


class Writers:
    """Writers on one target.

    Attributes:
      outcomes: what has become of each: "committed", "up to date", "refused",
        "failed" or "killed".
    """

    def __init__(self, directory: str, seed: int) -> None:
        self._directory = directory
        self._random = random.Random(seed)
        self._current = threading.local()
        self._all: list[_Writer] = []
        self.outcomes: list[str] = []
        # In steps of all writers: now, and when the manifest was put.
        self._clock = 0
        self._published = 0

    @contextlib.contextmanager
    def patched(self) -> Iterator[None]:
        """Lets each thread's writer wait for its turn before each request."""
        numbered = file_systems._numbered
        tokens = random.Random(self._random.random())

        def in_turn(path: str, work: Callable[[], Any]) -> Any:
            writer = getattr(self._current, "writer", None)
            if writer is not None:
                self._wait(writer)
            return numbered(path, work)

        def this_run() -> dict[str, str]:
            writer = getattr(self._current, "writer", None)
            number = 0 if writer is None else writer.number
            token = f"{tokens.getrandbits(48):012x}"
            return {
                "host": host(),
                "machine": bucket_runs._machine(),
                "process": str(number),
                "start": "1",
                "run": token,
            }

        def look_at(path: str) -> Look:
            look = store_look_at(path)
            if path.endswith(f"/{MANIFEST_NAME}"):
                return Look(look.version, self._age(self._published))
            # In the same step: the age is one of what was looked at.
            writer, self._current.writer = getattr(self._current, "writer", None), None
            note = lease.note_at(path) if look.version else None
            self._current.writer = writer
            number = 0 if note is None else int(note["process"])
            heard = self._all[number - 1].heard if number else None
            return Look(look.version, 0.0 if heard is None else self._age(heard))

        def publish(path: str, *arguments: Any, **options: Any) -> None:
            put_if(path, *arguments, **options)
            self._published = self._clock

        def runs_out(path: str, look: Look) -> bool:
            now = look_at(path)
            is_silent = now.version == look.version and now.age > 0
            if is_silent:
                self._clock += _EXPIRY_STEPS
            return is_silent

        def renewed(_lease: lease.Lease) -> contextlib.AbstractContextManager[None]:
            return contextlib.nullcontext()

        def host() -> str:
            writer = getattr(self._current, "writer", None)
            return "here" if writer is None else str(writer.host)

        def start_of(process: int) -> str:
            lives = process == 0 or self._all[process - 1].lives
            return "1" if lives else ""

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(file_systems, "_numbered", in_turn)
            patch.setattr(bucket_runs, "this_run", this_run)
            patch.setattr(bucket_runs, "_start_of", start_of)
            patch.setattr(bucket_runs, "look_at", look_at)
            patch.setattr(bucket_runs, "runs_out", runs_out)
            patch.setattr(bucket_runs, "renewed", renewed)
            patch.setattr(bucket, "look_at", look_at)
            patch.setattr(publication, "put_if", publish)
            patch.setattr(socket, "gethostname", host)
            yield

    def _age(self, then: int) -> float:
        """Returns the seconds since a step."""
        return (self._clock - then) * lease.EXPIRY_SECONDS / _EXPIRY_STEPS

    def run(self, look: Callable[[], None] = lambda: None) -> None:
        """Lets two or three writers run to their ends; `look` after each step."""
        count = self._random.choice((2, 2, 3))
        new = [self._writer() for _ in range(count)]
        threads = [
            threading.Thread(target=self._main, args=[writer], daemon=True)
            for writer in new
        ]
        for thread in threads:
            thread.start()
        order = self._random.sample(new, count)
        changes = self._random.randrange(1, 5)
        last = {self._random.randrange(count * _STEPS) for _ in range(changes)}
        step = 0
        while order:
            writer = order[0]
            writer.go.release()
            assert writer.parked.acquire(timeout=_WAIT_SECONDS), "a writer hangs"
            look()
            if writer.outcome:
                order.remove(writer)
            elif step in last:
                order.append(order.pop(0))
            step += 1
        for thread, writer in zip(threads, new, strict=True):
            thread.join()
            if writer.error is not None:
                raise writer.error
        self.outcomes += [writer.outcome for writer in new]

    def _writer(self) -> _Writer:
        draw = self._random
        ends = draw.random() < 0.3
        self._all.append(
            _Writer(
                number=len(self._all) + 1,
                # Of two on one machine the second is refused; what is more often so
                # is that one has died there.
                host=draw.choice("abb" if ends else "abc"),
                job=draw.randrange(_JOBS),
                ends_at=draw.randrange(_STEPS) if ends else None,
                fails=draw.random() < 0.3,
                silent_at=draw.randrange(_STEPS) if draw.random() < 0.3 else None,
                go=threading.Semaphore(0),
                parked=threading.Semaphore(0),
            )
        )
        return self._all[-1]

    def _wait(self, writer: _Writer) -> None:
        writer.parked.release()
        writer.go.acquire()
        writer.steps += 1
        self._clock += 1
        if writer.silent_at == writer.steps:
            writer.heard = self._clock
        if not writer.lives:
            raise _Killed
        if writer.ends_at is not None and writer.steps >= writer.ends_at:
            if writer.fails:
                writer.ends_at = None
                raise StorageError("It fails here.")
            writer.lives = False
            raise _Killed

    def _main(self, writer: _Writer) -> None:
        self._current.writer = writer
        writer.go.acquire()
        try:
            outcome = self._convert(writer)
        except _Killed:
            outcome = "killed"
        except (CommitError, TargetError):
            outcome = "refused"
        except StorageError:
            outcome = "failed"
        except ConservationError as error:
            # Others have written in between; nothing was committed.
            outcome, writer.error = "refused", None if len(self._all) > 1 else error
        except BaseException as error:  # noqa: BLE001 - raised again by `run`
            outcome, writer.error = "error", error
        writer.lives = False
        writer.outcome = outcome
        writer.parked.release()

    def _convert(self, writer: _Writer) -> str:
        """What the command `convert` does, without Beam in the middle."""
        work_folder.recover(self._directory)
        seen = target.state(self._directory)
        stands = target.check_contents(self._directory)
        if stands is not None and stands.run["job"] == writer.digest:
            with contextlib.suppress(TargetError):
                work_folder.clear(self._directory, sure=False)
            return "up to date"
        plan: Any = SimpleNamespace(
            spec=SimpleNamespace(keep_rejected_bytes=False, keep_work=False),
            directory=self._directory,
            work_folder=os.path.join(target.work_folder(self._directory), writer.work),
            work_digest=writer.work,
            digest=writer.digest,
            inline=False,
            seen=seen,
            planned=SimpleNamespace(listing=RowSpool.of(pa.table({"path": ["a"]}))),
            splits=SimpleNamespace(store_tables=lambda store: None),
        )
        with open_work_folder(plan) as (store, _):
            shards = []
            # In groups, of which the last may be of one shard.
            for start in range(0, _count(writer.job), 2):
                numbers = range(start, min(start + 2, _count(writer.job)))
                shards += self._group(writer, store, numbers)
            commit(*(self._directory, writer.job, writer.digest, seen, store, shards))
        return "committed"

    def _group(
        self, writer: _Writer, store: Store, numbers: Iterable[int]
    ) -> list[ShardFile]:
        """Writes the shards of a group that are not there, and then their receipt."""
        finished = FinishedShards(store)
        shards, written = [], []
        for number in numbers:
            input_digest = f"{writer.digest}-{number}"
            found = finished.find(input_digest)
            if found is None:
                found = ShardDone(self._shard(writer, store, number))
                written.append((input_digest, found))
            shards.append(found.shard)
        keep_shards(store, written)
        return shards

    def _shard(self, writer: _Writer, store: Store, index: int) -> ShardFile:
        name = f"d-train.tfrecord-{index:05d}-of-{_count(writer.job):05d}"
        data = f"{writer.job} {index} ".encode() * (100 + writer.job)
        store.announce(name)
        files.write_file(os.path.join(store.dataset, name), data, attempts="")
        facts = {"a": Statistics(1, minimum=0, maximum=1)}
        if _has_labels(writer.job):
            facts["kind"] = Statistics(1, minimum=0, maximum=0, classes={0: 1})
        size, crc = len(data), google_crc32c.value(data)
        table = StatisticsTable.of(facts)
        shard = ShardFile(name, "train", index, 1, size, size, crc, table)
        offsets = len(data).to_bytes(8, "little").rjust(16, b"\0")
        beside = index_file(name)
        store.announce(beside)
        files.write_file(os.path.join(store.dataset, beside), offsets, attempts="")
        indexed = FileFacts(beside, len(offsets), google_crc32c.value(offsets))
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
    commit_dataset(
        facts, ShardCounts(rows, classes), publication=publication, store=store
    )


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
