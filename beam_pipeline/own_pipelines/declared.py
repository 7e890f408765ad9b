"""What is said of columns: by a spec, a schema, or the type of the rows."""

import collections
import datetime
import decimal
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from apache_beam.typehints import typehints
from apache_beam.typehints.row_type import RowTypeConstraint

from beam_pipeline.settings.spec import FeatureSpec, Spec
from transforms.core.infer.typed import infer_typed
from transforms.core.rows.arrow_of import arrow_of
from transforms.core.schema import Feature, Kind
from transforms.rows.inferred import Declared

_TYPES: Mapping[Any, pa.DataType] = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bytes: pa.binary(),
    datetime.datetime: pa.timestamp("us"),
    datetime.date: pa.date32(),
    datetime.time: pa.time64("us"),
    datetime.timedelta: pa.duration("us"),
    decimal.Decimal: pa.decimal128(38, 9),
}
_LISTS = (list, tuple, collections.abc.Sequence, collections.abc.Iterable)


def declared_by(
    features: Sequence[Feature], *, takes_floats: bool = False
) -> dict[str, Declared]:
    """Returns the columns of which given features say the kind.

    Args:
      features: of a schema or an earlier dataset.
      takes_floats: whether whole floats are integers, as in files.
    """
    out: dict[str, Declared] = {}
    for feature in features:
        if feature.derived or feature.constant is not None:
            continue
        for name in {feature.source_column, feature.name}:
            earlier = out.get(name, Declared(feature.kind))
            single = earlier.kind is feature.kind and not feature.separator
            kind = feature.kind if single else None
            out[name] = Declared(kind, takes_floats=takes_floats)
    return out


def declared_in(spec: Spec) -> dict[str, Declared]:
    """Returns the columns of which a spec says the kind."""
    out: dict[str, Declared] = {}
    for name, said in spec.features.items():
        kind = kind_of(said)
        if kind is None or said.constant is not None or said.path is not None:
            continue
        column = said.column or name
        earlier = out.get(column)
        # Text with a separator is a list of its parts.
        single = earlier is None and not said.separator
        out[column] = Declared(kind if single else None)
    for column in spec.image_columns or ():
        out.setdefault(column, Declared(Kind.IMAGE))
    for column in spec.drop:
        out.setdefault(column, Declared())
    return out


def kind_of(said: FeatureSpec) -> Kind | None:
    """Returns the kind that a spec says; None where it leaves it open."""
    if said.kind is not None:
        return Kind(said.kind)
    return Kind.LABEL if said.vocabulary is not None else None


def types_of_rows(kind: Any) -> dict[str, Declared]:
    """Returns what the element type of a PCollection of rows says of its columns.

    Types that it leaves open, `Any` or a union, are inferred.
    """
    if not isinstance(kind, RowTypeConstraint):
        row_type = (
            RowTypeConstraint.from_user_type(kind) if isinstance(kind, type) else None
        )
        if row_type is None:
            return {}
        kind = row_type
    out: dict[str, Declared] = {}
    for name, hint in kind._fields:
        out |= _types_of(name, hint)
    return out


def _types_of(name: str, hint: Any) -> dict[str, Declared]:
    inner = types_of_rows(_without_none(hint))
    if inner:
        return {f"{name}/{key}": said for key, said in inner.items()}
    kind = _arrow_type(hint)
    if kind is None:
        return {}
    feature, _ = infer_typed({name: pa.nulls(0, kind)})[name]
    # What bytes and texts are, images or paths of them, their values say.
    is_open = feature.kind in (Kind.BYTES, Kind.TEXT, Kind.TIMESTAMP)
    return {name: Declared(None if is_open else feature.kind, kind)}


def _without_none(hint: Any) -> Any:
    if isinstance(hint, typehints.UnionConstraint):
        parts: Sequence[Any] = list(hint.union_types)
    elif isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        parts = typing.get_args(hint)
    else:
        return hint
    rest = [member for member in parts if member is not type(None)]
    return rest[0] if len(rest) == 1 else None


def _arrow_type(hint: Any) -> pa.DataType | None:
    hint = _without_none(hint)
    if hint in _TYPES:
        return _TYPES[hint]
    if isinstance(hint, type) and issubclass(hint, np.generic):
        return _numpy_type(hint)
    item: Any = None
    if isinstance(hint, typehints.ListConstraint | typehints.SequenceTypeConstraint):
        item = hint.inner_type
    elif typing.get_origin(hint) in _LISTS:
        arguments = [a for a in typing.get_args(hint) if a is not Ellipsis]
        item = arguments[0] if len(set(arguments)) == 1 else None
    inner = None if item is None else _arrow_type(item)
    return None if inner is None else pa.list_(inner)


def _numpy_type(kind: type[np.generic]) -> pa.DataType | None:
    try:
        inferred = arrow_of([kind(0)]).type
    except (TypeError, ValueError):
        return None
    if pa.types.is_integer(inferred):
        return pa.int64()
    return pa.float64() if pa.types.is_floating(inferred) else inferred
