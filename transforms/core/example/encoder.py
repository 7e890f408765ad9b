"""Arrow record batches to serialised tf.train.Examples, a column at a time.

    0a T  entry  entry ...        Example.features, T bytes: see `record_parts.py`

Features are in the byte order of their UTF-8 names. A null leaves its key out of the
record, because readers use the default for a missing key and refuse an empty
Feature. An empty list is a value: its key is present, with its kind set and the list
empty (`12 02 1a 00` for an Int64List). A row without any value is `0a 00`.

Neighbouring bytes of fixed layout, prefixes and numbers, form a *run*: one template
repeated for all rows, into which columns are stored with a stride. Runs, values of
varying size and the frame become one array of Arrow binary views, row by row, and one
cast copies them all to their places. If a whole record is one run, as in tables of
floats, the run is the result.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from operator import add

import google_crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.core.arrays import offsets_of
from transforms.core.example.joined_records import JoinedRecords
from transforms.core.example.payload import (
    FloatPayloads,
    Payload,
    PayloadColumn,
    bytes_of,
    payload_steps,
)
from transforms.core.example.record_parts import Entry, ListKind
from transforms.core.example.wire import MAX_VARINT_BYTES
from transforms.core.tfrecord.frame import (
    FOOTER_BYTES,
    HEADER_BYTES,
    OVERHEAD_BYTES,
    after_zeros,
    joined_crc,
    length_crcs,
    mask_all,
)
from transforms.errors import EncodingError, bounded

# One pass over the columns encodes a chunk: large enough to spread the cost of the
# pass, small enough to stay in the processor's cache.
_CHUNK_ROWS = 1 << 14
_CHUNK_BYTES = 1 << 24
# Of thousands of columns more: a pass costs by their number then.
_COLUMN_BYTES = 1 << 13

_Sizes = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True, slots=True)
class FramedPieces:
    """Framed records as `AroundValues` encodes them, in pieces.

    Attributes:
      pieces: one after another.
      crc32c: CRC32C of all.
      offsets: int64 array of n + 1: where each record starts, and the end.
      payload_crcs: n CRC32Cs of the payloads, not masked.
    """

    pieces: list[bytes | memoryview]
    crc32c: int
    offsets: npt.NDArray[np.int64]
    payload_crcs: npt.NDArray[np.uint32]


def encode_examples(batch: pa.RecordBatch) -> list[bytes]:
    r"""Returns the n rows of a record batch as n serialised tf.train.Examples.

    A column is a feature: integers and bools become an Int64List, floats a FloatList
    of float32, texts and bytes a BytesList; so do lists of them. A null leaves its
    feature out of the record. `decode_examples` is the inverse.

        >>> rows = pa.record_batch({"id": [1, 2], "name": ["a", None]})
        >>> encode_examples(rows)[1]
        b'\n\r\n\x0b\n\x02id\x12\x05\x1a\x03\n\x01\x02'

    Raises EncodingError: a tf.train.Example cannot hold a column's type or a value, or
    two columns have the same name.
    """
    records: list[bytes] = ExampleEncoder(batch.schema).encode(batch).to_pylist()
    return records


class ExampleEncoder:
    """Encodes record batches of one schema; keeps the prefixes between batches.

    Attributes:
      schema: the columns that batches must have.
    """

    def __init__(self, schema: pa.Schema) -> None:
        """Plans the encoding of a schema.

        Args:
          schema: the columns, one a feature; `payload.py` lists their types.

        Raises EncodingError: a tf.train.Example cannot hold a column's type, or two
        columns have the same name.
        """
        self.schema = schema
        self._signature = schema.names, schema.types
        _check_names(schema.names)
        # The order of texts is that of their UTF-8 bytes.
        self._columns = [
            (index, PayloadColumn(field))
            for index, field in sorted(enumerate(schema), key=lambda each: each[1].name)
            if not pa.types.is_null(field.type)
        ]
        self._row_bytes = OVERHEAD_BYTES + MAX_VARINT_BYTES
        for _, column in self._columns:
            size = len(column.entry.prefix(MAX_VARINT_BYTES))
            self._row_bytes += size + MAX_VARINT_BYTES
        # Columns that have had missing values.
        self._lacking: set[int] = set()
        self._steps = payload_steps(self._columns)
        self._varying = [index for index, column in self._columns if column.is_varying]

    def encode(self, batch: pa.RecordBatch) -> pa.LargeBinaryArray:
        """Returns n serialised Examples for the n rows of a batch.

        Uses up to twice the memory of the result.

        Raises EncodingError: the batch has another schema, or a tf.train.Example cannot
        hold a value; the message names feature and row.
        """
        return _joined(self._pieces(batch, framed=False))

    def encode_framed(self, batch: pa.RecordBatch) -> pa.LargeBinaryArray:
        """Returns the n rows of a batch as TFRecord records with their checksums.

        The data buffer of the array is the bytes of a TFRecord file. Uses up to twice
        the memory of the result.

        Raises EncodingError as `encode` does.
        """
        return _joined(self.framed_chunks(batch))

    def framed_chunks(self, batch: pa.RecordBatch) -> Iterator[pa.LargeBinaryArray]:
        """Yields the records of `encode_framed` in chunks of some thousand rows.

        Raises EncodingError as `encode` does.
        """
        return self._pieces(batch, framed=True)

    def _pieces(
        self, batch: pa.RecordBatch, *, framed: bool
    ) -> Iterator[pa.LargeBinaryArray]:
        for start, chunk in self._chunks(batch):
            record = self._record(chunk, start)
            record.surround(start)
            if framed:
                record.frame()
            yield record.finish()

    def _chunks(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yields (first row, rows) of chunks within both limits; checks the schema."""
        actual = batch.schema
        if (actual.names, actual.types) != self._signature:
            given, needed = (
                bounded(str(schema), 300) for schema in (actual, self.schema)
            )
            raise EncodingError(
                f"a batch must have the columns that the encoder was made for, "
                f"{needed}; found {given}; cast the batch or make another encoder"
            )
        yield from self._split(batch, 0)

    def _split(
        self, rows: pa.RecordBatch, first: int
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        count = rows.num_rows
        size = count * self._row_bytes
        size += sum(bytes_of(rows.column(index)) for index in self._varying)
        limit = max(_CHUNK_BYTES, _COLUMN_BYTES * rows.num_columns)
        if count <= 1 or (count <= _CHUNK_ROWS and size <= 2 * limit):
            if count:
                yield first, rows
            return
        step = -(-count // max(-(-count // _CHUNK_ROWS), size // limit, 2))
        for start in range(0, count, step):
            yield from self._split(rows.slice(start, step), first + start)

    def _record(self, chunk: pa.RecordBatch, first_row: int) -> JoinedRecords:
        """Returns the entries of n >= 1 records, ready to be joined.

        Args:
          chunk: n rows.
          first_row: place of the first in its batch, for messages.
        """
        record = JoinedRecords(chunk.num_rows)
        for step in self._steps:
            if isinstance(step, FloatPayloads):
                entries = step.entries(chunk)
                if entries is None:
                    columns = enumerate(chunk.columns)
                    self._lacking |= {i for i, own in columns if own.null_count}
                    self._steps = payload_steps(self._columns, lacking=self._lacking)
                    return self._record(chunk, first_row)
                record.add_fixed(*entries)
                continue
            index, column = step
            record.add_column(column, chunk.column(index), first_row)
        return record


def _joined(pieces: Iterable[pa.LargeBinaryArray]) -> pa.LargeBinaryArray:
    """Returns what an encoder yields in chunks as one array; a single one as it is."""
    arrays = [*pieces] or [pa.array([], pa.large_binary())]
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def _check_names(names: Sequence[str]) -> None:
    """Raises EncodingError where two features have the same name: one would be lost."""
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise EncodingError(
            "the features of a tf.train.Example must have different names; found "
            f"{twice!r} more than once; rename all but one of them"
        )


class AroundValues:
    """Encodes rows with one feature of bytes whose values are not copied: images.

    Args:
      schema: the other features.
      name: of the feature.

    Raises EncodingError as `ExampleEncoder` does.
    """

    def __init__(self, schema: pa.Schema, name: str) -> None:
        _check_names([*schema.names, name])
        # The order of texts is that of their UTF-8 bytes.
        before = [field for field in schema if field.name < name]
        behind = [field for field in schema if field.name > name]
        self._before = ExampleEncoder(pa.schema(before))
        self._behind = ExampleEncoder(pa.schema(behind))
        self._entry = Entry(name, ListKind.BYTES, is_list=False)

    def frame(
        self,
        batch: pa.RecordBatch,
        values: Sequence[bytes | memoryview],
        crcs: npt.NDArray[np.uint32],
    ) -> FramedPieces:
        """Returns n rows as TFRecord records, each in three pieces.

            header | 0a T | entries before | entry of the value, up to it
            value
            entries behind | footer

        Args:
          batch: n rows of the other features.
          values: of the feature in each row.
          crcs: CRC32C of each value.

        Raises EncodingError as `ExampleEncoder.encode` does.
        """
        chunks = self._behind._chunks(batch.select(self._behind.schema.names))
        after = _joined(self._behind._record(b, at).finish() for at, b in chunks)
        sizes = _lengths(values)
        behind, behind_sizes = after.to_pylist(), np.diff(offsets_of(after))
        heads: list[bytes] = []
        before = batch.select(self._before.schema.names)
        for start, chunk in self._before._chunks(before):
            stop = start + chunk.num_rows
            record = self._before._record(chunk, start)
            record.add(self._entry, Payload.of_sizes(sizes[start:stop]))
            record.surround(start, (sizes + behind_sizes)[start:stop])
            heads += record.finish().to_pylist()
        head_sizes = _lengths(heads)
        payload_crcs = _crcs(heads)
        for part_crcs, part_sizes in ((crcs, sizes), (_crcs(behind), behind_sizes)):
            payload_crcs = after_zeros(payload_crcs, part_sizes) ^ part_crcs
        lengths = head_sizes + sizes + behind_sizes
        headers = np.empty(len(values), "<u8,<u4")
        headers["f0"], headers["f1"] = lengths, length_crcs(lengths)
        fronts = list(map(add, headers.view("V12").tolist(), heads))
        footers = mask_all(payload_crcs).astype("<u4").view("V4")
        backs = list(map(add, behind, footers.tolist()))
        every = _crcs(fronts), crcs, _crcs(backs)
        piece_sizes = head_sizes + HEADER_BYTES, sizes, behind_sizes + FOOTER_BYTES
        ends = np.cumsum(lengths + OVERHEAD_BYTES)
        return FramedPieces(
            [*chain.from_iterable(zip(fronts, values, backs, strict=True))],
            joined_crc(np.ravel(every, "F"), np.ravel(piece_sizes, "F")),
            np.concatenate((np.zeros(1, np.int64), ends)),
            payload_crcs,
        )


def _lengths(parts: Sequence[bytes | memoryview]) -> _Sizes:
    """Returns the sizes of the pieces that `AroundValues` frames."""
    return np.fromiter(map(len, parts), np.int64, len(parts))


def _crcs(parts: Sequence[bytes | memoryview]) -> npt.NDArray[np.uint32]:
    """Returns the CRC32Cs, not masked, of the pieces that `AroundValues` frames."""
    return np.fromiter(map(google_crc32c.value, parts), np.uint32, len(parts))
