"""Runs on one target in an object store, request by request in any order.

The exhaustive proofs let small jobs take their steps in every order. Their looks,
notes, segments, shards, manifests and removals are those of the program; what lies
between asks no store, and is left out. In every state what the manifest names must be
there, whole; and at the end `clean` must leave that alone.
"""

import dataclasses
import functools
import os
import pickle
import sys
from collections.abc import Callable, Sequence

import google_crc32c
import pytest

from beam_pipeline.commands.clean import foreign_names, leftovers, remove
from beam_pipeline.running.convert import open_work_folder
from tests.support.memory_store import MemoryStore, install
from tests.support.schedules import (
    Turns,
    Writers,
    check_dataset,
    explore,
    in_turns,
    names_of,
    plan_of,
)
from tests.support.stress import STRESS, sizes
from transforms.core.manifest import (
    MANIFEST_NAME,
    Account,
    Manifest,
    ShardFacts,
    SplitFacts,
)
from transforms.errors import CommitError, RaceError, TargetError
from transforms.publishing import target
from transforms.publishing.bucket import BucketTarget
from transforms.storage.files import storage
from transforms.work.store import Store

# Every order is tried by `make stress`.
SWITCHES = None if STRESS else 2
OUT = "s3://bucket/out"
DAYS = 86400.0
WEEK = 7 * DAYS
OLD = 8 * DAYS


@dataclasses.dataclass(frozen=True)
class Job:
    """A job that writes shards of one record.

    Attributes:
      digest: of all that decides its bytes.
      data: of its shards.
      work: the digest of its work, which jobs of equal settings share.
    """

    digest: str
    data: bytes
    work: str = "e" * 32
    shards: int = 1
    compression: str = "gzip"  # which has no pointers

    def manifest(self, run: str) -> Manifest:
        name = "d-train.tfrecord-{:05d}-of-{:05d}"
        shards = tuple(
            ShardFacts(
                name.format(number, self.shards),
                len(self.data),
                google_crc32c.value(self.data),
                1,
                len(self.data) - 16,
            )
            for number in range(self.shards)
        )
        return Manifest(
            name="d",
            compression=self.compression,
            features=(),
            splits=(SplitFacts("train", shards),),
            files=(),
            account=Account(read=self.shards, written=self.shards),
            inputs={},
            settings={},
            run={"job": self.digest, "started": run},
        )


A = Job("a" * 32, b"first bytes")
B = Job("b" * 32, b"second bytes", work="b" * 32)
# Of the same work, with other inputs.
C = Job("c" * 32, b"third bytes!", work=A.work)
# As A, where another version of zlib is installed.
A_ELSEWHERE = Job("f" * 32, b"first bytes, packed", work="f" * 32)
D = Job("d" * 32, b"before", work="d" * 32)


def convert(job: Job) -> str:
    """Does what the command `convert` does, from its first look."""
    there = target.at(OUT)
    there.recover()
    seen = there.state()
    found = there.check_contents()
    if found is not None and found.run["job"] == job.digest:
        return "up to date"
    with open_work_folder(plan_of(OUT, job.work, job.digest, seen)) as (store, _):
        return build(job, store, seen)


def go_on(job: Job, seen: str) -> str:
    """As `convert`, from what it has planned for, and without what decides nothing."""
    there = target.at(OUT)
    store = Store(there.work_path(job.work, seen=seen))
    store = there.open_store(store, job=job.digest, seen=seen)
    try:
        outcome = build(job, store, seen)
    except (CommitError, OSError):
        there.leave(store, seen=seen)
        raise
    there.end(store)
    return outcome


def build(job: Job, store: Store, seen: str) -> str:
    there = target.at(OUT)
    try:
        write(job, store)
        there.publish(store, job.manifest("now"), seen=seen)
    except (CommitError, OSError) as error:
        # As `run_plan` has it: another run of the job may have been quicker.
        now = there.state()
        found = None if now in ("", seen) else target.read_manifest(OUT)
        if found is None:
            raise
        if found.run["job"] != job.digest:
            raise target.overtaken(OUT) from error
    return "published"


def write(job: Job, store: Store) -> None:
    """Puts segments, and shards that are read from them."""
    segment = os.path.join(store.segments, f"{job.digest}.segments")
    storage(segment).write_file(job.data, attempts="")
    for split in job.manifest("").splits:
        for facts in split.shards:
            data = storage(segment).read_bytes()
            path = os.path.join(store.dataset, facts.file)
            storage(path).write_file(data, attempts="")


def clean(older_than: float = WEEK) -> str:
    there = BucketTarget(OUT)
    for left in leftovers(there):
        remove(there, left, older_than=older_than)
    return "cleaned"


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    """The store of every place."""
    return install(MemoryStore(), monkeypatch)


def read_from(store: MemoryStore) -> Callable[[str], bytes]:
    return lambda name: store.read(f"out/{name}")


def check_now(store: MemoryStore) -> Manifest | None:
    """Checks that what the manifest names is there; returns it."""
    if not store.look(f"out/{MANIFEST_NAME}").version:
        return None
    return check_dataset(read_from(store), pointers=False)


def check_end(store: MemoryStore) -> None:
    """Checks that nothing but the dataset is left once `clean` has taken the old."""
    store.age(OLD)
    BucketTarget(OUT).settle()
    clean()
    expected = []
    if check_now(store) is not None:
        manifest = check_dataset(read_from(store), pointers=True)
        expected = [f"out/{name}" for name in names_of(manifest)]
    assert store.keys == expected


def record(states: int, ends: set[tuple[str, ...]]) -> None:
    """Says how much was tried, for `pytest -s`."""
    sys.stdout.write(f"{states:,} states, ends: {sorted(ends)}\n")


class Checker:
    """Checks each state of runs on a store."""

    def __init__(self, store: MemoryStore, jobs: Sequence[Job | None]) -> None:
        self._store = store
        self._jobs = jobs
        self._whole: set[int] = set()
        self.ends: set[tuple[str, ...]] = set()

    def __call__(self, turns: Turns) -> None:
        contents = hash(self._store.contents)
        if contents not in self._whole:
            self._whole.add(contents)
            check_now(self._store)
        if turns.alive:
            return
        self.ends.add(tuple(turns.outcomes))
        found = check_now(self._store)
        winners = {
            job.digest
            for job, outcome in zip(self._jobs, turns.outcomes, strict=True)
            if job is not None and outcome == "published"
        }
        if winners:
            assert found is not None
            assert {found.run["job"]} == winners
        for run in turns.runs:
            assert run.outcome in ("published", "refused", "cleaned"), run.error
            if run.outcome == "refused":
                assert getattr(run.error, "exit_code", 0) == 5, run.error
        check_end(self._store)


def all_orders(
    store: MemoryStore,
    jobs: Sequence[Job | None],
    before: Callable[[], None] = lambda: None,
    *,
    plans: bool = False,
) -> set[tuple[str, ...]]:
    """Tries every order of jobs, and of `clean` for None, on the same beginnings."""

    def begin() -> Turns:
        store.clear()
        before()
        seen = None if plans else target.at(OUT).state()
        works = [
            functools.partial(clean)
            if job is None
            else functools.partial(convert, job)
            if seen is None
            else functools.partial(go_on, job, seen)
            for job in jobs
        ]
        return Turns(works)

    check = Checker(store, jobs)
    with in_turns():
        states = explore(store, begin, check, switches=SWITCHES)
    record(states, check.ends)
    return check.ends


def published(*jobs: Job) -> Callable[[], None]:
    """Returns what publishes jobs, one after the other."""

    def work() -> None:
        for job in jobs:
            assert convert(job) == "published"

    return work


def killed(job: Job, steps: int, store: MemoryStore) -> None:
    """Runs a job up to a step, long ago."""
    turns = Turns([functools.partial(convert, job)], 100)
    turns.finish(0, steps)
    turns.kill()
    store.age(OLD)


def steps_of(job: Job, store: MemoryStore) -> int:
    """Returns how many steps a job takes on what is there; removes all."""
    with in_turns():
        turns = Turns([functools.partial(convert, job)])
        turns.finish(0)
    assert turns.outcomes == ["published"]
    store.clear()
    return turns.runs[0].steps


BEGINNINGS = {"fresh": (), "overwrite": (D,)}
beginnings = pytest.mark.parametrize("jobs", BEGINNINGS.values(), ids=BEGINNINGS)


@beginnings
def test_two_runs_of_one_job(store: MemoryStore, jobs: tuple[Job, ...]) -> None:
    """Both end well, whoever has published: the dataset is that of both.

    That is also what becomes of one that wakes after the other has published.
    """
    ends = all_orders(store, [A, A], published(*jobs))
    assert ends == {("published", "published")}


@beginnings
@pytest.mark.parametrize("other", [B, C, A_ELSEWHERE], ids=["job", "inputs", "zlib"])
def test_two_runs_of_two_jobs(
    store: MemoryStore, jobs: tuple[Job, ...], other: Job
) -> None:
    """One publishes; the other ends with exit code 5 and removes nothing.

    Two versions of a library that decides bytes make two jobs of one.
    """
    ends = all_orders(store, [A, other], published(*jobs))
    assert ends == {("published", "refused"), ("refused", "published")}


@beginnings
def test_a_run_that_is_killed_at_any_step(
    store: MemoryStore, jobs: tuple[Job, ...]
) -> None:
    """The next run of its job publishes at once, and one of another job as well."""
    published(*jobs)()
    with in_turns():
        turns = Turns([functools.partial(convert, A)])
        turns.finish(0)
    steps = turns.runs[0].steps
    store.clear()
    for after in range(steps + 1):
        for job in (A, B):
            published(*jobs)()
            with in_turns():
                killed(A, after, store)
            check_now(store)
            assert convert(job) in ("published", "up to date")
            found = check_now(store)
            assert found is not None
            assert found.run["job"] == job.digest
            check_end(store)
            store.clear()


@pytest.mark.parametrize("job", [A, B], ids=["restart", "other"])
@pytest.mark.parametrize("after", sizes(0.7, 0.2, 0.4, 0.5, 0.6, 0.8, 0.9, 1.0))
def test_clean_beside_a_run(store: MemoryStore, after: float, job: Job) -> None:
    """It removes what a dead run has left, and nothing that a live one goes on with."""
    steps = round(after * steps_of(A, store))

    def before() -> None:
        published(D)()
        killed(A, steps, store)

    ends = all_orders(store, [job, None], before)
    assert ("published", "cleaned") in ends


def test_clean_beside_a_run_that_is_old(store: MemoryStore) -> None:
    """One that was paused for a week goes on, or fails; it publishes nothing broken."""

    def before() -> None:
        published(D)()
        store.age(OLD)

    seen: list[str] = []

    def begin() -> Turns:
        store.clear()
        before()
        seen[:] = [target.at(OUT).state()]
        turns = Turns([functools.partial(go_on, A, seen[0]), clean])
        # It has put its shard.
        turns.finish(0, 5)
        store.age(OLD)
        return turns

    check = Checker(store, [A, None])
    with in_turns():
        explore(store, begin, check, switches=SWITCHES)
    assert check.ends == {("published", "cleaned"), ("refused", "cleaned")}


def test_equal_digests_of_other_bytes(store: MemoryStore) -> None:
    """A file that is there already and differs ends the run, and stays."""
    other = dataclasses.replace(A, data=b"other bytes")
    killed_at = steps_of(A, store) // 2
    while not any("tfrecord-" in key for key in store.keys):
        store.clear()
        killed_at += 1
        with in_turns():
            killed(A, killed_at, store)
    before = {key: store.read(key) for key in store.keys if key.startswith("out/")}
    with pytest.raises(RaceError) as error:
        convert(other)
    assert error.value.exit_code == 5
    assert {key: store.read(key) for key in before} == before
    assert convert(A) == "published"
    check_end(store)


def test_a_file_that_is_gone(store: MemoryStore) -> None:
    """The commit looks at all files that it names: nothing is published without one."""
    there = target.at(OUT)
    work = Store(there.work_path(A.work, seen=""))
    own = there.open_store(work, job=A.digest, seen="")
    write(A, own)
    (shard,) = (key for key in store.keys if ".tfrecord-" in key)
    store.remove(shard)
    with pytest.raises(RaceError):
        there.publish(own, A.manifest("now"), seen="")
    assert check_now(store) is None


def test_clean_of_a_dataset_whose_index_was_not_finished(store: MemoryStore) -> None:
    """What the run of `index` has left goes, and the dataset stays."""
    assert convert(A) == "published"
    before, manifest = store.keys, target.read_manifest(OUT)
    work = Store(target.at(OUT).work_path("9" * 32, seen=""))
    own = target.at(OUT).open_derived(work, manifest)
    storage(f"{own.dataset}/index/a.u64").write_file(b"offsets", attempts="")
    clean()
    assert len(store.keys) == len(before) + 2
    store.age(OLD)
    clean()
    assert store.keys == before


def test_what_is_replaced_is_removed(store: MemoryStore) -> None:
    """Nothing but the new dataset is left after a run, without any `clean`."""
    for job in (A, B, A, C):
        assert convert(job) == "published"
        found = check_now(store)
        assert found is not None
        assert store.keys == [f"out/{name}" for name in names_of(found)]


@pytest.mark.parametrize("seeds", sizes(range(25), range(25, 800)), ids=str)
def test_any_schedule(store: MemoryStore, seeds: range) -> None:
    """What a manifest names is whole at any time, and in the end nothing else is."""
    for seed in seeds:
        writers = Writers(OUT, seed)
        with in_turns():
            for _ in range(2):
                writers.run(functools.partial(check_now, store))
        found = check_now(store)
        # One that has published may have been killed before it could say so.
        assert found or "committed" not in writers.outcomes, seed
        check_end(store)
        store.clear()


def test_a_stopped_run_puts_nothing_more(store: MemoryStore) -> None:
    """Its threads may go on in this process; another run of its job is not stopped."""
    there = target.at(OUT)
    work = Store(there.work_path("e" * 32, seen=""))
    own = there.open_store(work, job=A.digest, seen="")
    other = there.open_store(work, job=A.digest, seen="")
    # As Beam hands it on.
    sent = pickle.loads(pickle.dumps(own))
    sent.announce("a")
    own.abandon()
    assert sent.is_abandoned
    with pytest.raises(CommitError, match="was stopped"):
        sent.announce("b")
    assert not other.is_abandoned


def test_foreign_files_stay(store: MemoryStore) -> None:
    """What is not ours beside a target or in it is named, and not touched."""
    assert convert(A) == "published"
    foreign = (".out.beam-tfrecord/mine/a", "out.txt", f"{OUT[12:]}/data-1/b")
    for key in foreign:
        store.write(key, b"theirs")
    for note in (b"{", b"[]", b"{}", b'{"work": ""}', b'{"work": "mine"}'):
        store.write(f".out.beam-tfrecord/uses/data-{'9' * 32}-{'9' * 12}", note)
        clean(0.0)
        assert {*foreign} <= {*store.keys}
    store.age(OLD)
    assert foreign_names(BucketTarget(OUT)) == ["mine"]
    with pytest.raises(TargetError, match="holds 'data-1'"):
        target.at(OUT).check_contents()
    clean(0.0)
    assert {*foreign} <= {*store.keys}
