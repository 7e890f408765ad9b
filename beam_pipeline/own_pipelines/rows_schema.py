"""The schema of the rows of a pipeline: by their type, by values, by what is said."""

import dataclasses
import datetime
import decimal
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from apache_beam.typehints import typehints
from apache_beam.typehints.native_type_compatibility import convert_to_beam_type
from apache_beam.typehints.row_type import RowTypeConstraint

from beam_pipeline.own_pipelines.parameters import Earlier, Given
from beam_pipeline.own_pipelines.read_rows import ReadSource
from beam_pipeline.planning.feature_checks import check_named
from beam_pipeline.planning.features import as_typed, declare
from beam_pipeline.planning.image_columns import items_of, with_images
from beam_pipeline.planning.like import settle_schema
from beam_pipeline.settings.spec import Spec
from transforms.core.arrays import is_bytes, is_list
from transforms.core.infer.columns import infer_typed
from transforms.core.schema import Feature, Kind, Schema
from transforms.errors import EncodingError, InputError, SpecError, bounded
from transforms.rows.inferred import Declared, InferredColumn, infer
from transforms.rows.spool import SpooledBundle
from transforms.rows.typed_rows import RowRule
from transforms.storage.files import sizes_of

# The Arrow types of classes and of what derives from them, the nearest class first.
_TYPES: Mapping[type, pa.DataType] = {
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
    np.bool_: pa.bool_(),
    np.integer: pa.int64(),
    np.floating: pa.float64(),
}


def schema_of(
    inferred: Mapping[str, InferredColumn], counted: SpooledBundle, given: Given
) -> Schema:
    """Returns the schema of the rows; errors as `plan_rows`."""
    spec, source = given.spec, given.source
    samples = {name: column.sample for name, column in inferred.items()}
    features = [column.feature for column in inferred.values()]
    if source is not None:
        types = {name: column.types for name, column in inferred.items()}
        features = with_source_features(
            features, types, source, label=spec.label_column
        )
    image_files = _image_files(inferred, given.root, source)
    if given.earlier is None:
        schema = declare(features, samples, spec, image_files=image_files)
    else:
        columns = {f.source_column: f for f in features if not f.derived}
        new_classes = counted.tally.new_classes
        schema = _like_earlier(
            *(given.earlier.get(), spec, columns, inferred, new_classes, image_files)
        )
    _check_paths(schema, inferred, given.root)
    if inferred and spec.images_root and not schema.of_kind(Kind.IMAGE):
        raise SpecError(
            "images_root is for paths of images; no column of these rows holds them. "
            "Leave it out, or say kind: image of their columns in features=."
        )
    return schema


def _like_earlier(
    earlier: Earlier,
    spec: Spec,
    columns: Mapping[str, Feature],
    inferred: Mapping[str, InferredColumn],
    new_classes: Mapping[str, frozenset[str]],
    image_files: Collection[str],
) -> Schema:
    """Returns the schema of rows that are to be like an earlier dataset.

    They may have the names of its features, or of the columns that these were made of.

    Args:
      earlier: what is known of it.
      spec: of the job.
      columns: column -> the feature that its values would be without it.
      inferred: the same columns, with samples.
      new_classes: of its labels.
      image_files: columns whose values are image files.

    Raises:
      InputError: they are not like it; all of the drift is in the message.
    """
    shared = earlier.like.model
    model = dataclasses.replace(
        shared,
        features=tuple(map(_of_values, shared.features)),
        classes={
            label: names if new_classes.get(label) else earlier.names(label)
            for label, names in shared.classes.items()
        },
    )
    # What no column is of, whatever its name.
    made = [f for f in model.features if f.derived or f.constant is not None]
    kept = {name: f for name, f in columns.items() if name not in spec.drop}
    of_column = {
        old.name: next(n for n in (old.name, old.source_column) if n in kept)
        for old in model.features
        if old not in made and not kept.keys().isdisjoint((old.name, old.source_column))
    }
    now = [_under(model.by_name[n], kept[c], c) for n, c in of_column.items()]
    beside = {*of_column.values(), *(f.name for f in made)}
    new = [f for name, f in kept.items() if name not in beside]
    images = [n for n in spec.image_columns or () if n in kept and n not in beside]
    spec_of_new = spec.model_copy(update={"image_columns": images or None})
    samples = {name: column.sample for name, column in inferred.items()}
    new = with_images(new, samples, spec_of_new, image_files=image_files)
    # Images have their names by now, and what is dropped may be in no row.
    plain = spec.model_copy(
        update={
            **{"image_columns": None, "feature_names": {}, "preset": "default"},
            "drop": [],
        }
    )
    values = {name: column.values for name, column in inferred.items()}
    for name, column in of_column.items():
        values[model.by_name[name].source_column] = inferred[column].values
    settled = settle_schema(
        dataclasses.replace(earlier.like, model=model),
        declare([*now, *made, *new], samples, plain, images_named=True),
        values,
        spec,
        classes={
            label: dict.fromkeys(sorted(new_classes.get(label, ())), "")
            for label in model.classes
        },
        numbered=False,
    )
    return Schema(
        tuple(
            _as_in_rows(f, of_column[f.name], samples) if f.name in of_column else f
            for f in settled.features
        )
    )


def _under(old: Feature, feature: Feature, column: str) -> Feature:
    """Returns what a column would be under the name of the earlier feature."""
    if old.kind is Kind.IMAGE and feature.kind in (Kind.TEXT, Kind.BYTES):
        # A path, or the content of a file.
        feature = old
    elif old.kind is Kind.LABEL and feature.kind is Kind.TEXT:
        feature = dataclasses.replace(feature, kind=old.kind, is_label=old.is_label)
    own = "" if column == old.name else column
    return dataclasses.replace(feature, name=old.name, column=own)


def _as_in_rows(
    feature: Feature, column: str, samples: Mapping[str, pa.Array]
) -> Feature:
    """Returns a feature as one of a column of the rows, its images as in these."""
    feature = dataclasses.replace(
        feature, column="" if column == feature.name else column
    )
    if feature.kind is not Kind.IMAGE:
        return feature
    kind = items_of(samples[column]).type
    inline = not (pa.types.is_string(kind) or pa.types.is_null(kind))
    return dataclasses.replace(feature, inline=inline)


def _of_values(feature: Feature) -> Feature:
    """Returns a feature that was read off a path, or as a file, as one of values."""
    kind = Kind.BYTES if feature.kind is Kind.FILE else feature.kind
    return dataclasses.replace(feature, pattern="", kind=kind)


def _image_files(
    inferred: Mapping[str, InferredColumn], root: str, source: ReadSource | None
) -> set[str]:
    """Returns the columns whose paths are of images below a folder, by one of each."""
    read = () if source is None else source.schema.names
    paths = {n: c.path for n, c in inferred.items() if c.path and n not in read}
    places = {n: os.path.join(root, path) for n, path in paths.items() if root}
    there = sizes_of(places.values())
    return {name for name, path in places.items() if path in there}


def _check_paths(
    schema: Schema, inferred: Mapping[str, InferredColumn], root: str
) -> None:
    """Raises SpecError where images are at paths that only a folder makes complete."""
    for feature in schema.of_kind(Kind.IMAGE):
        column = inferred.get(feature.source_column)
        if feature.inline or root or column is None or not column.relative:
            continue
        raise SpecError(
            f"Paths of images must be absolute, or relative to images_root=; "
            f"{column.relative:,} in {feature.source_column!r} are relative. Workers "
            f"run in folders of their own: name the folder of the images."
        )


def with_source_features(
    features: Sequence[Feature],
    types: Mapping[str, Sequence[pa.DataType]],
    source: ReadSource,
    *,
    label: str | None,
) -> list[Feature]:
    """Returns inferred features, those of the source where columns are as they were.

    Args:
      features: a feature for each column.
      types: that the values of each column join to.
      source: that the rows were read from.
      label: the column to predict, where the job says one.
    """
    by_name = _row_features(source.schema)
    out = []
    for feature in features:
        original = by_name.pop(feature.name, None)
        types_found = {_plain(kind) for kind in types[feature.name]}
        if original is None or types_found - {pa.null(), original[1]}:
            out.append(feature)
            continue
        is_label = feature.name == label if label else original[0].is_label
        # The source has not been told that its texts are class names.
        is_other = label and is_label and original[0].kind is Kind.TEXT
        as_before = dataclasses.replace(original[0], is_label=is_label)
        out.append(feature if is_other else as_before)
    names = {feature.name for feature in out}
    derived = (f for f in source.schema.features if f.derived and f.name not in names)
    return [*out, *derived]


def _row_features(schema: Schema) -> dict[str, tuple[Feature, pa.DataType]]:
    """Returns the features as rows have them, each with the type of its values."""
    types = schema.row_schema
    stored = (feature for feature in schema.stored if not feature.derived)
    return {f.name: (as_typed(f), _plain(types.field(f.name).type)) for f in stored}


def _plain(kind: pa.DataType) -> pa.DataType:
    """Returns the type that the values have as Python values."""
    if is_list(kind):
        return pa.list_(_plain(kind.value_type))
    if pa.types.is_integer(kind):
        return pa.int64()
    if pa.types.is_floating(kind):
        return pa.float64()
    if pa.types.is_large_string(kind) or not is_bytes(kind):
        return pa.string() if is_bytes(kind) else kind
    return kind if pa.types.is_string(kind) else pa.large_binary()


def columns_of_rows(
    counted: SpooledBundle, given: Given, rule: RowRule
) -> dict[str, InferredColumn]:
    """Returns what each column is to be; errors are those of `plan_rows`."""
    if counted.refused and not counted.tally.rows:
        # Then it is no row that is bad, but a step or a parameter.
        shown = bounded(counted.refusal, 500).rstrip(".")
        if given.earlier is not None:
            name = given.earlier.get().like.name
            raise InputError(
                f"The rows must be like {name!r}; none of these {counted.refused:,} "
                f"is, as one shows: {shown}. Correct the step before, or write "
                f"another output."
            )
        raise EncodingError(
            f"Rows must be ones that a dataset can hold; none of these "
            f"{counted.refused:,} is, as one shows: {shown}. "
            f"Correct the step before (DecodeExamples() makes rows of serialised "
            f"Examples), or the parameter that names a column."
        )
    spec, columns, declared = given.spec, counted.tally.columns, given.declared
    if counted.tally.rows:
        if not columns:
            raise EncodingError(
                f"Every row must have a column at least beside {rule.split_column!r}, "
                f"which names its split and is not stored; found none. Add a column."
            )
        named = {"label": spec.label_column, "group_column": spec.group_column}
        check_named(named, columns)
        declared = _said_of_columns(declared, columns)
    return infer(counted.tally, label=spec.label_column, declared=declared)


def _said_of_columns(
    declared: Mapping[str, Declared], columns: Collection[str]
) -> dict[str, Declared]:
    """Returns what is said of columns that rows have; `declare` refuses others.

    A column is there, too, as that of the mappings or lists which it is a part of.
    """
    out = {}
    for name, said in declared.items():
        parts = name.split("/")
        parents = ("/".join(parts[:count]) for count in range(1, len(parts) + 1))
        if any(parent in columns for parent in parents):
            out[name] = said
    return out


def types_of_rows(kind: Any) -> dict[str, Declared]:
    """Returns what is given of columns by the element type of rows.

    Types that it leaves open, `Any` or a union, are inferred.
    """
    if isinstance(kind, type):
        kind = RowTypeConstraint.from_user_type(kind)
    if not isinstance(kind, RowTypeConstraint):
        return {}
    out: dict[str, Declared] = {}
    for name, hint in kind._fields:
        out |= _types_of_hint(name, hint)
    return out


def _types_of_hint(name: str, hint: Any) -> dict[str, Declared]:
    """Returns what is given by the hint of a column's type, or those of its fields."""
    hint = convert_to_beam_type(hint)
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
    """Returns T of a hint T | None; None for a union of several types."""
    if not isinstance(hint, typehints.UnionConstraint):
        return hint
    rest = [member for member in hint.union_types if member is not type(None)]
    return rest[0] if len(rest) == 1 else None


def _arrow_type(hint: Any) -> pa.DataType | None:
    """Returns the Arrow type that is given by a hint; None where it is left open."""
    hint = _without_none(hint)
    if isinstance(hint, type):
        kinds = (kind for base, kind in _TYPES.items() if issubclass(hint, base))
        return next(kinds, None)
    items: Collection[Any] = ()
    if isinstance(hint, typehints.TupleConstraint):
        items = {*hint.tuple_types}
    elif isinstance(hint, typehints.SequenceTypeConstraint) and not isinstance(
        hint, typehints.SetTypeConstraint | typehints.FrozenSetTypeConstraint
    ):
        items = [hint.inner_type]
    inner = [_arrow_type(item) for item in items]
    return pa.list_(inner[0]) if len(inner) == 1 and inner[0] is not None else None
