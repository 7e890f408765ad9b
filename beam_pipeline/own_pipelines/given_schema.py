"""What is known of rows before they are seen.

    features={"id": "int64"}   words of a spec: of these columns, others are inferred
    features=pa.schema(...)    the whole schema
    like="out/earlier"         the whole schema, class ids and splits of a dataset
    rows of a named tuple      the types of these columns

All of it is read at construction and travels with the pipeline, unless it is large.
"""

import collections
import dataclasses
import datetime
import decimal
import os
import types
import typing
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from apache_beam.typehints import typehints
from apache_beam.typehints.row_type import RowTypeConstraint

from beam_pipeline.own_pipelines.held import Held, hold_file
from beam_pipeline.own_pipelines.read_rows import (
    ReadSource,
    with_source_features,
)
from beam_pipeline.planning.features import declare, override
from beam_pipeline.settings.spec import FeatureSpec, Spec
from transforms.core.infer.typed import infer_typed
from transforms.core.manifest import MANIFEST_NAME, Manifest
from transforms.core.rows.arrow_of import arrow_of
from transforms.core.schema import (
    Feature,
    InexactIntegers,
    Kind,
    Missing,
    Schema,
    Unknown,
)
from transforms.errors import DamageError, SpecError, bounded, nearest
from transforms.formats.columnar.arrow_batches import flat_columns
from transforms.formats.tfrecord_files.dataset import row_feature
from transforms.publishing import target
from transforms.rows.inferred import Declared, InferredColumn
from transforms.storage.files import sizes_of
from transforms.storage.paths import absolute

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


@dataclasses.dataclass(frozen=True)
class GivenSchema:
    """A schema that is given as a whole.

    Attributes:
      features: in their order.
      settled: whether they are those of a dataset, to which no setting adds anything.
    """

    features: tuple[Feature, ...]
    settled: bool

    @property
    def names(self) -> set[str]:
        """The columns that rows may have."""
        sources = {feature.source_column for feature in self.features}
        return sources | {feature.name for feature in self.features}


@dataclasses.dataclass(frozen=True)
class EarlierSplits:
    """What decided the splits of a dataset; None for what nobody gave.

    Attributes:
      splits: shares, or "column:NAME".
      is_known: whether these decide the splits of other rows as well. Folders and
        tables of ids do not, nor do the classes of a stratified split.
      key, group: columns.
    """

    splits: Mapping[str, float] | str | None
    is_known: bool
    key: str | None
    group: str | None


def declared_by(given: GivenSchema) -> dict[str, Declared]:
    """Returns the columns of which a given schema says the kind."""
    out: dict[str, Declared] = {}
    for feature in given.features:
        if feature.derived or feature.constant is not None:
            continue
        for name in {feature.source_column, feature.name}:
            known = out.get(name, Declared(feature.kind))
            single = known.kind is feature.kind and not feature.separator
            out[name] = Declared(feature.kind if single else None)
    return out


def example_features(
    spec: Spec, given: GivenSchema | None, earlier: Manifest | None
) -> tuple[Feature, ...]:
    """Returns the features of elements that are serialised Examples, by their keys."""
    if earlier is not None:
        return tuple(map(row_feature, earlier.features))
    if given is not None:
        found = given.features
    else:
        said = {n: s for n, s in spec.features.items() if _kind_of(s) is not None}
        nothing = pa.nulls(0)
        columns = {each.column or name: nothing for name, each in said.items()}
        found = tuple(override((), said, columns))
    by_key = {}
    for feature in found:
        if feature.constant is not None or feature.pattern or feature.derived:
            continue
        is_name = feature.kind is Kind.LABEL and feature.vocabulary is None
        by_key[feature.source_column] = dataclasses.replace(
            feature,
            name=feature.source_column,
            column="",
            kind=Kind.TEXT if is_name else feature.kind,
        )
    return tuple(by_key.values())


def declared_in(spec: Spec) -> dict[str, Declared]:
    """Returns the columns of which a spec says the kind."""
    out: dict[str, Declared] = {}
    for name, said in spec.features.items():
        kind = _kind_of(said)
        if kind is None or said.constant is not None or said.path is not None:
            continue
        column = said.column or name
        known = out.get(column)
        # Text with a separator is a list of its parts.
        single = known is None and not said.separator
        out[column] = Declared(kind if single else None)
    for column in spec.image_columns or ():
        out.setdefault(column, Declared(Kind.IMAGE))
    for column in spec.drop:
        out.setdefault(column, Declared())
    return out


def _kind_of(said: FeatureSpec) -> Kind | None:
    if said.kind is not None:
        return Kind(said.kind)
    return Kind.LABEL if said.vocabulary is not None else None


def of_arrow_schema(schema: pa.Schema, label: str | None) -> GivenSchema:
    """Returns the features that an Arrow schema says.

    Raises:
      SpecError: two fields have one name, or no feature holds a type.
    """
    twice = [n for n, count in collections.Counter(schema.names).items() if count > 1]
    if twice:
        raise SpecError(
            f"Every field of a schema must have a name of its own; {twice[0]!r} is "
            f"there more than once. Rename one."
        )
    required = {field.name for field in schema if not field.nullable}
    features = []
    for name, column in flat_columns(schema.empty_table()).items():
        feature = _feature_of(name, column.type)
        if name == label and feature.kind is Kind.TEXT and not feature.shape:
            feature = dataclasses.replace(feature, kind=Kind.LABEL)
        if name in required:
            feature = dataclasses.replace(feature, missing=Missing.REJECT)
        features.append(dataclasses.replace(feature, is_label=name == label))
    if label is not None and label not in {feature.name for feature in features}:
        raise SpecError(
            f"The label must be a field of the schema; found {label!r}"
            f"{nearest(label, schema.names)}."
        )
    return GivenSchema(tuple(features), settled=False)


def _feature_of(name: str, kind: pa.DataType) -> Feature:
    try:
        feature, _ = infer_typed({name: _empty(kind)})[name]
    except Exception as error:
        if not isinstance(error, pa.ArrowException | ValueError | TypeError):
            raise
        raise SpecError(bounded(f"features: {error}.")) from error
    # Whoever says float knows that it rounds.
    return dataclasses.replace(feature, inexact_integers=InexactIntegers.ROUND)


def _empty(kind: pa.DataType) -> pa.Array:
    if isinstance(kind, pa.BaseExtensionType):
        storage = pa.array([], kind.storage_type)
        return pa.ExtensionArray.from_storage(kind, storage)
    return pa.array([], kind)


def hold_earlier(path: str) -> Held[Manifest]:
    """Returns the manifest of the dataset that `like=` names.

    Raises:
      SpecError: there is none that can be read.
    """
    directory = absolute(path)
    try:
        return hold_file(_manifest_at, os.path.join(directory, MANIFEST_NAME))
    except FileNotFoundError as error:
        raise SpecError(
            f"like must be the folder of a dataset; {path!r} has no manifest. Name "
            f"another folder."
        ) from error
    except (OSError, DamageError) as error:
        raise SpecError(f"like must be a readable dataset: {error}") from error


def _manifest_at(path: str) -> Manifest:
    return target.read_manifest(os.path.dirname(path))


def like_dataset(manifest: Manifest, unknown: str) -> GivenSchema:
    """Returns the schema of a dataset, with its class names in the order of their ids.

    Args:
      manifest: of the dataset.
      unknown: what becomes of names that it lacks.
    """
    features = []
    for facts in manifest.features:
        feature = facts.feature
        if feature.kind is Kind.LABEL:
            is_oov = feature.unknown is Unknown.OOV
            names = facts.classes[:-1] if is_oov else facts.classes
            rule = Unknown.OOV if is_oov else Unknown(unknown)
            feature = dataclasses.replace(
                feature, vocabulary=tuple(names), unknown=rule
            )
        features.append(dataclasses.replace(feature, pattern=""))
    return GivenSchema(tuple(features), settled=True)


def earlier_splits(manifest: Manifest) -> EarlierSplits:
    """Returns what decided the splits of a dataset, as parameters of `WriteDataset`."""
    given = manifest.run.get("spec", {})
    column = given.get("split_column")
    splits = f"column:{column}" if column else given.get("splits")
    by_rule = splits is not None and not given.get("stratify_column")
    return EarlierSplits(
        splits,
        by_rule or [split.name for split in manifest.splits] == ["train"],
        given.get("key_column"),
        given.get("group_column"),
    )


def types_of_rows(kind: Any) -> dict[str, Declared]:
    """Returns what the element type of a PCollection of rows says of its columns.

    Types that it leaves open, `Any` or a union, are inferred.
    """
    if not isinstance(kind, RowTypeConstraint):
        found = (
            RowTypeConstraint.from_user_type(kind) if isinstance(kind, type) else None
        )
        if found is None:
            return {}
        kind = found
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
    feature, _ = infer_typed({name: _empty(kind)})[name]
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
    rest = [part for part in parts if part is not type(None)]
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
        found = arrow_of([kind(0)]).type
    except (TypeError, ValueError):
        return None
    if pa.types.is_integer(found):
        return pa.int64()
    return pa.float64() if pa.types.is_floating(found) else found


def root_of(spec: Spec, source: ReadSource | None) -> str:
    """Returns the folder that paths of images are relative to; empty for none."""
    return spec.images_root or ("" if source is None else source.root)


def schema_of(
    inferred: Mapping[str, InferredColumn],
    spec: Spec,
    given: GivenSchema | None,
    source: ReadSource | None,
) -> Schema:
    """Returns the schema of rows.

    Args:
      inferred: what each of their columns is to be.
      spec: of the job.
      given: the whole schema, where one is given.
      source: that the rows were read from, where that is known.

    Raises:
      SpecError: the spec, the given schema and the columns contradict each other.
    """
    samples = {name: column.sample for name, column in inferred.items()}
    if given is None:
        features = [column.feature for column in inferred.values()]
        if source is not None:
            types = {name: column.types for name, column in inferred.items()}
            features = with_source_features(
                features, types, source, label=spec.label_column
            )
        image_files = _image_files(inferred, root_of(spec, source), source)
        schema = declare(features, samples, spec, image_files=image_files)
    else:
        _check_known(inferred, spec, given)
        if given.settled:
            found = [_as_in(feature, samples) for feature in given.features]
            schema = Schema(tuple(found))
        else:
            nothing = pa.nulls(0)
            samples = {n: samples.get(n, nothing) for n in given.names}
            # Other columns of the rows are no part of the schema as it is.
            left = [name for name in spec.drop if name in given.names]
            spec = spec.model_copy(update={"drop": left})
            schema = declare(given.features, samples, spec)
    _check_paths(schema, inferred, root_of(spec, source))
    if inferred and spec.images_root and not schema.of_kind(Kind.IMAGE):
        raise SpecError(
            "images_root is for paths of images; no column of these rows holds them. "
            "Leave it out, or say kind: image of their columns in features=."
        )
    return schema


def _image_files(
    inferred: Mapping[str, InferredColumn], root: str, source: ReadSource | None
) -> set[str]:
    """Returns the columns whose paths are of images below a folder, by one of each."""
    read = () if source is None else source.schema.names
    places = {
        name: os.path.join(root, column.path)
        for name, column in inferred.items()
        if root and column.path and name not in read
    }
    there = sizes_of(places.values())
    return {name for name, place in places.items() if place in there}


def _check_known(columns: Collection[str], spec: Spec, given: GivenSchema) -> None:
    beside = {spec.key_column, spec.group_column, *spec.drop}
    strange = sorted(set(columns) - given.names - beside)
    if strange:
        raise SpecError(
            bounded(
                f"Every column of the rows must be in the schema that is given; "
                f"{len(strange):,} are not, the first is {strange[0]!r}"
                f"{nearest(strange[0], sorted(given.names))}. Name them in drop=, or "
                f"add them to the schema."
            )
        )


def _as_in(feature: Feature, samples: Mapping[str, pa.Array]) -> Feature:
    """Returns a feature of a dataset for rows that have the names of either side."""
    if feature.source_column not in samples and feature.name in samples:
        feature = dataclasses.replace(feature, column="")
    column = samples.get(feature.source_column)
    if feature.kind is not Kind.IMAGE or column is None:
        return feature
    kind = column.type
    while pa.types.is_list(kind):
        kind = kind.value_type
    inline = not (pa.types.is_string(kind) or pa.types.is_null(kind))
    return dataclasses.replace(feature, inline=inline)


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
