"""Segments: cut by shard, to bytes and back."""

import numpy as np
import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from transforms.core import segment
from transforms.core.segment import Segment

ROWS = pa.schema([("x", pa.int64()), ("text", pa.string())])


def rows_of(values: list[int]) -> pa.RecordBatch:
    texts = [None if v % 3 == 0 else f"값 {v}" for v in values]
    return pa.record_batch([pa.array(values, pa.int64()), pa.array(texts)], ROWS)


@given(st.lists(st.integers(0, 5), max_size=60), st.sampled_from([1, 2**16, 2**40]))
@example([1, 0, 1, 0], 2**16)
def test_cut_keeps_every_row_in_order(shards: list[int], factor: int) -> None:
    """Each shard gets its rows in their order, shards ascend, nothing is lost."""
    numbers = [shard * factor for shard in shards]
    rows = rows_of(list(range(len(shards))))
    found = [*segment.cut(rows, np.array(numbers, np.int64))]
    assert [shard for shard, _ in found] == sorted(set(numbers))
    for shard, part in found:
        wanted = [i for i, number in enumerate(numbers) if number == shard]
        assert part.to_pylist() == rows_of(wanted).to_pylist()


def test_one_shard_is_not_copied() -> None:
    """Rows of a single shard pass unchanged."""
    rows = rows_of([1, 2, 3])
    ((shard, part),) = segment.cut(rows, np.array([9, 9, 9]))
    assert shard == 9
    assert part.equals(rows)
    assert part["x"].buffers()[1].address == rows["x"].buffers()[1].address


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=40), st.data())
def test_message_round_trip(values: list[int], data: st.DataObject) -> None:
    """A slice of rows comes back with its values and nulls."""
    rows = rows_of(values)
    start = data.draw(st.integers(0, len(values)))
    length = data.draw(st.integers(0, len(values) - start))
    piece = rows.slice(start, length)
    message = piece.serialize()
    assert segment.deserialize(message.to_pybytes(), ROWS).equals(piece)


@given(st.permutations([("a", 0), ("a", 10), ("a", 9), ("b", 0), ("B", 3), ("é", 1)]))
def test_source_order_is_one_order(arrived: list[tuple[str, int]]) -> None:
    """Segments are sorted by (origin, start), in any order of arrival."""
    packed = [segment.pack(Segment(o, s, rows=1, size=1)) for o, s in arrived]
    found = segment.in_source_order(packed)
    wanted = [("B", 3), ("a", 0), ("a", 9), ("a", 10), ("b", 0), ("é", 1)]
    assert [(piece.origin, piece.start) for piece in found] == wanted


@given(
    st.builds(
        Segment,
        origin=st.text(),
        start=st.integers(0, 2**62),
        rows=st.integers(0, 2**40),
        size=st.integers(0, 2**40),
        payload=st.binary(),
        file=st.text(),
        offset=st.integers(0, 2**62),
        crc32c=st.integers(0, 2**32 - 1),
        input_digest=st.text(),
    )
)
def test_a_packed_segment_is_whole(piece: Segment) -> None:
    """All that is known of a segment passes between the stages."""
    assert segment.unpack(segment.pack(piece)) == piece
