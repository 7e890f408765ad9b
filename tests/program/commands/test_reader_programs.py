"""The programs that `code --as` prints, as texts; `tests/opens_in` runs them."""

import ast
import pathlib

import pytest

from beam_pipeline.datasets.dataset import Dataset, open_target
from beam_pipeline.reader_programs import READERS, program
from beam_pipeline.reader_programs.programs import Facts
from tests.support.datasets import animals, write_dataset
from tests.support.kinds import Row, write_kinds
from tests.support.runs import command
from transforms.core.schema import Feature, Kind
from transforms.errors import UsageError

Folder = pathlib.Path


def facts_of(folder: Folder) -> Facts:
    target = open_target(str(folder))
    assert isinstance(target, Dataset)
    return Facts(str(folder), target.manifest)


def assigned(text: str, name: str) -> object:
    """Returns the value that a program gives a name."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return ast.literal_eval(node.value)
    raise AssertionError(name)


@pytest.mark.parametrize("reader", ["grain", "keras", "torch"])
def test_missing_values_are_filled(tmp_path: Folder, reader: str) -> None:
    """With what no record holds; a list that may be missing is not read."""
    features = [
        Feature("id", Kind.INT64),
        Feature("age", Kind.INT64),
        Feature("weight", Kind.FLOAT),
        Feature("vector", Kind.FLOAT, shape=(2,)),
        Feature("tags", Kind.TEXT, shape=(None,)),
    ]
    rows: list[Row] = [
        {"id": 1, "age": -5, "weight": 1.0, "vector": [0.5, 1.0], "tags": ["a"]},
        {"id": 2},
    ]
    write_kinds(tmp_path / "out", rows, features)
    text = program(reader, facts_of(tmp_path / "out"))
    assert assigned(text, "COLUMNS") == ["id", "age", "weight"]
    assert 'missing="schema"' in text
    assert "# not read: vector, tags" in text


@pytest.mark.parametrize("reader", ["grain", "keras", "torch"])
def test_tensors_of_one_shape_are_read(tmp_path: Folder, reader: str) -> None:
    """As images of CIFAR-10 are; others make no batch."""
    features = [
        Feature("pixels", Kind.TENSOR, shape=(2, 3), dtype="uint8"),
        Feature("wave", Kind.TENSOR, shape=(None,), dtype="float32"),
    ]
    rows: list[Row] = [{"pixels": bytes(6), "wave": bytes(16)}]
    write_kinds(tmp_path / "out", rows, features)
    text = program(reader, facts_of(tmp_path / "out"))
    assert assigned(text, "COLUMNS") == ["pixels"]
    assert "# not read: wave" in text


def test_the_old_name_of_spec_and_code(tmp_path: Folder) -> None:
    """`schema` prints what they print, with a note on standard error."""
    write_dataset(tmp_path / "out", {"train": animals(2)})
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    for name, *arguments in (
        ("code", tmp_path / "out", "--as", "pandas"),
        ("spec", tmp_path / "t.csv", "--drop", "b"),
    ):
        old, new = command("schema", *arguments), command(name, *arguments)
        assert (old.code, old.out) == (0, new.out)
        assert f"beam-tfrecord {name} " in old.err
        assert not new.err


PHOTO = [
    Feature("image", Kind.IMAGE),
    Feature("label", Kind.LABEL, is_label=True),
    Feature("filename", Kind.TEXT),
    Feature("height", Kind.INT64),
]


def test_keras_reads_images_and_classes_only(tmp_path: Folder) -> None:
    """Sizes and names are no inputs of a model, and one input is a bare array."""
    row = {"image": b"x", "label": "cat", "filename": "a.png", "height": 7}
    write_kinds(tmp_path / "out", [row], PHOTO)
    text = program("keras", facts_of(tmp_path / "out"))
    assert assigned(text, "COLUMNS") == ["image", "label"]
    assert "# not read: filename, height\n" in text
    assert 'return batch["image"], batch["label"]' in text
    assert "for name in rows[0]" in text


@pytest.mark.parametrize(
    ("largest", "size"), [(7, 32), (48, 48), (224, 224), (4_000, 224)]
)
@pytest.mark.parametrize("reader", ["keras", "torch", "grain", "tensorflow", "beam"])
def test_small_images_are_not_enlarged(
    tmp_path: Folder, reader: str, largest: int, size: int
) -> None:
    """Beyond the least that the small model takes."""
    sides = [
        Feature(name, Kind.INT64, derived=name, derived_from="image")
        for name in ("height", "width")
    ]
    row = {
        "image": b"x",
        "label": "cat",
        "filename": "a",
        "height": 3,
        "width": largest,
    }
    write_kinds(tmp_path / "out", [row], [*PHOTO[:3], *sides])
    assert assigned(program(reader, facts_of(tmp_path / "out")), "SIZE") == size


def test_dali_reads_no_feature_that_records_lack(tmp_path: Folder) -> None:
    """It ignores the default of a missing number."""
    write_kinds(
        tmp_path / "out",
        [{"id": 1, "age": 3}, {"id": 2}],
        [Feature("id", Kind.INT64), Feature("age", Kind.INT64)],
    )
    text = program("dali", facts_of(tmp_path / "out"))
    assert assigned(text, "COLUMNS") == ["id"]
    assert "# not read, since some records lack it: age" in text


@pytest.mark.parametrize("reader", sorted({*READERS} - {"tensorflow", "pandas"}))
def test_a_dataset_without_arrays(tmp_path: Folder, reader: str) -> None:
    """Nothing of it makes a batch, and the message says what reads it."""
    row = {"words": ["a", "b"]}
    feature = Feature("words", Kind.TEXT, shape=(None,))
    write_kinds(tmp_path / "out", [row], [feature])
    with pytest.raises(UsageError, match=f"A program for {reader} needs an image"):
        program(reader, facts_of(tmp_path / "out"))


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    "name", ["이름 있는", 'quote"s and {braces}', "back\\slash", "tab\tand\x1b[31m"]
)
def test_odd_names(tmp_path: Folder, reader: str, name: str) -> None:
    """The program is Python, and shows a terminal no control characters."""
    feature = Feature(name, Kind.INT64)
    write_dataset(tmp_path / "out", {"train": [[{name: 1}]]}, [feature], name=name)
    text = program(reader, facts_of(tmp_path / "out"))
    assert text.replace("\n", "").isprintable()
    ast.parse(text)
    assert name in [
        node.value
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant)
    ]
