"""`index` of a dataset, killed at every file operation: what comes next goes on."""

import os
import pathlib
import shutil

import pytest

from tests.support.datasets import animals, write_dataset
from tests.support.direct_run import COMMITTED
from tests.support.killed_runs import at_operation, kill
from tests.support.outputs import contents, dataset
from tests.support.runs import command
from tests.support.sources import write_csv
from tests.support.stress import sizes

Folder = pathlib.Path


@pytest.mark.parametrize("step", sizes(29, 1))
@pytest.mark.parametrize("after", sizes("overwrite", "index", "clean"))
def test_killed_at_every_operation(after: str, step: int, tmp_path: Folder) -> None:
    """The dataset stays as it was, or is the new one; nothing is in the way."""
    work, saved = tmp_path / "work", tmp_path / "saved"
    out = work / "d"
    work.mkdir()
    source = write_csv(tmp_path / "t.csv", "id", [str(n) for n in range(9)])
    write_dataset(out, {"train": animals(3, 2), "test": animals(2)})
    assert command("index", out).code == 0
    # Named by the manifest, and replaced.
    named = out / "index" / "animals-test.tfrecord-00000-of-00001.u64"
    named.write_bytes(b"damaged")
    shutil.copytree(work, saved)

    def run() -> None:
        assert command("index", out, "--text", "--catalogue").code == 0

    run()
    follow_ups = {
        "index": ("index", out, "--text", "--catalogue"),
        "clean": ("clean", out),
        "overwrite": ("convert", source, out, "--overwrite"),
    }
    digest, old, new = dataset(out)["digest"], contents(saved / "d"), contents(out)
    for number in range(0, 10_000, step):
        shutil.rmtree(work)
        shutil.copytree(saved, work)
        if at_operation(run, number, kill) == COMMITTED:
            break
        assert dataset(out)["digest"] == digest
        done = command(*follow_ups[after])
        assert done.code == 0, (number, done)
        if after == "index":
            assert contents(out) == new
        elif after == "clean":
            assert contents(out) in (old, new), number
        else:
            assert dataset(out)["account"]["written"] == 9
        if after != "clean":
            assert command("verify", out).code == 0
        assert os.listdir(work) == ["d"]
    assert number > 50
