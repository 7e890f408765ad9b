"""What must hold of features: of a declaration, of its contract, of a whole schema.

The contract of a feature is `min`, `max`, `allowed` and `pattern` of a spec. A spec
says them as people write values; a `Feature` has them as rows do.
"""

import dataclasses
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from beam_pipeline.settings.spec import FeatureSpec, Spec
from transforms.core.rows.feature_values import column_of
from transforms.core.rows.tensors import check_shape
from transforms.core.schema import Feature, InexactIntegers, Kind, Unknown
from transforms.errors import EncodingError, SpecError, nearest

CONTRACT = ("min", "max", "allowed", "pattern")
"""The settings of a feature that say which values are allowed."""
_TEXTS = frozenset([Kind.TEXT, Kind.LABEL])
_NUMBERS = frozenset([Kind.INT64, Kind.FLOAT])
_POWER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+")
_KINDS = {
    "min": _NUMBERS | {Kind.TIMESTAMP},
    "max": _NUMBERS | {Kind.TIMESTAMP},
    "allowed": _NUMBERS | _TEXTS,
    "pattern": _TEXTS,
}
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
    *CONTRACT,
)


def check_declarations(
    spec: Spec, columns: Mapping[str, pa.Array | pa.ChunkedArray]
) -> None:
    """Checks what a job says of features and columns by itself.

    Raises:
      SpecError: it names columns that are not there, or contradicts itself.
    """
    check_named({"drop": spec.drop, "image_columns": spec.image_columns}, columns)
    if spec.label_column in spec.drop:
        raise SpecError(f"The label {spec.label_column!r} cannot be dropped as well.")
    for name, said in spec.features.items():
        _check_declaration(name, said)
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


def check_named(
    settings: Mapping[str, str | Sequence[str] | None], columns: Collection[str]
) -> None:
    """Raises SpecError where a setting names a column that is not there."""
    for setting, value in settings.items():
        for name in [value] if value and isinstance(value, str) else value or ():
            if name not in columns:
                raise SpecError(
                    f"{setting} must name a column; there is no {name!r}"
                    f"{nearest(name, columns)}."
                )


def _check_declaration(name: str, said: FeatureSpec) -> None:
    """Raises SpecError for settings of a feature that contradict one another."""
    has_constant = said.constant is not None
    beside = [setting for setting in _OF_COLUMNS if getattr(said, setting) is not None]
    faults = {
        "a feature must have a name, without NUL": not name or "\0" in name,
        "a separator must not be empty": said.separator == "",
        f"fill goes with missing: fill, not {said.missing}": (
            said.fill is not None and said.missing not in (None, "fill")
        ),
        "a vocabulary must name a class at least": said.vocabulary in ([], ""),
        f"a constant is the value of every row; {', '.join(beside)} makes no sense "
        f"beside it": has_constant and bool(beside),
    }
    for fault, is_there in faults.items():
        if is_there:
            raise SpecError(f"Feature {name!r:.80}: {fault}.")


def check_schema(features: Sequence[Feature], *, has_columns: bool = True) -> None:
    """Checks the features of a schema, whatever they were declared from.

    Args:
      features: of the schema.
      has_columns: whether the source has any; an empty one has no feature either.

    Raises:
      SpecError: a feature contradicts itself, two have one key or both are the label,
        none is left, or one is read off an image that is not there.
    """
    for feature in features:
        _check_feature(feature)
        check_shape(feature)
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
        seen = " (read off each image)" if feature.derived else ""
        words = f"{feature.name!r}{seen}"
        for key in feature.record_keys:
            if key in keys:
                raise SpecError(
                    f"Every key of a record must come from one feature; {key!r} comes "
                    f"from {keys[key]} and {words}. Rename one, or leave a column out "
                    f"with --drop."
                )
            keys[key] = words


def _check_images(features: Sequence[Feature]) -> None:
    """Raises SpecError for boxes or image facts whose image is missing or a list."""
    listed = {f.name: f.is_list for f in features if f.kind is Kind.IMAGE}
    for feature in features:
        of_image = feature.derived_from or next(iter(listed), "")
        if feature.kind is Kind.BOX and listed.get(of_image):
            raise SpecError(
                f"Feature {feature.name!r}: boxes are of one image a row; "
                f"{of_image!r} holds several. Leave one of them out."
            )
        if feature.derived and listed.get(of_image) is not feature.is_list:
            raise SpecError(
                f"Feature {feature.name!r} is read off an image, which must be stored "
                f"as such, and be a list where the feature is one. Name the image's "
                f"column in image_columns, with the shape, or leave the feature out."
            )


def _check_feature(feature: Feature) -> None:
    """Raises SpecError for settings that the feature's kind does not have."""
    name, kind = feature.name, feature.kind
    is_exact = feature.inexact_integers is InexactIntegers.REJECT
    said = {
        "a vocabulary is for labels": feature.vocabulary is not None,
        "unknown is for labels": feature.unknown is not Unknown.REJECT,
        "a unit is for timestamps": bool(feature.unit),
        "dtype and encoding are for tensors": bool(feature.dtype or feature.encoding),
        "inexact_integers is for floats": is_exact,
        "mask is for images": feature.mask,
    }
    faults = {
        **{what: said[what] and not what.endswith(f" {kind}s") for what in said},
        "it cannot be a constant": feature.constant is not None
        and kind in _NO_CONSTANT,
        "it cannot be what is predicted": feature.is_label and kind not in _PREDICTED,
        "unknown: oov needs a vocabulary; without one every name is a class": (
            feature.unknown is Unknown.OOV and feature.vocabulary is None
        ),
    }
    for fault, is_there in faults.items():
        if is_there:
            raise SpecError(f"Feature {name!r} is of the kind {kind}: {fault}.")


def _check_values(feature: Feature) -> None:
    """Raises SpecError where a constant or a filling does not fit the feature."""
    for setting, value in (("constant", feature.constant), ("fill", feature.fill)):
        if value is not None:
            given = [value] * (feature.values_each or 1) if feature.is_list else value
            _fitting(feature, setting, given)


def _fitting(feature: Feature, setting: str, value: Any) -> Any:
    """Returns a value as rows of a feature have it; SpecError where it does not fit."""
    try:
        return column_of([value], feature)[0].as_py()
    except EncodingError as error:
        raise SpecError(
            f"Feature {feature.name!r}: {setting} must fit {feature.kind}; found "
            f"{str(value)[:60]!r}."
        ) from error


def with_contract(feature: Feature, said: FeatureSpec) -> Feature:
    """Checks the contract that a declaration says; returns the feature with it.

    Raises:
      SpecError: a setting is not for features of this kind, or no value fits it.
    """
    for name in CONTRACT:
        if getattr(said, name) is not None and feature.kind not in _KINDS[name]:
            kinds = ", ".join(sorted(_KINDS[name]))
            raise SpecError(
                f"Feature {feature.name!r}: {name} is for {kinds}, not {feature.kind}."
            )
    least, most = (
        _checked_value(feature, name, getattr(said, name)) for name in CONTRACT[:2]
    )
    if least is not None and most is not None and least > most:
        raise SpecError(
            f"Feature {feature.name!r}: min must not be above max; found "
            f"{said.min!s:.60} and {said.max!s:.60}."
        )
    allowed = None
    if said.allowed is not None:
        if not said.allowed:
            raise SpecError(
                f"Feature {feature.name!r}: allowed must name a value at least; found "
                f"none."
            )
        allowed = tuple(
            _checked_value(feature, "allowed", value) for value in said.allowed
        )
    if said.pattern is not None:
        _check_pattern(feature, said.pattern)
    given = {
        "at_least": least,
        "at_most": most,
        "allowed": allowed,
        "matches": said.pattern,
    }
    told = {name: value for name, value in given.items() if value is not None}
    return dataclasses.replace(feature, **told) if told else feature


def _checked_value(feature: Feature, name: str, value: int | float | str | None) -> Any:
    """Checks a value of a contract; returns it as rows of the feature have it."""
    if value is None:
        return None
    if feature.kind in _TEXTS:
        # YAML reads a class such as 7 as a number.
        return str(value)
    if feature.kind in _NUMBERS and isinstance(value, str) and _POWER.fullmatch(value):
        # YAML reads 1e6 and 1.5e6 as texts. Other texts stay texts, which do not fit:
        # "nan" is no limit, and a float does not hold every whole number.
        number = float(value)
        value = int(number) if number.is_integer() else number
    single = Feature(feature.name, feature.kind, unit=feature.unit)
    return _fitting(single, name, value)


def _check_pattern(feature: Feature, pattern: str) -> None:
    """Raises SpecError for a pattern that RE2 does not take."""
    try:
        pc.match_substring_regex(pa.array([""]), pattern)
    except pa.ArrowInvalid as error:
        raise SpecError(
            f"Feature {feature.name!r}: pattern must be an RE2 expression, which has "
            f"no look-around and no references; found {pattern[:60]!r}: {error}."
        ) from error


def contract_settings(feature: Feature) -> dict[str, Any]:
    """Returns the settings that a feature's contract is checked by; None for others."""
    limits: dict[str, Any] = {"min": feature.at_least, "max": feature.at_most}
    if feature.kind is Kind.TIMESTAMP:
        unit = pa.timestamp(feature.unit)
        for name, value in limits.items():
            if value is not None:
                instant = pa.scalar(int(value), pa.int64()).cast(unit)
                limits[name] = str(instant.cast(pa.string()))
    allowed = None if feature.allowed is None else [*feature.allowed]
    return {**limits, "allowed": allowed, "pattern": feature.matches or None}
