"""The number of rejects that a job tolerates, and the error above it."""

import shlex
from collections.abc import Mapping
from typing import Any

from transforms.core.manifest import Account
from transforms.errors import MAX_MESSAGE_BYTES, bounded

__all__ = ["account_facts", "limit_message", "tolerated"]

# The share of rejects that is tolerated where none is given. A hundredth of a small
# set is less than one item: this many items may always have one reject.
_USUAL_RATE = 0.01
_FORGIVEN_OF = 10
# How many reasons a message shows, and how many bytes of an example of each.
_SHOWN_REASONS = 3
_SHOWN_BYTES = 180
_LEAST_BYTES = 40


def tolerated(account: Account, rate: float | None) -> bool:
    """Whether no more items were rejected than a job allows.

    Args:
      account: of the job.
      rate: rejected / (written + rejected) that is allowed; None for 0.01, and for one
        reject of ten items or more.
    """
    rejected, considered = _counts(account)
    return _passes(rejected, considered, rate)


def limit_message(
    account: Account,
    examples: Mapping[str, str],
    *,
    rate: float | None,
    directory: str,
) -> str:
    """Returns the limit, the most frequent reasons, and the ways out, in 1 KiB.

    Args:
      account: of the job.
      examples: by reason a reject in words; may lack some.
      rate: see `tolerated`.
      directory: the output.
    """
    rejected, considered = _counts(account)
    if _passes(rejected, considered, rate):
        head = f"At least one item must become a record; all {rejected:,} were rejected"
    else:
        limit = _USUAL_RATE if rate is None else rate
        head = (
            f"At most {limit:.3%} of the items may be rejected; {rejected:,} of "
            f"{considered:,} were"
        )
    if account.written:
        way = f"give --max-reject-rate {_rate_that_passes(rejected, considered)}"
    else:
        way = "write an empty dataset with --allow-empty and --max-reject-rate 1"
    tail = (
        f"Nothing was committed. To list them: beam-tfrecord rejects "
        f"{shlex.quote(directory)}. Correct the source, or {way}."
    )
    room = MAX_MESSAGE_BYTES - len(f"{head}: . {tail}".encode())
    return f"{head}: {_reasons(account.rejected, examples, room)}. {tail}"


def account_facts(account: Account, rejects: str) -> dict[str, Any]:
    """Returns `BeamTFRecordError.account`; `rejects` is where they are, or empty."""
    return {
        "read": account.read,
        "rejected": dict(account.rejected),
        "skipped": dict(account.skipped),
        "rejects": rejects or None,
    }


def _counts(account: Account) -> tuple[int, int]:
    rejected = sum(account.rejected.values())
    return rejected, account.written + rejected


def _passes(rejected: int, considered: int, rate: float | None) -> bool:
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
