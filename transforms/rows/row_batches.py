"""Rows, of Python values or in Arrow, to batches in which each column has one type.

Rows arrive in bundles that no two runs cut alike, so nothing here may depend on which
rows meet: a batch says what its values are, and never makes them something else.

    {"id": 7, "name": "a"}, {"id": 8}         -> one batch, int64 and string
    {"id": 7}, {"id": "seven"}                -> two batches, int64 and string
    {"id": 7}, {"id": 7.5}                    -> one batch of float64
    struct<x: int32, name: large_string> s    -> int64 s/x, string s/name
    struct<bytes, path> of an image           -> stays

Integers join floats where float64 holds each of them, except in columns that are to
hold integers alone. An empty mapping is missing. Numbers, and those in lists, have 64
bits; columns are in the order of their names. The metadata of a batch says which
columns were mappings.
"""

import functools
import itertools
import json
import operator
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import is_list, rows_holding
from transforms.core.json_text import MAX_NESTING
from transforms.core.reasons import Reason
from transforms.core.rows.column import python_value
from transforms.core.rows.common_type import PYTHON, as_type, plain_type
from transforms.core.rows.natural_arrays import arrow_of, of_one_type
from transforms.core.rows.python_kinds import (
    OddValueError,
    family_of,
    native_values,
    plain_values,
    shown,
)
from transforms.core.rows.typed_cells import is_image_struct
from transforms.errors import EncodingError, bounded
from transforms.formats.columnar.arrow_types import flat_columns
from transforms.rows.row_types import Row, check_name, check_names, converter

_NESTED = frozenset(["array", "list", "mapping"])
MOST_CELLS = 1 << 22
"""Rows times columns of a batch: a missing value takes the room of a number."""
# In the metadata of a batch: the columns that were mappings, as JSON.
_MAPPINGS = b"mappings"
NO_COLUMNS = (
    "Every row must have a column at least; found one without any. Leave it out."
)
_IMAGE_STRUCT = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


class UnusableValueError(EncodingError):
    """A row holds a value that no feature does.

    Attributes:
      reason: why the row is to be rejected.
    """

    def __init__(self, message: str, reason: Reason) -> None:
        super().__init__(message)
        self.reason = reason


def batches_of(
    rows: Sequence[Row],
    *,
    images: Collection[str] = (),
    integers: Collection[str] = (),
) -> Iterator[pa.RecordBatch]:
    """Yields the rows as batches of pure columns.

    Rows that differ in the kind of a value are in different batches; which ones, and in
    what order, does not matter to what is made of them.

    Args:
      rows: n of them, at least one. A key that one lacks is missing there.
      images: columns whose arrays are pixels; they become PNG files.
      integers: columns whose integers and floats are kept apart.

    Raises:
      EncodingError: a row has no name or no value that a feature can hold.
    """
    if not all(rows):
        raise EncodingError(NO_COLUMNS)
    more = {"images": images, "integers": integers}
    names = [*set().union(*rows)]
    for name in names:
        check_name(name)
    names.sort()
    if len(rows) > 1 and len(rows) * len(names) > MOST_CELLS:
        middle = len(rows) // 2
        yield from batches_of(rows[:middle], **more)
        yield from batches_of(rows[middle:], **more)
        return
    columns: dict[str, pa.Array] = {}
    mixed: list[str] = []
    for name, values in values_of(rows, names):
        try:
            columns[name] = column_of(
                values, is_image=name in images, apart=name in integers, pure=True
            )
        except OddValueError:
            mixed.append(name)
    if not mixed:
        yield flat(columns)
        return
    if len(rows) == 1:
        raise _unusable(rows[0], mixed[0], is_image=mixed[0] in images)
    for group in _alike(rows, mixed):
        if len(group) == len(rows):
            # Of one family each, and still no column: take them row by row.
            for row in group:
                yield from batches_of([row], **more)
        else:
            yield from batches_of(group, **more)


def values_of(
    rows: Sequence[Row], names: Sequence[str]
) -> Iterator[tuple[str, list[Any]]]:
    """Yields each name with a value of each row; None where it is missing."""
    try:
        # Row by row, for many wide rows do not fit into the processor's cache. One name
        # alone would give values, not tuples of them.
        row_values = map(operator.itemgetter(*names, names[0]), rows)
        cells = list(itertools.chain.from_iterable(row_values))
    except KeyError:
        # Faster than to ask each row for each name, where rows have few of them.
        columns: dict[str, list[Any]] = {name: [None] * len(rows) for name in names}
        for index, row in enumerate(rows):
            for name, value in row.items():
                columns[name][index] = value
        yield from columns.items()
    else:
        for index, name in enumerate(names):
            yield name, cells[index :: len(names) + 1]


def column_of(
    values: list[Any],
    *,
    is_image: bool = False,
    apart: bool = False,
    pure: bool = False,
) -> pa.Array:
    """Returns n values of one column, of whatever library, as an Arrow array.

    Rows inside values become mappings.

    Args:
      values: n of them; None where one is missing.
      is_image: whether arrays are the pixels of images; they become PNG files.
      apart: whether integers do not join floats.
      pure: whether all values must be of one family, so that the column says what they
        are, whatever rows came together.

    Raises:
      OddValueError: a value does not fit the others, or Arrow has no type for it.
    """
    column = of_one_type(values, apart=apart)
    if column is not None:
        return column
    values = plain_values(native_values(values, is_image=is_image))
    families = _families(values)
    if families & _NESTED or "" in families:
        values = [_without_records(value) for value in values]
        families = _families(values)
    if not pure or (families == {"int", "float"} and not apart):
        return arrow_of(values)
    _check_alike(values, families)
    column = arrow_of(values)
    if families & _NESTED and _holds_lists_of_structs(column.type):
        by_path: dict[tuple[str, ...], set[bool]] = {}
        for value in values:
            _note_lists(value, (), by_path)
        if any(len(kinds) > 1 for kinds in by_path.values()):
            raise OddValueError("lists of mappings beside empty ones")
    return column


def _check_alike(values: list[Any], families: set[str]) -> None:
    """Raises OddValueError for values of several families, or arrays of several."""
    if families & _NESTED:
        arrays = [value for value in values if isinstance(value, np.ndarray)]
        deep = {_likeness(array) for array in arrays if array.ndim > 1}
        if len(deep) > 1 or (deep and len(arrays) < sum(v is not None for v in values)):
            raise OddValueError("arrays of several types or shapes")
    if len(families) > 1 and families != {"array", "list"}:
        raise OddValueError("values of several kinds")


def _holds_lists_of_structs(kind: pa.DataType) -> bool:
    """Whether a type has lists of mappings at any depth."""
    if is_list(kind):
        inner = kind.value_type
        return pa.types.is_struct(inner) or _holds_lists_of_structs(inner)
    if pa.types.is_struct(kind):
        return any(_holds_lists_of_structs(field.type) for field in kind)
    return False


def _note_lists(
    value: Any, path: tuple[str, ...], found: dict[tuple[str, ...], set[bool]]
) -> None:
    """Notes for each path of keys whether its lists hold mappings, or nothing.

    A list of mappings becomes a column for each key, and an empty list cannot say for
    which: it is in a batch of its own, whatever rows it came with.
    """
    if isinstance(value, Mapping):
        for key, child in value.items():
            _note_lists(child, (*path, key), found)
    elif isinstance(value, list | tuple):
        holds = any(isinstance(child, Mapping) for child in value)
        found.setdefault(path, set()).add(holds)
        for child in value:
            if isinstance(child, Mapping):
                _note_lists(child, (*path, ""), found)


def _families(values: Sequence[Any]) -> set[str]:
    """Returns the families of values as `family_of` names them; None has no family."""
    return {family_of(kind) for kind in set(map(type, values)) - {type(None)}}


def _without_records(value: Any, above: tuple[int, ...] = ()) -> Any:
    """Returns a value with plain mappings for rows of other types, wherever in it.

    Coders of Beam turn nested rows from one type to another. Empty ones are missing.

    Args:
      value: any.
      above: ids of what it is in.
    """
    if len(above) > MAX_NESTING or id(value) in above:
        # Refused later, with words for it.
        return value
    convert = converter(type(value))
    if convert is None and not (
        isinstance(value, list | tuple)
        and any(
            issubclass(kind, list | tuple) or converter(kind) is not None
            for kind in set(map(type, value))
        )
    ):
        return value
    inside = functools.partial(_without_records, above=(*above, id(value)))
    if convert is None:
        return list(map(inside, value))
    return {key: inside(child) for key, child in convert(value).items()} or None


def _alike(rows: Sequence[Row], names: Sequence[str]) -> list[list[Row]]:
    """Returns the rows grouped by the families of some of their values."""
    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        plain = plain_values([row.get(name) for name in names])
        values = map(_without_records, plain)
        groups.setdefault(tuple(map(_likeness, values)), []).append(row)
    return list(groups.values())


def _likeness(value: Any, level: int = 0) -> object:
    """Returns a word for values that go into one column."""
    if value is None or level > MAX_NESTING:
        return ""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape
    family = family_of(type(value))
    if family == "datetime":
        return family, value.tzinfo is not None
    if family == "datetime64":
        return family, value.dtype.str
    if family == "list":
        return family, frozenset(_likeness(child, level + 1) for child in value)
    if family == "mapping":
        parts = ((str(key), _likeness(v, level + 1)) for key, v in value.items())
        return family, frozenset(parts)
    return family


def _unusable(row: Row, name: str, *, is_image: bool) -> UnusableValueError:
    """Returns the error about a value of one row that no feature can hold."""
    value: Any = row.get(name)
    is_wide = family_of(type(value)) == "int" and not -(2**63) <= value < 2**63
    try:
        column_of([value], is_image=is_image, pure=True)
    except OddValueError as error:
        why = str(error)
    else:
        why = f"{shown(value)} cannot be held"
    return UnusableValueError(
        bounded(
            f"Every value of a row must be one that a feature can hold; {name!r} is "
            f"not: {why}. Convert it before it is written, or leave it out."
        ),
        Reason.OUT_OF_RANGE if is_wide else Reason.WRONG_TYPE,
    )


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
