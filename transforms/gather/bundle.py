"""The rows of one bundle: batches as they fill, then sorted runs and counts."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from transforms.core.model import Batch, Block
from transforms.core.placing.content import content_hashes, hashed_images
from transforms.core.placing.identity import ORDER, unit_hashes
from transforms.core.placing.placement import SplitRule, SplitSource, is_split_name
from transforms.core.placing.splitting import SplitTables, split_rows
from transforms.errors import EncodingError, bounded
from transforms.gather.row_batches import Row, RowBatch, as_mapping, batches_of
from transforms.gather.row_batches import table_batch as batch_of_table
from transforms.gather.row_runs import Histogram, RowRun, pack_rows, row_sizes
from transforms.gather.tally import Tally, count_values, merge_tallies

__all__ = ["BundleRows", "GatherRule", "GatheredBundle"]

# Rows that become Arrow at a time: few enough to wait as Python objects.
_BATCH_ROWS = 4096
# Bytes of rows that are sorted and stored at a time.
_RUN_BYTES = 32 << 20
# Runs up to this size travel inside their descriptor.
_INLINE_BYTES = 1 << 18


@dataclasses.dataclass(frozen=True, slots=True)
class GatherRule:
    """What rows are known by, and how they fall into splits.

    Attributes:
      split: the rule of splits; by shares, by a column, or one split.
      split_column, key_column, group_column: that say a row's split, its identity, and
        what shares a split with it; empty for none.
      seed: of the order.
      labels: columns of class names, as far as they are declared.
      keys_apart: whether keys are also gathered by themselves, because rows of one key
        may be in different splits.
    """

    split: SplitRule
    split_column: str = ""
    key_column: str = ""
    group_column: str = ""
    seed: int = 0
    labels: tuple[str, ...] = ()
    keys_apart: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class GatheredBundle:
    """What one bundle of rows leaves: one element, so that attempts cannot mix.

    Attributes:
      runs: its sorted runs.
      tally: what its values are.
      histograms: split -> its rows and bytes, by parts of the hashes.
      labels: column -> its distinct class names.
      keys: runs of the keys alone, in one split without a name, where they are wanted.
      attempts: words of the attempts that these are the rows of: one for a bundle.
    """

    runs: tuple[RowRun, ...]
    tally: Tally
    histograms: Mapping[str, Histogram]
    labels: Mapping[str, pa.StringArray]
    keys: tuple[RowRun, ...] = ()
    attempts: frozenset[str] = frozenset()

    def without_runs(self) -> "GatheredBundle":
        """Returns the counts alone, which the plan merges."""
        return dataclasses.replace(self, runs=(), keys=())


class BundleRows:
    """Takes the rows of one bundle; holds some 32 MiB of them."""

    def __init__(
        self, rule: GatherRule, store: Callable[[Sequence[pa.Buffer]], str]
    ) -> None:
        """Starts a bundle.

        Args:
          rule: of the job.
          store: writes pieces end to end into a file of its own; returns its path.
        """
        self._rule = rule
        self._store = store
        self._waiting: list[Row] = []
        self._batches: list[RowBatch] = []
        self._bytes = 0
        self._kind: type[Any] | None = None
        self._convert: Callable[[Any], Row] = lambda row: row
        self._runs: list[RowRun] = []
        self._keys: list[RowRun] = []
        self._tallies: list[Tally] = []
        self._histograms: dict[str, Histogram] = {}
        self._labels: dict[str, list[pa.StringArray]] = {}

    def add(self, element: Any) -> None:
        """Takes a row, or a record batch or table of rows.

        Raises:
          EncodingError: it is no row, or holds what no feature can.
        """
        kind = type(element)
        if kind is not self._kind:
            if issubclass(kind, pa.RecordBatch | pa.Table):
                self._add_table(element)
                return
            convert = as_mapping(kind)
            if convert is None:
                raise EncodingError(
                    bounded(
                        f"Every element must be a row: a dict, beam.Row, named tuple, "
                        f"dataclass, or an Arrow batch or table; found "
                        f"{kind.__name__}: {element!r:.80}. Map it to a row first."
                    )
                )
            self._kind, self._convert = kind, convert
        self._waiting.append(self._convert(element))
        if len(self._waiting) >= _BATCH_ROWS:
            self._to_arrow()

    def finish(self) -> GatheredBundle | None:
        """Returns what the bundle leaves; None of one without rows."""
        self._to_arrow()
        self._to_runs()
        if not self._tallies:
            return None
        labels = {
            name: pa.chunked_array(parts, pa.string()).unique()
            for name, parts in self._labels.items()
        }
        return GatheredBundle(
            tuple(self._runs),
            merge_tallies(self._tallies),
            self._histograms,
            labels,
            tuple(self._keys),
        )

    def _add_table(self, element: pa.RecordBatch | pa.Table) -> None:
        self._to_arrow()
        batches = element.to_batches() if isinstance(element, pa.Table) else [element]
        for batch in batches:
            if batch.num_rows:
                self._add_batch(batch_of_table(batch))

    def _to_arrow(self) -> None:
        if self._waiting:
            for batch in batches_of(self._waiting):
                self._add_batch(batch)
            self._waiting = []

    def _add_batch(self, batch: RowBatch) -> None:
        self._batches.append(batch)
        self._bytes += int(row_sizes(batch.rows).sum())
        if self._bytes >= _RUN_BYTES:
            self._to_runs()

    def _to_runs(self) -> None:
        """Sorts and stores what has gathered, the rows of each schema by themselves."""
        by_schema: dict[str, list[RowBatch]] = {}
        for batch in self._batches:
            by_schema.setdefault(str(batch.rows.schema), []).append(batch)
        self._batches, self._bytes = [], 0
        for batches in by_schema.values():
            table = pa.Table.from_batches([batch.rows for batch in batches])
            integers: dict[str, int] = {}
            for batch in batches:
                for name, count in batch.integers.items():
                    integers[name] = integers.get(name, 0) + count
            for rows in table.combine_chunks().to_batches():
                self._add_run(RowBatch(rows, integers))
                integers = {}

    def _add_run(self, batch: RowBatch) -> None:
        rule, rows = self._rule, batch.rows
        keys = _texts(rows, rule.key_column, "key")
        names = [name for name in rows.schema.names if name != rule.split_column]
        hashed = hashed_images(rows.select(names))
        placed = Batch(
            Block("", 0, 0),
            rows,
            np.zeros(rows.num_rows, np.int64),
            splits=_splits(rows, rule),
            keys=keys,
            groups=_texts(rows, rule.group_column, ""),
            contents=None if keys is not None else content_hashes(hashed, names),
        )
        by_content = dataclasses.replace(
            rule.split, by_content=placed.contents is not None
        )
        splits = split_rows(placed, by_content, SplitTables())
        ungrouped = dataclasses.replace(placed, groups=None)
        hashes = unit_hashes(ungrouped, purpose=ORDER, seed=rule.seed)
        kept = rows.select(names)
        self._tallies.append(count_values(dataclasses.replace(batch, rows=kept)))
        for name in rule.labels:
            if name in names and pa.types.is_string(kept.column(name).type):
                distinct = kept.column(name).unique().drop_null()
                self._labels.setdefault(name, []).append(distinct)
        run, pieces, histograms = pack_rows(
            kept, hashes, splits.index, splits.names, keys
        )
        self._runs.append(self._kept(run, pieces))
        if rule.keys_apart:
            one = np.zeros(rows.num_rows, np.int64)
            run, pieces, _ = pack_rows(kept.select([]), hashes, one, ("",), keys)
            self._keys.append(self._kept(run, pieces))
        for name, found in histograms.items():
            known = self._histograms.get(name)
            self._histograms[name] = found if known is None else known.merge(found)

    def _kept(self, run: RowRun, pieces: Sequence[pa.Buffer]) -> RowRun:
        """Returns a run with its pieces: inline if they are few, else stored."""
        if sum(piece.size for piece in pieces) <= _INLINE_BYTES:
            payload = b"".join(bytes(memoryview(piece)) for piece in pieces)
            return dataclasses.replace(run, payload=payload)
        return dataclasses.replace(run, path=self._store(pieces))


def _texts(rows: pa.RecordBatch, name: str, what: str) -> pa.StringArray | None:
    """Returns a column as text; of keys, every row must have one."""
    if not name:
        return None
    column = rows.column(name) if name in rows.schema.names else None
    if column is None or (what and column.null_count):
        if not what:
            return pa.nulls(rows.num_rows, pa.string())
        raise EncodingError(
            f"Every row must have a {what}; of {rows.num_rows:,} rows some have "
            f"nothing in {name!r}. Leave them out, or give them one."
        )
    if not (pa.types.is_integer(column.type) or pa.types.is_string(column.type)):
        raise EncodingError(
            f"A {what or 'group'} must be text or an integer; {name!r} holds "
            f"{column.type}. Convert it before it is written."
        )
    return column if pa.types.is_string(column.type) else column.cast(pa.string())


def _splits(rows: pa.RecordBatch, rule: GatherRule) -> pa.StringArray | None:
    if rule.split.source is not SplitSource.COLUMN:
        return None
    splits = _texts(rows, rule.split_column, "split")
    assert splits is not None, "a rule by a column names it"
    for name in splits.unique().to_pylist():
        if not is_split_name(name):
            raise EncodingError(
                f"A split is named by letters, digits, '_' and '-', and not 'all'; "
                f"{rule.split_column!r} holds {name!r:.80}. Change it before it is "
                f"written."
            )
    return splits
