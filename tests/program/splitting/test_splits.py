"""Splits end to end: keys, groups, tables of ids, classes, locks and leaks."""

import collections
import pathlib
import shutil
from typing import Any

import pandas
import pytest

from beam_pipeline.planning.plan import make_plan
from beam_pipeline.running.convert import convert_plan
from beam_pipeline.settings.spec import make_spec
from tests.support.image_sources import write_images
from tests.support.outputs import records
from tests.support.segments import waiting
from transforms.core.manifest import Manifest
from transforms.errors import RejectLimitError

Folder = pathlib.Path
ANIMALS = ("cat", "dog", "goat")


@pytest.fixture
def source(tmp_path: Folder) -> Folder:
    folder = tmp_path / "in"
    folder.mkdir()
    for number, name in enumerate("ab"):
        write(folder / f"{name}.csv", range(number * 300, number * 300 + 300))
    return folder


def write(path: Folder, ids: range) -> None:
    frame = pandas.DataFrame(
        {
            "id": [f"u{i}" for i in ids],
            "animal": [ANIMALS[i * i % 7 % 3] for i in ids],
            "site": [f"s{i % 17}" for i in ids],
            "part": [["train", "test"][i % 2] for i in ids],
        }
    )
    frame.to_csv(path, index=False)


def convert(
    source: Folder, where: str = "", **settings: Any
) -> tuple[Manifest, dict[str, str]]:
    """Returns the manifest, and id -> split as the records have it.

    Args:
      source: of the job.
      where: its rows wait, as `tests.support.segments` names it.
      settings: of the job.
    """
    output = source.parent / "out"
    if output.exists():
        shutil.rmtree(output)
    given = {"source": str(source), "output": str(output), "label_column": "animal"}
    with waiting(where):
        plan = make_plan(make_spec({**given, **settings}))
    manifest = convert_plan(plan)
    found = {
        row["id"][0].decode(): split.name
        for split in manifest.splits
        for row in records(output, split.name)
    }
    return manifest, found


def notes(manifest: Manifest) -> list[str]:
    return [note for note in manifest.run["notes"] if "split" in note or "ids" in note]


def test_classes_are_divided_exactly_and_locked(
    source: Folder, tmp_path: Folder
) -> None:
    """Stratified to one row; with more rows and a lock again, and none has moved."""
    settings = {
        "stratify_column": "animal",
        "splits": "train=0.7,val=0.2,test=0.1",
        "split_lock": str(tmp_path / "lock"),
        "key_column": "id",
    }
    shares = {"train": 0.7, "val": 0.2, "test": 0.1}
    before: dict[str, str] = {}
    for more in (None, range(600, 1000)):
        if more is not None:
            write(source / f"{more.start}.csv", more)
        _, found = convert(source, **settings)
        assert {key: found[key] for key in before} == before
        before = found
        held = collections.Counter(
            (ANIMALS[int(key[1:]) ** 2 % 7 % 3], split) for key, split in found.items()
        )
        for animal in ANIMALS:
            total = sum(held[animal, split] for split in shares)
            for split, share in shares.items():
                assert abs(held[animal, split] - total * share) < 1 + 1e-9


def test_a_table_of_ids(source: Folder, tmp_path: Folder) -> None:
    """Keys go where the table says; what it lacks is a reject."""
    wanted = {f"u{i}": ["train", "dev", "test"][i % 3] for i in range(599)}
    frame = pandas.DataFrame(
        {"id": [*wanted, "gone"], "split": [*wanted.values(), "dev"]}
    )
    path = str(tmp_path / "ids.parquet")
    frame.to_parquet(path)
    settings = {"split_ids": path, "key_column": "id"}
    manifest, found = convert(source, **settings, max_reject_rate=0.1)
    assert found == wanted
    assert manifest.account.rejected == {"bad_split": 1}
    with pytest.raises(RejectLimitError, match="bad_split: 1"):
        convert(source, **settings, max_reject_rate=0)


def test_keys_in_two_splits_are_reported(source: Folder) -> None:
    """A column that tears a key apart is reported with rows of it."""
    manifest, _ = convert(source, split_column="part", key_column="site")
    (note,) = notes(manifest)
    assert note.startswith("17 keys stand in more than one split: train and test: 17; ")


def test_fault_129_an_image_in_two_splits(tmp_path: Folder) -> None:
    """The same bytes under train and test are reported by their paths."""
    paths = ("train/a/1.jpg", "train/a/2.jpg", "test/a/3.jpg")
    write_images(tmp_path / "in", paths)
    shutil.copy(tmp_path / "in/train/a/2.jpg", tmp_path / "in/test/a/4.jpg")
    given = {"source": str(tmp_path / "in"), "output": str(tmp_path / "out")}
    manifest = convert_plan(make_plan(make_spec(given)))
    assert notes(manifest) == [
        "1 image stands in more than one split: train and test: 1; for example "
        "test: test/a/4.jpg = train: train/a/2.jpg"
    ]
