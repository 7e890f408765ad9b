"""One lattice of Arrow types: the plain type of values, the type that holds two.

Values are converted to the plain type of their column, or to a wider common type. Equal
values get equal types, so that a dataset does not depend on how its source stored them.

    plain_type  dictionary, run-end, view, extension  -> the type of their values
                large_string                          -> string
    wider_type  int8, int32      -> int64             null, x          -> x
                float32, float64 -> float64           list of 2, of 3  -> list
                decimals         -> decimal256

| types                  | through `FILES`  | through `PYTHON`                       |
| ---------------------- | ---------------- | -------------------------------------- |
| int64, float64         | differ           | float64, each integer up to 2^53       |
| int64, uint64; decimal | differ           | int64; decimal256                      |
| string, binary         | differ           | binary                                 |
| times of two units     | differ           | the finer one                          |
| structs                | images only      | all fields of both                     |
| offsets of 64 bits     | stay             | become offsets of 32 bits              |
| timestamps in a zone   | stay             | in UTC                                 |

JSON has its own types (`transforms.formats.json_lines.values`): it must keep the text
of a number, which no Arrow type does.
"""

import enum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import is_list, lists_like
from transforms.core.rows.column import FLOAT64_EXACT, too_large
from transforms.core.rows.python_kinds import OddValueError

_INT64_DIGITS = 19
_MOST_DIGITS = 76
_UNITS = ("s", "ms", "us", "ns")
_INT64_MAX = 2**63 - 1
_BINARIES = (
    *(pa.lib.Type_BINARY, pa.lib.Type_LARGE_BINARY),
    *(pa.lib.Type_FIXED_SIZE_BINARY, pa.lib.Type_BINARY_VIEW),
)
_LIST_VIEWS = (pa.lib.Type_LIST_VIEW, pa.lib.Type_LARGE_LIST_VIEW)


class Door(enum.Enum):
    """Whose types are joined: those of files or of Python; see the table.

    Values of programs join where kinds of numbers, texts or times differ: each is
    checked later, so that an integer among floats becomes a float, or its row is
    refused. Equal ones get equal types inside structs, zones and tensors, too.
    """

    FILES = "files"
    PYTHON = "python"


FILES, PYTHON = Door


def plain_type(kind: pa.DataType, door: Door) -> pa.DataType:
    """Returns the type of the same values without details of their storage.

    >>> str(plain_type(pa.dictionary(pa.int8(), pa.large_string()), FILES))
    'string'
    """
    types = pa.types
    if isinstance(kind, pa.FixedShapeTensorType):
        order = list(kind.permutation or ())
        if door is PYTHON and order == sorted(order):
            return pa.fixed_shape_tensor(kind.value_type, kind.shape)
        return kind
    if isinstance(kind, pa.BaseExtensionType):
        return plain_type(kind.storage_type, door)
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return plain_type(kind.value_type, door)
    if types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    if types.is_binary_view(kind):
        return pa.binary()
    if types.is_large_binary(kind):
        return kind if door is FILES else pa.binary()
    if types.is_fixed_size_list(kind):
        return pa.list_(plain_type(kind.value_type, door), kind.list_size)
    if is_any_list(kind):
        is_large = types.is_large_list(kind) or types.is_large_list_view(kind)
        make = pa.large_list if is_large and door is FILES else pa.list_
        return make(plain_type(kind.value_type, door))
    if types.is_struct(kind) and door is PYTHON:
        return pa.struct([(f.name, plain_type(f.type, door)) for f in kind])
    if types.is_timestamp(kind) and kind.tz is not None and door is PYTHON:
        return pa.timestamp(kind.unit, "UTC")
    return kind


def plain_array(array: pa.Array) -> pa.Array:
    """Returns n values in the plain type of a file's column; see `plain_type`.

    Raises:
      EncodingError: the texts are too many for one batch, over 2 GiB.
    """
    kind = plain_type(array.type, FILES)
    try:
        return as_type(array, kind)
    except pa.ArrowInvalid as error:
        raise too_large(array) from error


def is_any_list(kind: pa.DataType) -> bool:
    """Whether a type is of lists: of a fixed size, with offsets, or views."""
    return is_list(kind) or kind.id in _LIST_VIEWS


def wider_type(a: pa.DataType, b: pa.DataType, door: Door) -> pa.DataType | None:
    """Returns the type that holds the values of both plain types, or None.

    >>> str(wider_type(pa.int8(), pa.int32(), FILES))
    'int64'
    >>> wider_type(pa.int64(), pa.float32(), FILES) is None
    True
    >>> str(wider_type(pa.int64(), pa.float32(), PYTHON))
    'double'
    """
    if a.equals(b) or pa.types.is_null(b):
        return a
    if pa.types.is_null(a):
        return b
    if isinstance(a, pa.BaseExtensionType) or isinstance(b, pa.BaseExtensionType):
        return None
    for wider in (_wider_number, _wider_bytes, _wider_time, _wider_nested):
        common = wider(a, b, door)
        if common is not None:
            return common
    return None


def _wider_number(a: pa.DataType, b: pa.DataType, door: Door) -> pa.DataType | None:
    """Returns the type of both numbers, or None; files keep integers from floats."""
    types = pa.types
    if types.is_integer(a) and types.is_integer(b):
        if types.is_unsigned_integer(a) and types.is_unsigned_integer(b):
            return pa.uint64()
        return pa.int64() if door is PYTHON or pa.uint64() not in (a, b) else None
    if types.is_floating(a) and types.is_floating(b):
        return pa.float64()
    if door is FILES and not (types.is_decimal(a) and types.is_decimal(b)):
        return None
    if all(types.is_integer(kind) or types.is_floating(kind) for kind in (a, b)):
        return pa.float64()
    if not all(types.is_integer(kind) or types.is_decimal(kind) for kind in (a, b)):
        return None
    digits, scales = zip(*(_digits(kind) for kind in (a, b)), strict=True)
    scale = max(scales)
    precision = max(digits) + scale
    return pa.decimal256(precision, scale) if precision <= _MOST_DIGITS else None


def _digits(kind: pa.DataType) -> tuple[int, int]:
    """Returns the digits that a type of numbers has before and after the point."""
    if pa.types.is_integer(kind):
        return _INT64_DIGITS + 1, 0
    return kind.precision - kind.scale, kind.scale


def _wider_bytes(a: pa.DataType, b: pa.DataType, door: Door) -> pa.DataType | None:
    """Returns the type that holds bytes of both types, or None.

    Python values of one column may be bytes and texts.
    """
    if door is PYTHON:
        joinable = (pa.string(), pa.binary())
        return pa.binary() if a in joinable and b in joinable else None
    return pa.large_binary() if is_binary(a) and is_binary(b) else None


def is_binary(kind: pa.DataType) -> bool:
    """Whether a type is of bytes and no texts, of any or of one length."""
    return kind.id in _BINARIES


def _wider_time(a: pa.DataType, b: pa.DataType, door: Door) -> pa.DataType | None:
    """Returns the finer type of two times, or None; files do not mix units."""
    types = pa.types
    if door is FILES:
        return None
    if types.is_timestamp(a) and types.is_timestamp(b) and a.tz == b.tz:
        return pa.timestamp(max(a.unit, b.unit, key=_UNITS.index), a.tz)
    if types.is_duration(a) and types.is_duration(b):
        return pa.duration(max(a.unit, b.unit, key=_UNITS.index))
    return None


def _wider_nested(a: pa.DataType, b: pa.DataType, door: Door) -> pa.DataType | None:
    """Returns the list or struct of both; of files only image structs are merged."""
    if is_any_list(a) and is_any_list(b):
        inner = wider_type(a.value_type, b.value_type, door)
        if inner is None:
            return None
        if door is FILES:
            return pa.large_list(inner)
        fixed = pa.types.is_fixed_size_list(a) and pa.types.is_fixed_size_list(b)
        if fixed and a.list_size == b.list_size:
            return pa.list_(inner, a.list_size)
        return pa.list_(inner)
    if not (pa.types.is_struct(a) and pa.types.is_struct(b)):
        return None
    if door is FILES:
        if not (is_image_file(a) and is_image_file(b)):
            return None
        return pa.struct([("bytes", pa.large_binary()), ("path", pa.string())])
    fields = {field.name: field.type for field in a}
    for field in b:
        inner = wider_type(fields.get(field.name, pa.null()), field.type, door)
        if inner is None:
            return None
        fields[field.name] = inner
    return pa.struct(list(fields.items()))


def is_image_file(kind: pa.DataType) -> bool:
    """Whether a type of structs is of image files, as Hugging Face stores them."""
    fields = {field.name: field.type for field in kind}
    return fields.keys() == {"bytes", "path"} and is_binary(fields["bytes"])


def as_type(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Returns n values as their canonical type, or as a wider one.

    Raises:
      OddValueError: the type cannot hold a value exactly; has its index.
      ArrowException: Arrow has no such conversion.
    """
    if array.type.equals(kind):
        return array
    if isinstance(array, pa.ExtensionArray):
        storage = as_type(array.storage, getattr(kind, "storage_type", kind))
        if isinstance(kind, pa.BaseExtensionType):
            return pa.ExtensionArray.from_storage(kind, storage)
        return storage
    if pa.types.is_dictionary(array.type) or pa.types.is_run_end_encoded(array.type):
        return as_type(_without_encoding(array), kind)
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), kind)
    if pa.types.is_integer(array.type) and not pa.types.is_decimal(kind):
        return _integers_as(array, kind)
    if pa.types.is_struct(array.type) and pa.types.is_struct(kind):
        return _structs_as(array, kind)
    if is_any_list(array.type) and is_any_list(kind):
        return _lists_as(array, kind)
    return array.cast(kind)


def _without_encoding(array: pa.Array) -> pa.Array:
    """Returns a dictionary or run-end-encoded array as an array of its plain type.

    Texts and bytes are of large types.

    Arrow has no kernel for dictionaries and runs of views.
    """
    if pa.types.is_dictionary(array.type):
        values, indices = array.dictionary, array.indices
    else:
        values = array.values
        ends = np.asarray(array.run_ends).astype(np.int64) - array.offset
        sizes = np.diff(ends.clip(0, len(array)), prepend=0)
        indices = pa.array(np.repeat(np.arange(len(values)), sizes))
    kind = plain_type(values.type, PYTHON)
    # `take` silently wraps the 32-bit offsets of results over 2 GiB.
    large = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}.get(kind)
    values = values.cast(large) if large else as_type(values, kind)
    return values.take(indices)


def _integers_as(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Returns integers as wider numbers; OddValueError where one is not exact there."""
    numbers = pc.fill_null(array, 0).to_numpy()
    if pa.types.is_floating(kind):
        lost = (numbers > FLOAT64_EXACT) | (numbers < -FLOAT64_EXACT)
        why = "is among floats, and beyond 2^53"
    else:
        lost = numbers > (2**64 - 1 if pa.types.is_uint64(kind) else _INT64_MAX)
        why = "is outside int64"
    if lost.any():
        index = int(np.argmax(lost))
        raise OddValueError(f"{numbers[index]} {why}", index)
    return array.cast(kind, safe=False)


def _structs_as(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Returns structs in a wider type; fields that they lack are null."""
    names = [field.name for field in array.type]
    fields = [
        as_type(pc.struct_field(array, field.name), field.type)
        if field.name in names
        else pa.nulls(len(array), field.type)
        for field in kind
    ]
    made = [pa.field(field.name, field.type) for field in kind]
    return pa.StructArray.from_arrays(fields, fields=made, mask=array.is_null())


def _lists_as(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Returns lists in a wider type; an odd item blames its row."""
    if pa.types.is_fixed_size_list(kind):
        # Arrow's `flatten` leaves null lists out, where their items must be.
        start = array.offset * kind.list_size
        items = array.values.slice(start, len(array) * kind.list_size)
        mask = array.is_null() if array.null_count else None
        values = as_type(items, kind.value_type)
        return pa.FixedSizeListArray.from_arrays(values, kind.list_size, mask=mask)
    try:
        items = as_type(array.flatten(), kind.value_type)
    except OddValueError as error:
        index = pc.list_parent_indices(array)[error.index].as_py()
        raise OddValueError(str(error), index) from error
    lists = lists_like(array, items)
    return lists.cast(kind) if pa.types.is_large_list(kind) else lists
