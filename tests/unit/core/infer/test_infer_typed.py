"""Arrow types become kinds, with evidence of what is in the columns."""

import datetime
import decimal
import io
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from transforms.core.infer.evidence import example_text
from transforms.core.infer.texts import infer_columns
from transforms.core.infer.typed import _examples, looks_like_image_paths
from transforms.core.schema import Feature, Kind
from transforms.errors import SourceError

ANY, EACH = (None,), (None, None)


def image(form: str) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (3, 2), (200, 10, 10)).save(out, form)
    return out.getvalue()


def inferred(column: pa.Array) -> Feature:
    (feature,) = infer_columns({"x": column}).features
    return feature


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        (pa.int8(), {"kind": "int64"}),
        (pa.uint64(), {"kind": "int64"}),
        (pa.duration("ms"), {"kind": "int64"}),
        (pa.float16(), {"kind": "float"}),
        (pa.float32(), {"kind": "float"}),
        (pa.float64(), {"kind": "float", "inexact_integers": "reject"}),
        (pa.bool_(), {"kind": "bool"}),
        (pa.decimal128(10, 2), {"kind": "text"}),
        (pa.time32("s"), {"kind": "text"}),
        (pa.string(), {"kind": "text"}),
        (pa.large_string(), {"kind": "text"}),
        (pa.string_view(), {"kind": "text"}),
        (pa.null(), {"kind": "text"}),
        (pa.dictionary(pa.int8(), pa.string()), {"kind": "text"}),
        (pa.run_end_encoded(pa.int32(), pa.int16()), {"kind": "int64"}),
        (pa.uuid(), {"kind": "bytes"}),
        (pa.binary(), {"kind": "bytes"}),
        (pa.binary(4), {"kind": "bytes"}),
        (pa.date32(), {"kind": "timestamp", "unit": "s"}),
        (pa.timestamp("us"), {"kind": "timestamp", "unit": "us"}),
        (pa.timestamp("ns", "Asia/Seoul"), {"kind": "timestamp", "unit": "ns"}),
        (pa.list_(pa.int32()), {"kind": "int64", "shape": [None]}),
        (pa.large_list(pa.string()), {"kind": "text", "shape": [None]}),
        (
            pa.list_view(pa.float64()),
            {"kind": "float", "shape": [None], "inexact_integers": "reject"},
        ),
        (pa.list_(pa.float32(), 3), {"kind": "float", "shape": [3]}),
        (pa.list_(pa.list_(pa.bool_())), {"kind": "bool", "shape": [None, None]}),
        (
            pa.list_(pa.list_(pa.float32(), 4)),
            {"kind": "float", "shape": [None, 4]},
        ),
        (
            pa.list_(pa.list_(pa.int8(), 4), 2),
            {"kind": "int64", "shape": [2, 4]},
        ),
        (pa.list_(pa.list_(pa.int8()), 2), {"kind": "int64", "shape": [None, None]}),
        (
            pa.list_(pa.timestamp("ms")),
            {"kind": "timestamp", "shape": [None], "unit": "ms"},
        ),
        (
            pa.struct({"bytes": pa.binary(), "path": pa.string()}),
            {"kind": "image", "inline": True},
        ),
        (
            pa.fixed_shape_tensor(pa.float32(), (2, 3)),
            {"kind": "float", "shape": [2, 3]},
        ),
        (
            pa.fixed_shape_tensor(pa.uint8(), (2, 3), permutation=[1, 0]),
            {
                "kind": "tensor",
                "shape": [3, 2],
                "dtype": "uint8",
                "encoding": "raw",
            },
        ),
        (
            pa.fixed_shape_tensor(pa.float64(), (2,)),
            {
                "kind": "tensor",
                "shape": [2],
                "dtype": "float64",
                "encoding": "raw",
            },
        ),
    ],
    ids=str,
)
def test_the_type_decides(kind: pa.DataType, wanted: dict[str, object]) -> None:
    """Each Arrow type, of a column without rows."""
    if isinstance(kind, pa.BaseExtensionType):
        column = pa.ExtensionArray.from_storage(kind, pa.array([], kind.storage_type))
    else:
        column = pa.array([], kind)
    assert inferred(column).to_json() == {"name": "x", **wanted}


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
    """The error has the column, its type and what to do."""
    with pytest.raises(SourceError, match=r"'x' must be .* drop the column"):
        infer_columns({"x": pa.array([], kind)})


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
    assert evidence.present == pytest.approx(0.8)


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
    assert _examples(column) == (example_text(values_as(kind, values)),)


def values_as(kind: pa.DataType, values: Sequence[object]) -> object:
    return pa.scalar(values, kind).as_py()


def test_the_range_of_floats_is_of_finite_ones() -> None:
    """NaN and infinity are values; what float32 cannot hold is a misfit."""
    column = pa.array([float("nan"), float("inf"), -1.5, 2.5, 1e39])
    (evidence,) = infer_columns({"x": column}).evidence
    assert (evidence.minimum, evidence.maximum) == (-1.5, 2.5)
    assert (evidence.missing, evidence.misfits) == (0, 1)


def test_the_range_of_lists_is_of_their_items() -> None:
    """A null list is missing, an empty one is not."""
    column = pa.array([[1, 9], [], None, [-2]])
    (evidence,) = infer_columns({"x": column}).evidence
    assert (evidence.minimum, evidence.maximum) == (-2, 9)
    assert (evidence.missing, evidence.misfits) == (1, 0)


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


@pytest.mark.parametrize("form", ["JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF"])
def test_bytes_that_start_as_images_are_images(form: str) -> None:
    """Files as Pillow writes them; missing and empty values do not count."""
    column = pa.array([None, image(form), b"", image(form)], pa.large_binary())
    assert inferred(column) == Feature("x", Kind.IMAGE, inline=True)


@pytest.mark.parametrize(
    "values",
    [[None, b""], [image("PNG"), b"text"], [b"BMW is no bitmap"], [b"\xff\xd8"]],
    ids=["nothing", "mixed", "BM", "short"],
)
def test_other_bytes_stay_bytes(values: list[bytes | None]) -> None:
    """One value that is no image is enough."""
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


def test_numbers_are_no_paths() -> None:
    """Columns of other types are not looked at."""
    assert not looks_like_image_paths(pa.array([1, 2]), (".jpg",))
    assert not looks_like_image_paths(pa.array([b"a.jpg"]), (".jpg",))


def test_a_column_of_tensors_has_evidence() -> None:
    """FixedShapeTensors are counted and shown like others."""
    column = pa.FixedShapeTensorArray.from_numpy_ndarray(np.zeros((3, 2, 2), np.uint8))
    (evidence,) = infer_columns({"x": column}).evidence
    assert (evidence.sampled, evidence.missing, evidence.misfits) == (3, 0, 0)
