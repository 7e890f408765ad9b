"""What the facts of a job add up to: where every item went, and whether that passes."""

import collections
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from transforms.core.catalogue import CataloguePart
from transforms.core.manifest import (
    Account,
)
from transforms.core.model import (
    Fact,
    PlaceFacts,
    ReadFacts,
    RejectLog,
    ShardFile,
    added_rows,
    task_of,
)
from transforms.core.placing.leakage import SplitFindings
from transforms.core.placing.sharding import ShardCounts
from transforms.core.reasons import Reason, Skipped
from transforms.errors import (
    ConservationError,
    InputError,
    RecordCountError,
    RejectLimitError,
)
from transforms.publishing import target
from transforms.stages.job_plan import Publication
from transforms.stages.limits import (
    account_facts,
    count_message,
    limit_message,
    tolerated,
)
from transforms.storage.files import storage
from transforms.work.rejects import leave_rejects
from transforms.work.store import Store


class Sums:
    """The facts of a job by their stage.

    Attributes:
      read, placed, shards, logs, catalogue, findings: the facts.
      refused: rejected items, by task.
      parts: parts of items, by where they went and what they are.
    """

    def __init__(self, facts: Iterable[Fact]) -> None:
        by_kind: dict[type, list[Any]] = collections.defaultdict(list)
        for fact in facts:
            by_kind[type(fact)].append(fact)
        self.read: list[ReadFacts] = by_kind[ReadFacts]
        self.placed: list[PlaceFacts] = by_kind[PlaceFacts]
        self.shards: list[ShardFile] = by_kind[ShardFile]
        self.logs: list[RejectLog] = by_kind[RejectLog]
        self.catalogue: list[CataloguePart] = by_kind[CataloguePart]
        self.findings: list[SplitFindings] = by_kind[SplitFindings]
        self.refused = collections.Counter[str]()
        for log in self.logs:
            self.refused[log.task] += log.items
        self.parts = {
            "read": summed(fact.parts for fact in self.read),
            "written": summed(shard.parts for shard in self.shards),
            "rejected": summed(log.parts for log in self.logs),
            "gone": summed(
                [
                    *(fact.parts_gone for fact in self.read),
                    *(shard.parts_gone for shard in self.shards),
                ]
            ),
        }


def account_of(
    sums: Sums, shard_counts: ShardCounts, publication: Publication
) -> Account:
    """Returns where every item went, after checking the sums of every stage."""
    stages: dict[str, Sequence[ReadFacts | PlaceFacts]]
    stages = {"read": sums.read, "place": sums.placed}
    for stage, facts in stages.items():
        pieces = collections.Counter((fact.origin, fact.start) for fact in facts)
        for piece, count in pieces.most_common(1):
            if count > 1:
                raise ConservationError(
                    f"Every block must pass '{stage}' once; {piece} did so {count} "
                    f"times. A step between reading and writing must give one batch "
                    f"at most for each."
                )
    rows_read = sum(fact.rows for fact in sums.read)
    rows_placed = sum(sum(fact.rows.values()) for fact in sums.placed)
    refused = sum(n for task, n in sums.refused.items() if task.startswith("place\0"))
    skipped = summed([publication.skipped, *(fact.skipped for fact in sums.read)])
    names = sorted({name for counts in sums.parts.values() for name in counts})
    account = Account(
        read=rows_read + sum(publication.skipped.values()),
        written=sum(shard.records for shard in sums.shards),
        rejected=summed(
            {str(reason): n for reason, n in log.counts.items()} for log in sums.logs
        ),
        skipped=skipped,
        parts={
            name: {where: counts.get(name, 0) for where, counts in sums.parts.items()}
            for name in names
        },
        **_change_by_steps(sums, publication),
    )
    expected = publication.expected_rows
    shards, files_wanted = sums.shards, len(shard_counts.rows)
    if (
        account.balance
        or (not publication.steps and any(account.part_balances.values()))
        or rows_placed != sum(shard_counts.rows.values())
        or expected not in (None, rows_read)
        or publication.expected_placed not in (None, rows_placed + refused)
        or len(shards) != files_wanted
        or len({shard.name for shard in shards}) != files_wanted
    ):
        raise ConservationError(
            f"Nothing may be lost or doubled, but the sums differ: expected "
            f"{'any number of' if expected is None else f'{expected:,}'} rows, read "
            f"{rows_read:,}, placed {rows_placed:,}, written {account.written:,}, "
            f"rejected {sum(account.rejected.values()):,}, skipped "
            f"{sum(skipped.values()):,}; {len(shards):,} shards of {files_wanted:,}. "
            f"Nothing was committed."
        )
    return account


def _change_by_steps(sums: Sums, publication: Publication) -> dict[str, int]:
    """Returns what users' steps have dropped or added, under the name in the account.

    Raises:
      ConservationError: there are more rows of a piece than were read, and nothing
        that tells them apart.
    """
    if not publication.steps:
        return {}
    before = {
        (fact.origin, fact.start): fact.rows
        - sum(fact.skipped.values())
        - sums.refused[task_of("read", fact.origin, fact.start)]
        for fact in sums.read
    }
    behind = 0
    for fact in sums.placed:
        refused = sums.refused[task_of("place", fact.origin, fact.start)]
        rows = sum(fact.rows.values()) + refused
        had = before.get((fact.origin, fact.start), 0)
        if publication.steps == "drop" and rows > had:
            raise ConservationError(added_rows(fact.origin, had, rows))
        behind += rows
    change = behind - sum(before.values())
    if change > 0:
        return {"added_by_steps": change}
    return {"dropped_by_steps": -change}


def summed(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Returns the sum for each name over all mappings, in the order of names."""
    out: collections.Counter[str] = collections.Counter()
    for counts in parts:
        out.update(counts)
    return dict(sorted(out.items()))


def check_account(
    account: Account,
    logs: Sequence[RejectLog],
    publication: Publication,
    store: Store,
) -> None:
    """Raises an error that says why too many items were rejected, or none is left."""
    rate = publication.max_reject_rate
    is_empty = not account.written and publication.min_records != 0
    passes = tolerated(account, rate)
    wrong_count = count_message(
        account.written, publication.min_records, publication.max_records
    )
    strange = account.rejected.get(Reason.UNKNOWN_LABEL, 0)
    is_strict = publication.like is not None and publication.like.strict
    has_drifted = is_strict and strange > 0
    if passes and not (is_empty or wrong_count or has_drifted):
        return
    path = ""
    if logs:
        path = target.rejects_path(publication.directory)
        leave_rejects(logs, path, attempts=store.attempts)
    # An error that a worker raises arrives as text only, so the account goes to a file.
    data = json.dumps(account_facts(account, path)).encode()
    storage(store.account).write_file(data, attempts=store.attempts)
    if has_drifted:
        example = _examples(logs).get(Reason.UNKNOWN_LABEL, "")
        raise InputError(
            f"The source must have the classes of the dataset that it is like; "
            f"{strange:,} rows have others, as {example}. 'beam-tfrecord rejects' of "
            f"{path!r} lists them. Correct the source, or add --allow new-classes."
        )
    if (
        is_empty
        and not publication.min_records
        and (not account.rejected or (passes and Skipped.FILTERED in account.skipped))
    ):
        gone = {**account.skipped, "by your own steps": account.dropped_by_steps}
        shown = ", ".join(f"{why} {n:,}" for why, n in gone.items() if n)
        raise InputError(
            f"There must be at least one record; the source holds {account.read:,} "
            f"items{f', and all were skipped ({shown})' * bool(shown)}. Use "
            f"--min-records 0 to write an empty dataset."
        )
    if passes and wrong_count:
        raise RecordCountError(wrong_count)
    # The target itself may hold a dataset of an earlier run, with its own rejects.
    raise RejectLimitError(
        limit_message(
            account,
            _examples(logs),
            rate=rate,
            listed=path,
            kinds={
                feature.source_column: feature.kind.value
                for feature in publication.layout.schema.features
            },
        )
    )


def _examples(logs: Sequence[RejectLog]) -> dict[str, str]:
    """Returns the first example of each reason and part, in order of the sources."""
    out: dict[str, str] = {}
    for log in sorted(logs, key=lambda log: log.first):
        for of, text in log.examples.items():
            out.setdefault(str(of), text)
    return out
