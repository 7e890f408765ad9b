"""`code --as tensorflow`: what is printed runs, and parses every record."""

import pathlib
from typing import Any

import numpy as np
import PIL.Image
import pytest

from beam_pipeline import reader_programs
from tests.support.datasets import animals, write_dataset
from tests.support.kinds import LISTS, write_kinds
from tests.support.runs import convert
from transforms.core.schema import Feature, Kind
from transforms.errors import UsageError

Folder = pathlib.Path


def printed(folder: Folder, capsys: pytest.CaptureFixture[str]) -> str:
    assert reader_programs.show(str(folder), "tensorflow") == 0
    return capsys.readouterr().out


def run(code: str, split: str = "train") -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Executes the text; returns its names, and the split's rows as plain values."""
    pytest.importorskip("tensorflow")
    names: dict[str, Any] = {}
    exec(code, names)
    rows = [
        {key: value.numpy() for key, value in row.items()}
        for row in names["read"](split)
    ]
    return names, rows


@pytest.mark.parametrize("compression", ["none", "gzip", "zlib"])
def test_the_text_reads_every_record(
    tmp_path: Folder, capsys: pytest.CaptureFixture[str], compression: str
) -> None:
    """Several shards, one of them empty, every kind of feature, absent values."""
    shards = animals(7, 0, 8)
    write_dataset(tmp_path / "out", {"train": shards, "x": []}, compression=compression)
    names, rows = run(printed(tmp_path / "out", capsys))
    classes = names["CLASSES"]["animal"]
    assert classes == ["dog", "goat", "고양이"]
    for expected, row in zip(animals(15)[0], rows, strict=True):
        assert row == {
            "id": expected["id"],
            "weight": expected["weight"],
            "tame": int(expected["tame"]),
            "note": expected.get("note", "").encode(),
            "raw": expected["raw"],
            "animal": classes.index(expected["animal"]),
        }
    assert run(printed(tmp_path / "out", capsys), "x")[1] == []


def test_absent_values_become_defaults_that_no_record_holds(
    tmp_path: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    """The default is -1, below the smallest value, or NaN; text has no free value."""
    features = [
        Feature("positive", Kind.INT64),
        Feature("negative", Kind.INT64),
        Feature("lowest", Kind.INT64),
        Feature("never", Kind.INT64),
        Feature("float", Kind.FLOAT),
        Feature("bool", Kind.BOOL),
        Feature("text", Kind.TEXT),
        Feature("label", Kind.LABEL),
    ]
    row = {
        "positive": 0,
        "negative": -7,
        "lowest": -(2**63),
        "float": 1.0,
        "bool": True,
        "text": "x",
        "label": "a",
    }
    write_dataset(tmp_path / "out", {"train": [[row, {}]]}, features)
    code = printed(tmp_path / "out", capsys)
    _, (_, absent) = run(code)
    assert absent.pop("float") != absent.get("float")
    assert absent == {
        "positive": -1,
        "negative": -8,
        "lowest": 0,
        "never": -1,
        "bool": -1,
        "text": b"",
        "label": -1,
    }
    assert "# in 50.0 % of the records; elsewhere -8, which no record holds" in code
    assert "# in 0 % of the records" in code


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_the_number_of_records_is_known_and_checked(
    tmp_path: Folder, capsys: pytest.CaptureFixture[str], compression: str
) -> None:
    """Each split has its cardinality; where a shard has lost records, reading fails."""
    tensorflow = pytest.importorskip("tensorflow")
    splits = {"train": animals(4, 3), "test": animals(2), "empty": []}
    write_dataset(tmp_path / "out", splits, compression=compression)
    names, _ = run(printed(tmp_path / "out", capsys))
    for split, count in {"train": 7, "test": 2, "empty": 0}.items():
        dataset = names["read"](split)
        assert int(dataset.cardinality()) == count
        assert sum(1 for _ in dataset) == count
    first, second = sorted((tmp_path / "out").glob("*train*"))
    first.write_bytes(second.read_bytes())
    with pytest.raises(tensorflow.errors.FailedPreconditionError, match="7 elements"):
        list(names["read"]("train"))


def test_the_comment_on_an_image_decodes_it_inside_a_map(
    tmp_path: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    """Images of all formats are decoded, resized and batched, as a user would do it."""
    tensorflow = pytest.importorskip("tensorflow")
    stored = "RGB.jpg L.jpg RGB.png RGBA.png L.png P.gif RGB.bmp".split()
    for index, (mode, _, kind) in enumerate(each.partition(".") for each in stored):
        path = tmp_path / "in" / "train" / f"{index % 2}" / f"{index}.{kind}"
        path.parent.mkdir(parents=True, exist_ok=True)
        PIL.Image.new(mode, (20 + index, 10)).save(path)
    converted = convert(tmp_path / "in", tmp_path / "out")
    assert converted.code == 0
    capsys.readouterr()
    code = printed(tmp_path / "out", capsys)
    (comment,) = (line for line in code.splitlines() if "an encoded image: " in line)
    assert len(comment) <= 88
    decode = eval(f"lambda value: {comment.partition(': ')[2]}", {"tf": tensorflow})
    names, _ = run(code)

    def example(row: dict[str, Any]) -> tuple[Any, Any]:
        return tensorflow.image.resize(decode(row["image"]), [8, 6]), row["label"]

    batches = list(names["read"]("train").map(example).batch(7))
    assert [images.shape for images, _ in batches] == [(7, 8, 6, 3)]


def test_a_file_of_the_dataset_is_none(tmp_path: Folder) -> None:
    """A shard alone is no dataset, and the message says what to name."""
    write_dataset(tmp_path / "out", {"train": animals(2)})
    shard = tmp_path / "out" / "animals-train.tfrecord-00000-of-00001"
    with pytest.raises(UsageError, match="Name the folder of its dataset"):
        reader_programs.show(str(shard), "tensorflow")


def plain(value: Any) -> Any:
    """A tensor's value, ragged or not, as plain lists."""
    found = value.to_list() if hasattr(value, "to_list") else value.numpy()
    return found.tolist() if hasattr(found, "tolist") else found


def columns(code: str, batched: str = "") -> dict[str, list[Any]]:
    """Executes the text; returns the values of all rows by key."""
    pytest.importorskip("tensorflow")
    names: dict[str, Any] = {}
    exec(code, names)
    dataset = names["read"]("train")
    if batched:
        (row,) = getattr(dataset, batched)(1000)
        return {key: plain(value) for key, value in row.items()}
    rows = list(dataset)
    return {key: [plain(row[key]) for row in rows] for key in rows[0]}


def decoded(code: str, key: str, value: Any) -> Any:
    """Evaluates the expression that the comment above an entry gives for its value."""
    tensorflow = pytest.importorskip("tensorflow")
    lines = [line.strip() for line in code.splitlines()]
    (at,) = (i for i, line in enumerate(lines) if line.startswith(f'"{key}": tf.io'))
    while ": " not in lines[at] or not lines[at].startswith("#"):
        at -= 1
    expression = lines[at].partition(": ")[2]
    return eval(expression, {"tf": tensorflow, "value": value})


OPEN_INSIDE = Feature("x", Kind.INT64, shape=(2, None))


@pytest.mark.parametrize(
    ("feature", "values", "wanted", "absent"),
    [
        *((*case, absent) for *case, absent, _ in LISTS),
        (OPEN_INSIDE, [[1, 2, 3, 4], []], [], []),
        (Feature("x", Kind.INT64, shape=(None, 0)), [[], []], [], []),
    ],
)
def test_lists_with_and_without_missing_values(
    tmp_path: Folder,
    capsys: pytest.CaptureFixture[str],
    feature: Feature,
    values: list[Any],
    wanted: list[Any],
    absent: Any,
) -> None:
    """Every shape, one by one and in batches of lists of different lengths."""
    rows = [{"x": value} for value in values]
    write_kinds(tmp_path / "always", rows, [feature])
    code = printed(tmp_path / "always", capsys)
    assert columns(code)["x"] == (wanted or values)
    assert columns(code, "ragged_batch")["x"] == (wanted or values)
    write_kinds(tmp_path / "sometimes", [*rows, {}], [feature])
    code = printed(tmp_path / "sometimes", capsys)
    found = columns(code)["x"]
    assert found[:-1] == (wanted or values)
    if absent is None:
        assert np.isnan(found[-1]).all()
    else:
        assert found[-1] == absent
    hint = "ragged_batch" in code
    assert hint is (None in feature.shape or 0 in feature.shape)
    write_kinds(tmp_path / "never", [{}], [feature])
    assert len(columns(printed(tmp_path / "never", capsys))["x"]) == 1


DTYPES = "bool int8 uint16 uint32 uint64 int64 float16 float32 float64".split()
SIX = np.arange(6).reshape(2, 3)
TENSORS = [
    (Feature("x", Kind.TENSOR, shape=shape, dtype=dtype, encoding=encoding), array)
    for dtype in DTYPES
    for shape, array in (((), SIX[0, 1]), ((2, 3), SIX), ((None, 3), SIX))
    if shape == (2, 3) or dtype == "float32"
    for encoding in ("raw", "proto")
]
TIMES = [
    (
        Feature("x", Kind.TIMESTAMP, unit=unit),
        np.datetime64("2024-02-29T12:34:56", unit),
    )
    for unit in ("s", "ms", "us", "ns")
]
# Raw bytes do not say where a row ends.
FLAT = Feature("x", Kind.TENSOR, shape=(None, None), dtype="int16", encoding="raw")


@pytest.mark.parametrize(
    ("feature", "array"),
    [*TENSORS, *TIMES, (FLAT, np.arange(6)), (OPEN_INSIDE, SIX)],
)
def test_the_comment_on_a_value_decodes_it(
    tmp_path: Folder, capsys: pytest.CaptureFixture[str], feature: Feature, array: Any
) -> None:
    """Tensors of both encodings, instants of each unit, lists of an open size."""
    tensorflow = pytest.importorskip("tensorflow")
    array = array.astype(feature.dtype) if feature.dtype else array
    stored = array.astype(np.int64).reshape(-1).tolist()
    if feature.kind is Kind.TIMESTAMP:
        (stored,) = stored
    elif feature.encoding == "proto":
        stored = tensorflow.io.serialize_tensor(array).numpy()
    elif feature.encoding:
        stored = array.tobytes()
    write_kinds(tmp_path / "out", [{"x": stored}], [feature])
    code = printed(tmp_path / "out", capsys)
    dtype = tensorflow.string if isinstance(stored, bytes) else tensorflow.int64
    value = tensorflow.constant(columns(code)["x"][0], dtype)
    found = decoded(code, "x", value)
    if feature.kind is Kind.TIMESTAMP:
        assert found == array
        return
    assert found.dtype.name == array.dtype
    assert found.numpy().tolist() == array.tolist()


def test_boxes_and_several_images(
    tmp_path: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    """Four parallel lists for the boxes; each image is a feature of its own."""
    features = [
        Feature("left", Kind.IMAGE),
        Feature("right", Kind.IMAGE),
        Feature("left/format", Kind.TEXT, derived="format", derived_from="left"),
        Feature("box", Kind.BOX),
    ]
    boxes = [[0.0, 0.25, 0.5, 1.0], [0.5, 0.5, 0.75, 0.75]]
    rows = [{"left": b"L", "right": b"R", "left/format": "png", "box": boxes}, {}]
    write_kinds(tmp_path / "out", rows, features)
    code = printed(tmp_path / "out", capsys)
    found = columns(code)
    assert (found["left"], found["right"]) == ([b"L", b""], [b"R", b""])
    assert found["left/format"] == [b"png", b""]
    sides = [found[f"box/{side}"] for side in ("xmin", "ymin", "xmax", "ymax")]
    assert sides == [[list(side), []] for side in zip(*boxes, strict=True)]
    assert code.count("an encoded image") == 2
