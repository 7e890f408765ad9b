"""Arrow types become kinds, with evidence of what is in the columns."""

import datetime
import decimal
import math

import numpy as np
import pyarrow as pa
import pytest

from tests.support.image_sources import picture
from transforms.core.infer.columns import infer_columns
from transforms.core.infer.evidence import (
    example_text,
    examples_of,
    looks_like_image_paths,
)
from transforms.core.schema import Feature, Kind
from transforms.errors import SourceError

ANY, EACH = (None,), (None, None)


def inferred(column: pa.Array) -> Feature:
    (feature,) = infer_columns({"x": column}).features
    return feature


REJECT = 'inexact_integers: "reject"'


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        (pa.int8(), "int64"),
        (pa.uint64(), "int64"),
        (pa.duration("ms"), "int64"),
        (pa.float16(), "float"),
        (pa.float32(), "float"),
        (pa.float64(), f"float ({REJECT})"),
        (pa.bool_(), "bool"),
        (pa.decimal128(10, 2), "text"),
        (pa.time32("s"), "text"),
        (pa.string(), "text"),
        (pa.large_string(), "text"),
        (pa.string_view(), "text"),
        (pa.null(), "text"),
        (pa.dictionary(pa.int8(), pa.string()), "text"),
        (pa.run_end_encoded(pa.int32(), pa.int16()), "int64"),
        (pa.uuid(), "bytes"),
        (pa.binary(), "bytes"),
        (pa.binary(4), "bytes"),
        (pa.date32(), 'timestamp (unit: "s")'),
        (pa.timestamp("us"), 'timestamp (unit: "us")'),
        (pa.timestamp("ns", "Asia/Seoul"), 'timestamp (unit: "ns")'),
        (pa.list_(pa.int32()), "int64 (shape: [null])"),
        (pa.large_list(pa.string()), "text (shape: [null])"),
        (pa.list_view(pa.float64()), f"float (shape: [null], {REJECT})"),
        (pa.list_(pa.float32(), 3), "float (shape: [3])"),
        (pa.list_(pa.list_(pa.bool_())), "bool (shape: [null, null])"),
        (pa.list_(pa.list_(pa.float32(), 4)), "float (shape: [null, 4])"),
        (pa.list_(pa.list_(pa.int8(), 4), 2), "int64 (shape: [2, 4])"),
        (pa.list_(pa.list_(pa.int8()), 2), "int64 (shape: [null, null])"),
        (pa.list_(pa.timestamp("ms")), 'timestamp (shape: [null], unit: "ms")'),
        (
            pa.struct({"bytes": pa.binary(), "path": pa.string()}),
            "image (inline: true)",
        ),
        (pa.fixed_shape_tensor(pa.float32(), (2, 3)), "float (shape: [2, 3])"),
        (
            pa.fixed_shape_tensor(pa.uint8(), (2, 3), permutation=[1, 0]),
            'tensor (shape: [3, 2], dtype: "uint8", encoding: "raw")',
        ),
        (
            pa.fixed_shape_tensor(pa.float64(), (2,)),
            'tensor (shape: [2], dtype: "float64", encoding: "raw")',
        ),
    ],
    ids=str,
)
def test_the_type_decides(kind: pa.DataType, wanted: str) -> None:
    """Each Arrow type, of a column without rows."""
    if isinstance(kind, pa.BaseExtensionType):
        column = pa.ExtensionArray.from_storage(kind, pa.array([], kind.storage_type))
    else:
        column = pa.array([], kind)
    assert inferred(column).in_words() == wanted


@pytest.mark.parametrize(
    "kind",
    [
        pa.struct({"a": pa.int64()}),
        pa.map_(pa.string(), pa.int64()),
        pa.list_(pa.struct({"a": pa.int64()})),
        pa.list_(pa.list_(pa.list_(pa.int64()))),
    ],
    ids=str,
)
def test_what_no_feature_holds_is_named(kind: pa.DataType) -> None:
    """The error has the column, its type and the options that help."""
    with pytest.raises(SourceError) as caught:
        infer_columns({"x": pa.array([], kind)})
    assert all(word in str(caught.value) for word in ("'x'", str(kind), "--drop"))


def test_evidence() -> None:
    """Missing cells, misfits, the range of what fits, and examples of both."""
    column = pa.chunked_array(
        [pa.array([3, None, 2**63], pa.uint64()), pa.array([3, 7], pa.uint64())]
    )
    (evidence,) = infer_columns({"n": column}).evidence
    assert (evidence.sampled, evidence.missing, evidence.misfits) == (5, 1, 1)
    assert (evidence.minimum, evidence.maximum) == (3, 7)
    assert evidence.examples == ("3", str(2**63), "7")
    assert evidence.misfit_examples == (str(2**63),)


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.float32()),
        pa.large_list(pa.int64()),
        pa.list_(pa.int16(), 300),
        pa.list_view(pa.float64()),
        pa.list_(pa.list_(pa.int8())),
        pa.list_(pa.string()),
    ],
)
@pytest.mark.parametrize("value", [0, 1_234_567, -1])
def test_examples_of_long_lists(kind: pa.DataType, value: int) -> None:
    """They are those of the whole lists, of which only the first items are read."""
    item = value % 100
    shown = {pa.string(): str(item), pa.list_(pa.int8()): [item]}
    values = [shown.get(kind.value_type, item)] * 300
    column = pa.array([values, None, values[::-1]], kind)
    assert examples_of(column) == (example_text(pa.scalar(values, kind).as_py()),)


TENSORS = np.zeros((3, 2, 2), np.uint8)


@pytest.mark.parametrize(
    ("column", "cells", "extent"),
    [
        # NaN and infinity are values; what float32 cannot hold is a misfit.
        (pa.array([math.nan, math.inf, -1.5, 2.5, 1e39]), (5, 0, 1), (-1.5, 2.5)),
        # A null list is missing, an empty one is not.
        (pa.array([[1, 9], [], None, [-2]]), (4, 1, 0), (-2, 9)),
        (pa.FixedShapeTensorArray.from_numpy_ndarray(TENSORS), (3, 0, 0), (None,) * 2),
    ],
    ids=lambda value: str(getattr(value, "type", ""))[:20],
)
def test_cells_are_counted(
    column: pa.Array, cells: tuple[int, ...], extent: tuple[object, ...]
) -> None:
    """Sampled, missing and misfits, and the range of what fits."""
    (evidence,) = infer_columns({"x": column}).evidence
    assert (evidence.sampled, evidence.missing, evidence.misfits) == cells
    assert (evidence.minimum, evidence.maximum) == extent


def test_notes_say_what_is_not_obvious() -> None:
    """Decimals and times became text, naive timestamps UTC."""
    columns = {
        "price": pa.array([decimal.Decimal("1.50")]),
        "at": pa.array([datetime.datetime(2024, 5, 1)]),
        "n": pa.array([1]),
    }
    price, at, n = (facts.remark for facts in infer_columns(columns).evidence)
    assert "decimal128(3, 2)" in price
    assert "UTC" in at
    assert n == ""


def test_a_text_label_is_a_label() -> None:
    """Of another kind, it keeps that; NA stays a class like any other."""
    columns = {
        "animal": pa.array(["cat", "NA"]).dictionary_encode(),
        "n": pa.array([1, 2]),
    }
    animal, n = infer_columns(columns, label_column="animal").features
    assert (animal.kind, animal.is_label, n.is_label) == (Kind.LABEL, True, False)
    _, n = infer_columns(columns, label_column="n").features
    assert (n.kind, n.is_label) == (Kind.INT64, True)


def test_bytes_that_start_as_images_are_images() -> None:
    """Files as Pillow writes them; missing and empty values do not count.

    Of few values, one that is no image is enough.
    """
    for form in ("JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF"):
        column = pa.array([None, picture(form), b"", picture(form)], pa.large_binary())
        assert inferred(column) == Feature("x", Kind.IMAGE, inline=True)
    mixed = [picture("PNG"), b"text"]
    for values in ([None, b""], mixed, [b"BMW is no bitmap"], [b"\xff\xd8"]):
        assert inferred(pa.array(values, pa.binary())).kind is Kind.BYTES


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        (["a.jpg", "b/c.PNG", None, ""], True),
        (["a.jpg"] * 95 + ["readme"] * 5, True),
        (["a.jpg"] * 94 + ["readme"] * 6, False),
        (["jpg"], False),
        ([None, ""], False),
        ([], False),
    ],
)
def test_columns_of_image_paths(values: list[str | None], wanted: bool) -> None:
    """At least 95 of 100 texts end in a suffix, in letters of any case."""
    suffixes = (".jpg", ".png")
    column = pa.array(values, pa.string())
    assert looks_like_image_paths(column, suffixes) is wanted
    assert looks_like_image_paths(column.dictionary_encode(), suffixes) is wanted
    # Columns of other types are not looked at.
    assert not looks_like_image_paths(column.cast(pa.binary()), suffixes)
