"""Features and their kinds: what a row holds and what a record will hold.

Arrow is imported where its types are made: reading a manifest does without it.
"""

import dataclasses
import enum
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Feature", "Kind", "Schema", "record_type", "row_type"]


class Kind(enum.StrEnum):
    """What a feature means, which decides how it is stored.

    | kind  | in rows (between stages) | in records (tf.train.Example) |
    | ----- | ------------------------ | ----------------------------- |
    | int64 | int64                    | Int64List                     |
    | float | float32                  | FloatList                     |
    | bool  | bool                     | Int64List of 0 and 1          |
    | text  | string                   | BytesList, UTF-8              |
    | bytes | binary                   | BytesList                     |
    | label | string, the class name   | Int64List, the class id       |
    | image | string, where it lies    | BytesList, the encoded file   |
    """

    INT64 = "int64"
    FLOAT = "float"
    BOOL = "bool"
    TEXT = "text"
    BYTES = "bytes"
    LABEL = "label"
    IMAGE = "image"


# Arrow's own names of its types.
_ROW_TYPES: Mapping[Kind, str] = {
    Kind.INT64: "int64",
    Kind.FLOAT: "float32",
    Kind.BOOL: "bool",
    Kind.TEXT: "string",
    Kind.BYTES: "binary",
    Kind.LABEL: "string",
    Kind.IMAGE: "string",
}

_RECORD_TYPES: Mapping[Kind, str] = {
    **_ROW_TYPES,
    Kind.LABEL: "int64",
    Kind.IMAGE: "large_binary",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Feature:
    """One feature of every record.

    Attributes:
      name: the key in the tf.train.Example.
      kind: what it means.
      column: the source's name for it; the feature's own name when empty.
      is_label: the feature that a model is to predict; at most one a schema.
      derived: for what is read off an image when it is loaded: "height",
        "width" or "depth". Such a feature has no column in the rows.
    """

    name: str
    kind: Kind
    column: str = ""
    is_label: bool = False
    derived: str = ""

    @property
    def source_column(self) -> str:
        """The source's name for this feature."""
        return self.column or self.name

    def to_json(self) -> dict[str, Any]:
        """Returns the fields that differ from their defaults, as plain JSON."""
        out: dict[str, Any] = {"name": self.name, "kind": str(self.kind)}
        for field in ("column", "is_label", "derived"):
            if value := getattr(self, field):
                out[field] = value
        return out

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Inverse of `to_json`."""
        return cls(**{**data, "kind": Kind(data["kind"])})


@dataclasses.dataclass(frozen=True, slots=True)
class Schema:
    """The features of a dataset, in the source's order; names are unique."""

    features: tuple[Feature, ...]

    def __getitem__(self, name: str) -> Feature:
        for feature in self.features:
            if feature.name == name:
                return feature
        raise KeyError(name)

    @property
    def names(self) -> tuple[str, ...]:
        """The features' names, in the source's order."""
        return tuple(feature.name for feature in self.features)

    @property
    def label(self) -> Feature | None:
        """The feature to predict, if the job named one."""
        return next((f for f in self.features if f.is_label), None)

    def of_kind(self, kind: Kind) -> tuple[Feature, ...]:
        """Returns the features of one kind."""
        return tuple(f for f in self.features if f.kind is kind)

    @property
    def row_schema(self) -> "pa.Schema":
        """Arrow schema of a batch of typed rows: derived features left out."""
        import pyarrow as pa

        return pa.schema(
            [pa.field(f.name, row_type(f)) for f in self.features if not f.derived]
        )

    def to_json(self) -> list[dict[str, Any]]:
        """Returns the features as plain JSON."""
        return [feature.to_json() for feature in self.features]

    @classmethod
    def from_json(cls, data: list[dict[str, Any]]) -> Self:
        """Inverse of `to_json`."""
        return cls(tuple(Feature.from_json(item) for item in data))


def row_type(feature: Feature) -> "pa.DataType":
    """Returns the Arrow type of the feature's column in a batch of rows."""
    return _arrow_type(_ROW_TYPES[feature.kind])


def record_type(feature: Feature) -> "pa.DataType":
    """Returns the Arrow type that the Example encoder is given for it."""
    return _arrow_type(_RECORD_TYPES[feature.kind])


def _arrow_type(name: str) -> "pa.DataType":
    import pyarrow as pa

    return pa.type_for_alias(name)
