"""Remarks on a finished run: sentences on what is no error, but likely a mistake."""

import collections
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

from transforms.core.manifest import Account, FeatureFacts, Manifest
from transforms.core.model import ReadFacts, Rounding, ShardFile, ShardKey
from transforms.core.schema import Feature, Kind
from transforms.core.vocabulary import vocabulary_warnings
from transforms.errors import (
    SHOWN_CHARS,
    bounded,
    first_few,
)

_SHOWN = 10
# How far a split may be off its share, as a fraction of the share.
_TOLERATED = Fraction(1, 5)
# A shard is crowded from this many rows, and from this multiple of its share. By chance
# one of thousands has a tenth more than its share.
_CROWD, _CROWDED = 1_000, 4


def padding_remarks(features: Sequence[Feature]) -> list[str]:
    """Returns a remark on source columns whose names begin or end with white space."""
    columns = dict.fromkeys(
        feature.source_column
        for feature in features
        if feature.constant is None and not feature.derived
    )
    padded = [name for name in columns if name != name.strip()]
    if not padded:
        return []
    shown = first_few([repr(name[:SHOWN_CHARS]) for name in padded], _SHOWN)
    what = _counted(
        len(padded), "column name begins or ends", "column names begin or end"
    )
    return [bounded(f"{what} with a space: {shown}; for CSV, --trim removes it")]


def label_remarks(name: str, lacking: int, records: int) -> list[str]:
    """Returns a remark on records without the label to predict, and the way out.

    Args:
      name: of the label.
      lacking: records without it.
      records: all of them.
    """
    if not lacking:
        return []
    what = _counted(lacking, "has", "have")
    feature = repr(name[:SHOWN_CHARS])
    return [
        f"of {records:,} records {what} no {feature}, the label to predict; readers "
        f"find it missing, or -1. To reject such rows, give {feature} "
        f"'missing: reject' in a --spec"
    ]


def key_remarks(shards: Iterable[ShardFile]) -> list[str]:
    """Returns a remark on rows that share the key which was to tell them apart."""
    repeating = [shard for shard in shards if shard.repeated]
    if not repeating:
        return []
    what = _counted(sum(s.repeated for s in repeating), "row has", "rows have")
    shown = " and ".join(
        origin if row is None else f"{origin}, row {row + 1:,}"
        for origin, row in sorted(min(shard.repeated_example for shard in repeating))
    )
    return [
        bounded(
            f"{what} a key that an earlier row has, as {shown}; the dataset holds all "
            f"of them. Correct the source if --key-column is to tell rows apart"
        )
    ]


def rounding_remarks(facts: Iterable[ReadFacts]) -> list[str]:
    """Returns remarks on columns whose values were rounded much, with the first."""
    by_column: dict[str, list[Rounding]] = {}
    for entry in sorted(facts, key=lambda fact: (fact.origin, fact.start)):
        for column, rounding in entry.roundings.items():
            by_column.setdefault(column, []).append(rounding)
    out = []
    for column, roundings in sorted(by_column.items()):
        error = max(entry.error for entry in roundings)
        large = f"of 2^24 and more changed in float32, by {error:,.6g} at most"
        for field, example, what in (
            ("zeros", "first_zero", "became 0, being nearer to it than float32 can be"),
            ("large", "first_large", large),
            ("cut", "first_cut", "lost their digits beyond a microsecond"),
        ):
            changed = [entry for entry in roundings if getattr(entry, field)]
            if changed:
                count = sum(getattr(entry, field) for entry in changed)
                words = f"{_counted(count, 'value', 'values')} of {column!r} {what}"
                out.append(bounded(f"{words}: {getattr(changed[0], example)}"))
    return out


def replacement_remarks(before: Manifest, after: Manifest) -> list[str]:
    """Returns a remark on what a program that reads a dataset finds changed in it.

    Args:
      before: of the dataset that is replaced.
      after: of the one that replaces it.
    """
    old = {facts.feature.name: facts for facts in before.features}
    new = {facts.feature.name: facts for facts in after.features}
    changes, remarks = [], []
    if 2 * after.records < before.records:
        remarks.append(
            f"the dataset that was replaced had {before.records:,} records; this one "
            f"has {after.records:,}"
        )
    for name in dict.fromkeys((*old, *new)):
        was, now = old.get(name), new.get(name)
        said = _read_as(was, before.records), _read_as(now, after.records)
        if said[0] != said[1]:
            changes.append(f"{name[:SHOWN_CHARS]!r} was {said[0]} and is {said[1]}")
        if was is None or now is None:
            continue
        pairs = enumerate(zip(was.classes, now.classes, strict=False))
        if moved := [(n, a, b) for n, (a, b) in pairs if a != b]:
            number, first, second = moved[0]
            what = _counted(len(moved), "class id", "class ids")
            changes.append(
                f"{what} of {name[:SHOWN_CHARS]!r} changed: {number} was "
                f"{first[:SHOWN_CHARS]!r} and is {second[:SHOWN_CHARS]!r}"
            )
    if changes:
        shown = first_few(changes, _SHOWN)
        remarks.append(bounded(f"changed from the dataset that was replaced: {shown}"))
    return remarks


def _read_as(facts: FeatureFacts | None, records: int) -> str:
    """Returns what decides how a program reads a feature of a dataset."""
    if facts is None:
        return "absent"
    feature = facts.feature
    names = ("shape", "dtype", "encoding", "unit")
    options = {name: getattr(feature, name) for name in names}
    stored = Feature(feature.name, feature.kind, **options)
    is_whole = facts.always_present
    if is_whole is None:
        is_whole = facts.statistics.present == records
    return stored.in_words() + ("" if is_whole else " (not in every record)")


def step_remarks(account: Account) -> list[str]:
    """Returns a remark on rows that users' own steps have dropped or added."""
    changes = {"dropped": account.dropped_by_steps, "added": account.added_by_steps}
    return [
        f"{_counted(count, 'row was', 'rows were')} {word} by your own steps"
        for word, count in changes.items()
        if count
    ]


def crowd_remarks(rows: Mapping[ShardKey, int], shards: Mapping[str, int]) -> list[str]:
    """Returns a remark on each split with a shard far larger than its others.

    Args:
      rows: of each shard, of rows that go by their key or content alone.
      shards: split -> how many shards it was cut into.
    """
    out = []
    for split, count in shards.items():
        of_split = [number for (name, _), number in rows.items() if name == split]
        largest, total = max(of_split, default=0), sum(of_split)
        if largest >= _CROWD and largest * count > _CROWDED * total:
            out.append(
                f"one shard of {split!r} has {largest:,} of {total:,} rows: those of "
                f"one key, or of equal content, are in one shard"
            )
    return out


def turned_box_remarks(
    features: Sequence[Feature], turned: int, *, applied: bool
) -> list[str]:
    """Returns a remark on images with boxes that their EXIF orientation turns.

    Args:
      features: of the dataset.
      turned: how many images have such an orientation.
      applied: whether it was applied to the pixels.
    """
    if not turned or not any(feature.kind is Kind.BOX for feature in features):
        return []
    what = _counted(turned, "image", "images")
    meant = (
        "boxes are taken as drawn on the turned image, unless the stated size is that "
        "of the stored one alone"
        if applied
        else "boxes are taken as drawn on the image as it is stored; if they were "
        "drawn on the turned one, as most programs show it, they are misplaced, and "
        "--exif apply puts them right"
    )
    return [
        f"EXIF turns {what} of a dataset with boxes, which are drawn on either view: "
        f"{meant}. Look at a few"
    ]


def _counted(count: int, one: str, many: str) -> str:
    """Returns a count with the words for one or for many, as "1,200 images"."""
    return f"{count:,} {one if count == 1 else many}"


def share_remarks(
    records: Mapping[str, int], shares: Mapping[str, Fraction], *, by_content: bool
) -> list[str]:
    """Returns a remark on splits that are empty or far off their shares, and why.

    Args:
      records: of each split.
      shares: of the splits that shares decide; they sum to one.
      by_content: whether the split of a row goes by its values; no key was named.
    """
    total = sum(records.get(name, 0) for name in shares)
    off = [
        f"{name} has {records.get(name, 0):,} of {total:,} records, and its share is "
        f"{100 * float(share):.4g}%"
        for name, share in shares.items()
        if abs(records.get(name, 0) - share * total) > share * total * _TOLERATED
    ]
    if not off:
        return []
    why = (
        "each row goes to one split, and equal rows, or those of one key or group, go "
        "to the same, so a few of them, or large ones, meet the shares only roughly"
    )
    if by_content:
        why += "; with a --key-column of a value for each row they meet them"
    return [bounded(f"{first_few(off, _SHOWN)}: {why}")]


def slip_remarks(manifest: Manifest) -> list[str]:
    """Returns remarks on probable slips: typos in names, labels that are missing."""
    features = [facts.feature for facts in manifest.features]
    out = padding_remarks(features)
    out += turned_box_remarks(
        features,
        manifest.image_notes.get("orientation", 0),
        applied=manifest.settings.get("exif") == "apply",
    )
    for facts in manifest.features:
        if facts.feature.is_label:
            lacking = manifest.records - facts.statistics.present
            out += label_remarks(facts.feature.name, lacking, manifest.records)
        if facts.feature.kind is not Kind.LABEL:
            continue
        name = facts.feature.name
        counts: collections.Counter[str] | None = collections.Counter()
        for split in manifest.splits:
            if counts is not None and name in split.classes:
                counts.update(split.classes[name])
            else:
                counts = None  # too many classes to be counted
        out += vocabulary_warnings(name, facts.classes, counts)
    return out
