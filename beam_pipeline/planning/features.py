"""The features of a job: inferred from the columns, declared by the spec, checked.

A declaration is of the feature of its name, or of that of its column: then it takes
that feature's place under a new name, unless that one is declared as well. Without
`column`, the column is the one of its name. What is not said stays as it was inferred.
"""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa

from beam_pipeline.planning import feature_checks, image_columns
from beam_pipeline.settings.spec import FeatureSpec, Spec
from transforms.core.arrays import numpy_type
from transforms.core.rows.tensors import DATA_TYPES
from transforms.core.schema import (
    Feature,
    InexactIntegers,
    Kind,
    Missing,
    Schema,
    Unknown,
)
from transforms.core.vocabulary import Vocabulary, parse_names
from transforms.errors import SpecError, nearest, refusing
from transforms.formats.images import BACKGROUND
from transforms.storage.files import storage

# The kinds of constants, by their types.
_CONSTANTS = {bool: Kind.BOOL, int: Kind.INT64, float: Kind.FLOAT, str: Kind.TEXT}
# Of tensors, where neither the job nor the column's type says more.
_DTYPES = {Kind.INT64: "int64", Kind.BOOL: "bool"}


def declare(
    inferred: Sequence[Feature],
    columns: Mapping[str, pa.Array | pa.ChunkedArray],
    spec: Spec,
    *,
    images_named: bool = False,
    image_files: Collection[str] = (),
    is_tree: bool = False,
) -> Schema:
    """Returns the schema: inferred features, with images and the spec's word applied.

    Args:
      inferred: a feature for each column that is to be stored.
      columns: all raw columns of the sample, by name.
      spec: says more of some features, drops some, adds constants and the like.
      images_named: whether images keep their names, and nothing is stored beside
        them, where the spec says nothing else.
      image_files: columns of text whose sampled values are image files.
      is_tree: whether they are of a folder of images, and named by the spec already.

    Raises:
      SpecError: it names a column that is not there, or says what makes no sense.
    """
    feature_checks.check_declarations(spec, columns)
    features = [f for f in inferred if f.source_column not in spec.drop]
    features = without_orphans(features, columns)
    if not is_tree:
        features = image_columns.with_images(
            *(features, columns, spec),
            images_named=images_named,
            image_files=image_files,
        )
        if spec.labels or any(feature.kind is Kind.IMAGE for feature in features):
            features = image_columns.with_roles(features, spec)
    features = image_columns.with_file_paths(features, columns)
    features = override(features, spec.features, columns)
    features = with_vocabularies(features, spec)
    feature_checks.check_schema(features, has_columns=bool(columns))
    return Schema(tuple(features))


def with_vocabularies(features: Sequence[Feature], spec: Spec) -> list[Feature]:
    """Returns the features, the label with the vocabulary that the job gives for it.

    Raises:
      SpecError: there is a vocabulary, but no label for it.
    """
    labels = [f for f in features if f.kind is Kind.LABEL]
    chosen = [f for f in labels if f.is_label] or labels
    if spec.vocabulary is not None or spec.unknown_label != "reject":
        setting = "vocabulary" if spec.vocabulary is not None else "unknown_label"
        if len(chosen) != 1:
            names = ", ".join(f.name for f in chosen) or "none"
            raise SpecError(
                f"{setting} is for the one label that is a class; found {names}. Name "
                f"the label with label_column, or say kind: label of it in features."
            )
    one = chosen if len(chosen) == 1 else []
    return [_with_vocabulary(f, spec) if f in one else f for f in features]


def _with_vocabulary(label: Feature, spec: Spec) -> Feature:
    """Returns a label with the vocabulary and `unknown` that the job's settings say."""
    said = spec.features.get(label.name, FeatureSpec()).vocabulary is not None
    if spec.vocabulary is not None and not said:
        names = class_names(spec.vocabulary)
        if not names:
            raise SpecError("vocabulary must name a class at least; found none.")
        label = dataclasses.replace(label, vocabulary=names, unknown=Unknown.REJECT)
    if spec.unknown_label != "reject":
        label = dataclasses.replace(label, unknown=Unknown(spec.unknown_label))
    if spec.preset == "imagenet" and label.is_label:
        return _with_background(label)
    return label


def _with_background(label: Feature) -> Feature:
    """Returns a label whose ids start at 1, as those of ImageNet do."""
    names, unknown = label.vocabulary or (), label.unknown
    if not names and unknown is Unknown.REJECT:
        unknown = Unknown.APPEND
    if names[:1] != (BACKGROUND,):
        names = (BACKGROUND, *names)
    return dataclasses.replace(label, vocabulary=names, unknown=unknown)


def class_names(given: Sequence[str] | str) -> tuple[str, ...]:
    """Returns class names as the spec gives them: a list, or a file of one a line.

    Raises:
      SpecError: the file cannot be read, or names a class twice.
    """
    if not isinstance(given, str):
        return tuple(given)
    with refusing(SpecError, f"The vocabulary {given!r} must be readable"):
        data = storage(given).read_bytes()
    return parse_names(data, path=given)


def as_typed(feature: Feature) -> Feature:
    """Returns a feature of rows that are typed already, and have it under its name."""
    return dataclasses.replace(
        feature, column="", pattern="", constant=None, separator=""
    )


def vocabularies_of(schema: Schema) -> dict[str, Vocabulary]:
    """Returns what is known beforehand of each label's class names."""
    return {
        feature.name: Vocabulary(feature.vocabulary, feature.unknown)
        for feature in schema.of_kind(Kind.LABEL)
        if feature.vocabulary is not None
    }


def override(
    features: Sequence[Feature],
    said: Mapping[str, FeatureSpec],
    columns: image_columns.Columns,
) -> list[Feature]:
    """Returns the features with those declared in the place of what they are of.

    Raises:
      SpecError: one needs a column that is not there, or would hide another.
    """
    bases = {name: _base(name, given, features) for name, given in said.items()}
    places: dict[str, list[str]] = {}
    for name, base in bases.items():
        if base is None:
            continue
        # What is cut out of a column's text is beside it, not in its place.
        instead = base.name not in said and said[name].path is None
        if base.name == name or instead:
            places.setdefault(base.name, []).append(name)
    heirs = {names[0] for names in places.values()}
    made = {
        name: _declared(name, given, bases[name], columns, heir=name in heirs)
        for name, given in said.items()
    }
    out: list[Feature] = []
    for feature in features:
        if feature.name in places:
            out += [made.pop(name) for name in places[feature.name]]
        elif feature.name in said:
            _check_hidden(feature, said)
            if feature.name in made:
                out.append(made.pop(feature.name))
        else:
            out.append(feature)
    return image_columns.renamed_images([*out, *made.values()], places)


def _check_hidden(feature: Feature, said: Mapping[str, FeatureSpec]) -> None:
    """Raises SpecError where a declaration takes the name of what nobody reads then."""
    read = {
        given.column or name for name, given in said.items() if _needs_column(given)
    }
    if feature.source_column in read:
        return
    raise SpecError(
        f"Feature {feature.name!r} would take the name of what the source has itself. "
        f"Choose another name, or leave that one out: with drop, or of images with "
        f"feature_names."
    )


def _needs_column(said: FeatureSpec) -> bool:
    """Whether a feature has values of a column: it is no constant, nor of paths."""
    return said.constant is None and not (said.path is not None and not said.column)


def _base(name: str, said: FeatureSpec, features: Sequence[Feature]) -> Feature | None:
    """Returns the inferred feature that a declaration is of; None for none."""
    if not _needs_column(said):
        return None
    named = next((f for f in features if f.name == name), None)
    column = said.column or name
    # The image itself comes before what is stored beside it.
    of_column = [f for f in features if f.source_column == column]
    if said.column is None:
        if named is not None:
            return named
        of_column = [f for f in of_column if said.kind in (None, f.kind)]
    elif named in of_column and (said.kind != "image" or named.kind is Kind.IMAGE):
        return named
    return of_column[0] if of_column else None


def _declared(
    name: str,
    said: FeatureSpec,
    base: Feature | None,
    columns: image_columns.Columns,
    *,
    heir: bool,
) -> Feature:
    """Returns one feature as it is declared.

    Args:
      name: of the feature.
      said: of it.
      base: the inferred feature that it is of.
      columns: of the source.
      heir: whether it is what becomes of the base, its being the label included.
    """
    column = base.source_column if base and said.column is None else said.column or name
    if _needs_column(said) and base is None and column not in columns:
        raise SpecError(
            f"Feature {name!r} needs a column of the source; there is no {column!r}"
            f"{nearest(column, columns)}."
        )
    if base is not None and base.derived:
        return image_columns.renamed_derived(name, said, base)
    kind = _declared_kind(said, base)
    made = Feature(name, kind)
    if base is not None:
        made = _like(base, name, kind, plain=said.path is not None)
    is_label = base is not None and base.is_label and heir
    changed = {"is_label": is_label, **given_fields(said)}
    if said.kind is not None:
        # Whoever says float knows that it rounds.
        changed.setdefault("inexact_integers", InexactIntegers.ROUND)
    is_other = _needs_column(said) and column != name
    changed["column"] = column if is_other else ""
    made = dataclasses.replace(made, **changed)
    if kind is Kind.IMAGE and (base is None or base.kind is not Kind.IMAGE):
        says_missing = said.missing is not None or said.fill is not None
        missing = made.missing if says_missing else Missing.REJECT
        inline = image_columns.is_inline(made, columns.get(made.source_column))
        made = dataclasses.replace(made, inline=inline, missing=missing)
    return feature_checks.with_contract(_completed(made, said, columns), said)


def _declared_kind(said: FeatureSpec, base: Feature | None) -> Kind:
    """Returns the kind that is declared, or follows from constant or vocabulary."""
    if said.kind is not None:
        return Kind(said.kind)
    if said.constant is not None:
        return _CONSTANTS[type(said.constant)]
    if said.vocabulary is not None:
        return Kind.LABEL
    if said.path is not None or base is None:
        return Kind.LABEL if said.label else Kind.TEXT
    # Text that is to be predicted is a class, as it is with `label_column`.
    return Kind.LABEL if said.label and base.kind is Kind.TEXT else base.kind


def _like(base: Feature, name: str, kind: Kind, *, plain: bool) -> Feature:
    """Returns the base under a name and kind, with what holds for that kind too."""
    if kind is base.kind and not plain:
        return dataclasses.replace(base, name=name)
    keeps_shape = not plain and Kind.BOX not in (kind, base.kind)
    return Feature(
        name,
        kind,
        shape=base.shape if keeps_shape else (),
        missing=base.missing if base.kind is not Kind.IMAGE else Missing.OMIT,
        inline=base.inline and kind is Kind.IMAGE,
        dtype=_DTYPES.get(base.kind, "") if kind is Kind.TENSOR else "",
    )


def given_fields(said: FeatureSpec) -> dict[str, Any]:
    """Returns the fields of a feature that a declaration says."""
    makers: dict[str, tuple[str, Any]] = {
        "label": ("is_label", bool),
        "shape": ("shape", tuple),
        "missing": ("missing", Missing),
        "unknown": ("unknown", Unknown),
        "inexact_integers": ("inexact_integers", InexactIntegers),
        "path": ("pattern", str),
        "vocabulary": ("vocabulary", class_names),
    }
    out: dict[str, Any] = {}
    for key in type(said).model_fields:
        value = getattr(said, key)
        if value is None or key in ("kind", "column", *feature_checks.CONTRACT):
            continue
        field, make = makers.get(key, (key, lambda same: same))
        out[field] = make(value)
    if said.fill is not None and said.missing is None:
        # A value to fill in says that it is to be.
        out["missing"] = Missing.FILL
    return out


def _completed(
    made: Feature, said: FeatureSpec, columns: image_columns.Columns
) -> Feature:
    """Returns a feature with what its kind needs and nobody said."""
    column = columns.get(made.source_column)
    more: dict[str, Any] = {}
    if made.kind is Kind.TIMESTAMP and not made.unit:
        kind = pa.null() if column is None else column.type
        more["unit"] = str(kind.unit) if pa.types.is_timestamp(kind) else "s"
    if made.kind is Kind.TENSOR:
        more["encoding"] = made.encoding or "raw"
        more["dtype"] = said.dtype or _dtype(column) or made.dtype or "float32"
    if made.separator and not made.shape and made.kind is not Kind.BOX:
        more["shape"] = (None,)
    return dataclasses.replace(made, **more)


def _dtype(column: pa.Array | pa.ChunkedArray | None) -> str:
    """Returns the dtype of a column's values, where a tensor can have it."""
    if column is None:
        return ""
    kind = column.type
    while isinstance(kind, pa.BaseExtensionType) or hasattr(kind, "value_type"):
        is_extension = isinstance(kind, pa.BaseExtensionType)
        kind = kind.storage_type if is_extension else kind.value_type
    try:
        name = str(numpy_type(kind))
    except (TypeError, ValueError):
        # No type of numbers.
        return ""
    return name if name in DATA_TYPES else ""


def without_orphans(
    features: Sequence[Feature], columns: Collection[str]
) -> list[Feature]:
    """Returns the features without what would be read off images that are dropped.

    What the source has as a column too is a value of its own then.
    """
    images = {feature.name for feature in features if feature.kind is Kind.IMAGE}
    out = []
    for feature in features:
        of_image = feature.derived or feature.states
        has_image = feature.derived_from in images if feature.derived_from else images
        if not of_image or has_image:
            out.append(feature)
        elif feature.derived and feature.name in columns:
            out.append(dataclasses.replace(feature, derived="", derived_from=""))
    return out
