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
from beam_pipeline.datasets.file_summary import RecordPlace, Variant, summarize_files
from beam_pipeline.terminal.console import print_line, print_splits, print_table
from beam_pipeline.terminal.printing import print_text
from beam_pipeline.terminal.words import (
    count_text,
    counts_text,
    kind_text,
    range_text,
    share_text,
    shortened,
    size_text,
)
from transforms.core.manifest import Account, FeatureFacts, Manifest
from transforms.core.schema import Feature, Kind
from transforms.core.statistics import Statistics
from transforms.errors import UsageError

# More classes than this are not listed.
_MAX_CLASSES = 20
# Columns of a terminal that a class name or a sample may take.
_MAX_NAME = 40
# Kinds whose statistics are about the lengths of values in bytes.
_MEASURED = (Kind.TEXT, Kind.BYTES, Kind.IMAGE, Kind.TENSOR)


def show(path: str, *, as_json: bool = False) -> int:
    """Prints what is at a path; returns 0.

    With `as_json` it prints the `dataset` part of a manifest; see the reference.

    Raises:
      UsageError: there is neither a dataset nor a TFRecord file; or JSON is asked of
        files without a manifest.
      DamageError: the manifest or the file is damaged.
    """
    target = open_files(path)
    if isinstance(target, Dataset):
        manifest = target.manifest
        if as_json:
            facts = manifest.dataset_json() | {"digest": manifest.digest}
            print_text(json.dumps(facts, indent=1))
        else:
            _print_dataset(manifest)
    elif as_json:
        raise UsageError(
            "JSON is the manifest's, and these files have none. Leave out --json, or "
            "convert them."
        )
    else:
        _print_files(path, [target] if isinstance(target, SingleFile) else target.files)
    return 0


def _print_dataset(manifest: Manifest) -> None:
    shards = [shard for split in manifest.splits for shard in split.shards]
    size = sum(shard.bytes for shard in shards)
    compression = manifest.compression
    print_line(
        manifest.name,
        "bold",
        f"  {count_text(manifest.records, 'record')}, {size_text(size)} in "
        f"{count_text(len(shards), 'shard')}, "
        f"{'not compressed' if compression == 'none' else compression}, digest "
        f"{manifest.digest[:12]}",
    )
    print_splits(manifest.splits, apart=True)
    listed = [facts for facts in manifest.features if not facts.feature.internal]
    rows = []
    for facts in listed:
        present, values = facts.statistics.present, _values_text(facts)
        share = share_text(present, manifest.records) if manifest.records else ""
        rows.append((facts.feature.name, kind_text(facts.feature), share, values))
    print_table(("feature", "kind", "present", "values"), rows, right=("present",))
    for facts in listed:
        name = facts.feature.name
        of_splits = {s.name: s.classes for s in manifest.splits if name in s.classes}
        if of_splits:
            _print_classes(facts, {s: counts[name] for s, counts in of_splits.items()})
    _print_account(manifest.account)
    print_line()
    if parts := manifest.settings.get("parts"):
        ends = " to ".join(dict.fromkeys((min(parts), max(parts))))
        print_line(f"{count_text(len(parts), 'part')}: {ends}")
    elif manifest.beside:
        names = (f.file.partition("/") for f in manifest.beside)
        shown = dict.fromkeys(f"{head}{slash}" for head, slash, _ in names)
        print_line(f"beside the shards: {', '.join(shown)}")
    for note in manifest.run.get("notes", []):
        print_line(f"note: {note}")


def _values_text(facts: FeatureFacts) -> str:
    """Returns the range of a feature's values, or of their lengths, and how many."""
    feature = facts.feature
    if feature.kind is Kind.LABEL:
        text = count_text(len(facts.classes), "class", "classes")
    else:
        text = _extent(facts.statistics, feature.kind in _MEASURED, feature)
    each = range_text(facts.statistics.fewest, facts.statistics.most)
    return "; ".join(filter(None, (text, each and f"{each} each")))


def _extent(
    statistics: Statistics, of_lengths: bool, feature: Feature | None = None
) -> str:
    """Returns the smallest and the largest value, or the range of lengths in bytes."""
    text = range_text(statistics.minimum, statistics.maximum, feature)
    unit = "byte" if text == "1" else "bytes"
    return f"{text} {unit}" if of_lengths and text else text


def _print_classes(
    facts: FeatureFacts, counts: Mapping[str, Mapping[str, int]]
) -> None:
    """Prints a line for each class: its id, its name, its records and its share."""
    feature = facts.feature
    has_ids = feature.kind is Kind.LABEL
    names = [*facts.classes]
    if not has_ids:
        names = sorted({name for split in counts.values() for name in split}, key=int)
    totals = [sum(split.get(name, 0) for split in counts.values()) for name in names]
    every = sum(totals)
    rows = [
        (
            *([f"{number}"] if has_ids else []),
            shortened(name, _MAX_NAME),
            *(f"{split.get(name, 0):,}" for split in counts.values()),
            share_text(totals[number], every) if every else "",
        )
        for number, name in enumerate(names[:_MAX_CLASSES])
    ]
    head = ("id", feature.name) if has_ids else (feature.name,)
    columns = (*head, *counts, "share")
    print_table(columns, rows, right=("id", *counts, "share"))
    if len(names) > _MAX_CLASSES:
        print_line(f"... {len(names) - _MAX_CLASSES:,} more")


def _print_account(account: Account) -> None:
    """Prints where the source's items went."""
    rows = [("read", account.read, ""), ("written", account.written, "")]
    for word, counts in (("rejected", account.rejected), ("skipped", account.skipped)):
        reasons = counts_text({reason: n for reason, n in counts.items() if n})
        rows.append((word, sum(counts.values()), reasons))
    steps = account.by_steps.items()
    rows += [(name.replace("_", " "), count, "") for name, count in steps if count]
    for part, counts in account.parts.items():
        for word in ("read", "written", "rejected", "gone"):
            remark = "with rejected items" if word == "gone" else ""
            rows.append((f"{part} {word}", counts.get(word, 0), remark))
    shown = [(word, f"{count:,}", remark) for word, count, remark in rows]
    print_table(("source", "items", ""), shown, right=("items",))


def _print_files(path: str, files: Sequence[SingleFile]) -> None:
    """Prints what the records of files hold that no manifest states."""
    summary = summarize_files(files)
    of = range_text(summary.shortest, summary.longest)
    records, size = count_text(summary.records, "record"), size_text(summary.bytes)
    where = f" in {count_text(len(files), 'file')}" if len(files) > 1 else ""
    compressed = ", ".join(sorted(summary.compressions - {"none"}))
    how = f" with {compressed}" if compressed else ""
    print_line(path, "bold", f"  {records} of {of} bytes, {size}{where}{how}")
    beside = files[0].dataset
    text = "without a manifest: what follows was read from the records"
    if beside is not None:
        text = f"a shard of the dataset {beside.manifest.name!r} beside it"
    print_line(text, "dim")
    if summary.variants:
        names = [variant.name for variant in summary.variants]
        rows = [
            _variant_row(variant, summary.records, names.count(variant.name) > 1)
            for variant in summary.variants
        ]
        print_table(("feature", "type", "present", "values"), rows, right=("present",))
    if summary.first_not_example is not None:
        print_line(
            f"{count_text(summary.not_examples, 'record')} cannot be read as a "
            f"tf.train.Example; the first is {_place(summary.first_not_example)}",
            "red",
        )


def _place(place: RecordPlace) -> str:
    """Returns which record it is, and of which file."""
    path, number = place
    return f"{os.path.basename(path)}, record {number:,}"


def _variant_row(variant: Variant, records: int, is_one_of_several: bool) -> list[str]:
    kind, statistics = variant.type, variant.statistics
    if (statistics.fewest, statistics.most) != (1, 1):
        kind += f", {range_text(statistics.fewest, statistics.most)} each"
    extent = _extent(statistics, variant.type == "bytes")
    if variant.sample:
        # Without the size: the range says it.
        sample = describe_bytes(variant.sample).partition(", ")[2]
        if variant.all_text and is_text(variant.sample):
            sample = f'text, as "{shortened(variant.sample.decode(), _MAX_NAME)}"'
        extent += f"; {sample}"
    if is_one_of_several:
        extent += f" (first in {_place(variant.first)})"
    return [variant.name, kind, share_text(statistics.present, records), extent]
