"""A conversion without a runner does what Beam does, byte for byte."""

import pathlib
import re
import shutil
from typing import Any

import pytest

from beam_pipeline.job import Job
from tests.support import direct_run
from tests.support.outputs import contents, dataset, manifest
from tests.support.page_sources import write_everything
from tests.support.runs import command
from tests.support.sources import write_csv

Folder = pathlib.Path

JOBS: dict[str, tuple[str, ...]] = {
    "table": ("t.csv", "--shards", "3"),
    "images": ("photos/train", "--resize", "shorter:16", "--compression", "gzip"),
    "too many rejects": ("bad.csv",),
}
# What differs from run to run in what the program prints.
_TIMES = re.compile(r"\(\d+\.\d s, [\d,]+ records/s, ")


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """A source of every kind, and one with rows that do not fit."""
    folder = tmp_path_factory.mktemp("sources")
    write_everything(folder)
    write_csv(folder / "bad.csv", "n,w", ["1,a", "2,b,c", "3,d"])
    return folder


def seen(folder: Folder, job: tuple[str, ...]) -> list[object]:
    """Returns what a job prints and writes, twice, its source grown in between."""
    found: list[object] = []
    table = folder / "t.csv"
    for rows in (500, 700):
        write_csv(table, "n,w", (f"{number},w{number % 7}" for number in range(rows)))
        source, *options = job
        run = command(
            "convert", folder / source, folder / "out", *options, "--overwrite"
        )
        printed = [run.code, _TIMES.sub("(", run.out), run.err]
        found.append([str(each).replace(str(folder), "") for each in printed])
        if (folder / "out").exists():
            kept: dict[str, Any] = manifest(folder / "out")["run"]
            found += [dataset(folder / "out"), contents(folder / "out"), kept["notes"]]
    return found


@pytest.mark.parametrize("job", JOBS)
def test_bytes_and_words_are_those_of_beam(
    job: str, sources: Folder, tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files, manifest, messages and exit codes are the same."""
    ran: list[object] = []
    inner = direct_run._run

    def noted(job: Job) -> str:
        ran.append(job)
        return inner(job)

    monkeypatch.setattr(direct_run, "_run", noted)
    found = []
    for way in ("beam", "direct"):
        folder = tmp_path / way
        shutil.copytree(sources, folder)
        if way == "direct":
            monkeypatch.setattr(
                "beam_pipeline.running.convert.run_job", direct_run.run_job
            )
        found.append(seen(folder, JOBS[job]))
        assert bool(ran) == (way == "direct")
    assert found[0] == found[1]
