"""Locks and tables of ids of `WriteDataset`."""

import json
import pathlib
from typing import Any

import apache_beam as beam
import pytest

from beam_pipeline.api import convert
from beam_pipeline.own_pipelines import earlier_runs, held
from beam_pipeline.own_pipelines.write_dataset import WriteDataset
from tests.support.own_pipelines import digest_of, run_steps, write_rows
from tests.support.stress import sizes
from transforms.core.example.messages import read_examples
from transforms.errors import CommitError, InputError, RaceError, SpecError
from transforms.work import split_tables

Folder = pathlib.Path
HALVES = {"train": 0.5, "test": 0.5}


def splits_of(dataset: Folder) -> dict[int, str]:
    """Returns the split of each id."""
    out = {}
    for split in ("train", "test"):
        paths = sorted(map(str, dataset.glob(f"*-{split}.tfrecord-*")))
        for row in read_examples(paths) if paths else ():
            out[row["id"][0]] = split
    return out


def run_of(dataset: Folder) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((dataset / "manifest.json").read_text())["run"]
    return found


@pytest.mark.parametrize("identity", sizes("group", "key", "content"))
def test_a_split_lock_keeps_rows_in_their_splits(
    identity: str, tmp_path: Folder
) -> None:
    """Rows of the first run stay though the shares change; new ones join the lock."""
    lock = tmp_path / "splits.lock"
    known: dict[str, Any] = {
        "key": {"key": "id"},
        "content": {},
        "group": {"group_column": "g"},
    }[identity]
    rows = [{"id": n, "g": n // 4} for n in range(120)]
    first, second, third = (tmp_path / name for name in ("a", "b", "c"))
    write_rows(rows[:80], first, splits=HALVES, split_lock=str(lock), **known)
    before, size = splits_of(first), lock.stat().st_size
    assert set(before.values()) == {"train", "test"}
    shares = {"train": 0.05, "test": 0.95}
    write_rows(rows, second, bundles=2, splits=shares, split_lock=str(lock), **known)
    after = splits_of(second)
    assert {n: after[n] for n in before} == before
    assert lock.stat().st_size > size
    notes = run_of(second)["notes"]
    assert any("stay where the split lock has them" in note for note in notes)
    # The rows of both runs are in the lock now.
    write_rows(rows, third, splits=HALVES, split_lock=str(lock), **known)
    assert splits_of(third) == after
    assert not list(tmp_path.glob(".*"))


def test_a_split_lock_of_convert(tmp_path: Folder) -> None:
    """Either knows rows by their keys, so they can take turns."""
    lock, table = tmp_path / "splits.lock", tmp_path / "rows.csv"
    table.write_text("id,x\n" + "".join(f"{n},{n / 2}\n" for n in range(60)))
    whole = tmp_path / "whole"
    convert(table, whole, splits=HALVES, key_column="id", split_lock=str(lock))
    rows = [{"id": n, "x": n / 2} for n in range(60)]
    shares = {"train": 0.9, "test": 0.1}
    out = tmp_path / "out"
    write_rows(rows, out, splits=shares, key="id", split_lock=str(lock))
    assert splits_of(out) == splits_of(whole)
    with pytest.raises(SpecError, match="must know rows as this run does"):
        WriteDataset(out, splits=shares, split_lock=str(lock))


@pytest.mark.parametrize("status", ["committed", "up to date"])
def test_a_lock_that_cannot_be_written_is_written_by_the_next_attempt(
    status: str, tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit is repeated after it has published, or found an equal dataset."""
    splits = tmp_path / "splits.lock"
    rows = [{"pet": "ab"[n % 2], "id": n} for n in range(9)]
    given: dict[str, Any] = {"label": "pet", "key": "id", "splits": HALVES}
    given |= {"split_lock": str(splits)}
    if status == "up to date":
        write_rows(rows, tmp_path / "out", **given)
    failed: list[int] = []
    real = split_tables.install_lock

    def fail(*arguments: Any) -> None:
        if len(failed) < 2:
            failed.append(1)
            raise CommitError("out of order")
        real(*arguments)

    monkeypatch.setattr(earlier_runs, "install_lock", fail)
    # The only local runner that repeats a bundle that has failed.
    with beam.Pipeline(runner="BundleBasedDirectRunner") as pipeline:
        made = pipeline | beam.Create(rows)
        _ = made | WriteDataset(tmp_path / "out", overwrite=True, **given)
    assert failed
    assert splits.exists()


def test_a_lock_that_has_changed_since_fails_the_job(tmp_path: Folder) -> None:
    """Two runs that read one lock would each forget what the other has added."""
    lock = tmp_path / "splits.lock"
    given: dict[str, Any] = {"splits": HALVES, "key": "id", "split_lock": str(lock)}
    write_rows([{"id": 1}], tmp_path / "first", **given)
    changed = lock.read_bytes() + b"x"

    def slow(row: dict[str, Any]) -> dict[str, Any]:
        lock.write_bytes(changed)
        return row

    with pytest.raises(RaceError, match="A lock must stay as it was"):
        run_steps(
            lambda p: p | beam.Create([{"id": 2}]) | beam.Map(slow),
            tmp_path / "out",
            **given,
        )
    assert lock.read_bytes() == changed
    assert not (tmp_path / "out").exists()


@pytest.fixture
def nothing_inline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held, "_FILE_BYTES", 0)


@pytest.mark.usefixtures("nothing_inline")
def test_large_files_are_read_by_the_workers(tmp_path: Folder) -> None:
    """They give the bytes that those in the graph do; a changed one is refused."""
    table = tmp_path / "ids.csv"
    table.write_text("id,split\n" + "".join(f"{n},test\n" for n in range(10)))
    rows = [{"id": n, "pet": "dog" if n % 3 else "cat"} for n in range(10)]
    given: dict[str, Any] = {"key": "id", "label": "pet"}
    given |= {"split_ids": str(table), "vocabulary": ["dog", "cat"]}
    large, small, like = (tmp_path / name for name in ("large", "small", "like"))
    write_rows(rows, large, **given)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(held, "_FILE_BYTES", 1 << 17)
        write_rows(rows, small, **given)
    assert digest_of(large) == digest_of(small)
    write_rows([{"id": 3, "pet": "cat"}], like, like=large, splits={"train": 1})
    assert (like / "pet.labels.txt").read_text() == "dog\ncat\n"
    table.write_text("id,split\n1,train\n")
    before = WriteDataset(tmp_path / "more", **given)._before
    table.write_text("id,split\n2,train\n")
    # As in a process that starts now.
    held._made.cache_clear()
    assert before.ids is not None
    with pytest.raises(InputError, match=r"ids\.csv' has changed or is gone"):
        before.table()
