"""Mappings and Arrow batches to serialised tf.train.Examples.

Without a schema the Python type of each value says what it becomes, row by row, and
whatever the other rows hold:

| value                                        | becomes                          |
| -------------------------------------------- | -------------------------------- |
| int, bool, NumPy integers and bools          | Int64List                        |
| float, NumPy floats                          | FloatList, rounded to float32    |
| str, bytes, bytearray, paths, UUID           | BytesList                        |
| an Enum                                      | as its value                     |
| list, tuple, range, array of one of these    | the same list, row by row; of    |
|                                              | floats, integers may be among it |
| None, NaT, pandas' NA, an empty list         | nothing: the key is left out     |

An empty array has a type, and becomes an empty list of it. With a schema the rules are
those of `transforms.core.rows.values`. Rows that become the same columns are encoded
together.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.codec.plain_row import plain_example
from transforms.codec.schemas import Coding, CodingFeature, SchemaLike, coding_of
from transforms.core.arrays import is_bytes, is_list, numpy_mask, rows_with
from transforms.core.example.encoder import encode_examples
from transforms.core.nesting import check_key
from transforms.core.rows.cast import cast
from transforms.core.rows.coerce import complaint
from transforms.core.rows.column import decoded
from transforms.core.rows.python_kinds import (
    OddValueError,
    family_of,
    plain_values,
)
from transforms.core.rows.python_value import python_value
from transforms.core.rows.record_columns import record_columns
from transforms.core.rows.tensors import PROTO
from transforms.core.rows.values import TAKEN, fitted_column, misfit
from transforms.core.schema import Feature, Kind, Missing
from transforms.errors import SHOWN_CHARS, EncodingError, bounded

__all__ = ["encode_example", "encode_rows", "encode_table"]

Row = Mapping[str, Any]
_Mask = npt.NDArray[np.bool_]

_SHOWN_ROW_CHARS = 200
# An Example without features.
_NOTHING = b"\n\x00"
# Columns of one of these, and of None, need no look at each value.
_OF_TYPE = {
    int: Kind.INT64,
    bool: Kind.BOOL,
    float: Kind.FLOAT,
    str: Kind.TEXT,
    bytes: Kind.BYTES,
}
_OF_FAMILIES: Mapping[frozenset[str], Kind] = {
    **dict.fromkeys(map(frozenset, (["int"], ["bool"], ["int", "bool"])), Kind.INT64),
    **dict.fromkeys(map(frozenset, (["float"], ["int", "float"])), Kind.FLOAT),
    **dict.fromkeys(
        map(frozenset, (["text"], ["bytes"], ["text", "bytes"])), Kind.BYTES
    ),
}
# What a column holds: its kind, and whether it holds lists.
_Form = tuple[Kind, bool]


def encode_example(mapping: Row, schema: SchemaLike | None = None) -> bytes:
    r"""Returns one row as a serialised tf.train.Example.

        >>> encode_example({"name": None, "id": 2})
        b'\n\r\n\x0b\n\x02id\x12\x05\x1a\x03\n\x01\x02'

    The order of the keys means nothing; a key whose value is None is left out. Many
    rows are encoded faster together: with `EncodeExamples` in a pipeline, with
    `encode_examples` from Arrow.

    Args:
      mapping: names to values.
      schema: the features: a `Schema`, a `pa.Schema`, a list of `Feature`, or a dict in
        the words of a spec, as in {"id": "int64", "points": {"kind": "float", "shape":
        [None, 2]}}. None: each value by its own Python type: integers and bools become
        an Int64List, floats a FloatList of float32, texts and bytes a BytesList, lists
        and arrays of these the same; nested ones are flattened, row by row.
        With a schema a label is its class id, or a name in its vocabulary; an image is
        the bytes of its file.

    Raises:
      SpecError: the schema is none.
      EncodingError: a value does not fit its feature, no feature can hold it, or the
        schema lacks its key; names row, feature and value.
    """
    coding = None if schema is None else coding_of(schema)
    plain = None
    if coding is None or coding.plain is not None:
        plain = plain_example(mapping, None if coding is None else coding.plain)
    return encode_rows([mapping], coding)[0] if plain is None else plain


def encode_rows(rows: Sequence[Row], coding: Coding | None) -> list[bytes]:
    """Returns n rows as n Examples; each is what `encode_example` gives.

    Raises:
      EncodingError: as `encode_example`; the row is numbered from 1.
    """
    if not rows:
        return []
    names = set().union(*rows)
    try:
        if coding is None:
            return _by_type(rows, _checked_names(names))
        odd = sorted(map(str, names - coding.names))
        if odd:
            _refuse_name(rows, odd[0])
        return _by_schema(rows, coding)
    except _RowError as error:
        raise EncodingError(
            bounded(f"row {error.index + 1} ({_shown(rows[error.index])}): {error}")
        ) from error


class _RowError(Exception):
    """What is wrong with one row.

    Attributes:
      index: of the row.
    """

    def __init__(self, message: str, index: int) -> None:
        super().__init__(message)
        self.index = index


def _shown(row: Row) -> str:
    return bounded(repr(row), _SHOWN_ROW_CHARS)


def _checked_names(names: set[str]) -> list[str]:
    for name in names:
        if not isinstance(name, str):
            raise EncodingError(
                f"Every feature must have a name that is text; found "
                f"{bounded(repr(name), SHOWN_CHARS)}. Rename it."
            )
        try:
            check_key(name)
        except ValueError as error:
            raise EncodingError(f"{bounded(str(error), 400)}. Rename it.") from error
    return sorted(names)


def _refuse_name(rows: Sequence[Row], name: str) -> NoReturn:
    index = next(i for i, row in enumerate(rows) if name in map(str, row))
    raise _RowError(
        f"the schema has no feature {name!r}; leave the key out, or add the feature",
        index,
    )


def _by_type(rows: Sequence[Row], names: Sequence[str]) -> list[bytes]:
    columns: dict[str, list[Any]] = {}
    forms: dict[str, _Form] = {}
    mixed: dict[str, list[_Form | None]] = {}
    for name in names:
        values = [row.get(name) for row in rows]
        kinds = {_OF_TYPE.get(kind) for kind in set(map(type, values)) - {type(None)}}
        if len(kinds) == 1 and None not in kinds:
            (kind,) = kinds
            assert kind is not None
            forms[name] = kind, False
        elif kinds:
            values, found = _formed(name, values)
            distinct = {form for form in found if form is not None}
            if len(distinct) > 1:
                mixed[name] = found
            elif distinct:
                (forms[name],) = distinct
            else:
                continue
        else:
            continue
        columns[name] = values
    parts: dict[tuple[_Form | None, ...], list[int]] = {}
    if not mixed:
        return _encoded(columns, forms, range(len(rows)))
    # Rows of one form each: what a row becomes must not depend on the others.
    for index, key in enumerate(zip(*mixed.values(), strict=True)):
        parts.setdefault(key, []).append(index)
    out = [b""] * len(rows)
    for key, places in parts.items():
        own = dict(zip(mixed, key, strict=True))
        kept = {name: form for name, form in own.items() if form is not None}
        part = {
            name: [values[index] for index in places]
            for name, values in columns.items()
            if name in forms or name in kept
        }
        records = _encoded(part, forms | kept, places)
        for index, record in zip(places, records, strict=True):
            out[index] = record
    return out


def _formed(name: str, values: list[Any]) -> tuple[list[Any], list[_Form | None]]:
    """Returns values in types that a column takes, and what each of them holds."""
    values = [
        list(value) if type(value) is range else value for value in plain_values(values)
    ]
    forms: list[_Form | None] = []
    for index, value in enumerate(values):
        try:
            form = _form(value)
        except OddValueError as error:
            raise _RowError(
                f"feature {name!r} cannot hold {bounded(repr(value), SHOWN_CHARS)} "
                f"({type(value).__name__}): {error}",
                index,
            ) from error
        forms.append(form)
        if form is None:
            values[index] = None
    return values, forms


def _form(value: Any) -> _Form | None:
    """Returns the form of a value; None for one that is missing, and an empty list."""
    if value is None:
        return None
    families: set[str]
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        return (Kind.FLOAT if value.dtype.kind == "f" else Kind.INT64), True
    many = isinstance(value, list | tuple | np.ndarray)
    if many:
        items: list[Any] = []
        _add_items(value, items)
        families = {family_of(type(v)) for v in plain_values(items) if v is not None}
        if not items:
            return None
    else:
        families = {family_of(type(value))}
    kind = _OF_FAMILIES.get(frozenset(families))
    if kind is None and many:
        raise OddValueError(
            "the values of a list must be numbers, or texts and bytes; it has "
            f"{', '.join(sorted(f or 'others' for f in families)) or 'nothing'}; "
            f"convert them, or give a schema"
        )
    if kind is None:
        raise OddValueError(
            "no rule says how such a value is stored; convert it, or give a schema "
            "that says its kind"
        )
    return kind, many


def _add_items(value: Any, items: list[Any]) -> tuple[int, ...]:
    """Adds the single values of nested lists, row by row; returns the lists' shape."""
    if isinstance(value, np.ndarray) and value.ndim:
        items += value.ravel().tolist()
        return tuple(value.shape)
    if not isinstance(value, list | tuple):
        items.append(value)
        return ()
    try:
        shapes = {_add_items(part, items) for part in value}
    except RecursionError as error:
        raise OddValueError("it is nested too deeply") from error
    if len(shapes) > 1:
        raise OddValueError(
            "its lists differ in length, which an Example does not keep; give a schema "
            "with the shape [None, None]"
        )
    return (len(value), *(shapes.pop() if shapes else ()))


def _encoded(
    columns: Mapping[str, list[Any]],
    forms: Mapping[str, _Form],
    places: Sequence[int],
) -> list[bytes]:
    """Returns rows of one form each as Examples.

    Args:
      columns: by name, n values each.
      forms: of each column.
      places: which rows they are; n of them.
    """
    if not columns:
        return [_NOTHING] * len(places)
    arrays = {}
    for name, values in columns.items():
        feature = Feature(name, forms[name][0])
        try:
            arrays[name] = fitted_column(values, feature)
        except OddValueError as error:
            raise _RowError(
                misfit(values, feature, error), places[max(error.index, 0)]
            ) from error
    return encode_examples(pa.record_batch(arrays))


def _by_schema(rows: Sequence[Row], coding: Coding) -> list[bytes]:
    columns = {}
    for each in coding.features:
        values = _filled([row.get(each.feature.name) for row in rows], each)
        if each.ids is not None:
            values = _numbered(values, each)
        try:
            column = fitted_column(values, each.feature)
        except OddValueError as error:
            index = max(error.index, 0)
            raise _RowError(misfit(values, each.given, error), index) from error
        if pa.types.is_nested(column.type) and not _has_lists(each.feature):
            index = next(i for i, v in enumerate(values) if v is not None)
            why = OddValueError("a single value is needed", index)
            raise _RowError(misfit(values, each.given, why), index)
        _check_limits(column, each)
        columns[each.feature.name] = column
    return _records(columns, coding, len(rows))


def _has_lists(feature: Feature) -> bool:
    return feature.is_list or feature.kind is Kind.BOX


def _records(
    columns: Mapping[str, pa.Array], coding: Coding, count: int
) -> list[bytes]:
    features = [each.feature for each in coding.features]
    if not features:
        return [_NOTHING] * count
    rows = pa.table(dict(columns))
    return encode_examples(pa.record_batch(record_columns(rows, features)))


def _filled(values: list[Any], each: CodingFeature) -> list[Any]:
    """Returns values with those that are missing filled in, as the feature says."""
    fill = _fill_of(each)
    if fill is None and each.feature.missing is not Missing.REJECT:
        return values
    values = plain_values(values)
    if fill is not None:
        return [fill if value is None else value for value in values]
    index = next((i for i, value in enumerate(values) if value is None), None)
    if index is not None:
        raise _RowError(
            f"feature {each.feature.name!r} must have a value; it has none", index
        )
    return values


def _fill_of(each: CodingFeature) -> Any:
    """Returns what a missing value becomes; None for nothing."""
    feature = each.feature
    fill: Any = feature.constant
    if fill is None and feature.missing is Missing.FILL:
        fill = feature.fill
    if fill is None or not feature.is_list:
        return fill
    return [fill] * (feature.values_each or 1)


def _numbered(values: list[Any], each: CodingFeature) -> list[Any]:
    """Returns class ids in the place of class names."""
    ids = each.ids
    assert ids is not None, "only labels with a vocabulary have names"
    assert each.limits is not None, "these limit their ids"
    unknown = each.limits[1] if each.limits[1] == len(ids) else None

    def number(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [number(part) for part in value]
        if not isinstance(value, str):
            return value
        return ids.get(value, unknown if unknown is not None else value)

    out = [number(value) for value in plain_values(values)]
    for index, value in enumerate(out):
        if isinstance(value, str):
            raise _RowError(
                f"feature {each.given.name!r} cannot hold "
                f"{bounded(repr(value), SHOWN_CHARS)}: it is no class of the "
                f"vocabulary ({len(ids):,} names)",
                index,
            )
    return out


def _check_limits(column: pa.Array, each: CodingFeature) -> None:
    if each.limits is None:
        return
    low, high = each.limits
    levels, values = [], column
    while is_list(values.type):
        levels.append(values)
        values = values.flatten()
    beyond = pc.or_(pc.less(values, low), pc.greater(values, high))
    if not pc.any(beyond).as_py():
        return
    bad = numpy_mask(beyond)
    place = int(np.argmax(bad))
    for lists in reversed(levels):
        bad = rows_with(lists, bad)
    raise _RowError(
        f"feature {each.given.name!r} cannot hold {values[place].as_py()}: it takes "
        f"integers from {low} to {high}",
        int(np.argmax(bad)),
    )


def encode_table(rows: pa.RecordBatch, coding: Coding | None) -> list[bytes]:
    """Returns the n rows of an Arrow batch as n Examples.

    Raises:
      EncodingError: a column or a value does not fit; names row, feature and value.
    """
    if coding is None:
        return encode_examples(rows) if rows.num_columns else []
    names = rows.schema.names
    places = {name: index for index, name in enumerate(names)}
    odd = sorted(places.keys() - coding.names)
    if odd or len(places) < len(names):
        raise EncodingError(
            f"A batch must have the columns of the schema, each once; found "
            f"{bounded(', '.join(odd or names), 300)}. Drop the others, or rename them."
        )
    columns = {}
    try:
        for each in coding.features:
            place = places.get(each.feature.name)
            column = pa.nulls(rows.num_rows) if place is None else rows.column(place)
            columns[each.feature.name] = _typed(column, each)
        return _records(columns, coding, rows.num_rows)
    except _RowError as error:
        raise EncodingError(bounded(f"row {error.index + 1}: {error}")) from error


def _typed(column: pa.Array, each: CodingFeature) -> pa.Array:
    """Returns a column of any Arrow type as the feature's, as strictly as values."""
    column = decoded(column)
    family = _family(column.type)
    taken, why = TAKEN.get(each.feature.kind, (("int", "float", "bool", "bytes"), ""))
    if each.ids is not None and family == "text":
        column, family = _numbered_column(column, each), "int"
    if family and family not in taken:
        raise EncodingError(
            f"feature {each.given.name!r} of kind {each.given.kind} cannot hold a "
            f"column of {bounded(str(column.type), 80)}: {why or 'cast it yourself'}"
        )
    is_serialised = each.feature.kind is Kind.TENSOR and is_bytes(column.type)
    if is_serialised and each.feature.encoding == PROTO:
        values = column
    else:
        found = cast(column, each.feature)
        if found.bad is not None:
            index = int(np.argmax(found.bad))
            shown = bounded(repr(python_value(column[index])), SHOWN_CHARS)
            why = complaint(each.feature, found.reason_at(index))
            raise _RowError(
                f"feature {each.given.name!r} of kind {each.given.kind} cannot hold "
                f"{shown}: {why}",
                index,
            )
        values = found.values
    fill = _fill_of(each)
    if values.null_count and fill is not None:
        given = [fill] if each.ids is None else _numbered([fill], each)
        filling = fitted_column(given, each.feature)
        places = pa.array(np.zeros(len(values), np.int64))
        values = pc.coalesce(values, filling.take(places))
    if values.null_count and each.feature.missing is Missing.REJECT:
        raise _RowError(
            f"feature {each.feature.name!r} must have a value; it has none",
            int(np.argmax(numpy_mask(values.is_null()))),
        )
    _check_limits(values, each)
    return values


def _numbered_column(column: pa.Array, each: CodingFeature) -> pa.Array:
    """Returns class ids in the place of class names, which may be in lists."""
    distinct = column
    while is_list(distinct.type):
        distinct = distinct.flatten()
    names = distinct.unique().drop_null().to_pylist()
    ids = dict(zip(names, _numbered(names, each), strict=True))

    def number(value: Any) -> Any:
        if isinstance(value, list):
            return [number(part) for part in value]
        return None if value is None else ids[value]

    return pa.array([number(value) for value in column.to_pylist()])


_FAMILIES: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (pa.types.is_boolean, "bool"),
    (pa.types.is_integer, "int"),
    (pa.types.is_floating, "float"),
    (pa.types.is_timestamp, "datetime"),
    (pa.types.is_date, "date"),
    (lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind), "text"),
    (is_bytes, "bytes"),
)


def _family(kind: pa.DataType) -> str:
    """Returns the family of a column's values, as `python_kinds` names it."""
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    while is_list(kind):
        kind = kind.value_type
    if pa.types.is_null(kind):
        return ""
    return next((name for is_of, name in _FAMILIES if is_of(kind)), "other")
