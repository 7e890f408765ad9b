"""What the rows of a pipeline are known by: a key, or all that they hold.

Rows come in no order, so nothing else says where a row goes.
"""

import dataclasses
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import numpy_mask, rows_holding
from transforms.core.model import Batch, Block
from transforms.core.placing.content import content_hashes
from transforms.core.placing.leakage import hashed_images
from transforms.core.placing.placement import (
    SplitRule,
    SplitSource,
    UInt64s,
    is_split_name,
)
from transforms.core.placing.splitting import Assignments
from transforms.core.reasons import Reason
from transforms.core.schema import Feature

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
        contents = content_hashes(hashed_images(kept), kept.schema.names)
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
