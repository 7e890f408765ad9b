"""The rows of one bundle: batches as they fill, then sorted runs and counts."""

import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import is_list
from transforms.core.infer.image_names import is_named_like_images
from transforms.core.model import Batch, Block
from transforms.core.placing.content import content_hashes, hashed_images
from transforms.core.placing.identity import ORDER, unit_hashes
from transforms.core.placing.placement import SplitRule, SplitSource, is_split_name
from transforms.core.placing.split_lock import Assignments
from transforms.core.placing.splitting import (
    NOWHERE,
    Splits,
    SplitTables,
    split_rows,
)
from transforms.core.rows.cast import cast
from transforms.core.schema import Feature, Kind
from transforms.errors import EncodingError, bounded
from transforms.gather.example_rows import rows_of_examples
from transforms.gather.row_batches import NO_ROW, Row, as_mapping, batches_of
from transforms.gather.row_batches import table_batch as batch_of_table
from transforms.gather.row_runs import Histogram, Longs, RowRun, keep_pieces, pack_rows
from transforms.gather.tally import Tally, count_values, ends_like_image, merge_tallies

__all__ = ["BundleRows", "GatherRule", "GatheredBundle"]

# Elements become Arrow together, at most this many: they wait as Python objects. The
# first ones show how large rows are; from then on _BATCH_BYTES is a limit too.
_BATCH_ROWS = 4096
_FIRST_ROWS = 64
_BATCH_BYTES = 1 << 22
# Bytes of rows that are sorted and stored at a time.
_RUN_BYTES = 32 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class GatherRule:
    """What rows are known by, and how they fall into splits.

    Attributes:
      split: the rule of splits; by shares, by a column, or one split.
      split_column, key_column, group_column: that say a row's split, its identity, and
        what shares a split with it; empty for none.
      seed: of the order.
      labels: columns that are or may be of class names.
      images: columns that are declared to be of images; their arrays are pixels.
      texts: columns that hold no images, whatever their names and values look like.
      images_root: folder that paths of images are relative to.
      integers: columns that are declared to be of integers or class names, in which
        no float is one.
      examples: features of elements that are serialised Examples.
      table: the splits of keys, for a split by a table of ids.
      keys_apart: whether keys are also gathered by themselves, because rows of one key
        may be in different splits.
    """

    split: SplitRule
    split_column: str = ""
    key_column: str = ""
    group_column: str = ""
    seed: int = 0
    labels: tuple[str, ...] = ()
    images: frozenset[str] = frozenset()
    texts: frozenset[str] = frozenset()
    images_root: str = ""
    integers: frozenset[str] = frozenset()
    examples: tuple[Feature, ...] = ()
    table: Assignments | None = None
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
      run_count: how many runs there are, also where they are left out.
    """

    runs: tuple[RowRun, ...]
    tally: Tally
    histograms: Mapping[str, Histogram]
    labels: Mapping[str, pa.StringArray]
    keys: tuple[RowRun, ...] = ()
    attempts: frozenset[str] = frozenset()
    run_count: int = 0

    def without_runs(self) -> "GatheredBundle":
        """Returns the counts alone, which the plan merges."""
        return dataclasses.replace(self, runs=(), keys=())


class BundleRows:
    """Takes the rows of one bundle; holds some 32 MiB of them."""

    def __init__(
        self,
        rule: GatherRule,
        store: Callable[[Sequence[pa.Buffer]], str],
        sizes_of: Callable[[Iterable[str]], Mapping[str, int]],
    ) -> None:
        """Starts a bundle.

        Args:
          rule: of the job.
          store: writes pieces end to end into a file of its own; returns its path.
          sizes_of: returns path -> bytes of those files that are there.
        """
        self._rule = rule
        self._store = store
        self._sizes_of = sizes_of
        # Elements of the type `_kind`, and what `_take` makes batches of.
        self._waiting: list[Any] = []
        self._most = _FIRST_ROWS
        self._kind: type[Any] | None = None
        self._take: Callable[[list[Any]], Iterable[pa.RecordBatch]] = self._of_rows
        # Rows that waited when rows of another type came.
        self._rows: list[Row] = []
        self._convert: Callable[[Any], Row] = dict
        self._batches: list[pa.RecordBatch] = []
        self._bytes = 0
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
        if type(element) is not self._kind:
            self._start_kind(element)
        self._waiting.append(element)
        if len(self._waiting) >= self._most:
            self._to_arrow()

    def _start_kind(self, element: Any) -> None:
        """Prepares for elements of another type than those before."""
        kind = type(element)
        convert = as_mapping(kind)
        if convert is not None and self._take == self._of_rows:
            # Rows of several types may alternate, so they wait together.
            self._rows += map(self._convert, self._waiting)
            self._waiting.clear()
            if len(self._rows) >= self._most:
                self._to_arrow()
        else:
            self._to_arrow()
            self._most = _FIRST_ROWS
        if convert is not None:
            self._convert, self._take = convert, self._of_rows
        elif issubclass(kind, pa.RecordBatch | pa.Table):
            self._take, self._most = _of_tables, 1
        elif kind is bytes and self._rule.examples:
            self._take = self._of_examples
        else:
            raise EncodingError(
                bounded(
                    f"{NO_ROW}; found {kind.__name__}: {element!r:.80}. Map it to a "
                    f"row first."
                )
            )
        self._kind = kind

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
            run_count=len(self._runs),
        )

    def _to_arrow(self) -> None:
        """Makes batches of what waits, and says how many elements are to wait next."""
        waiting, self._waiting = self._waiting, []
        if not waiting and not self._rows:
            return
        batches = list(self._take(waiting))
        rows = sum(batch.num_rows for batch in batches)
        size = sum(batch.nbytes for batch in batches)
        if self._take is not _of_tables:
            most = _BATCH_BYTES * rows // max(size, 1)
            self._most = min(max(most, 1), _BATCH_ROWS)
        self._batches += batches
        self._bytes += size
        if self._bytes >= _RUN_BYTES:
            self._to_runs()

    def _of_rows(self, elements: list[Any]) -> Iterable[pa.RecordBatch]:
        rows, self._rows = self._rows, []
        rows += elements if self._kind is dict else map(self._convert, elements)
        rule = self._rule
        return batches_of(rows, images=rule.images, integers=rule.integers)

    def _of_examples(self, payloads: list[bytes]) -> Iterable[pa.RecordBatch]:
        yield batch_of_table(rows_of_examples(payloads, self._rule.examples))

    def _to_runs(self) -> None:
        """Sorts and stores what has gathered, the rows of each schema by themselves."""
        by_schema: dict[str, list[pa.RecordBatch]] = {}
        for batch in self._batches:
            by_schema.setdefault(str(batch.schema), []).append(batch)
        self._batches, self._bytes = [], 0
        for batches in by_schema.values():
            table = pa.Table.from_batches(batches)
            for rows in table.combine_chunks().to_batches():
                self._add_run(rows)

    def _add_run(self, rows: pa.RecordBatch) -> None:
        rule = self._rule
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
        splits = split_rows(placed, by_content, SplitTables(table=rule.table))
        _check_placed(splits, keys)
        ungrouped = dataclasses.replace(placed, groups=None)
        hashes = unit_hashes(ungrouped, purpose=ORDER, seed=rule.seed)
        kept = rows.select(names)
        self._tallies.append(count_values(kept, rule.images))
        for name in rule.labels:
            if name in names and (
                name in rule.integers or pa.types.is_string(kept.column(name).type)
            ):
                distinct = _class_names(kept.column(name))
                self._labels.setdefault(name, []).append(distinct)
        run, pieces, histograms = pack_rows(
            kept, hashes, splits.index, splits.names, keys, self._file_sizes(kept)
        )
        self._runs.append(keep_pieces(run, pieces, self._store))
        if rule.keys_apart:
            one = np.zeros(rows.num_rows, np.int64)
            run, pieces, _ = pack_rows(kept.select([]), hashes, one, ("",), keys)
            self._keys.append(keep_pieces(run, pieces, self._store))
        for name, found in histograms.items():
            known = self._histograms.get(name)
            self._histograms[name] = found if known is None else known.merge(found)

    def _file_sizes(self, rows: pa.RecordBatch) -> Longs | None:
        """Returns how many bytes the image files of n rows have; None for no paths.

        A file that is not there counts nothing: it is a reject later.
        """
        columns = []
        for name, column in zip(rows.schema.names, rows.columns, strict=True):
            found = None if name in self._rule.texts else self._paths(name, column)
            if found is not None:
                columns.append(found)
        if not columns:
            return None
        named = {path for _, paths in columns for path in paths if path}
        sizes = self._sizes_of(sorted(named))
        out = np.zeros(rows.num_rows, np.int64)
        for rows_of, paths in columns:
            each = [sizes.get(path, 0) for path in paths]
            np.add.at(out, rows_of, np.array(each, np.int64))
        return out

    def _paths(self, name: str, column: pa.Array) -> tuple[Longs, list[str]] | None:
        """Returns (row, path) of the image files that a column names; None for none."""
        rows_of = np.arange(len(column))
        is_list_column = is_list(column.type)
        while is_list(column.type):
            rows_of = rows_of[np.asarray(pc.list_parent_indices(column))]
            column = column.flatten()
        if not pa.types.is_string(column.type):
            return None
        if name not in self._rule.images:
            if not is_named_like_images(name, is_list=is_list_column):
                return None
            column = pc.if_else(ends_like_image(column), column, None)
        root = self._rule.images_root
        paths = [
            path if not path or "://" in path else os.path.join(root, path)
            for path in column.fill_null("").to_pylist()
        ]
        return rows_of, paths


def _of_tables(elements: list[Any]) -> Iterable[pa.RecordBatch]:
    for each in elements:
        for batch in each.to_batches() if isinstance(each, pa.Table) else [each]:
            if batch.num_rows:
                yield batch_of_table(batch)


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


def _check_placed(splits: Splits, keys: pa.StringArray | None) -> None:
    """Raises EncodingError where the table of ids says no split of a key."""
    if keys is not None and NOWHERE in splits.index:
        key = keys[int(np.argmax(splits.index == NOWHERE))].as_py()
        raise EncodingError(
            f"Every key must be in the table of ids, which says its split; {key!r:.80} "
            f"is not. Leave the row out, or add its key to the table."
        )


def _class_names(column: pa.Array) -> pa.StringArray:
    """Returns the distinct names that a label's values have; a float is none."""
    depth: tuple[int | None, ...] = (None,) if is_list(column.type) else ()
    names = cast(column, Feature("", Kind.LABEL, shape=depth)).values
    return (names.flatten() if depth else names).unique().drop_null()
