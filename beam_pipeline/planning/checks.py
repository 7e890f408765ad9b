"""Checks of declared features that need no rows."""

from collections.abc import Mapping, Sequence

import pyarrow as pa

from beam_pipeline.settings.spec import FeatureSpec, Spec
from transforms.core.rows.tensors import DATA_TYPES, STRING
from transforms.core.rows.values import column_of
from transforms.core.schema import Feature, InexactIntegers, Kind, Unknown
from transforms.errors import EncodingError, SpecError, nearest

# A record's list or tensor of more values than that cannot be written.
_MAX_VALUES = 2**28
_PREDICTED = frozenset([Kind.LABEL, Kind.INT64, Kind.BOOL, Kind.FLOAT, Kind.TEXT])
_NO_CONSTANT = frozenset([Kind.IMAGE, Kind.TENSOR, Kind.BOX])
# What a constant leaves nothing to say of.
_OF_COLUMNS = (
    "column",
    "path",
    "separator",
    "missing",
    "fill",
    "unknown",
    "inexact_integers",
)


def check_declarations(
    spec: Spec, columns: Mapping[str, pa.Array | pa.ChunkedArray]
) -> None:
    """Checks what a job says of features and columns by itself.

    Raises:
      SpecError: it names columns that are not there, or contradicts itself.
    """
    for name in spec.drop:
        if name not in columns:
            raise SpecError(
                f"drop must name columns of the source; there is no {name!r}"
                f"{nearest(name, columns)}."
            )
    if spec.label_column in spec.drop:
        raise SpecError(f"The label {spec.label_column!r} cannot be dropped as well.")
    for name, said in spec.features.items():
        _check_said(name, said)
        column = said.column or name
        if column in spec.drop and said.constant is None and said.path is None:
            raise SpecError(
                f"Feature {name!r} is of column {column!r}, which drop leaves out. "
                f"Remove one."
            )
        if said.separator is not None and column in columns:
            kind = columns[column].type
            if not pa.types.is_string(kind) and not pa.types.is_large_string(kind):
                raise SpecError(
                    f"Feature {name!r}: a separator is for columns of text; "
                    f"{column!r} is of {str(kind)[:60]}."
                )


def _check_said(name: str, said: FeatureSpec) -> None:
    if not name:
        raise SpecError("A feature must have a name; found an empty one.")
    if "\0" in name:
        raise SpecError(f"A feature's name must hold no NUL; found {name!r:.80}.")
    if said.separator == "":
        raise SpecError(f"Feature {name!r}: a separator must not be empty.")
    if said.fill is not None and said.missing not in (None, "fill"):
        raise SpecError(
            f"Feature {name!r}: fill goes with missing: fill, not {said.missing}."
        )
    if said.vocabulary is not None and not said.vocabulary:
        raise SpecError(f"Feature {name!r}: a vocabulary must name a class at least.")
    if said.constant is not None:
        for setting in _OF_COLUMNS:
            if getattr(said, setting) is not None:
                raise SpecError(
                    f"Feature {name!r}: a constant is the value of every row; "
                    f"{setting} makes no sense beside it."
                )


def check_schema(features: Sequence[Feature], *, has_columns: bool = True) -> None:
    """Checks what became of it.

    Args:
      features: of the schema.
      has_columns: whether the source has any; an empty one has no feature either.

    Raises:
      SpecError: a feature contradicts itself, two have one key or both are the label,
        none is left, or one is read off an image that is not there.
    """
    for feature in features:
        _check_feature(feature)
        _check_shape(feature)
        _check_values(feature)
    if has_columns and not any(feature.record_keys for feature in features):
        raise SpecError("No feature is left; a record must hold one at least.")
    labels = [feature.name for feature in features if feature.is_label]
    if len(labels) > 1:
        raise SpecError(
            f"One feature at most can be the label; found {', '.join(labels)}."
        )
    _check_images(features)
    check_keys(features)


def check_keys(features: Sequence[Feature]) -> None:
    """Raises SpecError where two features write one key of records."""
    keys: dict[str, str] = {}
    for feature in features:
        for key in feature.record_keys:
            if key in keys:
                raise SpecError(
                    f"Every key of a record must come from one feature; {key!r} comes "
                    f"from {keys[key]!r} and {feature.name!r}. Rename one."
                )
            keys[key] = feature.name


def _check_images(features: Sequence[Feature]) -> None:
    listed = {f.name: f.is_list for f in features if f.kind is Kind.IMAGE}
    images = list(listed)
    for feature in features:
        of_image = feature.derived_from or next(iter(images), "")
        if feature.kind is Kind.BOX and listed.get(of_image):
            raise SpecError(
                f"Feature {feature.name!r}: boxes are of one image a row; "
                f"{of_image!r} holds several. Leave one of them out."
            )
        if feature.derived and listed.get(of_image, False) is not feature.is_list:
            raise SpecError(
                f"Feature {feature.name!r} is read off {of_image!r}: both are lists "
                f"or neither is. Name its column in image_columns, with the shape."
            )
        if not feature.derived:
            continue
        known = feature.derived_from in images if feature.derived_from else images
        if not known:
            raise SpecError(
                f"Feature {feature.name!r} is read off an image that is left out, or "
                f"declared to be something else. Leave it out as well."
            )


def _check_feature(feature: Feature) -> None:
    name, kind = feature.name, feature.kind
    if feature.constant is not None and kind in _NO_CONSTANT:
        raise SpecError(
            f"Feature {name!r}: a constant cannot be {_with_article(kind)}."
        )
    if feature.vocabulary is not None and kind is not Kind.LABEL:
        raise SpecError(f"Feature {name!r}: a vocabulary is for labels, not {kind}.")
    if feature.unknown is not Unknown.REJECT and kind is not Kind.LABEL:
        raise SpecError(f"Feature {name!r}: unknown is for labels, not {kind}.")
    if feature.unknown is Unknown.OOV and feature.vocabulary is None:
        raise SpecError(
            f"Feature {name!r}: unknown: oov needs a vocabulary; without one every "
            f"name is a class."
        )
    if feature.unit and kind is not Kind.TIMESTAMP:
        raise SpecError(f"Feature {name!r}: a unit is for timestamps, not {kind}.")
    if (feature.dtype or feature.encoding) and kind is not Kind.TENSOR:
        raise SpecError(
            f"Feature {name!r}: dtype and encoding are for tensors, not {kind}."
        )
    if feature.inexact_integers is InexactIntegers.REJECT and kind is not Kind.FLOAT:
        raise SpecError(
            f"Feature {name!r}: inexact_integers is for floats, not {kind}."
        )
    if feature.mask and kind is not Kind.IMAGE:
        raise SpecError(f"Feature {name!r}: mask is for images, not {kind}.")
    if feature.is_label and kind not in _PREDICTED:
        raise SpecError(
            f"Feature {name!r}: {_with_article(kind)} cannot be what is predicted."
        )


def _with_article(kind: Kind) -> str:
    """Returns "an image" or "a label", for messages."""
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"


def _check_shape(feature: Feature) -> None:
    name, kind, shape = feature.name, feature.kind, list(feature.shape)
    if shape and kind is Kind.BOX:
        raise SpecError(
            f"Feature {name!r}: {_with_article(kind)} has no shape; leave it out."
        )
    if len(shape) > 1 and kind is Kind.IMAGE:
        raise SpecError(
            f"Feature {name!r}: several images are a list, of a shape like [null]; "
            f"found {str(shape)[:60]}."
        )
    if feature.separator and feature.is_ragged:
        raise SpecError(
            f"Feature {name!r}: lists of lists have no separator; leave it out."
        )
    size = 1
    for length in shape:
        size *= length or 1
    if size > _MAX_VALUES:
        raise SpecError(
            f"Feature {name!r}: a shape must be of at most 2^28 values; found "
            f"{str(shape)[:60]}."
        )
    if kind is Kind.TENSOR:
        _check_tensor(feature)
    elif shape.count(None) > 1 and not feature.is_ragged:
        raise SpecError(
            f"Feature {name!r}: of a list one size at most may be open, or both of "
            f"two; found {str(shape)[:60]}."
        )


def _check_tensor(feature: Feature) -> None:
    name = feature.name
    if feature.dtype not in DATA_TYPES:
        raise SpecError(
            f"Feature {name!r}: dtype must be one of {', '.join(DATA_TYPES)}; found "
            f"{feature.dtype[:60]!r}{nearest(feature.dtype[:60], DATA_TYPES)}."
        )
    if feature.encoding == "proto":
        return
    if feature.dtype == STRING:
        raise SpecError(f"Feature {name!r}: a tensor of strings needs encoding: proto.")
    if not feature.shape:
        raise SpecError(f"Feature {name!r}: a raw tensor needs its shape.")
    if feature.shape.count(None) > 1:
        raise SpecError(
            f"Feature {name!r}: of a raw tensor one size at most may be open, or no "
            f"reader could tell the shape; use encoding: proto."
        )


def _check_values(feature: Feature) -> None:
    """Raises SpecError where a constant or a filling does not fit the feature."""
    for setting, value in (("constant", feature.constant), ("fill", feature.fill)):
        if value is None:
            continue
        try:
            given = [value] * (feature.values_each or 1) if feature.is_list else value
            column_of([given], feature)
        except EncodingError as error:
            raise SpecError(
                f"Feature {feature.name!r}: {setting} must fit {feature.kind}; found "
                f"{str(value)[:60]!r}."
            ) from error
