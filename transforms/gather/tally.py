"""What the values of gathered rows are: counts that can be added up, and a schema.

Each bundle counts what its rows hold, by the type of the values. The counts of all
bundles give the schema, whatever rows were in which bundle:

    all values of types that join           -> the feature of the joined type
    types that do not join, 99 of 100 alike -> the feature of those; others are rejects
    otherwise                               -> an error that names both types
    no value at all                         -> text

Integers join floats, or else decimals; text and bytes join, times of two units, and
lists of what joins. An empty list says nothing of its items, and does not count.
Bytes are images where 99 of 100 start as image files do, texts are paths of images
where the column's name and 95 of 100 say so, or where 99 of 100 rows name files of
images (`InferredColumn.path`).
"""

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import is_bytes, is_list, raw_values, rows_holding
from transforms.core.arrow_types import PYTHON, wider_type
from transforms.core.infer.evidence import inference
from transforms.core.infer.example_text import example_text
from transforms.core.infer.image_names import is_named_like_images
from transforms.core.infer.typed import infer_typed, starts_as_image
from transforms.core.rows.float32 import FLOAT32_EXACT, FLOAT64_EXACT, LargeNumbers
from transforms.core.rows.python_value import python_value
from transforms.core.rows.scalars import is_image_struct
from transforms.core.schema import Feature, InexactIntegers, Kind
from transforms.errors import EncodingError, bounded
from transforms.formats.image_suffixes import IMAGE_SUFFIXES

_OF_100 = 99
_PATHS_OF_100 = 95
_FLOAT32_MAX = float(np.finfo(np.float32).max)
# Behind the suffix of a path in a store: how the store is reached.
_SUFFIX = "({})$|({})[?][A-Za-z_]+=[^?]*$".format(
    *["|".join(suffix.replace(".", "[.]") for suffix in IMAGE_SUFFIXES)] * 2
)
_NO_TEXTS = (Kind.INT64, Kind.FLOAT, Kind.BOOL, Kind.BOX)
_ABSOLUTE = "^(/|[A-Za-z][A-Za-z0-9+.-]*://)"
# The fixed order of types, with their names in messages.
_RANKS: Mapping[Callable[[pa.DataType], bool], str] = {
    pa.types.is_null: "nothing",
    pa.types.is_boolean: "bool",
    pa.types.is_integer: "int",
    pa.types.is_floating: "float",
    pa.types.is_decimal: "decimal",
    pa.types.is_string: "text",
    is_bytes: "bytes",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Counts:
    """What is known of the values of one column that are of one type.

    Attributes:
      type: as `batches_of` gives it.
      values: how many hold something; missing ones and empty lists do not count.
      whole: whether all numbers are whole and inside int64.
      minimum, maximum: of the finite numbers; None for none.
      voters, fractions: of numbers of 2^24 and more, as `LargeNumbers` has them.
      filled: of bytes and texts, how many are not empty.
      images: of those, how many start as image files, or end as paths of images.
        `filled` and `images` of structs are of their bytes.
      relative: of texts in columns of images, how many are no absolute paths.
      path: of such texts in another column, the first that ends like an image's path.
      example: the first value in the order of their texts.
    """

    type: pa.DataType
    values: int = 0
    whole: bool = True
    minimum: int | float | None = None
    maximum: int | float | None = None
    voters: int = 0
    fractions: int = 0
    filled: int = 0
    images: int = 0
    relative: int = 0
    example: str = ""
    path: str = ""

    def merge(self, other: "Counts") -> "Counts":
        """Returns the counts of both; their types join."""
        kind = wider_type(self.type, other.type, PYTHON)
        assert kind is not None, "only types that join are merged"
        lows = [x for x in (self.minimum, other.minimum) if x is not None]
        highs = [x for x in (self.maximum, other.maximum) if x is not None]
        texts = [text for text in (self.example, other.example) if text]
        paths = [path for path in (self.path, other.path) if path]
        return Counts(
            kind,
            self.values + other.values,
            self.whole and other.whole,
            min(lows, default=None),
            max(highs, default=None),
            self.voters + other.voters,
            self.fractions + other.fractions,
            self.filled + other.filled,
            self.images + other.images,
            self.relative + other.relative,
            min(texts, default=""),
            min(paths, default=""),
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Tally:
    """Counts of some rows.

    Attributes:
      rows: how many.
      columns: name -> type as text -> the counts of its values of this type.
      mappings: columns that are mappings in some rows, whose parts are columns.
    """

    rows: int = 0
    columns: Mapping[str, Mapping[str, Counts]] = dataclasses.field(
        default_factory=dict
    )
    mappings: frozenset[str] = frozenset()


@dataclasses.dataclass(frozen=True, slots=True)
class Declared:
    """What somebody says of a column, so that its values do not decide it.

    Attributes:
      kind: of its feature; None where several features are of it.
      type: of its values, where the type of the rows says one.
    """

    kind: Kind | None = None
    type: pa.DataType | None = None

    def takes(self, kind: pa.DataType) -> bool:
        """Whether values of a type may become the feature: no float is an integer.

        >>> Declared(Kind.INT64).takes(pa.list_(pa.string()))
        False
        """
        while is_list(kind):
            kind = kind.value_type
        if self.kind is Kind.INT64 and pa.types.is_floating(kind):
            return False
        return self.kind not in _NO_TEXTS or not is_bytes(kind)


@dataclasses.dataclass(frozen=True, slots=True)
class InferredColumn:
    """What a column is to be.

    Attributes:
      feature: for it.
      types: what its values join to: one type, of a declared column any number. A
        value of another type is a reject.
      sample: the column in short: of its first type, with no rows, or one that says
        where its images are.
      relative: how many values are no absolute paths, where paths count.
      path: one of the values, where nearly each row has relative paths that end like
        those of images, and the column's name says nothing of images; else empty.
    """

    feature: Feature
    types: tuple[pa.DataType, ...]
    sample: pa.Array
    relative: int = 0
    path: str = ""


def count_values(
    rows: pa.RecordBatch,
    images: Collection[str] = (),
    *,
    texts: Collection[str] | None = None,
) -> Tally:
    """Returns the counts of a batch.

    Args:
      rows: as `batches_of` gives them.
      images: columns that are declared to be of images.
      texts: columns whose texts are no paths of images, where those of others may be,
        whatever their names; None where the name must say so.
    """

    def counts(name: str, column: pa.Array) -> Counts:
        any_paths = texts is not None and name not in texts
        return _counts(name, column, name in images, any_paths)

    columns = {
        name: {str(column.type): counts(name, column)}
        for name, column in zip(rows.schema.names, rows.columns, strict=True)
    }
    return Tally(rows.num_rows, columns)


def merge_tallies(tallies: Iterable[Tally]) -> Tally:
    """Returns the counts of all rows."""
    total = 0
    mappings: set[str] = set()
    columns: dict[str, dict[str, Counts]] = {}
    for tally in tallies:
        total += tally.rows
        mappings |= tally.mappings
        for name, kinds in tally.columns.items():
            known = columns.setdefault(name, {})
            for key, counts in kinds.items():
                known[key] = known[key].merge(counts) if key in known else counts
    return Tally(total, columns, frozenset(mappings))


def infer(
    tally: Tally,
    *,
    label: str | None = None,
    declared: Mapping[str, Declared] | None = None,
) -> dict[str, InferredColumn]:
    """Returns what each column is to be, in the order of the names.

    Args:
      tally: of all rows.
      label: the column to predict: texts of it are class names.
      declared: of columns; their values may be of any types, for each is checked
        later.

    Raises:
      EncodingError: a column has values of types that do not join.
    """
    declared = declared or {}
    out = {}
    for name in sorted({*tally.columns, *declared}):
        kinds = tally.columns.get(name, {})
        said = declared.get(name)
        if said is not None:
            groups = _groups(kinds.values())
            first = groups[0] if groups else Counts(pa.null())
            if said.type is not None:
                first = dataclasses.replace(first, type=said.type)
            groups = _groups(c for c in kinds.values() if said.takes(c.type))
        elif _is_parent(name, kinds, tally):
            continue
        else:
            if name in tally.mappings:
                _check_no_values(name, kinds.values())
            groups = [first := _joined(name, kinds.values())]
        out[name] = InferredColumn(
            _feature(name, first, label, sure=said is not None and bool(said.type)),
            tuple(counts.type for counts in groups),
            _sample(first),
            first.relative,
            first.path if _are_paths(first, tally.rows) else "",
        )
    return out


def _are_paths(counts: Counts, rows: int) -> bool:
    """Whether nearly each of n rows has relative paths that end like an image's."""
    most = min(counts.images, counts.relative) * 100
    is_full = counts.values * 100 >= rows * _OF_100
    return is_full and most >= max(counts.values, counts.filled) * _OF_100


def _is_parent(name: str, kinds: Mapping[str, Counts], tally: Tally) -> bool:
    """Whether a column without values is that of mappings, which have their own."""
    if any(counts.values for counts in kinds.values()):
        return False
    return any(other.startswith(f"{name}/") for other in tally.columns)


def _check_no_values(name: str, found: Iterable[Counts]) -> None:
    """Raises EncodingError where a column is a mapping in some rows and not in all."""
    first, *_ = _groups(found)
    if first.values:
        raise EncodingError(
            bounded(
                f"Every value of {name!r} must be of one kind; {first.values:,} are "
                f"{_in_words(first.type)} (as {first.example!r}), and others are "
                f"mappings. Make them one kind before they are written, or say which "
                f"in features=: then mappings are rejects."
            )
        )


def _counts(name: str, column: pa.Array, is_image: bool, any_paths: bool) -> Counts:
    counts = Counts(column.type)
    holding = rows_holding(column)
    values = int(np.count_nonzero(holding))
    if not values:
        return counts
    example = _text(column[int(holding.argmax())])
    counts = dataclasses.replace(counts, values=values, example=example)
    items = column
    while is_list(items.type):
        items = items.flatten()
    if pa.types.is_integer(items.type):
        return _of_integers(items, counts)
    if pa.types.is_floating(items.type):
        return _of_floats(items, counts)
    if pa.types.is_string(items.type):
        if is_image or is_named_like_images(name, is_list=items is not column):
            return _of_paths(items, counts)
        if any_paths:
            first = pc.min(items.filter(ends_like_image(items))).as_py()
            return dataclasses.replace(_of_paths(items, counts), path=first or "")
        return counts
    if is_bytes(items.type):
        large = items.cast(pa.large_binary())
        return dataclasses.replace(
            counts,
            filled=_true(pc.greater(pc.binary_length(large), 0)),
            images=int(starts_as_image(large).sum()),
        )
    if is_image_struct(items.type):
        held = pc.struct_field(items, "bytes").cast(pa.large_binary()).drop_null()
        starts = int(starts_as_image(held).sum())
        return dataclasses.replace(counts, filled=len(held), images=starts)
    return counts


def _true(mask: pa.BooleanArray) -> int:
    return pc.sum(mask).as_py() or 0


def _of_paths(items: pa.Array, counts: Counts) -> Counts:
    filled = pc.not_equal(items, "")
    absolute = is_absolute(items)
    ends = ends_like_image(items)
    return dataclasses.replace(
        counts,
        filled=_true(filled),
        images=_true(ends),
        relative=_true(pc.and_not(filled, absolute)),
    )


def is_absolute(paths: pa.StringArray) -> pa.BooleanArray:
    """Returns which of n texts are URLs or absolute paths; null for null."""
    return pc.match_substring_regex(paths, _ABSOLUTE)


def ends_like_image(paths: pa.StringArray) -> pa.BooleanArray:
    """Returns which of n texts end like paths of images; null for null."""
    return pc.match_substring_regex(paths, _SUFFIX, ignore_case=True)


def _text(value: pa.Scalar) -> str:
    found = python_value(value)
    if isinstance(found, bytes):
        return f"{len(found)} bytes"
    return example_text(found)


def _of_integers(items: pa.Array, counts: Counts) -> Counts:
    extent = pc.min_max(items).as_py()
    low, high = extent["min"], extent["max"]
    voters = 0
    if low is not None and max(-low, high) > FLOAT32_EXACT:
        size = np.abs(raw_values(items.drop_null()).astype(np.float64))
        voters = int(((size > FLOAT32_EXACT) & (size <= FLOAT64_EXACT)).sum())
    return dataclasses.replace(counts, minimum=low, maximum=high, voters=voters)


def _of_floats(items: pa.Array, counts: Counts) -> Counts:
    doubles = raw_values(items.drop_null()).astype(np.float64, copy=False)
    inside = (doubles >= -(2.0**63)) & (doubles < 2.0**63)
    whole = bool((inside & (np.floor(doubles) == doubles)).all())
    size = np.abs(doubles)
    finite = doubles[size <= _FLOAT32_MAX]
    low = float(finite.min()) if len(finite) else None
    high = float(finite.max()) if len(finite) else None
    large = finite[np.abs(finite) >= FLOAT32_EXACT]
    numbers = LargeNumbers.of(large)
    return dataclasses.replace(
        counts,
        whole=whole,
        minimum=low,
        maximum=high,
        voters=numbers.voters,
        fractions=numbers.fractions,
    )


def _groups(found: Iterable[Counts]) -> list[Counts]:
    """Returns the counts of types that do not join, those with most values first.

    Types are joined in a fixed order, for joining is not associative: an integer joins
    floats and decimals, which do not join.
    """
    kinds = sorted(found, key=_rank)
    groups: list[Counts] = []
    for counts in [c for c in kinds if c.values] or kinds:
        for place, before in enumerate(groups):
            if wider_type(before.type, counts.type, PYTHON) is not None:
                groups[place] = before.merge(counts)
                break
        else:
            groups.append(counts)
    return sorted(groups, key=lambda counts: (-counts.values, _rank(counts)))


def _rank(counts: Counts) -> tuple[int, int, str]:
    """Returns the place of a type in the fixed order: bool, int64, float, text."""
    leaf, depth = counts.type, 0
    while is_list(leaf):
        leaf, depth = leaf.value_type, depth + 1
    ranks = (place for place, is_of in enumerate(_RANKS) if is_of(leaf))
    return depth, next(ranks, len(_RANKS)), str(counts.type)


def _joined(name: str, found: Iterable[Counts]) -> Counts:
    """Returns the counts of the type that a column is to have."""
    first, *others = _groups(found)
    total = sum(counts.values for counts in (first, *others))
    if not others or first.values * 100 >= total * _OF_100:
        return first
    second = others[0]
    only_nan = any(
        pa.types.is_floating(counts.type) and counts.example == "nan"
        for counts in (first, second)
    )
    nan = " NaN is a float: let None be the missing value." if only_nan else ""
    raise EncodingError(
        bounded(
            f"Every value of {name!r} must be of one kind; {first.values:,} are "
            f"{_in_words(first.type)} (as {first.example!r}) and {second.values:,} "
            f"{_in_words(second.type)} (as {second.example!r}). Make them one kind "
            f"before they are written, or say which in features=.{nan}"
        )
    )


def _in_words(kind: pa.DataType) -> str:
    """Returns the name of a type as Python's users know it."""
    if is_list(kind):
        return f"list of {_in_words(kind.value_type)}"
    if isinstance(kind, pa.FixedShapeTensorType):
        shape = "x".join(map(str, kind.shape))
        return f"array of {_in_words(kind.value_type)} of shape {shape}"
    return next((word for is_of, word in _RANKS.items() if is_of(kind)), str(kind))


def _sample(counts: Counts) -> pa.Array:
    kind = counts.type
    if isinstance(kind, pa.BaseExtensionType):
        storage = pa.array([], kind.storage_type)
        return pa.ExtensionArray.from_storage(kind, storage)
    if pa.types.is_struct(kind):
        # Whether images are in the rows or beside them shows in a value alone.
        row = {"bytes": b"", "path": None}
        return pa.array([row if counts.filled else {"bytes": None, "path": ""}], kind)
    return pa.array([], kind)


def _feature(name: str, counts: Counts, label: str | None, *, sure: bool) -> Feature:
    """Returns the feature of a column.

    Args:
      name: of the column.
      counts: of its values.
      label: the column to predict.
      sure: whether the type is said, and whole floats stay floats.
    """
    feature, evidence = infer_typed({name: _sample(counts)})[name]
    if feature.kind is Kind.IMAGE and counts.images * 2 < counts.filled:
        # A struct of bytes and path whose bytes are of another file.
        feature = dataclasses.replace(feature, kind=Kind.BYTES, inline=False)
    elif len(feature.shape) < 2 and _are_images(name, feature, counts):
        inline = feature.kind is Kind.BYTES
        feature = dataclasses.replace(feature, kind=Kind.IMAGE, inline=inline)
    if feature.kind is Kind.FLOAT and not sure:
        evidence = dataclasses.replace(
            evidence,
            sampled=counts.values,
            minimum=counts.minimum,
            maximum=counts.maximum,
            whole=counts.whole,
            numbers=LargeNumbers(counts.voters, counts.fractions),
        )
    found = inference({name: (feature, evidence)}, label).features[0]
    if not sure:
        return found
    # Whoever says float knows that it rounds.
    return dataclasses.replace(found, inexact_integers=InexactIntegers.ROUND)


def _are_images(name: str, feature: Feature, counts: Counts) -> bool:
    if feature.kind is Kind.BYTES:
        return counts.images * 100 >= max(counts.filled, 1) * _OF_100
    if feature.kind is Kind.TEXT and counts.images:
        is_list = bool(feature.shape)
        most = counts.images * 100 >= counts.filled * _PATHS_OF_100
        return most and is_named_like_images(name, is_list=is_list)
    return False
