"""Images that a table names by paths of one machine."""

import pathlib
from collections.abc import Iterable

import pyarrow as pa
import pytest

from beam_pipeline.planning import image_columns
from beam_pipeline.planning.image_columns import (
    first_local_image,
    image_shares,
    named_images,
)
from tests.support.image_sources import write_images
from transforms.core.schema import Feature, Kind, Schema
from transforms.formats.table import InputFile, TableSample

FILES = [InputFile("a/rows.csv", "s3://b/a/rows.csv", 10, 0)]


def found(
    column: pa.Array | pa.ChunkedArray,
    *,
    feature: Feature | None = None,
    files: list[InputFile] | None = None,
    complete: bool = True,
) -> str:
    schema = Schema((feature or Feature("image", Kind.IMAGE),))
    sample = TableSample({"image": column}, len(column), complete=complete)
    return first_local_image(sample, schema, files or FILES)


@pytest.mark.parametrize(
    "path", ["/data/a.jpg", "file:///data/a.jpg", "FILE:///data/a.jpg"]
)
def test_a_local_path(path: str) -> None:
    """The path, and its row as people count."""
    column = pa.array(["s3://b/a.jpg", None, "inner/a.jpg", path])
    assert found(column) == f"{path!r} in row 4 of a/rows.csv"
    chunked = pa.chunked_array([column.slice(0, 2), column.slice(2)])
    assert found(chunked) == f"{path!r} in row 4 of a/rows.csv"


def test_paths_that_all_machines_see() -> None:
    """In stores, and beside the table; and images that are in the table."""
    assert not found(pa.array(["s3://b/a.jpg", "inner/a.jpg", "profile:a.jpg", None]))
    assert not found(pa.array([b"/data", b"image"]))
    assert not found(pa.array([], pa.string()))


def test_several_images_in_a_row() -> None:
    """As a list, and as a text that is cut."""
    lists = pa.array([["s3://b/a.jpg"], [], ["b.jpg", "/data/a.jpg"]])
    assert found(lists) == "'/data/a.jpg' in row 3 of a/rows.csv"
    cut = Feature("image", Kind.IMAGE, shape=(None,), separator=";")
    texts = pa.array(["s3://b/a.jpg;b.jpg", None, "b.jpg; /data/a.jpg"])
    assert found(texts, feature=cut) == "'/data/a.jpg' in row 3 of a/rows.csv"


def test_rows_that_cannot_be_counted() -> None:
    """A sample of a file, or several files."""
    column = pa.array(["/data/a.jpg"])
    assert found(column, complete=False) == "'/data/a.jpg' in a row of a/rows.csv"
    two = [*FILES, *FILES]
    assert found(column, files=two) == "'/data/a.jpg' in a row of its 2 files"


@pytest.mark.parametrize(
    ("column", "separator", "named"),
    [
        (pa.array([None, " a.jpg", "b.jpg", "c.jpg"]), "", ["a.jpg", "c.jpg"]),
        (pa.array([[], [None, "a.jpg"], ["b.jpg"]]), "", ["a.jpg", "b.jpg"]),
        (pa.array([None, "a.jpg;b.jpg"]), ";", ["a.jpg", "b.jpg"]),
        (pa.array([b"image"]), "", []),
        (pa.array([None, " "], pa.string()), "", []),
    ],
)
def test_named_images(column: pa.Array, separator: str, named: list[str]) -> None:
    """At most two here: the first that a row names, and evenly on from it."""
    shape = (None,) if separator else ()
    feature = Feature("image", Kind.IMAGE, shape=shape, separator=separator)
    sample = TableSample({"image": column}, len(column), complete=True)
    assert named_images(sample, Schema((feature,)), 2) == named


@pytest.mark.parametrize(
    ("cells", "share"),
    [
        (["a.png", "b.JPG"], 1.0),
        (["a.png", "sub/c.gif"], 1.0),
        ([["a.png"], ["b.JPG", "a.png"]], 1.0),
        (["a.png", None, "", "b.JPG"], 0.5),
        (["a.png", "gone.png"], 0.5),
        (["a.png", "notes.txt"], 0.5),
        (["gone.png"], None),
        (["notes.txt"], None),
        (["/a.png", "s3://b/a.png"], None),
    ],
)
def test_which_texts_name_files(
    tmp_path: pathlib.Path, cells: list[object], share: float | None
) -> None:
    """A column's content says what it is: the share of cells that are image files."""
    write_images(tmp_path, ["a.png", "b.JPG", "sub/c.gif"])
    (tmp_path / "notes.txt").write_text("x")
    shape = (None,) if isinstance(cells[0], list) else ()
    feature = Feature("x", Kind.TEXT, shape=shape)
    found = image_shares([feature], {"x": pa.array(cells)}, [str(tmp_path)])
    assert found == ({} if share is None else {"x": share})


def test_few_files_are_looked_for(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most 64 for all columns, evenly through the rows."""
    asked: list[str] = []

    def sizes_of(paths: Iterable[str]) -> dict[str, int]:
        asked.extend(paths)
        return {}

    monkeypatch.setattr(image_columns, "sizes_of", sizes_of)
    features = [Feature(name, Kind.TEXT) for name in "abc"]
    columns = {n: pa.array([f"{n}{i}.png" for i in range(10_000)]) for n in "abc"}
    image_shares(features, columns, [str(tmp_path)])
    assert 40 <= len(asked) <= 64
    assert max(int(path.rpartition("/c")[2][:-4]) for path in asked[-9:]) > 9000
