"""The command `inspect`: what the manifest of a dataset states; no record is read."""

import json
from collections.abc import Mapping

from beam_pipeline.datasets.dataset import Dataset, open_files
from beam_pipeline.terminal import (
    count_text,
    counts_text,
    kind_text,
    print_line,
    print_splits,
    print_table,
    print_text,
    range_text,
    share_text,
    shortened,
    size_text,
)
from transforms.core.manifest import Account, FeatureFacts, Manifest
from transforms.core.schema import Kind
from transforms.errors import UsageError

# More classes than this are not listed.
_MAX_CLASSES = 20
# Columns of a terminal that a class name may take.
_MAX_NAME = 40
# Kinds whose statistics are about the lengths of values in bytes.
_MEASURED = (Kind.TEXT, Kind.BYTES, Kind.IMAGE, Kind.TENSOR)


def show(path: str, *, as_json: bool = False) -> int:
    """Prints what a dataset contains; returns 0.

    With `as_json` it prints the `dataset` part of its manifest; see the reference.

    Raises:
      UsageError: there is no dataset.
      DamageError: the manifest is damaged.
    """
    target = open_files(path)
    if not isinstance(target, Dataset):
        raise UsageError(
            f"'inspect' shows what a manifest states, and {path!r} has none. 'verify' "
            f"counts its records, 'spec' shows their features, and 'convert' makes a "
            f"dataset of them."
        )
    manifest = target.manifest
    if as_json:
        facts = manifest.dataset_json() | {"digest": manifest.digest}
        print_text(json.dumps(facts, indent=1))
    else:
        _print_dataset(manifest)
    return 0


def _print_dataset(manifest: Manifest) -> None:
    """Prints splits, features, classes, account and notes, as the manifest has them."""
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
        text = range_text(facts.statistics.minimum, facts.statistics.maximum, feature)
        if text and feature.kind in _MEASURED:
            text += " byte" if text == "1" else " bytes"
    each = range_text(facts.statistics.fewest, facts.statistics.most)
    return "; ".join(filter(None, (text, each and f"{each} each")))


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
    rows = []
    for number, name in enumerate(names[:_MAX_CLASSES]):
        own = ([f"{number}"] if has_ids else []) + [shortened(name, _MAX_NAME)]
        each = (f"{split.get(name, 0):,}" for split in counts.values())
        rows.append((*own, *each, share_text(totals[number], every) if every else ""))
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
