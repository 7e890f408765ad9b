"""Features and their kinds: the contents of rows and of records.

Arrow is imported inside functions, because reading a manifest does not need it.
"""

import dataclasses
import enum
import functools
import json
import math
import operator
import pickle
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    import pyarrow as pa


class Kind(enum.StrEnum):
    """The meaning of a feature, which decides how it is stored.

    | kind      | in rows (between stages)  | in records (tf.train.Example)     |
    | --------- | ------------------------- | --------------------------------- |
    | int64     | int64                     | Int64List                         |
    | float     | float32                   | FloatList                         |
    | bool      | bool                      | Int64List of 0 and 1              |
    | text      | string                    | BytesList, UTF-8                  |
    | bytes     | binary                    | BytesList                         |
    | timestamp | int64, in the unit        | Int64List, since the epoch, UTC   |
    | label     | string, the class name    | Int64List, the class id           |
    | image     | string: its path, or      | BytesList, the encoded file       |
    |           | large_binary, the file    |                                   |
    | file      | string: its path; only of | BytesList, the file; datasets     |
    |           | `--format files`          | state it as bytes                 |
    | tensor    | binary, raw or proto      | BytesList, the same               |
    | box       | list of float32[4]        | four FloatLists, one for a side   |

    With a shape, a feature holds many values (never tensor or box; images only a list
    of one dimension): see `Feature.shape`.
    """

    INT64 = "int64"
    FLOAT = "float"
    BOOL = "bool"
    TEXT = "text"
    BYTES = "bytes"
    TIMESTAMP = "timestamp"
    LABEL = "label"
    IMAGE = "image"
    FILE = "file"
    TENSOR = "tensor"
    BOX = "box"


class Missing(enum.StrEnum):
    """What becomes of a row that lacks the feature's value."""

    # The key is left out of the record.
    OMIT = "omit"
    FILL = "fill"
    # The whole row is rejected.
    REJECT = "reject"


class Unknown(enum.StrEnum):
    """What becomes of a class name that a given vocabulary lacks."""

    # The whole row is rejected.
    REJECT = "reject"
    # It gets the id after the last one, shared by all such names.
    OOV = "oov"
    # The names that were not given follow the given ones, sorted.
    APPEND = "append"


class InexactIntegers(enum.StrEnum):
    """What becomes of whole numbers, 2^24 to 2^53, that float32 does not hold.

    Rounding makes an id or a count useless, but not a measured value. So an inferred
    float rejects these numbers unless its large values have fractions (see
    `transforms.core.infer.evidence`), and a declared one rounds them.
    """

    # To the nearest float32, as numbers with a fraction are.
    ROUND = "round"
    # The whole row is rejected.
    REJECT = "reject"


# Arrow's own names of its types.
_ROW_TYPES: Mapping[Kind, str] = {
    Kind.INT64: "int64",
    Kind.FLOAT: "float32",
    Kind.BOOL: "bool",
    Kind.TEXT: "string",
    Kind.BYTES: "binary",
    Kind.TIMESTAMP: "int64",
    Kind.LABEL: "string",
    Kind.IMAGE: "string",
    Kind.FILE: "string",
    Kind.TENSOR: "binary",
    Kind.BOX: "float32",
}

_RECORD_TYPES: Mapping[Kind, str] = {
    **_ROW_TYPES,
    Kind.LABEL: "int64",
    Kind.IMAGE: "large_binary",
    Kind.FILE: "large_binary",
}

# Kinds of which rows may have paths and records have files.
LOADED = frozenset([Kind.IMAGE, Kind.FILE])

# Fields of a feature whose values are members of an enum.
_WORDS: Mapping[str, type[enum.StrEnum]] = {
    "kind": Kind,
    "missing": Missing,
    "unknown": Unknown,
    "inexact_integers": InexactIntegers,
}

# Keys of the parts of a ragged feature, as TFDS names them.
RAGGED_VALUES = "ragged_flat_values"
RAGGED_LENGTHS = "ragged_row_lengths_0"
# How features are called that have a step for each Example of a list, or for each
# Feature of a feature list; and what follows on the name of the numbers of values.
LISTS, STEPS = "lists/", "\0steps"
SEQUENCE_ENCODING = "sequence"
# The order of a box's numbers in rows, and the ends of its keys in records.
BOX_SIDES = ("xmin", "ymin", "xmax", "ymax")


@dataclasses.dataclass(frozen=True, slots=True)
class Feature:
    """One feature of every record.

        >>> box = Feature("box", Kind.BOX)
        >>> box.record_keys
        ('box/xmin', 'box/ymin', 'box/xmax', 'box/ymax')
        >>> box
        Feature('box', Kind.BOX)
        >>> Feature("id", Kind.INT64, column="ID").to_json()
        {'name': 'id', 'kind': 'int64', 'column': 'ID'}

    Attributes:
      name: the key in the tf.train.Example.
      kind: its meaning.
      column: the source's name for it; the feature's own name when empty.
      is_label: the feature that a model is to predict; at most one a schema.
      derived: of a feature that is derived from an image when it is loaded: "height",
        "width", "depth", "format", ...; see `transforms.shards.image_rows`.
        It has no column in the rows.
      derived_from: name of that image feature; the only one when empty. Of a mask: the
        image that it is of, and whose size it has; its pixels become one class number
        each, see `transforms.core.image.masks`.
      shape: () for one value. (None,) for a list of any length, (4,) for one of
        four, (2, 3) and (None, 4) for more dimensions, stored flat and row by row;
        (None, None) for a list of lists of any lengths, stored as TFDS does. Of a
        tensor, its shape, with None for sizes that differ from row to row.
      dtype: of a tensor's elements, as NumPy names it.
      encoding: of a tensor: "raw" (elements in row-major order, little-endian) or
        "proto" (a serialised TensorProto, for tf.io.parse_tensor). Of other features,
        "sequence" where the records that are read are SequenceExamples or lists of
        Examples; no dataset of this program has such features.
      unit: of a timestamp: "s", "ms", "us" or "ns".
      inline: of an image: the rows hold the file itself, not its path.
      mask: of an image: its pixels are class numbers, which no setting changes; see
        `transforms.core.image.policy`.
      missing: what becomes of rows without a value.
      fill: the value of such rows under `Missing.FILL`.
      constant: the value of every row; then there is no column in the source.
      pattern: a regular expression; the value is its first group in the path of the
        row's file (or in the text of `column`, where one is named).
      separator: text between the values of a cell that holds several.
      vocabulary: of a label: the given class names in the order of their ids; None
        for the names in the input, sorted.
      unknown: what becomes of names outside a given vocabulary.
      inexact_integers: of a float: what becomes of whole numbers that float32 does
        not hold.
      at_least, at_most: of a number or a timestamp (in its unit): limits; rows with a
        value beyond them are rejected.
      allowed: the only values that rows may have; None for any.
      matches: of a text: an RE2 expression that it must match somewhere.
      internal: whether only stages use it: it is in rows and not in records.
      states: of an internal feature: "height" or "width", the size of the image
        `derived_from` that its values state.
    """

    name: str
    kind: Kind
    column: str = ""
    is_label: bool = False
    derived: str = ""
    derived_from: str = ""
    shape: tuple[int | None, ...] = ()
    dtype: str = ""
    encoding: str = ""
    unit: str = ""
    inline: bool = False
    mask: bool = False
    missing: Missing = Missing.OMIT
    fill: int | float | bool | str | None = None
    constant: int | float | bool | str | None = None
    pattern: str = ""
    separator: str = ""
    vocabulary: tuple[str, ...] | None = None
    unknown: Unknown = Unknown.REJECT
    inexact_integers: InexactIntegers = InexactIntegers.ROUND
    at_least: int | float | None = None
    at_most: int | float | None = None
    allowed: tuple[int | float | str, ...] | None = None
    matches: str = ""
    internal: bool = False
    states: str = ""

    def __repr__(self) -> str:
        """Returns the call that makes it, without the twenty defaults."""
        said = [repr(self.name), f"Kind.{self.kind.name}"]
        for name, value in _said(self).items():
            is_word = isinstance(value, enum.Enum)
            shown = f"{type(value).__name__}.{value.name}" if is_word else repr(value)
            said.append(f"{name}={shown}")
        return f"{type(self).__name__}({', '.join(said)})"

    @property
    def has_contract(self) -> bool:
        """Whether values must keep more than their kind."""
        limits = (self.at_least, self.at_most, self.allowed)
        return bool(self.matches) or limits != (None, None, None)

    @property
    def source_column(self) -> str:
        """The source's name for this feature."""
        return self.column or self.name

    @property
    def is_list(self) -> bool:
        """Whether rows hold lists of values."""
        return bool(self.shape) and self.kind is not Kind.TENSOR

    @property
    def is_ragged(self) -> bool:
        """Whether rows hold lists of lists of any lengths."""
        return self.is_list and self.shape == (None, None)

    @property
    def has_steps(self) -> bool:
        """Whether it is read from the steps of a SequenceExample or a list of Examples.

        See `transforms.core.example.messages`.
        """
        return self.encoding == SEQUENCE_ENCODING and self.name.startswith(LISTS)

    @property
    def values_each(self) -> int | None:
        """Number of values of each row's list; None where it differs."""
        if None in self.shape:
            return None
        return math.prod(n for n in self.shape if n is not None)

    @property
    def record_keys(self) -> tuple[str, ...]:
        """The keys in the tf.train.Example: one, for most kinds the name."""
        if self.internal:
            return ()
        if self.kind is Kind.BOX:
            return tuple(f"{self.name}/{side}" for side in BOX_SIDES)
        if self.has_steps:
            return (self.name, self.name + STEPS)
        if self.is_ragged:
            return (f"{self.name}/{RAGGED_VALUES}", f"{self.name}/{RAGGED_LENGTHS}")
        return (self.name,)

    def to_json(self) -> dict[str, Any]:
        """Returns the fields that differ from their defaults, as plain JSON."""
        out: dict[str, Any] = {"name": self.name, "kind": str(self.kind)}
        for name, value in _said(self).items():
            if isinstance(value, enum.StrEnum):
                value = str(value)
            out[name] = list(value) if isinstance(value, tuple) else value
        return out

    def in_words(self) -> str:
        """Returns what decides how records are read, for messages.

        >>> Feature("size", Kind.INT64, shape=(2,)).in_words()
        'int64 (shape: [2])'
        """
        facts = self.to_json()
        settings = ", ".join(
            f"{name}: {json.dumps(value, ensure_ascii=False)}"
            for name, value in facts.items()
            if name not in _OF_ROWS
        )
        return f"{self.kind} ({settings})" if settings else str(self.kind)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Inverse of `to_json`."""
        words = {key: make(data[key]) for key, make in _WORDS.items() if key in data}
        lists = ("shape", "vocabulary", "allowed")
        tuples = {key: tuple(data[key]) for key in lists if data.get(key) is not None}
        return cls(**{**data, **words, **tuples})


# What does not decide how records are read.
_OF_ROWS = frozenset(
    "name kind missing vocabulary at_least at_most allowed matches".split()
)
# All fields but the name and the kind.
_OPTIONS = tuple(field.name for field in dataclasses.fields(Feature)[2:])
_DEFAULTS = tuple(field.default for field in dataclasses.fields(Feature)[2:])
_options_of = operator.attrgetter(*_OPTIONS)


def _said(feature: Feature) -> dict[str, Any]:
    """Returns the options of a feature that differ from their defaults."""
    options = zip(_OPTIONS, _options_of(feature), _DEFAULTS, strict=True)
    return {name: value for name, value, default in options if value != default}


@dataclasses.dataclass(frozen=True, slots=True)
class Schema:
    """The features of a dataset, in the source's order; names are unique.

    >>> animal = Feature("animal", Kind.LABEL, is_label=True)
    >>> schema = Schema((Feature("id", Kind.INT64), animal))
    >>> schema.names, schema.label.name
    (('id', 'animal'), 'animal')
    >>> schema.row_schema.types
    [DataType(int64), DataType(string)]
    """

    features: tuple[Feature, ...]
    _packed: bytes | None = dataclasses.field(
        default=None, init=False, repr=False, compare=False
    )

    def __reduce__(self) -> tuple[Any, ...]:
        # Every stage and bundle carries the schema. A feature of thousands takes some
        # microseconds to pickle and to unpickle, so that is done once a process.
        if self._packed is None:
            object.__setattr__(self, "_packed", _packed(self.features))
        return _unpacked, (type(self), self._packed)

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

    @property
    def stored(self) -> tuple[Feature, ...]:
        """The features that records hold."""
        return tuple(f for f in self.features if not f.internal)

    def of_kind(self, kind: Kind) -> tuple[Feature, ...]:
        """Returns the features of one kind."""
        return tuple(f for f in self.features if f.kind is kind)

    @property
    def loaded(self) -> tuple[Feature, ...]:
        """The features whose values are loaded when their shard is written."""
        return tuple(f for f in self.features if f.kind in LOADED)

    @property
    def row_schema(self) -> "pa.Schema":
        """Arrow schema of a batch of typed rows: derived features left out."""
        import pyarrow as pa

        return pa.schema(
            [(f.name, row_type(f)) for f in self.features if not f.derived]
        )

    def to_json(self) -> list[dict[str, Any]]:
        """Returns the features as plain JSON."""
        return [feature.to_json() for feature in self.features]

    @classmethod
    def from_json(cls, data: list[dict[str, Any]]) -> Self:
        """Inverse of `to_json`."""
        return cls(tuple(Feature.from_json(item) for item in data))


def _packed(features: tuple[Feature, ...]) -> bytes:
    """Returns the features as bytes: of each, the fields that are not by default."""
    said = [(feature.name, feature.kind, _said(feature)) for feature in features]
    return zlib.compress(pickle.dumps(said, 5), 1)


@functools.lru_cache(maxsize=16)
def _unpacked(schema: type[Schema], packed: bytes) -> Schema:
    """Inverse of `_packed`; gives the same object for the same bytes."""
    said = pickle.loads(zlib.decompress(packed))
    restored = schema(tuple(Feature(n, kind, **options) for n, kind, options in said))
    object.__setattr__(restored, "_packed", packed)
    return restored


def row_type(feature: Feature) -> "pa.DataType":
    """Returns the Arrow type of the feature's column in a batch of rows."""
    import pyarrow as pa

    value = pa.type_for_alias(_ROW_TYPES[feature.kind])
    if feature.kind is Kind.IMAGE and feature.inline:
        value = pa.large_binary()
    if feature.kind is Kind.BOX:
        return pa.list_(pa.list_(value, len(BOX_SIDES)))
    if feature.is_ragged:
        return pa.list_(pa.list_(value))
    return pa.list_(value) if feature.is_list else value


def record_type(feature: Feature) -> "pa.DataType":
    """Returns the Arrow type of the feature's columns for the Example encoder."""
    import pyarrow as pa

    value = pa.type_for_alias(_RECORD_TYPES[feature.kind])
    return pa.list_(value) if feature.is_list or feature.kind is Kind.BOX else value


def record_fields(feature: Feature) -> "list[pa.Field]":
    """Returns the feature's columns for the Example encoder, one for each key."""
    import pyarrow as pa

    kind, keys = record_type(feature), feature.record_keys
    kinds = [kind, pa.list_(pa.int64())] if feature.is_ragged else [kind] * len(keys)
    return list(map(pa.field, keys, kinds))
