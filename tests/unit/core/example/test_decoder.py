"""Examples to Python values and Arrow columns: protobuf is the oracle."""

import random
from typing import NoReturn

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import (
    Values,
    floats,
    int64s,
    ints,
    same,
    serialise,
)
from tests.support.sequences import field
from transforms.core.example import decoder
from transforms.core.example.decoder import (
    ExampleColumns,
    decode_examples,
    read_columns,
)
from transforms.core.example.messages import Example, other_kind, parse_example
from transforms.core.example.wire import varint
from transforms.core.tfrecord.reader import PayloadBatch
from transforms.errors import ExampleError, RecordKindError, SpecError


def entry(name: bytes, feature: bytes) -> bytes:
    return field(1, field(1, name) + field(2, feature))


ONE = field(3, field(1, b"\x01"))


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\xff" * 11,
        b"\x1b" * 100_000,
        b"\x1b" * 1000 + b"\x1c" * 1000,
        field(1, entry(b"\xff", ONE)),
    ],
)
def test_what_is_no_example(data: bytes) -> None:
    """Cut, over-long, wrong wire type, nested without end: a typed error each."""
    with pytest.raises(ExampleError, match=r"not a tf\.train\.Example"):
        parse_example(data)
    with pytest.raises(ExampleError, match="example 1: "):
        decode_examples([b"", data])


def test_absent_and_untyped_features_are_null() -> None:
    """Typed empty lists are lists, not nulls."""
    rows: list[Values] = [
        {"a": ("int64_list", [1]), "l": ("float_list", []), "u": ("", [])},
        {"l": ("float_list", [0.5, 1.5])},
        {"a": ("", []), "l": ("", [])},
    ]
    batch = decode_examples([serialise(row) for row in rows])
    assert batch.schema.types == [pa.int64(), pa.large_list(pa.float32()), pa.null()]
    assert batch.to_pydict() == {
        "a": [1, None, None],
        "l": [[], [0.5, 1.5], None],
        "u": [None, None, None],
    }


def test_feature_of_two_types_is_an_error() -> None:
    """It names the first example of either."""
    rows = [b"", ints(a=1), ints(b=1), serialise({"a": ("float_list", [1.0])})]
    with pytest.raises(
        ExampleError, match=r"int64_list, as in example 1; .* in example 3"
    ):
        decode_examples(rows)


def test_schema_selects_and_types_columns() -> None:
    """Other features are left out, unknown ones are null."""
    rows: list[Values] = [{"a": ("int64_list", [1]), "t": ("bytes_list", [b"x"])}, {}]
    pair = pa.list_(pa.int64(), 1)
    schema = pa.schema({"t": pa.string(), "a": pair, "z": pa.float32()})
    batch = decode_examples([serialise(row) for row in rows], schema=schema)
    assert batch.schema == schema
    assert batch.to_pylist() == [
        {"t": "x", "a": [1], "z": None},
        {"t": None, "a": None, "z": None},
    ]


TWO_VALUES = serialise({"a": ("int64_list", [1, 2]), "t": ("bytes_list", [b"\xff"])})


@pytest.mark.parametrize(
    ("name", "wanted", "error", "words"),
    [
        ("a", pa.float32(), ExampleError, "a float_list.* int64_list in example 1"),
        ("a", pa.int64(), ExampleError, "1 value; found 2 in example 1"),
        ("a", pa.list_(pa.int64(), 3), ExampleError, "3 values; found 2 in example 1"),
        ("t", pa.string(), ExampleError, "'t' does not fit string"),
        ("a", pa.int32(), SpecError, "'a' must be of int64"),
    ],
)
def test_what_does_not_fit_the_schema(
    name: str, wanted: pa.DataType, error: type[Exception], words: str
) -> None:
    """Type and count, with the example's index; a type that no Example holds."""
    with pytest.raises(error, match=words):
        decode_examples([b"", TWO_VALUES], schema=pa.schema({name: wanted}))


def test_no_examples_give_no_rows() -> None:
    """An empty batch, with or without a schema."""
    assert decode_examples([]).num_rows == 0
    schema = pa.schema({"a": pa.int64()})
    assert decode_examples([], schema=schema).schema == schema


def expected_rows(payloads: list[bytes]) -> list[dict[str, object]]:
    """Returns what `decode_examples` must give, from `parse_example` alone."""
    parsed = []
    for data in payloads:
        features = Example.FromString(data).features.feature
        parsed.append(
            {
                name: list(getattr(f, f.WhichOneof("kind")).value)
                for name, f in features.items()
                if f.WhichOneof("kind")
            }
        )
        parsed[-1].update({n: None for n, f in features.items() if n not in parsed[-1]})
    names = sorted({name for row in parsed for name in row})
    plain = {
        name: all(len(row[name]) == 1 for row in parsed if row.get(name) is not None)
        for name in names
    }
    return [
        {
            name: row[name][0] if plain[name] and row.get(name) else row.get(name)
            for name in names
        }
        for row in parsed
    ]


def drawn_kind(name: str) -> st.SearchStrategy[tuple[str, list[object]]]:
    choices: list[st.SearchStrategy[tuple[str, list[object]]]] = [
        st.tuples(st.just("int64_list"), st.lists(int64s, min_size=1, max_size=1)),
        st.tuples(st.just("float_list"), st.lists(floats, min_size=1, max_size=1)),
        st.tuples(
            st.just("bytes_list"),
            st.lists(st.binary(max_size=200), min_size=1, max_size=1),
        ),
        st.tuples(st.just("int64_list"), st.lists(int64s, max_size=3)),
    ]
    return choices["ifbl".index(name[0])]


row_of_one_schema = st.fixed_dictionaries(
    {}, optional={n: drawn_kind(n) for n in "i f b l i2 b2".split()}
)


@pytest.fixture(autouse=True)
def few_records_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole-array operations work on any number of records."""
    monkeypatch.setattr(decoder, "FEW_RECORDS", 1)


def python_values(
    found: ExampleColumns, count: int, name: str
) -> list[list[object] | None]:
    """Returns a feature's values in n records; None where it is not."""
    values: list[list[object] | None] = [None] * count
    for column in found.features.get(name, {}).values():
        for row, items in enumerate(column.lists(count).to_pylist()):
            values[row] = values[row] if items is None else items
    return values


def refused(data: bytes) -> NoReturn:
    """Fails where a record is left to protobuf."""
    raise AssertionError(f"{data!r} is regular")


@given(
    st.lists(row_of_one_schema, min_size=1, max_size=40),
    st.randoms(use_true_random=False),
)
def test_any_features_may_be_missing(rows: list[Values], noise: random.Random) -> None:
    """All records are regular, in whatever order they are in the bytes."""
    payloads = [ordered(row) for row in rows]
    batch = shuffled(payloads, noise)
    found = read_columns(batch, parse=refused)
    names = {name for row in rows for name in row}
    assert list(found.features) == sorted(names)
    for name in names:
        expected = [row[name][1] if name in row else None for row in rows]
        assert same({name: python_values(found, len(batch), name)}, {name: expected})


def ordered(values: Values) -> bytes:
    """Serialises with the features in the order of their names, as most writers do."""
    entries = b"".join(
        Example.FromString(serialise({name: values[name]})).features.SerializeToString()
        for name in sorted(values)
    )
    return b"\x0a" + varint(len(entries)) + entries


def shuffled(payloads: list[bytes], noise: random.Random) -> PayloadBatch:
    """Returns a batch of payloads that are in another order in its data."""
    order = list(range(len(payloads)))
    noise.shuffle(order)
    data, places = b"", {}
    for index in order:
        places[index] = len(data)
        data += payloads[index] + b"\xff"
    lengths = np.array([len(each) for each in payloads])
    starts = np.array([places[index] for index in range(len(payloads))])
    return PayloadBatch(data, starts, lengths, 0, starts)


@given(st.lists(row_of_one_schema, max_size=12), st.randoms(use_true_random=False))
def test_odd_records_among_many_regular_ones(
    rows: list[Values], noise: random.Random
) -> None:
    """Every value is there, whichever way its record was decoded."""
    payloads = [serialise(row) for row in rows]
    payloads += [ordered(row) for row in rows]
    # An unknown field, which protobuf skips.
    payloads += [each + field(9, b"unknown") for each in payloads[:3]]
    noise.shuffle(payloads)
    assert same(decode_examples(payloads).to_pylist(), expected_rows(payloads))


def test_records_that_mostly_lack_features_are_regular() -> None:
    """Each of 5,000 records has another of 2**12 sets of features."""
    noise = random.Random(5)
    rows: list[Values] = [
        {f"f{k:02}": ("int64_list", [k]) for k in range(12) if noise.random() < 0.5}
        for _ in range(5000)
    ]
    batch = PayloadBatch.of([ordered(row) for row in rows])
    assert len(read_columns(batch, parse=refused).features) == 12


def test_what_is_regular_is_what_protobuf_reads() -> None:
    """Each damaged record has protobuf's values, or its error."""
    noise = random.Random(11)
    matched = 0
    for number, text in ((3, b""), (-1, b"abc"), (300, b"x" * 130), (2**63 - 1, b"")):
        whole = ordered(
            {
                "ab": ("int64_list", [number]),
                "list": ("int64_list", [number, 5]),
                "text": ("bytes_list", [text]),
                "texts": ("bytes_list", [text, b"", b"y"]),
                "z": ("float_list", [0.5]),
            }
        )
        payloads = [whole]
        for _ in range(3000):
            changed = bytearray(whole)
            for _ in range(noise.randint(1, 2)):
                byte = noise.choice([noise.randrange(256), noise.choice(whole), 0x80])
                changed[noise.randrange(len(changed))] = byte
            payloads.append(bytes(changed))
        batch = PayloadBatch.of(payloads)
        found = read_columns(batch)
        columns = {
            name: python_values(found, len(batch), name) for name in found.features
        }
        for index in set(range(len(payloads))) - found.errors.keys():
            matched += 1
            values = {
                name: column[index]
                for name, column in columns.items()
                if column[index] is not None
            }
            expected = parse_example(payloads[index])
            expected = {
                name: items
                for name, items in expected.items()
                if name in values or items
            }
            assert same(values, expected), payloads[index]
    assert matched > 1000


def test_unwanted_features_are_checked_and_not_decoded() -> None:
    """The values of the others are the same."""
    batch = PayloadBatch.of([ints(a=k, b=[k, k]) for k in range(50)])
    found = read_columns(batch, wanted=["a"], parse=refused)
    assert list(found.features) == ["a"]


ONE = field(3, field(1, b"\x07"))
ID = entry(b"id", ONE)
LISTS = entry(b"x", field(1, ONE) + field(1, b"")) + entry(b"\xc3\xa9", b"")
DOCUMENT = field(1, field(1, ID + entry(b"d", ONE)))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", ""),
        (field(1, ID), ""),
        (field(1, entry(b"", b"")), ""),
        (field(1, entry(b"\na", ONE)), ""),
        (field(1, ID) + field(3, b"more"), ""),
        (field(1, ID) + field(2, LISTS), "SequenceExample"),
        (field(1, ID) + field(2, b""), "SequenceExample"),
        (field(2, entry(b"x", b"")), "SequenceExample"),
        (DOCUMENT * 3 + field(2, field(1, ID)), "ExampleListWithContext"),
        (field(1, b"") * 2 + DOCUMENT, "ExampleListWithContext"),
        (field(2, field(1, ID)), "ExampleListWithContext"),
        (field(1, ID) + field(2, b"text"), ""),
        (b"A text, and no message.", ""),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", ""),
    ],
)
def test_kinds_of_records(data: bytes, message: str) -> None:
    """By their bytes; no decoder drops what an Example lacks."""
    assert other_kind(data) == message
    if message:
        for decode in (parse_example, lambda one: decode_examples([one] * 20)):
            with pytest.raises(RecordKindError):
                decode(data)
