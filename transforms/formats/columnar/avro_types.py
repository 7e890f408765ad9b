"""The types of an Avro schema, as fastavro and Arrow take them.

fastavro gets a schema with the same encoding and without meaning, which makes it fast
and lets a single row be rejected: texts are bytes, instants and enums are integers, a
map is an array of keys and values. Arrow then gives the values their types.

    union of null and T         T, null where missing
    union of int and long       int64, and of float and double float64
    record, array of records    flat columns, see `arrow_types`
    enum, uuid                  text
    decimal                     decimal128 or decimal256 of its scale

Source: https://avro.apache.org/docs/1.12.0/specification/#schema-declaration
"""

import dataclasses
import decimal
import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from transforms.core.arrays import lists_like
from transforms.core.json_text import MAX_NESTING
from transforms.formats.table import listed

# Most bytes of an unpacked block: each may become a Python object.
MAX_BLOCK_BYTES = 64 << 20
# Types in a schema: named types that use each other may multiply without end.
_MAX_TYPES = 10_000


@dataclasses.dataclass(frozen=True, slots=True)
class AvroType:
    """One type of a schema.

    Attributes:
      plain: the schema that fastavro gets.
      raw: the Arrow type of the values that fastavro gives.
      type: the Arrow type of the column.
      least_bytes: that a value takes at least.
      finish: makes an array of `type` of one of `raw`.
    """

    plain: Any
    raw: pa.DataType
    type: pa.DataType
    least_bytes: int = 1
    finish: Callable[[pa.Array], pa.Array] = lambda array: array

    def viewed(self, target: pa.DataType) -> "AvroType":
        """Returns the same values, taken for those of another type."""
        return dataclasses.replace(
            self, type=target, finish=lambda array: array.view(target)
        )


def _primitive(name: str, kind: pa.DataType, least_bytes: int = 1) -> AvroType:
    """Returns a type whose values fastavro gives as the column has them."""
    return AvroType(name, kind, kind, least_bytes)


_PRIMITIVES = {
    "null": _primitive("null", pa.null(), 0),
    "boolean": _primitive("boolean", pa.bool_()),
    "int": _primitive("int", pa.int32()),
    "long": _primitive("long", pa.int64()),
    "float": _primitive("float", pa.float32(), 4),
    "double": _primitive("double", pa.float64(), 8),
    "bytes": _primitive("bytes", pa.binary()),
    # Rows whose text is not UTF-8 are rejected one by one, later.
    "string": _primitive("bytes", pa.binary()).viewed(pa.string()),
}
# (type, logical type) -> Arrow's.
_LOGICAL: Mapping[tuple[str, str], pa.DataType] = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    **{
        ("long", f"{prefix}timestamp-{word}"): pa.timestamp(unit, zone)
        for word, unit in (("millis", "ms"), ("micros", "us"), ("nanos", "ns"))
        for prefix, zone in (("", "UTC"), ("local-", None))
    },
}
# Digits that Arrow's narrow decimals hold, and its wide ones.
_NARROW_DIGITS, _WIDE_DIGITS = 38, 76
_EXACT = decimal.Context(prec=2 * _WIDE_DIGITS)
# Unions of these are the second one.
_WIDER = {frozenset(("int", "long")): "long", frozenset(("float", "double")): "double"}


def row_type(text: bytes) -> AvroType:
    """Returns the type of the rows of a file; what is no record is a column `value`.

    Args:
      text: the schema, as JSON.

    Raises:
      ValueError: it is no schema, or one that no table has.
    """
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is no JSON: {error}") from error
    types = _Types()
    try:
        avro_type = types.of(schema)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error
    if not pa.types.is_struct(avro_type.raw) or not avro_type.type.num_fields:
        avro_type = types.record([("value", avro_type)])
    if not avro_type.least_bytes:
        raise ValueError("its rows must take bytes, and they hold nothing")
    return avro_type


class _Types:
    """Reads the types of one schema; raises ValueError."""

    def __init__(self) -> None:
        # Full name -> its definition, and the namespace inside of it.
        self._named: dict[str, tuple[Any, str]] = {}
        self._count = 0

    def of(
        self, schema: Any, space: str = "", inside: tuple[str, ...] = ()
    ) -> AvroType:
        """Returns one type.

        Args:
          schema: of the type.
          space: the namespace that it is in.
          inside: the named types that it is in, and "" for each other one.
        """
        self._count += 1
        if self._count > _MAX_TYPES:
            raise ValueError(f"it has over {_MAX_TYPES:,} types")
        if len(inside) > MAX_NESTING:
            raise ValueError(f"it is nested over {MAX_NESTING} levels deep")
        within = (*inside, "")
        if isinstance(schema, list):
            return _union([self.of(branch, space, within) for branch in schema])
        if isinstance(schema, str):
            schema = {"type": schema}
        kind = schema["type"]
        if isinstance(kind, dict | list):
            return self.of(kind, space, within)
        if kind in _PRIMITIVES:
            return _logical(kind, schema, _PRIMITIVES[kind])
        if kind == "array":
            return _array(self.of(schema["items"], space, within))
        if kind == "map":
            value = self.of(schema["values"], space, within)
            return _array(
                self.record([("key", _PRIMITIVES["string"]), ("value", value)])
            )
        return self._of_name(kind, schema, space, inside)

    def _of_name(
        self, kind: str, schema: Any, space: str, inside: tuple[str, ...]
    ) -> AvroType:
        """Returns a fresh copy of a named type: fastavro needs a name for each use."""
        if kind in ("record", "error", "enum", "fixed"):
            name = str(schema["name"])
            space = name.rpartition(".")[0] or str(schema.get("namespace", space))
            full = name if "." in name or not space else f"{space}.{name}"
            self._named[full] = schema, space
        else:
            full = f"{space}.{kind}" if f"{space}.{kind}" in self._named else kind
            if full not in self._named:
                raise ValueError(f"it names no type {kind[:60]!r}")
            schema, space = self._named[full]
        if full in inside:
            raise ValueError(
                f"{full[:60]!r} holds values of its own type, which no feature holds"
            )
        if schema["type"] == "enum":
            return _enum([str(symbol) for symbol in schema["symbols"]])
        if schema["type"] == "fixed":
            return self._fixed(schema)
        fields = [
            (str(field["name"]), self.of(_field_type(field), space, (*inside, full)))
            for field in schema["fields"]
        ]
        return self.record(fields)

    def _fixed(self, schema: Mapping[str, Any]) -> AvroType:
        size = schema["size"]
        if type(size) is not int or not 0 <= size <= MAX_BLOCK_BYTES:
            raise ValueError(f"a fixed type must have a size; found {size!r}")
        plain = {"type": "fixed", "name": f"n{self._count}", "size": size}
        avro_type = AvroType(plain, pa.binary(), pa.binary(), size)
        if schema.get("logicalType") == "uuid" and size == 16:
            return dataclasses.replace(avro_type, type=pa.string(), finish=_uuids)
        return _logical("fixed", schema, avro_type)

    def record(self, fields: Sequence[tuple[str, AvroType]]) -> AvroType:
        """Returns the type of a record of these fields."""
        self._count += 1
        keys = [f"f{index}" for index in range(len(fields))]
        kinds = [kind for _, kind in fields]
        named = [*zip(keys, kinds, strict=True)]
        target = [pa.field(name, kind.type) for name, kind in fields]

        def finish(array: pa.Array) -> pa.Array:
            if not fields:
                return pa.nulls(len(array))
            return pa.StructArray.from_arrays(
                [kind.finish(array.field(key)) for key, kind in named],
                fields=target,
                mask=array.is_null() if array.null_count else None,
            )

        return AvroType(
            {
                "type": "record",
                "name": f"n{self._count}",
                "fields": [{"name": key, "type": kind.plain} for key, kind in named],
            },
            pa.struct([pa.field(key, kind.raw) for key, kind in named]),
            pa.struct(target) if fields else pa.null(),
            sum(kind.least_bytes for kind in kinds),
            finish,
        )


def _logical(kind: str, schema: Mapping[str, Any], found: AvroType) -> AvroType:
    """Returns a type with its logical type; an unknown one is passed over."""
    logical = schema.get("logicalType")
    if not isinstance(logical, str):
        return found
    if (target := _LOGICAL.get((kind, logical))) is not None:
        return found.viewed(target)
    digits, scale = schema.get("precision"), schema.get("scale", 0)
    if (
        logical != "decimal"
        or kind not in ("bytes", "fixed")
        or not (type(digits) is int and type(scale) is int)
        or not 0 <= scale <= digits <= _WIDE_DIGITS
    ):
        return found
    if digits <= _NARROW_DIGITS:
        target = pa.decimal128(_NARROW_DIGITS, scale)
    else:
        target = pa.decimal256(_WIDE_DIGITS, scale)
    return dataclasses.replace(
        found, type=target, finish=lambda array: _decimals(array, target)
    )


def _union(found: Sequence[AvroType]) -> AvroType:
    """Returns the type of null and one other type, or the widest of several numbers."""
    plain = [branch.plain for branch in found]
    values = [branch for branch in found if not pa.types.is_null(branch.raw)]
    if not values:
        return AvroType(plain, pa.null(), pa.null())
    wide = values[0]
    # Numbers without a logical type.
    bare = [v.plain for v in values if isinstance(v.plain, str) and v.raw == v.type]
    if len(bare) == len(values) and (name := _WIDER.get(frozenset(bare))):
        wide = _PRIMITIVES[name]
    elif any((v.type, v.raw) != (wide.type, wide.raw) for v in values):
        raise ValueError(
            f"a union must be of null and one other type, or of numbers; one is of "
            f"{listed([str(branch.type) for branch in values])}"
        )
    return dataclasses.replace(wide, plain=plain, least_bytes=1)


def _array(items: AvroType) -> AvroType:
    """Returns the type of arrays; items of no bytes would let a count be a bomb."""
    if not items.least_bytes:
        raise ValueError("it has arrays whose items take no bytes")

    def finish(array: pa.Array) -> pa.Array:
        return lists_like(array, items.finish(array.flatten()))

    plain = {"type": "array", "items": items.plain}
    return AvroType(plain, pa.list_(items.raw), pa.list_(items.type), 1, finish)


def _field_type(field: Mapping[str, Any]) -> Any:
    """Returns the type of a field; some writers put its logical type beside it."""
    beside = isinstance(field["type"], str) and "logicalType" in field
    return field if beside else field["type"]


def _enum(symbols: Sequence[str]) -> AvroType:
    """Returns the type of an enum: numbers for fastavro, symbols in the column."""

    def finish(array: pa.Array) -> pa.Array:
        names = pa.array(symbols, pa.string())
        return pa.DictionaryArray.from_arrays(array, names).dictionary_decode()

    return AvroType("int", pa.int32(), pa.string(), 1, finish)


def _uuids(array: pa.Array) -> pa.Array:
    """Returns UUIDs of 16 bytes as texts."""
    texts = [None if v is None else str(uuid.UUID(bytes=v)) for v in array.to_pylist()]
    return pa.array(texts, pa.string())


def _decimals(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Returns decimals from the big-endian bytes of their unscaled numbers.

    Raises:
      ArrowInvalid: one has more digits than there are.
    """

    def value_of(data: bytes) -> decimal.Decimal:
        number = int.from_bytes(data, "big", signed=True)
        if number.bit_length() > target.bit_width:
            raise pa.ArrowInvalid("a decimal has more digits than its schema says")
        return _EXACT.scaleb(decimal.Decimal(number), -target.scale)

    values = [None if v is None else value_of(v) for v in array.to_pylist()]
    return pa.array(values, target)
