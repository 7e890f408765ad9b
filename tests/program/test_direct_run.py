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
    "in order": ("t.csv", "--no-shuffle", "--shards", "2"),
    "splits": ("t.csv", "--splits", "train=0.8,test=0.2", "--key-column", "n"),
    "labels": ("t.csv", "--label-column", "w"),
    "images": ("photos/train", "--resize", "shorter:16", "--compression", "gzip"),
    "lines": ("events.jsonl",),
    "Parquet": ("events.parquet",),
    "Avro": ("events.avro",),
    "resumed": ("t.csv", "--keep-work", "--shards", "2"),
    "too many rejects": ("bad.csv",),
    "some rejects": ("bad.csv", "--max-reject-rate", "0.9"),
    "nothing": ("empty.csv",),
}
# What differs from run to run in what the program prints.
_TIMES = re.compile(r"\(\d+\.\d s, [\d,]+ records/s, ")


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """A source of every kind, one with rows that do not fit, and one without any."""
    folder = tmp_path_factory.mktemp("sources")
    write_everything(folder)
    write_csv(folder / "bad.csv", "n,w", ["1,a", "2,b,c", "3,d"])
    write_csv(folder / "empty.csv", "n,w", [])
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
    """Files, manifest, messages and exit codes are the same, also when it resumes."""
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


@pytest.mark.parametrize(
    "options",
    [
        ("--workers", "2"),
        ("--splits", "train=0.8,test=0.2", "--stratify-column", "w"),
        ("--", "--job_name=nightly"),
    ],
)
def test_what_only_a_runner_can_do_is_left_to_it(
    options: tuple[str, ...],
    tmp_path: Folder,
    without_runner: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Several processes, a stratified split and Beam's flags go through Beam."""
    monkeypatch.delattr(direct_run, "_run")
    table = write_csv(tmp_path / "t.csv", "n,w", (f"{n},w{n % 2}" for n in range(50)))
    assert command("convert", table, tmp_path / "out", *options).code == 0
