"""Typed columns become rows of a feature: what is taken, what is refused, and why."""

import datetime
import decimal
import json
import math
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.casting import ANY, RAGGED, found, tensor
from transforms.core.reasons import Reason
from transforms.core.rows.conform import cast
from transforms.core.schema import Feature, InexactIntegers, Kind

INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64()]
INTEGERS += [pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
FLOATS = [pa.float16(), pa.float32(), pa.float64()]


def same(left: list[Any], right: list[Any]) -> bool:
    return len(left) == len(right) and all(
        (isinstance(a, float) and isinstance(b, float) and math.isnan(a + b))
        or (type(a) is type(b) and a == b)
        for a, b in zip(left, right, strict=True)
    )


def float32(value: float) -> float:
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def expected_number(value: Any, kind: Kind) -> Any:
    """The rules again, for one number in Python."""
    if value is None:
        return None
    if kind is Kind.BOOL:
        return value if isinstance(value, bool) else Reason.NOT_A_BOOL
    if kind is Kind.INT64:
        if isinstance(value, float) and not value.is_integer():
            return Reason.NOT_AN_INTEGER
        return int(value) if -(2**63) <= value < 2**63 else Reason.OUT_OF_RANGE
    if isinstance(value, bool):
        return Reason.NOT_A_NUMBER
    rounded = float32(value)
    lost = math.isinf(rounded) and not math.isinf(value)
    return Reason.OUT_OF_RANGE if lost else rounded


def numbers(kind: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_boolean(kind):
        return st.booleans()
    if pa.types.is_floating(kind):
        return st.floats(width=kind.bit_width)
    limits = np.iinfo(kind.to_pandas_dtype())
    low, high = int(limits.min), int(limits.max)
    edges = [2**24 + 1, 2**24, 2**63 - 1, 2**63, 2**40, low, high, high - 1]
    return st.integers(low, high) | st.sampled_from(
        [edge for edge in edges if low <= edge <= high]
    )


@given(data=st.data())
def test_numbers_follow_the_rules(data: st.DataObject) -> None:
    """Every number type to int64, float and bool: as Python decides one by one."""
    arrow = data.draw(st.sampled_from([*INTEGERS, *FLOATS, pa.bool_()]))
    kind = data.draw(st.sampled_from([Kind.INT64, Kind.FLOAT, Kind.BOOL]))
    values = data.draw(st.lists(st.none() | numbers(arrow), max_size=9))
    wanted = [expected_number(value, kind) for value in values]
    assert same(found(pa.array(values, arrow), Feature("x", kind)), wanted)


MILLIS = Feature("x", Kind.TIMESTAMP, unit="ms")
TEXTS = Feature("x", Kind.TEXT, shape=ANY)
INLINE = Feature("x", Kind.IMAGE, inline=True)
FILES = [
    {"bytes": b"x", "path": "a"},
    {"bytes": None, "path": "b"},
    {"bytes": b"y", "path": None},
    {"bytes": None, "path": None},
    None,
]
FLOATS_THAT_ARE_NO_INT64 = [Reason.OUT_OF_RANGE] + [Reason.NOT_AN_INTEGER] * 2

EVERY_COLUMN = [
    *(pa.array([0, 1, None, 100], kind) for kind in INTEGERS),
    *(pa.array([0.0, None, math.nan, 1e4, -math.inf], kind) for kind in FLOATS),
    pa.array([1e39, 5.0]),
    pa.array([True, None, False]),
    pa.array(["a", None, "1", "true", "[1]", "2024-05-01", ""]),
    pa.array(["a", None, "[[1, 2], [3]]"], pa.large_string()),
    pa.array(["x" * 40, None], pa.string_view()),
    pa.array([b"a", b"\xff", None, b"12345678"]),
    pa.array([b"\xff" * 40, None], pa.binary_view()),
    pa.array([b"\xffa", None], pa.binary(2)),
    pa.array([decimal.Decimal("1.5"), None]),
    pa.array([decimal.Decimal(10) ** 30, None], pa.decimal256(60, 0)),
    pa.array([decimal.Decimal(1200), None], pa.decimal128(5, -2)),
    pa.array(["1", None, "x"]).dictionary_encode(),
    pa.array([b"\xff", None]).dictionary_encode(),
    pa.array([1.5, None]).dictionary_encode(),
    pa.array([datetime.date(2024, 5, 1), None]),
    pa.array([datetime.date(2024, 5, 1), None], pa.date64()),
    pa.array([datetime.time(13, 30), None]),
    pa.array([2**62, None, -1], pa.timestamp("s")),
    pa.array([1, None], pa.timestamp("ns", "Asia/Seoul")),
    pa.array([1, None], pa.duration("s")),
    pa.array([[1, 2], None, [], [None]]),
    pa.array([[1.5], None], pa.large_list(pa.float64())),
    pa.array([[1, 2], None], pa.list_(pa.int8(), 2)),
    pa.array([["a"], None, [None]]),
    pa.array([[[1], [2, 3]], None, [], [None]]),
    pa.array([[], None]),
    pa.array([[{"a": 1}]]),
    pa.array([{"a": 1}, None]),
    pa.array([{"bytes": b"x", "path": "p"}, None]),
    pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
    pa.nulls(3),
    pa.FixedShapeTensorArray.from_numpy_ndarray(np.zeros((2, 2, 3), np.float32)),
    pa.array([1, 1, None]).cast(pa.int64()),
    pa.RunEndEncodedArray.from_arrays([2, 3], pa.array([1, None])),
    pa.array([None, None], pa.uuid()),
]

EVERY_FEATURE = [
    *(Feature("x", kind) for kind in Kind if kind not in (Kind.TENSOR, Kind.TIMESTAMP)),
    Feature("x", Kind.IMAGE, inline=True),
    *(Feature("x", Kind.TIMESTAMP, unit=unit) for unit in ("s", "ms", "us", "ns")),
    *(
        Feature("x", kind, shape=shape)
        for kind in (Kind.INT64, Kind.FLOAT, Kind.TEXT, Kind.LABEL)
        for shape in (ANY, (2,), (2, 1), (None, 2), RAGGED)
    ),
    Feature("x", Kind.INT64, shape=ANY, separator=","),
    *(
        Feature("x", Kind.TENSOR, shape=shape, dtype=dtype, encoding=encoding)
        for shape in ((), ANY, (2, 3), RAGGED)
        for dtype in ("uint8", "uint64", "float16", "float64", "bool", "string")
        for encoding in ("raw", "proto")
    ),
]


@pytest.mark.parametrize("column", EVERY_COLUMN, ids=lambda c: str(c.type)[:60])
def test_no_column_is_too_much(column: pa.Array) -> None:
    """Any type to any feature: rows of its type, a reason for what is bad.

    And a slice of a column becomes what it is within the column.
    """
    for feature in EVERY_FEATURE:
        whole = found(column, feature)
        for start in (1, len(column)):
            assert same(found(column.slice(start), feature), whole[start:])
        assert same(found(column.slice(0, 1), feature), whole[:1])


@pytest.mark.parametrize(
    ("column", "feature", "wanted"),
    [
        ([1.0, 2.5, None], Kind.INT64, [1, Reason.NOT_AN_INTEGER, None]),
        ([-(2.0**63), 2.0**62], Kind.INT64, [-(2**63), 2**62]),
        ([2.0**63, math.nan, math.inf], Kind.INT64, FLOATS_THAT_ARE_NO_INT64),
        ([decimal.Decimal("7")], Kind.INT64, [7]),
        ([decimal.Decimal("7.0")], Kind.INT64, [7]),
        ([decimal.Decimal("7.5")], Kind.INT64, [Reason.NOT_AN_INTEGER]),
        ([decimal.Decimal(2**63)], Kind.INT64, [Reason.OUT_OF_RANGE]),
        ([decimal.Decimal(2**53 + 1), None], Kind.INT64, [2**53 + 1, None]),
        ([2**53 + 1, None, -(2**63)], Kind.INT64, [2**53 + 1, None, -(2**63)]),
        (pa.array([2**63, 5], pa.uint64()), Kind.INT64, [Reason.OUT_OF_RANGE, 5]),
        ([-1e39, 3.4e38], Kind.FLOAT, [Reason.OUT_OF_RANGE, float32(3.4e38)]),
        ([1e-50, 1e-45], Kind.FLOAT, [0.0, float32(1e-45)]),
        ([decimal.Decimal("0.1")], Kind.FLOAT, [float32(0.1)]),
        ([decimal.Decimal(2**24 + 1)], Kind.FLOAT, [float(2**24)]),
        ([decimal.Decimal(2**70 + 1)], Kind.FLOAT, [float(2**70)]),
        ([decimal.Decimal(1)], Kind.BOOL, [Reason.NOT_A_BOOL]),
        ([decimal.Decimal("1.50")], Kind.TEXT, ["1.50"]),
        ([2**63 - 1, None], Kind.TEXT, ["9223372036854775807", None]),
        ([True, False], Kind.TEXT, ["true", "false"]),
        ([datetime.date(2024, 5, 1)], Kind.TEXT, ["2024-05-01"]),
        ([datetime.date(2024, 5, 1)], Kind.INT64, [Reason.WRONG_TYPE]),
        ([3, None], Kind.LABEL, ["3", None]),
        ([3.0, None], Kind.LABEL, ["3.0", None]),
        (
            [b"\xea\xb0\x80", b"\xff", None],
            Kind.TEXT,
            ["가", Reason.INVALID_ENCODING, None],
        ),
        ([b"\xff", None], Kind.BYTES, [b"\xff", None]),
        (["가"], Kind.BYTES, ["가".encode()]),
        ([5], Kind.BYTES, [Reason.WRONG_TYPE]),
        ([[1]], Kind.INT64, [Reason.WRONG_SHAPE]),
        ([{"a": 1}], Kind.TEXT, [Reason.WRONG_TYPE]),
        # A bad value is bad in each row that has it; an unused one in none.
        (
            pa.DictionaryArray.from_arrays([0, 1, None, 1], [b"a", b"\xff", b"\xfe"]),
            Kind.TEXT,
            ["a", Reason.INVALID_ENCODING, None, Reason.INVALID_ENCODING],
        ),
        # A date is its first instant; an integer is the count that it is.
        ([datetime.date(2024, 5, 1), None], MILLIS, [1714521600000, None]),
        (pa.array([datetime.date(2024, 5, 1)], pa.date64()), MILLIS, [1714521600000]),
        ([5, None], MILLIS, [5, None]),
        ([5.0], MILLIS, [Reason.WRONG_TYPE]),
        ([datetime.time(1)], MILLIS, [Reason.WRONG_TYPE]),
        # Strings stay unchanged, numbers keep their digits, lone surrogates are bad.
        (
            ['["a,b", "가", ""]', "[1.50, true]"],
            TEXTS,
            [["a,b", "가", ""], ["1.50", "true"]],
        ),
        (['["\\ud800"]', '["NA"]'], TEXTS, [Reason.INVALID_ENCODING, ["NA"]]),
        # Text is no image file, and a number is no path.
        *(
            (pa.array([b"\xff\xd8", None], kind), INLINE, [b"\xff\xd8", None])
            for kind in (pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(2))
        ),
        (["a.jpg"], INLINE, [Reason.WRONG_TYPE]),
        (pa.array(["a.jpg"], pa.large_string()), Kind.IMAGE, ["a.jpg"]),
        ([5], Kind.IMAGE, [Reason.WRONG_TYPE]),
        # A struct may have the file or its path; the other one is not accepted.
        (FILES, INLINE, [b"x", Reason.MISSING_VALUE, b"y", None, None]),
        (FILES, Kind.IMAGE, ["a", "b", Reason.MISSING_VALUE, None, None]),
    ],
)
def test_single_values(column: Any, feature: Kind | Feature, wanted: list[Any]) -> None:
    """What each kind takes of columns that are not plain numbers."""
    feature = feature if isinstance(feature, Feature) else Feature("x", feature)
    assert found(column, feature) == wanted


@given(st.lists(st.floats() | st.integers(0, 2**40).map(float), min_size=1))
def test_floats_as_text_read_back_as_themselves(values: list[float]) -> None:
    """The text is Python's shortest; that of float32 gives the float32."""
    texts = found(pa.array(values, pa.float64()), Feature("x", Kind.TEXT))
    for value, text in zip(values, texts, strict=True):
        assert text == repr(value)
    with np.errstate(over="ignore"):
        narrow = np.array(values).astype(np.float32)
    texts = found(pa.array(narrow), Feature("x", Kind.TEXT))
    back = [np.float32(text) for text in texts]
    assert np.array_equal(back, narrow, equal_nan=True)


def test_one_bad_text_among_many_is_found() -> None:
    """Bytes that are not UTF-8, also in a column that claims to be text."""
    values = [b"%d" % number for number in range(5000)]
    values[3000] = b"\xff"
    wanted: list[Any] = [value.decode("latin-1") for value in values]
    wanted[3000] = Reason.INVALID_ENCODING
    column = pa.array(values)
    assert found(column, Feature("x", Kind.TEXT)) == wanted
    claimed = pa.Array.from_buffers(pa.string(), 5000, column.buffers())
    assert found(claimed, Feature("x", Kind.TEXT)) == wanted


def test_whole_numbers_into_float_have_one_rule() -> None:
    """In any type and whatever is beside them, the feature's policy decides."""
    numbers = [2**24 + 1, 2**24, 2**60, 7]
    reject = InexactIntegers.REJECT
    feature = Feature("x", Kind.FLOAT, inexact_integers=reject)
    wanted = [Reason.NOT_FLOAT32, float(2**24), float(2**60), 7.0]
    for column in (
        pa.array(numbers),
        pa.array(numbers, pa.uint64()),
        pa.array([float(number) for number in numbers]),
        pa.array([decimal.Decimal(number) for number in numbers]),
        pa.array([str(number) for number in numbers]),
    ):
        assert found(column, feature) == wanted
        rounded = found(column, Feature("x", Kind.FLOAT))
        assert rounded == [float(2**24), *wanted[1:]]
    assert found(pa.array([2**60 + 1]), feature) == [Reason.NOT_FLOAT32]


def test_fault_106_missing_nan_and_zero_differ() -> None:
    """Null is missing; NaN, the infinities and -0.0 are values."""
    values = [None, math.nan, 0.0, -0.0, math.inf, -math.inf]
    result = cast(pa.array(values), Feature("x", Kind.FLOAT))
    assert result.bad is None
    assert result.values.is_null().to_pylist() == [True] + [False] * 5
    stored = np.array(values[1:], np.float32).tobytes()
    assert result.values.drop_null().to_numpy().tobytes() == stored


def epoch(value: datetime.datetime, unit: str) -> int:
    since = value - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    micros = since // datetime.timedelta(microseconds=1)
    return micros * 1000 // {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[unit]


zones: Any = st.none() | st.builds(
    datetime.timezone,
    st.integers(-1439, 1439).map(lambda minutes: datetime.timedelta(minutes=minutes)),
)


@given(
    values=st.lists(
        st.datetimes(
            datetime.datetime(2, 1, 1), datetime.datetime(9998, 1, 1), timezones=zones
        ),
        max_size=6,
    ),
    separator=st.sampled_from(" Tt"),
    unit=st.sampled_from(["us", "ms", "s"]),
)
def test_fault_110_timestamps_in_text(
    values: list[datetime.datetime], separator: str, unit: str
) -> None:
    """What datetime.isoformat writes is that instant; without a zone, UTC."""
    texts = [value.isoformat(separator) for value in values]
    wanted: list[Any] = []
    for value in values:
        utc = value if value.tzinfo else value.replace(tzinfo=datetime.UTC)
        step = {"s": 10**6, "ms": 10**3, "us": 1}[unit]
        fits = value.microsecond % step == 0
        wanted.append(epoch(utc, unit) if fits else Reason.OUT_OF_RANGE)
    feature = Feature("x", Kind.TIMESTAMP, unit=unit)
    assert found(pa.array(texts, pa.string()), feature) == wanted


def test_fault_110_no_local_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's zone changes nothing, on the day that it skips an hour either."""
    feature = Feature("x", Kind.TIMESTAMP, unit="s")
    texts = ["2024-03-31 02:30:00", "2024-03-31"]
    wanted = found(texts, feature)
    monkeypatch.setenv("TZ", "Europe/Paris")
    assert found(texts, feature) == wanted == [1711852200, 1711843200]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("1970-01-01", 0),
        ("1969-12-31 23:59:59.999", -1),
        ("2024-02-29", 1709164800000),
        (" 2024-05-01T13:30Z\t", 1714570200000),
        ("2024-05-01t13:30:00z", 1714570200000),
        ("2024-05-01 13:30:00+0230", 1714561200000),
        ("2024-05-01 13:30-02", 1714577400000),
        ("2024-05-01 13:30:00.500000000000", 1714570200500),
        ("2024-05-01 13:30:00.0005", Reason.OUT_OF_RANGE),
        ("2024-05-01 13:30:00.0000000000001", Reason.OUT_OF_RANGE),
        ("NA", None),
        *(
            (text, Reason.NOT_A_TIMESTAMP)
            for text in (
                *("", "x", "1714570200", "20240501", "2024-5-1", "01/05/2024"),
                *("2023-02-29", "2024-00-01", "2024-13-01", "2024-04-31", "2024-01-00"),
                *("2024-05-01 24:00", "2024-05-01 13:60", "2024-05-01 13:30:60"),
                *("2024-05-01Z", "2024-05-01 13", "2024-05-01 13:30:00 UTC"),
                *("2024-05-01 13:30:00+24:00", "2024-05-01 13:30:00+01:60"),
                *("2024-05-01 13:30:00,5", "2024-05-01  13:30", "２０２４-05-01"),
                *("2024-05-01 13:30:00.", "2024-05-01 13:30.5", "-2024-05-01"),
            )
        ),
    ],
)
def test_one_form_of_text_is_a_timestamp(text: str, wanted: Any) -> None:
    """ISO 8601 with its options and nothing else; the calendar is kept."""
    feature = Feature("x", Kind.TIMESTAMP, unit="ms")
    # Among others of every length, so that each row is judged by itself.
    others = ["2024-05-01", None, "2024-05-01 13:30:00.25Z"]
    column = pa.array([*others, text, *others], pa.large_string())
    assert found(column, feature)[3] == wanted


def test_the_ends_of_int64_in_nanoseconds() -> None:
    """The first and last instants of int64, and their neighbours beyond."""
    texts = [
        "2262-04-11T23:47:16.854775807",
        "2262-04-11T23:47:16.854775808",
        "1677-09-21T00:12:43.145224192",
        "1677-09-21T00:12:43.145224191",
        "9999-12-31",
    ]
    beyond = Reason.OUT_OF_RANGE
    wanted = [2**63 - 1, beyond, -(2**63), beyond, beyond]
    assert found(texts, Feature("x", Kind.TIMESTAMP, unit="ns")) == wanted


@given(
    values=st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=6),
    source=st.sampled_from(["s", "ms", "us", "ns"]),
    unit=st.sampled_from(["s", "ms", "us", "ns"]),
    zone=st.sampled_from([None, "UTC", "Asia/Seoul"]),
)
def test_timestamps_change_units_exactly(
    values: list[int | None], source: str, unit: str, zone: str | None
) -> None:
    """Every instant stays itself, or is refused where unit or int64 cannot hold it."""
    each = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}

    def expected(value: int | None) -> Any:
        if value is None:
            return None
        count, rest = divmod(value * each[source], each[unit])
        fits = not rest and -(2**63) <= count < 2**63
        return count if fits else Reason.OUT_OF_RANGE

    column = pa.array(values, pa.int64()).cast(pa.timestamp(source, zone))
    feature = Feature("x", Kind.TIMESTAMP, unit=unit)
    assert found(column, feature) == [expected(value) for value in values]


def test_text_of_timestamps_reads_back() -> None:
    """Timestamps declared text are ISO 8601 in UTC, and that is the same instant."""
    column = pa.array([1714570200123456, -1, None], pa.timestamp("us", "Asia/Seoul"))
    texts = found(column, Feature("x", Kind.TEXT))
    assert texts[0] == "2024-05-01 13:30:00.123456Z"
    back = found(texts, Feature("x", Kind.TIMESTAMP, unit="us"))
    assert back == [1714570200123456, -1, None]


# Lists: an oracle that walks Python's lists.


def size_of(value: Any) -> Any:
    """Returns the shape of nested lists: -1 for an unknown size, None if uneven."""
    if not isinstance(value, list):
        return ()
    inner = {size_of(item) for item in value}
    if None in inner or len(inner) > 1:
        return None
    return (len(value), *inner.pop()) if inner else (0,)


def expected_list(value: Any, shape: tuple[int | None, ...], depth: int) -> Any:
    if value is None:
        return None
    flat, lists = [value], depth
    for _ in range(depth):
        if None in flat:
            return Reason.MISSING_VALUE
        flat = [item for part in flat for item in part]
    if shape == RAGGED:
        if None in flat:
            return Reason.MISSING_VALUE
        return value
    size = size_of(value)
    if size is None:
        return Reason.WRONG_SHAPE
    if lists == len(shape):
        pairs = zip(size, shape, strict=False)
        fits = all(n is None or n == m for m, n in pairs)
    else:
        known = math.prod(n for n in shape if n is not None)
        rest = len(flat) % known if None in shape else len(flat) - known
        fits = rest == 0
    if not fits:
        return Reason.WRONG_SHAPE
    return Reason.MISSING_VALUE if None in flat else flat


one_level = st.lists(st.none() | st.lists(st.integers(-9, 9), max_size=6), max_size=6)
two_levels = st.lists(
    st.none()
    | st.lists(st.lists(st.integers(0, 9), max_size=3) | st.none(), max_size=3)
    | st.integers(0, 3).flatmap(
        lambda n: st.lists(
            st.lists(st.integers(0, 9), min_size=n, max_size=n), max_size=3
        )
    ),
    max_size=6,
)
SHAPES = [ANY, (4,), (2, 2), (None, 2), (2, None)]


@given(values=one_level, shape=st.sampled_from(SHAPES))
def test_lists_fit_a_shape(values: list[Any], shape: tuple[int | None, ...]) -> None:
    """Lists of one level, in all of Arrow's ways to store them, and as JSON."""
    wanted = [expected_list(value, shape, 1) for value in values]
    feature = Feature("x", Kind.INT64, shape=shape)
    column = pa.array(values, pa.list_(pa.int16()))
    texts = [None if value is None else json.dumps(value) for value in values]
    for variant in (
        column,
        column.cast(pa.large_list(pa.int64())),
        pa.array(values, pa.list_view(pa.int8())),
        pa.array(texts, pa.string()),
    ):
        assert found(variant, feature) == wanted
    floats = Feature("x", Kind.FLOAT, shape=shape)
    assert found(column, floats) == wanted


@given(values=two_levels, shape=st.sampled_from([(2, 2), (None, 2), (2, None), RAGGED]))
def test_lists_of_lists_fit_a_shape(
    values: list[Any], shape: tuple[int | None, ...]
) -> None:
    """Lists of two levels, typed and as JSON; ragged ones keep their lengths."""
    wanted = [expected_list(value, shape, 2) for value in values]
    feature = Feature("x", Kind.INT64, shape=shape)
    column = pa.array(values, pa.list_(pa.large_list(pa.int64())))
    assert found(column, feature) == wanted
    if shape == (2, None):
        # In text, [] may as well be the flat form of [[], []].
        values = [value for value in values if value != []]
        wanted = [expected_list(value, shape, 2) for value in values]
    texts = [None if value is None else json.dumps(value) for value in values]
    verdicts = found(pa.array(texts, pa.string()), feature)
    # Which of several faults is reported may differ.
    assert [v if isinstance(v, list) else v is None for v in verdicts] == [
        w if isinstance(w, list) else w is None for w in wanted
    ]


@pytest.mark.parametrize(
    ("column", "shape", "wanted"),
    [
        ([[1, 2], [], None, [1, None]], ANY, [[1, 2], [], None, Reason.MISSING_VALUE]),
        (pa.array([[1, 2], None], pa.list_(pa.int8(), 2)), (2,), [[1, 2], None]),
        (pa.array([[1, 2]], pa.list_(pa.int8(), 2)), (3,), [Reason.WRONG_SHAPE]),
        ([[], None], RAGGED, [[], None]),
        ([[1], []], RAGGED, [Reason.WRONG_SHAPE, []]),
        ([[[1]], []], ANY, [Reason.WRONG_SHAPE] * 2),
        ([5], ANY, [Reason.WRONG_SHAPE]),
        ([[1.5], [2.0]], ANY, [Reason.NOT_AN_INTEGER, [2]]),
        ([["7", "x"], ["8"]], ANY, [Reason.NOT_AN_INTEGER, [8]]),
        ([["1", "NA"]], ANY, [Reason.MISSING_VALUE]),
        (
            pa.array([[2**63], [1]], pa.list_(pa.uint64())),
            ANY,
            [Reason.OUT_OF_RANGE, [1]],
        ),
    ],
)
def test_lists_of_int64(column: Any, shape: Any, wanted: list[Any]) -> None:
    """A null list is missing, an empty one a value, a null in one a fault."""
    assert found(column, Feature("x", Kind.INT64, shape=shape)) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("[1, -2 ,3]", [1, -2, 3]),
        (" [] ", []),
        ('["5"]', [5]),
        ("[1.0]", [1]),
        ("[1.5]", Reason.NOT_AN_INTEGER),
        ("[9223372036854775808]", Reason.OUT_OF_RANGE),
        ("[null]", Reason.MISSING_VALUE),
        ("[true]", Reason.NOT_AN_INTEGER),
        ("[[1]]", Reason.WRONG_SHAPE),
        ("[{}]", Reason.WRONG_TYPE),
        ("7", Reason.WRONG_SHAPE),
        ("null", Reason.WRONG_SHAPE),
        ("", Reason.MALFORMED),
        ("[1", Reason.MALFORMED),
        ("[1,]", Reason.MALFORMED),
        ("1, 2", Reason.MALFORMED),
        ("[" * 100_000, Reason.MALFORMED),
        ("[" + "9" * 5000 + "]", Reason.OUT_OF_RANGE),
    ],
    ids=lambda value: str(value)[:20],
)
def test_json_in_text(text: str, wanted: Any) -> None:
    """Lists in text are JSON; their values follow the rules for text."""
    feature = Feature("x", Kind.INT64, shape=ANY)
    assert found([text, "[1]"], feature) == [wanted, [1]]


def test_a_separator_splits_text() -> None:
    """The empty text is the empty list; spaces count in texts, not around numbers."""
    texts = ["1|2", " 3 | 4", "", None, "x|1", "5|"]
    bad = Reason.NOT_AN_INTEGER
    feature = Feature("x", Kind.INT64, shape=ANY, separator="|")
    assert found(texts, feature) == [[1, 2], [3, 4], [], None, bad, bad]
    feature = Feature("x", Kind.LABEL, shape=ANY, separator="|")
    wanted = [["1", "2"], [" 3 ", " 4"], [], None, ["x", "1"], ["5", ""]]
    assert found(texts, feature) == wanted
    fixed = Feature("x", Kind.FLOAT, shape=(None, 2), separator=" ")
    assert found(["1 2 3 4", "1 2 3"], fixed) == [[1, 2, 3, 4], Reason.WRONG_SHAPE]


def test_rows_that_are_bad_hold_no_items() -> None:
    """Whoever flattens the lists sees the items of the good rows only."""
    values = [["a", None], ["b"], None, ["c", "d"]]
    lists = cast(pa.array(values), Feature("x", Kind.LABEL, shape=ANY)).values
    assert lists.values.to_pylist() == ["b", "c", "d"]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([[[1, 2, 3, 4.5], [5, 6, 7, 8]], [], None, [[1, 2, 3]]]),
        pa.array(
            [[[1, 2, 3, 4.5], [5, 6, 7, 8]], [], None, [[0, 0, 0, None]]],
            pa.large_list(pa.list_(pa.float64(), 4)),
        ),
        pa.array([[1, 2, 3, 4.5, 5, 6, 7, 8], [], None, [1, 2, 3]]),
        pa.array(["[[1, 2, 3, 4.5], [5, 6, 7, 8]]", "[]", None, "[[1, 2, 3]]"]),
        pa.array(["[1, 2, 3, 4.5, 5, 6, 7, 8]", "[]", None, "[1]"]),
    ],
    ids=lambda column: str(column.type),
)
def test_boxes(column: pa.Array) -> None:
    """Four numbers each, in lists of their own or one after another."""
    first = [[1.0, 2.0, 3.0, 4.5], [5.0, 6.0, 7.0, 8.0]]
    *good, bad = found(column, Feature("x", Kind.BOX))
    assert good == [first, [], None]
    assert bad in (Reason.WRONG_SHAPE, Reason.MISSING_VALUE)


# Tensors: NumPy for raw bytes, TensorFlow for messages.


@pytest.mark.parametrize("text", ["[[1], [2, 3]]", "[[1, 2], 3]", "[[1, [2]]]"])
def test_tensors_are_never_ragged(text: str) -> None:
    """Rows of different lengths have no shape, typed or in text."""
    feature = tensor("int8", RAGGED, "proto")
    assert found([text], feature) == [Reason.WRONG_SHAPE]
    assert found([[[1], [2, 3]]], feature) == [Reason.WRONG_SHAPE]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 0, 2)])
def test_arrays_stored_in_another_order(order: tuple[int, ...]) -> None:
    """Elements are in the logical order of the tensor, row-major.

    By Arrow's format, `permutation` orders the dimensions of the stored shape; its own
    conversion to NumPy agrees where a permutation is its own inverse.
    """
    stored = np.arange(48, dtype=np.int32).reshape(2, 2, 3, 4)
    kind = pa.fixed_shape_tensor(pa.int32(), (2, 3, 4), permutation=list(order))
    flat = pa.FixedSizeListArray.from_arrays(pa.array(stored.ravel()), 24)
    column = pa.ExtensionArray.from_storage(kind, flat)
    wanted = stored.transpose(0, *(axis + 1 for axis in order))
    if order != (2, 0, 1):
        assert np.array_equal(column.to_numpy_ndarray(), wanted)
    for row, raw in enumerate(found(column, tensor("int32", wanted.shape[1:]))):
        assert raw == np.ascontiguousarray(wanted[row]).tobytes()
    lists = found(column, Feature("x", Kind.INT64, shape=wanted.shape[1:]))
    assert lists == [row.ravel().tolist() for row in wanted]


@pytest.mark.parametrize(
    ("dtype", "column", "wanted"),
    [
        ("uint8", [[255], [256], [-1]], [b"\xff"] + [Reason.OUT_OF_RANGE] * 2),
        ("int8", [[True, False]], [b"\x01\x00"]),
        ("int8", [[127], [-128]], [b"\x7f", b"\x80"]),
        ("int32", [[1.0], [1.5]], [b"\1\0\0\0", Reason.NOT_AN_INTEGER]),
        ("int32", [[None], [1]], [Reason.MISSING_VALUE, b"\1\0\0\0"]),
        ("int32", [["7"], ["x"]], [b"\7\0\0\0", Reason.NOT_AN_INTEGER]),
        ("int32", [["NA"]], [Reason.MISSING_VALUE]),
        (
            "uint8",
            [[decimal.Decimal(7)], [decimal.Decimal(700)]],
            [b"\7", Reason.OUT_OF_RANGE],
        ),
        ("uint64", [["18446744073709551615"]], [b"\xff" * 8]),
        ("uint64", [["18446744073709551616"]], [Reason.OUT_OF_RANGE]),
        ("uint64", [["-1", "18446744073709551615"]], [Reason.OUT_OF_RANGE]),
        (
            "float64",
            [["0.1"], ["x"], ["1e400"]],
            [struct.pack("<d", 0.1), Reason.NOT_A_NUMBER, Reason.OUT_OF_RANGE],
        ),
        (
            "float64",
            [[2**53 + 1], [2**53]],
            [Reason.OUT_OF_RANGE, struct.pack("<d", 2**53)],
        ),
        (
            "float16",
            [[2049], [2048], [10**9]],
            [Reason.OUT_OF_RANGE, np.float16(2048).tobytes(), Reason.OUT_OF_RANGE],
        ),
        ("float16", [[1e5], [0.5]], [Reason.OUT_OF_RANGE, np.float16(0.5).tobytes()]),
        ("float32", [[True]], [Reason.NOT_A_NUMBER]),
        ("float64", [[True]], [Reason.NOT_A_NUMBER]),
        ("bool", [[True, False], [True]], [b"\1\0", b"\1"]),
        ("bool", [[1]], [Reason.NOT_A_BOOL]),
        ("int32", [{"a": 1}], [Reason.WRONG_SHAPE]),
    ],
)
def test_elements_keep_their_value_or_are_refused(
    dtype: str, column: list[Any], wanted: list[Any]
) -> None:
    """No element is wrapped, rounded to an integer or made infinite."""
    assert found(column, tensor(dtype, ANY)) == wanted


def test_raw_bytes_have_the_size_of_the_shape() -> None:
    """Fixed shapes one size, an open dimension multiples of the others."""
    column = pa.array([b"", b"abcdef", b"abcd", b"abc", None])
    bad = Reason.WRONG_SHAPE
    assert found(column, tensor("uint8", (2, 2))) == [bad, bad, b"abcd", bad, None]
    assert found(column, tensor("int16", (None,))) == [
        b"",
        b"abcdef",
        b"abcd",
        bad,
        None,
    ]
    assert found(column, tensor("int16", (None, 3))) == [b"", b"abcdef", bad, bad, None]
    assert found(column, tensor("float32", ())) == [bad, bad, b"abcd", bad, None]
