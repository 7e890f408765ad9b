"""Rows of Python values to Arrow batches in which each column has one type.

Rows arrive in bundles that no two runs cut alike, so nothing here may depend on which
rows meet: a batch says what its values are, and never makes them something else.

    {"id": 7, "name": "a"}, {"id": 8}         -> one batch, int64 and string
    {"id": 7}, {"id": "seven"}                -> two batches, int64 and string
    {"id": 7}, {"id": 7.5}                    -> one batch of float64

Integers join floats where float64 holds each of them, except in columns that are to
hold integers alone. An empty mapping is missing. Numbers have 64 bits.
"""

import dataclasses
import itertools
import json
import operator
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import is_list, rows_holding
from transforms.core.arrow_types import PYTHON, plain_type
from transforms.core.nesting import MAX_NESTING, check_key
from transforms.core.reasons import Reason
from transforms.core.rows.arrow_of import arrow_of
from transforms.core.rows.common_type import as_type
from transforms.core.rows.float32 import FLOAT64_EXACT
from transforms.core.rows.foreign import native_values
from transforms.core.rows.python_kinds import (
    OddValueError,
    family_of,
    plain_values,
    shown,
)
from transforms.core.rows.scalars import is_image_struct
from transforms.errors import EncodingError, bounded
from transforms.formats.columnar.arrow_batches import flat_columns

# Values of exactly these types become a column at once.
_TYPES: dict[type[Any], pa.DataType] = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
}
NO_ROW = (
    "Every element must be a row: a dict, beam.Row, named tuple, dataclass, an Arrow "
    "batch or table, or, with like= or features=, a serialised tf.train.Example"
)
_SHOWN_CHARS = 80
# In the metadata of a batch: the columns that were mappings, as JSON.
_MAPPINGS = b"mappings"
_NO_COLUMNS = (
    "Every row must have a column at least; found one without any. Leave it out."
)
_NESTED = frozenset(["array", "list", "mapping"])
MOST_CELLS = 1 << 22
"""Rows times columns of a batch: a missing value takes the room of a number."""
_IMAGE_STRUCT = pa.struct([("bytes", pa.binary()), ("path", pa.string())])

Row = Mapping[str, Any]


class UnusableValueError(EncodingError):
    """A row holds a value that no feature does.

    Attributes:
      reason: why the row is to be rejected.
    """

    def __init__(self, message: str, reason: Reason) -> None:
        super().__init__(message)
        self.reason = reason


def as_mapping(kind: type[Any]) -> Callable[[Any], Row] | None:
    """Returns what makes a mapping of a row of a type; None where it is no row.

    Takes dicts and other mappings, `beam.Row`, named tuples and dataclasses.
    """
    if kind is dict:
        return lambda row: row
    if issubclass(kind, Mapping):
        return dict
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        names = kind._fields
        return lambda row: dict(zip(names, row, strict=True))
    if dataclasses.is_dataclass(kind):
        fields = [field.name for field in dataclasses.fields(kind)]
        return lambda row: {name: getattr(row, name) for name in fields}
    # beam.Row, which is not imported here.
    if kind.__name__ == "Row" and kind.__module__.startswith("apache_beam."):
        # Not a copy, for nothing changes a row.
        return vars
    return None


def how_to_map(kind: type[Any]) -> str:
    """Returns what to do with elements of a type that is no row, as a sentence."""
    if kind.__name__ == "DataFrame" and kind.__module__.split(".")[0] == "pandas":
        return (
            "Map it to a row batch first: "
            "beam.Map(pa.Table.from_pandas, preserve_index=False)."
        )
    return "Map it to a row first."


_CONVERTERS: dict[type[Any], Callable[[Any], Row] | None] = {}


def _converter(kind: type[Any]) -> Callable[[Any], Row] | None:
    if kind not in _CONVERTERS:
        _CONVERTERS[kind] = as_mapping(kind)
    return _CONVERTERS[kind]


def table_batch(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Returns rows that are in Arrow already, in plain types.

    Raises:
      EncodingError: two columns have one name, or one has none.
    """
    names = rows.schema.names
    if not names:
        raise EncodingError(_NO_COLUMNS)
    for name in names:
        _check_name(name)
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise EncodingError(
            f"Every column of a table must have a name of its own; {twice!r} is there "
            f"{names.count(twice)} times. Rename it."
        )
    for name, column in zip(names, rows.columns, strict=True):
        _check_column(name, column)
    return _flat(dict(zip(names, rows.columns, strict=True)))


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


def _flat(columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
    """Returns columns without structs, of plain types, by the order of their names."""
    whole = {name: _image_struct(column) for name, column in columns.items()}
    flat = flat_columns(pa.RecordBatch.from_pydict(whole))
    if len(flat) < len(columns):
        # A struct's field may have the name that another column has.
        raise _twice_named(columns)
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
        out[name] = _widest(column)
    rows = pa.RecordBatch.from_pydict(out)
    if all(name in flat for name in columns):
        return rows
    parents = [p for name, each in whole.items() for p in _parents(name, each)]
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


def mappings_in(rows: pa.RecordBatch) -> frozenset[str]:
    """Returns the columns of a batch that were mappings, as it has their values."""
    said = (rows.schema.metadata or {}).get(_MAPPINGS)
    return frozenset(json.loads(said) if said else ())


def _twice_named(columns: Iterable[str]) -> EncodingError:
    return EncodingError(
        f"Every feature must have a name of its own; the fields of structs take "
        f"names that other columns have: {', '.join(sorted(columns))[:200]}. "
        f"Rename one."
    )


def _image_struct(column: pa.Array) -> pa.Array:
    """Returns images as Hugging Face stores them in one type, whatever is missing.

    A struct without fields is missing in all rows.
    """
    if pa.types.is_struct(column.type) and not column.type.num_fields:
        return pa.nulls(len(column))
    if pa.types.is_struct(column.type) and is_image_struct(column.type):
        return as_type(column, _IMAGE_STRUCT)
    return column


def _widest(column: pa.Array) -> pa.Array:
    """Returns numbers, and those in lists, with 64 bits."""
    return as_type(column, _wide_type(plain_type(column.type, PYTHON)))


def _wide_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_integer(kind):
        return pa.uint64() if kind == pa.uint64() else pa.int64()
    if pa.types.is_floating(kind):
        return pa.float64()
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_wide_type(kind.value_type), kind.list_size)
    return pa.list_(_wide_type(kind.value_type)) if is_list(kind) else kind


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
        raise EncodingError(_NO_COLUMNS)
    more = {"images": images, "integers": integers}
    names = _names(rows)
    if len(rows) > 1 and len(rows) * len(names) > MOST_CELLS:
        middle = len(rows) // 2
        yield from batches_of(rows[:middle], **more)
        yield from batches_of(rows[middle:], **more)
        return
    columns: dict[str, pa.Array] = {}
    mixed: list[str] = []

    def column_of(name: str, values: list[Any]) -> pa.Array | None:
        array = _of_one_type(values, apart=name in integers)
        if array is not None:
            return array
        try:
            return _as_column(
                native_values(values, is_image=name in images),
                apart=name in integers,
            )
        except OddValueError:
            mixed.append(name)
            return None

    for name, values in _values(rows, names):
        array = column_of(name, values)
        if array is not None:
            columns[name] = array
    if not mixed:
        yield _flat(columns)
        return
    if len(rows) == 1:
        raise _unusable(rows[0], mixed[0], is_image=mixed[0] in images)
    for part in _alike(rows, mixed):
        if len(part) == len(rows):
            # Of one family each, and still no column: take them row by row.
            for row in part:
                yield from batches_of([row], **more)
        else:
            yield from batches_of(part, **more)


def _values(
    rows: Sequence[Row], names: Sequence[str]
) -> Iterator[tuple[str, list[Any]]]:
    """Yields each name with a value of each row; None where it is missing."""
    try:
        # Row by row, for many wide rows do not fit into the processor's cache. One name
        # alone would give values, not tuples of them.
        found = map(operator.itemgetter(*names, names[0]), rows)
        flat = list(itertools.chain.from_iterable(found))
    except KeyError:
        # Faster than to ask each row for each name, where rows have few of them.
        columns: dict[str, list[Any]] = {name: [None] * len(rows) for name in names}
        for place, row in enumerate(rows):
            for name, value in row.items():
                columns[name][place] = value
        yield from columns.items()
    else:
        for place, name in enumerate(names):
            yield name, flat[place :: len(names) + 1]


def _of_one_type(values: list[Any], *, apart: bool) -> pa.Array | None:
    """Returns plain values of one type as a column; None where they are others."""
    kinds = set(map(type, values)) - {type(None)}
    if kinds == {int, float} and not apart:
        kinds = {float}
    if len(kinds) != 1:
        return None
    target = _TYPES.get(kinds.pop())
    if target is None:
        return None
    try:
        # Refuses integers that int64, or among floats float64, does not hold.
        found = pa.array(values, target)
    except (pa.ArrowException, ValueError, OverflowError):
        return None
    return found if isinstance(found, pa.Array) else None


def _names(rows: Sequence[Row]) -> list[str]:
    names = set().union(*rows)
    for name in names:
        _check_name(name)
    return sorted(names)


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not name:
        raise EncodingError(
            f"Every value of a row must have a name, which is text; found "
            f"{bounded(repr(name), _SHOWN_CHARS)}. Rename it."
        )
    if "\0" in name:
        # Columns beside the rows have such names.
        raise EncodingError(
            f"The name of a value must hold no NUL character; found "
            f"{bounded(repr(name), _SHOWN_CHARS)}. Rename it."
        )
    try:
        check_key(name)
    except ValueError as error:
        raise EncodingError(f"{bounded(str(error), 400)}. Rename it.") from error


def _as_column(values: list[Any], *, apart: bool = False) -> pa.Array:
    """Returns values of one family, or integers among floats, as a column.

    Raises:
      OddValueError: they are of several families, or of none.
    """
    values = plain_values(values)
    families = _families(values)
    if families & _NESTED or "" in families:
        values = [_without_records(value) for value in values]
        families = _families(values)
    if families == {"int", "float"} and not apart:
        if any(
            family_of(type(v)) == "int" and abs(int(v)) > FLOAT64_EXACT
            for v in values
            if v is not None
        ):
            raise OddValueError("float64 does not hold an integer among floats")
        floats = [None if value is None else float(value) for value in values]
        return pa.array(floats, pa.float64())
    if families & _NESTED:
        arrays = [value for value in values if isinstance(value, np.ndarray)]
        deep = {_likeness(array) for array in arrays if array.ndim > 1}
        if len(deep) > 1 or (deep and len(arrays) < sum(v is not None for v in values)):
            raise OddValueError("arrays of several types or shapes")
    if len(families) > 1 and families != {"array", "list"}:
        raise OddValueError("values of several kinds")
    column = arrow_of(values)
    if families & _NESTED and _holds_lists_of_structs(column.type):
        found: dict[tuple[str, ...], set[bool]] = {}
        for value in values:
            _note_lists(value, (), found)
        if any(len(kinds) > 1 for kinds in found.values()):
            raise OddValueError("lists of mappings beside empty ones")
    return column


def _holds_lists_of_structs(kind: pa.DataType) -> bool:
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
        for key, part in value.items():
            _note_lists(part, (*path, key), found)
    elif isinstance(value, list | tuple):
        holds = any(isinstance(part, Mapping) for part in value)
        found.setdefault(path, set()).add(holds)
        for part in value:
            if isinstance(part, Mapping):
                _note_lists(part, (*path, ""), found)


def _families(values: Sequence[Any]) -> set[str]:
    return {family_of(kind) for kind in set(map(type, values)) - {type(None)}}


def _without_records(value: Any, level: int = 0) -> Any:
    """Returns a value with plain mappings for rows of other types, wherever in it.

    Coders of Beam turn nested rows from one type to another. Empty ones are missing.
    """
    if level > MAX_NESTING:
        # Refused later, with words for it.
        return value
    convert = _converter(type(value))
    if convert is not None:
        row = convert(value)
        parts = {key: _without_records(part, level + 1) for key, part in row.items()}
        return parts or None
    if isinstance(value, list | tuple) and any(
        issubclass(kind, list | tuple) or _converter(kind) is not None
        for kind in set(map(type, value))
    ):
        return [_without_records(part, level + 1) for part in value]
    return value


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
        return family, frozenset(_likeness(part, level + 1) for part in value)
    if family == "mapping":
        parts = ((str(key), _likeness(v, level + 1)) for key, v in value.items())
        return family, frozenset(parts)
    return family


def _unusable(row: Row, name: str, *, is_image: bool) -> UnusableValueError:
    value: Any = row.get(name)
    is_wide = family_of(type(value)) == "int" and not -(2**63) <= value < 2**63
    try:
        _as_column(native_values([value], is_image=is_image))
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
