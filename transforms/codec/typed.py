"""Schemas of Examples: what may be given as one, and rows and batches under it.

| given                                         | means                               |
| --------------------------------------------- | ----------------------------------- |
| `Schema`, a list of `Feature`                 | itself                              |
| {"id": "int64", "box": {"kind": "box"}}       | the words of a spec's features      |

An Example has no rows, files or classes of its own, so three kinds are taken as what is
stored of them: an image is its bytes, a label its class id (or a name in the schema's
vocabulary), and what was derived from an image is a value like any other.

What a value may be, `transforms.core.rows.feature_values` decides, of columns of Arrow,
too.
"""

import collections
import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import is_bytes, numpy_mask
from transforms.core.example.encoder import encode_examples
from transforms.core.rows.column import complaint, python_value, reason_of
from transforms.core.rows.common_type import plain_array
from transforms.core.rows.conform import contract_faults, filling_of
from transforms.core.rows.feature_values import (
    PLAIN_TYPES,
    fitted_column,
    misfit,
    strict_cast,
)
from transforms.core.rows.python_kinds import (
    OddValueError,
    family_of_column,
    plain_values,
)
from transforms.core.rows.record_columns import record_columns
from transforms.core.rows.tensors import PROTO, check_shape
from transforms.core.schema import Feature, Kind, Missing, Schema, Unknown
from transforms.errors import SHOWN_CHARS, EncodingError, SpecError, bounded
from transforms.formats.tfrecord_files.typed_rows import SINGLE, Single

SchemaLike: TypeAlias = (
    Schema | Sequence[Feature] | Mapping[str, str | Mapping[str, Any]]
)

Row: TypeAlias = Mapping[str, Any]
# An Example without features.
NOTHING = b"\n\x00"
# Words of a spec that `Feature` calls otherwise, and those that it shares.
_RENAMED = {"label": "is_label"}
_WORDS = (
    "kind",
    "shape",
    "dtype",
    "encoding",
    "unit",
    "missing",
    "fill",
    "constant",
    "vocabulary",
    "unknown",
    "inexact_integers",
)
_UNITS = ("s", "ms", "us", "ns")


@dataclasses.dataclass(frozen=True, slots=True)
class CodingFeature:
    """One feature of Examples.

    Attributes:
      feature: as Examples hold it: never a label, an image or derived.
      given: as the schema has it.
      ids: of a label with a vocabulary: class name -> id.
    """

    feature: Feature
    given: Feature
    ids: Mapping[str, int] | None = None


@dataclasses.dataclass(frozen=True)
class Coding:
    """A schema, in the terms of Examples.

    Attributes:
      features: in the schema's order, without internal ones.
      plain: the Python type of each feature's values; None where one of them takes
        values of several, or has more to say of them.
    """

    features: tuple[CodingFeature, ...]
    plain: Mapping[str, type] | None = None

    @functools.cached_property
    def single(self) -> list[Single]:
        """The features, of single values all, as `single_row` takes them."""
        return [
            (coded.feature.name, *SINGLE[coded.feature.kind]) for coded in self.features
        ]

    @property
    def names(self) -> frozenset[str]:
        """The features' names."""
        return frozenset(coded.feature.name for coded in self.features)


def coding_of(schema: SchemaLike) -> Coding:
    """Returns a schema in the terms of Examples.

    Raises:
      SpecError: it is no schema, or contradicts itself.
    """
    if isinstance(schema, Schema):
        features: list[Any] = list(schema.features)
    elif isinstance(schema, Mapping):
        features = [_said(name, said) for name, said in schema.items()]
    elif isinstance(schema, Sequence) and not isinstance(schema, str | bytes):
        features = list(schema)
    else:
        features = [schema]
    for feature in features:
        if not isinstance(feature, Feature):
            raise SpecError(
                f"schema must be a Schema, a list of Feature, or a dict of features, "
                f"as in {{'id': 'int64'}}; found {bounded(repr(feature), 80)}."
            )
    try:
        return _cached_coding(Schema(tuple(features)))
    except TypeError as error:
        # Of a feature that is no value, as with a list for its shape.
        raise SpecError(
            f"schema: shapes and vocabularies of Feature must be tuples; {error}."
        ) from error


# A user who encodes row by row gives the same schema each time.
@functools.lru_cache(maxsize=16)
def _cached_coding(schema: Schema) -> Coding:
    """Returns how the features of a schema are encoded; SpecError for an unfit one."""
    features = list(map(_coding_feature, schema.stored))
    keys = collections.Counter(k for c in features for k in c.feature.record_keys)
    for key, count in keys.most_common(1):
        if count > 1:
            raise SpecError(
                f"All features of a schema must be stored under keys of their own; "
                f"{key!r} is there {count} times. Rename one."
            )
    plain: dict[str, Any] = {c.feature.name: _plain_type(c) for c in features}
    return Coding(tuple(features), None if None in plain.values() else plain)


def _plain_type(each: CodingFeature) -> type | None:
    """Returns the type of all values of a feature; None where there is more to it."""
    bare = Feature(each.feature.name, each.feature.kind)
    said = dataclasses.replace(
        each.feature, column="", is_label=False, pattern="", separator="", states=""
    )
    is_plain = said == bare and each.given.kind is not Kind.LABEL
    return PLAIN_TYPES.get(each.feature.kind) if is_plain else None


def _said(name: str, said: Any) -> Feature:
    """Returns a feature in the words of a spec."""
    words = {"kind": said} if isinstance(said, str) else said
    if not isinstance(words, Mapping) or "kind" not in words:
        raise SpecError(
            f"schema: of feature {name!r} the kind must be said, as in "
            f"{{{name!r}: 'int64'}}; found {bounded(repr(said), 80)}."
        )
    odd = [word for word in words if word not in (*_WORDS, *_RENAMED)]
    if odd:
        raise SpecError(
            f"schema: feature {name!r} has no setting {odd[0]!r} here; it may have "
            f"{', '.join((*_WORDS, *_RENAMED))}."
        )
    fields = {_RENAMED.get(word, word): value for word, value in words.items()}
    try:
        return Feature.from_json({"name": name, **fields})
    except (ValueError, TypeError) as error:
        raise SpecError(f"schema: feature {name!r}: {error}.") from error


def _coding_feature(given: Feature) -> CodingFeature:
    """Returns a feature as it is encoded: labels as ids, images and files as bytes."""
    _check(given)
    changes: dict[str, Any] = {"derived": "", "derived_from": "", "vocabulary": None}
    ids = None
    if given.kind is Kind.LABEL:
        changes |= {"kind": Kind.INT64, "unknown": Unknown.REJECT, "at_least": 0}
        changes |= {"at_most": None, "allowed": None, "matches": ""}
        if given.vocabulary is not None:
            ids = {name: number for number, name in enumerate(given.vocabulary)}
            others = given.unknown is Unknown.OOV
            changes["at_most"] = len(ids) - (not others)
    elif given.kind in (Kind.IMAGE, Kind.FILE):
        changes |= {"kind": Kind.BYTES, "inline": False}
    elif given.kind is Kind.TENSOR:
        changes["encoding"] = given.encoding or "raw"
    elif given.kind is Kind.TIMESTAMP:
        changes["unit"] = given.unit or "s"
    return CodingFeature(dataclasses.replace(given, **changes), given, ids)


def _check(feature: Feature) -> None:
    """Raises SpecError where a feature contradicts itself."""
    where = f"schema: feature {feature.name!r}"
    if not isinstance(feature.name, str) or not feature.name:
        raise SpecError(f"{where} must have a name, which is text.")
    if feature.kind is Kind.TIMESTAMP and feature.unit not in ("", *_UNITS):
        raise SpecError(
            f"{where}: unit must be one of {', '.join(_UNITS)}; found {feature.unit!r}."
        )
    check_shape(feature)


def encode_typed(rows: Sequence[Row], coding: Coding) -> list[bytes]:
    """Returns n rows as n Examples; the schema has all of their keys.

    Raises:
      OddValueError: a value does not fit its feature.
    """
    columns = {}
    for coded in coding.features:
        values = [row.get(coded.feature.name) for row in rows]
        if coded.ids is not None:
            values = _numbered(values, coded)
        try:
            column = fitted_column(values, coded.feature)
        except OddValueError as error:
            index = max(error.index, 0)
            raise OddValueError(misfit(values, coded.given, error), index) from error
        columns[coded.feature.name] = _completed(column, coded)
    return _encode_columns(columns, coding, len(rows))


def _encode_columns(
    columns: Mapping[str, pa.Array], coding: Coding, count: int
) -> list[bytes]:
    """Returns `count` Examples of columns; empty ones where no feature is stored."""
    features = [coded.feature for coded in coding.features]
    if not features:
        return [NOTHING] * count
    rows = pa.table(dict(columns))
    return encode_examples(pa.record_batch(record_columns(rows, features)))


def _completed(column: pa.Array, each: CodingFeature) -> pa.Array:
    """Returns a column with missing values filled in; refuses what is beyond limits."""
    feature = each.feature
    fill: Any = feature.constant
    if fill is None and feature.missing is Missing.FILL:
        fill = feature.fill
    if column.null_count and fill is not None:
        if each.ids is not None:
            (fill,) = _numbered([fill], each)
        places = pa.array(np.zeros(len(column), np.int64))
        column = pc.coalesce(column, filling_of(fill, feature).take(places))
    elif column.null_count and feature.missing is Missing.REJECT:
        raise OddValueError(
            f"feature {feature.name!r} must have a value; it has none",
            int(np.argmax(numpy_mask(column.is_null()))),
        )
    # Of class ids the range counts; what is said of other values is for sources.
    is_class = each.given.kind is Kind.LABEL
    for faults in contract_faults(column, feature) if is_class else ():
        index = int(np.argmax(faults))
        shown = bounded(repr(column[index].as_py()), SHOWN_CHARS)
        why = complaint(feature, reason_of(int(faults[index])))
        raise OddValueError(
            f"feature {feature.name!r} cannot hold {shown}: {why}", index
        )
    return column


def _numbered(values: list[Any], each: CodingFeature) -> list[Any]:
    """Returns class ids in the place of class names."""
    ids = each.ids
    assert ids is not None, "only labels with a vocabulary have names"
    unknown = len(ids) if each.given.unknown is Unknown.OOV else None

    def number(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [number(item) for item in value]
        if not isinstance(value, str):
            return value
        return ids.get(value, unknown if unknown is not None else value)

    out = [number(value) for value in plain_values(values)]
    for index, value in enumerate(out):
        if isinstance(value, str):
            raise OddValueError(
                f"feature {each.given.name!r} cannot hold "
                f"{bounded(repr(value), SHOWN_CHARS)}: it is no class of the "
                f"vocabulary ({len(ids):,} names)",
                index,
            )
    return out


def encode_table(rows: pa.RecordBatch, coding: Coding | None) -> list[bytes]:
    """Returns the n rows of an Arrow batch as n Examples.

    Raises:
      EncodingError: a column or a value does not fit; names row, feature and value.
    """
    if coding is None:
        return encode_examples(rows)
    names = rows.schema.names
    given = {*names}
    odd = sorted(given - coding.names)
    if odd or len(given) < len(names):
        raise EncodingError(
            f"A batch must have the columns of the schema, each once; found "
            f"{bounded(', '.join(odd or names), 300)}. Drop the others, or rename them."
        )
    columns = {}
    try:
        for coded in coding.features:
            name = coded.feature.name
            column = rows[name] if name in given else pa.nulls(rows.num_rows)
            columns[name] = _typed(column, coded)
        return _encode_columns(columns, coding, rows.num_rows)
    except OddValueError as error:
        raise EncodingError(bounded(f"row {error.index + 1}: {error}")) from error


def _typed(column: pa.Array, each: CodingFeature) -> pa.Array:
    """Returns a column of any Arrow type as the feature's, as strictly as values."""
    column = plain_array(column)
    if each.ids is not None and family_of_column(column.type) == "text":
        column = pa.array(_numbered(column.to_pylist(), each))
    feature = each.feature
    if feature.encoding == PROTO and is_bytes(column.type):
        # Serialised tensors, as `decode_table` gives them.
        return _completed(column, each)
    try:
        column = strict_cast(column, feature)
    except OddValueError as error:
        shown = bounded(repr(python_value(column[error.index])), SHOWN_CHARS)
        raise OddValueError(
            f"feature {each.given.name!r} of kind {each.given.kind} cannot hold "
            f"{shown} (of a column of {bounded(str(column.type), 80)}): {error}",
            error.index,
        ) from error
    return _completed(column, each)
