"""The features of a job: what the columns say, and what the spec says over it."""

import dataclasses
import difflib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from beam_pipeline.spec import FeatureSpec, Spec
from beam_pipeline.vocabularies import class_names
from transforms.core.infer import (
    Evidence,
    Inference,
    infer_batches,
    infer_features,
)
from transforms.core.scalars import is_image_struct
from transforms.core.schema import Feature, Kind, Missing, Schema, Unknown
from transforms.core.values import column_of
from transforms.errors import EncodingError, SpecError
from transforms.formats.image_suffixes import IMAGE_SUFFIXES
from transforms.formats.images import PRESETS, image_schema

__all__ = ["declare", "infer_all", "infer_columns", "merged"]

# Names of columns that hold images' paths by the conventions of the field.
_IMAGE_COLUMNS = ("image", "file_name", "image_uri", "image_path", "filename", "path")
_IMAGE_ENDINGS = ("_file_name", "_image_uri", "_image_path", "_path", "_uri", "_image")


def infer_columns(
    columns: Mapping[str, pa.Array | pa.ChunkedArray], *, label_column: str | None
) -> Inference:
    """Returns a feature for each raw column, texts and typed ones.

    Raises:
      SpecError: there is no column of the label's name.
    """
    if label_column is not None and label_column not in columns:
        raise SpecError(
            f"the label must be a column of the source; found {label_column!r}"
            f"{_nearest(label_column, columns)}"
        )
    texts = {k: v for k, v in columns.items() if pa.types.is_string(v.type)}
    typed = {k: v for k, v in columns.items() if k not in texts}

    def label_of(some: Mapping[str, Any]) -> str | None:
        return label_column if label_column in some else None

    found: dict[str, tuple[Feature, Evidence]] = {}
    inferences = [infer_features(texts, label_column=label_of(texts))]
    if typed:
        from transforms.core.infer_typed import infer_typed

        inferences.append(infer_typed(typed, label_column=label_of(typed)))
    for inference in inferences:
        for pair in zip(inference.features, inference.evidence, strict=True):
            found[pair[0].source_column] = pair
    ordered = [found[name] for name in columns if name in found]
    return Inference(
        tuple(feature for feature, _ in ordered), tuple(facts for _, facts in ordered)
    )


def infer_all(
    batches: Iterable[Mapping[str, pa.Array]], *, label_column: str | None
) -> Inference:
    """Returns a feature for each raw column, from all rows of all batches.

    Memory: one batch. The columns and their types are those of the first batch.
    """
    typed: dict[str, tuple[Feature, Evidence]] = {}
    order: list[str] = []

    def texts() -> Iterator[dict[str, pa.Array]]:
        for batch in batches:
            order.extend(name for name in batch if name not in order)
            known = {k: v for k, v in batch.items() if not pa.types.is_string(v.type)}
            if known:
                _gather(known, label_column, typed)
            yield {name: batch[name] for name in batch if name not in known}

    inference = infer_batches(texts(), label_column=label_column)
    pairs = zip(inference.features, inference.evidence, strict=True)
    found = typed | {feature.source_column: (feature, e) for feature, e in pairs}
    ordered = [found[name] for name in order if name in found]
    return Inference(
        tuple(feature for feature, _ in ordered), tuple(facts for _, facts in ordered)
    )


def _gather(
    columns: Mapping[str, pa.Array],
    label_column: str | None,
    found: dict[str, tuple[Feature, Evidence]],
) -> None:
    label = label_column if label_column in columns else None
    inference = infer_columns(columns, label_column=label)
    for feature, facts in zip(inference.features, inference.evidence, strict=True):
        name = feature.source_column
        if name in found:
            first, before = found[name]
            found[name] = first, before.merge(facts)
        else:
            found[name] = feature, facts


def declare(
    inferred: Sequence[Feature],
    columns: Mapping[str, pa.Array | pa.ChunkedArray],
    spec: Spec,
    *,
    images_named: bool = False,
) -> Schema:
    """Returns the schema: inferred features, with images and the spec's word applied.

    Args:
      inferred: a feature for each column that is to be stored.
      columns: all raw columns of the sample, by name.
      spec: says more of some features, drops some, adds constants and the like.
      images_named: whether images keep their names, and nothing is stored beside
        them, where the spec says nothing else.

    Raises:
      SpecError: it names a column that is not there, or says what makes no sense.
    """
    kept = [f for f in inferred if f.source_column not in spec.drop]
    _check_drop(spec.drop, columns)
    kept = _without_orphans(kept, columns)
    kept = _with_images(kept, columns, spec, images_named=images_named)
    by_name = {feature.name: feature for feature in kept}
    for name, said in spec.features.items():
        by_name = _apply(name, said, by_name, columns)
    features = [_labelled(feature, spec) for feature in by_name.values()]
    labels = [feature.name for feature in features if feature.is_label]
    if len(labels) > 1:
        raise SpecError(
            f"One feature at most can be the label; found {', '.join(labels)}."
        )
    _check_keys(features)
    return Schema(tuple(features))


def merged(*parts: Sequence[Feature]) -> Schema:
    """Returns one schema of several sources' features; SpecError for equal keys."""
    features = [feature for part in parts for feature in part]
    _check_keys(features)
    return Schema(tuple(features))


def _check_drop(drop: Iterable[str], columns: Mapping[str, Any]) -> None:
    for name in drop:
        if name not in columns:
            raise SpecError(
                f"drop must name columns of the source; found {name!r}"
                f"{_nearest(name, columns)}"
            )


def _nearest(name: str, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(names), n=1, cutoff=0.0)
    return f"; the nearest name is {near[0]!r}" if near else ""


def _check_keys(features: Sequence[Feature]) -> None:
    keys: dict[str, str] = {}
    for feature in features:
        for key in feature.record_keys:
            if key in keys:
                raise SpecError(
                    f"Every key of a record must come from one feature; {key!r} comes "
                    f"from {keys[key]!r} and {feature.name!r}. Rename one."
                )
            keys[key] = feature.name


def _without_orphans(
    features: Sequence[Feature], columns: Collection[str]
) -> list[Feature]:
    """Returns the features without what would be read off images that are dropped.

    What the source has as a column too is a value of its own then.
    """
    images = {feature.name for feature in features if feature.kind is Kind.IMAGE}
    out = []
    for feature in features:
        lost = (
            feature.derived_from not in images if feature.derived_from else not images
        )
        if not (feature.derived or feature.states) or not lost:
            out.append(feature)
        elif feature.derived and feature.name in columns:
            out.append(dataclasses.replace(feature, derived="", derived_from=""))
    return out


def _with_images(
    features: Sequence[Feature],
    columns: Mapping[str, pa.Array | pa.ChunkedArray],
    spec: Spec,
    *,
    images_named: bool,
) -> list[Feature]:
    """Returns the features, columns of images turned into what records have of them."""
    renamed = spec.preset != "default" or bool(spec.feature_names)
    settled = images_named or any(feature.derived for feature in features)
    if spec.image_columns is None and settled:
        # The format has said what its images are.
        if not renamed:
            return list(features)
        if any(feature.states for feature in features):
            raise SpecError(
                "preset and feature_names are not for boxes, whose names are those of "
                "the TF Object Detection API. Rename features in a --spec."
            )
        features = [feature for feature in features if not feature.derived]
    if spec.image_columns is not None:
        for name in spec.image_columns:
            if name not in columns:
                raise SpecError(
                    f"image_columns must be columns of the source; found {name!r}"
                    f"{_nearest(name, columns)}"
                )
        chosen = set(spec.image_columns)
    else:
        chosen = {
            feature.source_column
            for feature in features
            if feature.kind is Kind.IMAGE
            or (feature.kind is Kind.TEXT and _holds_images(feature, columns, spec))
        }
    taken = {f.name for f in features if f.source_column not in chosen}
    prefixes = _prefixes([f for f in features if f.source_column in chosen], taken)
    out: list[Feature] = []
    for feature in features:
        if feature.source_column not in chosen:
            out.append(feature)
            continue
        made = _image_features(feature, columns, prefixes[feature.name], spec)
        # What the table says itself, a height say, is not stored a second time.
        out += [f for f in made if f.kind is Kind.IMAGE or f.name not in taken]
    return out


def _prefixes(chosen: Sequence[Feature], taken: Collection[str]) -> dict[str, str]:
    """Returns what the names of each image begin with; nothing for the only one."""
    if len(chosen) == 1 and "image" not in taken:
        return {chosen[0].name: ""}
    bases = {}
    for name in (feature.name for feature in chosen):
        ending = next((e for e in _IMAGE_ENDINGS if name.endswith(e)), "")
        bases[name] = name.removesuffix(ending) or name
    found = [*bases.values(), *taken]
    return {n: base if found.count(base) == 1 else n for n, base in bases.items()}


def _holds_images(
    feature: Feature, columns: Mapping[str, pa.Array | pa.ChunkedArray], spec: Spec
) -> bool:
    name = feature.source_column
    said = spec.features.get(feature.name)
    if said is not None and said.kind is not None:
        return False
    column = columns.get(name)
    if column is None or not pa.types.is_string(column.type):
        return False
    if name.lower() not in _IMAGE_COLUMNS and not name.lower().endswith(_IMAGE_ENDINGS):
        return False
    from transforms.core.infer_typed import looks_like_image_paths

    return looks_like_image_paths(column, frozenset(IMAGE_SUFFIXES))


def _image_features(
    feature: Feature,
    columns: Mapping[str, pa.Array | pa.ChunkedArray],
    prefix: str,
    spec: Spec,
) -> list[Feature]:
    """Returns image, file name and dimensions, as a tree of images has them."""
    column = feature.source_column
    found = columns.get(column)
    inline = _is_inline(feature, found)
    named = not inline and (found is None or pa.types.is_string(found.type))
    names = dict(PRESETS[spec.preset]) | spec.feature_names
    for role in ("label", "text", "synset", *([] if named else ["filename"])):
        names.pop(role, None)
    if prefix:
        names = {
            role: prefix if role == "image" else f"{prefix}/{given}"
            for role, given in names.items()
        }
    made = image_schema({role: given for role, given in names.items() if given})
    image = names["image"]
    out = []
    for part in made.features:
        if part.kind is Kind.IMAGE:
            out.append(
                dataclasses.replace(
                    part, column=column, inline=inline, missing=Missing.REJECT
                )
            )
        elif part.derived:
            out.append(dataclasses.replace(part, derived_from=image if prefix else ""))
        else:
            out.append(dataclasses.replace(part, column=column))
    return [dataclasses.replace(f, column="") if f.column == f.name else f for f in out]


def _is_inline(feature: Feature, column: pa.Array | pa.ChunkedArray | None) -> bool:
    """Whether the rows hold images themselves, not where they lie."""
    if column is None or pa.types.is_string(column.type):
        return feature.inline
    if not is_image_struct(column.type):
        return True
    # Hugging Face's images that were not embedded have a path alone.
    held, paths = (pc.struct_field(column, name) for name in ("bytes", "path"))
    return bool(held.null_count < len(column) or paths.null_count == len(column))


def _apply(
    name: str,
    said: FeatureSpec,
    features: dict[str, Feature],
    columns: Mapping[str, pa.Array | pa.ChunkedArray],
) -> dict[str, Feature]:
    """Returns the features with one declared anew, in the place of its column."""
    given = _given(said)
    needs_column = said.constant is None and not (said.path and not said.column)
    column = said.column or name
    old = features.get(name)
    if old is None:
        # A feature by another name takes the place of its column's own.
        old = features.get(column)
    if needs_column and old is None and column not in columns:
        raise SpecError(
            f"Feature {name!r} needs a column of the source; found {column!r}"
            f"{_nearest(column, columns)}"
        )
    if said.kind is None and old is None and said.constant is None:
        given["kind"] = Kind.TEXT
    if said.constant is not None and said.kind is None:
        given["kind"] = _kind_of(said.constant)
    base = old or Feature(name, given["kind"])
    made = dataclasses.replace(base, **({"name": name} | given))
    if needs_column and made.source_column != column:
        made = dataclasses.replace(made, column=column)
    if made.column == made.name:
        made = dataclasses.replace(made, column="")
    if made.kind is Kind.TIMESTAMP and not made.unit:
        made = dataclasses.replace(made, unit="s")
    if made.kind is Kind.TENSOR:
        made = dataclasses.replace(
            made, encoding=made.encoding or "raw", dtype=made.dtype or "float32"
        )
    if made.kind in (Kind.IMAGE, Kind.BOX) and said.shape is None:
        # The shape that was inferred is the column's, and these have none.
        made = dataclasses.replace(made, shape=())
    if made.separator and not made.shape:
        made = dataclasses.replace(made, shape=(None,))
    _check_feature(made)
    _check_values(made)
    if old is None or old.name not in features:
        return features | {name: made}
    return {
        (name if key == old.name else key): (made if key == old.name else feature)
        for key, feature in features.items()
    }


def _given(said: FeatureSpec) -> dict[str, Any]:
    out: dict[str, Any] = {}
    data = said.model_dump(exclude_none=True)
    for key, value in data.items():
        if key == "kind":
            out["kind"] = Kind(value)
        elif key == "label":
            out["is_label"] = value
        elif key == "shape":
            out["shape"] = tuple(value)
        elif key == "missing":
            out["missing"] = Missing(value)
        elif key == "unknown":
            out["unknown"] = Unknown(value)
        elif key == "path":
            out["pattern"] = value
        elif key == "vocabulary":
            out["vocabulary"] = class_names(value)
            out.setdefault("kind", Kind.LABEL)
        elif key != "column":
            out[key] = value
    if said.shape is not None and "shape" not in out:
        out["shape"] = tuple(said.shape)
    return out


def _kind_of(value: object) -> Kind:
    if isinstance(value, bool):
        return Kind.BOOL
    if isinstance(value, int):
        return Kind.INT64
    return Kind.FLOAT if isinstance(value, float) else Kind.TEXT


def _labelled(feature: Feature, spec: Spec) -> Feature:
    """Returns a label with the vocabulary that the job gives for it."""
    if feature.kind is not Kind.LABEL or not feature.is_label:
        return feature
    said = spec.features.get(feature.name)
    if spec.vocabulary is not None and (said is None or said.vocabulary is None):
        feature = dataclasses.replace(feature, vocabulary=class_names(spec.vocabulary))
    if spec.unknown_label != "reject":
        feature = dataclasses.replace(feature, unknown=Unknown(spec.unknown_label))
    return feature


def _check_feature(feature: Feature) -> None:
    """Raises SpecError where the parts of a declaration contradict each other."""
    name, kind = feature.name, feature.kind
    if feature.shape and kind in (Kind.IMAGE, Kind.BOX):
        raise SpecError(f"Feature {name!r}: {kind} has no shape; leave it out.")
    if feature.vocabulary is not None and kind is not Kind.LABEL:
        raise SpecError(f"Feature {name!r}: a vocabulary is for labels, not {kind}.")
    if feature.unit and kind is not Kind.TIMESTAMP:
        raise SpecError(f"Feature {name!r}: a unit is for timestamps, not {kind}.")
    if (feature.dtype or feature.encoding) and kind is not Kind.TENSOR:
        raise SpecError(
            f"Feature {name!r}: dtype and encoding are for tensors, not {kind}."
        )
    if kind is Kind.TENSOR and feature.encoding == "raw" and not feature.shape:
        raise SpecError(f"Feature {name!r}: a raw tensor needs its shape.")
    if kind is Kind.TENSOR and feature.encoding == "raw" and _open_sizes(feature) > 1:
        raise SpecError(
            f"Feature {name!r}: of a raw tensor one size at most may be open, or no "
            f"reader could tell the shape; use encoding: proto."
        )
    if feature.is_list and not feature.is_ragged and _open_sizes(feature) > 1:
        raise SpecError(
            f"Feature {name!r}: of a list one size at most may be open, or both "
            f"of two; found {list(feature.shape)}."
        )
    if feature.is_label and kind not in (
        Kind.LABEL,
        Kind.INT64,
        Kind.BOOL,
        Kind.FLOAT,
        Kind.TEXT,
    ):
        raise SpecError(f"Feature {name!r}: {kind} cannot be what is predicted.")


def _check_values(feature: Feature) -> None:
    """Raises SpecError where a constant or a filling does not fit the feature."""
    for value in (feature.constant, feature.fill):
        if value is None:
            continue
        try:
            given = [value] * (feature.values_each or 1) if feature.is_list else value
            column_of([given], feature)
        except EncodingError as error:
            raise SpecError(f"A value of the spec must fit its feature: {error}") from (
                error
            )


def _open_sizes(feature: Feature) -> int:
    return sum(size is None for size in feature.shape)
