"""What the values of gathered rows are: counts that can be added up.

Each bundle counts what its rows hold, by the type of the values. The counts of all
bundles are the same, whatever rows were in which bundle.

It counts, too, how large its rows are as records, with the image files that they name:
about, for that decides how many shards a split has, and nothing else.
"""

import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import (
    data_of,
    is_bytes,
    is_list,
    numpy_mask,
    offsets_of,
    raw_values,
    rows_holding,
    values_and_rows,
)
from transforms.core.infer.evidence import (
    LargeNumbers,
    example_text,
    is_named_like_images,
    starts_as_image,
)
from transforms.core.rows.column import FLOAT32_EXACT, FLOAT64_EXACT, python_value
from transforms.core.rows.common_type import PYTHON, wider_type
from transforms.core.rows.conform import conform
from transforms.core.rows.typed_cells import is_image_struct
from transforms.core.schema import Feature, Kind, Schema
from transforms.core.statistics import wider
from transforms.formats.file_names import IMAGE_SUFFIXES
from transforms.rows.typed_rows import RowRule

_FLOAT32_MAX = float(np.finfo(np.float32).max)
# Behind the suffix of a path in a store: how the store is reached.
_SUFFIX = "({})$|({})[?][A-Za-z_]+=[^?]*$".format(
    *["|".join(suffix.replace(".", "[.]") for suffix in IMAGE_SUFFIXES)] * 2
)
_ABSOLUTE = "^(/|[A-Za-z][A-Za-z0-9+.-]*://)"
# What a record takes beside its values: its frame, and a feature's tags and lengths.
_ROW_BYTES = 24
_VALUE_BYTES = 8
_FEATURE_BYTES = 12
# Of class names that nobody knows, so many are listed.
_MOST_NEW = 64

Longs = npt.NDArray[np.int64]


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
        return Counts(
            kind,
            self.values + other.values,
            self.whole and other.whole,
            *wider((self.minimum, self.maximum), (other.minimum, other.maximum)),
            self.voters + other.voters,
            self.fractions + other.fractions,
            self.filled + other.filled,
            self.images + other.images,
            self.relative + other.relative,
            min(filter(None, (self.example, other.example)), default=""),
            min(filter(None, (self.path, other.path)), default=""),
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Tally:
    """Counts of some rows.

    Attributes:
      rows: how many.
      columns: name -> type as text -> the counts of its values of this type.
      mappings: columns that are mappings in some rows, whose parts are columns.
      new_classes: label -> names that its known classes lack, up to the first
        `_MOST_NEW` in their order.
    """

    rows: int = 0
    columns: Mapping[str, Mapping[str, Counts]] = dataclasses.field(
        default_factory=dict
    )
    mappings: frozenset[str] = frozenset()
    new_classes: Mapping[str, frozenset[str]] = dataclasses.field(default_factory=dict)


def count_values(rows: pa.RecordBatch, rule: RowRule) -> Tally:
    """Returns the counts of a batch, as `batches_of` gives it."""
    columns = {
        name: {str(column.type): _counts_of_column(name, column, rule)}
        for name, column in zip(rows.schema.names, rows.columns, strict=True)
    }
    return Tally(rows.num_rows, columns)


def new_classes(
    rows: pa.RecordBatch, labels: Iterable[tuple[Feature, frozenset[str]]]
) -> Tally:
    """Returns what a batch has in labels beside their known class names; no counts.

    Args:
      rows: under the names of the features, or of their columns.
      labels: each with its names.
    """
    out = {}
    for feature, classes in labels:
        names = (feature.source_column, feature.name)
        column = next((n for n in names if n in rows.schema.names), None)
        if column is None:
            continue
        items, _ = values_and_rows(rows.column(column))
        bare = Feature("", Kind.LABEL, separator=feature.separator)
        items = items.unique().drop_null()
        typed, misfits = conform({"": items}, Schema((bare,)), len(items), "")
        texts = typed.column(0)
        for misfit in misfits:
            texts = texts.filter(pa.array(~misfit.bad))
        texts, _ = values_and_rows(texts)
        new = {*texts.to_pylist()} - classes - {None}
        if new:
            out[feature.name] = frozenset(sorted(new)[:_MOST_NEW])
    return Tally(new_classes=out)


def merge_tallies(tallies: Iterable[Tally]) -> Tally:
    """Returns the counts of all rows."""
    total = 0
    new: dict[str, frozenset[str]] = {}
    mappings: set[str] = set()
    columns: dict[str, dict[str, Counts]] = {}
    for tally in tallies:
        total += tally.rows
        mappings |= tally.mappings
        for name, names in tally.new_classes.items():
            both = sorted(names | new.get(name, frozenset()))
            new[name] = frozenset(both[:_MOST_NEW])
        for name, kinds in tally.columns.items():
            merged = columns.setdefault(name, {})
            for key, counts in kinds.items():
                merged[key] = merged[key].merge(counts) if key in merged else counts
    return Tally(total, columns, frozenset(mappings), new)


def _counts_of_column(name: str, column: pa.Array, rule: RowRule) -> Counts:
    """Returns the counts of a column."""
    counts = Counts(column.type)
    holding = rows_holding(column)
    values = int(np.count_nonzero(holding))
    if not values:
        return counts
    example = _example_of(column[int(holding.argmax())])
    counts = dataclasses.replace(counts, values=values, example=example)
    items = column
    while is_list(items.type):
        items = items.flatten()
    if pa.types.is_integer(items.type):
        return _counts_of_integers(items, counts)
    if pa.types.is_floating(items.type):
        return _counts_of_floats(items, counts)
    if pa.types.is_string(items.type):
        is_named = _names_images(name, column, rule)
        return counts if is_named is None else _counts_of_paths(items, counts, is_named)
    if is_bytes(items.type):
        large = items.cast(pa.large_binary())
        return dataclasses.replace(
            counts,
            filled=_count_true(pc.greater(pc.binary_length(large), 0)),
            images=int(starts_as_image(large).sum()),
        )
    if is_image_struct(items.type):
        contents = pc.struct_field(items, "bytes").cast(pa.large_binary()).drop_null()
        starts = int(starts_as_image(contents).sum())
        return dataclasses.replace(counts, filled=len(contents), images=starts)
    return counts


def _count_true(mask: pa.BooleanArray) -> int:
    """Returns how many are true; null is not."""
    return pc.sum(mask).as_py() or 0


def _names_images(name: str, column: pa.Array, rule: RowRule) -> bool | None:
    """Whether texts are paths of images by declaration or name; None: they are not.

    Those of any other column may be, where a folder makes relative paths complete.
    """
    if name in rule.images:
        return True
    if is_named_like_images(name, is_list=is_list(column.type)):
        return None if name in rule.texts else True
    return False if rule.images_root and name not in rule.texts else None


def _counts_of_paths(items: pa.Array, counts: Counts, is_named: bool) -> Counts:
    """Returns counts with how many texts are filled, images' paths, or relative."""
    filled = pc.not_equal(items, "")
    ends = ends_like_image(items)
    return dataclasses.replace(
        counts,
        filled=_count_true(filled),
        images=_count_true(ends),
        relative=_count_true(pc.and_not(filled, is_absolute(items))),
        path="" if is_named else pc.min(items.filter(ends)).as_py() or "",
    )


def is_absolute(paths: pa.StringArray) -> pa.BooleanArray:
    """Returns which of n texts are URLs or absolute paths; null for null."""
    return pc.match_substring_regex(paths, _ABSOLUTE)


def ends_like_image(paths: pa.StringArray) -> pa.BooleanArray:
    """Returns which of n texts end like paths of images; false or null for null."""
    # Most texts are no paths: 1 ns each to see it, where the expression takes 58.
    bounds = offsets_of(paths)
    if not (data_of(paths)[bounds[0] : bounds[-1]] == ord(".")).any():
        return pa.array(np.zeros(len(paths), np.bool_))
    return pc.match_substring_regex(paths, _SUFFIX, ignore_case=True)


def _example_of(value: pa.Scalar) -> str:
    """Returns a value as messages show it; of bytes only how many."""
    native = python_value(value)
    if isinstance(native, bytes):
        return f"{len(native)} bytes"
    return example_text(native)


def _counts_of_integers(items: pa.Array, counts: Counts) -> Counts:
    """Returns counts with the extent of integers, and the votes on float32."""
    extent = pc.min_max(items).as_py()
    low, high = extent["min"], extent["max"]
    voters = 0
    if low is not None and max(-low, high) > FLOAT32_EXACT:
        size = np.abs(raw_values(items.drop_null()).astype(np.float64))
        voters = int(((size > FLOAT32_EXACT) & (size <= FLOAT64_EXACT)).sum())
    return dataclasses.replace(counts, minimum=low, maximum=high, voters=voters)


def _counts_of_floats(items: pa.Array, counts: Counts) -> Counts:
    """Returns counts with the extent of finite floats, and whether all are whole."""
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


def row_sizes(rows: pa.RecordBatch) -> Longs:
    """Counts about how many bytes each of n rows takes as a record.

    A function of the values alone, not of how Arrow holds them.
    """
    out = np.full(rows.num_rows, _ROW_BYTES, np.int64)
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        sizes = _value_sizes(column) + (len(name.encode()) + _FEATURE_BYTES)
        if column.null_count:
            sizes[numpy_mask(column.is_null())] = 0
        out += sizes
    return out


def _value_sizes(column: pa.Array) -> Longs:
    """Counts about how many bytes the value of each row takes in an Example."""
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    kind = column.type
    if is_bytes(kind):
        return np.asarray(pc.binary_length(column).fill_null(0)).astype(np.int64)
    if is_list(kind):
        counts = np.asarray(pc.list_value_length(column).fill_null(0)).astype(np.int64)
        items = column.flatten()
        if not is_bytes(items.type) and not is_list(items.type):
            return counts * _VALUE_BYTES
        sums = np.concatenate(([0], np.cumsum(_value_sizes(items))))
        stops = np.cumsum(counts)
        list_sizes: Longs = sums[stops] - sums[stops - counts]
        return list_sizes
    return np.full(len(column), _VALUE_BYTES, np.int64)


def file_sizes(
    rows: pa.RecordBatch,
    rule: RowRule,
    sizes_of: Callable[[Iterable[str]], Mapping[str, int]],
) -> Longs | None:
    """Counts the bytes of the image files of n rows; None for no paths.

    A file that is not there counts nothing: it is a reject later.

    Args:
      rows: n of them.
      rule: says which columns are of images.
      sizes_of: returns path -> bytes of those files that are there.
    """
    named = zip(rows.schema.names, rows.columns, strict=True)
    columns = [*filter(None, (_paths(name, column, rule) for name, column in named))]
    if not columns:
        return None
    distinct = {path for _, paths in columns for path in paths if path}
    sizes = sizes_of(sorted(distinct))
    out = np.zeros(rows.num_rows, np.int64)
    for rows_of, paths in columns:
        of_paths = [sizes.get(path, 0) for path in paths]
        np.add.at(out, rows_of, np.array(of_paths, np.int64))
    return out


def _paths(
    name: str, column: pa.Array, rule: RowRule
) -> tuple[Longs, list[str]] | None:
    """Returns (row, path) of image files to count in a column; None for none."""
    is_named = _names_images(name, column, rule)
    column, rows_of = values_and_rows(column)
    if is_named is None or not pa.types.is_string(column.type):
        return None
    if name not in rule.images:
        ends = ends_like_image(column)
        # Whatever its name, a column may hold relative paths.
        ends = ends if is_named else pc.and_not(ends, is_absolute(column))
        column = pc.if_else(ends, column, None)
    paths = [
        path if not path or "://" in path else os.path.join(rule.images_root, path)
        for path in column.fill_null("").to_pylist()
    ]
    return rows_of, paths
