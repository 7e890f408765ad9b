"""ReadRows: what `convert` reads, as rows of any pipeline, and its account."""

import dataclasses
import pathlib
import pickle
import shutil
import tempfile
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.util import assert_that, equal_to
from PIL import Image

from beam_pipeline.api import convert
from beam_pipeline.own_pipelines import read_rows
from beam_pipeline.own_pipelines.read_rows import ReadRows
from beam_pipeline.own_pipelines.write_dataset import WriteDataset
from tests.support.format_sources import BOXES, write_coco
from tests.support.outputs import examples, manifest_of, payloads
from tests.support.own_pipelines import bytes_of
from tests.support.sources import write_csv
from tests.support.stress import sizes
from transforms.core.manifest import Manifest
from transforms.errors import SourceError, SpecError

Folder = pathlib.Path
Row = dict[str, Any]
ROWS = 400


@pytest.fixture
def table(tmp_path: Folder) -> Folder:
    """A CSV file of 400 rows, two of which do not fit."""
    lines = []
    for i in range(ROWS):
        weight = "heavy" if i in (7, 300) else f"{i / 4}"
        part = "test" if i % 10 == 0 else "train"
        lines.append(f"{i},{weight},{'cat' if i % 3 else 'dog'},{part}")
    return write_csv(tmp_path / "animals.csv", "id,weight,animal,part", lines)


@pytest.fixture
def photos(tmp_path: Folder) -> Folder:
    """A folder of 24 images in two splits and two classes, and one that is none."""
    folder = tmp_path / "photos"
    dots = np.random.default_rng(0)
    for split in ("train", "test"):
        for label in ("cat", "dog"):
            (folder / split / label).mkdir(parents=True)
            for number in range(6):
                pixels = dots.integers(0, 255, (30, 40, 3), dtype=np.uint8)
                name = f"{number}.png"
                Image.fromarray(pixels).save(folder / split / label / name)
    (folder / "train" / "dog" / "bad.png").write_bytes(b"nothing")
    return folder


def given_by(source: Folder, **settings: Any) -> dict[str, list[Any]]:
    """Returns the elements of each output, in no particular order."""
    with tempfile.TemporaryDirectory() as folder:
        _run(source, folder, settings)
        return {
            path.name: pickle.loads(path.read_bytes())
            for path in Folder(folder).iterdir()
        }


def _run(source: Folder, folder: str, settings: Row) -> None:
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        read = pipeline | ReadRows(source, **settings)
        outputs = {
            "rows": read.rows,
            "rejects": read.rejects,
            "facts": read.accounts.facts,
        }
        for name, output in outputs.items():
            (
                output
                | f"All {name}" >> beam.combiners.ToList()
                | f"Keep {name}" >> beam.Map(_keep, f"{folder}/{name}")
            )


def _keep(found: list[Any], path: str) -> None:
    Folder(path).write_bytes(pickle.dumps(found))


def first_small(rows: Row) -> bool:
    return not rows["filename"].endswith("0.png")


def relabelled(row: Row) -> Row:
    return {**row, "label": row["label"].upper()}


def convert_photos(source: Folder, output: Folder, *flags: str) -> Manifest:
    """Reads, filters, relabels and writes images."""
    options = PipelineOptions(list(flags))
    with beam.Pipeline(runner="FnApiRunner", options=options) as pipeline:
        read = pipeline | ReadRows(source)
        (
            read.rows
            | beam.Filter(first_small)
            | beam.Map(relabelled)
            | beam.Reshuffle()
            | WriteDataset(
                output,
                splits="column:split",
                resize="shorter:24",
                accounts=read.accounts,
                max_reject_rate=0.1,
            )
        )
    return manifest_of(output)


def test_photos_become_a_dataset(photos: Folder, tmp_path: Folder) -> None:
    """Images, classes and splits stay what the folders say; every item is counted."""
    manifest = convert_photos(photos, tmp_path / "out")
    account = manifest.account
    assert (account.read, account.written, account.dropped_by_steps) == (25, 20, 4)
    assert account.rejected == {"not_an_image": 1}
    assert account.balance == 0
    assert manifest.inputs["files"] == 25
    kinds = {facts.feature.name: str(facts.feature.kind) for facts in manifest.features}
    assert kinds == {
        "image": "image",
        "label": "label",
        "filename": "text",
        **dict.fromkeys(("height", "width", "depth"), "int64"),
    }
    assert {split.name: split.records for split in manifest.splits} == {
        "train": 10,
        "test": 10,
    }
    paths = [str(path) for path in (tmp_path / "out").glob("*.tfrecord-*")]
    (label,) = (facts for facts in manifest.features if facts.feature.is_label)
    assert label.classes == ("CAT", "DOG")
    for row in examples(*paths):
        name = row["filename"][0].decode()
        assert (row["height"], row["width"]) == ([24], [32])
        assert label.classes[row["label"][0]].lower() == name.split("/")[1]
        assert bytes(row["image"][0]).startswith(b"\x89PNG")


def test_equal_bytes_from_another_place_and_bundling(
    photos: Folder, tmp_path: Folder
) -> None:
    """Neither the folder's place nor the threads and attempts decide any byte."""
    convert_photos(photos, tmp_path / "out")
    moved = tmp_path / "elsewhere" / "photos"
    shutil.copytree(photos, moved)
    again = tmp_path / "elsewhere" / "out"
    convert_photos(
        moved,
        again,
        "--direct_num_workers=3",
        "--direct_running_mode=multi_threading",
        "--direct_runner_bundle_repeat=1",
    )
    assert bytes_of(again) == bytes_of(tmp_path / "out")


@pytest.mark.parametrize("declared", [False, True])
def test_shards_are_cut_by_the_bytes_of_images(
    photos: Folder, tmp_path: Folder, declared: bool
) -> None:
    """A path counts the bytes of its file: there are about as many shards as asked."""
    output = tmp_path / "out"
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        read = pipeline | ReadRows(photos)
        settings: dict[str, Any] = {"accounts": read.accounts}
        if declared:
            images = {"image": {"kind": "image"}}
            settings = {"features": images, "images_root": str(photos)}
        read.rows | WriteDataset(
            output, shard_size=10_000, max_reject_rate=0.1, **settings
        )
    manifest = manifest_of(output)
    (split,) = manifest.splits
    assert split.records == 24
    assert 6 <= len(split.shards) <= split.bytes / 8_000


def test_rows_of_a_table(table: Folder) -> None:
    """Dicts of plain values; the split that the source says; rejects in words."""
    found = given_by(table, split_column="part", label_column="animal")
    assert len(found["rows"]) == ROWS - 2
    rows = {row["id"]: row for row in found["rows"]}
    assert rows[10] == {"id": 10, "weight": 2.5, "animal": "cat", "split": "test"}
    assert sorted(reject["row"] for reject in found["rejects"]) == [8, 301]
    assert {reject["reason"] for reject in found["rejects"]} == {"not_a_number"}
    assert "heavy" in found["rejects"][0]["message"]


def test_images_are_paths_or_bytes(photos: Folder, tmp_path: Folder) -> None:
    """Paths are relative to the source; images that the source holds are bytes."""
    paths = {row["image"] for row in given_by(photos)["rows"]}
    assert "train/cat/3.png" in paths
    held = tmp_path / "held.parquet"
    data = (photos / "train/cat/3.png").read_bytes()
    pa.parquet.write_table(pa.table({"image": [data], "name": ["three"]}), held)
    assert given_by(held)["rows"] == [{"image": data, "name": "three"}]


@pytest.fixture
def boxes(tmp_path: Folder) -> Folder:
    """A folder of COCO: three images with boxes."""
    return write_coco(tmp_path / "coco", BOXES)


@pytest.mark.parametrize("batches", sizes(True, False))
@pytest.mark.parametrize(
    ("source", "settings", "splits"),
    [
        ("table", {"label_column": "animal", "split_column": "part"}, "column:split"),
        ("table", {"features": {"id": "float", "kind": {"constant": 3}}}, None),
        ("photos", {}, "column:split"),
        ("boxes", {}, "column:split"),
    ],
)
def test_the_records_are_those_of_convert(
    source: str,
    settings: Row,
    splits: str | None,
    batches: bool,
    tmp_path: Folder,
    request: pytest.FixtureRequest,
) -> None:
    """Without steps between, each record has the bytes that `convert` gives it."""
    path = request.getfixturevalue(source)
    whole, again = tmp_path / "whole", tmp_path / "again"
    convert(path, whole, max_reject_rate=0.1, **settings)
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        read = pipeline | ReadRows(path, batches=batches, **settings)
        read.rows | WriteDataset(
            again, splits=splits, accounts=read.accounts, max_reject_rate=0.1
        )
    assert sorted(payloads(again)) == sorted(payloads(whole))
    manifests = [manifest_of(folder) for folder in (whole, again)]
    accounts = [dataclasses.replace(found.account, parts={}) for found in manifests]
    assert accounts[0] == accounts[1]
    assert manifests[0].inputs == manifests[1].inputs


def twice(row: Row) -> list[Row]:
    return [row, {**row, "id": row["id"] + 1000}]


def test_rows_that_steps_add(table: Folder, tmp_path: Folder) -> None:
    """More rows than were read are counted as added."""
    output = tmp_path / "out"
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        read = pipeline | ReadRows(table)
        read.rows | beam.FlatMap(twice) | WriteDataset(output, accounts=read.accounts)
    account = manifest_of(output).account
    assert account.added_by_steps == ROWS - 2
    assert account.written == 2 * (ROWS - 2)
    assert account.balance == 0


@pytest.mark.parametrize("source", ["table", "photos"])
def test_long_listings_are_made_again(
    source: str,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    """Files that the graph has no room for are listed again: the same rows."""
    path = request.getfixturevalue(source)
    whole = given_by(path)
    monkeypatch.setattr(read_rows, "_INLINE_BYTES", 0)
    again = given_by(path)
    assert len(again["rows"]) > 20
    assert sorted(map(repr, again["rows"])) == sorted(map(repr, whole["rows"]))


def test_a_source_that_changes_before_it_is_listed_again(
    photos: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other files than when the pipeline was built are an error."""
    monkeypatch.setattr(read_rows, "_INLINE_BYTES", 0)
    pipeline = beam.Pipeline(runner="FnApiRunner")
    read = pipeline | ReadRows(photos)
    assert_that(read.rows, equal_to([]))
    (photos / "train" / "cat" / "0.png").rename(photos / "train" / "cat" / "new.png")
    with pytest.raises(Exception, match=r"photos' has changed or is gone"):
        pipeline.run().wait_until_finish()


def test_the_graph_is_small(tmp_path: Folder) -> None:
    """Of a folder of thousands of files the graph holds at most 1 MiB."""
    folder = tmp_path / "many"
    for label in ("cat", "dog"):
        (folder / label).mkdir(parents=True)
        for number in range(8000):
            (folder / label / f"{number * 7919 % 8000:05d}.png").touch()
    pipeline = beam.Pipeline(runner="FnApiRunner")
    pipeline | ReadRows(folder)
    size = len(pipeline.to_runner_api().SerializeToString())
    assert size <= 1 << 20


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"splits": {"train": 1}}, "splits is not one of them. Give it to WriteData"),
        ({"resize": "exact:3"}, "resize is not one of them"),
        ({"key_column": "id"}, "key_column is not one of them"),
        ({"output": "x"}, "output is not one of them"),
        ({"delimitr": ";"}, "delimiter"),
    ],
)
def test_settings_that_are_refused(
    table: Folder, settings: dict[str, Any], said: str
) -> None:
    """What does not concern reading is another transform's; the error says whose."""
    with pytest.raises(SpecError, match=said):
        ReadRows(table, **settings)


def test_sources_that_are_refused(table: Folder) -> None:
    """Python data is no source, and a folder must be there when it is planned."""
    with pytest.raises(SpecError, match=r"beam\.Create"):
        ReadRows([{"id": 1}])  # type: ignore[arg-type]
    with pytest.raises(SourceError, match="must exist"):
        beam.Pipeline(runner="FnApiRunner") | ReadRows(table.parent / "nothing")
    with pytest.raises(SpecError, match=r"accounts=read\.accounts"):
        WriteDataset(table.parent / "out", accounts=3)  # type: ignore[arg-type]
