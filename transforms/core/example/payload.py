"""Columns to payloads: the bytes after the prefix of a feature's map entry.

| Arrow type                          | list      | payload of a row               |
| ----------------------------------- | --------- | ------------------------------ |
| bool, int8-64, uint8-64             | Int64List | one varint                     |
| float16, float32, float64           | FloatList | 4 bytes, float32 little-endian |
| (large_)string, (large_)binary      | BytesList | the bytes themselves           |
| (large_, fixed_size_)list of those  | as above  | packed; bytes: `0a size value` |
| dictionary of those                 | as above  | as its values                  |
| null                                | -         | always absent                  |

Neighbouring float columns are stored together: k entries of `0a E 0a N name 12 F 12 G
0a 04  value`. Their bytes are the same in every record but for the values, which one
table takes. A column costs a fraction of a microsecond a chunk so, and some thirty by
itself.

Payloads of one size in all rows, if short, are typed arrays that are stored at a fixed
position of the records (`stores`). All others are n Arrow binary views.
"""

import dataclasses
import itertools
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import (
    binary_values,
    decoded,
    flattened,
    is_bytes,
    is_list,
    numpy_mask,
    offsets_of,
    raw_values,
)
from transforms.core.example.record_parts import (
    Entry,
    ListKind,
    Store,
    Varying,
    join,
    varint_stores,
)
from transforms.core.example.wire import Longs, Mask, Varints, Words
from transforms.errors import EncodingError

# Arrow's views and TensorFlow's protobuf both count in int32; the margin is for the
# bytes around a payload.
MAX_EXAMPLE_BYTES = 2**31 - 1024
# Lists of floats of one length go to a fixed position of the record up to this size.
_MAX_STORED_BYTES = 4096
# Entries of the values of a dictionary are made once: a few, and small ones.
_ROWS_OF_EACH = 8
_FEW_BYTES = 1 << 20

# Fewer columns are stored one by one: CRCs by look-ups know only of such, and they pay
# for records up to about that size.
_LEAST_COLUMNS = 256
_VALUE_BYTES = 4


@dataclasses.dataclass(frozen=True, slots=True)
class Payload:
    """The payloads of one feature in n rows.

    Attributes:
      smallest: size in bytes of the smallest payload, among the rows with a value.
      largest: size of the largest.
      sizes: int64 array of n, `smallest` where absent; None where all are equal.
      present: bool array of n; None where every row has a value.
      stores: the values that make up the payload.
      part: the payloads; used where `stores` is None.
    """

    smallest: int
    largest: int
    sizes: Longs | None
    present: Mask | None
    stores: list[Store] | None = None
    part: Varying | None = None

    @classmethod
    def of_sizes(
        cls, sizes: Longs, present: Mask | None = None, part: Varying | None = None
    ) -> "Payload":
        """Returns payloads of these sizes; without a part, of bytes kept elsewhere."""
        smallest, largest = int(sizes.min()), int(sizes.max())
        if present is not None:
            smallest = int(np.min(sizes, where=present, initial=largest))
            largest = int(np.max(sizes, where=present, initial=smallest))
            sizes = np.where(present, sizes, smallest)
        equal = None if smallest == largest else sizes
        return cls(smallest, largest, equal, present, None, part)


@dataclasses.dataclass(frozen=True, slots=True)
class _FlatRows:
    """Finds the row of a position among a column's flat values, for errors."""

    name: str
    first_row: int
    starts: Longs | None

    def error(self, position: int, found: str) -> EncodingError:
        row = position
        if self.starts is not None:
            row = int(np.searchsorted(self.starts, position, "right")) - 1
        return EncodingError(
            f"feature {self.name!r}, row {self.first_row + row + 1} of the batch "
            f"(counted from 1): {found}"
        )


class PayloadColumn:
    """One feature of a schema: its entry, and how its payloads are made."""

    def __init__(self, field: pa.Field) -> None:
        """Raises EncodingError if no tf.train.Example can hold the field's type."""
        self.name: str = field.name
        self.type: pa.DataType = field.type
        self.kind = _list_kind(field)
        self._is_list = is_list(field.type)
        # Whether the number of rows does not tell how many bytes their payloads take.
        self.is_varying = (
            self._is_list
            or self.kind is ListKind.BYTES
            or pa.types.is_dictionary(field.type)
        )
        self.entry = Entry(field.name, self.kind, is_list=self._is_list)

    def payload(self, array: pa.Array, first_row: int) -> Payload | None:
        """Returns the payloads of n >= 1 rows; None if all of them are absent.

        `first_row` is the number of the array's first row, for errors.

        Raises EncodingError: a uint64 over 2**63 - 1, a float64 beyond the range of
        float32, a null inside a list, a value over MAX_EXAMPLE_BYTES.
        """
        array = decoded(array)
        if array.null_count == len(array):
            return None
        present = numpy_mask(array.is_valid()) if array.null_count else None
        starts: Longs | None = None
        values, with_value = array, present
        if self._is_list:
            starts, values = flattened(array, present)
            values, with_value = decoded(values), None
        place = _FlatRows(self.name, first_row, starts)
        if starts is not None:
            _check_items(values, starts, place)
        if self.kind is ListKind.FLOAT:
            floats = _floats(values, with_value, place)
            each = len(floats) // len(array)
            if starts is None or (
                present is None
                and 0 < each * 4 <= _MAX_STORED_BYTES
                and bool((np.diff(starts) == each).all())
            ):
                cells = floats.reshape(len(array), each)
                return Payload(each * 4, each * 4, None, present, [(0, cells, 0)])
            values = binary_values(floats, starts * 4)
        elif self.kind is ListKind.INT64:
            varints = Varints.of(_integers(values, with_value, place))
            if starts is not None:
                values = _packed(varints, starts)
            elif isinstance(varints.sizes, int):
                size = varints.sizes
                stores = varint_stores(0, size, varints)
                return Payload(size, size, None, present, stores)
            else:
                part = Varying(varints.views())
                return Payload.of_sizes(varints.sizes, present, part)
        elif starts is not None:
            values = _repeated_bytes(values, starts)
        sizes = np.diff(offsets_of(values))
        seen = True if present is None else present
        _check_size(int(np.max(sizes, where=seen, initial=0)), place)
        return Payload.of_sizes(sizes, present, Varying.of(values))


Step = tuple[int, PayloadColumn]
"""A column by itself: its index in the schema, and the feature."""


class FloatPayloads:
    """The payloads of k float32 columns that are neighbours, with their entries.

    Args:
      columns: the features, each with its index in the schema.
    """

    def __init__(self, columns: Sequence[Step]) -> None:
        self._indices = [index for index, _ in columns]
        template = bytearray()
        positions = []
        for _, column in columns:
            template += column.entry.prefix(_VALUE_BYTES)
            positions.append(len(template))
            template += bytes(_VALUE_BYTES)
        self._template = bytes(template)
        self._spans = _spans(positions)

    def entries(self, chunk: pa.RecordBatch) -> tuple[bytes, list[Store]] | None:
        """Returns the entries of n rows: a template and the values; None for nulls."""
        columns = chunk.select(self._indices)
        try:
            cells = columns.to_tensor(row_major=True).to_numpy()
        except pa.ArrowTypeError:
            # "Can only convert a RecordBatch with no nulls": Arrow looks for them in
            # less time than the number of nulls of each column takes.
            return None
        stores: list[Store] = [
            (position, cells[:, first:stop], step)
            for position, first, stop, step in self._spans
        ]
        return self._template, stores


def payload_steps(
    columns: Sequence[Step], *, lacking: Collection[int] = ()
) -> list[Step | FloatPayloads]:
    """Returns the columns to make payloads of; many float32 ones as `FloatPayloads`.

    Args:
      columns: in the order of their entries.
      lacking: indices in the schema of columns with missing values, which stay single.
    """
    out: list[Step | FloatPayloads] = []

    def is_table_column(step: Step) -> bool:
        return step[1].type == pa.float32() and step[0] not in lacking

    for together, steps in itertools.groupby(columns, is_table_column):
        run = [*steps]
        long = together and len(run) >= _LEAST_COLUMNS
        out += [FloatPayloads(run)] if long else run
    return out


def _spans(positions: Sequence[int]) -> list[tuple[int, int, int, int]]:
    """Returns ascending positions of payloads as spans of even distances.

    A span is its first position, which of the positions are in it (first and stop),
    and their distance.
    """
    spans, start = [], 0
    steps = [*np.diff(positions).tolist(), 0]
    for stop, step in enumerate(steps, 1):
        if step != steps[start] or not step:
            spans.append((positions[start], start, stop, steps[start]))
            start = stop
    return spans


def _list_kind(field: pa.Field) -> ListKind:
    """Returns which list of a Feature holds a column's values; bools are integers."""
    values = field.type.value_type if is_list(field.type) else field.type
    if pa.types.is_dictionary(values):
        values = values.value_type
    if pa.types.is_boolean(values) or pa.types.is_integer(values):
        return ListKind.INT64
    if pa.types.is_floating(values):
        return ListKind.FLOAT
    if is_bytes(values):
        return ListKind.BYTES
    raise EncodingError(
        f"feature {field.name!r}: its type must be bool, an integer, a float, text, "
        "bytes, or a list or dictionary of those, to become an Int64List, FloatList "
        f"or BytesList; found {str(field.type)[:200]}; cast the column to one of them"
    )


def few_values(array: pa.Array) -> pa.Array | None:
    """Returns the dictionary of texts that pay to be encoded once each; else None."""
    if not pa.types.is_dictionary(array.type):
        return None
    values = array.dictionary
    is_short = is_bytes(values.type) and values.nbytes <= _FEW_BYTES
    is_few = 0 < len(values) * _ROWS_OF_EACH <= len(array)
    return values if is_short and is_few and not values.null_count else None


def _check_items(values: pa.Array, starts: Longs, place: _FlatRows) -> None:
    """Raises EncodingError for a null in a list, and a list that is too large."""
    if values.null_count:
        position = int(np.argmin(values.is_valid().to_numpy(zero_copy_only=False)))
        raise place.error(
            position,
            "a list must not hold nulls, because no list of a tf.train.Example can; "
            "drop them, or put a value in their place",
        )
    size = int(np.diff(starts).max())
    if is_bytes(values.type) and len(starts) == 2:
        size = max(size, int(np.diff(offsets_of(values)).sum()))
    _check_size(size, place)


def _check_size(size: int, place: _FlatRows) -> None:
    """Raises EncodingError where a value alone is too large for an Example."""
    # Only a chunk of a single row can exceed the limit, so the row is the first one.
    if size > MAX_EXAMPLE_BYTES:
        raise place.error(
            0,
            f"a serialised tf.train.Example must not exceed {MAX_EXAMPLE_BYTES} "
            f"bytes, and this value alone takes {size} or more; split it, or keep "
            "it in a file and store the path",
        )


def _filled(values: npt.NDArray[Any], present: Mask | None) -> npt.NDArray[Any]:
    """Fills null slots, which may hold anything, with a value that occurs."""
    if present is None:
        return values
    return np.where(present, values, values[int(np.argmax(present))])


def _integers(array: pa.Array, present: Mask | None, place: _FlatRows) -> Words:
    """Returns integers or bools as uint64, negative ones in two's complement."""
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.uint8())
    values = _filled(raw_values(array), present)
    if values.dtype == np.uint64:
        words = values.view(np.uint64)
        if len(words) and int(words.max()) >= 1 << 63:
            position = int(np.argmax(words >= np.uint64(1 << 63)))
            raise place.error(
                position,
                "an integer must be at most 2**63 - 1 to fit into an Int64List; "
                f"found {int(words[position])}; store it as text, bytes or float",
            )
        return words
    return values.astype(np.int64, copy=False).view(np.uint64)


def _floats(
    array: pa.Array, present: Mask | None, place: _FlatRows
) -> npt.NDArray[np.float32]:
    """Returns floats as little-endian float32; float32 keeps its bits, NaNs too."""
    values = raw_values(array)
    if values.dtype != np.float64:
        return values.astype("<f4", copy=False)
    values = _filled(values, present)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        floats: npt.NDArray[np.float32] = values.astype("<f4")
    infinite = np.isinf(floats)
    if infinite.any() and (infinite & np.isfinite(values)).any():
        position = int(np.argmax(infinite & np.isfinite(values)))
        raise place.error(
            position,
            "a float must fit in float32 (3.4028235e+38 at most) to stand in a "
            f"FloatList; found {values[position]!r}; scale it, or store it as "
            "text or bytes",
        )
    return floats


def _packed(varints: Varints, starts: Longs) -> pa.LargeBinaryArray:
    """Returns the payloads of lists of varints that begin at the values `starts`."""
    if isinstance(varints.sizes, int) and varints.sizes == 1:
        return binary_values(varints.low.astype(np.uint8), starts)
    return _joined_lists([Varying(varints.views())], starts)


def _repeated_bytes(values: pa.Array, starts: Longs) -> pa.LargeBinaryArray:
    """Returns the payloads of lists of bytes: `0a size value` of all values."""
    sizes = np.diff(offsets_of(values))
    tags = Varints.of(sizes.view(np.uint64)).tagged(b"\x0a")
    return _joined_lists([Varying(tags.views()), Varying.of(values)], starts)


def _joined_lists(parts: Sequence[Varying], starts: Longs) -> pa.LargeBinaryArray:
    """Returns the payloads of lists that begin at the values `starts`."""
    joined = join(parts, len(parts[0].words))
    return binary_values(joined.buffers()[2], offsets_of(joined).take(starts))


def bytes_of(array: pa.Array) -> int:
    """Returns the bytes of all values of a column, also of those in null slots."""
    values = array.flatten() if is_list(array.type) else array
    if not pa.types.is_dictionary(values.type):
        return int(array.nbytes)
    if not is_bytes(values.type.value_type) or not len(values.dictionary):
        return 0
    # A long value of a dictionary may be in many rows.
    lengths = pc.binary_length(values.dictionary)
    return pc.sum(lengths.take(values.indices)).as_py() or 0
