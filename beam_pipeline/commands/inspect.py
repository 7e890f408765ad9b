"""The command `inspect`: what a dataset or a single file contains.

Of a dataset the manifest knows it all, so no record is read. A file that no manifest
names is read once, in batches, and its features are summed up from its records, as are
those of several such files together.
"""

import json
import os
from collections.abc import Mapping, Sequence

from beam_pipeline.commands.head import describe_bytes, is_text
from beam_pipeline.datasets.dataset import Dataset, SingleFile, open_files
from beam_pipeline.datasets.file_summary import (
    FileSummary,
    RecordPlace,
    Variant,
    summarize_files,
)
from beam_pipeline.terminal.console import (
    Table,
    new_table,
    print_head,
    print_line,
    print_table,
    splits_table,
)
from beam_pipeline.terminal.printing import print_text, printable
from beam_pipeline.terminal.words import (
    count_text,
    counts_text,
    kind_text,
    share_text,
    shortened,
    size_text,
    value_text,
)
from transforms.core.manifest import (
    Account,
    FeatureFacts,
    Manifest,
)
from transforms.core.schema import Feature, Kind
from transforms.core.statistics import Statistics
from transforms.errors import UsageError

# More classes than this are not listed.
_MAX_CLASSES = 20
# Columns of a terminal that a class name or a sample may take.
_MAX_NAME = 40
_NO_JSON = (
    "JSON is the manifest's, and these files have none. Leave out --json, or convert "
    "them."
)


def show(path: str, *, as_json: bool = False) -> int:
    """Prints what is at a path; returns 0.

    With `as_json` it prints the `dataset` part of a manifest; see the reference.

    Raises:
      UsageError: there is neither a dataset nor a TFRecord file; or JSON is asked of
        files without a manifest.
      DamageError: the manifest or the file is damaged.
    """
    target = open_files(path)
    if as_json:
        if not isinstance(target, Dataset):
            raise UsageError(_NO_JSON)
        facts = target.manifest.dataset_json() | {"digest": target.manifest.digest}
        print_text(json.dumps(facts, indent=1))
        return 0
    if isinstance(target, Dataset):
        _print_dataset(target.manifest)
        return 0
    files = [target] if isinstance(target, SingleFile) else target.files
    _print_files(path, files)
    return 0


def _print_dataset(manifest: Manifest) -> None:
    shards = [shard for split in manifest.splits for shard in split.shards]
    size = sum(shard.bytes for shard in shards)
    compression = manifest.compression
    print_head(
        manifest.name,
        f"  {count_text(manifest.records, 'record')}, {size_text(size)} in "
        f"{count_text(len(shards), 'shard')}, "
        f"{'not compressed' if compression == 'none' else compression}, digest "
        f"{manifest.digest[:12]}",
    )
    print_table(splits_table(manifest.splits))
    print_table(_features_table(manifest))
    for facts in manifest.features:
        if facts.feature.internal:
            continue
        counts = {
            split.name: split.classes[facts.feature.name]
            for split in manifest.splits
            if facts.feature.name in split.classes
        }
        if counts:
            _print_classes(facts, counts)
    print_table(_account_table(manifest.account))
    if parts := manifest.settings.get("parts"):
        print_line()
        ends = _spread(min(parts), max(parts))
        print_line(f"{count_text(len(parts), 'part')}: {ends}")
    elif manifest.beside:
        print_line()
        names = (f.file.partition("/") for f in manifest.beside)
        shown = dict.fromkeys(f"{head}{slash}" for head, slash, _ in names)
        print_line(f"beside the shards: {', '.join(shown)}")
    for note in manifest.run.get("notes", []):
        print_line(f"note: {note}")


def _features_table(manifest: Manifest) -> Table:
    table = new_table("feature", "kind", "present", "values", right=("present",))
    for facts in manifest.features:
        feature = facts.feature
        if feature.internal:
            continue
        present = ""
        if manifest.records:
            present = share_text(facts.statistics.present, manifest.records)
        table.add_row(feature.name, kind_text(feature), present, _values_text(facts))
    return table


def _values_text(facts: FeatureFacts) -> str:
    """Returns the range of a feature's values, or of their lengths, and how many."""
    text, statistics = _range_text(facts), facts.statistics
    if statistics.fewest is None or statistics.most is None:
        return text
    spread = _spread(f"{statistics.fewest:,}", f"{statistics.most:,}")
    return f"{text}; {spread} each" if text else f"{spread} each"


def _range_text(facts: FeatureFacts) -> str:
    """Returns the range of a feature's values in the terms of its kind."""
    kind, statistics = facts.feature.kind, facts.statistics
    if kind is Kind.LABEL:
        return count_text(len(facts.classes), "class", "classes")
    of_lengths = kind in (Kind.TEXT, Kind.BYTES, Kind.IMAGE, Kind.TENSOR)
    return _extent(statistics, of_lengths, facts.feature)


def _extent(
    statistics: Statistics, of_lengths: bool, feature: Feature | None = None
) -> str:
    """Returns the smallest and the largest value, or the range of lengths in bytes."""
    low, high = statistics.minimum, statistics.maximum
    if low is None or high is None:
        return ""
    if of_lengths and low == high:
        return count_text(int(low), "byte")
    text = _spread(value_text(low, feature), value_text(high, feature))
    return f"{text} bytes" if of_lengths else text


def _spread(low: str, high: str) -> str:
    """Returns "LOW to HIGH", or one of them where both are the same."""
    return low if low == high else f"{low} to {high}"


def _print_classes(
    facts: FeatureFacts,
    counts: Mapping[str, Mapping[str, int]],
) -> None:
    """Prints a line for each class: its id, its name, its records and its share."""
    feature = facts.feature
    if feature.kind is Kind.LABEL:
        names = list(facts.classes)
        head = ["id", feature.name]
    else:
        names = sorted({name for split in counts.values() for name in split}, key=int)
        head = [feature.name]
    totals = [sum(split.get(name, 0) for split in counts.values()) for name in names]
    table = new_table(*head, *counts, "share", right=("id", *counts, "share"))
    every = sum(totals)
    for number, name in enumerate(names[:_MAX_CLASSES]):
        cells = [shortened(name, _MAX_NAME)]
        if feature.kind is Kind.LABEL:
            cells.insert(0, str(number))
        table.add_row(
            *cells,
            *(f"{split.get(name, 0):,}" for split in counts.values()),
            share_text(totals[number], every) if every else "",
        )
    print_table(table)
    if len(names) > _MAX_CLASSES:
        print_line(f"... {len(names) - _MAX_CLASSES:,} more")


def _account_table(account: Account) -> Table:
    """Returns where the source's items went."""
    table = new_table("source", "items", "", right=("items",))
    table.add_row("read", f"{account.read:,}", "")
    table.add_row("written", f"{account.written:,}", "")
    for word, counts in (("rejected", account.rejected), ("skipped", account.skipped)):
        reasons = counts_text({reason: n for reason, n in counts.items() if n})
        table.add_row(word, f"{sum(counts.values()):,}", reasons)
    for name, count in account.by_steps.items():
        if count:
            table.add_row(name.replace("_", " "), f"{count:,}", "")
    for kind, counts in account.parts.items():
        name = printable(kind)
        for word in ("read", "written", "rejected"):
            table.add_row(f"{name} {word}", f"{counts.get(word, 0):,}", "")
        gone = f"{counts.get('gone', 0):,}"
        table.add_row(f"{name} gone", gone, "with rejected items")
    return table


def _print_files(path: str, files: Sequence[SingleFile]) -> None:
    """Prints what the records of files hold that no manifest states."""
    summary = summarize_files(files)
    head = f"  {count_text(summary.records, 'record')}"
    spread = _spread(f"{summary.shortest:,}", f"{summary.longest:,}")
    head += f" of {spread} bytes, {size_text(summary.bytes)}"
    if len(files) > 1:
        head += f" in {count_text(len(files), 'file')}"
    if compressed := summary.compressions - {"none"}:
        head += f" with {', '.join(sorted(compressed))}"
    print_head(path, head)
    beside = files[0].dataset
    text = "without a manifest: what follows was read from the records"
    if beside is not None:
        text = f"a shard of the dataset {beside.manifest.name!r} beside it"
    print_line(text, "dim")
    if summary.variants:
        print_table(_variants_table(summary))
    if summary.first_not_example is not None:
        print_line(
            f"{count_text(summary.not_examples, 'record')} cannot be read as a "
            f"tf.train.Example; the first is {_place(summary.first_not_example)}",
            "red",
        )


def _place(place: RecordPlace) -> str:
    """Returns which record it is, and of which file."""
    path, number = place
    return f"{printable(os.path.basename(path))}, record {number:,}"


def _variants_table(summary: FileSummary) -> Table:
    table = new_table("feature", "type", "present", "values", right=("present",))
    names = [variant.name for variant in summary.variants]
    for variant in summary.variants:
        kind, statistics = variant.type, variant.statistics
        if (statistics.fewest, statistics.most) != (1, 1):
            spread = _spread(f"{statistics.fewest:,}", f"{statistics.most:,}")
            kind += f", {spread} each"
        extent = _extent(statistics, variant.type == "bytes")
        if variant.sample:
            extent += f"; {_sample_text(variant)}"
        if names.count(variant.name) > 1:
            extent += f" (first in {_place(variant.first)})"
        table.add_row(
            variant.name,
            kind,
            share_text(statistics.present, summary.records),
            extent,
        )
    return table


def _sample_text(variant: Variant) -> str:
    if variant.all_text and is_text(variant.sample):
        return f'text, as "{shortened(variant.sample.decode(), _MAX_NAME)}"'
    # Without the size: the range says it.
    return describe_bytes(variant.sample).partition(", ")[2]
