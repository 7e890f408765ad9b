"""Mappings and Arrow batches to Examples: strict, and the same in any company."""

import datetime
import enum
import pathlib
import random
import uuid
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import floats, int64s, message
from tests.support.sequences import field
from transforms.codec.examples import (
    decode_example,
    decode_rows,
    decode_table,
    encode_example,
    encode_rows,
)
from transforms.codec.typed import coding_of, encode_table
from transforms.core.example.messages import CLASSES
from transforms.core.schema import Feature, Kind, Missing, Schema, Unknown
from transforms.errors import EncodingError, SpecError


class Colour(enum.Enum):
    """An enum whose values are texts."""

    RED = "red"


def in_order(values: dict[str, tuple[str, list[Any]]]) -> bytes:
    """Returns an Example of serialised one-feature messages, in our order of names."""
    inner = b""
    for name in sorted(values, key=str.encode):
        kind, items = values[name]
        one = CLASSES["Features"]()
        getattr(one.feature[name], kind).SetInParent()
        getattr(one.feature[name], kind).value.extend(items)
        inner += one.SerializeToString()
    return field(1, inner)


INTS = ("int64_list", [7])
TEXTS = ("bytes_list", [b"red"])


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (np.int8(7), INTS),
        (np.uint64(7), INTS),
        (range(7, 8), INTS),
        (np.bool_(False), ("int64_list", [0])),
        ([True, 2], ("int64_list", [1, 2])),
        ((1, 2), ("int64_list", [1, 2])),
        (np.float16(0.5), ("float_list", [0.5])),
        ([1, 0.5], ("float_list", [1.0, 0.5])),
        (bytearray(b"red"), TEXTS),
        (memoryview(b"red"), TEXTS),
        (np.str_("red"), TEXTS),
        (Colour.RED, TEXTS),
        (pathlib.PurePosixPath("red"), TEXTS),
        (np.array(["a", "b"]), ("bytes_list", [b"a", b"b"])),
        (np.array(["a", "b"], object), ("bytes_list", [b"a", b"b"])),
    ],
)
def test_a_values_type_says_what_it_becomes(
    value: Any, stored: tuple[str, list[Any]]
) -> None:
    """As protobuf reads it, and byte for byte as protobuf writes it."""
    data = encode_example({"x": value})
    assert message(data) == {"x": stored}
    assert data == in_order({"x": stored})


@pytest.mark.parametrize("value", [None, pd.NA, pd.NaT, [], (), np.datetime64("NaT")])
def test_what_is_missing_leaves_its_key_out(value: Any) -> None:
    """None, the NA of others, and an empty list, of which nobody knows the type."""
    assert encode_example({"x": value, "y": 1}) == encode_example({"y": 1})
    assert encode_example({"x": value}) == encode_example({}) == b"\n\x00"


@pytest.mark.parametrize(
    "value",
    [
        2**63,
        1e39,
        [1, 2.5, "a"],
        [True, 0.5],
        [1, None],
        [[1, 2], [3, 4]],
        [[1], [2, 3]],
        [2**24 + 1, 0.5],
        {"a": 1},
        1j,
        datetime.datetime(2024, 5, 1),
        object,
        "\ud800",
        np.array([1j]),
        np.ma.masked_array([1, 2], [True, False]),
    ],
)
def test_what_no_rule_stores_is_refused(value: Any) -> None:
    """The error names row, feature and value."""
    with pytest.raises(EncodingError):
        encode_example({"x": value})
    with pytest.raises(EncodingError) as caught:
        encode_rows([{"x": 1}, {"x": value}], None)
    assert "row 2 ({'x': " in str(caught.value)
    assert "feature 'x'" in str(caught.value)
    assert len(str(caught.value).encode()) <= 1024


@pytest.mark.parametrize("name", [1, None, "\ud800", b"x"])
def test_names_are_text(name: Any) -> None:
    """Nothing is made text in silence."""
    with pytest.raises(EncodingError, match="name"):
        encode_example({name: 1})


scalars = st.one_of(
    int64s, floats, st.booleans(), st.text(max_size=3), st.binary(max_size=3), st.none()
)
lists = st.one_of(
    st.lists(int64s, max_size=3),
    st.lists(floats, max_size=3),
    st.lists(st.text(max_size=2) | st.binary(max_size=2), max_size=3),
    st.lists(floats, max_size=3).map(lambda items: np.array(items, np.float32)),
    st.lists(int64s, max_size=3).map(lambda items: np.array(items, np.int64)),
)
untyped_rows = st.dictionaries(st.sampled_from(["a", "b", "é", ""]), scalars | lists)


def expected(value: Any) -> tuple[str, list[Any]] | None:
    """Returns what the value is to be stored as, by rules written a second time."""
    if isinstance(value, np.ndarray):
        return ("float_list" if value.dtype.kind == "f" else "int64_list", [*value])
    items = value if isinstance(value, list) else [value]
    if value is None or not items:
        return None
    if isinstance(items[0], str | bytes):
        return (
            "bytes_list",
            [item.encode() if isinstance(item, str) else item for item in items],
        )
    if isinstance(items[0], float):
        return "float_list", items
    return "int64_list", [int(item) for item in items]


@given(st.lists(untyped_rows, min_size=1, max_size=6), st.randoms())
def test_rows_of_any_types_equal_protobuf(
    rows: list[dict[str, Any]], chance: random.Random
) -> None:
    """Each row's bytes are protobuf's, alone and beside rows of other types."""
    wanted = []
    for row in rows:
        found = {name: expected(value) for name, value in row.items()}
        wanted.append(in_order({n: v for n, v in found.items() if v is not None}))
    assert [encode_example(row) for row in rows] == wanted
    assert [encode_rows([row], None)[0] for row in rows] == wanted
    order = chance.sample(range(len(rows)), len(rows))
    assert encode_rows([rows[i] for i in order], None) == [wanted[i] for i in order]
    # What comes back becomes the same bytes: only texts have become bytes.
    back = decode_rows(wanted, None)
    assert back == [decode_example(data) for data in wanted] or "nan" in repr(back)
    kept = [{n: v for n, v in row.items() if v != []} for row in back]
    full = [{n: v for n, v in f.items() if v[1]} for f in map(message, wanted)]
    assert encode_rows(kept, None) == [in_order(row) for row in full]


values_of = {
    Kind.INT64: int64s,
    Kind.FLOAT: floats,
    Kind.BOOL: st.booleans(),
    Kind.TEXT: st.text(max_size=3),
    Kind.BYTES: st.binary(max_size=3),
    Kind.TIMESTAMP: st.datetimes(timezones=st.just(datetime.UTC)).map(
        lambda moment: moment.replace(microsecond=0, fold=0)
    ),
    Kind.LABEL: st.integers(0, 9),
}


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    names = draw(st.lists(st.text(max_size=2), min_size=1, max_size=4, unique=True))
    features = []
    for name in names:
        kind = draw(st.sampled_from([*values_of, Kind.BOX, Kind.TENSOR]))
        shape: tuple[int | None, ...] = ()
        if kind in values_of:
            shape = draw(
                st.sampled_from(
                    [(), (None,), (2,), (2, 2), (None, 2), (2, None), (None, None)]
                )
            )
        options: dict[str, Any] = {}
        if kind is Kind.TENSOR:
            shape = draw(st.sampled_from([(2,), (None,), (2, None)]))
            options = {"dtype": draw(st.sampled_from(["int16", "bool"]))}
        features.append(Feature(name or "empty", kind, shape=shape, **options))
    unique = {feature.name: feature for feature in features}
    return Schema(tuple(unique.values()))


@st.composite
def values(draw: st.DrawFn, feature: Feature) -> Any:
    """Draws a value of a feature, as `decode_example` gives it; None for missing."""
    if draw(st.integers(0, 4)) == 0:
        return None
    if feature.kind is Kind.BOX:
        side = st.floats(0, 1, width=32)
        return draw(st.lists(st.lists(side, min_size=4, max_size=4), max_size=2))
    if feature.kind is Kind.TENSOR:
        shape = [2 if n is None else n for n in feature.shape]
        count = int(np.prod(shape))
        items = draw(st.lists(st.integers(0, 1), min_size=count, max_size=count))
        return np.array(items).reshape(shape).astype(feature.dtype)
    return draw(nested(values_of[feature.kind], feature.shape))


def nested(items: Any, shape: tuple[int | None, ...]) -> Any:
    if not shape:
        return items
    if shape == (2, None):
        pair = st.integers(1, 2).flatmap(
            lambda n: st.lists(
                st.lists(items, min_size=n, max_size=n), min_size=2, max_size=2
            )
        )
        return pair
    first = shape[0]
    inner = nested(items, shape[1:])
    return st.lists(inner, min_size=first or 0, max_size=first or 2)


def plain(value: Any) -> str:
    """Returns a value as text in which arrays, zones and NaN compare."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.tolist()}"
    # Arrow has its own object for the same zone.
    return repr(value).replace("zoneinfo.ZoneInfo(key='UTC')", "datetime.timezone.utc")


@given(st.data())
def test_rows_under_any_schema_come_back(data: st.DataObject) -> None:
    """Decoding gives the values, alone and together; protobuf reads the same bytes."""
    schema = data.draw(schemas())
    coding = coding_of(schema)
    rows = [
        {feature.name: data.draw(values(feature)) for feature in schema.features}
        for _ in range(data.draw(st.integers(1, 4)))
    ]
    records = encode_rows(rows, coding)
    assert records == [encode_example(row, schema) for row in rows]
    assert records == [encode_rows([row], coding)[0] for row in rows]
    for record in records:
        assert record == in_order(message(record))
    back = decode_rows(records, coding)
    alone = [decode_example(record, schema) for record in records]
    assert [list(map(plain, row.values())) for row in alone] == [
        list(map(plain, row.values())) for row in back
    ]
    for row, found in zip(rows, back, strict=True):
        assert {n: plain(v) for n, v in found.items()} == {
            n: plain(v) for n, v in row.items()
        }
    table = decode_table(records, coding)
    assert table.num_rows == len(rows)
    assert encode_table(table, coding) == records


LABEL = Feature("l", Kind.LABEL, vocabulary=("cat", "dog"))


@pytest.mark.parametrize(
    ("schema", "value", "why"),
    [
        ({"x": "int64"}, 1.0, "an integer is needed"),
        ({"x": "int64"}, "1", "an integer is needed"),
        ({"x": "int64"}, [1], "single value|list"),
        ({"x": "float"}, "1", "a number is needed"),
        ({"x": "float"}, 2**24 + 1, "only where it is exact"),
        ({"x": "bool"}, 1, "True or False"),
        ({"x": "text"}, b"\xff", "UTF-8"),
        ({"x": "text"}, 1, "text is needed"),
        ({"x": {"kind": "int64", "shape": [2]}}, [1, 2, 3], "shape"),
        ({"x": {"kind": "int64", "shape": [2]}}, 1, "a list is needed"),
        ({"x": {"kind": "int64", "missing": "reject"}}, None, "must have a value"),
        ({"x": {"kind": "label", "vocabulary": ["a"]}}, "b", "no class"),
        ({"x": {"kind": "label", "vocabulary": ["a"]}}, 1, "max of 0"),
        ({"x": "label"}, "a", "an integer is needed"),
        ({"x": "label"}, -1, "min of 0"),
        ({"x": "image"}, 1, "bytes or text"),
        ({"x": "file"}, 1, "bytes or text"),
    ],
)
def test_a_schema_is_kept_to(schema: Any, value: Any, why: str) -> None:
    """No value becomes another; the error names row, feature and value."""
    good: dict[str, Any] = {}
    if "must have" in why:
        good = {"x": 1}
    with pytest.raises(EncodingError, match=why):
        encode_example({"x": value}, schema)
    with pytest.raises(EncodingError, match=why) as caught:
        encode_rows([good, {"x": value}], coding_of(schema))
    assert "row 2" in str(caught.value)
    assert "'x'" in str(caught.value)
    if value is not None:
        with pytest.raises(EncodingError):
            encode_table(pa.record_batch({"x": [value]}), coding_of(schema))


def test_a_key_that_the_schema_lacks_is_refused() -> None:
    """A misspelt name is no missing value."""
    with pytest.raises(EncodingError, match=r"no feature 'lable'.*leave the key out"):
        encode_example({"lable": 1}, {"label": "int64"})
    with pytest.raises(EncodingError, match="lable"):
        encode_table(pa.record_batch({"lable": [1]}), coding_of({"label": "int64"}))


def test_missing_values_are_filled_as_the_schema_says() -> None:
    """Filled, constant, or left out; also in Arrow batches."""
    schema = Schema(
        (
            Feature("a", Kind.INT64, missing=Missing.FILL, fill=7),
            Feature("b", Kind.TEXT, constant="x"),
            Feature("c", Kind.FLOAT),
            Feature("d", Kind.INT64, shape=(2,), missing=Missing.FILL, fill=1),
            Feature(
                "l", Kind.LABEL, vocabulary=("n", "m"), missing=Missing.FILL, fill="m"
            ),
        )
    )
    wanted = {"a": 7, "b": "x", "c": None, "d": [1, 1], "l": 1}
    assert decode_example(encode_example({}, schema), schema) == wanted
    coding = coding_of(schema)
    (record,) = encode_table(pa.record_batch({"a": pa.nulls(1)}), coding)
    assert record == encode_example({}, schema)
    without = pa.RecordBatch.from_struct_array(pa.array([{}, {}], pa.struct([])))
    assert encode_table(without, coding) == [record, record]
    assert encode_table(without, None) == [encode_example({})] * 2


def test_labels_are_ids_or_names_of_the_vocabulary() -> None:
    """Names outside it share the id after the last where the schema says so."""
    assert message(encode_example({"l": "dog"}, [LABEL])) == {"l": ("int64_list", [1])}
    assert encode_example({"l": 1}, [LABEL]) == encode_example({"l": "dog"}, [LABEL])
    others = Feature("l", Kind.LABEL, vocabulary=("cat",), unknown=Unknown.OOV)
    assert encode_example({"l": "dog"}, [others]) == encode_example({"l": 1}, [others])
    many = Feature("l", Kind.LABEL, vocabulary=("cat", "dog"), shape=(None,))
    record = encode_example({"l": ["dog", "cat"]}, [many])
    assert decode_example(record, [many]) == {"l": [1, 0]}
    names = pa.record_batch({"l": [["dog", "cat"], None]})
    assert encode_table(names, coding_of([many]))[0] == record


def test_arrow_batches_are_taken_as_strictly() -> None:
    """A column of another type is refused as a whole, a value by its row."""
    coding = coding_of({"x": "int64", "y": "float"})
    with pytest.raises(EncodingError, match=r"'x'.*column of double"):
        encode_table(pa.record_batch({"x": [1.0]}), coding)
    with pytest.raises(EncodingError, match=r"row 2: feature 'y'.*1e\+300"):
        encode_table(pa.record_batch({"y": [1.0, 1e300]}), coding)
    rows = pa.record_batch({"x": pa.array([1, None], pa.int8()), "y": [1, 2]})
    same = [{"x": 1, "y": 1.0}, {"y": 2.0}]
    assert encode_table(rows, coding) == encode_rows(same, coding)


def test_other_values_of_a_schema() -> None:
    """Datetimes, UUIDs and paths, images by their bytes."""
    moment = datetime.datetime(2024, 5, 1, tzinfo=datetime.UTC)
    number = uuid.UUID(int=5)
    schema: dict[str, Any] = {"t": {"kind": "timestamp", "unit": "ms"}, "i": "image"}
    found = decode_example(encode_example({"t": moment, "i": b"\xff"}, schema), schema)
    assert found == {"t": moment, "i": b"\xff"}
    assert message(encode_example({"u": number})) == {
        "u": ("bytes_list", [str(number).encode()])
    }


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ("int64", "a Schema"),
        (5, "a Schema"),
        (pa.schema([("x", pa.int8())]), "a dict of features"),
        (["x"], "list of Feature"),
        ({"x": "int32"}, "'int32'"),
        ({"x": {"shape": [2]}}, "kind must be said"),
        ({"x": {"kind": "int64", "shpae": [2]}}, "no setting 'shpae'"),
        ({"x": {"kind": "tensor", "dtype": "int3", "shape": [2]}}, "dtype"),
        ({"x": {"kind": "tensor", "dtype": "int8"}}, "encoding: proto"),
        ({"x": {"kind": "int64", "shape": [None, 2, None]}}, "open"),
        ({"x": {"kind": "timestamp", "unit": "h"}}, "unit"),
        ([Feature("x", Kind.INT64, shape=[2])], "tuples"),  # type: ignore[arg-type]
        ([Feature("x", Kind.INT64), Feature("x", Kind.TEXT)], "2 times"),
    ],
)
def test_a_schema_that_contradicts_itself_is_refused(schema: Any, why: str) -> None:
    """Before any row is taken."""
    with pytest.raises(SpecError, match=why):
        encode_example({}, schema)
