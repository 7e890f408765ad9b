"""What may be given as a schema, and the features that Examples hold under it.

| given                                         | means                               |
| --------------------------------------------- | ----------------------------------- |
| `Schema`, a list of `Feature`                 | itself                              |
| {"id": "int64", "box": {"kind": "box"}}       | the words of a spec's features      |

An Example has no rows, files or classes of its own, so three kinds are taken as what is
stored of them: an image is its bytes, a label its class id (or a name in the schema's
vocabulary), and what was derived from an image is a value like any other.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from transforms.core.rows.tensors import check_shape
from transforms.core.rows.values import PLAIN_TYPES
from transforms.core.schema import Feature, Kind, Schema, Unknown
from transforms.errors import SpecError, bounded
from transforms.formats.tfrecord_files.columns import SINGLE, Single

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


class RowError(Exception):
    """What is wrong with one row.

    Attributes:
      index: of the row.
    """

    def __init__(self, message: str, index: int) -> None:
        super().__init__(message)
        self.index = index


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

    @property
    def is_class(self) -> bool:
        """Whether its integers are class ids, of which the contract says the range."""
        return self.given.kind is Kind.LABEL


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
        return _known_coding(Schema(tuple(features)))
    except TypeError as error:
        # Of a feature that is no value, as with a list for its shape.
        raise SpecError(
            f"schema: shapes and vocabularies of Feature must be tuples; {error}."
        ) from error


# A user who encodes row by row gives the same schema each time.
@functools.lru_cache(maxsize=16)
def _known_coding(schema: Schema) -> Coding:
    features = list(map(_coding_feature, schema.stored))
    _check_unique([key for coded in features for key in coded.feature.record_keys])
    plain: dict[str, Any] = {c.feature.name: _plain_type(c) for c in features}
    return Coding(tuple(features), None if None in plain.values() else plain)


def _plain_type(each: CodingFeature) -> type | None:
    """Returns the type of all values of a feature; None where there is more to it."""
    bare = Feature(each.feature.name, each.feature.kind)
    said = dataclasses.replace(
        each.feature, column="", is_label=False, pattern="", separator="", states=""
    )
    is_plain = said == bare and not each.is_class
    return PLAIN_TYPES.get(each.feature.kind) if is_plain else None


def _check_unique(keys: Sequence[str]) -> None:
    if len(set(keys)) < len(keys):
        twice = next(key for key in keys if keys.count(key) > 1)
        raise SpecError(
            f"All features of a schema must be stored under keys of their own; "
            f"{twice!r} is there {keys.count(twice)} times. Rename one."
        )


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
    elif given.kind is Kind.IMAGE:
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
