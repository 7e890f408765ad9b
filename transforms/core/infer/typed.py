"""Infer the kind of each typed column from its Arrow type.

| Arrow type                       | feature                                          |
| -------------------------------- | ------------------------------------------------ |
| integers, durations              | int64                                            |
| float64                          | int64 if all values are whole and inside int64,  |
|                                  | and one is beyond 2^24; else float               |
| other floats                     | float                                            |
| bool                             | bool                                             |
| decimal, time                    | text, which holds all of it                      |
| string, and null                 | text                                             |
| date                             | timestamp in s                                   |
| timestamp                        | timestamp in its own unit                        |
| binary                           | image (inline) if 99 of 100 values start as such |
|                                  | files do, else bytes                             |
| struct of bytes and path         | image (inline), or bytes if most of its values   |
|                                  | start otherwise                                  |
| list of images                   | image (inline), shape (None,), (n,) where fixed  |
| list of those                    | the item's kind, shape (None,), (n,) where fixed |
| list of lists                    | (None, None); (n, m) and (None, m) where fixed   |
| FixedShapeTensor of float32,     | that list, of the tensor's shape                 |
| int64                            |                                                  |
| FixedShapeTensor of others       | tensor, raw, of the tensor's shape and dtype     |
| dictionary, run-end encoded      | as what they hold                                |

float32 holds whole numbers up to 2^24; a float64 column that is float does not take
whole numbers up to 2^53 that float32 does not hold, unless 1 in 100 of the numbers
beyond 2^24 has a fraction (`transforms.core.infer.evidence`).

Readers flatten structs; other structs, maps and unions have no feature. Which column
is the label, and whether float64 becomes int64, is decided in `evidence`.
"""

import dataclasses
from collections.abc import Collection, Mapping
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import (
    chunks_of,
    is_bytes,
    is_list,
    numpy_mask,
    numpy_type,
    raw_values,
    values_and_rows,
)
from transforms.core.image.formats import is_image_start
from transforms.core.infer.evidence import (
    EXAMPLE_ITEMS,
    EXAMPLES,
    Evidence,
    Found,
    LargeNumbers,
    example_text,
    extent_of,
    first_distinct,
)
from transforms.core.reasons import Reason
from transforms.core.rows.column import (
    FLOAT32_EXACT,
    FLOAT32_MAX,
    complaint,
    python_value,
    unheld,
)
from transforms.core.rows.common_type import FILES, plain_array, plain_type
from transforms.core.rows.conform import cast
from transforms.core.rows.typed_cells import is_image_struct
from transforms.core.schema import Feature, Kind
from transforms.core.statistics import Extent, wider
from transforms.errors import InputError

Column: TypeAlias = pa.Array | pa.ChunkedArray
Doubles = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

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


def infer_typed(columns: Mapping[str, Column]) -> dict[str, Found]:
    """Returns a feature for each column of a typed source, in the mapping's order.

    A float64 column is float here; `inference` makes int64 of one of whole numbers.

    Args:
      columns: name to n values.

    Raises:
      InputError: no feature can hold a column's type; names column and type.
    """
    inferred = {}
    for name, given in columns.items():
        chunks = [plain_array(chunk) for chunk in chunks_of(given)]
        column = pa.chunked_array(chunks, plain_type(given.type, FILES))
        feature, remark = _inferred(name, column)
        evidence = _evidence(column, feature)
        remark = "; ".join(filter(None, (remark, evidence.remark)))
        inferred[name] = (feature, dataclasses.replace(evidence, remark=remark))
    return inferred


def looks_like_image_paths(column: Column, suffixes: Collection[str]) -> bool:
    """Tells whether at least 95 % of the non-empty texts end like names of images.

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


def _inferred(name: str, column: Column) -> tuple[Feature, str]:
    """Returns the feature of a column by its Arrow type, and a remark or ""."""
    kind = column.type
    if isinstance(kind, pa.FixedShapeTensorType):
        return _tensor_feature(name, kind)
    shape: list[int | None] = []
    while is_list(kind):
        is_fixed = pa.types.is_fixed_size_list(kind)
        shape.append(kind.list_size if is_fixed else None)
        kind = kind.value_type
    # A record stores the lengths of lists of lists, but not those of deeper lists.
    if len(shape) > 2 and None in shape[1:]:
        raise _unusable(name, column.type)
    if None in shape[1:]:
        shape = [None, None]
    if is_image_struct(kind) and len(shape) < 2:
        starts = _image_starts(column)
        # Most of the first files are others.
        if sum(starts) * 2 < len(starts):
            return Feature(name, Kind.BYTES, shape=tuple(shape)), ""
        return Feature(name, Kind.IMAGE, inline=True, shape=tuple(shape)), ""
    scalar_kind = _scalar_kind(kind)
    if scalar_kind is None:
        raise _unusable(name, column.type)
    if scalar_kind is Kind.BYTES and len(shape) < 2 and are_images(column):
        return Feature(name, Kind.IMAGE, inline=True, shape=tuple(shape)), ""
    unit = ""
    if scalar_kind is Kind.TIMESTAMP:
        unit = kind.unit if pa.types.is_timestamp(kind) else "s"
    return Feature(name, scalar_kind, shape=tuple(shape), unit=unit), _type_remark(kind)


def _unusable(name: str, kind: pa.DataType) -> InputError:
    """Returns the error of a column whose Arrow type no feature can hold."""
    return InputError(
        f"column {name!r} must be of single values, lists of them, or lists of lists "
        f"of them, to become a feature; found {str(kind)[:200]}; leave it out with "
        f"--drop {name!r}; or declare numbers of one shape as kind: tensor in a --spec"
    )


def _tensor_feature(name: str, kind: pa.FixedShapeTensorType) -> tuple[Feature, str]:
    """Returns the feature of a tensor column, axes as permuted, and a remark or ""."""
    order = kind.permutation or range(len(kind.shape))
    shape = tuple(kind.shape[i] for i in order)
    if pa.types.is_float32(kind.value_type):
        return Feature(name, Kind.FLOAT, shape=shape), ""
    if pa.types.is_int64(kind.value_type):
        return Feature(name, Kind.INT64, shape=shape), ""
    dtype = "bool"
    if not pa.types.is_boolean(kind.value_type):
        dtype = numpy_type(kind.value_type).name
    feature = Feature(name, Kind.TENSOR, shape=shape, dtype=dtype, encoding="raw")
    return feature, f"stored as the tensor's raw {dtype} values"


def _scalar_kind(kind: pa.DataType) -> Kind | None:
    """Returns the kind for single values of an Arrow type; None where there is none."""
    types = pa.types
    if types.is_boolean(kind):
        return Kind.BOOL
    if types.is_integer(kind) or types.is_duration(kind):
        return Kind.INT64
    if types.is_floating(kind):
        return Kind.FLOAT
    if types.is_date(kind) or types.is_timestamp(kind):
        return Kind.TIMESTAMP
    if types.is_string(kind) or types.is_null(kind):
        return Kind.TEXT
    if is_bytes(kind) or types.is_fixed_size_binary(kind):
        return Kind.BYTES
    return Kind.TEXT if types.is_decimal(kind) or types.is_time(kind) else None


def _type_remark(kind: pa.DataType) -> str:
    """Returns what values of a type become that users may not expect, or ""."""
    if pa.types.is_decimal(kind):
        return f"{kind} is exact as text; kind: float would round it to 24 bits"
    if pa.types.is_time(kind):
        return f"{kind} is a time of day, as text"
    if pa.types.is_duration(kind):
        return f"{kind} is counted in {kind.unit}"
    if pa.types.is_timestamp(kind) and kind.tz is None:
        return "without a time zone in the source; taken as UTC"
    return ""


def are_images(column: Column) -> bool:
    """Tells whether 99 of 100 of the first non-empty values start like image files."""
    starts = _image_starts(column)
    return bool(starts) and sum(starts) * 100 >= len(starts) * _IMAGES_IN_100


def _image_starts(column: Column) -> list[bool]:
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


def _evidence(column: Column, feature: Feature) -> Evidence:
    """Casts a sampled column to a feature; counts missing values and misfits."""
    missing = misfits = 0
    extent: Extent = (None, None)
    bad_examples: dict[str, None] = {}
    whole, remark = True, ""
    # Columns of float32 and float16 lose nothing as a FloatList; float64 may.
    leaf = column.type
    while is_list(leaf):
        leaf = leaf.value_type
    is_double = feature.kind is Kind.FLOAT and pa.types.is_float64(leaf)
    numbers = LargeNumbers() if is_double else None
    for chunk in chunks_of(column):
        cells = cast(chunk, feature)
        missing += cells.values.null_count
        bad = cells.bad
        if bad is not None:
            misfits += int(bad.sum())
            missing -= int(bad.sum())
            odd = chunk.filter(pa.array(bad))
            bad_examples.update(dict.fromkeys(_examples(odd)))
            if feature.is_list and cells.cells_with(Reason.MISSING_VALUE).any():
                remark = complaint(feature, Reason.MISSING_VALUE)
        values = cells.values
        if numbers is not None:
            # The extent of the float64 values: float32 would round its limits.
            values, rows = values_and_rows(chunk)
            doubles = raw_values(values)
            if values.null_count:
                present = numpy_mask(values.is_valid())
                doubles, rows = doubles[present], rows[present]
            whole = whole and _are_whole(doubles)
            numbers = numbers.merge(_large_numbers(doubles, rows, chunk, bad))
        extent = wider(extent, extent_of(values))
    return Evidence(
        sampled=len(column),
        missing=missing,
        misfits=misfits,
        minimum=extent[0],
        maximum=extent[1],
        examples=_examples(column),
        misfit_examples=tuple(bad_examples)[:EXAMPLES],
        remark=remark,
        exact_text=pa.types.is_decimal(leaf),
        whole=whole and is_double,
        numbers=numbers,
    )


def _are_whole(doubles: Doubles) -> bool:
    """Whether numbers are whole and inside int64; NaN and infinities are not."""
    inside = (doubles >= -(2.0**63)) & (doubles < 2.0**63)
    return bool((inside & (np.floor(doubles) == doubles)).all())


def _large_numbers(
    doubles: Doubles, rows: npt.NDArray[np.int64], chunk: pa.Array, bad: Mask | None
) -> LargeNumbers:
    """Counts the large ones of m numbers, which are in these rows of a chunk.

    Rows that are bad in any case do not count as lost.
    """
    size = np.abs(doubles)
    large = (size >= FLOAT32_EXACT) & (size <= FLOAT32_MAX)
    if not large.any():
        return LargeNumbers()
    lost = np.unique(rows[unheld(doubles)])
    if bad is not None:
        lost = lost[~bad[lost]]
    examples = _examples(chunk.take(pa.array(lost[:_LOOKED_AT])))
    return LargeNumbers.of(doubles[large], unheld=len(lost), examples=examples)


def _examples(column: Column) -> tuple[str, ...]:
    """Returns the first distinct values as texts, which messages show."""
    return first_distinct(column.slice(0, _LOOKED_AT), _shown)


def _shown(value: pa.Scalar) -> str:
    """Returns a value as messages show it; of bytes and images only the size."""
    if is_bytes(value.type) and _scalar_kind(value.type) is Kind.BYTES:
        return f"{value.as_buffer().size} bytes"
    native = python_value(value, items=EXAMPLE_ITEMS)
    if isinstance(native, dict) and isinstance(native.get("bytes"), bytes):
        native = native["bytes"]
    return example_text(native)


def is_named_like_images(name: str, *, is_list: bool) -> bool:
    """Whether a column's name suggests images, such as `image` or `file_name`.

    >>> is_named_like_images("Left_Image_Path", is_list=False)
    True
    """
    names = LIST_COLUMNS if is_list else _IMAGE_COLUMNS
    endings = _LIST_ENDINGS if is_list else _IMAGE_ENDINGS
    return name.lower() in names or name.lower().endswith(endings)


def without_ending(name: str, *, is_list: bool) -> str:
    """Returns the name without what says that it is of images.

    >>> without_ending("left_image_path", is_list=False)
    'left'
    """
    endings = _LIST_ENDINGS if is_list else _IMAGE_ENDINGS
    ending = next((e for e in endings if name.endswith(e)), "")
    return name.removesuffix(ending) or name
