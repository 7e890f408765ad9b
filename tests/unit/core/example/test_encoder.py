"""The columnar encoder, with protobuf as its oracle.

The oracle for a row: the serialised one-feature `Features` messages of its values,
concatenated in the byte order of the names, wrapped in the Example's field 1. It
does not depend on the order in which protobuf writes a map.
"""

import functools
import itertools
import math
import struct
from typing import Any
from unittest import mock

import google_crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transforms.core.arrays import offsets_of
from transforms.core.example import encoder as encoder_module
from transforms.core.example import joined_records
from transforms.core.example import payload as payload_module
from transforms.core.example.encoder import (
    AroundValues,
    ExampleEncoder,
)
from transforms.core.example.messages import CLASSES
from transforms.core.example.payload import MAX_EXAMPLE_BYTES
from transforms.core.example.wire import (
    Varints,
    varint,
    varint_size,
)
from transforms.core.tfrecord.frame import frame
from transforms.errors import MAX_MESSAGE_BYTES, EncodingError

Features, Feature = CLASSES["Features"], CLASSES["Feature"]
BytesList, FloatList = CLASSES["BytesList"], CLASSES["FloatList"]
Int64List = CLASSES["Int64List"]


TUTORIAL = pa.schema(
    [
        ("feature0", pa.bool_()),
        ("feature1", pa.int64()),
        ("feature2", pa.string()),
        ("feature3", pa.float32()),
    ]
)
TUTORIAL_ROW = (
    b"\x0aR"
    b"\x0a\x11\x0a\x08feature0\x12\x05\x1a\x03\x0a\x01\x00"
    b"\x0a\x11\x0a\x08feature1\x12\x05\x1a\x03\x0a\x01\x04"
    b"\x0a\x14\x0a\x08feature2\x12\x08\x0a\x06\x0a\x04goat"
    b"\x0a\x14\x0a\x08feature3\x12\x08\x12\x06\x0a\x04[\xd3|?"
)
# Sizes around which a varint in the prefix grows, for the names used here.
EDGES = [0, 1, 99, 100, 101, *range(105, 130), *range(16_340, 16_390), 70_000]


def base_type(kind: pa.DataType) -> pa.DataType:
    """Returns the type of single values: without lists and dictionaries."""
    while not pa.types.is_dictionary(kind) and pa.types.is_nested(kind):
        kind = kind.value_type
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def feature_message(kind: pa.DataType, value: Any) -> Any:
    """Returns the Feature that holds a Python value of an Arrow type."""
    values = value if isinstance(value, list) else [value]
    single = base_type(kind)
    if pa.types.is_boolean(single) or pa.types.is_integer(single):
        return Feature(int64_list=Int64List(value=[int(v) for v in values]))
    if pa.types.is_floating(single):
        return Feature(float_list=FloatList(value=[float(v) for v in values]))
    data = [v.encode() if isinstance(v, str) else v for v in values]
    return Feature(bytes_list=BytesList(value=data))


def entries(schema: pa.Schema, row: dict[str, Any]) -> bytes:
    """Returns the map entries of a row by the oracle."""
    return b"".join(
        Features(
            feature={name: feature_message(schema.field(name).type, row[name])}
        ).SerializeToString()
        for name in sorted(row, key=str.encode)
        if row[name] is not None
    )


def oracle(batch: pa.RecordBatch) -> list[bytes]:
    """Returns the serialised Examples of a batch by the oracle."""
    rows = [
        {name: batch.column(name)[i].as_py() for name in batch.schema.names}
        for i in range(batch.num_rows)
    ]
    return [
        b"\x0a" + varint(len(data)) + data
        for data in (entries(batch.schema, row) for row in rows)
    ]


def assert_encodes(batch: pa.RecordBatch) -> None:
    """Compares all ways to encode a batch with the oracle."""
    encoder = ExampleEncoder(batch.schema)
    expected = oracle(batch)
    before = batch.serialize() if batch.nbytes < 1 << 20 else None
    encoded = encoder.encode(batch)
    # Buffers shared with the caller are read only.
    assert before is None or batch.serialize().equals(before)
    encoded.validate(full=True)
    assert encoded.to_pylist() == expected
    framed = encoder.encode_framed(batch)
    records = [frame(data) for data in expected]
    assert framed.buffers()[2].to_pybytes() == b"".join(records)
    assert offsets_of(framed).tolist() == [0, *itertools.accumulate(map(len, records))]


def with_nulls_over_values(array: pa.Array, present: npt.NDArray[Any]) -> pa.Array:
    """Returns the array with some slots made null whose values stay behind."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        indices = with_nulls_over_values(array.indices, present)
        return pa.DictionaryArray.from_arrays(indices, array.dictionary)
    bits = np.concatenate((np.zeros(array.offset, bool), present))
    own, children = array.buffers(), []
    if pa.types.is_nested(kind):
        own = own[: 1 if pa.types.is_fixed_size_list(kind) else 2]
        children = [array.values]
    validity = pa.py_buffer(np.packbits(bits, bitorder="little"))
    return pa.Array.from_buffers(
        kind, len(array), [validity, *own[1:]], -1, array.offset, children
    )


INT_TYPES = {
    pa.int8(): (-(2**7), 2**7 - 1),
    pa.int16(): (-(2**15), 2**15 - 1),
    pa.int32(): (-(2**31), 2**31 - 1),
    pa.int64(): (-(2**63), 2**63 - 1),
    pa.uint8(): (0, 2**8 - 1),
    pa.uint16(): (0, 2**16 - 1),
    pa.uint32(): (0, 2**32 - 1),
    pa.uint64(): (0, 2**63 - 1),
}
FLOAT_TYPES = {pa.float16(): 16, pa.float32(): 32, pa.float64(): 64}
FLOAT32_MAX = float(np.finfo(np.float32).max)
TEXT = st.text(st.sampled_from("aZ0 \n,é한국어고양이Кот🐈～"), max_size=40) | st.text(
    st.characters(exclude_categories=["Cs"]), max_size=5
)
BYTES = st.binary(max_size=40) | st.binary(min_size=90, max_size=300)


@st.composite
def integers(draw: Any, low: int, high: int) -> Any:
    """Integers of all magnitudes, so that all lengths of varints occur."""
    bits = draw(st.integers(0, 64))
    value = draw(st.integers(-(1 << bits), 1 << bits))
    return min(max(value, low), high)


@st.composite
def kinds_and_values(draw: Any) -> Any:
    """An Arrow type that can be encoded, and a strategy for its values."""
    choice = draw(st.sampled_from(["bool", "int", "float", "text", "bytes"]))
    values: st.SearchStrategy[Any]
    if choice == "bool":
        kind, values = pa.bool_(), st.booleans()
    elif choice == "int":
        kind = draw(st.sampled_from(list(INT_TYPES)))
        low, high = INT_TYPES[kind]
        top = draw(st.sampled_from([1, 127, 128, high]))
        values = integers(low, high) | st.integers(max(low, 0), min(top, high))
    elif choice == "float":
        kind = draw(st.sampled_from(list(FLOAT_TYPES)))
        values = st.floats(width=16 if kind == pa.float16() else 32)
        if kind == pa.float64():
            values |= st.floats(-FLOAT32_MAX, FLOAT32_MAX)
        if kind == pa.float16():
            values = values.map(np.float16)
    elif choice == "text":
        kind, values = draw(st.sampled_from([pa.string(), pa.large_string()])), TEXT
    else:
        kind, values = draw(st.sampled_from([pa.binary(), pa.large_binary()])), BYTES
    is_encoded = choice in ("int", "text", "bytes") and _makes_dictionaries(kind)
    if is_encoded and draw(st.booleans()):
        kind = pa.dictionary(draw(st.sampled_from([pa.int8(), pa.uint32()])), kind)
    shape = draw(st.sampled_from(["one", "one", "list", "large_list", "fixed"]))
    if shape == "list":
        kind, values = pa.list_(kind), st.lists(values, max_size=6)
    elif shape == "large_list":
        kind, values = pa.large_list(kind), st.lists(values, max_size=6)
    elif shape == "fixed":
        size = draw(st.integers(0, 3))
        kind = pa.list_(kind, size)
        values = st.lists(values, min_size=size, max_size=size)
    return kind, values


@functools.cache
def _makes_dictionaries(kind: Any) -> Any:
    """Whether Arrow builds such an array from Python; 24 cannot for large texts."""
    try:
        pa.array([], pa.dictionary(pa.int8(), kind))
    except pa.ArrowNotImplementedError:
        return False
    return True


@st.composite
def batches(draw: Any) -> Any:
    """A batch of random columns: nulls, hidden values, empty lists, a slice."""
    names = draw(
        st.lists(
            st.sampled_from(["", "a", "a/b", "a b", "이름", "🐈", "～", "n" * 150])
            | TEXT,
            unique=True,
            max_size=5,
        )
    )
    count = draw(st.integers(0, 12))
    columns = []
    for _ in names:
        kind, values = draw(kinds_and_values())
        nulls = draw(st.sampled_from(["none", "some", "hidden", "all"]))
        if nulls == "some":
            values |= st.none()
        elif nulls == "all":
            values = st.none()
        cells = draw(st.lists(values, min_size=count, max_size=count))
        column = pa.array(cells, kind)
        if nulls == "hidden":
            present = draw(st.lists(st.booleans(), min_size=count, max_size=count))
            column = with_nulls_over_values(column, np.array(present, bool))
        if nulls == "all" and draw(st.booleans()):
            column = pa.nulls(count)
        columns.append(column)
    start = draw(st.integers(0, count))
    return pa.RecordBatch.from_arrays(columns, names).slice(
        start, draw(st.integers(0, count))
    )


def test_tutorial_row_is_its_84_bytes() -> None:
    """The row (False, 4, goat, 0.9876) of TensorFlow's tutorial, byte for byte."""
    row = {"feature0": False, "feature1": 4, "feature2": "goat", "feature3": 0.9876}
    batch = pa.RecordBatch.from_pylist([row], TUTORIAL)
    (data,) = ExampleEncoder(TUTORIAL).encode(batch).to_pylist()
    assert data == TUTORIAL_ROW
    assert oracle(batch) == [TUTORIAL_ROW]
    framed = ExampleEncoder(TUTORIAL).encode_framed(batch)
    assert framed.buffers()[2].to_pybytes() == frame(TUTORIAL_ROW)


@given(batch=batches(), rows=st.integers(1, 5), size=st.sampled_from([1, 400, 1 << 24]))
def test_any_batch_gives_the_bytes_of_protobuf(
    batch: Any, rows: Any, size: Any
) -> None:
    """Random schemas, rows, slices and chunk sizes equal the oracle."""
    with (
        mock.patch.object(encoder_module, "_CHUNK_ROWS", rows),
        mock.patch.object(encoder_module, "_CHUNK_BYTES", size),
    ):
        assert_encodes(batch)


@given(
    batch=batches(),
    name=TEXT,
    data=st.data(),
    rows=st.integers(1, 5),
    scale=st.sampled_from([1, 1000]),
)
def test_pieces_around_values_make_the_records(
    batch: Any, name: Any, data: Any, rows: Any, scale: Any
) -> None:
    """The pieces are what the encoder gives with the values as a column."""
    if name in batch.schema.names:
        return
    count = batch.num_rows
    short = st.lists(st.binary(max_size=200), min_size=count, max_size=count)
    values = [value * scale for value in data.draw(short)]
    crcs = np.array([google_crc32c.value(value) for value in values], np.uint32)
    with mock.patch.object(encoder_module, "_CHUNK_ROWS", rows):
        framed = AroundValues(batch.schema, name).frame(batch, values, crcs)
    whole = batch.append_column(name, pa.array(values, pa.binary()))
    expected = b"".join(frame(record) for record in oracle(whole))
    assert b"".join(framed.pieces) == expected
    assert framed.crc32c == google_crc32c.value(expected)


def test_no_rows_and_no_columns() -> None:
    """Nothing in, nothing out; rows without columns are empty Examples."""
    encoder = ExampleEncoder(TUTORIAL)
    nothing = pa.RecordBatch.from_pylist([], TUTORIAL)
    assert encoder.encode(nothing).to_pylist() == []
    framed = encoder.encode_framed(nothing)
    assert framed.buffers()[2].size == 0
    assert offsets_of(framed).tolist() == [0]
    bare = pa.record_batch({"a": [1, 2, 3]}).select([])
    assert bare.num_rows == 3
    assert_encodes(bare)
    around = AroundValues(bare.schema, "x")
    crcs = np.zeros(3, np.uint32)
    (record,) = oracle(pa.record_batch({"x": [b""]}))
    pieces = around.frame(bare, [b"", b"", b""], crcs).pieces
    assert b"".join(pieces) == frame(record) * 3
    none = around.frame(bare.slice(0, 0), [], crcs[:0])
    assert (none.pieces, none.crc32c) == ([], 0)


def test_varints_equal_protobuf_at_all_edges() -> None:
    """Every power of two and its neighbours, alone and all in one column."""
    edges = {0, -1, -(2**63), 2**63 - 1}
    for bit in range(63):
        edges |= {(1 << bit) - 1, 1 << bit, -(1 << bit), (1 << bit) + 1}
    values = sorted(edges)
    assert_encodes(pa.record_batch({"x": pa.array(values, pa.int64())}))
    assert_encodes(pa.record_batch({"x": pa.array([values], pa.list_(pa.int64()))}))
    for value in values:
        word = np.array([value], np.int64).view(np.uint64)
        size = Varints.of(word).sizes
        assert size == varint_size(int(word[0])) == len(varint(int(word[0])))
        assert_encodes(pa.record_batch({"x": pa.array([value] * 2, pa.int64())}))


def test_prefixes_at_the_sizes_where_their_varints_grow() -> None:
    """A text column with all critical sizes in one batch, and each size alone."""
    for name in ("", "x", "feature_of_some_length", "n" * 150):
        values = ["v" * size for size in EDGES]
        batch = pa.record_batch({name: values, name + "z": [1.0] * len(values)})
        assert_encodes(batch)
        for row in range(0, len(EDGES), 5):
            assert_encodes(batch.slice(row, 2))


def test_float32_keeps_its_very_bits() -> None:
    """Signalling NaNs, payloads, -0.0 and denormals pass through untouched."""
    bits = [0x7F800001, 0xFFC12345, 0x7FC00000, 0x80000000, 1, 0x007FFFFF, 0xFF800000]
    column = pa.array(np.array(bits, np.uint32).view(np.float32))
    batch = pa.record_batch({"x": column})
    for word, data in zip(
        bits, ExampleEncoder(batch.schema).encode(batch).to_pylist(), strict=True
    ):
        assert data[-4:] == struct.pack("<I", word)


@given(batches())
def test_checksums_by_linearity_are_those_of_calls(batch: pa.RecordBatch) -> None:
    """Random schemas, nulls and lengths: the oracle's frames in both ways."""
    framed = b"".join(map(frame, oracle(batch)))
    for cost in (0, math.inf):
        with mock.patch.object(joined_records, "_CALL_NS", cost):
            encoder = ExampleEncoder(batch.schema)
            assert encoder.encode_framed(batch).buffers()[2].to_pybytes() == framed


def test_values_far_into_a_large_buffer() -> None:
    """Offsets past 2 GiB, behind a null slot that still holds the bytes before."""
    far = 2_200_000_000
    data = np.zeros(far + 20, np.uint8)
    data[far:] = np.frombuffer(b"abcdefghijklmnopqrst", np.uint8)
    offsets = np.array([0, far, far + 3, far + 20], np.int64)
    buffers = [pa.py_buffer(b"\x06"), pa.py_buffer(offsets), pa.py_buffer(data)]
    for kind in (pa.large_string(), pa.large_binary()):
        column = pa.Array.from_buffers(kind, 3, buffers)
        assert_encodes(pa.record_batch({"x": column}))
    starts = pa.array([0, 1, 3], pa.int64())
    lists = pa.LargeListArray.from_arrays(starts, column).slice(1)
    assert_encodes(pa.record_batch({"x": lists}))


def test_an_example_past_two_gigabytes_is_refused_before_it_is_built() -> None:
    """One value, one list of values, and one list of numbers over the limit."""
    size = MAX_EXAMPLE_BYTES + 1
    offsets = pa.py_buffer(np.array([0, 1, 1 + size], np.int64))
    data = pa.py_buffer(np.zeros(1 + size, np.uint8))
    text = pa.Array.from_buffers(pa.large_binary(), 2, [None, offsets, data])
    half = pa.py_buffer(np.array([0, 1, size // 2, size + 1], np.int64))
    halves = pa.Array.from_buffers(pa.large_binary(), 3, [None, half, data])
    lists = pa.LargeListArray.from_arrays(pa.array([0, 1, 3], pa.int64()), halves)
    tiny = pa.Array.from_buffers(pa.uint8(), 1 + size, [None, data])
    ints = pa.LargeListArray.from_arrays(pa.array([0, 1, 1 + size], pa.int64()), tiny)
    for column in (text, lists, ints):
        batch = pa.record_batch({"big": column})
        with pytest.raises(EncodingError, match=r"'big', row 2 .*counted from 1"):
            ExampleEncoder(batch.schema).encode_framed(batch)


def test_an_example_over_the_limit_in_sum_names_its_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Features that fit one by one but not together."""
    monkeypatch.setattr(joined_records, "MAX_EXAMPLE_BYTES", 100)
    monkeypatch.setattr(payload_module, "MAX_EXAMPLE_BYTES", 100)
    batch = pa.record_batch({"a": ["x", "y" * 60, "z"], "b": ["x", "y" * 60, "z"]})
    with pytest.raises(EncodingError, match="row 2 of the batch"):
        ExampleEncoder(batch.schema).encode(batch)
    small = pa.record_batch({"a": ["x", "y"]})
    encoder = AroundValues(small.schema, "image")
    with pytest.raises(EncodingError, match="row 2 of the batch"):
        encoder.frame(small, [b"", bytes(90)], np.zeros(2, np.uint32))
    fits = pa.record_batch({"a": ["y" * 82]})
    (data,) = ExampleEncoder(fits.schema).encode(fits).to_pylist()
    assert len(data) <= 100


@pytest.mark.parametrize(
    "kind",
    [
        pa.timestamp("s"),
        pa.date32(),
        pa.decimal128(10, 2),
        pa.struct([("a", pa.int64())]),
        pa.list_(pa.list_(pa.int64())),
        pa.list_(pa.null()),
        pa.map_(pa.string(), pa.int64()),
        pa.binary(4),
        pa.binary_view(),
        pa.dictionary(pa.int8(), pa.date32()),
        pa.duration("s"),
    ],
    ids=str,
)
def test_types_without_a_place_in_an_example_are_refused(kind: pa.DataType) -> None:
    """The error names the feature and its type, before any batch is seen."""
    with pytest.raises(EncodingError) as caught:
        ExampleEncoder(pa.schema([("fine", pa.int64()), ("odd", kind)]))
    assert "'odd'" in str(caught.value)
    assert str(kind) in str(caught.value)


def hidden(values: Any, kind: Any) -> Any:
    """Returns values, the first of them hidden under a null."""
    array = pa.array(values, kind)
    return with_nulls_over_values(array, np.arange(len(array)) > 0)


@pytest.mark.parametrize(
    ("column", "found"),
    [
        (hidden([2**64 - 1, 5, 2**63], pa.uint64()), "9223372036854775808"),
        (hidden([1e300, 5.0, -1e39], pa.float64()), "-1e+39"),
        (pa.array([[], [1, 2], [3, None]]), "null"),
        (pa.array([[], ["a", "b"], [None]]), "null"),
        (pa.array([[1], [2], [None]], pa.list_(pa.float32(), 1)), "null"),
        (pa.array([None, [1], [1, 2**63]], pa.list_(pa.uint64())), "923372036854"),
        (pa.array([None, [1], [1, 1e40]], pa.large_list(pa.float64())), "1e+40"),
        (
            pa.array([[], ["a"], ["a", None]], pa.list_(pa.dictionary("int8", "utf8"))),
            "null",
        ),
    ],
    ids=lambda value: str(getattr(value, "type", "")),
)
@pytest.mark.parametrize("chunk_rows", [1, 2, 100])
def test_values_that_do_not_fit_name_feature_and_row(
    column: pa.Array, found: str, chunk_rows: int
) -> None:
    """Row 3 is to blame in every chunking; nulls over bad values are not."""
    batch = pa.record_batch(
        {
            "a": pa.nulls(4, pa.int64()),
            "odd": pa.concat_arrays([column.slice(0, 1), column]),
        }
    ).slice(1)
    encoder = ExampleEncoder(batch.schema)
    for encode in (encoder.encode, encoder.encode_framed):
        with (
            mock.patch.object(encoder_module, "_CHUNK_ROWS", chunk_rows),
            pytest.raises(EncodingError) as caught,
        ):
            encode(batch)
        message = str(caught.value)
        assert "'odd', row 3 of the batch" in message
        assert found.replace("923372036854", "9223372036854775808") in message
        assert len(message.encode()) <= MAX_MESSAGE_BYTES
    assert_encodes(batch.slice(0, 2))


def test_the_largest_float32_is_no_overflow() -> None:
    """A float64 that rounds to the largest float32, and infinities, are kept."""
    values = [FLOAT32_MAX, -FLOAT32_MAX, FLOAT32_MAX * (1 + 1e-9), float("inf")]
    batch = pa.record_batch({"x": pa.array(values)})
    with np.errstate(all="raise"):
        encoded = ExampleEncoder(batch.schema).encode(batch).to_pylist()
    floats = [struct.unpack("<f", data[-4:])[0] for data in encoded]
    assert floats == [FLOAT32_MAX, -FLOAT32_MAX, FLOAT32_MAX, float("inf")]


def test_two_columns_of_one_name_are_refused() -> None:
    """A map has one value a key; the feature beside the schema counts too."""
    twice = pa.schema([("a", pa.int64()), ("a", pa.string())])
    with pytest.raises(EncodingError, match="'a' more than once"):
        ExampleEncoder(twice)
    with pytest.raises(EncodingError, match="'image' more than once"):
        AroundValues(pa.schema([("image", pa.int64())]), "image")


def test_a_batch_of_another_schema_is_refused() -> None:
    """Other names or types raise; other metadata and nullability do not."""
    encoder = ExampleEncoder(pa.schema([("a", pa.int64())]))
    for other in ({"b": [1]}, {"a": [1.5]}, {"a": [1], "b": [2]}):
        with pytest.raises(EncodingError, match="a: int64"):
            encoder.encode(pa.record_batch(other))
    same = pa.schema([pa.field("a", pa.int64(), False)], metadata={"k": "v"})
    batch = pa.RecordBatch.from_pylist([{"a": 1}], same)
    assert encoder.encode(batch).to_pylist() == oracle(batch)
