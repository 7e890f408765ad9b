"""Images that a table names: which columns do, and how large they are."""

import pathlib

import pyarrow as pa
import pytest

from beam_pipeline.planning.image_files import (
    image_shares,
    named_images,
)
from tests.support.image_sources import write_images
from transforms.core.schema import Feature, Kind, Schema
from transforms.formats.table import TableSample


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
