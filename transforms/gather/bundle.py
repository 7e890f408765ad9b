"""The rows of one bundle: batches as they fill, then sorted runs and counts."""

import dataclasses
import functools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core import this_worker
from transforms.core.arrays import in_one_piece, is_list, numpy_mask, rows_holding
from transforms.core.infer.image_names import is_named_like_images
from transforms.core.model import Batch, Block, Rejection, RejectLog, Segment
from transforms.core.placing.content import content_hashes, hashed_images
from transforms.core.placing.identity import LOCK, ORDER, unit_hashes
from transforms.core.placing.leakage import (
    Fingerprints,
    Subject,
    pack_fingerprints,
)
from transforms.core.placing.name_lists import put_names
from transforms.core.placing.placement import (
    SplitRule,
    SplitSource,
    UInt64s,
    is_split_name,
)
from transforms.core.placing.split_lock import Assignments
from transforms.core.placing.splitting import (
    NOWHERE,
    Splits,
    SplitTables,
    split_rows,
)
from transforms.core.reasons import Fault, Reason
from transforms.core.rows.cast import cast
from transforms.core.rows.column import fault as faults_where
from transforms.core.rows.conform import Misfit
from transforms.core.rows.python_kinds import OddValueError, family_of
from transforms.core.rows.python_value import python_value
from transforms.core.schema import Feature, Kind
from transforms.errors import (
    EncodingError,
    ExampleError,
    bounded,
    nearest,
)
from transforms.gather.cuts import Histogram, Longs
from transforms.gather.example_rows import rows_of_examples
from transforms.gather.refused_rows import (
    Refusals,
    RefusedRows,
    refuse,
    values_as_json,
)
from transforms.gather.row_batches import (
    MOST_CELLS,
    NO_ROW,
    Row,
    UnusableValueError,
    as_mapping,
    batches_of,
    how_to_map,
    mappings_in,
)
from transforms.gather.row_batches import table_batch as batch_of_table
from transforms.gather.row_runs import RowRun, keep_pieces, pack_rows
from transforms.gather.tally import (
    Tally,
    count_values,
    ends_like_image,
    is_absolute,
    merge_tallies,
)

# Elements become Arrow together, at most this many: they wait as Python objects. The
# first ones show how large rows are; from then on _BATCH_BYTES is a limit too.
_BATCH_ROWS = 4096
_FIRST_ROWS = 64
_BATCH_BYTES = 1 << 22
# What is wrong with elements that cannot become Arrow.
_FAULTS = (EncodingError, ExampleError, OddValueError, pa.ArrowException)
_SHOWN_CHARS = 80
_NO_SPLIT = (
    "Every key must be in the table of ids, which says its split; none is. Look after "
    "the table, or after the key."
)
STAGE = "gather"
"""Of rejections."""

Bools = npt.NDArray[np.bool_]
# Bytes of rows that are sorted and stored at a time.
_RUN_BYTES = 32 << 20
# What sorting takes for a row beside its values: hash, size, split and place.
_ROW_BYTES = 32


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
      scalars: columns that are declared, or the label, so that no mapping fits them.
      examples: gives the features of elements that are serialised Examples; None for
        no such elements.
      table: gives the splits of keys, for a split by a table of ids.
      lock: gives the splits that units have already.
      with_units: whether it must be known in the end where each unit went.
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
    scalars: frozenset[str] = frozenset()
    examples: Callable[[], tuple[Feature, ...]] | None = None
    table: Callable[[], Assignments | None] | None = None
    lock: Callable[[], Assignments | None] | None = None
    with_units: bool = False
    keys_apart: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class GatheredBundle:
    """What one bundle of rows leaves: one element, so that attempts cannot mix.

    Attributes:
      runs: its sorted runs.
      tally: what its values are.
      histograms: split -> its rows and bytes, by parts of the hashes.
      labels: column -> lists of its class names, each of distinct ones.
      keys: runs of the keys alone, in one split without a name, where they are wanted.
      units: where each unit went, where that is wanted.
      attempts: words of the attempts that these are the rows of: one for a bundle.
      run_count: how many runs there are, also where they are left out.
      refusals: counts of rows that are in no run, and not in the tally.
      rejects: why those are not, each by itself.
      workers: stamps of the workers that have gathered it; see `this_worker`.
    """

    runs: tuple[RowRun, ...]
    tally: Tally
    histograms: Mapping[str, Histogram]
    labels: Mapping[str, Sequence[Segment]]
    keys: tuple[RowRun, ...] = ()
    units: tuple[Fingerprints, ...] = ()
    attempts: frozenset[str] = frozenset()
    run_count: int = 0
    refusals: Refusals = dataclasses.field(default_factory=Refusals)
    rejects: RejectLog | None = None
    workers: frozenset[str] = dataclasses.field(
        default_factory=lambda: frozenset((this_worker.stamp(),))
    )

    @property
    def received(self) -> int:
        """How many rows came."""
        return self.tally.rows + self.refusals.total

    def without_runs(self) -> "GatheredBundle":
        """Returns the counts alone, which the plan merges."""
        return dataclasses.replace(self, runs=(), keys=(), units=(), rejects=None)


class BundleRows:
    """Takes the rows of one bundle; holds some 32 MiB of them."""

    def __init__(
        self,
        rule: GatherRule,
        store: Callable[[Sequence[pa.Buffer]], str],
        sizes_of: Callable[[Iterable[str]], Mapping[str, int]],
        reject: Callable[[Sequence[Rejection]], None],
    ) -> None:
        """Starts a bundle.

        Args:
          rule: of the job.
          store: writes pieces end to end into a file of its own; returns its path.
          sizes_of: returns path -> bytes of those files that are there.
          reject: takes rejections of rows that no run holds.
        """
        self._rule = rule
        self._store = store
        self._sizes_of = sizes_of
        self._refused = RefusedRows(reject)
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
        self._units: list[Fingerprints] = []
        self._examples: tuple[Feature, ...] | None = None
        self._tables = SplitTables(
            table=rule.table and rule.table(), lock=rule.lock and rule.lock()
        )
        self._tallies: list[Tally] = []
        self._mappings: set[str] = set()
        self._histograms: dict[str, Histogram] = {}
        self._labels: dict[str, list[pa.StringArray]] = {}

    def add(self, element: Any) -> None:
        """Takes a row, or a record batch or table of rows; rejects what is none."""
        if type(element) is not self._kind and not self._start_kind(element):
            return
        self._waiting.append(element)
        if len(self._waiting) >= self._most:
            self._to_arrow()

    def _start_kind(self, element: Any) -> bool:
        """Prepares for elements of another type; returns whether they are rows."""
        kind = type(element)
        convert = as_mapping(kind)
        is_table = issubclass(kind, pa.RecordBatch | pa.Table)
        is_example = kind is bytes and self._rule.examples is not None
        if convert is None and not is_table and not is_example:
            self._refuse_element(element)
            return False
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
        elif is_table:
            self._take, self._most = _of_tables, 1
        else:
            self._take = self._of_examples
        self._kind = kind
        return True

    def _refuse_element(self, element: Any) -> None:
        values = values_as_json(element)
        shown = bounded(values.decode(), _SHOWN_CHARS)
        text = f"{type(element).__name__}: {shown}"
        sentence = bounded(f"{NO_ROW}; found {text}. {how_to_map(type(element))}")
        fault = Fault(Reason.MALFORMED, f"no row, but {text}")
        rejection = refuse(values, fault, stage=STAGE)
        self._refused.add("element", sentence, rejection)

    def finish(self) -> GatheredBundle | None:
        """Returns what the bundle leaves; None of one without rows."""
        self._to_arrow()
        self._to_runs()
        refusals = self._refused.refusals
        if not self._tallies and not refusals.total:
            return None
        store = self._store
        labels = {
            name: [put_names(pa.chunked_array(parts, pa.string()).unique(), store)]
            for name, parts in self._labels.items()
        }
        return GatheredBundle(
            tuple(self._runs),
            merge_tallies([*self._tallies, Tally(mappings=frozenset(self._mappings))]),
            self._histograms,
            labels,
            tuple(self._keys),
            tuple(self._units),
            run_count=len(self._runs),
            refusals=refusals,
        )

    def _to_arrow(self) -> None:
        """Makes batches of what waits, and says how many elements are to wait next."""
        waiting, self._waiting = self._waiting, []
        rows, self._rows = self._rows, []
        if self._take is _of_tables:
            waiting = [batch for each in waiting for batch in _batches_in(each)]
        elif self._take == self._of_rows:
            # A dict is a row as it is.
            more = waiting if self._kind is dict else map(self._convert, waiting)
            waiting = [*rows, *more]
        if not waiting:
            return
        batches = self._taken(waiting)
        rows = sum(batch.num_rows for batch in batches)
        size = sum(batch.nbytes for batch in batches)
        if self._take is not _of_tables:
            most = _BATCH_BYTES * rows // max(size, 1)
            self._most = min(max(most, 1), _BATCH_ROWS)
        self._batches += batches
        self._bytes += size + rows * _ROW_BYTES
        if self._bytes >= _RUN_BYTES:
            self._to_runs()

    def _taken(self, elements: list[Any]) -> list[pa.RecordBatch]:
        """Returns what elements become; rejects those that become nothing.

        What is wrong with a row is found without any other one, so that no bundling
        decides it.
        """
        try:
            batches = list(self._take(elements))
            for batch in batches:
                self._check_mappings(batch)
        except _FAULTS as error:
            parts = _halves(elements)
            if not parts:
                self._refuse(elements[0], error)
            return [batch for part in parts for batch in self._taken(part)]
        self._mappings.update(*map(mappings_in, batches))
        return [batch.replace_schema_metadata(None) for batch in batches]

    def _check_mappings(self, rows: pa.RecordBatch) -> None:
        """Raises UnusableValueError for a mapping where a value is wanted."""
        if found := mappings_in(rows) & self._rule.scalars:
            raise UnusableValueError(
                f"Every value of {min(found)!r} must be one that its feature holds; "
                f"found a mapping. Convert it before it is written, or give its parts "
                f"names of their own.",
                Reason.WRONG_TYPE,
            )

    def _refuse(self, element: Any, error: Exception) -> None:
        """Rejects a row, or all rows of a batch, that cannot become Arrow."""
        reason = getattr(error, "reason", Reason.MALFORMED)
        sentence = bounded(str(error))
        for row in _rows_in(element):
            rejection = refuse(
                values_as_json(row),
                Fault(reason, sentence),
                known_by=self._key_in(row),
                stage=STAGE,
            )
            self._refused.add("row", sentence, rejection)

    def _key_in(self, row: Any) -> str:
        """Returns the key of a row as text; empty for none."""
        name = self._rule.key_column
        key = row.get(name) if name and isinstance(row, Mapping) else None
        return str(key) if family_of(type(key)) in ("int", "text") else ""

    def _of_rows(self, rows: list[Row]) -> Iterable[pa.RecordBatch]:
        rule = self._rule
        # Beside 2.5 the key 1 is no less a whole number.
        whole = rule.integers | {rule.key_column, rule.group_column, rule.split_column}
        return batches_of(rows, images=rule.images, integers=whole)

    def _of_examples(self, payloads: list[bytes]) -> Iterable[pa.RecordBatch]:
        if self._examples is None:
            assert self._rule.examples is not None, "only then are bytes rows"
            self._examples = self._rule.examples()
        yield batch_of_table(rows_of_examples(payloads, self._examples))

    def _to_runs(self) -> None:
        """Sorts and stores what has gathered, rows of several types by themselves."""
        groups = _fitting(self._batches)
        self._batches, self._bytes = [], 0
        while groups:
            tables = [pa.Table.from_batches([batch]) for batch in groups.pop(0)]
            table = pa.concat_tables(tables, promote_options="default")
            tables.clear()
            for rows in in_one_piece(table).to_batches():
                self._add_run(rows)

    def _add_run(self, rows: pa.RecordBatch) -> None:
        rule = self._rule
        rows = self._with_places(rows)
        if not rows.num_rows:
            return
        keys = _texts(rows, rule.key_column)
        names = [name for name in rows.schema.names if name != rule.split_column]
        hashed = hashed_images(rows.select(names))
        placed = Batch(
            Block("", 0, 0),
            rows,
            np.zeros(rows.num_rows, np.int64),
            splits=_splits(rows, rule),
            keys=keys,
            groups=_texts(rows, rule.group_column),
            contents=None if keys is not None else content_hashes(hashed, names),
        )
        by_content = dataclasses.replace(
            rule.split, by_content=placed.contents is not None
        )
        splits = split_rows(placed, by_content, self._tables)
        homeless = splits.index == NOWHERE
        if homeless.any():
            # Of a table of ids: then rows have keys.
            fault = functools.partial(_homeless, keys)
            self._refuse_rows(rows, homeless, "id", _NO_SPLIT, fault)
            if not homeless.all():
                self._add_run(rows.filter(pa.array(~homeless)))
            return
        if rule.with_units:
            units = unit_hashes(placed, purpose=LOCK)
            self._units.append(self._unit_prints(units, splits))
        ungrouped = dataclasses.replace(placed, groups=None)
        hashes = unit_hashes(ungrouped, purpose=ORDER, seed=rule.seed)
        kept = rows.select(names)
        texts = rule.texts if rule.images_root else None
        self._tallies.append(count_values(kept, rule.images, texts=texts))
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

    def _with_places(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Returns rows that have a key and a split; rejects the others."""
        for word, name, reason, bad in _unplaced(rows, self._rule):
            if not bad.any():
                continue
            names = [each for each in rows.schema.names if each != name]
            column = rows.column(name) if len(names) < rows.num_columns else None
            column = pa.nulls(rows.num_rows) if column is None else column
            faults = faults_where(bad, reason)
            assert faults is not None, "some are bad"
            misfit = Misfit(Feature(name, Kind.TEXT), column, faults)
            place = int(bad.argmax())
            near = nearest(name, names) if len(names) == rows.num_columns else ""
            sentence = bounded(
                f"Every row must have a {word} in {name!r}{near}; "
                f"{misfit.complaint(place).message}. Name another column, or give "
                f"the rows one."
            )
            self._refuse_rows(rows, bad, word, sentence, misfit.complaint)
            rest = rows.filter(pa.array(~bad))
            return self._with_places(rest) if rest.num_rows else rest
        return rows

    def _refuse_rows(
        self,
        rows: pa.RecordBatch,
        bad: Bools,
        word: str,
        sentence: str,
        fault: Callable[[int], Fault],
    ) -> None:
        """Rejects rows that are in Arrow.

        Args:
          rows: n of them.
          bad: which of them, as n bools.
          word, sentence: see `RefusedRows.add`.
          fault: what is wrong with the row at a place.
        """
        names = rows.schema.names
        columns = rows.select([n for n in names if n != self._rule.split_column])
        hashes = content_hashes(hashed_images(columns), columns.schema.names)
        for place in np.flatnonzero(bad).tolist():
            row = {
                name: python_value(column[place])
                for name, column in zip(names, rows.columns, strict=True)
            }
            rejection = refuse(
                values_as_json(row),
                fault(place),
                known_by=self._key_in(row) or f"{hashes[place]:016x}",
                stage=STAGE,
            )
            self._refused.add(word, sentence, rejection)

    def _unit_prints(self, units: UInt64s, splits: Splits) -> Fingerprints:
        """Stores the units of a run, each with its split."""
        packed = pack_fingerprints(
            units, splits.index, np.zeros(len(units), np.int64), None
        )
        message = packed.serialize()
        segment = Segment(
            *("", 0, len(units), message.size),
            path=self._store([message]),
            crc32c=google_crc32c.value(bytes(memoryview(message))),
        )
        return Fingerprints(
            Subject.UNIT,
            splits.names,
            many_origins=False,
            segment=segment,
            overruled=splits.overruled,
        )

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
            is_named = is_named_like_images(name, is_list=is_list_column)
            ends = ends_like_image(column)
            if not is_named:
                # Relative paths say nothing without the folder.
                if not self._rule.images_root:
                    return None
                ends = pc.and_not(ends, is_absolute(column))
            column = pc.if_else(ends, column, None)
        root = self._rule.images_root
        paths = [
            path if not path or "://" in path else os.path.join(root, path)
            for path in column.fill_null("").to_pylist()
        ]
        return rows_of, paths


def _fitting(batches: Iterable[pa.RecordBatch]) -> list[list[pa.RecordBatch]]:
    """Returns batches in groups that have one type for each name.

    Groups stay below `MOST_CELLS`, for batches may have other names each. Empty lists
    may be of mappings, where names that a batch lacks are not missing: batches with
    such are only beside those of the same names.
    """
    groups: list[tuple[dict[str, pa.DataType], list[pa.RecordBatch]]] = []
    for batch in batches:
        types = dict(zip(batch.schema.names, batch.schema.types, strict=True))
        for known, members in groups:
            if known == types or _may_join(known, members, types, batch.num_rows):
                known.update(types)
                members.append(batch)
                break
        else:
            groups.append((types, [batch]))
    return [members for _, members in groups]


def _may_join(
    known: Mapping[str, pa.DataType],
    members: Iterable[pa.RecordBatch],
    types: Mapping[str, pa.DataType],
    rows: int,
) -> bool:
    """Whether n rows of some types, of which a few names may be others, fit a group."""
    empty = pa.list_(pa.null())
    if empty in known.values() or empty in types.values():
        return False
    if any(known.get(name, kind) != kind for name, kind in types.items()):
        return False
    total = sum(member.num_rows for member in members) + rows
    return total * len({**known, **types}) <= MOST_CELLS


def _of_tables(elements: list[Any]) -> Iterable[pa.RecordBatch]:
    return map(batch_of_table, elements)


def _batches_in(table: pa.Table | pa.RecordBatch) -> list[pa.RecordBatch]:
    batches = table.to_batches() if isinstance(table, pa.Table) else [table]
    return [batch for batch in batches if batch.num_rows]


def _halves(elements: list[Any]) -> list[list[Any]]:
    """Returns elements in two parts, a single batch by its rows; none for one row."""
    if len(elements) == 1 and isinstance(elements[0], pa.RecordBatch):
        batch = elements[0]
        if batch.num_rows > 1 and _is_sound(batch.slice(0, 0)):
            middle = batch.num_rows // 2
            return [[batch.slice(0, middle)], [batch.slice(middle)]]
    middle = len(elements) // 2
    return [elements[:middle], elements[middle:]] if middle else []


def _is_sound(batch: pa.RecordBatch) -> bool:
    """Whether names and types are ones that rows can have, whatever the values."""
    try:
        batch_of_table(batch)
    except _FAULTS:
        return False
    return True


def _rows_in(element: Any) -> Iterable[Any]:
    """Yields the rows of a batch, of which names may be there twice; or one row."""
    if not isinstance(element, pa.RecordBatch):
        yield element
        return
    names = element.schema.names
    for place in range(element.num_rows):
        values = [python_value(column[place]) for column in element.columns]
        if len(set(names)) == len(names):
            yield dict(zip(names, values, strict=True))
        else:
            yield [list(pair) for pair in zip(names, values, strict=True)]


def _unplaced(
    rows: pa.RecordBatch, rule: GatherRule
) -> Iterable[tuple[str, str, Reason, Bools]]:
    """Yields (word, column, reason, which rows) of what may be wrong with a place."""
    if rule.key_column:
        missing, strange = _unfit(rows, rule.key_column)
        yield "key", rule.key_column, Reason.MISSING_VALUE, missing
        yield "key", rule.key_column, Reason.WRONG_TYPE, strange
    if rule.group_column:
        _, strange = _unfit(rows, rule.group_column)
        yield "group", rule.group_column, Reason.WRONG_TYPE, strange
    if rule.split.source is SplitSource.COLUMN:
        missing, strange = _unfit(rows, rule.split_column)
        bad = missing | strange
        if not bad.any():
            texts = rows.column(rule.split_column).cast(pa.string())
            unnamed = [x for x in texts.unique().to_pylist() if not is_split_name(x)]
            bad = numpy_mask(pc.is_in(texts, pa.array(unnamed, pa.string())))
        yield "split", rule.split_column, Reason.BAD_SPLIT, bad


def _unfit(rows: pa.RecordBatch, name: str) -> tuple[Bools, Bools]:
    """Returns which of n rows have nothing in a column, and which no text or integer.

    NaN is nothing.
    """
    if name not in rows.schema.names:
        return np.ones(rows.num_rows, bool), np.zeros(rows.num_rows, bool)
    column = rows.column(name)
    held = rows_holding(column)
    if pa.types.is_floating(column.type):
        held &= ~numpy_mask(pc.is_nan(column).fill_null(True))
    if pa.types.is_integer(column.type) or pa.types.is_string(column.type):
        return ~held, np.zeros(rows.num_rows, bool)
    return ~held, held


def _texts(rows: pa.RecordBatch, name: str) -> pa.StringArray | None:
    """Returns a column of texts or integers as text."""
    if not name:
        return None
    if name not in rows.schema.names:
        return pa.nulls(rows.num_rows, pa.string())
    column = rows.column(name)
    return column if pa.types.is_string(column.type) else column.cast(pa.string())


def _splits(rows: pa.RecordBatch, rule: GatherRule) -> pa.StringArray | None:
    if rule.split.source is not SplitSource.COLUMN:
        return None
    return _texts(rows, rule.split_column)


def _homeless(keys: pa.StringArray, place: int) -> Fault:
    return Fault(
        Reason.BAD_SPLIT,
        f"key {keys[place].as_py()!r} has no split in the table of ids",
    )


def _class_names(column: pa.Array) -> pa.StringArray:
    """Returns the distinct names that a label's values have; a float is none."""
    depth: tuple[int | None, ...] = (None,) if is_list(column.type) else ()
    names = cast(column, Feature("", Kind.LABEL, shape=depth)).values
    return (names.flatten() if depth else names).unique().drop_null()
