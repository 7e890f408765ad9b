"""Summary of TFRecord files that no manifest names, computed in a single pass.

Their writer may have changed its mind: a feature may have several types.
"""

import contextlib
import dataclasses
import io
import sys
from collections.abc import Iterable
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc

from beam_pipeline.datasets.dataset import SingleFile
from transforms.core.example.decoder import decode_records
from transforms.core.schema import STEPS
from transforms.core.statistics import Statistics, summarize
from transforms.core.tfrecord import PayloadBatch, TFRecordReader
from transforms.errors import ExampleError, UsageError
from transforms.storage.files import storage

# Small reads of a file that is far away would each cost a round trip.
_READ_BYTES = 1 << 20
_TYPE_NAMES = {"int64": "int64", "float": "float", "large_binary": "bytes"}
# The path of a file and the 0-based index of a record in it.
RecordPlace = tuple[str, int]


@dataclasses.dataclass(frozen=True, slots=True)
class Variant:
    """A feature with one of the types that it has in the records.

    Attributes:
      name: of the feature.
      type: "int64", "float", "bytes" or "none" (a feature without a type).
      first: the first record that has it with this type.
      statistics: of all values; `present` counts records, `fewest` and `most` are
        values in a record, or steps of a list.
      sample: the first value, where that is bytes.
      all_text: whether all values are UTF-8.
    """

    name: str
    type: str
    first: RecordPlace
    statistics: Statistics
    sample: bytes = b""
    all_text: bool = False

    def merge(self, other: Self) -> "Variant":
        """Returns the facts of both; `other` comes later."""
        return dataclasses.replace(
            self,
            statistics=self.statistics.merge(other.statistics),
            sample=self.sample or other.sample,
            all_text=self.all_text and other.all_text,
        )


@dataclasses.dataclass(slots=True)
class FileSummary:
    """What files hold.

    Attributes:
      records: how many.
      bytes: as stored.
      compressions: "none", "gzip" or "zlib" of each file, by content.
      shortest, longest: record in bytes.
      by_name: variants by name and type.
      not_examples: records that are no tf.train.Example, nor hold several.
      first_not_example: the first of those; None for none.
    """

    records: int = 0
    bytes: int = 0
    compressions: set[str] = dataclasses.field(default_factory=set)
    shortest: int = sys.maxsize
    longest: int = 0
    by_name: dict[tuple[str, str], Variant] = dataclasses.field(default_factory=dict)
    not_examples: int = 0
    first_not_example: RecordPlace | None = None

    @property
    def variants(self) -> list[Variant]:
        """The features in the order of their names and types."""
        return [self.by_name[key] for key in sorted(self.by_name)]

    def add_batch(self, path: str, batch: PayloadBatch) -> None:
        """Adds records: all at once where they agree on types, else one by one."""
        self.shortest = min(self.shortest, int(batch.lengths.min()))
        self.longest = max(self.longest, int(batch.lengths.max()))
        with contextlib.suppress(ExampleError):
            self._add_rows(decode_records(batch), (path, batch.first_record))
            return
        for number, payload in enumerate(batch.to_list(), batch.first_record):
            try:
                rows = decode_records(PayloadBatch.of([payload]))
            except ExampleError:
                self.not_examples += 1
                self.first_not_example = self.first_not_example or (path, number)
                continue
            self._add_rows(rows, (path, number))

    def _add_rows(self, rows: pa.RecordBatch, first: RecordPlace) -> None:
        columns = dict(zip(rows.schema.names, rows.columns, strict=True))
        for name in sorted({name.removesuffix(STEPS) for name in columns}):
            values = columns.get(name, pa.nulls(len(rows)))
            variant = _variant(name, values, columns.get(name + STEPS, values), first)
            key = (name, variant.type)
            before = self.by_name.get(key)
            self.by_name[key] = before.merge(variant) if before else variant


def summarize_files(files: Iterable[SingleFile]) -> FileSummary:
    """Reads whole files, plain or compressed, and sums up what they hold.

    Raises:
      TFRecordError: one is damaged.
      UsageError: one cannot be read.
    """
    summary = FileSummary()
    for file in files:
        try:
            # Buffered, because a pipe cannot be read twice.
            with io.BufferedReader(
                storage(file.path).open_unbuffered(), _READ_BYTES
            ) as stream:
                reader = TFRecordReader(stream, allow_empty=file.may_be_empty)
                for batch in reader.batches():
                    summary.add_batch(file.path, batch)
        except OSError as error:
            raise UsageError(
                f"The file must be readable; {file.path!r} is not: {error.strerror}."
            ) from error
        summary.records += reader.records
        summary.bytes += reader.stored_bytes
        summary.compressions.add(str(reader.compression))
    summary.shortest = min(summary.shortest, summary.longest)
    return summary


def _variant(
    name: str, values: pa.Array, rows: pa.Array, first: RecordPlace
) -> Variant:
    """Returns the facts of a feature; `rows` has the steps of a list, or the values."""
    if pa.types.is_null(values.type):
        return Variant(name, "none", first, Statistics(fewest=0, most=0))
    fewest = most = 1
    if pa.types.is_large_list(rows.type):
        lengths = pc.min_max(pc.list_value_length(rows))
        fewest, most = lengths["min"].as_py(), lengths["max"].as_py()
    if pa.types.is_large_list(values.type):
        values = values.flatten()
    kind = str(values.type)
    # NaN is no bound.
    bounded = values.filter(pc.invert(pc.is_nan(values))) if kind == "float" else values
    present = len(rows) - rows.null_count
    statistics = dataclasses.replace(
        summarize(bounded), present=present, fewest=fewest, most=most
    )
    path, number = first
    first = path, number + int(pc.index(rows.is_valid(), True).as_py())
    is_bytes = pa.types.is_large_binary(values.type)
    filled = values.drop_null()[:1].to_pylist() if is_bytes else []
    return Variant(
        *(name, _TYPE_NAMES.get(kind, kind), first, statistics),
        sample=filled[0] if filled else b"",
        all_text=is_bytes and _is_utf8(values),
    )


def _is_utf8(values: pa.Array) -> bool:
    try:
        values.cast(pa.large_string())
    except pa.ArrowInvalid:
        return False
    return True
