"""`inspect DATASET|FILE`: what a dataset, or a single file, holds.

Of a dataset the manifest knows it all, so no record is read. A file that no manifest
names is read once, in batches, and its features are summed up from its records.
"""

import dataclasses
import io
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console
from rich.table import Table
from rich.text import Text

from beam_pipeline.dataset import (
    Dataset,
    SingleFile,
    count_text,
    open_target,
    printable,
    share_text,
    size_text,
)
from beam_pipeline.head import describe_bytes, is_text
from transforms.core.compression import detect
from transforms.core.decoder import decode_examples
from transforms.core.frame import HEADER_BYTES
from transforms.core.manifest import Account, FeatureFacts, Manifest, SplitFacts
from transforms.core.schema import Kind
from transforms.core.statistics import Statistics, summarize
from transforms.core.tfrecord import PayloadBatch, TFRecordReader
from transforms.errors import ExampleError, UsageError

__all__ = ["FileSummary", "Variant", "show", "summarize_file"]

# More classes than this are not listed.
_MAX_CLASSES = 20
# Columns of a terminal that a class name or a sample may take.
_MAX_NAME = 40
# Wider than any table: what goes into a pipe is never wrapped or cut.
_PIPE_COLUMNS = 10_000

_TYPE_NAMES = {"int64": "int64", "float": "float", "large_binary": "bytes"}


@dataclasses.dataclass(frozen=True, slots=True)
class Variant:
    """One form that a feature has in the records of a file.

    Attributes:
      name: of the feature.
      type: "int64", "float", "bytes" or "none" (a feature without a type).
      first_record: 0-based index of the first record that has it in this form.
      statistics: of all values; `present` counts records.
      fewest, most: values in a record.
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
      not_examples: records that are no tf.train.Example.
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


def show(path: str) -> int:
    """Prints what is at a path; returns 0.

    Raises:
      UsageError: there is neither a dataset nor a file.
      DamageError: the manifest or the file is damaged.
    """
    target = open_target(path)
    width = None if sys.stdout.isatty() else _PIPE_COLUMNS
    console = Console(highlight=False, emoji=False, markup=False, width=width)
    if isinstance(target, Dataset):
        _print_dataset(console, target.manifest)
    else:
        empty = target.facts is not None and not target.facts.records
        _print_file(console, target, summarize_file(target.path, allow_empty=empty))
    return 0


def summarize_file(path: str, *, allow_empty: bool = False) -> FileSummary:
    """Reads a whole file, plain or compressed, and sums up what it holds.

    Args:
      path: where it lies.
      allow_empty: whether a file without a record is not damaged.

    Raises:
      TFRecordError: it is damaged.
      UsageError: it cannot be read.
    """
    try:
        # Buffered, because a pipe cannot be read twice.
        with open(path, "rb") as file:
            return _summarize(file, path, allow_empty)
    except OSError as error:
        raise UsageError(
            f"The file must be readable; {path!r} is not: {error.strerror}."
        ) from error


def _summarize(file: io.BufferedReader, path: str, allow_empty: bool) -> FileSummary:
    compression = detect(file.peek(HEADER_BYTES)[:HEADER_BYTES], path=path)
    reader = TFRecordReader(file, allow_empty=allow_empty)
    shortest, longest = sys.maxsize, 0
    found: dict[tuple[str, str], Variant] = {}
    failed, first_failed = 0, -1
    for batch in reader.batches():
        shortest = min(shortest, int(batch.lengths.min()))
        longest = max(longest, int(batch.lengths.max()))
        variants, wrong = _summarize_batch(batch)
        for variant in variants:
            key = (variant.name, variant.type)
            found[key] = found[key].merge(variant) if key in found else variant
        if wrong and not failed:
            first_failed = wrong[0]
        failed += len(wrong)
    return FileSummary(
        records=reader.records,
        bytes=reader.stored_bytes,
        compression=str(compression),
        shortest=min(shortest, longest),
        longest=longest,
        variants=tuple(found[key] for key in sorted(found)),
        not_examples=failed,
        first_not_example=first_failed,
    )


def _summarize_batch(batch: PayloadBatch) -> tuple[list[Variant], list[int]]:
    """Returns the variants in a batch, and which records are no Examples.

    All at once where the records agree on types, otherwise one by one.
    """
    try:
        return _variants(decode_examples(batch), batch.first_record), []
    except ExampleError:
        pass
    found: list[Variant] = []
    wrong = []
    for number, payload in enumerate(batch.to_list(), batch.first_record):
        try:
            found += _variants(decode_examples([payload]), number)
        except ExampleError:
            wrong.append(number)
    return found, wrong


def _variants(rows: pa.RecordBatch, first_record: int) -> list[Variant]:
    """Returns one variant for each column that has a value."""
    found = []
    for field, column in zip(rows.schema, rows.columns, strict=True):
        present = len(column) - column.null_count
        if pa.types.is_null(field.type):
            found.append(Variant(field.name, "none", first_record, Statistics(), 0, 0))
            continue
        fewest = most = 1
        values = column
        if pa.types.is_large_list(field.type):
            lengths = pc.min_max(pc.list_value_length(column))
            fewest, most = lengths["min"].as_py(), lengths["max"].as_py()
            values = pc.list_flatten(column)
        kind = str(values.type)
        is_bytes = pa.types.is_large_binary(values.type)
        if kind == "float":
            # NaN is no bound.
            summary = summarize(values.filter(pc.invert(pc.is_nan(values))))
        else:
            summary = summarize(values)
        sample = values.drop_null()[0].as_py() if is_bytes and _any(values) else b""
        found.append(
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
    return found


def _any(values: pa.Array) -> bool:
    return len(values) > values.null_count


def _first_valid(column: pa.Array) -> int:
    return int(pc.index(column.is_valid(), True).as_py())


def _is_utf8(values: pa.Array) -> bool:
    try:
        values.cast(pa.large_string())
    except pa.ArrowInvalid:
        return False
    return True


def _table(*columns: str, right: Sequence[str] = ()) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        side: Any = "right" if name in right else "left"
        table.add_column(printable(name), justify=side, overflow="fold")
    return table


def _print_table(console: Console, table: Table) -> None:
    """Prints a table after an empty line, without spaces at the ends of lines."""
    with console.capture() as captured:
        console.print(table)
    console.file.write("\n")
    for line in captured.get().splitlines():
        console.file.write(f"{line.rstrip()}\n")


def _print_dataset(console: Console, manifest: Manifest) -> None:
    shards = [shard for split in manifest.splits for shard in split.shards]
    size = sum(shard.bytes for shard in shards)
    compression = manifest.compression
    console.print(
        Text.assemble(
            (printable(manifest.name), "bold"),
            f"  {count_text(manifest.records, 'record')}, {size_text(size)} in "
            f"{count_text(len(shards), 'shard')}, "
            f"{'not compressed' if compression == 'none' else compression}, digest "
            f"{manifest.digest[:12]}",
        ),
        soft_wrap=True,
    )
    _print_table(console, _splits_table(manifest.splits))
    _print_table(console, _features_table(manifest))
    for facts in manifest.features:
        counts = {
            split.name: split.classes[facts.feature.name]
            for split in manifest.splits
            if facts.feature.name in split.classes
        }
        if counts:
            _print_classes(console, facts, counts)
    _print_table(console, _account_table(manifest.account))
    if manifest.files:
        names = ", ".join(facts.file for facts in manifest.files)
        console.print(Text(f"\nbeside the shards: {printable(names)}"), soft_wrap=True)
    for note in manifest.run.get("notes", []):
        console.print(Text(printable(f"note: {note}")), soft_wrap=True)


def _splits_table(splits: Sequence[SplitFacts]) -> Table:
    numbers = ("records", "size", "shards", "shard size")
    table = _table("split", *numbers, right=numbers)
    for split in splits:
        sizes = [shard.bytes for shard in split.shards]
        table.add_row(
            Text(split.name),
            f"{split.records:,}",
            size_text(split.bytes),
            f"{len(sizes):,}",
            _spread(size_text(min(sizes)), size_text(max(sizes))) if sizes else "",
        )
    return table


def _features_table(manifest: Manifest) -> Table:
    table = _table("feature", "kind", "present", "values", right=("present",))
    for facts in manifest.features:
        feature = facts.feature
        kind = f"{feature.kind}, to predict" if feature.is_label else str(feature.kind)
        present = facts.statistics.present
        table.add_row(
            Text(printable(feature.name)),
            kind,
            share_text(present, manifest.records) if manifest.records else "",
            _values_text(facts),
        )
    return table


def _values_text(facts: FeatureFacts) -> str:
    """Returns the range of a feature's values, or of their lengths."""
    if facts.feature.kind is Kind.LABEL:
        return count_text(len(facts.classes), "class", "classes")
    if facts.feature.kind is Kind.BOOL:
        low, high = facts.statistics.minimum, facts.statistics.maximum
        words = ("false", "true")
        if low is None or high is None:
            return ""
        return _spread(words[int(low)], words[int(high)])
    return _extent(
        facts.statistics, facts.feature.kind in (Kind.TEXT, Kind.BYTES, Kind.IMAGE)
    )


def _extent(statistics: Statistics, of_lengths: bool) -> str:
    low, high = statistics.minimum, statistics.maximum
    if low is None or high is None:
        return ""
    if of_lengths:
        if low == high:
            return count_text(int(low), "byte")
        return f"{low:,} to {high:,} bytes"
    if isinstance(low, float) or isinstance(high, float):
        return _spread(f"{low:.6g}", f"{high:.6g}")
    return _spread(f"{low:,}", f"{high:,}")


def _spread(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"


def _print_classes(
    console: Console,
    facts: FeatureFacts,
    counts: Mapping[str, Mapping[str, int]],
) -> None:
    """Prints a line for each class: its id, its name, its records in every split."""
    feature = facts.feature
    if feature.kind is Kind.LABEL:
        names = list(facts.classes)
        head = ["id", feature.name]
    else:
        names = sorted({name for split in counts.values() for name in split}, key=int)
        head = [feature.name]
    table = _table(*head, *counts, right=("id", *counts))
    for number, name in enumerate(names[:_MAX_CLASSES]):
        cells = [_cut(name)]
        if feature.kind is Kind.LABEL:
            cells.insert(0, Text(str(number)))
        table.add_row(*cells, *(f"{split.get(name, 0):,}" for split in counts.values()))
    _print_table(console, table)
    if len(names) > _MAX_CLASSES:
        totals = [
            sum(split.get(name, 0) for split in counts.values()) for name in names
        ]
        console.print(
            f"... {len(names) - _MAX_CLASSES:,} more; a class has "
            f"{_spread(f'{min(totals):,}', f'{max(totals):,}')} records",
            soft_wrap=True,
        )


def _account_table(account: Account) -> Table:
    """Returns where the source's items went."""
    table = _table("source", "items", "", right=("items",))
    table.add_row("read", f"{account.read:,}", "")
    table.add_row("written", f"{account.written:,}", "")
    for word, counts in (("rejected", account.rejected), ("skipped", account.skipped)):
        reasons = ", ".join(f"{reason} {n:,}" for reason, n in counts.items() if n)
        table.add_row(word, f"{sum(counts.values()):,}", Text(printable(reasons)))
    return table


def _print_file(console: Console, file: SingleFile, summary: FileSummary) -> None:
    compressed = summary.compression != "none"
    console.print(
        Text.assemble(
            (printable(file.path), "bold"),
            f"  {count_text(summary.records, 'record')} of "
            f"{_spread(f'{summary.shortest:,}', f'{summary.longest:,}')} bytes, "
            f"{size_text(summary.bytes)}"
            + (f" with {summary.compression}" if compressed else ""),
        ),
        soft_wrap=True,
    )
    if file.dataset is None:
        text = "no manifest names this file: what follows was read from its records"
    else:
        text = f"a shard of the dataset {file.dataset.manifest.name!r} beside it"
    console.print(Text(printable(text)), soft_wrap=True, style="dim")
    if summary.variants:
        _print_table(console, _variants_table(summary))
    if summary.not_examples:
        console.print()
        console.print(
            f"{count_text(summary.not_examples, 'record')} cannot be read as a "
            f"tf.train.Example; the first is record {summary.first_not_example:,}",
            style="red",
            soft_wrap=True,
        )


def _variants_table(summary: FileSummary) -> Table:
    table = _table("feature", "type", "present", "values", right=("present",))
    names = [variant.name for variant in summary.variants]
    for variant in summary.variants:
        kind = variant.type
        if variant.most != 1 or variant.fewest != 1:
            spread = _spread(f"{variant.fewest:,}", f"{variant.most:,}")
            kind += f", {spread} each"
        extent = _extent(variant.statistics, variant.type == "bytes")
        if variant.sample:
            extent += f"; {_sample_text(variant)}"
        if names.count(variant.name) > 1:
            extent += f" (first in record {variant.first_record:,})"
        table.add_row(
            Text(printable(variant.name)),
            kind,
            share_text(variant.statistics.present, summary.records),
            Text(extent),
        )
    return table


def _sample_text(variant: Variant) -> str:
    if variant.all_text and is_text(variant.sample):
        return f'text, as "{_cut(variant.sample.decode())}"'
    # Without the size: the range says it.
    return describe_bytes(variant.sample).partition(", ")[2]


def _cut(text: str) -> Text:
    """Returns text that is short enough for a cell of a table."""
    shown = Text(printable(text[: 2 * _MAX_NAME]))
    shown.truncate(_MAX_NAME, overflow="ellipsis")
    return shown
