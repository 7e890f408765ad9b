"""The features of gathered rows, by the counts of all their values.

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
from collections.abc import Callable, Iterable, Mapping

import pyarrow as pa

from transforms.core.arrays import is_bytes, is_list
from transforms.core.infer.columns import infer_typed
from transforms.core.infer.evidence import LargeNumbers, inference, is_named_like_images
from transforms.core.rows.common_type import PYTHON, wider_type
from transforms.core.schema import Feature, InexactIntegers, Kind
from transforms.errors import EncodingError, bounded
from transforms.rows.tally import Counts, Tally

_OF_100 = 99
_PATHS_OF_100 = 95
_NO_TEXTS = (Kind.INT64, Kind.FLOAT, Kind.BOOL, Kind.BOX)
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
class Declared:
    """What somebody says of a column, so that its values do not decide it.

    Attributes:
      kind: of its feature; None where several features are of it.
      type: of its values, where the type of the rows says one.
      takes_floats: whether whole floats are integers, as in files.
    """

    kind: Kind | None = None
    type: pa.DataType | None = None
    takes_floats: bool = False

    def takes(self, kind: pa.DataType) -> bool:
        """Whether values of a type may become the feature.

        >>> Declared(Kind.INT64).takes(pa.list_(pa.string()))
        False
        """
        while is_list(kind):
            kind = kind.value_type
        if self.kind is Kind.INT64 and pa.types.is_floating(kind):
            return self.takes_floats
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
      values: one or two of its values, of its first type; nulls where none is plain.
      relative: how many values are no absolute paths, where paths count.
      path: one of the values, where nearly each row has relative paths that end like
        those of images, and the column's name says nothing of images; else empty.
    """

    feature: Feature
    types: tuple[pa.DataType, ...]
    sample: pa.Array
    values: pa.Array
    relative: int = 0
    path: str = ""


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
            # An empty list has the type of what was beside it in its batch.
            taken = [c for c in kinds.values() if c.values and said.takes(c.type)]
            groups = _groups(taken)
            if said.kind is Kind.INT64 and said.takes_floats:
                # Not joined: floats do not hold integers beyond 2^53.
                groups = sorted(taken, key=_rank)
        elif _is_parent(name, kinds, tally):
            continue
        else:
            if name in tally.mappings:
                _check_no_values(name, kinds.values())
            groups = [first := _joined(name, kinds.values())]
        out[name] = InferredColumn(
            _feature(name, first, label, sure=said is not None and bool(said.type)),
            tuple(counts.type for counts in groups),
            _sample_column(first),
            _values(first),
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
    """Raises EncodingError where a column to infer is a mapping in some rows only."""
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


def _groups(found: Iterable[Counts]) -> list[Counts]:
    """Returns counts by inferred types that do not join, those with most values first.

    Types are joined in a fixed order, for joining is not associative: an integer joins
    floats and decimals, which do not join.
    """
    kinds = sorted(found, key=_rank)
    groups: list[Counts] = []
    for counts in [c for c in kinds if c.values] or kinds:
        for index, before in enumerate(groups):
            if wider_type(before.type, counts.type, PYTHON) is not None:
                groups[index] = before.merge(counts)
                break
        else:
            groups.append(counts)
    return sorted(groups, key=lambda counts: (-counts.values, _rank(counts)))


def _rank(counts: Counts) -> tuple[int, int, str]:
    """Returns the place of an inferred type in the order bool, int64, float, text."""
    leaf, depth = counts.type, 0
    while is_list(leaf):
        leaf, depth = leaf.value_type, depth + 1
    ranks = (rank for rank, is_of in enumerate(_RANKS) if is_of(leaf))
    return depth, next(ranks, len(_RANKS)), str(counts.type)


def _joined(name: str, found: Iterable[Counts]) -> Counts:
    """Returns the counts of the type that is inferred for a column."""
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
    """Returns the name of an inferred type as Python's users know it."""
    if is_list(kind):
        return f"list of {_in_words(kind.value_type)}"
    if isinstance(kind, pa.FixedShapeTensorType):
        shape = "x".join(map(str, kind.shape))
        return f"array of {_in_words(kind.value_type)} of shape {shape}"
    return next((word for is_of, word in _RANKS.items() if is_of(kind)), str(kind))


def _sample_column(counts: Counts) -> pa.Array:
    """Returns a column of the counted type, by which `infer_typed` decides the kind."""
    kind = counts.type
    if not pa.types.is_struct(kind):
        return pa.nulls(0, kind)
    # Whether images are in the rows or beside them shows in a value alone.
    row = {"bytes": b"", "path": None}
    return pa.array([row if counts.filled else {"bytes": None, "path": ""}], kind)


def _values(counts: Counts) -> pa.Array:
    """Returns values that show what the others of a type are like."""
    kind, depth = counts.type, 0
    while is_list(kind):
        kind, depth = kind.value_type, depth + 1
    if not counts.values or isinstance(kind, pa.BaseExtensionType):
        return pa.nulls(1)
    if counts.minimum is not None:
        # Arrow makes no float of an integer that it does not hold exactly.
        of_kind = float if pa.types.is_floating(kind) else int
        ends = (counts.minimum, counts.maximum)
        values = pa.array([of_kind(end) for end in ends if end is not None], kind)
    elif pa.types.is_string(kind):
        values = pa.array([counts.example])
    elif is_bytes(kind):
        values = pa.array([b"x"], kind)
    elif pa.types.is_primitive(kind) or pa.types.is_decimal(kind):
        values = pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(bytes(32))])
    else:
        return pa.nulls(1)
    for _ in range(depth):
        bounds = pa.array([0, len(values)], pa.int32())
        values = pa.ListArray.from_arrays(bounds, values)
    return values


def _feature(name: str, counts: Counts, label: str | None, *, sure: bool) -> Feature:
    """Returns the feature of a column.

    Args:
      name: of the column.
      counts: of its values.
      label: the column to predict.
      sure: whether the type is said, and whole floats stay floats.
    """
    feature, evidence = infer_typed({name: _sample_column(counts)})[name]
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
    inferred = inference({name: (feature, evidence)}, label).features[0]
    if not sure:
        return inferred
    # Whoever says float knows that it rounds.
    return dataclasses.replace(inferred, inexact_integers=InexactIntegers.ROUND)


def _are_images(name: str, feature: Feature, counts: Counts) -> bool:
    """Whether enough bytes start, or texts of a fitting name end, as images do."""
    if feature.kind is Kind.BYTES:
        return counts.images * 100 >= max(counts.filled, 1) * _OF_100
    if feature.kind is Kind.TEXT and counts.images:
        is_list = bool(feature.shape)
        most = counts.images * 100 >= counts.filled * _PATHS_OF_100
        return most and is_named_like_images(name, is_list=is_list)
    return False
