"""Contents of rows as hashes: golden values, the formula, and what does not count."""

import datetime
import decimal
import hashlib
import struct
import unicodedata
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.placing import MASK, by_formula, mixed
from transforms.core.placing.content import content_hashes


def base(kind: str) -> int:
    salt = f"content\0000\0{kind}".encode()
    return int.from_bytes(hashlib.blake2b(salt, digest_size=8).digest(), "little")


def cell(name: str, word: int) -> int:
    """What a cell adds to its row, in plain integers, as the module states it."""
    salt = f"column\0content\0000\0{unicodedata.normalize('NFC', name)}".encode()
    own = int.from_bytes(hashlib.blake2b(salt, digest_size=8).digest(), "little")
    return mixed((own + word) & MASK)


def number_word(value: float) -> int:
    if isinstance(value, int) and (abs(value) > 2**1023 or int(float(value)) != value):
        kind = "int64" if value < 2**63 else "uint64"
        return mixed((base(kind) + value) & MASK)
    return int.from_bytes(struct.pack("<d", float(value) + 0.0), "little")


def text_word(text: str) -> int:
    return by_formula(text, "text", "content", 0)


def hashed(values: Any, kind: pa.DataType | None = None, name: str = "x") -> list[int]:
    column = values if isinstance(values, pa.Array) else pa.array(values, kind)
    return content_hashes(pa.record_batch([column], [name]), [name]).tolist()


FLOATS = st.floats(allow_nan=False, allow_infinity=False)


@pytest.mark.parametrize(
    ("numbers", "kind", "edges"),
    [
        (
            st.integers(-(2**63), 2**63 - 1),
            pa.int64(),
            [0, 2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63)],
        ),
        (
            st.integers(0, 2**64 - 1),
            pa.uint64(),
            [2**63, 2**64 - 1, 2**63 - 1, 2**63 + 2**40],
        ),
        (FLOATS, pa.float64(), [0.0, -0.0, 0.1, 1e300, 5e-324, 2.0**63, 2.0**64]),
    ],
)
@given(data=st.data())
def test_numbers_are_known_by_their_value(
    numbers: st.SearchStrategy[float],
    kind: pa.DataType,
    edges: list[float],
    data: st.DataObject,
) -> None:
    """A number has one hash, stored or written; -0 is 0, integers are exact."""
    for values in (edges, data.draw(st.lists(numbers))):
        wanted = [cell("x", number_word(value)) for value in values]
        texts = [repr(value) for value in values]
        assert hashed(values, kind) == wanted
        assert hashed(texts, pa.string()) == wanted
        assert hashed([*texts, "1.5", "some text"])[:-2] == wanted


ONE = ["1", "1.0", "1e0", "+1", "1.", "10e-1", "0.1e1", " 1", "1\t"]


@pytest.mark.parametrize("others", [[], ["text"], ["007"], ["1.5", "NA"], [None, ""]])
@pytest.mark.parametrize("text", ONE)
def test_one_number_however_it_is_written(text: str, others: list[str]) -> None:
    """The other values of the column do not count."""
    assert hashed([*others, text], pa.string())[-1] == hashed([1])[0]


@pytest.mark.parametrize(
    "text", ["007", "0x1f", "1,5", "1_000", "1e400", "nan(1)", "-"]
)
def test_what_is_no_number_is_a_text(text: str) -> None:
    """By the rules that read floats; alone in a column and among numbers."""
    wanted = cell("x", text_word(text))
    assert hashed([text]) == [wanted]
    assert hashed(["1", text, "2.5"])[1] == wanted


def test_large_integers_of_a_mixed_column_are_exact() -> None:
    """Neighbours beyond 2^53 differ where they are written as integers."""
    texts = ["9007199254740993", "-9007199254740993", "18446744073709551615", "1.5"]
    more = [
        "some text",
        "9007199254740993.00",
        "1e30",
        str(10**30),
        "9.007199254740993e15",
    ]
    found = hashed([*texts, *more])
    numbers = [2**53 + 1, -(2**53) - 1, 2**64 - 1, 1.5]
    assert found[:4] == [cell("x", number_word(number)) for number in numbers]
    assert found[5] == found[0]
    assert found[8] == hashed([2.0**53])[0] != found[0]
    assert found[6] == found[7] == hashed([1e30])[0]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("1.10", pa.decimal128(5, 2)),
        ("-0.30", pa.decimal128(38, 20)),
        ("123456789012345678901234.5", pa.decimal256(60, 5)),
        ("7", pa.decimal128(5, -2)),
        ("0.00", pa.decimal128(5, 2)),
    ],
)
def test_decimals_are_numbers(value: str, kind: pa.DataType) -> None:
    """Decimals are known by the number that their text is."""
    scale = -kind.scale if kind.scale < 0 else 0
    stored = decimal.Decimal(value).scaleb(scale)
    assert hashed([stored], kind) == hashed([str(float(stored))])


def test_missing_values_add_nothing() -> None:
    """Null, NaN, the empty text and a column that is not there are one."""
    for values, kind in (
        ([None, "", "nan", " NaN"], pa.string()),
        ([None, float("nan")], pa.float64()),
        ([None, None], pa.int64()),
        ([None], pa.null()),
        ([None, b""], pa.binary()),
        ([None], pa.list_(pa.int64())),
        ([None], pa.bool_()),
        ([None], pa.timestamp("ns")),
    ):
        assert set(hashed(values, kind)) == {0}
    rows = pa.record_batch({"a": ["x"], "b": ["y"]})
    both = content_hashes(rows, ["a", "b", "c"])
    assert both == content_hashes(rows, ["b", "a"])
    assert both == content_hashes(rows, ["a"]) + content_hashes(rows, ["b"])


def test_infinities_are_numbers() -> None:
    """As words and as floats."""
    words = hashed(["inf", "-Infinity", "+INF", "text"])
    assert words[:3] == hashed([float("inf"), -float("inf"), float("inf")])


def test_bools_are_their_words() -> None:
    """True and false in any case, and never the numbers 1 and 0."""
    wanted = [cell("x", base("bool") + 1), cell("x", base("bool"))]
    assert hashed([True, False]) == wanted
    assert hashed(["true", "false"]) == hashed(["TRUE", "False"]) == wanted
    assert hashed(["x", "True", "fALSE"])[1:] == wanted
    assert hashed([1, 0]) != wanted


def test_names_count_in_nfc() -> None:
    """A value under another name is another content; a name is one in NFC."""
    assert hashed([1], name="a") != hashed([1], name="b")
    assert hashed([1], name="\u00e9") == hashed([1], name="e\u0301")
    assert hashed(["\u00e9"]) == hashed(["e\u0301"]) == [cell("x", text_word("\u00e9"))]


def test_ways_of_storing_do_not_count() -> None:
    """Dictionaries, views, large types, widths, runs and chunks."""
    texts = ["a", None, "b", "1", "a"]
    wanted = hashed(texts)
    column = pa.array(texts)
    for kind in (pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary()):
        assert hashed(column.cast(kind)) == wanted
    assert hashed(column.dictionary_encode()) == wanted
    assert hashed(pa.array([b"a", b"1"], pa.binary(1))) == [wanted[0], wanted[3]]
    numbers = [1, None, 3]
    for kind in (pa.int8(), pa.uint16(), pa.float32(), pa.float64(), pa.int64()):
        assert hashed(numbers, kind) == hashed(["1", "", "3"])
    runs = pa.RunEndEncodedArray.from_arrays([2, 3], ["a", "b"])
    assert hashed(runs) == hashed(["a", "a", "b"])


def test_times_are_known_by_the_instant() -> None:
    """Units, zones and dates do not count, and instants beyond nanoseconds are fine."""
    when = datetime.datetime(2024, 5, 1, 12, 30, 1, 500_000)
    found = {
        hashed([when], pa.timestamp(unit, zone))[0]
        for unit in ("ms", "us", "ns")
        for zone in (None, "UTC")
    }
    assert len(found) == 1
    day = datetime.date(9999, 12, 31)
    assert hashed([day], pa.date32()) == hashed([day], pa.date64())
    midnight = datetime.datetime(9999, 12, 31)
    assert hashed([midnight], pa.timestamp("s")) == hashed([day], pa.date32())
    before = datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999)
    assert hashed([before], pa.timestamp("us")) == hashed([before], pa.timestamp("ns"))
    clock = datetime.time(1, 2, 3)
    assert hashed([clock], pa.time32("s")) == hashed([clock], pa.time64("ns"))
    long = datetime.timedelta(seconds=3)
    assert hashed([long], pa.duration("s")) == hashed([long], pa.duration("us"))


def test_lists_are_known_by_items_in_order() -> None:
    """Order, length and nulls count; the kind of list and slices do not."""
    lists = [[1, 2], [2, 1], [1, 2, None], [1, None, 2], [], [1], [1, 2]]
    column = pa.array(lists, pa.list_(pa.int64()))
    found = hashed(column)
    assert len(set(found)) == len(lists) - 1
    assert found[0] == found[-1]
    assert hashed(column.cast(pa.large_list(pa.float64()))) == found
    assert hashed(column.slice(2, 3)) == found[2:5]
    pairs = pa.array([[1, 2], None, [2, 1]], pa.list_(pa.int64(), 2))
    assert hashed(pairs) == [found[0], 0, found[1]]
    assert hashed(pairs.slice(2)) == [found[1]]
    tensor = pa.fixed_shape_tensor(pa.int64(), (2,))
    wrapped = pa.ExtensionArray.from_storage(tensor, pairs)
    assert hashed(wrapped) == hashed(pairs)
    nested = pa.array([[["a"], []], [["a"]], [[], ["a"]]])
    assert len(set(hashed(nested))) == 3


def test_structs_are_known_by_their_fields() -> None:
    """By name, in any order; maps by their entries."""
    one = pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": None}])
    other = pa.array([{"b": "x", "a": 1}, None, {"b": None, "a": None}])
    assert hashed(one) == hashed(other)
    assert len(set(hashed(one))) == 3
    entries = pa.array([[("k", 1)], [("k", 2)], None], pa.map_(pa.string(), pa.int64()))
    assert len(set(hashed(entries))) == 3
    assert hashed(entries)[2] == 0


PNG = b"\x89PNG\r\n\x1a\n"


def test_bytes_of_images_are_left_out() -> None:
    """Of a struct the path is left; other bytes count, also those that are no text."""
    assert hashed([PNG + b"1", b"RIFF....WEBP"]) == [0, 0]
    images = pa.array([{"bytes": PNG + bytes([i]), "path": "a.png"} for i in range(2)])
    assert len(set(hashed(images))) == 1
    found = hashed([b"\xff\x00", b"\xff\x01", b"a", None])
    assert len(set(found)) == 4
    assert found[2:] == hashed(["a", None])


@given(
    st.lists(
        st.one_of(
            st.none(),
            st.text(max_size=9),
            st.sampled_from([*ONE, "true", "nan", "2024-05-01", "007", "NA", "inf"]),
            st.integers(-(2**70), 2**70).map(str),
            FLOATS.map(repr),
        ),
        max_size=40,
    ),
    st.integers(1, 5000),
)
def test_neighbours_do_not_count(values: list[str | None], times: int) -> None:
    """A cell has the same hash alone, among all others, and often repeated."""
    alone = [hashed([value], pa.string())[0] for value in values]
    assert hashed(values, pa.string()) == alone
    many = (values * (times // max(len(values), 1) + 1))[: max(times, len(values))]
    found = hashed(many, pa.string())
    assert found == [alone[i % len(values)] for i in range(len(many))]
    encoded = pa.array(values, pa.string()).dictionary_encode()
    assert hashed(encoded) == alone


GOLDEN_COLUMNS = pa.record_batch(
    {
        "id": ["1", "two", "고양이", None],
        "n": pa.array([1.5, -7.0, float("nan"), 2.0**60]),
        "when": pa.array([0, 1, None, -1], pa.timestamp("us")),
        "flag": [True, False, None, True],
        "many": [[1, 2], [], None, [None]],
    }
)
GOLDEN_ROWS = [
    0xEF59586A92B91261,
    0x6BB262BA94C03942,
    0xDBF5DAE7FFFEC8BB,
    0xCF3C0D97D4A9DBE3,
]


GOLDEN_TEXTS = [
    0x0,
    0x843BFC7B4F495117,
    0xAD37ED531FB54F0B,
    0x9C3D452FC57C2C76,
    0xAB3FC0C940176448,
    0xB4413BC58387284F,
    0x9BAB9D8396466151,
    0x5FCB15B7BC90D66A,
    0xB696401E746ACB17,
]


def test_golden_rows() -> None:
    """Literal hashes: every split by shares of rows without a key hangs on them."""
    names = GOLDEN_COLUMNS.schema.names
    assert content_hashes(GOLDEN_COLUMNS, names).tolist() == GOLDEN_ROWS


def test_golden_texts() -> None:
    """So do those of texts of every length, and of the numbers among them."""
    texts = ["", "a", "eight by", "nine byte", "x" * 129, "12", "0.1", "-0", "007"]
    assert hashed(texts) == GOLDEN_TEXTS


def _png(number: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + bytes([number])


@pytest.mark.parametrize(
    "cells",
    [
        [_png(1), _png(2), None, b"other"],
        [[_png(1)], [_png(2)], [_png(2), None], [_png(1), b""], [], None],
        [[[_png(1)], [_png(2)]], [[_png(1), _png(2)]], None],
        [{"bytes": _png(1)}, {"bytes": _png(2)}, None],
        [[{"bytes": _png(1)}], [{"bytes": _png(2)}], [None], None],
    ],
)
def test_hashed_images_count_wherever_they_are(cells: list[Any]) -> None:
    """Rows that differ in an image alone have hashes of their own; nulls stay."""
    rows = pa.record_batch({"v": pa.array(cells)})
    found = content_hashes(rows, ["v"], images=True).tolist()
    assert len({*found}) == len(cells)
    assert content_hashes(rows.slice(1), ["v"], images=True).tolist() == found[1:]


def test_an_image_counts_as_the_text_of_its_digest() -> None:
    """This decides the places of a pipeline's rows, and may not change."""
    digest = hashlib.blake2b(_png(1), digest_size=16).hexdigest()
    rows = pa.record_batch({"x": [_png(1)]})
    assert content_hashes(rows, ["x"], images=True).tolist() == hashed([digest])


def test_rows_without_images_are_the_same() -> None:
    """Their hashes are those of the rows themselves."""
    rows = pa.record_batch({"v": [[b"a"], [b"b", None], []], "n": [1, 2, 3]})
    found = content_hashes(rows, ["v", "n"], images=True)
    assert (found == content_hashes(rows, ["v", "n"])).all()
