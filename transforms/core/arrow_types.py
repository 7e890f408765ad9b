"""One lattice of Arrow types: the plain type of values, and the type that holds two.

    plain_type  dictionary, run-end, view, extension  -> the type of their values
                large_string                          -> string
    wider_type  int8, int32      -> int64             null, x          -> x
                float32, float64 -> float64           list of 2, of 3  -> list
                decimals         -> decimal256

| types                  | through `FILES`  | through `PYTHON`                       |
| ---------------------- | ---------------- | -------------------------------------- |
| int64, float64         | differ           | float64, if float32 holds each integer |
| int64, uint64; decimal | differ           | int64; decimal256                      |
| string, binary         | differ           | binary                                 |
| times of two units     | differ           | the finer one                          |
| structs                | images only      | all fields of both                     |
| offsets of 64 bits     | stay             | become offsets of 32 bits              |
| timestamps in a zone   | stay             | in UTC                                 |

JSON has its own types (`transforms.formats.json_lines.types`): it must keep the text of
a number, which no Arrow type does.
"""

import dataclasses

import pyarrow as pa

_INT64_DIGITS = 19
_MOST_DIGITS = 76
_UNITS = ("s", "ms", "us", "ns")


@dataclasses.dataclass(frozen=True, slots=True)
class Door:
    """The rules for the types of one way into the pipeline.

    Attributes:
      joins: whether different kinds of numbers, texts or times have a common type.
        Then each value is checked later: an integer among floats becomes a float, or
        its row is refused.
      is_large: whether offsets of 64 bits stay.
      is_deep: whether equal values get equal types inside structs, zones and tensors.
    """

    joins: bool
    is_large: bool
    is_deep: bool


FILES = Door(joins=False, is_large=True, is_deep=False)
PYTHON = Door(joins=True, is_large=False, is_deep=True)


def plain_type(kind: pa.DataType, door: Door) -> pa.DataType:
    """Returns the type of the same values without details of their storage.

    >>> str(plain_type(pa.dictionary(pa.int8(), pa.large_string()), FILES))
    'string'
    """
    types = pa.types
    if isinstance(kind, pa.FixedShapeTensorType):
        order = list(kind.permutation or ())
        if door.is_deep and order == sorted(order):
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
        return kind if door.is_large else pa.binary()
    if types.is_fixed_size_list(kind):
        return pa.list_(plain_type(kind.value_type, door), kind.list_size)
    if is_any_list(kind):
        is_large = types.is_large_list(kind) or types.is_large_list_view(kind)
        make = pa.large_list if is_large and door.is_large else pa.list_
        return make(plain_type(kind.value_type, door))
    if types.is_struct(kind) and door.is_deep:
        return pa.struct([(f.name, plain_type(f.type, door)) for f in kind])
    if types.is_timestamp(kind) and kind.tz is not None and door.is_deep:
        return pa.timestamp(kind.unit, "UTC")
    return kind


def is_any_list(kind: pa.DataType) -> bool:
    """Whether values are lists: of a fixed size, with offsets, or views."""
    return bool(
        pa.types.is_list(kind)
        or pa.types.is_large_list(kind)
        or pa.types.is_list_view(kind)
        or pa.types.is_large_list_view(kind)
        or pa.types.is_fixed_size_list(kind)
    )


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
        found = wider(a, b, door)
        if found is not None:
            return found
    return None


def _wider_number(a: pa.DataType, b: pa.DataType, door: Door) -> pa.DataType | None:
    types = pa.types
    if types.is_integer(a) and types.is_integer(b):
        if types.is_unsigned_integer(a) and types.is_unsigned_integer(b):
            return pa.uint64()
        return pa.int64() if door.joins or pa.uint64() not in (a, b) else None
    if types.is_floating(a) and types.is_floating(b):
        return pa.float64()
    if not door.joins and not (types.is_decimal(a) and types.is_decimal(b)):
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
    """Returns the digits before and after the point."""
    if pa.types.is_integer(kind):
        return _INT64_DIGITS + 1, 0
    return kind.precision - kind.scale, kind.scale


def _wider_bytes(a: pa.DataType, b: pa.DataType, door: Door) -> pa.DataType | None:
    if door.joins:
        known = (pa.string(), pa.binary())
        return pa.binary() if a in known and b in known else None
    return pa.large_binary() if _is_binary(a) and _is_binary(b) else None


def _is_binary(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def _wider_time(a: pa.DataType, b: pa.DataType, door: Door) -> pa.DataType | None:
    types = pa.types
    if not door.joins:
        return None
    if types.is_timestamp(a) and types.is_timestamp(b) and a.tz == b.tz:
        return pa.timestamp(max(a.unit, b.unit, key=_UNITS.index), a.tz)
    if types.is_duration(a) and types.is_duration(b):
        return pa.duration(max(a.unit, b.unit, key=_UNITS.index))
    return None


def _wider_nested(a: pa.DataType, b: pa.DataType, door: Door) -> pa.DataType | None:
    if is_any_list(a) and is_any_list(b):
        inner = wider_type(a.value_type, b.value_type, door)
        if inner is None:
            return None
        if door.is_large:
            return pa.large_list(inner)
        fixed = pa.types.is_fixed_size_list(a) and pa.types.is_fixed_size_list(b)
        if fixed and a.list_size == b.list_size:
            return pa.list_(inner, a.list_size)
        return pa.list_(inner)
    if not (pa.types.is_struct(a) and pa.types.is_struct(b)):
        return None
    if not door.is_deep:
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
    """Whether values are images as Hugging Face stores them, their bytes as bytes."""
    fields = {field.name: field.type for field in kind}
    return fields.keys() == {"bytes", "path"} and _is_binary(fields["bytes"])
