"""What `WriteDataset` refuses, and the files that its settings name."""

import pathlib
from typing import Any

import apache_beam as beam
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from beam_pipeline.own_pipelines import engine_workers
from beam_pipeline.own_pipelines.parameters import spec_of
from beam_pipeline.own_pipelines.read_rows import ReadRows
from beam_pipeline.own_pipelines.write_dataset import WriteDataset
from tests.support.gathered_rows import gather
from tests.support.own_pipelines import digest_of, write_rows
from transforms.errors import InputError, SpecError

ROWS = [{"a": n, "b": f"text {n}"} for n in range(5)]


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"bogus": 1}, ["'bogus'"]),
        ({"overwrit": True}, ["'overwrit'", "'overwrite'"]),
        ({"lable": "a"}, ["'lable'", "'label'"]),
        ({"group_column": "a", "key": "b"}, ["group_column", "key"]),
        ({"label": "a", "splits": "column:a"}, ["split", "label", "'a'"]),
        ({"key": "a", "splits": "column:a"}, ["split", "key", "'a'"]),
        ({"label_column": "a"}, ["label_column", " label."]),
        ({"split_column": "a"}, ["split_column", "splits='column:NAME'"]),
        ({"source": "x"}, ["source"]),
        ({"like": "nowhere"}, ["has no manifest"]),
        ({"features": pa.schema([("a", pa.int64())])}, ["features"]),
        ({"delimiter": ";"}, ["delimiter"]),
        ({"workers": 2}, ["workers", "convert"]),
        ({"stratify_column": "a"}, ["stratify_column", "splits='column:NAME'"]),
        ({"shuffle": False}, ["shuffle"]),
        ({"split_lock": "x"}, ["split_lock", "key=", "split_ids="]),
        ({"allow": ["new-classes"]}, ["allow", "like", "part"]),
        ({"part": "a/b"}, ["part", "'a/b'"]),
        ({"part": "a", "splits": {"x": 0.5, "y": 0.5}}, ["part", "key"]),
        ({"splits": "column:"}, ["splits", "empty"]),
        ({"splits": ["train"]}, ["splits", "['train']"]),
        ({"label": ["a"]}, ["label", "['a']"]),
        ({"key": ""}, ["key", "empty"]),
        ({"key": "a", "duplicates": "drop"}, ["'refuse' or 'keep'", "'drop'"]),
        ({"name": "a/b"}, ["name", "'a/b'"]),
        ({"name": "a\nb"}, ["name", r"'a\nb'"]),
        ({"shards": 2}, ["shards", "num_shards"]),
        ({"num_shards": 0}, ["num_shards", "1", "0"]),
    ],
)
def test_wrong_parameters_are_refused_at_construction(
    settings: dict[str, Any], named: list[str]
) -> None:
    """The message names the parameter, and what it cannot be."""
    with pytest.raises(SpecError) as caught:
        WriteDataset("out/x", **settings)
    assert all(word in str(caught.value) for word in named)


def test_the_folder_of_images_is_that_of_the_caller() -> None:
    """Workers may run in another folder than the program that makes the pipeline."""
    settings = {"images_root": "photos"}
    spec = spec_of("out/x", label=None, splits=None, key=None, settings=settings)
    assert spec.images_root == str(pathlib.Path("photos").absolute())


def test_files_of_class_names_are_read_at_construction(tmp_path: pathlib.Path) -> None:
    """Workers may not see the file, and it may change before they look."""
    path = tmp_path / "classes.txt"
    path.write_text("cat\ndog\n")
    features = {"kind": {"kind": "label", "vocabulary": str(path)}}
    spec = spec_of(
        "out/x",
        label="pet",
        splits=None,
        key=None,
        settings={"vocabulary": str(path), "features": features},
    )
    assert spec.vocabulary == ["cat", "dog"]
    assert spec.features["kind"].vocabulary == ["cat", "dog"]
    with pytest.raises(SpecError, match=r"none\.txt'"):
        WriteDataset("out/x", label="pet", vocabulary=str(tmp_path / "none.txt"))


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"label": "aa"}, ["label ", "'aa'", "'a'"]),
        ({"group_column": "aa"}, ["group_column ", "'aa'", "'a'"]),
        ({"features": {"aa": "int64"}}, ["'aa'"]),
        ({"features": {"c": {"column": "bb", "kind": "text"}}}, ["'c'", "'bb'"]),
        ({"features": {"box/x": "int64"}}, ["'box/x'", "'a', 'b'"]),
        ({"features": {"c\0": {"column": "b"}}}, ["NUL"]),
        ({"drop": ["aa"]}, ["drop", "'aa'"]),
        ({"image_columns": ["aa"]}, ["image_columns", "'aa'"]),
    ],
)
def test_what_is_said_of_columns_that_no_row_has_is_refused(
    settings: dict[str, Any], named: list[str]
) -> None:
    """A misspelt column is none of missing values; the nearest name is given."""
    with pytest.raises(SpecError) as caught:
        gather([ROWS], **settings)
    assert all(word in str(caught.value) for word in named)


def test_columns_without_values_may_be_declared() -> None:
    """Those that are None, or parts of lists and mappings that are empty."""
    made = [row | {"c": None, "points": [], "box": None} for row in ROWS]
    features = {"c": "int64", "points/x": {"kind": "int64", "shape": [None]}}
    found = gather([made], features=features | {"box/y": "float"})
    assert sum(map(len, found.records.values())) == len(ROWS)


@pytest.mark.parametrize(
    "elements",
    [
        *([1], ["a"], [1.5], [None], [b"bytes"], [("key", {"a": 1})], [[1, 2]]),
        *([np.zeros(3)], [np.int64(3)], [pd.DataFrame({"a": [1]})]),
    ],
)
def test_elements_that_are_no_rows_are_refused_at_construction(
    elements: list[Any],
) -> None:
    """Where Beam knows their type."""
    pipeline = beam.Pipeline(runner="FnApiRunner")
    with pytest.raises(SpecError, match="element"):
        pipeline | beam.Create(elements) | WriteDataset("out/x")


def test_one_collection_is_written(tmp_path: pathlib.Path) -> None:
    """Neither what ReadRows gives as a whole, nor several ones, nor the pipeline."""
    (tmp_path / "table.csv").write_text("a,b\n1,2\n")
    pipeline = beam.Pipeline(runner="FnApiRunner")
    read = pipeline | ReadRows(tmp_path / "table.csv")
    for given in (read, [read.rows, read.rejects], {"a": read.rows}, pipeline):
        with pytest.raises(SpecError, match=r"read\.rows"):
            given | "Write" >> WriteDataset("out/x")


Folder = pathlib.Path


@pytest.fixture
def nothing_inline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_workers, "_FILE_BYTES", 0)


@pytest.mark.usefixtures("nothing_inline")
def test_large_files_are_read_by_the_workers(tmp_path: Folder) -> None:
    """They give the bytes that those in the graph do; a changed one is refused."""
    table = tmp_path / "ids.csv"
    table.write_text("id,split\n" + "".join(f"{n},test\n" for n in range(10)))
    rows = [{"id": n, "pet": "dog" if n % 3 else "cat"} for n in range(10)]
    given: dict[str, Any] = {"key": "id", "label": "pet", "split_ids": str(table)}
    large, small, like = (tmp_path / name for name in ("large", "small", "like"))
    write_rows(rows, large, **given)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_workers, "_FILE_BYTES", 1 << 17)
        write_rows(rows, small, **given)
    assert digest_of(large) == digest_of(small)
    write_rows([{"id": 3, "pet": "dog"}], like, like=large, splits={"train": 1})
    assert (like / "pet.labels.txt").read_text() == "cat\ndog\n"
    table.write_text("id,split\n1,train\n")
    before = WriteDataset(tmp_path / "more", **given)._given
    table.write_text("id,split\n2,train\n")
    # As in a process that starts now.
    engine_workers._made_once.cache_clear()
    assert before.ids is not None
    with pytest.raises(InputError, match=r"ids\.csv' has changed or is gone"):
        before.table()
