"""`rejects DIR`: what a run rejected, by reason with counts and examples, or listed."""

import collections
import itertools
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from beam_pipeline.terminal.console import (
    new_table,
    print_head,
    print_line,
    print_table,
)
from beam_pipeline.terminal.printing import json_text, print_text
from beam_pipeline.terminal.words import count_text, share_text
from transforms.core.manifest import Manifest
from transforms.core.reasons import Reason, Skipped
from transforms.errors import UsageError, closest
from transforms.publishing import target
from transforms.publishing.earlier_rejects import (
    EarlierRejects,
    RejectGroup,
    find_rejects,
    rejection_text,
)
from transforms.storage.files import storage
from transforms.work.reject_files import is_items_name

_Rejection = Mapping[str, Any]


def show(path: str, *, reason: str | None, limit: int, as_json: bool) -> int:
    """Prints the rejects of a dataset or of a failed run; returns 0.

    Args:
      path: the output of the run, or the file of rejects itself.
      reason: list those of this reason; None to count them all by reason.
      limit: list this many; 0 for all.
      as_json: one object with the counts, or one a line for each that is listed.

    Raises:
      UsageError: there is nothing of the kind, or no such reason.
      DamageError: the rejects are damaged.
    """
    if reason is not None:
        _check_reason(reason)
    rejects = find_rejects(path)
    if reason is None:
        _show_groups(path, rejects, as_json)
    else:
        _show_list(path, rejects, reason, limit, as_json)
    return 0


def _check_reason(reason: str) -> None:
    names = [str(name) for name in Reason]
    if reason not in names:
        allowed, hint = ", ".join(names), "Without --reason all are shown."
        if reason in [*Skipped]:
            hint = "Items that were skipped are not listed; 'inspect' counts them."
        elif near := closest(reason, names):
            allowed, hint = "the reasons of rejects", f"Did you mean {near!r}?"
        raise UsageError(f"--reason must be one of {allowed}; found {reason!r}. {hint}")


def _show_groups(path: str, rejects: EarlierRejects, as_json: bool) -> None:
    groups = rejects.groups()
    if as_json:
        print_text(json_text(_as_json(path, groups, rejects.manifest)))
        return
    wholes: collections.Counter[str] = collections.Counter()
    for group in groups:
        wholes[group.part] += group.count
    _print_head(path, wholes, rejects)
    if groups:
        table = new_table("reason", "count", "share", "example", right=_NUMBERS)
        for group in groups:
            table.add_row(
                f"{group.reason} ({group.part})" if group.part else group.reason,
                f"{group.count:,}",
                share_text(group.count, wholes[group.part]),
                group.example_text,
            )
        print_table(table)
    _print_notes(path, rejects)


_NUMBERS = ("count", "share", "row", "line")


def _as_json(
    path: str, groups: Sequence[RejectGroup], manifest: Manifest | None
) -> dict[str, Any]:
    return {
        "rejects": path,
        "read": None if manifest is None else manifest.account.read,
        "rejected": sum(group.count for group in groups if not group.part),
        "reasons": [
            {
                "reason": group.reason,
                **({"part": group.part} if group.part else {}),
                "count": group.count,
                "example": group.example,
            }
            for group in groups
        ],
    }


def _print_head(path: str, wholes: Mapping[str, int], rejects: EarlierRejects) -> None:
    items = wholes.get("", 0)
    text = f"  {count_text(items, 'item')} rejected"
    if rejects.manifest is not None:
        # What is skipped are files and rows alike: a share of both says nothing.
        skipped = sum(rejects.manifest.account.skipped.values())
        read = rejects.manifest.account.read - skipped
        text += f" of {read:,} read"
        if read:
            text += f" ({share_text(items, read)})"
        if skipped:
            text += f"; {skipped:,} others skipped"
    else:
        text += " by a run that committed nothing"
    for part, count in wholes.items():
        if part:
            text += f"; {count:,} {part} rejected alone"
    print_head(path, text)


def _print_notes(path: str, rejects: EarlierRejects) -> None:
    notes = []
    if rejects.manifest is not None:
        kept = [f.file for f in rejects.manifest.files if is_items_name(f.file)]
        if kept:
            notes.append(f"the items are kept in {os.path.join(path, kept[0])}")
        notes += _left_since(path, rejects)
    if notes:
        print_line()
    for note in notes:
        print_line(f"note: {note}")


def _left_since(path: str, rejects: EarlierRejects) -> list[str]:
    """Returns a note on the rejects of a run that failed after the dataset."""
    left = target.rejects_path(path)
    if rejects.manifest is None or not storage(left).is_file():
        return []
    command = f"beam-tfrecord rejects {shlex.quote(left)}"
    return [f"these are the dataset's; a later run has failed, for its own: {command}"]


def _show_list(
    path: str, rejects: EarlierRejects, reason: str, limit: int, as_json: bool
) -> None:
    chosen = (item for item in rejects.rejections() if item["reason"] == reason)
    shown: Iterator[_Rejection] = itertools.islice(chosen, limit or None)
    if as_json:
        for item in shown:
            print_text(json_text(item))
        return
    first = next(shown, None)
    if first is None:
        print_line(f"nothing was rejected as {reason}")
    else:
        for item in itertools.chain([first], shown):
            print_line(rejection_text(item))
        if more := sum(1 for _ in chosen):
            print_line(f"... {more:,} more; --limit 0 lists all")
    for note in _left_since(path, rejects):
        print_line(f"note: {note}")
