"""The contract of a feature: `min`, `max`, `allowed` and `pattern` of a spec.

A spec says them as people write values; a `Feature` has them as rows do.
"""

import dataclasses
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from beam_pipeline.settings.spec import FeatureSpec
from transforms.core.rows.values import column_of
from transforms.core.schema import Feature, Kind
from transforms.errors import EncodingError, SpecError

CONTRACT = ("min", "max", "allowed", "pattern")
"""The settings of a feature that say which values are allowed."""
_TEXTS = frozenset([Kind.TEXT, Kind.LABEL])
_NUMBERS = frozenset([Kind.INT64, Kind.FLOAT])
_KINDS = {
    "min": _NUMBERS | {Kind.TIMESTAMP},
    "max": _NUMBERS | {Kind.TIMESTAMP},
    "allowed": _NUMBERS | _TEXTS,
    "pattern": _TEXTS,
}


def with_contract(feature: Feature, said: FeatureSpec) -> Feature:
    """Returns the feature with the contract that its declaration says.

    Raises:
      SpecError: a setting is not for features of this kind, or no value fits it.
    """
    for name in CONTRACT:
        if getattr(said, name) is not None and feature.kind not in _KINDS[name]:
            kinds = ", ".join(sorted(_KINDS[name]))
            raise SpecError(
                f"Feature {feature.name!r}: {name} is for {kinds}, not {feature.kind}."
            )
    least, most = (_value(feature, name, getattr(said, name)) for name in CONTRACT[:2])
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
        allowed = tuple(_value(feature, "allowed", value) for value in said.allowed)
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


def _value(feature: Feature, name: str, value: int | float | str | None) -> Any:
    """Returns a value as rows of the feature have it; None for None."""
    if value is None:
        return None
    if feature.kind in _TEXTS:
        # YAML reads a class such as 7 as a number.
        return str(value)
    try:
        single = Feature(feature.name, feature.kind, unit=feature.unit)
        return column_of([value], single)[0].as_py()
    except EncodingError as error:
        raise SpecError(
            f"Feature {feature.name!r}: {name} must fit {feature.kind}; found "
            f"{str(value)[:60]!r}."
        ) from error


def _check_pattern(feature: Feature, pattern: str) -> None:
    try:
        pc.match_substring_regex(pa.array([""]), pattern)
    except pa.ArrowInvalid as error:
        raise SpecError(
            f"Feature {feature.name!r}: pattern must be an RE2 expression, which has "
            f"no look-around and no references; found {pattern[:60]!r}: {error}."
        ) from error


def contract_settings(feature: Feature) -> dict[str, Any]:
    """Returns the settings that say a feature's contract; None for what it lacks."""
    limits: dict[str, Any] = {"min": feature.at_least, "max": feature.at_most}
    if feature.kind is Kind.TIMESTAMP:
        limits = {
            name: None if value is None else _as_text(int(value), feature.unit)
            for name, value in limits.items()
        }
    allowed = None if feature.allowed is None else [*feature.allowed]
    return {**limits, "allowed": allowed, "pattern": feature.matches or None}


def _as_text(value: int, unit: str) -> str:
    return str(pa.scalar(value, pa.int64()).cast(pa.timestamp(unit)).cast(pa.string()))
