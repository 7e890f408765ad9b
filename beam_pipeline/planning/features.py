"""The features of a job: inferred from the columns, overridden by the spec."""

import dataclasses
from collections.abc import Collection, Mapping, Sequence

import pyarrow as pa

from beam_pipeline.planning.checks import (
    check_declarations,
    check_keys,
    check_schema,
)
from beam_pipeline.planning.image_columns import (
    with_file_paths,
    with_images,
    with_roles,
    without_orphans,
)
from beam_pipeline.planning.override import override
from beam_pipeline.planning.vocabularies import class_names, read_names
from beam_pipeline.settings.spec import Spec
from transforms.core.schema import Feature, Kind, Schema, Unknown
from transforms.errors import SpecError
from transforms.formats.images import BACKGROUND


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
    check_declarations(spec, columns)
    features = [f for f in inferred if f.source_column not in spec.drop]
    features = without_orphans(features, columns)
    if not is_tree:
        features = with_images(
            *(features, columns, spec),
            images_named=images_named,
            image_files=image_files,
        )
        if spec.labels or any(feature.kind is Kind.IMAGE for feature in features):
            features = with_roles(features, spec)
    features = with_file_paths(features, columns)
    features = override(features, spec.features, columns)
    features = _with_vocabularies(features, spec)
    check_schema(features, has_columns=bool(columns))
    return Schema(tuple(features))


def merged(*parts: Sequence[Feature]) -> Schema:
    """Returns one schema of several sources' features; SpecError for equal keys."""
    features = [feature for part in parts for feature in part]
    check_keys(features)
    return Schema(tuple(features))


def _with_vocabularies(features: Sequence[Feature], spec: Spec) -> list[Feature]:
    """Returns the features, the label with the vocabulary that the job gives for it.

    Raises:
      SpecError: there is a vocabulary, but no label for it.
    """
    labels = [f for f in features if f.kind is Kind.LABEL]
    chosen = [f for f in labels if f.is_label] or labels
    if spec.vocabulary is not None or spec.unknown_label != "reject":
        setting = "vocabulary" if spec.vocabulary is not None else "unknown_label"
        if len(chosen) != 1:
            found = ", ".join(f.name for f in chosen) or "none"
            raise SpecError(
                f"{setting} is for the one label that is a class; found {found}. Name "
                f"the label with label_column, or say kind: label of it in features."
            )
    if len(chosen) != 1:
        return list(features)
    return [_with_vocabulary(f, spec) if f is chosen[0] else f for f in features]


def _with_vocabulary(label: Feature, spec: Spec) -> Feature:
    said = any(
        given.vocabulary is not None and name == label.name
        for name, given in spec.features.items()
    )
    if spec.vocabulary is not None and not said:
        names = class_names(spec.vocabulary)
        if not names:
            raise SpecError("vocabulary must name a class at least; found none.")
        label = dataclasses.replace(label, vocabulary=names, unknown=Unknown.REJECT)
    elif (
        spec.vocabulary_lock
        and label.vocabulary is None
        and "unknown_label" in spec.model_fields_set
        and spec.unknown_label != "append"
    ):
        # Whoever says what becomes of other names means others than those of the lock.
        # The first run, which has none yet, begins it.
        locked = read_names(spec.vocabulary_lock) or None
        label = dataclasses.replace(label, vocabulary=locked)
    if spec.unknown_label != "reject":
        label = dataclasses.replace(label, unknown=Unknown(spec.unknown_label))
    if spec.preset == "imagenet" and label.is_label:
        return _with_background(label)
    return label


def _with_background(label: Feature) -> Feature:
    """Returns a label whose ids start at 1, as those of ImageNet do."""
    if not label.vocabulary:
        unknown = label.unknown
        if unknown is Unknown.REJECT:
            unknown = Unknown.APPEND
        return dataclasses.replace(label, vocabulary=(BACKGROUND,), unknown=unknown)
    if label.vocabulary[0] == BACKGROUND:
        return label
    return dataclasses.replace(label, vocabulary=(BACKGROUND, *label.vocabulary))
