"""Killed, failed or raced at every file operation: old or new, whole, and no litter.

Runs are those of `tests.support.direct_run`, each in a process of its own.
"""

import dataclasses
import errno
import json
import os
import pathlib
import random
import re
import shutil
import signal
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conftest import Headline
from tests.support.datasets import seen_at
from tests.support.direct_run import BROKEN, COMMITTED, REFUSED, forked, run_directly
from tests.support.file_operations import watched
from tests.support.killed_runs import (
    at_operation,
    failing,
    kill,
    operations,
    whole_dataset,
)
from tests.support.segments import IN_FILES, IN_MEMORY, decide, waiting
from tests.support.stress import sizes
from transforms.errors import TargetError
from transforms.publishing import local, target
from transforms.publishing.own_folder import OwnFolder
from transforms.storage import drafts, folders, retry
from transforms.storage.paths import work_folder

Folder = pathlib.Path

# Of the operations of a run, every 97th is tried in each run of the suite.
STEPS = sizes(97, 1)
# Damage is done as a folder is replaced, and as a replacement is undone.
KINDS = [
    "overwrite",
    *sizes(
        "without exchange", "fresh", "fresh inline", "fewer shards", "runs of files"
    ),
]
CODES = sizes(errno.ENOSPC, errno.EIO)


@pytest.fixture(autouse=True)
def rows_in_files() -> Iterator[None]:
    """What a run leaves of its rows is in files, too."""
    with waiting(IN_FILES):
        yield


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is tried again is tried again at once."""
    monkeypatch.setattr(
        retry, "POLICY", dataclasses.replace(retry.POLICY, first_pause=0.0)
    )


def source_of(folder: Folder, tables: int) -> Folder:
    """Writes tables; a row of each is refused, so that there are rejects."""
    folder.mkdir()
    for part in range(tables):
        rows = range(60 // tables)
        lines = [f"{part * 100 + i},{i / 8}" for i in rows] + ["1"]
        (folder / f"{part:02}.csv").write_text("\n".join(["id,x", *lines, ""]))
    return folder


@dataclasses.dataclass(frozen=True)
class Case:
    """A run and the earlier contents of its target.

    Attributes:
      before: settings of the dataset at the target; None if it is empty.
      after: settings of the run.
      exchange: whether the file system can exchange two folders.
      tables: how many files the source has; 16 and more are read in runs.
      group: how many shards are synced together.
      where: the rows wait.
    """

    before: dict[str, Any] | None
    after: dict[str, Any]
    exchange: bool = True
    tables: int = 2
    group: int = drafts._FILES
    where: str = IN_FILES


BASE = {"max_reject_rate": 0.1, "name": "set"}
CASES = {
    # Three groups of shards, the last one of one shard.
    "fresh": Case(None, {**BASE, "shards": 5}, group=2),
    "fresh inline": Case(None, {**BASE, "shards": 3}, where=IN_MEMORY),
    "overwrite": Case({**BASE, "shards": 5}, {**BASE, "shards": 5, "seed": 1}, group=2),
    "fewer shards": Case({**BASE, "shards": 4}, {**BASE, "shards": 2}),
    "without exchange": Case(
        {**BASE, "shards": 3}, {**BASE, "shards": 3, "seed": 1}, exchange=False
    ),
    "runs of files": Case(
        {**BASE, "shards": 3, "max_reject_rate": 0.5},
        {**BASE, "shards": 3, "max_reject_rate": 0.5, "seed": 1},
        tables=30,
    ),
}


class Place:
    """A folder with a source, a target and what the target must hold in the end."""

    def __init__(self, root: Folder, case: Case) -> None:
        self.root, self.case = root, case
        root.mkdir()
        self.source = source_of(root / "in", case.tables)
        self.out = root / "work" / "out"
        self.out.parent.mkdir()
        self.old: dict[str, str] | None = None
        if (before := case.before) is not None:
            assert forked(lambda: self.run(self.settings(before))) == COMMITTED
            self.old = self.found()
        self.saved = root / "saved"
        shutil.copytree(self.out.parent, self.saved)
        assert forked(self.again) == COMMITTED
        self.new = self.found()
        assert self.new is not None
        assert self.new != self.old
        self.reset()

    def settings(self, given: dict[str, Any]) -> dict[str, Any]:
        return {
            **given,
            "source": str(self.source),
            "output": str(self.out),
            "overwrite": True,
        }

    def run(self, settings: dict[str, Any]) -> None:
        drafts._FILES = self.case.group
        decide(self.case.where)
        if not self.case.exchange:
            folders.exchange = lambda source, target: False
        run_directly(settings)

    def again(self) -> None:
        self.run(self.settings(self.case.after))

    def operations(self) -> int:
        """Returns how many operations an undisturbed run has."""
        total = len(operations(self.again))
        self.reset()
        return total

    def reset(self) -> None:
        """Makes the target what it was before the run."""
        shutil.rmtree(self.out.parent)
        shutil.copytree(self.saved, self.out.parent)

    def found(self) -> dict[str, str] | None:
        """Returns what a reader finds."""
        return whole_dataset(self.out)

    def check_view(self) -> str:
        """Returns "old", "new" or "nothing": what a reader finds now."""
        found = self.found()
        if found == self.new:
            return "new"
        if found is None:
            # Never where one could be had: only before a fresh run is published, or
            # while the manifest is absent because folders cannot be exchanged.
            assert self.old is None or not self.case.exchange
            return "nothing"
        assert found == self.old
        return "old"

    def check_end(self) -> None:
        """Runs again, undisturbed: the new dataset, and nothing beside it."""
        assert forked(self.again) == COMMITTED
        assert self.found() == self.new
        assert os.listdir(self.out.parent) == ["out"]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("name", KINDS)
def test_row_1_to_5_killed_at_every_operation(
    name: str, step: int, tmp_path: Folder, headline: Headline
) -> None:
    """A reader finds the old or the new dataset whole, and a rerun ends clean."""
    place = Place(tmp_path / "place", CASES[name])
    total = place.operations()
    views = {"old": 0, "new": 0, "nothing": 0}
    for number in range(0, total, step):
        assert at_operation(place.again, number, kill) == -signal.SIGKILL
        views[place.check_view()] += 1
        place.check_end()
        place.reset()
    tried = sum(views.values())
    assert tried == len(range(0, total, step))
    headline("H1", f"{name}: {tried} of {total} kill points, 0 failures ({views})")


@pytest.mark.parametrize("code", CODES, ids=errno.errorcode.get)
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("name", KINDS)
def test_row_13_to_17_an_error_at_every_operation(
    name: str, code: int, step: int, tmp_path: Folder, headline: Headline
) -> None:
    """The run ends well after a retry, or with an error and the old data intact."""
    place = Place(tmp_path / "place", CASES[name])
    total = place.operations()
    retried = failed = 0
    for number in range(0, total, step):
        status = at_operation(place.again, number, failing(code))
        assert status in (COMMITTED, REFUSED)
        view = place.check_view()
        if status == COMMITTED:
            assert view == "new"
            retried += 1
        else:
            failed += 1
        place.check_end()
        place.reset()
    headline(
        "H10",
        f"{name}, {errno.errorcode[code]} at {retried + failed} of {total} operations: "
        f"{retried} ended well, {failed} with an error; the old data stood, 0 failures",
    )


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("name", KINDS)
def test_row_13_a_disk_that_stays_full(
    name: str, step: int, tmp_path: Folder, headline: Headline
) -> None:
    """Every operation from one on fails: an error, the old dataset, a clean rerun."""
    place = Place(tmp_path / "place", CASES[name])
    total = place.operations()
    points = range(0, total, step * 3)
    for number in points:
        status = at_operation(place.again, number, failing(errno.ENOSPC), times=10**9)
        assert status in (COMMITTED, REFUSED)
        if status == COMMITTED:
            assert place.check_view() == "new"
        else:
            place.check_view()
        place.check_end()
        place.reset()
    headline("H10", f"{name}, a disk full from {len(points)} operations on: 0 failures")


# --- two writers -------------------------------------------------------------------


class Writer:
    """A run in a child that waits at every operation for leave to do it."""

    def __init__(self, place: Place, settings: dict[str, Any]) -> None:
        self.ask_read, ask_write = os.pipe()
        leave_read, self.leave_write = os.pipe()
        self.pid = os.fork()
        if self.pid:
            os.close(ask_write)
            os.close(leave_read)
            self.status: int | None = None
            return
        status = BROKEN
        try:

            def wait(what: str = "", path: str = "") -> None:
                os.write(ask_write, b"?")
                if not os.read(leave_read, 1):
                    os._exit(BROKEN)

            with watched(wait):
                run_directly(settings, planned=wait)
            status = COMMITTED
        except BaseException as error:  # noqa: BLE001 - its name is the outcome
            names = {kind.__name__ for kind in type(error).__mro__}
            ours = bool(names & {"CommitError", "TargetError"})
            status = REFUSED if ours else BROKEN
            if not ours:
                import traceback

                traceback.print_exc()
        finally:
            os._exit(status)

    def step(self) -> bool:
        """Lets it do one operation; returns False once it has ended."""
        if self.status is None:
            if os.read(self.ask_read, 1):
                with_leave = os.write(self.leave_write, b"!")
                assert with_leave == 1
                return True
            _, ended = os.waitpid(self.pid, 0)
            self.status = os.waitstatus_to_exitcode(ended)
            os.close(self.ask_read)
            os.close(self.leave_write)
        return False


def schedule(seed: int) -> Iterator[int]:
    """Yields whose turn it is, for ever: in turns of 1 to 300 operations."""
    rng = random.Random(seed)
    while True:
        who = rng.randrange(2)
        for _ in range(rng.choice((1, 1, 2, 5, 20, 100, 300))):
            yield who


@pytest.mark.parametrize("schedules", sizes(2, 100))
@pytest.mark.parametrize("start", sizes("overwrite", "fresh", "runs of files"))
def test_row_25_of_two_writers_one_commits(
    start: str, schedules: int, tmp_path: Folder, headline: Headline
) -> None:
    """Whatever the interleaving: one whole dataset, and an error for the other."""
    case = CASES[start]
    place = Place(tmp_path / "place", case)
    # In number 26 the folder of the lock goes between its making and the lock's.
    for seed in (26, *range(schedules)):
        settings = [
            {
                **place.settings(case.after),
                "seed": 10 + number,
                "overwrite": case.before is not None,
            }
            for number in range(2)
        ]
        writers = [Writer(place, each) for each in settings]
        # Both have planned, and seen the same target, before either goes on.
        for writer in writers:
            planned_by(writer)
        for who in schedule(seed):
            if not writers[who].step():
                while writers[1 - who].step():
                    pass
                break
        outcomes = sorted(str(writer.status) for writer in writers)
        assert outcomes == [str(COMMITTED), str(REFUSED)], (seed, outcomes)
        winner = settings[[w.status for w in writers].index(COMMITTED)]
        found = place.found()
        assert found is not None
        stated = json.loads((place.out / "manifest.json").read_text())
        assert stated["dataset"]["settings"]["seed"] == winner["seed"]
        # What the other one has finished serves its next try, until `clean`.
        target.at(str(place.out)).clear(sure=True)
        assert os.listdir(place.out.parent) == ["out"]
        place.reset()
    headline("H9", f"{start}: {schedules + 1} schedules, exactly one committed in each")


def planned_by(writer: Writer) -> None:
    """Lets a writer come to the end of its planning."""
    # Nothing is written before; recovery of a target without a work folder is none.
    assert writer.step()


# --- foreign files -----------------------------------------------------------------

_LETTERS = "a*?[]{} #%\n-한é😀\\"


def _foreign_name(rng: random.Random) -> str:
    near = [
        "set-train.tfrecord-00000-of-00003",
        "set-train.tfrecord-00000-of-00003-backup",
        "set-train.tfrecord-00003-of-00004",
        "rejects.jsonl",
        "manifest.json",
        "manifest.json~",
        "dataset_info.json",
        "train-aug",
    ]
    name = rng.choice(near) if rng.random() < 0.5 else ""
    return name + "".join(
        rng.choices(_LETTERS, k=rng.randrange(1 if not name else 0, 6))
    )


@dataclasses.dataclass(frozen=True)
class Layout:
    """A target of some name among files of others.

    Attributes:
      out: the target.
      foreign: files of others and what they hold.
      inside: whether one of them is in the target itself.
    """

    out: Folder
    foreign: dict[Folder, bytes]
    inside: bool

    @classmethod
    def draw(cls, root: Folder, rng: random.Random) -> "Layout":
        """Writes a random layout."""
        root.mkdir()
        out = root / (_foreign_name(rng) or "out")
        foreign = {}
        near = [".", f"{out.name}-2", f".{out.name}.beam-tfrecordx", "d"]
        for _ in range(rng.randrange(1, 6)):
            path = root / rng.choice(near) / (_foreign_name(rng) or "f")
            if os.path.lexists(path) or out in (path, path.parent):
                continue
            path.parent.mkdir(exist_ok=True)
            foreign[path] = struct.pack("<I", rng.randrange(2**32))
        inside = rng.random() < 0.3
        if inside:
            out.mkdir()
            foreign[out / (_foreign_name(rng) + "x")] = b"mine"
        for path, data in foreign.items():
            path.write_bytes(data)
        return cls(out, foreign, inside)

    def check(self) -> None:
        """Asserts that every file of others is there as it was."""
        for path, data in self.foreign.items():
            assert path.read_bytes() == data, path


@pytest.mark.parametrize("layouts", sizes(5, 500))
def test_row_23_runs_delete_nothing_of_others(
    layouts: int, tmp_path: Folder, headline: Headline
) -> None:
    """Random neighbours survive a run, two overwrites, or a run that is refused."""
    rng = random.Random(8)
    source = source_of(tmp_path / "in", 2)
    settings = {**BASE, "source": str(source), "shards": 3, "overwrite": True}
    for number in range(layouts):
        layout = Layout.draw(tmp_path / f"layout-{number}", rng)

        def runs(out: Folder = layout.out) -> None:
            given = {**settings, "output": str(out)}
            run_directly(given)
            run_directly({**given, "seed": 1})
            run_directly({**given, "shards": 2})

        status = forked(runs)
        assert status == (REFUSED if layout.inside else COMMITTED), layout.out
        layout.check()
    headline("H8", f"{layouts:,} layouts, three runs each: 0 foreign files deleted")


@pytest.mark.parametrize("layouts", sizes(60, 10_000))
def test_row_23_publishing_deletes_nothing_of_others(
    layouts: int, tmp_path: Folder, headline: Headline
) -> None:
    """The same for the commit alone, with files that come in the last instant."""
    rng = random.Random(9)
    place = Place(tmp_path / "place", CASES["fewer shards"])
    shutil.copytree(place.saved / "out", tmp_path / "old")
    place.check_end()
    for number in range(layouts):
        layout = Layout.draw(tmp_path / f"layout-{number}", rng)
        out = str(layout.out)
        if layout.inside:
            with pytest.raises(TargetError):
                seen_at(out)
            layout.check()
            continue
        for kind, made in (("old", tmp_path / "old"), ("new", place.out)):
            OwnFolder(work_folder(out), re.compile("0{32}")).make()
            folder = os.path.join(work_folder(out), "0" * 32, "dataset")
            shutil.copytree(made, folder)
            seen = seen_at(out)
            late = layout.out / (_foreign_name(rng) + "late")
            if kind == "new" and rng.random() < 0.3:
                late_exchange(late)
                layout.foreign[late] = b"late"
            local.publish(folder, out, seen=seen)
            target.at(out).clear(sure=True)
        assert set(os.listdir(out)) - {
            p.name for p in layout.foreign if p.parent == layout.out
        } == set(os.listdir(place.out))
        layout.check()
    headline("H8", f"{layouts:,} layouts, two commits each: 0 foreign files deleted")


def late_exchange(late: Folder) -> None:
    """Puts a file into the target after the last look at it, before the exchange."""
    plain = folders.exchange

    def exchange(source: str, target: str) -> bool:
        folders.exchange = plain
        late.write_bytes(b"late")
        return plain(source, target)

    folders.exchange = exchange
