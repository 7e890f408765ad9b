"""`subset` and `merge`, killed or failed at every file operation: old or new, whole."""

import dataclasses
import errno
import os
import pathlib
import shutil
import signal

import pytest

from beam_pipeline.commands import copies
from tests.conftest import Headline
from tests.support.datasets import animals, write_dataset
from tests.support.direct_run import COMMITTED, REFUSED, forked
from tests.support.killed_runs import (
    at_operation,
    failing,
    kill,
    operations,
    whole_dataset,
)
from tests.support.runs import command
from tests.support.stress import sizes
from transforms.storage import folders, retry

Folder = pathlib.Path

# What the target is before: nothing, another dataset, or the source itself.
CODES = sizes(errno.ENOSPC, errno.EIO)
CASES = sizes("in place", "overwrite", "fresh", "without exchange", "merged")


class Place:
    """A folder with a dataset, and the target of its subset."""

    def __init__(self, root: Folder, case: str) -> None:
        self.case = case
        root.mkdir()
        shards = {"train": animals(6, 6, 6), "test": animals(4, start=50)}
        self.work, self.saved = root / "work", root / "saved"
        self.work.mkdir()
        write_dataset(self.work / "set", shards)
        # So that there are folders below the dataset's.
        assert command("index", self.work / "set", "--catalogue").code == 0
        self.out = self.work / ("set" if case == "in place" else "out")
        if case == "merged":
            write_dataset(self.work / "more", {"train": [[{"id": 9, "animal": "ape"}]]})
        if case in ("overwrite", "without exchange", "merged"):
            write_dataset(self.out, {"train": animals(2)}, name="other")
        self.names = sorted({*os.listdir(self.work), self.out.name})
        self.old = self.found()
        shutil.copytree(self.work, self.saved)
        assert forked(self.run) == COMMITTED
        self.new = self.found()
        assert self.new not in (None, self.old)
        self.reset()

    def run(self) -> None:
        retry.POLICY = dataclasses.replace(retry.POLICY, first_pause=0.0)
        if self.case == "without exchange":
            folders.exchange = lambda source, target: False
        if self.case == "merged":
            paths = [str(self.work / name) for name in ("set", "more", "out")]
            copies.merge(paths, overwrite=True, quiet=True)
            return
        where = "id != 3 and id != 51"
        copies.subset(
            str(self.work / "set"),
            str(self.out),
            where=where,
            overwrite=True,
            quiet=True,
        )

    def operations(self) -> int:
        """Returns how many operations an undisturbed run has."""
        seen = operations(self.run)
        assert "link" in seen
        self.reset()
        return len(seen)

    def reset(self) -> None:
        shutil.rmtree(self.work)
        shutil.copytree(self.saved, self.work)

    def found(self) -> dict[str, str] | None:
        """Returns the files of the sound dataset at the target; None for none."""
        found = whole_dataset(self.out)
        assert found is None or command("verify", self.out, "--quiet").code == 0
        return found

    def check_view(self) -> str:
        """Returns what a reader finds now; the source is always whole."""
        assert command("verify", self.work / "set", "--quiet").code == 0
        found = self.found()
        if found == self.new:
            return "new"
        assert found == self.old or self.case == "without exchange"
        return "old"

    def check_end(self) -> None:
        """Runs again, undisturbed: the new dataset, and nothing beside it."""
        if self.found() != self.new or self.case != "in place":
            assert forked(self.run) == COMMITTED
        else:
            # The subset of a subset is another one; only the litter must go.
            command("clean", self.out, "--quiet")
        assert self.found() == self.new
        assert sorted(os.listdir(self.work)) == self.names


@pytest.mark.parametrize("step", sizes(41, 1))
@pytest.mark.parametrize("case", CASES)
def test_killed_at_every_operation(
    case: str, step: int, tmp_path: Folder, headline: Headline
) -> None:
    """A reader finds the old or the new dataset whole, and a rerun ends clean."""
    place = Place(tmp_path / "place", case)
    total = place.operations()
    views = {"old": 0, "new": 0}
    for number in range(0, total, step):
        assert at_operation(place.run, number, kill) == -signal.SIGKILL
        views[place.check_view()] += 1
        place.check_end()
        place.reset()
    headline(
        "H1", f"subset or merge, {case}: of {total} kill points {views}, 0 failures"
    )


@pytest.mark.parametrize("code", CODES, ids=errno.errorcode.get)
@pytest.mark.parametrize("step", sizes(41, 1))
@pytest.mark.parametrize("case", CASES)
def test_an_error_at_every_operation(
    case: str, code: int, step: int, tmp_path: Folder
) -> None:
    """The run ends well after a retry, or with an error and the old data intact."""
    place = Place(tmp_path / "place", case)

    for number in range(0, place.operations(), step):
        status = at_operation(place.run, number, failing(code))
        assert status in (COMMITTED, REFUSED)
        view = place.check_view()
        assert status == REFUSED or view == "new"
        place.check_end()
        place.reset()
