"""Keys that are given twice are found in whatever shards and splits they are."""

import pathlib
from typing import Any

import apache_beam as beam
import numpy as np
import pytest

from beam_pipeline.own_pipelines.write_dataset import WriteDataset
from tests.support.outputs import rows
from tests.support.stress import sizes
from transforms.core.placing import placement
from transforms.errors import InputError
from transforms.publishing import target

Folder = pathlib.Path

RUNNER = "FnApiRunner"


def write(output: Folder, made: list[dict[str, Any]], **settings: Any) -> None:
    with beam.Pipeline(runner=RUNNER) as pipeline:
        # Every row is in a bundle of its own, or nearly.
        _ = (
            pipeline
            | beam.Create(made)
            | beam.Reshuffle()
            | WriteDataset(output, key="id", **settings)
        )


def some(count: int = 200) -> list[dict[str, Any]]:
    splits = ("train", "test", "validation")
    return [{"id": f"k{i}", "x": i, "part": splits[i % 3]} for i in range(count)]


@pytest.mark.parametrize(
    "settings",
    [{"splits": {"train": 0.5, "test": 0.5}}, {"splits": "column:part"}, {}],
)
@pytest.mark.parametrize("collide", sizes(True, False))
def test_a_key_given_twice_is_named(
    tmp_path: Folder,
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, Any],
    collide: bool,
) -> None:
    """In one split or in two, and where all keys have one hash; others pass."""
    if collide:

        def equal(texts: Any, *_: Any, **_options: Any) -> Any:
            return np.zeros(len(texts), np.uint64)

        monkeypatch.setattr(placement, "hash_texts", equal)
    write(tmp_path / "sound", some(), **settings)
    assert len(rows(tmp_path / "sound")) == 200
    twice = [*some(), {"id": "k7", "x": 1000, "part": "train"}]
    with pytest.raises(InputError, match="'k7' is given more than once"):
        write(tmp_path / "out", twice, **settings)
    assert not (tmp_path / "out").exists()
    write(tmp_path / "kept", twice, duplicates="keep", **settings)
    assert sorted(row["x"] for row in rows(tmp_path / "kept")) == [*range(200), 1000]


@pytest.mark.parametrize("splits", [{"train": 1.0}, "column:part"])
def test_keys_of_rejected_rows_count(tmp_path: Folder, splits: Any) -> None:
    """A row that does not fit has a key too."""
    twice = [*some(), {"id": "k7", "x": "seven", "part": "test"}]
    with pytest.raises(InputError, match="'k7' is given more than once"):
        write(tmp_path / "out", twice, splits=splits, max_reject_rate=0.5)


@pytest.mark.parametrize("splits", [{"train": 1.0}, "column:part"])
def test_a_shard_whose_rows_are_all_rejected(tmp_path: Folder, splits: Any) -> None:
    """It has no keys to compare, and is an empty shard."""
    good = [] if splits != "column:part" else some()
    bad = [{"id": "z", "x": "seven", "part": "last"}]
    write(
        tmp_path / "out",
        [*good, *bad],
        splits=splits,
        features={"x": "int64"},
        max_reject_rate=1,
        min_records=0,
    )
    assert target.read_manifest(str(tmp_path / "out")).records == len(good)
