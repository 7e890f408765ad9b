"""Rows in Arrow: flat columns of plain types, and what each row is known by.

    struct<x: int32, name: large_string> s -> int64 s/x, string s/name
    struct<bytes, path> of an image        -> stays

Numbers, and those in lists, have 64 bits; columns are in the order of their names. The
metadata of a batch says which columns were mappings.

Rows of a pipeline come in no order: a key, or all that a row holds, says where it goes.
"""

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import is_list, numpy_mask, rows_holding
from transforms.core.model import Batch, Block
from transforms.core.placing.content import content_hashes
from transforms.core.placing.hashes import UInt64s
from transforms.core.placing.splitting import (
    Assignments,
    SplitRule,
    SplitSource,
    is_split_name,
)
from transforms.core.reasons import Reason
from transforms.core.rows.column import python_value
from transforms.core.rows.common_type import PYTHON, as_type, plain_type
from transforms.core.rows.typed_cells import is_image_struct
from transforms.core.schema import Feature
from transforms.errors import EncodingError, bounded
from transforms.formats.columnar.arrow_types import flat_columns
from transforms.rows.row_types import check_names

# In the metadata of a batch: the columns that were mappings, as JSON.
_MAPPINGS = b"mappings"
NO_COLUMNS = (
    "Every row must have a column at least; found one without any. Leave it out."
)
_IMAGE_STRUCT = pa.struct([("bytes", pa.binary()), ("path", pa.string())])

Bools = npt.NDArray[np.bool_]


class UnusableValueError(EncodingError):
    """A row holds a value that no feature does.

    Attributes:
      reason: why the row is to be rejected.
    """

    def __init__(self, message: str, reason: Reason) -> None:
        super().__init__(message)
        self.reason = reason


def table_batch(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Returns rows that are in Arrow already, in plain types.

    Raises:
      EncodingError: two columns have one name, or one has none.
    """
    names = rows.schema.names
    if not names:
        raise EncodingError(NO_COLUMNS)
    check_names(names)
    for name, column in zip(names, rows.columns, strict=True):
        _check_column(name, column)
    return flat(dict(zip(names, rows.columns, strict=True)))


def _check_column(name: str, column: pa.Array) -> None:
    """Raises UnusableValueError for values that are not what Arrow says of them."""
    if _holds_unions(column.type):
        raise UnusableValueError(
            f"Every value of a row must be one that a feature can hold; {name!r} is "
            f"of {str(column.type)[:80]}. Convert it before it is written.",
            Reason.WRONG_TYPE,
        )
    if pa.types.is_primitive(column.type):
        return
    try:
        column.validate(full=True)
    except pa.ArrowInvalid as error:
        raise UnusableValueError(
            bounded(
                f"Every value must be one of its Arrow type, and text in UTF-8; "
                f"{name!r} holds something else: {error}. Convert it before it is "
                f"written."
            ),
            Reason.INVALID_ENCODING,
        ) from error


def _holds_unions(kind: pa.DataType) -> bool:
    """Whether values, or what is in them, may be of one type or another."""
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        kind = kind.value_type
    if pa.types.is_union(kind):
        return True
    return any(_holds_unions(kind.field(i).type) for i in range(kind.num_fields))


def flat(columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
    """Returns columns without structs, of plain types, by the order of their names."""
    whole = {name: _image_struct(column) for name, column in columns.items()}
    flat = flat_columns(pa.RecordBatch.from_pydict(whole))
    if len(flat) < len(columns):
        # A struct's field may have the name that another column has.
        raise EncodingError(
            f"Every feature must have a name of its own; the fields of structs take "
            f"names that other columns have: {', '.join(sorted(columns))[:200]}. "
            f"Rename one."
        )
    out = {}
    for name in sorted(flat):
        column = flat[name]
        if name not in columns and is_list(column.type):
            # A key that all mappings of a list lack is missing, whatever rows have it.
            bare = pc.and_(
                pc.greater(pc.list_value_length(column), 0), column.is_valid()
            )
            bare = pc.and_not(bare, pa.array(rows_holding(column)))
            column = pc.if_else(bare, pa.scalar(None, column.type), column)
        out[name] = as_type(column, _wide_type(plain_type(column.type, PYTHON)))
    rows = pa.RecordBatch.from_pydict(out)
    if all(name in flat for name in columns):
        return rows
    parents = [p for name, array in whole.items() for p in _parents(name, array)]
    return rows.replace_schema_metadata({_MAPPINGS: json.dumps(sorted(parents))})


def _parents(name: str, column: pa.Array) -> list[str]:
    """Returns the names that are of mappings in a column, and not of values."""
    kinds = [] if column.null_count == len(column) else [(name, column.type)]
    out = []
    while kinds:
        name, kind = kinds.pop()
        while is_list(kind):
            kind = kind.value_type
        if pa.types.is_struct(kind) and not is_image_struct(kind):
            out.append(name)
            kinds += [(f"{name}/{field.name}", field.type) for field in kind]
    return out


def values_of_row(rows: pa.RecordBatch, index: int) -> dict[str, Any]:
    """Returns the values of one row as Python objects."""
    columns = zip(rows.schema.names, rows.columns, strict=True)
    return {name: python_value(column[index]) for name, column in columns}


def mappings_in(rows: pa.RecordBatch) -> frozenset[str]:
    """Returns the columns of a batch that were mappings, as it has their values."""
    said = (rows.schema.metadata or {}).get(_MAPPINGS)
    return frozenset(json.loads(said) if said else ())


def _image_struct(column: pa.Array) -> pa.Array:
    """Returns images as Hugging Face stores them in one type, whatever is missing.

    A struct without fields is missing in all rows.
    """
    if pa.types.is_struct(column.type) and not column.type.num_fields:
        return pa.nulls(len(column))
    if pa.types.is_struct(column.type) and is_image_struct(column.type):
        return as_type(column, _IMAGE_STRUCT)
    return column


def _wide_type(kind: pa.DataType) -> pa.DataType:
    """Returns the type of 64 bits for numbers, also in lists; others as they are."""
    if pa.types.is_integer(kind):
        return pa.uint64() if kind == pa.uint64() else pa.int64()
    if pa.types.is_floating(kind):
        return pa.float64()
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_wide_type(kind.value_type), kind.list_size)
    return pa.list_(_wide_type(kind.value_type)) if is_list(kind) else kind


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
