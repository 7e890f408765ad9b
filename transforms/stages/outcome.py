"""The outcome of a run in words: likely mistakes, and the limit of rejects.

Remarks are sentences about what is no error, but likely a mistake.
"""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from transforms.core.manifest import Account, FeatureFacts, Manifest
from transforms.core.model import ReadFacts, Rounding, ShardFile, ShardKey
from transforms.core.reasons import Reason, Skipped
from transforms.core.schema import Feature, Kind
from transforms.errors import (
    MAX_MESSAGE_BYTES,
    SHOWN_CHARS,
    bounded,
    first_few,
    shortened,
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
    records: Mapping[str, int], shares: Mapping[str, Fraction]
) -> list[str]:
    """Returns a remark on splits that are empty or far off their shares, and why.

    Args:
      records: of each split.
      shares: of the splits that shares decide; they sum to one.
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
        "to the same, so a few of them, or large ones, meet the shares only roughly; "
        "with a --key-column of a value for each row they meet them"
    )
    return [bounded(f"{first_few(off, _SHOWN)}: {why}")]


# The default share of tolerated rejects. For a small set it is less than one item, so
# one reject is always tolerated among this many items.
_USUAL_RATE = 0.01
_FORGIVEN_OF = 10
# Number of reasons in a message, and bytes of an example of each: at most, at least.
_SHOWN_REASONS = 3
_SHOWN_BYTES = 280
_LEAST_BYTES = 40
# Whole items, beside what they consist of ("boxes").
_ITEMS = "items"
# A column as the words of rejects name it.
_COLUMN = re.compile(r"\bcolumn '((?:[^'\\]|\\.)+)'")
# Reasons that say that a value is not of the kind of its feature.
_OF_KINDS = (
    *(Reason.NOT_AN_INTEGER, Reason.NOT_A_NUMBER, Reason.NOT_A_BOOL),
    *(Reason.NOT_A_TIMESTAMP, Reason.NOT_FLOAT32, Reason.OUT_OF_RANGE),
    *(Reason.WRONG_TYPE, Reason.WRONG_SHAPE),
)


def tolerated(account: Account, rate: float | None) -> bool:
    """Whether no more items were rejected than a job allows, and no more parts of them.

    Args:
      account: of the job.
      rate: limit of rejected / (written + rejected + filtered + dropped by steps), and
        for parts, each kind by itself, of rejected / read; None for 0.01, and for one
        reject among ten or more.
    """
    return all(_passes(*share, rate) for share in _shares(account).values())


def count_message(written: int, least: int | None, most: int | None) -> str:
    """Returns what is wrong with a number of records; empty where it is allowed.

    >>> count_message(9, 10, None).partition(";")[0]
    'The dataset must have at least 10 records (--min-records)'

    Args:
      written: how many records there are.
      least, most: how many there may be; None for no limit.
    """
    if least is not None and written < least:
        limit = f"at least {least:,} records (--min-records)"
    elif most is not None and written > most:
        limit = f"at most {most:,} records (--max-records)"
    else:
        return ""
    return (
        f"The dataset must have {limit}; it has {written:,}. Correct the source, or "
        f"change the limit."
    )


def limit_message(
    account: Account,
    examples: Mapping[str, str],
    *,
    rate: float | None,
    listed: str,
    kinds: Mapping[str, str] | None = None,
) -> str:
    """Returns the message: limit, most frequent reasons, and ways out, in 1 KiB.

    Args:
      account: of the job.
      examples: reason -> a reject in words; and for parts, kind -> reason and reject.
        Any may be missing.
      rate: see `tolerated`.
      listed: what `beam-tfrecord rejects` lists them by.
      kinds: of the features, by their columns.
    """
    shares = _shares(account)
    over = {what: share for what, share in shares.items() if not _passes(*share, rate)}
    if not over:
        rejected, _ = shares[_ITEMS]
        head = f"At least one item must become a record; all {rejected:,} were rejected"
        if dropped := account.dropped_by_steps:
            head += f", and {dropped:,} dropped by your own steps"
    else:
        limit = _USUAL_RATE if rate is None else rate
        (what, (rejected, considered)), *others = over.items()
        head = (
            f"At most {limit:.3%} of the {what} may be rejected; {rejected:,} of "
            f"{considered:,} were"
        )
        for part, (rejected, considered) in others:
            head += f", and {rejected:,} of {considered:,} {part}"
    if account.written:
        # A rate that is given forgives nothing, so it must be enough for all of them.
        rates = [_rate_that_passes(*share) for share in shares.values() if share[0]]
        way = f"give --max-reject-rate {max(rates, key=float)}"
    elif over:
        way = "what the job says of it"
    else:
        way = "write an empty dataset with --min-records 0"
    tail = (
        f"Nothing was committed. To list them: beam-tfrecord rejects "
        f"{shlex.quote(listed)}. Correct the source, or {way}."
    )
    if not account.written and len(account.rejected) == 1:
        (reason,) = account.rejected
        question = _question(reason, examples.get(reason, ""), kinds or {})
        tail = f"Every item was rejected for one reason: {question}? {tail}"
    room = MAX_MESSAGE_BYTES - len(f"{head}, as . {tail}".encode())
    if not over or _ITEMS in over:
        head += f": {_reasons(account.rejected, examples, room)}"
    elif (text := examples.get(what, "").rstrip(".")) and room >= _LEAST_BYTES:
        head += f", as {bounded(text, room)}"
    return f"{head}. {tail}"


def _question(reason: str, example: str, kinds: Mapping[str, str]) -> str:
    """Returns what a user should look at where all items have one fault."""
    named = _COLUMN.search(example)
    if named is None:
        return "is the source still what the job was made for"
    column = shortened(named[1])
    if reason in _OF_KINDS and named[1] in kinds:
        return f"is '{column}' no longer {kinds[named[1]]}"
    return f"is '{column}' still what the job says of it"


def account_facts(account: Account, rejects: str) -> dict[str, Any]:
    """Returns `BeamTFRecordError.account`; `rejects` is where they are, or empty."""
    return {
        "read": account.read,
        "rejected": dict(account.rejected),
        "skipped": dict(account.skipped),
        "parts": {part: dict(counts) for part, counts in account.parts.items()},
        "rejects": rejects or None,
    }


def _shares(account: Account) -> dict[str, tuple[int, int]]:
    """Returns how many were rejected, and of how many: of items, and of their parts."""
    rejected = sum(account.rejected.values())
    # Rows that `where` leaves out had to fit their types as well.
    left_out = account.skipped.get(Skipped.FILTERED, 0) + account.dropped_by_steps
    considered = account.written + rejected + left_out
    shares = {_ITEMS: (rejected, considered)}
    for part, counts in account.parts.items():
        shares[part] = counts.get("rejected", 0), counts.get("read", 0)
    return shares


def _passes(rejected: int, considered: int, rate: float | None) -> bool:
    """Whether a rate tolerates these rejects; None is the usual, and forgives one."""
    if rate is None:
        if rejected == 1 and considered >= _FORGIVEN_OF:
            return True
        rate = _USUAL_RATE
    return rejected <= rate * considered


def _reasons(counts: Mapping[str, int], examples: Mapping[str, str], room: int) -> str:
    """Returns the most frequent reasons, each with its example, in `room` bytes."""
    by_count = sorted(counts.items(), key=lambda item: -item[1])
    shown = by_count[:_SHOWN_REASONS]
    more = sum(count for _, count in by_count[_SHOWN_REASONS:])
    parts = [f"{reason}: {count:,}" for reason, count in shown]
    others = f"; {more:,} for other reasons" if more else ""
    left = (room - len("; ".join(parts)) - len(others)) // len(parts) - len(", as ")
    if left >= _LEAST_BYTES:
        size = min(left, _SHOWN_BYTES)
        for index, (reason, _) in enumerate(shown):
            if text := examples.get(reason, "").rstrip("."):
                parts[index] += f", as {bounded(text, size)}"
    return "; ".join(parts) + others


def _rate_that_passes(rejected: int, considered: int) -> str:
    """Returns the least share, of two digits or more, that tolerates these rejects."""
    digits = 2
    while 10**digits * rejected < 10 * considered:
        digits += 1
    steps = -(-(10**digits) * rejected // considered)
    while not _passes(rejected, considered, steps / 10**digits):
        steps += 1
    return f"{min(steps / 10**digits, 1):.{digits}f}".rstrip("0").rstrip(".")
