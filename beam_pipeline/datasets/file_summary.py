"""Summary of one TFRecord file, computed in a single pass, and how several differ.

For files that no manifest names, and whose writers may have changed their minds.
"""

import dataclasses
import io
import sys
from collections.abc import Sequence
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.example.decoder import decode_records
from transforms.core.statistics import Statistics, summarize
from transforms.core.tfrecord import PayloadBatch, TFRecordReader
from transforms.core.tfrecord.compression import detect
from transforms.core.tfrecord.frame import HEADER_BYTES
from transforms.errors import ExampleError, UsageError
from transforms.storage.files import storage

# Small reads of a file that is far away would each cost a round trip.
_READ_BYTES = 1 << 20
_TYPE_NAMES = {"int64": "int64", "float": "float", "large_binary": "bytes"}


@dataclasses.dataclass(frozen=True, slots=True)
class Variant:
    """One form that a feature has in the records of a file.

    Attributes:
      name: of the feature.
      type: "int64", "float", "bytes" or "none" (a feature without a type).
      first_record: 0-based index of the first record that has it in this form.
      statistics: of all values; `present` counts records.
      fewest, most: values in a record; steps of a list.
      sample: the first value, where that is bytes.
      all_text: whether all values are UTF-8.
    """

    name: str
    type: str
    first_record: int
    statistics: Statistics
    fewest: int
    most: int
    sample: bytes = b""
    all_text: bool = False

    def merge(self, other: Self) -> "Variant":
        """Returns the facts of both; `other` comes later in the file."""
        return dataclasses.replace(
            self,
            statistics=self.statistics.merge(other.statistics),
            fewest=min(self.fewest, other.fewest),
            most=max(self.most, other.most),
            sample=self.sample or other.sample,
            all_text=self.all_text and other.all_text,
        )


@dataclasses.dataclass(frozen=True, slots=True)
class FileSummary:
    """What one file holds.

    Attributes:
      records: how many.
      bytes: as stored.
      compression: "none", "gzip" or "zlib", by content.
      shortest, longest: record in bytes.
      variants: of features; more than one where records disagree on the type.
      not_examples: records that are no tf.train.Example, nor hold several.
      first_not_example: 0-based index of the first of those; -1: there is none.
    """

    records: int
    bytes: int
    compression: str
    shortest: int
    longest: int
    variants: tuple[Variant, ...]
    not_examples: int = 0
    first_not_example: int = -1


def summarize_file(path: str, *, allow_empty: bool = False) -> FileSummary:
    """Reads a whole file, plain or compressed, and sums up what it holds.

    Args:
      path: where it is.
      allow_empty: whether a file without a record is not damaged.

    Raises:
      TFRecordError: it is damaged.
      UsageError: it cannot be read.
    """
    try:
        # Buffered, because a pipe cannot be read twice.
        with io.BufferedReader(storage(path).open_unbuffered(), _READ_BYTES) as file:
            return _summarize(file, path, allow_empty)
    except OSError as error:
        raise UsageError(
            f"The file must be readable; {path!r} is not: {error.strerror}."
        ) from error


def _summarize(
    file: "io.BufferedReader[io.RawIOBase]", path: str, allow_empty: bool
) -> FileSummary:
    compression = detect(file.peek(HEADER_BYTES)[:HEADER_BYTES], path=path)
    reader = TFRecordReader(file, allow_empty=allow_empty)
    shortest, longest = sys.maxsize, 0
    by_name: dict[tuple[str, str], Variant] = {}
    failed, first_failed = 0, -1
    for batch in reader.batches():
        shortest = min(shortest, int(batch.lengths.min()))
        longest = max(longest, int(batch.lengths.max()))
        variants, wrong = _summarize_batch(batch)
        for variant in variants:
            key = (variant.name, variant.type)
            by_name[key] = by_name[key].merge(variant) if key in by_name else variant
        if wrong and not failed:
            first_failed = wrong[0]
        failed += len(wrong)
    return FileSummary(
        records=reader.records,
        bytes=reader.stored_bytes,
        compression=str(compression),
        shortest=min(shortest, longest),
        longest=longest,
        variants=tuple(by_name[key] for key in sorted(by_name)),
        not_examples=failed,
        first_not_example=first_failed,
    )


def _summarize_batch(batch: PayloadBatch) -> tuple[list[Variant], list[int]]:
    """Returns the variants in a batch, and which records are no Examples.

    All at once where the records agree on types, otherwise one by one.
    """
    try:
        return _variants(decode_records(batch), batch.first_record), []
    except ExampleError:
        pass
    variants: list[Variant] = []
    wrong = []
    for number, payload in enumerate(batch.to_list(), batch.first_record):
        try:
            variants += _variants(decode_records(PayloadBatch.of([payload])), number)
        except ExampleError:
            wrong.append(number)
    return variants, wrong


def _variants(rows: pa.RecordBatch, first_record: int) -> list[Variant]:
    """Returns one variant for each column that has a value."""
    variants = []
    for field, column in zip(rows.schema, rows.columns, strict=True):
        present = len(column) - column.null_count
        if pa.types.is_null(field.type):
            variants.append(
                Variant(field.name, "none", first_record, Statistics(), 0, 0)
            )
            continue
        fewest = most = 1
        values = column
        if pa.types.is_large_list(field.type):
            lengths = pc.min_max(pc.list_value_length(column))
            fewest, most = lengths["min"].as_py(), lengths["max"].as_py()
            values = pc.list_flatten(column, recursive=True)
        kind = str(values.type)
        is_bytes = pa.types.is_large_binary(values.type)
        if kind == "float":
            # NaN is no bound.
            summary = summarize(values.filter(pc.invert(pc.is_nan(values))))
        else:
            summary = summarize(values)
        sample = values.drop_null()[0].as_py() if is_bytes and _any(values) else b""
        variants.append(
            Variant(
                name=field.name,
                type=_TYPE_NAMES.get(kind, kind),
                first_record=first_record + _first_valid(column),
                statistics=dataclasses.replace(summary, present=present),
                fewest=fewest,
                most=most,
                sample=sample,
                all_text=is_bytes and _is_utf8(values),
            )
        )
    return variants


def _any(values: pa.Array) -> bool:
    """Whether any value is not null."""
    return bool(len(values) > values.null_count)


def _first_valid(column: pa.Array) -> int:
    """Returns the index of the first value that is not null."""
    return int(pc.index(column.is_valid(), True).as_py())


def _is_utf8(values: pa.Array) -> bool:
    try:
        values.cast(pa.large_string())
    except pa.ArrowInvalid:
        return False
    return True


@dataclasses.dataclass(frozen=True, slots=True)
class Form:
    """One form of a feature.

    Attributes:
      name: of the feature.
      text: its type, its number of values where that is not one, "absent".
      files: in how many files it has this form.
      first: index of the first of those.
      record: 0-based index of the first record there that has it.
    """

    name: str
    text: str
    files: int
    first: int
    record: int


def forms(summaries: Sequence[FileSummary]) -> list[Form]:
    """Returns all forms of all features of several files, by name and form."""
    by_text: dict[tuple[str, str], Form] = {}
    names = {variant.name for each in summaries for variant in each.variants}
    for number, summary in enumerate(summaries):
        seen = [(v.name, _text(v, summary), v.first_record) for v in summary.variants]
        absent = names - {variant.name for variant in summary.variants}
        seen += [(name, "absent", 0) for name in absent]
        for name, text, record in seen:
            before = by_text.get((name, text)) or Form(name, text, 0, number, record)
            after = dataclasses.replace(before, files=before.files + 1)
            by_text[name, text] = after
    return [by_text[key] for key in sorted(by_text)]


def _text(variant: Variant, summary: FileSummary) -> str:
    """Returns a variant as text: type, values in a record, whether always present."""
    parts = [variant.type]
    if variant.fewest != variant.most:
        parts.append("any number each")
    elif variant.most != 1:
        parts.append(f"{variant.most:,} each")
    if variant.statistics.present < summary.records:
        parts.append("not in every record")
    return ", ".join(parts)
