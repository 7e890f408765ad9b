"""Arrow record batches to serialised tf.train.Examples, a column at a time.

    0a T  entry  entry ...        Example.features, T bytes: see `entry.py`

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
from collections.abc import Iterator, Sequence
from typing import Literal

import google_crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.core.example.entry import Entry, Form, Kind
from transforms.core.example.payload import MAX_EXAMPLE_BYTES, Column, max_bytes_before
from transforms.core.example.records import FloatColumns, Records, Step, steps_of
from transforms.core.example.varint import MAX_VARINT_BYTES, Varints, varint
from transforms.core.tfrecord.frame import OVERHEAD_BYTES, joined_crc
from transforms.errors import EncodingError

# One pass over the columns encodes a chunk: large enough to spread the cost of the
# pass, small enough to stay in the processor's cache.
_CHUNK_ROWS = 1 << 14
_CHUNK_BYTES = 1 << 24
# Of thousands of columns more: a pass costs by their number then.
_COLUMN_BYTES = 1 << 13

# What surrounds the entries of a record.
_Around = Literal["example", "frame"]
_Sizes = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True, slots=True)
class Framed:
    """n records in the bytes of a TFRecord file.

    Attributes:
      buffer: headers, payloads and footers, one record after another.
      offsets: int64 array of n + 1: where each record starts, and the end.
    """

    buffer: pa.Buffer
    offsets: npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True, slots=True)
class FramedPieces:
    """The bytes of whole records of a TFRecord file, in pieces.

    Attributes:
      pieces: one after another.
      size: bytes of all.
      crc32c: CRC32C of all.
      offsets: int64 array of n + 1: where each record starts, and the end.
      payload_crcs: n CRC32Cs of the payloads, not masked.
    """

    pieces: list[bytes | memoryview]
    size: int
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
    """Encodes record batches of one schema; keeps the prefixes between batches."""

    def __init__(self, schema: pa.Schema, *, split_at: str | None = None) -> None:
        """Plans the encoding of a schema.

        Args:
          schema: the columns, one a feature; `payload.py` lists their types.
          split_at: name of a bytes feature that is not in the schema, at whose place
            `frame_around` puts values.

        Raises EncodingError: a tf.train.Example cannot hold a column's type, or two
        columns have the same name.
        """
        self._schema = schema
        self._signature = _signature(schema)
        names = [*schema.names] if split_at is None else [*schema.names, split_at]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise EncodingError(
                "the features of a tf.train.Example must have different names; found "
                f"{twice!r} more than once; rename all but one of them"
            )
        # The order of texts is that of their UTF-8 bytes.
        self._columns = [
            (index, Column(field))
            for index, field in sorted(enumerate(schema), key=lambda each: each[1].name)
            if not pa.types.is_null(field.type)
        ]
        self._entry: Entry | None = None
        self._before = 0
        self._split_at = split_at or ""
        if split_at is not None:
            self._entry = Entry(split_at, Kind.BYTES, Form.SINGLE)
            place = split_at.encode()
            others = (column.name.encode() for _, column in self._columns)
            self._before = sum(name < place for name in others)
        self._row_bytes = OVERHEAD_BYTES + MAX_VARINT_BYTES
        for _, column in self._columns:
            size = len(column.entry.prefix(MAX_VARINT_BYTES))
            self._row_bytes += size + MAX_VARINT_BYTES
        # Columns that have had missing values.
        self._lacking: set[int] = set()
        self._steps = self._new_steps()
        # Once, because `Schema.types` builds a new list at each access.
        types = schema.types
        self._varying = [
            index
            for index, column in self._columns
            if pa.types.is_nested(types[index])
            or pa.types.is_dictionary(types[index])
            or column.kind is Kind.BYTES
        ]

    @property
    def schema(self) -> pa.Schema:
        """The columns that batches must have."""
        return self._schema

    def _new_steps(self) -> list[Step | FloatColumns]:
        """Returns what adds the entries of all columns, in their order."""
        return steps_of(
            self._columns,
            self._schema,
            bounds=set() if self._entry is None else {self._before},
            lacking=self._lacking,
        )

    def encode(self, batch: pa.RecordBatch) -> pa.LargeBinaryArray:
        """Returns n serialised Examples for the n rows of a batch.

        Uses up to twice the memory of the result.

        Raises EncodingError: the batch has another schema, or a tf.train.Example cannot
        hold a value; the message names feature and row.
        """
        chunks = [
            _binary_array(*self._record(chunk, start, "example").finish())
            for start, chunk in self._chunks(batch)
        ]
        return _concatenated(chunks)

    def encoded_bytes(self, batch: pa.RecordBatch) -> int:
        """Returns how many bytes `encode` gives for a batch, in all.

        Raises EncodingError as `encode` does.
        """
        if not batch.num_rows:
            return 0
        # In one chunk: sizes alone need little memory, and a pass over thousands of
        # columns costs by their number (2,000 of 1,000 rows: 1.35 s in four chunks,
        # 0.35 s in one).
        totals = self._record(batch, 0, "example").totals
        each = np.broadcast_to(np.asarray(totals, np.int64), batch.num_rows)
        tags = Varints.of(each.copy().view(np.uint64)).sizes
        return int((each + tags + 1).sum())

    def encode_framed(self, batch: pa.RecordBatch) -> Framed:
        """Returns the n rows of a batch as TFRecord records with their checksums.

        Uses up to twice the memory of the result.

        Raises EncodingError as `encode` does.
        """
        chunks = list(self.framed_chunks(batch))
        if len(chunks) == 1:
            return chunks[0]
        starts = []
        end = 0
        for chunk in chunks:
            starts.append(chunk.offsets[:-1] + end)
            end += chunk.buffer.size
        starts.append(np.array([end], np.int64))
        joined = pa.py_buffer(b"".join(chunk.buffer for chunk in chunks))
        return Framed(joined, np.concatenate(starts))

    def framed_chunks(self, batch: pa.RecordBatch) -> Iterator[Framed]:
        """Yields the records of `encode_framed` in chunks of some thousand rows.

        Raises EncodingError as `encode` does.
        """
        for start, chunk in self._chunks(batch):
            data, offsets = self._record(chunk, start, "frame").finish()
            yield Framed(data.slice(0, int(offsets[-1])), offsets)

    def frame_around(
        self,
        batch: pa.RecordBatch,
        values: Sequence[bytes | memoryview],
        crcs: npt.NDArray[np.uint32],
    ) -> FramedPieces:
        """Returns n rows as TFRecord records, with the values of `split_at` in them.

            header | 0a T | entries | entry of `split_at`, up to its value   } a piece
            value                                                            } a piece
            entries | footer | the same of the next record                   } a piece

        The values, encoded images for example, are not copied.

        Args:
          batch: n rows of the other features.
          values: of `split_at` in each row.
          crcs: CRC32C of each value.

        Raises EncodingError as `encode` does; ValueError without `split_at`.
        """
        if self._entry is None:
            raise ValueError("frame_around needs an encoder made with split_at")
        pieces: list[bytes | memoryview] = []
        sizes = np.fromiter(map(len, values), np.int64, len(values))
        lengths_of_records, payload_crcs = sizes.copy(), crcs.copy()
        for start, chunk in self._chunks(batch):
            part = slice(start, start + chunk.num_rows)
            record = self._record(chunk, start, "frame", sizes[part])
            around, lengths, found = record.around(sizes[part], crcs[part])
            lengths_of_records[part] += lengths
            payload_crcs[part] = found
            if pieces:
                around[0] = bytes(pieces.pop()) + around[0]
            for before, value in zip(around[:-1], values[part], strict=True):
                pieces += (before, value)
            pieces.append(around[-1])
        every = np.empty(len(pieces), np.uint32)
        every[::2] = [google_crc32c.value(piece) for piece in pieces[::2]]
        every[1::2] = crcs
        lengths = np.fromiter(map(len, pieces), np.int64, len(pieces))
        offsets = np.concatenate((np.zeros(1, np.int64), lengths_of_records.cumsum()))
        return FramedPieces(
            pieces,
            int(offsets[-1]),
            joined_crc(every, lengths),
            offsets,
            payload_crcs,
        )

    def _chunks(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yields (first row, rows) of chunks within both limits; checks the schema."""
        if not batch.schema.equals(self._schema):
            found = _signature(batch.schema)
            if found != self._signature:
                raise EncodingError(
                    "a batch must have the columns that the encoder was made for: "
                    f"expected {_described(self._signature)}; found "
                    f"{_described(found)}; cast the batch or make another encoder"
                )
        bounds = [max_bytes_before(batch.column(index)) for index in self._varying]

        def bytes_before(row: int) -> int:
            return row * self._row_bytes + sum(bound(row) for bound in bounds)

        chunk_bytes = max(_CHUNK_BYTES, _COLUMN_BYTES * batch.num_columns)
        start = 0
        while start < batch.num_rows:
            # Binary search for the last row within the limit; at least one row.
            limit = bytes_before(start) + chunk_bytes
            fits, stop = start + 1, min(start + _CHUNK_ROWS, batch.num_rows)
            if bytes_before(stop) <= limit:
                fits = stop
            while fits + 1 < stop:
                middle = (fits + stop) // 2
                if bytes_before(middle) <= limit:
                    fits = middle
                else:
                    stop = middle
            yield start, batch.slice(start, fits - start)
            start = fits

    def _record(
        self,
        chunk: pa.RecordBatch,
        first_row: int,
        around: _Around,
        left_out: _Sizes | None = None,
    ) -> Records:
        """Returns n >= 1 records, ready to be joined.

        Args:
          chunk: n rows.
          first_row: place of the first in its batch, for messages.
          around: what is put around the entries.
          left_out: sizes of the values of `split_at`, which are not among the rows.
        """
        record = Records(chunk.num_rows)
        place = 0
        for step in self._steps:
            if left_out is not None and place == self._before:
                assert self._entry is not None
                record.leave_out(self._entry, left_out)
            if isinstance(step, FloatColumns):
                if not step.add(chunk, record):
                    self._lacking.update(_lacking(chunk))
                    self._steps = self._new_steps()
                    return self._record(chunk, first_row, around, left_out)
                place += len(step)
                continue
            index, column = step
            payload = column.payload(chunk.column(index), first_row, record.buffers)
            if payload is not None:
                record.add(column.entry, payload)
            place += 1
        if left_out is not None and place == self._before:
            assert self._entry is not None
            record.leave_out(self._entry, left_out)
        totals = record.totals
        largest = totals if isinstance(totals, int) else int(totals.max())
        if largest + 1 + len(varint(largest)) > MAX_EXAMPLE_BYTES:
            row = first_row + int(np.argmax(totals)) + 1
            raise EncodingError(
                f"a serialised tf.train.Example must not exceed {MAX_EXAMPLE_BYTES} "
                f"bytes; row {row} of the batch (counted from 1) takes {largest}; "
                "leave a feature out, or keep large values in files"
            )
        record.surround(framed=around == "frame")
        return record


def _lacking(batch: pa.RecordBatch) -> list[int]:
    """Returns the indices of columns with missing values."""
    return [index for index, column in enumerate(batch.columns) if column.null_count]


def _binary_array(data: pa.Buffer, offsets: _Sizes) -> pa.LargeBinaryArray:
    return pa.Array.from_buffers(
        pa.large_binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), data], 0
    )


def _concatenated(chunks: list[pa.LargeBinaryArray]) -> pa.LargeBinaryArray:
    if not chunks:
        return pa.array([], pa.large_binary())
    return chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks)


def _signature(schema: pa.Schema) -> list[tuple[str, pa.DataType]]:
    """Returns the names and types of columns."""
    return list(zip(schema.names, schema.types, strict=True))


def _described(signature: list[tuple[str, pa.DataType]]) -> str:
    shown = ", ".join(f"{name}: {kind}" for name, kind in signature)
    return shown if len(shown) <= 300 else shown[:300] + " ..."
