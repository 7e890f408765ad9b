"""The split rule of a job and what it looks up: id tables, locks, the class feature."""

import dataclasses
import decimal
import fractions
import hashlib
import os
from collections.abc import Mapping

from beam_pipeline.planning.inputs import PlannedSource
from beam_pipeline.settings.spec import Spec
from beam_pipeline.terminal.words import share_text
from transforms import files
from transforms.core.placing.placement import SplitRule, SplitSource
from transforms.core.placing.splitting import (
    CONTENT,
    PLACE,
    Assignments,
    check_lock,
)
from transforms.core.schema import Kind, Schema
from transforms.errors import SpecError, bounded
from transforms.storage.paths import absolute
from transforms.work.split_tables import (
    NEW_LOCK,
    SplitIds,
    open_assignments,
    read_split_ids,
    write_table,
)
from transforms.work.store import Store

# How much a share may be off by rounding.
_ROUNDED = fractions.Fraction(1, 2000)
_CLASS_KINDS = (Kind.LABEL, Kind.TEXT, Kind.INT64, Kind.BOOL)


@dataclasses.dataclass(frozen=True)
class SplitPlan:
    """How rows fall into splits, and what has to be looked up for it.

    Attributes:
      rule: the final one.
      identity: what units are hashes of, in words.
      keyed: whether every row has a key.
      ids: the table of ids.
      lock: what earlier runs decided, as it stood when planning.
      lock_path: where the next lock goes; empty for nowhere.
      lock_digest: of the lock that was read: it decides bytes.
    """

    rule: SplitRule
    identity: str
    keyed: bool
    ids: SplitIds | None = None
    lock: Assignments | None = None
    lock_path: str = ""
    lock_digest: str = ""

    @property
    def with_fingerprints(self) -> bool:
        """Whether it must be known in the end where each unit went."""
        by_source = self.rule.source in (SplitSource.COLUMN, SplitSource.STRATIFIED)
        return bool(self.ids or self.lock_path or (self.keyed and by_source))

    def table_in(self, store: Store) -> str:
        """Returns where the table of ids is in a work folder; empty for none."""
        return os.path.join(store.folder, "split_ids.arrow") if self.ids else ""

    def lock_in(self, store: Store) -> str:
        """Returns where the earlier lock is in a work folder; empty for none."""
        if self.lock is None:
            return ""
        return os.path.join(store.folder, "earlier_lock.arrow")

    def new_lock_in(self, store: Store) -> str:
        """Returns where the stage `leak_check` writes the next lock."""
        return os.path.join(store.folder, NEW_LOCK)

    def store_tables(self, store: Store) -> None:
        """Puts what workers look up into the work folder, which must exist."""
        if self.ids is not None:
            write_table(
                self.ids.to_table(), self.table_in(store), attempts=store.attempts
            )
        if self.lock is not None:
            write_table(
                self.lock.to_table(), self.lock_in(store), attempts=store.attempts
            )


def plan_splits(spec: Spec, schema: Schema, rule: SplitRule) -> SplitPlan:
    """Returns the splits of a job.

    Args:
      spec: of the job.
      schema: of its rows.
      rule: what the format and the spec say without tables and classes.

    Raises:
      UsageError: a table or a lock cannot be used; its type says what is wrong.
    """
    identity = identity_of(spec, rule)
    ids = None
    if spec.split_ids:
        ids = read_split_ids(spec.split_ids, identity=identity)
        rule = _by_table(spec, ids, rule)
    elif spec.stratify_column:
        rule = dataclasses.replace(
            rule,
            source=SplitSource.STRATIFIED,
            stratify_by=_class_feature(spec.stratify_column, schema),
        )
    lock, digest = _lock(spec, rule, identity)
    return SplitPlan(
        rule=rule,
        identity=identity,
        keyed=bool(spec.key_column),
        ids=ids,
        lock=lock,
        lock_path=absolute(spec.split_lock) if spec.split_lock else "",
        lock_digest=digest,
    )


def share_notes(spec: Spec) -> list[str]:
    """Returns what comes of shares whose sum is not 1, which may be a slip."""
    if not spec.splits:
        return []
    shares = [fractions.Fraction(share) for share in spec.splits.values()]
    total = sum(shares, fractions.Fraction(0))
    # Thirds may be written as 0.333.
    if abs(total - 1) <= _ROUNDED * len(shares):
        return []
    # A float may be too small for what shares add up to.
    shown = decimal.Decimal(total.numerator) / decimal.Decimal(total.denominator)
    parts = [part / total for part in shares]
    becomes = [
        f"{name} {share_text(part.numerator, part.denominator)}"
        for name, part in zip(spec.splits, parts, strict=True)
    ]
    return [
        bounded(
            f"the shares of the splits add up to {shown:.6g}, not to 1: what "
            f"results is {', '.join(becomes)}"
        )
    ]


def identity_of(spec: Spec, rule: SplitRule) -> str:
    """Returns what the units of a job are hashes of; see `Assignments`."""
    own = CONTENT if rule.by_content else PLACE
    if spec.key_column:
        own = f"key column {spec.key_column!r}"
    return f"group column {spec.group_column!r}" if spec.group_column else own


def _by_table(spec: Spec, ids: SplitIds, rule: SplitRule) -> SplitRule:
    # The splits that shares name come first: the rule counts them from there.
    shares = spec.splits or {}
    names = (*shares, *(name for name in ids.sizes if name not in shares))
    return SplitRule(SplitSource.TABLE, names, tuple(shares.values()), seed=rule.seed)


def with_splits(planned: PlannedSource, splits: SplitPlan) -> PlannedSource:
    """Returns what was planned, with the final rule and sizes by its splits."""
    planned = dataclasses.replace(planned, rule=splits.rule)
    if splits.ids is None:
        return planned
    sizes = splits.ids.sizes
    total = sum(sizes.values()) or 1

    def divided(amounts: Mapping[str, int]) -> dict[str, int]:
        whole = sum(amounts.values())
        return {
            name: round(whole * sizes.get(name, 0) / total)
            for name in splits.rule.names
        }

    return dataclasses.replace(
        planned,
        records=divided(planned.records),
        record_bytes=divided(planned.record_bytes),
        input_bytes=dict.fromkeys(
            splits.rule.names, max(planned.input_bytes.values(), default=1)
        ),
    )


def _class_feature(column: str, schema: Schema) -> str:
    for feature in schema.features:
        if column in (feature.name, feature.source_column) and not feature.derived:
            if feature.kind in _CLASS_KINDS and not feature.shape:
                return feature.name
            raise SpecError(
                f"stratify_column must name a label, text, int64 or bool of one value "
                f"a row; {column!r} is {feature.kind}"
                f"{' with many' if feature.shape else ''}. Choose another column."
            )
    raise SpecError(
        f"stratify_column must name a feature; found {column!r} among "
        f"{', '.join(schema.names)}."
    )


def _lock(spec: Spec, rule: SplitRule, identity: str) -> tuple[Assignments | None, str]:
    if not spec.split_lock:
        return None, ""
    if not files.exists(spec.split_lock):
        return None, ""
    path = spec.split_lock
    lock = open_assignments(path)
    check_lock(lock, rule, identity=identity, path=path)
    return lock, hashlib.sha256(files.read_bytes(path)).hexdigest()
