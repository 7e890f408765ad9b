"""What the values of gathered rows are: counts that can be added up, and a schema.

Each bundle counts what its rows hold, by the type of the values. The counts of all
bundles give the schema, whatever rows were in which bundle:

    all values of types that join           -> the feature of the joined type
    types that do not join, 99 of 100 alike -> the feature of those; others are rejects
    otherwise                               -> an error that names both types
    no value at all                         -> text

Integers and floats join, and so do text and bytes, times of two units, lists of what
joins. Bytes are images where 99 of 100 start as image files do.
"""

import dataclasses
from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import is_bytes, is_list, raw_values
from transforms.core.arrow_types import PYTHON, wider_type
from transforms.core.infer.evidence import inference
from transforms.core.infer.example_text import example_text
from transforms.core.infer.typed import infer_typed
from transforms.core.placing.content import image_mask
from transforms.core.rows.float32 import FLOAT32_EXACT, FLOAT64_EXACT, LargeNumbers
from transforms.core.rows.python_value import python_value
from transforms.core.schema import Feature, Kind
from transforms.errors import EncodingError, bounded
from transforms.gather.row_batches import RowBatch

__all__ = ["InferredColumn", "Tally", "count_values", "infer", "merge_tallies"]

_OF_100 = 99
_FLOAT32_MAX = float(np.finfo(np.float32).max)


@dataclasses.dataclass(frozen=True, slots=True)
class Counts:
    """What is known of the values of one column that are of one type.

    Attributes:
      type: as `batches_of` gives it.
      values: how many there are; missing ones do not count.
      integers: of floats, how many of them were integers.
      whole: whether all numbers are whole and inside int64.
      minimum, maximum: of the finite numbers; None for none.
      voters, fractions: of numbers of 2^24 and more, as `LargeNumbers` has them.
      images: of bytes, how many start as image files do.
      example: the first value in the order of their texts.
    """

    type: pa.DataType
    values: int = 0
    integers: int = 0
    whole: bool = True
    minimum: int | float | None = None
    maximum: int | float | None = None
    voters: int = 0
    fractions: int = 0
    images: int = 0
    example: str = ""

    def merge(self, other: "Counts") -> "Counts":
        """Returns the counts of both; their types join."""
        kind = wider_type(self.type, other.type, PYTHON)
        assert kind is not None, "only types that join are merged"
        lows = [x for x in (self.minimum, other.minimum) if x is not None]
        highs = [x for x in (self.maximum, other.maximum) if x is not None]
        texts = [text for text in (self.example, other.example) if text]
        return Counts(
            kind,
            self.values + other.values,
            self.integers + other.integers,
            self.whole and other.whole,
            min(lows, default=None),
            max(highs, default=None),
            self.voters + other.voters,
            self.fractions + other.fractions,
            self.images + other.images,
            min(texts, default=""),
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Tally:
    """Counts of some rows.

    Attributes:
      rows: how many.
      columns: name -> type as text -> the counts of its values of this type.
    """

    rows: int = 0
    columns: Mapping[str, Mapping[str, Counts]] = dataclasses.field(
        default_factory=dict
    )


@dataclasses.dataclass(frozen=True, slots=True)
class InferredColumn:
    """What a column is to be.

    Attributes:
      feature: for it.
      type: that all its values join to; what does not join is a reject.
    """

    feature: Feature
    type: pa.DataType


def count_values(batch: RowBatch) -> Tally:
    """Returns the counts of a batch."""
    rows = batch.rows
    columns = {}
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        counts = _counts(column, batch.integers.get(name, 0))
        columns[name] = {str(column.type): counts}
    return Tally(rows.num_rows, columns)


def merge_tallies(tallies: Iterable[Tally]) -> Tally:
    """Returns the counts of all rows."""
    total = 0
    columns: dict[str, dict[str, Counts]] = {}
    for tally in tallies:
        total += tally.rows
        for name, kinds in tally.columns.items():
            known = columns.setdefault(name, {})
            for key, counts in kinds.items():
                known[key] = known[key].merge(counts) if key in known else counts
    return Tally(total, columns)


def infer(tally: Tally, *, label: str | None = None) -> dict[str, InferredColumn]:
    """Returns what each column is to be, in the order of the names.

    Args:
      tally: of all rows.
      label: the column to predict: texts of it are class names.

    Raises:
      EncodingError: a column has values of types that do not join.
    """
    out = {}
    for name in sorted(tally.columns):
        counts = _joined(name, tally.columns[name].values())
        out[name] = InferredColumn(_feature(name, counts, label), counts.type)
    return out


def _counts(column: pa.Array, integers: int) -> Counts:
    kind = column.type
    values = len(column) - column.null_count
    if not values:
        return Counts(kind)
    first = _first(column)
    items = column
    while is_list(items.type):
        items = items.flatten()
    if pa.types.is_integer(items.type):
        return _of_integers(items, Counts(kind, values, integers, example=first))
    if pa.types.is_floating(items.type):
        return _of_floats(items, Counts(kind, values, integers, example=first))
    images = 0
    if is_bytes(items.type) and not pa.types.is_string(items.type):
        images = int(image_mask(items.cast(pa.large_binary())).sum())
    return Counts(kind, values, images=images, example=first)


def _first(column: pa.Array) -> str:
    # Of a few, which are enough for a message; they decide nothing.
    texts = (_text(value) for value in column.drop_null().slice(0, 1))
    return min(texts, default="")


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


def _joined(name: str, found: Iterable[Counts]) -> Counts:
    """Returns the counts of the type that a column is to have."""
    # In an order that no bundle decides: joining is not associative for all types.
    kinds = sorted(found, key=lambda counts: (-counts.values, str(counts.type)))
    total = sum(counts.values for counts in kinds)
    joined: list[Counts] = []
    for counts in kinds:
        if not counts.values and len(kinds) > 1:
            continue
        for place, before in enumerate(joined):
            if wider_type(before.type, counts.type, PYTHON) is not None:
                joined[place] = before.merge(counts)
                break
        else:
            joined.append(counts)
    if not joined:
        return kinds[0]
    joined.sort(key=lambda counts: (-counts.values, str(counts.type)))
    first = joined[0]
    if len(joined) == 1 or first.values * 100 >= total * _OF_100:
        return first
    second = joined[1]
    raise EncodingError(
        bounded(
            f"Every value of {name!r} must be of one kind; {first.values:,} are "
            f"{first.type} (as {first.example!r}) and {second.values:,} "
            f"{second.type} (as {second.example!r}). Make them one kind before they "
            f"are written, or say which in features=."
        )
    )


def _feature(name: str, counts: Counts, label: str | None) -> Feature:
    empty = pa.array([], counts.type)
    if isinstance(counts.type, pa.FixedShapeTensorType):
        empty = pa.ExtensionArray.from_storage(
            counts.type, pa.array([], counts.type.storage_type)
        )
    feature, evidence = infer_typed({name: empty})[name]
    most_are_images = counts.images * 100 >= max(counts.values, 1) * _OF_100
    if feature.kind is Kind.BYTES and most_are_images and len(feature.shape) < 2:
        feature = dataclasses.replace(feature, kind=Kind.IMAGE, inline=True)
    if feature.kind is Kind.FLOAT:
        evidence = dataclasses.replace(
            evidence,
            sampled=counts.values,
            minimum=counts.minimum,
            maximum=counts.maximum,
            whole=counts.whole,
            numbers=LargeNumbers(counts.voters, counts.fractions),
        )
    return inference({name: (feature, evidence)}, label).features[0]
