"""Evidence for inferred features, and what is decided by all of it.

    evidence of parts -> merge -> evidence of a column -> inference: label and policy

`texts` and `columns` give the evidence of a column in their own ways; from there on
both take the same way.

A float32 does not hold every whole number beyond 2^24 (`transforms.core.rows.column`).
An id or a count is worthless once it is rounded, a measured value is not. The large
numbers of a column decide which of them it holds:

    of those in 2^24 to 2^53, 1 in 100 or more has a fraction -> measured: they round
    fewer have one, or there are no such numbers              -> whole numbers that
                                                                 float32 does not hold
                                                                 are rejects
"""

import dataclasses
import itertools
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import chunks_of, is_list, values_and_rows
from transforms.core.image.formats import is_image_start
from transforms.core.rows.column import (
    FLOAT32_EXACT,
    FLOAT32_MAX,
    Doubles,
    Mask,
    is_beyond_float32,
    python_value,
)
from transforms.core.rows.common_type import plain_array
from transforms.core.rows.typed_cells import is_image_struct
from transforms.core.schema import Feature, InexactIntegers, Kind
from transforms.core.statistics import Extent, wider

EXAMPLE_CHARS = 40
"""Longest text of an example value in a message."""
# Cells among which the first few distinct ones are sought, step by step.
_EXAMPLE_CELLS = (8, 64, 1000)
# Percent of fractions from which on numbers count as measured. Amounts of money and
# rounded measurements have far more; ids with a stray fraction have fewer.
_MEASURED_IN_100 = 1
_HEAD_BYTES = 16
# Values that are looked at for images and examples: each may be an image of megabytes.
_LOOKED_AT = 256
# Percent of those values that start like image files, in a column of images.
_IMAGES_IN_100 = 99
# Percent of the non-empty texts that must end like an image's name. Lists of images
# often hold a few other files, Thumbs.db say.
_PATHS_IN_100 = 95
_IMAGE_COLUMNS = ("image", "file_name", "image_uri", "image_path", "filename", "path")
_IMAGE_ENDINGS = ("_file_name", "_image_uri", "_image_path", "_path", "_uri", "_image")
# Likewise of lists of them, file_names of Hugging Face among them.
LIST_COLUMNS = tuple(f"{name}s" for name in _IMAGE_COLUMNS)
_LIST_ENDINGS = tuple(f"{ending}s" for ending in _IMAGE_ENDINGS)
LIST_NAME = "images"
EXAMPLES = 3
"""How many example values a message shows."""

Cells: TypeAlias = pa.Array | pa.ChunkedArray
"""The cells of a column."""

EXAMPLE_ITEMS = 4
"""Items of a list that are enough for its text, which is the same with more."""


@dataclasses.dataclass(frozen=True, slots=True)
class NearKind:
    """A kind that most cells of a column have, and the texts that prevent it.

    Attributes:
      kind: int64, float or bool.
      share: of the kind, among the cells that are not missing; below 1.
      stops: the most frequent other texts, and how often each occurs.
      alone: whether `stops` has all of them.
    """

    kind: Kind
    share: float
    stops: tuple[tuple[str, int], ...]
    alone: bool


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class LargeNumbers:
    """The numbers of a column that are 2^24 or more from 0.

    Attributes:
      voters: how many of them are in 2^24 to 2^53, both not included and included.
      fractions: how many of those are not whole.
      unheld: how many cells hold a whole one of those that float32 does not hold.
      examples: the first of these cells as texts.
    """

    voters: int = 0
    fractions: int = 0
    unheld: int = 0
    examples: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, numbers: Doubles, unheld: int = 0, examples: tuple[str, ...] = ()
    ) -> "LargeNumbers":
        """Counts the large ones of some numbers; see the attributes."""
        voters = numbers[is_beyond_float32(numbers)]
        fractions = int(np.count_nonzero(np.floor(voters) != voters))
        return cls(len(voters), fractions, unheld, examples)

    def merge(self, other: "LargeNumbers") -> "LargeNumbers":
        """Returns the numbers of both, the examples of the first in front."""
        return LargeNumbers(
            self.voters + other.voters,
            self.fractions + other.fractions,
            self.unheld + other.unheld,
            _first(self.examples, other.examples),
        )

    @property
    def policy(self) -> InexactIntegers:
        """What becomes of whole numbers that float32 does not hold."""
        if self.fractions and self.fractions * 100 >= self.voters * _MEASURED_IN_100:
            return InexactIntegers.ROUND
        return InexactIntegers.REJECT


@dataclasses.dataclass(frozen=True, slots=True)
class Evidence:
    """What a feature's kind was inferred from.

    Attributes:
      sampled: number of cells that were looked at.
      missing: number of cells without a value, for a feature of this kind.
      misfits: number of cells that do not fit the kind: their rows would be rejected.
      minimum: of the numbers that fit, without NaN and infinities; None for no number.
      maximum: likewise.
      examples: the first distinct values, shortened.
      misfit_examples: the first distinct values that do not fit, shortened.
      distinct: for a label, the number of class names; None if they were not counted.
      whole: for a float of a typed source, whether all numbers are whole and inside
        int64.
      numbers: the large numbers of a float; None once `inference` has used them.
      near: the kind that most cells have, where other cells prevent it.
      few: for text, the number of distinct texts if they are few; else 0.
      remark: what the source's type, or the size of numbers, means for the feature.
      exact_text: whether its texts are numbers that a feature of numbers would round.
    """

    sampled: int
    missing: int
    misfits: int
    minimum: int | float | None
    maximum: int | float | None
    examples: tuple[str, ...]
    misfit_examples: tuple[str, ...]
    distinct: int | None = None
    whole: bool = False
    numbers: LargeNumbers | None = None
    near: NearKind | None = None
    few: int = 0
    remark: str = ""
    exact_text: bool = False

    def merge(self, other: "Evidence") -> "Evidence":
        """Returns the evidence of both parts, the examples of the first in front."""
        low, high = wider((self.minimum, self.maximum), (other.minimum, other.maximum))
        numbers = self.numbers or other.numbers
        if self.numbers is not None and other.numbers is not None:
            numbers = self.numbers.merge(other.numbers)
        return dataclasses.replace(
            self,
            sampled=self.sampled + other.sampled,
            missing=self.missing + other.missing,
            misfits=self.misfits + other.misfits,
            minimum=low,
            maximum=high,
            examples=_first(self.examples, other.examples),
            misfit_examples=_first(self.misfit_examples, other.misfit_examples),
            whole=self.whole and other.whole,
            numbers=numbers,
            remark=self.remark or other.remark,
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Inference:
    """The features of a source, and for each the evidence, in the same order."""

    features: tuple[Feature, ...]
    evidence: tuple[Evidence, ...]


Found: TypeAlias = tuple[Feature, Evidence]
"""A feature as one column alone suggests it, and the evidence."""


def inference(found: Mapping[str, Found], label_column: str | None) -> Inference:
    """Returns the features of a source, decided by all of their evidence.

    Args:
      found: column to what it suggests, in the source's order.
      label_column: the column to predict, if there is one. It becomes a label if it is
        text, and keeps its kind otherwise.
    """
    decided = []
    for name, (feature, facts) in found.items():
        if name == label_column:
            is_text = feature.kind is Kind.TEXT and not feature.shape
            kind = Kind.LABEL if is_text else feature.kind
            feature = dataclasses.replace(feature, kind=kind, is_label=True)
        decided.append(_decided(feature, facts))
    features, evidence = zip(*decided, strict=True) if decided else ((), ())
    return Inference(features, evidence)


def _decided(feature: Feature, evidence: Evidence) -> Found:
    """Decides by its large numbers whether a float is int64, or what it rejects."""
    numbers = evidence.numbers
    if numbers is None or feature.kind is not Kind.FLOAT:
        return feature, dataclasses.replace(evidence, numbers=None)
    low, high = evidence.minimum or 0, evidence.maximum or 0
    changes: dict[str, Any] = {}
    if evidence.whole and max(-low, high) > FLOAT32_EXACT:
        changes = {"minimum": int(low), "maximum": int(high)}
        feature = dataclasses.replace(feature, kind=Kind.INT64)
    else:
        feature = dataclasses.replace(feature, inexact_integers=numbers.policy)
        if numbers.policy is InexactIntegers.REJECT:
            changes["misfits"] = evidence.misfits + numbers.unheld
            examples = _first(evidence.misfit_examples, numbers.examples)
            changes["misfit_examples"] = examples
    return feature, dataclasses.replace(evidence, numbers=None, **changes)


def _first(examples: tuple[str, ...], more: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the first distinct examples of two parts."""
    return tuple(dict.fromkeys((*examples, *more)))[:EXAMPLES]


def extent_of(values: pa.Array) -> Extent:
    """Returns the least and the largest number; None, None of no numbers.

    NaN, infinities and what is beyond float32 do not count.

    Args:
      values: numbers, or lists of them; values of another type are no numbers.
    """
    while is_list(values.type):
        values = values.flatten()
    if not (pa.types.is_floating(values.type) or pa.types.is_integer(values.type)):
        return None, None
    low, high = pc.min_max(values).as_py().values()
    if isinstance(low, float) and not (-FLOAT32_MAX <= low <= high <= FLOAT32_MAX):
        # False of NaN, too.
        inside = values.filter(pc.less_equal(pc.abs(values), FLOAT32_MAX))
        low, high = pc.min_max(inside).as_py().values()
    return low, high


def as_float32(extent: Extent) -> Extent:
    """Returns the least and the largest number as float32 has them, without -0.0."""
    low, high = (None if n is None else float(np.float32(n)) + 0.0 for n in extent)
    return low, high


def first_distinct(
    values: Iterable[pa.Scalar], text: Callable[[pa.Scalar], str]
) -> tuple[str, ...]:
    """Returns the first distinct values as texts; nulls are passed over."""
    distinct: dict[str, None] = {}
    for value in values:
        if value.is_valid:
            distinct[text(value)] = None
        if len(distinct) == EXAMPLES:
            break
    return tuple(distinct)


def first_texts(texts: Cells) -> tuple[str, ...]:
    """Returns the first distinct texts, shortened, which messages show; no nulls."""
    distinct: dict[str | None, None] = {}
    # The first 1,000 cells suffice; finding distinct texts of millions would cost more
    # than the inference.
    for start, stop in itertools.pairwise((0, *_EXAMPLE_CELLS)):
        distinct |= dict.fromkeys(texts.slice(start, stop - start).to_pylist())
        distinct.pop(None, None)
        if len(distinct) >= EXAMPLES or stop >= len(texts):
            break
    return tuple(str(value)[:EXAMPLE_CHARS] for value in list(distinct)[:EXAMPLES])


def examples_of(column: Cells, chosen: Mask | None = None) -> tuple[str, ...]:
    """Returns the first distinct values as texts, which messages show.

    Args:
      column: n values.
      chosen: n bools: which of them; None for all.
    """
    if chosen is not None:
        column = column.take(pa.array(np.flatnonzero(chosen)[:_LOOKED_AT]))
    return first_distinct(column.slice(0, _LOOKED_AT), _shown_example)


def _shown_example(value: pa.Scalar) -> str:
    """Returns an example value as messages show it; of bytes and images the size."""
    native = python_value(value, items=EXAMPLE_ITEMS)
    if isinstance(native, dict) and isinstance(native.get("bytes"), bytes):
        native = native["bytes"]
    return example_text(native)


def example_text(value: object) -> str:
    """Returns "0.25", "12 bytes", "[0.557474, 0.0858686, 0.25, ...]"."""
    if isinstance(value, np.ndarray):
        value = value[:EXAMPLE_ITEMS].tolist()
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    if not isinstance(value, list):
        return str(value)[:EXAMPLE_CHARS]
    items = [_item_text(item) for item in value[: EXAMPLE_ITEMS - 1]]
    return f"[{', '.join([*items, '...'][: len(value)])}]"


def _item_text(value: object) -> str:
    """Returns an item of a list for messages: 6 digits of a float, a text in quotes."""
    if isinstance(value, float):
        return f"{value:.6g}"
    return (
        repr(value[:EXAMPLE_CHARS]) if isinstance(value, str) else example_text(value)
    )


def looks_like_image_paths(column: Cells, suffixes: Collection[str]) -> bool:
    """Tells if texts are evidence of images: 95 % of the non-empty ones are such names.

    Columns of other types do not.

    Args:
      column: n values.
      suffixes: in lower case, with the dot, like ".jpg".
    """
    named = ended = 0
    for chunk in chunks_of(column):
        texts = plain_array(chunk)
        if not pa.types.is_string(texts.type):
            return False
        texts = texts.filter(pc.not_equal(texts, ""))
        lowered = pc.utf8_lower(texts)
        ends = [pc.sum(pc.ends_with(lowered, end)).as_py() or 0 for end in suffixes]
        named += len(texts)
        ended += sum(ends)
    return named > 0 and ended * 100 >= named * _PATHS_IN_100


def are_images(column: Cells) -> bool:
    """Tells if values are evidence of images: 99 in 100 start as image files do."""
    starts = image_starts(column)
    return bool(starts) and sum(starts) * 100 >= len(starts) * _IMAGES_IN_100


def image_starts(column: Cells) -> list[bool]:
    """Returns whether the first non-empty values start like image files, for each."""
    starts: list[bool] = []
    for chunk in chunks_of(column):
        values, _ = values_and_rows(chunk)
        if is_image_struct(values.type):
            values = plain_array(pc.struct_field(values, "bytes"))
        values = values.cast(pa.large_binary()).drop_null().slice(0, _LOOKED_AT)
        values = values.filter(pc.greater(pc.binary_length(values), 0))
        starts += starts_as_image(values).tolist()
    return starts


def starts_as_image(values: pa.LargeBinaryArray) -> Mask:
    """Returns which of n values start as image files do; a null does not."""
    heads = pc.binary_slice(values, 0, _HEAD_BYTES)
    sizes = pc.binary_length(values)
    flags = [
        bool(head and is_image_start(head, size))
        for head, size in zip(heads.to_pylist(), sizes.to_pylist(), strict=True)
    ]
    return np.array(flags, np.bool_)


def is_named_like_images(name: str, *, is_list: bool) -> bool:
    """Whether a name is evidence of images, such as `image` or `file_name`.

    >>> is_named_like_images("Left_Image_Path", is_list=False)
    True
    """
    names = LIST_COLUMNS if is_list else _IMAGE_COLUMNS
    endings = _LIST_ENDINGS if is_list else _IMAGE_ENDINGS
    return name.lower() in names or name.lower().endswith(endings)


def without_ending(name: str, *, is_list: bool) -> str:
    """Returns a name without its evidence of images.

    >>> without_ending("left_image_path", is_list=False)
    'left'
    """
    endings = _LIST_ENDINGS if is_list else _IMAGE_ENDINGS
    ending = next((e for e in endings if name.endswith(e)), "")
    return name.removesuffix(ending) or name
