"""`rejects DIR`: what a run rejected, by reason with counts and examples, or listed."""

import collections
import dataclasses
import itertools
import os
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from beam_pipeline.terminal import (
    count_text,
    json_text,
    print_line,
    print_table,
    print_text,
    share_text,
)
from transforms.core.manifest import Manifest
from transforms.publishing import target
from transforms.publishing.earlier_rejects import (
    EarlierRejects,
    RejectGroup,
    find_rejects,
    rejection_text,
)
from transforms.storage.files import storage
from transforms.work.rejects import is_items_name


def show(path: str, *, reason: str | None, limit: int, as_json: bool) -> int:
    """Prints the rejects of a dataset or of a failed run; returns 0.

    Args:
      path: the output of the run, or the file of rejects itself.
      reason: list those of this reason; None to count them all by reason.
      limit: list this many; 0 for all.
      as_json: one object with the counts, or one a line for each that is listed.

    Raises:
      UsageError: there is nothing of the kind.
      DamageError: the rejects are damaged.
    """
    rejects = find_rejects(path)
    if reason is not None:
        _print_rejects(rejects, reason, limit, as_json)
    elif as_json:
        print_text(json_text(_groups_as_json(path, rejects.groups(), rejects.manifest)))
    else:
        _print_groups(path, rejects)
    if not as_json and rejects.manifest is not None:
        for note in _notes(path, rejects.manifest, listed=reason is not None):
            print_line(f"note: {note}")
    return 0


def _print_groups(path: str, rejects: EarlierRejects) -> None:
    """Prints how many items were rejected of those read, and each reason."""
    groups = rejects.groups()
    wholes: collections.Counter[str] = collections.Counter()
    for group in groups:
        wholes[group.part] += group.count
    items = wholes.pop("", 0)
    text = f"  {count_text(items, 'item')} rejected"
    if rejects.manifest is None:
        text += " by a run that committed nothing"
    else:
        # What is skipped are files and rows alike: a share of both says nothing.
        account = rejects.manifest.account
        skipped = sum(account.skipped.values())
        kept = account.read - skipped
        text += f" of {account.read:,} read"
        text += f", {skipped:,} of them skipped" if skipped else ""
        others = " of the others" if skipped else ""
        text += f" ({share_text(items, kept)}{others})" if kept else ""
    for part, count in wholes.items():
        text += f"; {count:,} {part} rejected alone"
    print_line(path, "bold", text)
    if not groups:
        return
    wholes[""] = items
    rows = []
    for group in groups:
        reason = f"{group.reason} ({group.part})" if group.part else group.reason
        share = share_text(group.count, wholes[group.part])
        rows.append((reason, f"{group.count:,}", share, group.example_text))
    columns = ("reason", "count", "share", "example")
    print_table(columns, rows, right=("count", "share"))
    print_line()


def _groups_as_json(
    path: str, groups: Sequence[RejectGroup], manifest: Manifest | None
) -> dict[str, Any]:
    """Returns the reasons as JSON; `read` is null where no dataset was committed."""
    return {
        "rejects": path,
        "read": None if manifest is None else manifest.account.read,
        "rejected": sum(group.count for group in groups if not group.part),
        "reasons": [*map(dataclasses.asdict, groups)],
    }


def _notes(path: str, manifest: Manifest, *, listed: bool) -> Iterator[str]:
    """Yields where items were kept, and that a run failed after the dataset."""
    kept = [facts.file for facts in manifest.files if is_items_name(facts.file)]
    if kept and not listed:
        yield f"the items are kept in {os.path.join(path, kept[0])}"
    left = target.rejects_path(path)
    if storage(left).is_file():
        command = f"beam-tfrecord rejects {shlex.quote(left)}"
        yield f"these are the dataset's; a later run has failed, for its own: {command}"


def _print_rejects(
    rejects: EarlierRejects, reason: str, limit: int, as_json: bool
) -> None:
    """Prints the rejects of one reason, or up to `limit` of them; 0: all."""
    chosen = (item for item in rejects.rejections() if item["reason"] == reason)
    shown = 0
    for item in itertools.islice(chosen, limit or None):
        shown += 1
        if as_json:
            print_text(json_text(item))
        else:
            print_line(rejection_text(item))
    if as_json:
        return
    if not shown:
        print_line(f"nothing was rejected as {reason}")
    elif more := sum(1 for _ in chosen):
        print_line(f"... {more:,} more; --limit 0 lists all")
