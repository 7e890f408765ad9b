"""Schemas that are given, or that the type of the rows says; images in rows."""

import dataclasses
import pathlib
from typing import Any, NamedTuple, Optional

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from beam_pipeline.own_pipelines.write_dataset import WriteDataset
from tests.support.gathered_rows import gather
from tests.support.image_sources import image_bytes
from tests.support.outputs import notes_of, rejects, rows
from tests.support.own_pipelines import write_rows
from transforms.codec.examples import decode_example
from transforms.core.example.encoder import encode_examples
from transforms.core.image.png import encode_png
from transforms.core.schema import Kind
from transforms.errors import (
    EncodingError,
    InputError,
    SpecError,
)

Folder = pathlib.Path
ROWS = [{"id": n, "pet": ("cat", "dog")[n % 2], "size": n / 4} for n in range(20)]
PIXELS = np.arange(48, dtype=np.uint8)
PNG = encode_png(PIXELS.reshape(1, 4, 4, 3))[0].as_py()


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """An earlier dataset of ROWS."""
    output = tmp_path_factory.mktemp("earlier") / "first"
    write_rows(ROWS, output, label="pet")
    return output


class Named(NamedTuple):
    """Rows with hints."""

    id: int
    name: Optional[str]  # noqa: UP045
    sizes: list[float]
    weight: float


@dataclasses.dataclass
class Plain:
    """The same as a dataclass."""

    id: int
    name: str | None = None


def test_declared_kinds_are_strict() -> None:
    """No float is an integer, and no text a number; the origin is hash or key."""
    rows = [
        {"id": 1, "k": "a"},
        {"id": 2.5, "k": "b"},
        {"id": "3", "k": "c"},
        {"id": 4.0, "k": "d"},
    ]
    found = gather([rows], features={"id": "int64"}, key="k")
    assert {r.source for r in found.rejections} == {"b", "c", "d"}
    assert {r.reason for r in found.rejections} == {"not_an_integer"}
    assert [r.source for r in found.rejections if "no text" in r.message] == ["c"]
    hashed = gather([rows], features={"id": "int64"})
    assert all(len(r.source) == 16 for r in hashed.rejections)


def test_words_of_a_spec() -> None:
    """Lists, shapes, constants, renamed and dropped columns, labels, times."""
    rows = [
        {"v": [1, 2, 3], "w": [[1], []], "old": 1, "bad": 1, "t": 7, "c": "x"},
        {"v": [1.5, 2, 3], "w": [[2]], "old": 2, "bad": "x", "t": 8, "c": "y"},
    ]
    found = gather(
        [rows],
        drop=["bad"],
        features={
            "v": {"kind": "float", "shape": [3]},
            "new": {"column": "old"},
            "version": {"constant": 5},
            "t": {"kind": "timestamp", "unit": "s"},
            "c": {"kind": "label", "vocabulary": ["y", "x"]},
        },
    )
    schema = found.schema
    assert schema["v"].shape == (3,)
    assert schema["w"].shape == (None, None)
    assert schema["new"].column == "old"
    assert schema["version"].constant == 5
    assert schema["t"].unit == "s"
    assert found.classes["c"] == ["y", "x"]
    assert "bad" not in schema.names
    assert not found.rejections


def test_like_takes_schema_class_ids_and_splits(tmp_path: Folder) -> None:
    """Fewer classes and other orders of columns change nothing."""
    first = tmp_path / "first"
    splits = {"train": 0.5, "test": 0.5}
    write_rows(ROWS, first, label="pet", splits=splits, key="id", seed=3)
    found = gather([[{"size": None, "pet": "dog", "id": 5}]], like=first)
    assert found.schema.names == ("id", "pet", "size")
    assert found.classes["pet"] == ["cat", "dog"]
    assert found.plan.layout.sharding.rule.names == ("train", "test")
    assert found.plan.layout.sharding.keyed
    assert found.plan.layout.sharding.seed == 3


def test_drift_is_one_error(first: Folder) -> None:
    """A column that is gone, one that is new, another kind and a class, all named."""
    strange = [{"id": n / 4, "pet": "cow", "more": 1} for n in range(1, 9)]
    with pytest.raises(InputError) as caught:
        gather([strange[:4], strange[4:]], like=first)
    message = str(caught.value)
    assert all(word in message for word in ("'size' is gone", "'more' is new"))
    assert all(word in message for word in ("'id' was int64", "'0.25'", "'cow'"))
    # Rows that are wrong by themselves are rejects.
    rows = [row | {"pet": "cow" if row["id"] == 3 else row["pet"]} for row in ROWS]
    found = gather(
        [[*rows, {"id": "x", "pet": "cat", "size": 1.0}]],
        like=first,
        allow=["new-classes"],
    )
    assert [r.reason for r in found.rejections] == ["not_an_integer"]
    assert found.classes["pet"] == ["cat", "dog", "cow"]


def test_whole_floats_are_integers_of_an_earlier_dataset(first: Folder) -> None:
    """As in `convert`; integers beside them stay exact, and fractions are rejects."""
    floats = [ROWS[0] | {"id": float(n)} for n in range(200)]
    others = [ROWS[0] | {"id": value} for value in (2**60 + 1, 2.5)]
    found = gather([floats, others], like=first)
    assert [r.reason for r in found.rejections] == ["not_an_integer"]
    examples = [decode_example(r) for part in found.records.values() for r in part]
    assert {int(row["id"]) for row in examples} == {*range(200), 2**60 + 1}


def test_a_column_that_is_dropped_is_no_drift(first: Folder) -> None:
    """One that is new is left out; one of the earlier dataset is gone."""
    rows = [row | {"more": 1} for row in ROWS]
    found = gather([rows], like=first, drop=["more"])
    assert found.schema.names == ("id", "pet", "size")
    with pytest.raises(InputError, match="'size' is gone"):
        gather([ROWS], like=first, drop=["size"])


def test_like_refuses_splits_that_no_rule_gave(tmp_path: Folder) -> None:
    """A table of ids knows no other rows: they would all be in train."""
    table, first = tmp_path / "ids.csv", tmp_path / "first"
    table.write_text("id,split\n1,train\n2,test\n")
    write_rows([{"id": 1}, {"id": 2}], first, key="id", split_ids=str(table))
    with pytest.raises(SpecError, match="Give splits= or split_ids="):
        WriteDataset("out", like=first)
    WriteDataset("out", like=first, splits={"train": 0.5, "test": 0.5})
    WriteDataset("out", like=first, key="id", split_ids=str(table))


@pytest.mark.parametrize("kind", [Named, Plain])
def test_the_type_of_the_rows_says_the_features(kind: type[Any]) -> None:
    """Whole floats stay floats; what is not of the type is a reject."""
    if kind is Named:
        rows: list[Any] = [Named(1, None, [1.0], 2.0**30), Named(2, "x", [], 5)]
        wrong: Any = Named(2.5, "x", [], 5.0)  # type: ignore[arg-type]
    else:
        rows, wrong = [Plain(1), Plain(2, "x")], Plain("7")  # type: ignore[arg-type]
    found = gather([[*rows, wrong], rows], element_type=kind)
    kinds = {f.name: (f.kind, f.shape) for f in found.schema.features}
    assert kinds["id"] == (Kind.INT64, ())
    assert kinds["name"] == (Kind.TEXT, ())
    if kind is Named:
        assert kinds["sizes"] == (Kind.FLOAT, (None,))
        assert kinds["weight"] == (Kind.FLOAT, ())
    assert [r.reason for r in found.rejections] == ["not_an_integer"]


def test_rows_of_beam_say_their_types(tmp_path: Folder) -> None:
    """The schema of `beam.Row`s is known without a look at them, even at no rows."""
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        rows = pipeline | beam.Create([Named(1, "a", [2.0], 3.0)])
        rows = rows | beam.Filter(lambda row: row.id > 5).with_output_types(Named)
        rows | WriteDataset(tmp_path / "out", min_records=0)
    text = (tmp_path / "out" / "manifest.json").read_text()
    assert '"weight"' in text


def test_serialised_examples_are_no_rows() -> None:
    """The message names the step that makes rows of them."""
    payloads = encode_examples(pa.RecordBatch.from_pydict({"id": [1, 2]}))
    with pytest.raises(EncodingError, match=r"DecodeExamples\(\)"):
        gather([payloads], features={"id": "int64"})


def test_paths_of_images(tmp_path: Folder) -> None:
    """Relative ones need images_root; a path counts the bytes of its file."""
    for number in range(20):
        (tmp_path / f"{number}.png").write_bytes(PNG + bytes(1000 * number))
    rows = [{"image_path": f"{number}.png"} for number in range(20)]
    with pytest.raises(SpecError, match="20 in 'image_path' are relative"):
        gather([rows])
    found = gather([rows], images_root=str(tmp_path), shard_size=40_000)
    assert len(found.records) >= 4
    assert gather([[{"image_path": "/x/a.png"}]]).schema["image"].kind is Kind.IMAGE


def test_images_are_read_when_shards_are_written(tmp_path: Folder) -> None:
    """Pixels, files and paths of an image are one image; a lost file is a reject."""
    (tmp_path / "a.png").write_bytes(PNG)
    pixels = PIXELS.reshape(4, 4, 3)
    given = [{"pixels": pixels, "file": PNG, "path": f"{x}.png"} for x in "ab"]
    write_rows(
        given,
        tmp_path / "out",
        features=dict.fromkeys(given[0], "image"),
        images_root=str(tmp_path),
        max_reject_rate=0.5,
    )
    (row,) = rows(tmp_path / "out")
    for name in given[0]:
        assert row[name] == PNG
        sizes = [row[f"{name}/{side}"] for side in ("height", "width", "depth")]
        assert sizes == [4, 4, 3]
    (reject,) = rejects(tmp_path / "out")
    assert reject["reason"] == "unreadable"
    assert "'b.png'" in reject["message"]


@pytest.mark.parametrize("how", ["paths", "bytes", "arrays"])
def test_an_image_in_two_splits_is_noted(how: str, tmp_path: Folder) -> None:
    """The note says how many there are, and where one is: its path, or its key."""
    rows: list[dict[str, Any]] = []
    for number in range(12):
        path = tmp_path / f"{number}.png"
        # Image 0 is also image 9, in the other split.
        path.write_bytes(image_bytes(number % 9))
        image: Any = str(path)
        if how != "paths":
            image = (
                path.read_bytes() if how == "bytes" else np.asarray(Image.open(path))
            )
        split = "test" if number == 9 else "train"
        rows.append({"id": f"row {number}", "image": image, "split": split})
    write_rows(
        rows,
        tmp_path / "out",
        key="id",
        splits="column:split",
        features={"image": "image"},
    )
    (note,) = notes_of(tmp_path / "out")
    first, last = (
        (tmp_path / "0.png", tmp_path / "9.png")
        if how == "paths"
        else ("row 0", "row 9")
    )
    assert note == (
        f"1 image stands in more than one split: train and test: 1; for example test: "
        f"{last} = train: {first}"
    )
