"""The rows of a spooled piece under the schema that the rows of all pieces decide.

Rows of a pipeline come in no order: a key, or all that a row holds, says where it goes.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import is_bytes, is_list, numpy_mask, rows_holding
from transforms.core.model import Batch, Block, Reading
from transforms.core.placing.content import content_hashes
from transforms.core.placing.hashes import UInt64s, order_hashes
from transforms.core.placing.splitting import (
    Assignments,
    SplitRule,
    SplitSource,
    is_split_name,
)
from transforms.core.reasons import Fault, Reason, Rejection
from transforms.core.rows.column import Misfit, blamed_of, fault
from transforms.core.rows.common_type import PYTHON, wider_type
from transforms.core.rows.conform import conform
from transforms.core.rows.natural_arrays import arrow_of
from transforms.core.schema import Feature, Kind, Schema
from transforms.core.segment import NO_RECORD, Segment, open_piece
from transforms.rows.row_batches import values_of_row
from transforms.rows.row_types import refuse, values_as_json

Longs = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclasses.dataclass(frozen=True, slots=True)
class RowRule:
    """What rows are known by, and how they fall into splits.

    Attributes:
      split: the rule of splits; by shares, by a column, or one split.
      split_column, key_column, group_column: that say a row's split, its identity, and
        what shares a split with it; empty for none.
      images: columns that are declared to be of images; their arrays are pixels.
      texts: columns that hold no images, whatever their names and values look like.
      images_root: folder that paths of images are relative to.
      integers: columns that are declared to be of integers or class names, in which
        no float is one.
      scalars: columns that are declared, or the label, so that no mapping fits them.
      table: gives the splits of keys, for a split by a table of ids.
      labels: gives labels whose class names are known, for those that are new.
    """

    split: SplitRule
    split_column: str = ""
    key_column: str = ""
    group_column: str = ""
    images: frozenset[str] = frozenset()
    texts: frozenset[str] = frozenset()
    images_root: str = ""
    integers: frozenset[str] = frozenset()
    scalars: frozenset[str] = frozenset()
    table: Callable[[], Assignments | None] | None = None
    labels: Callable[[], Sequence[tuple[Feature, frozenset[str]]]] | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class SpooledTypes:
    """What the values of spooled rows become.

    Attributes:
      rule: what rows are known by.
      types: column -> types that its values join to; others are rejected.
      pieces: (name, checksum) of each piece whose rows are counted, and (word, 0) of
        each bundle.
      has_source: whether the rows were read of a source, which says how many there are.
    """

    rule: RowRule
    types: Mapping[str, Sequence[pa.DataType]]
    pieces: frozenset[tuple[str, int]]
    has_source: bool = False


def read_piece(
    piece: Segment, message: pa.Buffer, types: SpooledTypes, schema: Schema, seed: int
) -> Reading:
    """Returns the rows of a piece under the schema, and rejections of misfits.

    These are in the batch, too, with the number `NO_RECORD`: their keys count, and so
    does the shard that they would be in.

    Args:
      piece: the piece.
      message: its bytes.
      types: what values become.
      schema: of the rows.
      seed: of the order, by whose hash rejections name rows without keys.
    """
    rows, contents = open_piece(message)
    batch = identified(rows, types.rule, contents)
    del rows, message
    typed, misfits = _typed(batch.rows, schema, types.types)
    numbers = np.zeros(batch.rows.num_rows, np.int64)
    rejections = []
    if misfits:
        # Keys, or the hashes of rows without.
        hashes = order_hashes(batch, seed=seed, placeless=True).tolist()
        names = [f"{value:016x}" for value in hashes]
        if batch.keys is not None:
            names = [str(key) for key in batch.keys.to_pylist()]
        for index, misfit in misfits:
            numbers[index] = NO_RECORD
            rejections.append(_reject_misfit(batch.rows, index, misfit, names))
    placed = dataclasses.replace(
        batch,
        block=Block(piece.origin, 0, piece.size),
        rows=typed,
        numbers=numbers,
        origins=batch.keys,
    )
    return Reading(placed, rejections)


def _joining(kind: pa.DataType, types: Sequence[pa.DataType]) -> pa.DataType | None:
    """Returns the first of a column's types that holds another's values, or None."""
    return next(
        (other for other in types if wider_type(kind, other, PYTHON) == other), None
    )


def _castable(column: pa.Array, kind: pa.DataType) -> npt.NDArray[np.bool_]:
    """Returns which of n values a type holds."""
    out = np.ones(len(column), np.bool_)
    parts = [(0, len(column))]
    while parts:
        start, stop = parts.pop()
        try:
            # A copy: of a slice of lists Arrow casts the items outside of it, too.
            column.take(pa.array(range(start, stop))).cast(kind)
        except pa.ArrowInvalid:
            middle = (start + stop) // 2
            if start == middle:
                out[start] = False
            else:
                parts += [(start, middle), (middle, stop)]
    return out


def _typed(
    raw: pa.RecordBatch, schema: Schema, types: Mapping[str, Sequence[pa.DataType]]
) -> tuple[pa.RecordBatch, list[tuple[int, Misfit]]]:
    """Returns rows under the schema, and (place, what is wrong) of misfits."""
    columns = dict(zip(raw.schema.names, raw.columns, strict=True))
    strange = _as_joined(columns, schema, types) + _strangers(columns, schema, types)
    columns |= _empty_lists(columns, schema)
    rows, misfits = conform(columns, schema, raw.num_rows, "")
    misfits = [*strange, *misfits]
    if not misfits:
        return rows, []
    blamed = blamed_of(misfits, raw.num_rows)
    places = np.flatnonzero(blamed >= 0).tolist()
    return rows, [(row, misfits[blamed[row]]) for row in places]


def _as_joined(
    columns: dict[str, pa.Array],
    schema: Schema,
    types: Mapping[str, Sequence[pa.DataType]],
) -> list[Misfit]:
    """Gives each column the type that all values join to; returns what that lacks.

    What a value becomes must not depend on the rows beside it: 7 among floats is 7.0.
    """
    out = []
    for name, column in list(columns.items()):
        kind = _joining(column.type, types.get(name, ()))
        if kind is None or column.type.equals(kind):
            continue
        try:
            columns[name] = column.cast(kind)
        except pa.ArrowInvalid:
            fits = _castable(column, kind)
            columns[name] = pc.if_else(pa.array(fits), column, None).cast(kind)
            faults = fault(~fits, Reason.OUT_OF_RANGE)
            assert faults is not None, "some do not fit"
            features = [f for f in schema.features if f.source_column == name]
            out += [Misfit(feature, column, faults) for feature in features]
    return out


def _strangers(
    columns: dict[str, pa.Array],
    schema: Schema,
    types: Mapping[str, Sequence[pa.DataType]],
) -> list[Misfit]:
    """Takes values of types that do not join out of the columns; returns which."""
    out = []
    raws = dict(columns)
    for feature in schema.features:
        name = feature.source_column
        raw = raws.get(name)
        if feature.derived or raw is None or pa.types.is_null(raw.type):
            continue
        if _joining(raw.type, types.get(name, ())) is not None:
            continue
        strange = numpy_mask(raw.is_valid())
        columns[name] = pa.nulls(len(raw))
        empty = strange & ~rows_holding(raw)
        if empty.any():
            # An empty list is of no type, whatever lists were beside it.
            cells = raw.to_pylist()
            lists = arrow_of(
                [v if e else None for v, e in zip(cells, empty, strict=True)]
            )
            target = _joining(lists.type, types.get(name, ()))
            if target is not None:
                columns[name] = lists.cast(target)
                strange &= ~empty
            elif feature.shape and is_list(raw.type):
                # No row has an item, so the feature alone says what lists are.
                bare = empty & numpy_mask(pc.equal(pc.list_value_length(raw), 0))
                columns[name] = pa.array(
                    [[] if is_bare else None for is_bare in bare], pa.list_(pa.null())
                )
                strange &= ~bare
        faults = fault(strange, _REASONS.get(feature.kind, Reason.WRONG_TYPE))
        if faults is not None:
            out.append(Misfit(feature, raw, faults))
    return out


def _empty_lists(
    columns: Mapping[str, pa.Array], schema: Schema
) -> dict[str, pa.Array]:
    """Returns the columns of lists of mappings, in rows where such a list is empty."""
    out: dict[str, pa.Array] = {}
    empty = {n: c for n, c in columns.items() if c.type.equals(pa.list_(pa.null()))}
    for feature in schema.features if empty else ():
        name = feature.source_column
        parent = next((p for p in empty if name.startswith(f"{p}/")), None)
        if parent is not None and name not in columns:
            out[name] = empty[parent]
    return out


_REASONS = {
    Kind.INT64: Reason.NOT_AN_INTEGER,
    Kind.FLOAT: Reason.NOT_A_NUMBER,
    Kind.BOOL: Reason.NOT_A_BOOL,
    Kind.TIMESTAMP: Reason.NOT_A_TIMESTAMP,
}
_NUMBERS = (Reason.NOT_AN_INTEGER, Reason.NOT_A_NUMBER, Reason.NOT_A_BOOL)


def _reject_misfit(
    raw: pa.RecordBatch,
    place: int,
    misfit: Misfit,
    names: Sequence[str],
) -> Rejection:
    """Returns the rejection of a spooled row, with all its values as JSON."""
    reason, message = misfit.complaint(place)
    if is_bytes(misfit.raw.type) and reason in _NUMBERS:
        # As '5' is, where a step before has cut a line into cells.
        message += "; no text is read as a number here: convert it in the step before"
    return refuse(
        values_as_json(values_of_row(raw, place)),
        Fault(reason, message),
        known_by=names[place],
        stage="write",
    )


def identified(
    rows: pa.RecordBatch, rule: RowRule, contents: UInt64s | None = None
) -> Batch:
    """Returns n rows with what they are known by, as stages that place rows need it.

    The column that says the split is not among the rows of the batch.

    Args:
      rows: n rows with a key and a split, where the rule names columns for them.
      rule: of the job.
      contents: n hashes of what rows without keys hold, where they are there already.
    """
    kept = rows.select([n for n in rows.schema.names if n != rule.split_column])
    keys = _texts(rows, rule.key_column)
    if keys is None and contents is None:
        contents = content_hashes(kept, kept.schema.names, images=True)
    return Batch(
        Block("", 0, 0),
        kept,
        np.zeros(rows.num_rows, np.int64),
        splits=(
            _texts(rows, rule.split_column)
            if rule.split.source is SplitSource.COLUMN
            else None
        ),
        keys=keys,
        groups=_texts(rows, rule.group_column),
        contents=contents,
    )


def unplaced(
    rows: pa.RecordBatch, rule: RowRule
) -> Iterable[tuple[str, Reason, Bools]]:
    """Yields (column, reason, which rows) of what may be wrong with rows' places."""
    if rule.key_column:
        missing, strange = _unfit(rows, rule.key_column)
        yield rule.key_column, Reason.MISSING_VALUE, missing
        yield rule.key_column, Reason.WRONG_TYPE, strange
    if rule.group_column:
        yield rule.group_column, Reason.WRONG_TYPE, _unfit(rows, rule.group_column)[1]
    if rule.split.source is SplitSource.COLUMN:
        missing, strange = _unfit(rows, rule.split_column)
        bad = missing | strange
        if not bad.any():
            texts = rows.column(rule.split_column).cast(pa.string())
            unnamed = [x for x in texts.unique().to_pylist() if not is_split_name(x)]
            bad = numpy_mask(pc.is_in(texts, pa.array(unnamed, pa.string())))
        yield rule.split_column, Reason.BAD_SPLIT, bad


def _unfit(rows: pa.RecordBatch, name: str) -> tuple[Bools, Bools]:
    """Returns which of n rows have nothing in a column, and which no text or integer.

    NaN is nothing.
    """
    if name not in rows.schema.names:
        return np.ones(rows.num_rows, bool), np.zeros(rows.num_rows, bool)
    column = rows.column(name)
    filled = rows_holding(column)
    if pa.types.is_floating(column.type):
        filled &= ~numpy_mask(pc.is_nan(column).fill_null(True))
    if pa.types.is_integer(column.type) or pa.types.is_string(column.type):
        return ~filled, np.zeros(rows.num_rows, bool)
    return ~filled, filled


def _texts(rows: pa.RecordBatch, name: str) -> pa.StringArray | None:
    """Returns a column of texts or integers as text."""
    if not name:
        return None
    if name not in rows.schema.names:
        return pa.nulls(rows.num_rows, pa.string())
    column = rows.column(name)
    return column if pa.types.is_string(column.type) else column.cast(pa.string())
