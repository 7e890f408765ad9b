"""Limits of a run: how many items may be rejected, and how many records there must be.

A run over a limit commits nothing. Its message says the limit, the most frequent
reasons, and the ways out.
"""

import re
import shlex
from collections.abc import Mapping
from typing import Any

from transforms.core.manifest import Account
from transforms.core.reasons import Reason, Skipped
from transforms.errors import MAX_MESSAGE_BYTES, bounded, shortened

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
    """Returns the account in the error of a limit; `rejects` is where they are."""
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
