"""TFDS's files: read back by TFDS itself, every row with the right values."""

import dataclasses
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.support.datasets import ANIMALS, Row, animals, write_dataset
from tests.support.drawn_images import saved
from tests.support.image_sources import image_bytes
from tests.support.kinds import LISTS, write_kinds
from tests.support.runs import convert
from transforms.core.manifest import FeatureFacts, Manifest
from transforms.core.schema import BOX_SIDES, Feature, Kind
from transforms.core.statistics import Statistics
from transforms.sidecars import tfds

Folder = pathlib.Path

FLOAT_MIN = pytest.approx(-3.4028235e38)
IMAGES = (
    Feature("image", Kind.IMAGE),
    Feature("label", Kind.LABEL, is_label=True),
    Feature("height", Kind.INT64, derived="height"),
    Feature("width", Kind.INT64, derived="width"),
    Feature("depth", Kind.INT64, derived="depth"),
)


def builder(folder: Folder) -> Any:
    module = pytest.importorskip("tensorflow_datasets")
    return module.builder_from_directory(str(folder))


def read(folder: Folder, split: str = "train") -> list[dict[str, Any]]:
    """Returns the rows as TFDS yields them, arrays as lists, sorted by "id"."""
    rows = [
        {key: value.numpy() for key, value in row.items()}
        for row in builder(folder).as_dataset(split=split)
    ]
    rows = [
        {k: v.tolist() if hasattr(v, "tolist") else v for k, v in row.items()}
        for row in rows
    ]
    return sorted(rows, key=lambda row: row.get("id", 0))


def write(
    folder: Folder, rows: Sequence[Row], *features: Feature, **options: Any
) -> Manifest:
    """Writes one shard of rows; gives each an "id", so that they can be sorted."""
    rows = [{"id": number, **row} for number, row in enumerate(rows)]
    every = (Feature("id", Kind.INT64), *features)
    return write_dataset(folder, {"train": [rows]}, every, **options)


def picture(mode: str, kind: str, size: tuple[int, int] = (4, 3)) -> Row:
    """Returns the row of a drawn image."""
    depth = {"L": 1, "LA": 2, "RGB": 3, "RGBA": 4}[mode]
    return {
        "image": saved(Image.new(mode, size), kind),
        "height": size[1],
        "width": size[0],
        "depth": depth,
        "label": mode,
    }


def test_every_kind_in_several_shards_and_splits(tmp_path: Folder) -> None:
    """All rows of all splits, with an empty shard."""
    write_dataset(
        tmp_path / "out",
        {"train": animals(7, 0, 8), "test-1": animals(3, start=90)},
    )
    names = ["dog", "goat", "고양이"]
    for split, rows in (("train", animals(15)[0]), ("test-1", animals(3, start=90)[0])):
        assert read(tmp_path / "out", split) == [
            {
                "id": row["id"],
                "weight": row["weight"],
                "tame": row["tame"],
                "note": row.get("note", "").encode(),
                "raw": row["raw"],
                "animal": names.index(row["animal"]),
            }
            for row in rows
        ]
    info = builder(tmp_path / "out").info
    assert info.features["animal"].names == names
    assert {name: split.num_examples for name, split in info.splits.items()} == {
        "train": 15,
        "test-1": 3,
    }
    assert info.splits["train"].shard_lengths == [7, 0, 8]
    assert info.name == "animals"


@pytest.mark.parametrize("empty", [[], [[]], [[], []]])
def test_splits_without_records(tmp_path: Folder, empty: list[list[Row]]) -> None:
    """They are not listed: TFDS would then fail for all splits at once."""
    manifest = write_dataset(
        tmp_path / "out", {"train": animals(3), "test": empty, "x": empty}
    )
    assert "will not show 'test', 'x'" in tfds.render(manifest).notes[0]
    ((name, rows),) = builder(tmp_path / "out").as_dataset().items()
    assert (name, len(list(rows))) == ("train", 3)


def test_dataset_without_records(tmp_path: Folder) -> None:
    """TFDS opens it, and knows its features."""
    write_dataset(tmp_path / "out", {"train": [[]]})
    info = builder(tmp_path / "out").info
    assert set(info.features) == {feature.name for feature in ANIMALS}


def test_a_label_with_and_without_missing_values(tmp_path: Folder) -> None:
    """Where it is sometimes absent, it is a Sequence of at most one."""
    feature, rows = Feature("x", Kind.LABEL), [{"x": "dog"}, {"x": "cat"}]
    for name, more, found in (
        ("always", [], [1, 0]),
        ("sometimes", [{}], [[1], [0], []]),
    ):
        write(tmp_path / name, [*rows, *more], feature)
        assert [row["x"] for row in read(tmp_path / name)] == found
    write(tmp_path / "never", [{}, {}], feature)
    assert [row["x"] for row in read(tmp_path / "never")] == [[], []]


def test_names_with_slashes_and_korean_classes(tmp_path: Folder) -> None:
    """The labels file has '.' for '/', and the label still finds it."""
    features = (
        Feature("image/source", Kind.TEXT),
        Feature("image/class/label", Kind.LABEL, is_label=True),
        Feature("크기", Kind.FLOAT),
    )
    classes = ["강아지", "고양이", "말 한 마리"]
    rows = [
        {"image/source": "a", "image/class/label": name, "크기": 1.5}
        for name in classes
    ]
    write(tmp_path / "out", rows, *features)
    assert (tmp_path / "out" / "image.class.label.labels.txt").exists()
    assert [r["image/class/label"] for r in read(tmp_path / "out")] == [0, 1, 2]
    info = builder(tmp_path / "out").info
    assert info.features["image/class/label"].names == classes


@pytest.mark.parametrize(
    "classes",
    [
        ["a", " a"],
        ["a", "b "],
        ["", "a"],
        ["a", "\u3000"],
        ["a", "b\nc"],
        ["a", "b\rc"],
    ],
)
def test_class_names_that_tfds_would_change(
    tmp_path: Folder, classes: list[str]
) -> None:
    """They become plain ids, with a note; nothing is merged silently."""
    rows = [{"x": name} for name in classes]
    feature = Feature("x", Kind.LABEL, is_label=True)
    manifest = write(tmp_path / "out", rows, feature, classes={"x": classes})
    (note,) = tfds.render(manifest).notes
    assert "'x' as plain integers" in note
    assert not (tmp_path / "out" / "x.labels.txt").exists()
    assert [row["x"] for row in read(tmp_path / "out")] == [0, 1]


def test_labels_that_need_the_same_file(tmp_path: Folder) -> None:
    """Neither gets it: one would be shown with the other's names."""
    features = (Feature("a/b", Kind.LABEL), Feature("a.b", Kind.LABEL))
    manifest = write(tmp_path / "out", [{"a/b": "x", "a.b": "y"}], *features)
    sidecars = tfds.render(manifest)
    assert len(sidecars.notes) == 2
    assert sidecars.files.keys() == {"dataset_info.json", "features.json"}


@pytest.mark.parametrize(
    "name",
    ["Rows", "a-b.c", "1abc", "한국어 데이터", "my{SPLIT}", "a%20b", "-x", "a:b"],
)
def test_any_dataset_name(tmp_path: Folder, name: str) -> None:
    """TFDS finds the shards by its own default template."""
    write(tmp_path / "out", [{}, {}], name=name)
    assert [row["id"] for row in read(tmp_path / "out")] == [0, 1]


@pytest.mark.parametrize(
    ("rows", "channels"),
    [
        ([picture("RGB", "JPEG"), picture("RGB", "PNG"), picture("RGB", "BMP")], 3),
        ([picture("L", "PNG"), picture("RGB", "JPEG"), picture("L", "BMP")], 3),
        ([picture("RGBA", "PNG"), picture("RGBA", "BMP")], 4),
        ([picture("LA", "PNG")], 3),
        ([picture("L", "PNG", (64, 64))], 1),
        ([picture("L", "JPEG", (64, 64)), picture("L", "JPEG", (80, 64))], 1),
        ([picture("L", "BMP", (64, 64)), picture("L", "PNG", (64, 64))], None),
    ],
)
def test_images(tmp_path: Folder, rows: Sequence[Row], channels: int | None) -> None:
    """Every image decodes; its channels are known where they are all alike."""
    write(tmp_path / "out", rows, *IMAGES)
    info = builder(tmp_path / "out").info
    assert info.features["image"].shape == (None, None, channels)
    found = read(tmp_path / "out")
    assert [
        (len(row["image"]), len(row["image"][0]), len(row["image"][0][0]))
        for row in found
    ] == [(row["height"], row["width"], channels or row["depth"]) for row in rows]


def test_image_that_is_not_always_there(tmp_path: Folder) -> None:
    """It is a Sequence of at most one."""
    rows = [picture("RGB", "PNG"), {"label": "none"}]
    write(tmp_path / "out", rows, *IMAGES)
    assert [len(row["image"]) for row in read(tmp_path / "out")] == [1, 0]


@pytest.mark.parametrize(
    ("features", "row", "keys"),
    [
        (IMAGES, picture("RGB", "PNG"), ("image", "label")),
        (
            (Feature("text", Kind.TEXT), Feature("a/b", Kind.INT64, is_label=True)),
            {"text": "x", "a/b": 7},
            ("text", "a/b"),
        ),
    ],
)
def test_as_supervised(
    tmp_path: Folder, features: Sequence[Feature], row: Row, keys: tuple[str, str]
) -> None:
    """(input, label) where it is clear which the input is."""
    write_dataset(tmp_path / "out", {"train": [[row]]}, features)
    found = builder(tmp_path / "out")
    assert found.info.supervised_keys == keys
    ((_, label),) = found.as_dataset(split="train", as_supervised=True)
    assert int(label) in (0, 7)


def info_of(manifest: Manifest) -> Mapping[str, Any]:
    return json.loads(tfds.render(manifest).files["dataset_info.json"])


def test_no_supervised_keys_when_the_input_is_unclear(tmp_path: Folder) -> None:
    """Several features beside the label, or no label."""
    manifest = write_dataset(tmp_path / "a", {"train": animals(3)}, ANIMALS)
    assert "supervisedKeys" not in info_of(manifest)
    assert "supervisedKeys" not in info_of(write(tmp_path / "b", [{}]))


def test_dataset_info_byte_for_byte(tmp_path: Folder) -> None:
    """Lengths of all shards; bytes are those of the records, without framing."""
    manifest = write_dataset(
        tmp_path / "out",
        {"train": [[{"id": 1}, {"id": 2}], []]},
        [Feature("id", Kind.INT64)],
        name="한",
    )
    assert tfds.render(manifest).files["dataset_info.json"] == (
        b"""{
  "name": "\\ud55c",
  "version": "1.0.0",
  "fileFormat": "tfrecord",
  "splits": [
    {
      "name": "train",
      "shardLengths": [
        "2",
        "0"
      ],
      "numBytes": "30"
    }
  ]
}
"""
    )


def test_class_names_are_complete_and_unique(tmp_path: Folder) -> None:
    """One line each, as many as numClasses: TFDS itself does not check."""
    manifest = write_dataset(tmp_path / "out", {"train": animals(9)})
    sidecars = tfds.render(manifest)
    assert sidecars.files["animal.labels.txt"].decode() == "dog\ngoat\n고양이\n"
    features = json.loads(sidecars.files["features.json"])["featuresDict"]["features"]
    assert features["animal"]["classLabel"] == {"numClasses": "3"}


def shown(folder: Folder, name: str) -> list[Any]:
    """Returns one feature of all rows as TFDS yields it; ragged ones as lists."""
    values = [row[name] for row in builder(folder).as_dataset(split="train")]
    plain = [v.to_list() if hasattr(v, "to_list") else v.numpy() for v in values]
    return [v.tolist() if hasattr(v, "tolist") else v for v in plain]


@pytest.mark.parametrize(
    ("feature", "values", "wanted", "absent"),
    [
        (Feature("x", Kind.INT64), [2**63 - 1, -(2**63)], [], -(2**63)),
        (Feature("x", Kind.FLOAT), [0.5, -0.0], [], FLOAT_MIN),
        (Feature("x", Kind.BOOL), [True, False], [], False),
        (Feature("x", Kind.TEXT), ["한국어", ""], ["한국어".encode(), b""], b""),
        (Feature("x", Kind.BYTES), [b"\xff\x00", b""], [], b""),
        *((*case, absent) for *case, _, absent in LISTS),
        (
            Feature("x", Kind.INT64, shape=(2, None)),
            [[1, 2, 3, 4], []],
            [[[1, 2], [3, 4]], [[], []]],
            [[], []],
        ),
    ],
)
def test_lists_with_and_without_missing_values(
    tmp_path: Folder,
    feature: Feature,
    values: list[Any],
    wanted: list[Any],
    absent: Any,
) -> None:
    """Every kind and shape: always present, sometimes absent, absent everywhere."""
    rows = [{"x": value} for value in values]
    manifest = write_kinds(tmp_path / "always", rows, [feature])
    assert not tfds.render(manifest).notes
    assert shown(tmp_path / "always", "x") == (wanted or values)
    write_kinds(tmp_path / "sometimes", [*rows, {}], [feature])
    assert shown(tmp_path / "sometimes", "x") == [*(wanted or values), absent]
    write_kinds(tmp_path / "never", [{}], [feature])
    assert shown(tmp_path / "never", "x") == [absent]
    if feature.kind is Kind.LABEL:
        info = builder(tmp_path / "sometimes").info
        inner = info.features["x"]
        assert inner.names == ["a", "b", "c"]


@pytest.mark.parametrize("dtype", "bool int8 uint16 uint64 float16 float64".split())
@pytest.mark.parametrize("shape", [(), (2, 3), (None, 3)])
def test_raw_tensors(
    tmp_path: Folder, dtype: str, shape: tuple[int | None, ...]
) -> None:
    """TFDS decodes them to their type and shape; an absent one is an empty Sequence."""
    size = (2, 3) if shape else ()
    array = np.arange(6)[: 6 if shape else 1].reshape(size).astype(dtype)
    feature = Feature("x", Kind.TENSOR, shape=shape, dtype=dtype, encoding="raw")
    rows = [{"x": array.tobytes()}]
    assert not tfds.render(write_kinds(tmp_path / "all", rows, [feature])).notes
    (row,) = builder(tmp_path / "all").as_dataset(split="train")
    assert row["x"].dtype.name == dtype
    assert row["x"].numpy().tolist() == array.tolist()
    write_kinds(tmp_path / "some", [*rows, {}], [feature])
    assert shown(tmp_path / "some", "x") == [[array.tolist()], []]


@pytest.mark.parametrize(
    ("feature", "why"),
    [
        (Feature("x", Kind.TENSOR, shape=(2,), dtype="uint32"), "cannot decode uint32"),
        (Feature("x", Kind.TENSOR, shape=(None, None), dtype="int8"), "more than one"),
        (
            Feature("x", Kind.TENSOR, shape=(2,), dtype="int8", encoding="proto"),
            "tf.io.parse_tensor",
        ),
    ],
)
def test_tensors_that_tfds_cannot_decode(
    tmp_path: Folder, feature: Feature, why: str
) -> None:
    """They are shown as bytes, and a note says so."""
    rows = [{"x": bytes(8)}, {}]
    (note,) = tfds.render(write_kinds(tmp_path / "out", rows, [feature])).notes
    assert why in note
    assert shown(tmp_path / "out", "x") == [bytes(8), b""]


def test_labels_of_two_dimensions(tmp_path: Folder) -> None:
    """They are plain ids in their shape, and a note says so."""
    feature = Feature("x", Kind.LABEL, shape=(2, 2))
    rows = [{"x": ["b", "a", "a", "b"]}]
    manifest = write_kinds(tmp_path / "out", rows, [feature])
    (note,) = tfds.render(manifest).notes
    assert "more than one dimension" in note
    assert shown(tmp_path / "out", "x") == [[[1, 0], [0, 1]]]


def test_lists_of_a_shape_that_tfds_has_not(tmp_path: Folder) -> None:
    """Several open sizes, and sizes of 0 that TensorFlow would divide by: flat."""
    for number, shape in enumerate([(None, None, 2), (None, 0)]):
        feature = Feature("x", Kind.INT64, shape=shape)
        values = [1, 2, 3, 4] if all(shape[-1:]) else []
        manifest = write_kinds(tmp_path / f"{number}", [{"x": values}], [feature])
        (note,) = tfds.render(manifest).notes
        assert "flat lists" in note
        assert shown(tmp_path / f"{number}", "x") == [values]


def test_boxes_and_their_labels(tmp_path: Folder) -> None:
    """Four parallel lists, and the names of the labels; empty lists are accepted."""
    features = [Feature("box", Kind.BOX), Feature("what", Kind.LABEL, shape=(None,))]
    rows: list[dict[str, Any]] = [
        {
            "box": [[0.0, 0.25, 0.5, 1.0], [0.5, 0.5, 0.75, 0.75]],
            "what": ["dog", "cat"],
        },
        {"box": [], "what": []},
        {},
    ]
    write_kinds(tmp_path / "out", rows, features)
    sides = [shown(tmp_path / "out", f"box/{side}") for side in BOX_SIDES]
    assert sides == [
        [[0.0, 0.5], [], []],
        [[0.25, 0.5], [], []],
        [[0.5, 0.75], [], []],
        [[1.0, 0.75], [], []],
    ]
    assert shown(tmp_path / "out", "what") == [[1, 0], [], []]
    assert builder(tmp_path / "out").info.features["what"].names == ["cat", "dog"]


def test_several_images_in_a_record(tmp_path: Folder) -> None:
    """Each has the channels of what is derived from it; text is derived too."""
    features = [
        Feature("gray", Kind.IMAGE),
        Feature("colour", Kind.IMAGE),
        Feature("gray/depth", Kind.INT64, derived="depth", derived_from="gray"),
        Feature("gray/height", Kind.INT64, derived="height", derived_from="gray"),
        Feature("gray/width", Kind.INT64, derived="width", derived_from="gray"),
        Feature("colour/depth", Kind.INT64, derived="depth", derived_from="colour"),
        Feature("colour/format", Kind.TEXT, derived="format", derived_from="colour"),
    ]
    row = {
        "gray": picture("L", "PNG", (64, 64))["image"],
        "colour": picture("RGBA", "PNG")["image"],
        "gray/depth": 1,
        "gray/height": 64,
        "gray/width": 64,
        "colour/depth": 4,
        "colour/format": "png",
    }
    write_kinds(tmp_path / "out", [row], features)
    (found,) = builder(tmp_path / "out").as_dataset(split="train")
    assert found["gray"].shape == (64, 64, 1)
    assert found["colour"].shape == (3, 4, 4)
    assert found["colour/format"].numpy() == b"png"


def test_what_is_internal_is_not_shown(tmp_path: Folder) -> None:
    """It is in no record, so TFDS gets no feature for it."""
    features = [Feature("x", Kind.INT64), Feature("y", Kind.LABEL, internal=True)]
    manifest = write_kinds(tmp_path / "out", [{"x": 1}], features[:1])
    hidden = FeatureFacts(features[1], Statistics())
    manifest = dataclasses.replace(manifest, features=(*manifest.features, hidden))
    files = tfds.render(manifest).files
    assert files.keys() == {"dataset_info.json", "features.json"}
    listed = json.loads(files["features.json"])["featuresDict"]["features"]
    assert listed.keys() == {"x"}


@pytest.mark.parametrize(
    ("split", "compression", "why"),
    [
        ("train", "gzip", "reads no compressed files"),
        ("train", "zlib", "reads no compressed files"),
        ("--", "none", "letter or a digit"),
    ],
)
def test_what_tfds_reads_nothing_of(
    tmp_path: Folder, split: str, compression: str, why: str
) -> None:
    """Compressed files, and a split whose name would make all unreadable."""
    splits = {split: animals(1)}
    manifest = write_dataset(tmp_path / "out", splits, compression=compression)
    sidecars = tfds.render(manifest)
    assert not sidecars.files
    assert why in sidecars.notes[0]


@pytest.mark.parametrize("sizes", [(6, 6), (6, 9)])
def test_tfds_reads_lists_of_images(sizes: tuple[int, int], tmp_path: Folder) -> None:
    """Decoded where they have one size, as files where they do not."""
    tfds = pytest.importorskip("tensorflow_datasets")
    for n, width in enumerate(sizes):
        (tmp_path / f"{n}.png").write_bytes(image_bytes(n, size=(width, 4)))
    lists = [{"images": ["0.png", "1.png"]}, {"images": ["1.png"]}]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, lists)) + "\n")
    convert(tmp_path / "t.jsonl", tmp_path / "out", "--no-shuffle")
    found = tfds.builder_from_directory(str(tmp_path / "out")).as_dataset("train")
    shapes = [row["images"].shape.as_list() for row in found]
    if sizes[0] == sizes[1]:
        assert shapes == [[2, 4, 6, 3], [1, 4, 6, 3]]
    else:
        assert shapes == [[2], [1]]
