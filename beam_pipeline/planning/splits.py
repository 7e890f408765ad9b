"""The split rule of a job and what it looks up: id tables, locks, the class feature."""

import collections
import dataclasses
import fractions
import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_pipeline.planning.inputs import PlannedInputs
from beam_pipeline.settings.spec import Spec
from beam_pipeline.terminal import share_text
from transforms.core.arrays import one_array
from transforms.core.placing.content import content_hashes
from transforms.core.placing.splitting import (
    CONTENT,
    PLACE,
    Assignments,
    SplitRule,
    SplitSource,
    is_split_name,
    usual_order,
)
from transforms.core.schema import Kind, Schema
from transforms.errors import SpecError, bounded
from transforms.formats.file_names import split_of_stem
from transforms.formats.input_files import InputFiles
from transforms.formats.source import BY_SHARES, DISCARD, Source
from transforms.formats.table import RowReader, TableSample
from transforms.storage.files import storage
from transforms.storage.paths import absolute, is_remote, work_folder
from transforms.storage.protocol import Standing
from transforms.work.split_tables import (
    SplitIds,
    assignments_table,
    check_lock,
    open_assignments,
    read_split_ids,
    write_table,
)
from transforms.work.store import Store

# Rows that tell whether values hold images, and whether rows differ in their content.
_LOOKED_AT_ROWS = 20_000

# How much a share may be off by rounding.
_ROUNDED = fractions.Fraction(1, 2000)
_CLASS_KINDS = (Kind.LABEL, Kind.TEXT, Kind.INT64, Kind.BOOL)
# Of files whose name says none, where the names of others do.
DEFAULT_SPLIT = "train"
# What tfrecorder's and AutoML's manifests say in their column of splits.
_SPLIT_WORDS: Mapping[str, str] = {
    "TRAIN": "train",
    "TRAINING": "train",
    "VALIDATION": "validation",
    "VALIDATE": "validation",
    "TEST": "test",
    "UNASSIGNED": BY_SHARES,
    "DISCARD": DISCARD,
}
# How AutoML splits the rows that its user has left to it.
_UNASSIGNED_SHARES = {"train": "0.8", "validation": "0.1", "test": "0.1"}


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
        return bool(self.lock_path or (self.keyed and by_source))

    def tables_in(self, store: Store) -> tuple[str, str]:
        """Returns where a work folder has the table of ids, and the earlier lock.

        Either is empty for none.
        """
        table = os.path.join(store.folder, "split_ids.arrow")
        lock = os.path.join(store.folder, "earlier_lock.arrow")
        return table if self.ids else "", lock if self.lock is not None else ""

    def store_tables(self, store: Store) -> None:
        """Puts what workers look up into the work folder, which must exist."""
        ids = None if self.ids is None else self.ids.assignments
        tables = (ids, self.lock)
        for table, path in zip(tables, self.tables_in(store), strict=True):
            if table is not None:
                write_table(assignments_table(table), path, attempts=store.attempts)


def plan_splits(spec: Spec, schema: Schema, rule: SplitRule) -> SplitPlan:
    """Returns the splits of a job.

    Args:
      spec: of the job.
      schema: of its rows.
      rule: what the format and the spec say without tables and classes.

    Raises:
      UsageError: a table or a lock cannot be used; its type says what is wrong.
    """
    identity = identity_of(spec, by_content=rule.by_content)
    ids = None
    if spec.split_ids:
        ids = read_split_ids(spec.split_ids, identity=identity)
        # The splits that shares name come first: the rule counts them from there.
        names = tuple(dict.fromkeys([*(spec.splits or ()), *ids.sizes]))
        shares = tuple((spec.splits or {}).values())
        # Rows that the table lacks go by shares, if any.
        rule = SplitRule(SplitSource.TABLE, names, shares, seed=rule.seed)
    elif spec.stratify_column:
        rule = dataclasses.replace(
            rule,
            source=SplitSource.STRATIFIED,
            stratify_by=_class_feature(spec.stratify_column, schema),
        )
    lock, digest = None, ""
    if spec.split_lock and storage(spec.split_lock).exists():
        # First: a run that finds another one ends, and no lock is lost.
        digest = sha256_of(spec.split_lock)
        lock = open_assignments(spec.split_lock)
        check_lock(lock, rule, identity=identity, path=spec.split_lock)
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
    shares = {k: fractions.Fraction(v) for k, v in (spec.splits or {}).items()}
    total = sum(shares.values(), fractions.Fraction(0))
    # Thirds may be written as 0.333.
    if abs(total - 1) <= _ROUNDED * len(shares) or not shares:
        return []
    parts = {name: share / total for name, share in shares.items()}
    becomes = [
        f"{k} {share_text(v.numerator, v.denominator)}" for k, v in parts.items()
    ]
    note = "the shares of the splits do not add up to 1: what results is"
    return [bounded(f"{note} {', '.join(becomes)}")]


def identity_of(spec: Spec, *, by_content: bool) -> str:
    """Returns what the units of a job are hashes of; see `Assignments`."""
    own = CONTENT if by_content else PLACE
    if spec.key_column:
        own = f"key column {spec.key_column!r}"
    return f"group column {spec.group_column!r}" if spec.group_column else own


def with_splits(planned: PlannedInputs, splits: SplitPlan) -> PlannedInputs:
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

    most = max(planned.input_bytes.values(), default=1)
    return dataclasses.replace(
        planned,
        records=divided(planned.records),
        record_bytes=divided(planned.record_bytes),
        input_bytes=dict.fromkeys(splits.rule.names, most),
    )


def _class_feature(column: str, schema: Schema) -> str:
    """Returns the feature that a stratified split goes by: one class a row."""
    single = [f for f in schema.features if not (f.shape or f.derived)]
    classes = [f for f in single if f.kind in _CLASS_KINDS]
    for feature in classes:
        if column in (feature.name, feature.source_column):
            return feature.name
    raise SpecError(
        f"stratify_column must name a label, text, int64 or bool of one value a row: "
        f"{', '.join(f.name for f in classes) or 'there is none'}; found {column!r}."
    )


def sha256_of(path: str) -> str:
    """Returns the SHA-256 of a lock or a table of ids; empty where there is none."""
    try:
        return hashlib.sha256(storage(path).read_bytes()).hexdigest()
    except OSError:
        return ""


def rule_of(spec: Spec) -> SplitRule:
    """Returns the rule of --splits, or that of one split."""
    if spec.splits:
        return SplitRule(
            SplitSource.SHARES, tuple(spec.splits), tuple(spec.splits.values())
        )
    return SplitRule()


def portions_of(rule: SplitRule) -> dict[str, float]:
    """Returns split -> its share of the rows."""
    if rule.source is not SplitSource.SHARES:
        return dict.fromkeys(rule.names, 1.0)
    bounds = [0.0, *(float(x) / 2**64 for x in rule.thresholds()), 1.0]
    return {name: bounds[i + 1] - bounds[i] for i, name in enumerate(rule.names)}


def split_words(
    spec: Spec, reader: RowReader, columns: Mapping[str, Any]
) -> tuple[str, Mapping[str, str]]:
    """Recognises a manifest of images: upper-case words in a column `split`.

    Returns the column, and what its words mean; nothing for other tables.
    """
    name = spec.split_column or "split"
    column = None if reader.split_column else columns.get(name)
    if column is None or not pa.types.is_string(column.type):
        return "", {}
    texts = set(pc.unique(column).to_pylist()) - {None, ""}
    if not texts or not texts <= set(_SPLIT_WORDS):
        return "", {}
    if spec.splits and "UNASSIGNED" not in texts:
        # Shares over a manifest that leaves them nothing: all of it is split again.
        by_shares = dict.fromkeys(["", *_SPLIT_WORDS], BY_SHARES) | {"DISCARD": DISCARD}
        return name, by_shares
    return name, _SPLIT_WORDS


SplitFiles = dict[str, tuple[str, int]]
"""Split -> the origin of its first file, and the bytes of all."""


def splits_by_file(
    reader: RowReader, listed: InputFiles, *, stems: bool
) -> tuple[SplitFiles, bool]:
    """Returns the splits that paths of files say, and whether names alone do.

    Args:
      reader: knows what paths of its format say.
      listed: the files.
      stems: whether several files may be called train and test, and nothing more.
    """
    by_split = _files_of_splits(listed, reader.split_of)
    if stems and len(listed) > 1 and "" in by_split:
        named = _files_of_splits(
            listed, lambda it: reader.split_of(it) or split_of_stem(it)
        )
        if "" not in named:
            return named, True
    if not any(by_split):
        return {}, False
    return _files_of_splits(
        listed, lambda it: reader.split_of(it) or DEFAULT_SPLIT
    ), False


def _files_of_splits(listed: InputFiles, split_of: Callable[[str], str]) -> SplitFiles:
    """Returns first file and bytes of each split; "" for files that say none."""
    parts: SplitFiles = {}
    for file in listed:
        first, size = parts.get(split := split_of(file.origin), (file.origin, 0))
        parts[split] = first, size + file.size
    return parts


def said_by_files(by_file: SplitFiles) -> str:
    """Returns why there are the splits that there are, for a person."""
    shown = "; ".join(f"{by_file[name][0]}: {name}" for name in usual_order(by_file))
    return f", split by the paths of files ({shown})" if shown else ""


def rule_of_table(
    spec: Spec,
    sample: TableSample,
    splits_by: str,
    words: Mapping[str, str],
    by_file: SplitFiles,
) -> tuple[SplitRule, dict[str, float]]:
    """Returns how rows of a table fall into splits, and each split's share."""
    if splits_by:
        return _column_rule(spec, sample, splits_by, words)
    if by_file:
        total = sum(size for _, size in by_file.values()) or 1
        names = tuple(usual_order(by_file))
        return SplitRule(SplitSource.COLUMN, names), {
            name: by_file[name][1] / total for name in names
        }
    rule = rule_of(spec)
    return rule, portions_of(rule)


def _column_rule(
    spec: Spec, sample: TableSample, splits_by: str, words: Mapping[str, str]
) -> tuple[SplitRule, dict[str, float]]:
    """Returns the rule by a column, and the share of rows that each split may get."""
    counts: collections.Counter[str] = collections.Counter()
    shares = spec.splits or _UNASSIGNED_SHARES
    by_shares = 0
    column = sample.columns[splits_by].cast(pa.string())
    for item in column.value_counts().to_pylist():
        text = item["values"]
        meant = words.get(text, text)
        # Cells that name no split are rejects, row by row, when they are read.
        if meant == BY_SHARES and text in words:
            by_shares += item["counts"]
        elif meant and is_split_name(meant):
            counts[meant] += item["counts"]
    if words and not sample.complete:
        # Rows beyond the sample may leave their split to the shares.
        by_shares = max(by_shares, 1)
    names = tuple(usual_order(counts))
    rule_shares: tuple[str, ...] = ()
    portions: dict[str, float] = dict(counts)
    if by_shares:
        parts = {name: float(fractions.Fraction(text)) for name, text in shares.items()}
        for name, share in parts.items():
            portions[name] = counts[name] + by_shares * share / sum(parts.values())
        # The splits that shares name come first: the rule counts them from there.
        names = tuple(dict.fromkeys((*shares, *names)))
        rule_shares = tuple(shares.values())
    total = sum(portions.values()) or 1
    return SplitRule(SplitSource.COLUMN, names, rule_shares), {
        name: portions.get(name, 0) / total for name in names
    }


def check_part(spec: Spec, *, by_content: bool) -> None:
    """Raises SpecError where rows of a later part could be in another split.

    Args:
      spec: of the job.
      by_content: whether the split of a row goes by what it holds.
    """
    by_key = spec.key_column or spec.group_column
    if spec.part and spec.splits and by_content and not by_key:
        raise SpecError(
            "Rows of parts that are split by shares need a key, so that one key is in "
            "one split in all parts. Name its --key-column."
        )


def check_lock_place(spec: Spec, standing: Standing) -> None:
    """Raises SpecError where the lock would be in what the job reads or makes.

    Args:
      spec: of the job.
      standing: what has the name of the source.
    """
    path = spec.split_lock
    if path is None:
        return
    places = [spec.output, work_folder(spec.output)]
    if standing in ("file", "folder"):
        places.append(spec.source)
    folder = os.path.dirname(absolute(path))
    exists = is_remote(folder) or storage(folder).is_folder()
    if not exists or any(storage(path).is_inside(taken) for taken in places):
        raise SpecError(
            f"split_lock must be in a folder that exists, and outside the source and "
            f"the output; {path!r} is not. Choose another place."
        )


def deciding_columns(source: Source, sample: TableSample) -> Sequence[str]:
    """Returns the columns whose content decides a row's split; empty for its place."""
    names = [*sample.columns]
    content = source.reader.content_columns(names, source.wanted)
    columns = {
        n: one_array(sample.columns[n].slice(0, _LOOKED_AT_ROWS)) for n in content
    }
    first = pa.RecordBatch.from_pydict(columns)
    hashes = content_hashes(first, content)
    if (hashes == content_hashes(first, content, images=True)).all():
        return content
    # An image's bytes are no content: what is left may be little more than a class.
    return content if len(np.unique(hashes)) * 2 > len(hashes) else ()
