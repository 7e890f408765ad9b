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
from transforms.core.nesting import MAX_NESTING
from transforms.errors import InputError
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


_BYTES = AvroType("bytes", pa.binary(), pa.binary())
_PRIMITIVES = {
    "null": AvroType("null", pa.null(), pa.null(), 0),
    "boolean": AvroType("boolean", pa.bool_(), pa.bool_()),
    "int": AvroType("int", pa.int32(), pa.int32()),
    "long": AvroType("long", pa.int64(), pa.int64()),
    "float": AvroType("float", pa.float32(), pa.float32(), 4),
    "double": AvroType("double", pa.float64(), pa.float64(), 8),
    "bytes": _BYTES,
    # Rows whose text is not UTF-8 are rejected one by one, later.
    "string": AvroType(
        "bytes", pa.binary(), pa.string(), 1, lambda array: array.view(pa.string())
    ),
}
_UNITS = {"millis": "ms", "micros": "us", "nanos": "ns"}
# (type, logical type) -> Arrow's.
_LOGICAL: Mapping[tuple[str, str], pa.DataType] = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    **{
        ("long", f"timestamp-{word}"): pa.timestamp(unit, "UTC")
        for word, unit in _UNITS.items()
    },
    **{
        ("long", f"local-timestamp-{word}"): pa.timestamp(unit)
        for word, unit in _UNITS.items()
    },
}
# Digits that Arrow's narrow decimals hold, and its wide ones.
_NARROW_DIGITS = 38
_WIDE_DIGITS = 76
# Unions of these are the last one of them.
_WIDER = (("int", "long"), ("float", "double"))


def row_type(text: bytes, origin: str) -> AvroType:
    """Returns the type of the rows of a file; what is no record is a column `value`.

    Args:
      text: the schema, as JSON.
      origin: the file, for errors.

    Raises:
      InputError: it is no schema, or one that no table has.
    """
    return _Types(origin).rows(text)


class _Types:
    """Reads the types of one schema; see `row_type`."""

    def __init__(self, origin: str) -> None:
        self._origin = origin
        # Full name -> its definition, and the namespace that it is in.
        self._named: dict[str, tuple[Any, str]] = {}
        self._count = 0

    def rows(self, text: bytes) -> AvroType:
        """See `row_type`."""
        try:
            schema = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise self._wrong(f"it is no JSON: {error}") from error
        try:
            found = self._type(schema, "", (), 0)
        except (KeyError, TypeError, AttributeError) as error:
            raise self._wrong(f"{type(error).__name__}: {error}") from error
        if not pa.types.is_struct(found.raw) or not found.type.num_fields:
            found = self._record([("value", found)])
        if not found.least_bytes:
            raise self._wrong("its rows must take bytes, and they hold nothing")
        return found

    def _wrong(self, what: str) -> InputError:
        return InputError(
            f"{self._origin} cannot be read as Avro: its schema must be sound, and one "
            f"of a table, but {what}. Write it again under another schema."
        )

    def _type(
        self, schema: Any, namespace: str, inside: tuple[str, ...], depth: int
    ) -> AvroType:
        self._count += 1
        if self._count > _MAX_TYPES:
            raise self._wrong(f"it has over {_MAX_TYPES:,} types")
        if depth > MAX_NESTING:
            raise self._wrong(f"it is nested over {MAX_NESTING} levels deep")
        if isinstance(schema, list):
            return self._union(schema, namespace, inside, depth)
        if isinstance(schema, str):
            if schema in _PRIMITIVES:
                return _PRIMITIVES[schema]
            return self._of_name(schema, namespace, inside, depth)
        kind = schema["type"]
        if isinstance(kind, dict | list):
            return self._type(kind, namespace, inside, depth + 1)
        if kind in _PRIMITIVES:
            return self._logical(kind, schema, _PRIMITIVES[kind])
        if kind == "array":
            return self._array(
                self._type(schema["items"], namespace, inside, depth + 1)
            )
        if kind == "map":
            value = self._type(schema["values"], namespace, inside, depth + 1)
            fields = [("key", _PRIMITIVES["string"]), ("value", value)]
            return self._array(self._record(fields))
        if kind not in ("record", "error", "enum", "fixed"):
            return self._of_name(kind, namespace, inside, depth)
        full, namespace = _full_name(schema, namespace)
        self._named[full] = (schema, namespace)
        return self._definition(schema, full, namespace, inside, depth)

    def _of_name(
        self, name: str, namespace: str, inside: tuple[str, ...], depth: int
    ) -> AvroType:
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        full = full if full in self._named else name
        if full not in self._named:
            raise self._wrong(f"it names no type {name[:60]!r}")
        schema, namespace = self._named[full]
        return self._definition(schema, full, namespace, inside, depth)

    def _definition(
        self,
        schema: Any,
        full: str,
        namespace: str,
        inside: tuple[str, ...],
        depth: int,
    ) -> AvroType:
        """Returns a fresh copy of a named type: fastavro needs a name for each use."""
        if full in inside:
            raise self._wrong(
                f"{full[:60]!r} holds values of its own type, which no feature holds"
            )
        if schema["type"] == "enum":
            return _enum([str(symbol) for symbol in schema["symbols"]])
        if schema["type"] == "fixed":
            return self._fixed(schema)
        fields = [
            (
                str(field["name"]),
                self._type(_field_type(field), namespace, (*inside, full), depth + 1),
            )
            for field in schema["fields"]
        ]
        return self._record(fields)

    def _fixed(self, schema: Mapping[str, Any]) -> AvroType:
        size = schema["size"]
        if type(size) is not int or not 0 <= size <= MAX_BLOCK_BYTES:
            raise self._wrong(f"a fixed type must have a size; found {size!r}")
        plain = {"type": "fixed", "name": f"n{self._count}", "size": size}
        found = AvroType(plain, pa.binary(), pa.binary(), size)
        if schema.get("logicalType") == "uuid" and size == 16:
            return dataclasses.replace(found, type=pa.string(), finish=_uuids)
        return self._logical("fixed", schema, found)

    def _logical(
        self, kind: str, schema: Mapping[str, Any], found: AvroType
    ) -> AvroType:
        """Returns a type with its logical type; an unknown one is passed over."""
        logical = schema.get("logicalType")
        if not isinstance(logical, str):
            return found
        if (target := _LOGICAL.get((kind, logical))) is not None:
            return dataclasses.replace(
                found, type=target, finish=lambda array: array.view(target)
            )
        if logical != "decimal" or kind not in ("bytes", "fixed"):
            return found
        digits, scale = schema.get("precision"), schema.get("scale", 0)
        if not (type(digits) is int and type(scale) is int):
            return found
        if not 0 <= scale <= digits <= _WIDE_DIGITS:
            return found
        if digits <= _NARROW_DIGITS:
            target = pa.decimal128(_NARROW_DIGITS, scale)
        else:
            target = pa.decimal256(_WIDE_DIGITS, scale)
        return dataclasses.replace(
            found, type=target, finish=lambda array: _decimals(array, target)
        )

    def _union(
        self, schemas: list[Any], namespace: str, inside: tuple[str, ...], depth: int
    ) -> AvroType:
        found = [self._type(each, namespace, inside, depth + 1) for each in schemas]
        plain = [each.plain for each in found]
        values = [each for each in found if not pa.types.is_null(each.raw)]
        if not values:
            return AvroType(plain, pa.null(), pa.null())
        wide = values[0]
        for other in values[1:]:
            for narrow, wider in _WIDER:
                pair = {wide.plain, other.plain} if _is_bare(wide, other) else set()
                if pair == {narrow, wider}:
                    wide = _PRIMITIVES[wider]
                    break
            else:
                if not (wide.type == other.type and wide.raw == other.raw):
                    names = listed([str(each.type) for each in values])
                    raise self._wrong(
                        f"a union must be of null and one other type, or of numbers; "
                        f"one is of {names}"
                    )
        return AvroType(plain, wide.raw, wide.type, 1, wide.finish)

    def _array(self, items: AvroType) -> AvroType:
        if not items.least_bytes:
            raise self._wrong("it has arrays whose items take no bytes")

        def finish(array: pa.Array) -> pa.Array:
            return lists_like(array, items.finish(array.flatten()))

        plain = {"type": "array", "items": items.plain}
        return AvroType(plain, pa.list_(items.raw), pa.list_(items.type), 1, finish)

    def _record(self, fields: Sequence[tuple[str, AvroType]]) -> AvroType:
        self._count += 1
        name = f"n{self._count}"
        if not fields:
            plain = {"type": "record", "name": name, "fields": []}
            nothing = pa.struct([])
            return AvroType(plain, nothing, pa.null(), 0, lambda a: pa.nulls(len(a)))
        keys = [f"f{index}" for index in range(len(fields))]
        named = list(zip(keys, (kind for _, kind in fields), strict=True))
        target = [pa.field(name, kind.type) for name, kind in fields]

        def finish(array: pa.Array) -> pa.Array:
            return pa.StructArray.from_arrays(
                [kind.finish(array.field(key)) for key, kind in named],
                fields=target,
                mask=array.is_null() if array.null_count else None,
            )

        return AvroType(
            {
                "type": "record",
                "name": name,
                "fields": [{"name": key, "type": kind.plain} for key, kind in named],
            },
            pa.struct([pa.field(key, kind.raw) for key, kind in named]),
            pa.struct(target),
            sum(kind.least_bytes for _, kind in fields),
            finish,
        )


def _is_bare(*types: AvroType) -> bool:
    """Whether types are numbers without a logical type."""
    return all(isinstance(each.plain, str) and each.raw == each.type for each in types)


def _field_type(field: Mapping[str, Any]) -> Any:
    """Returns the type of a field; some writers put its logical type beside it."""
    if isinstance(field["type"], str) and "logicalType" in field:
        return {**field, "type": field["type"]}
    return field["type"]


def _full_name(schema: Mapping[str, Any], namespace: str) -> tuple[str, str]:
    """Returns the full name of a named type, and the namespace inside of it."""
    name = str(schema["name"])
    if "." in name:
        return name, name.rpartition(".")[0]
    space = str(schema.get("namespace", namespace))
    return (f"{space}.{name}" if space else name), space


def _enum(symbols: Sequence[str]) -> AvroType:
    def finish(array: pa.Array) -> pa.Array:
        names = pa.array(symbols, pa.string())
        return pa.DictionaryArray.from_arrays(array, names).dictionary_decode()

    return AvroType("int", pa.int32(), pa.string(), 1, finish)


def _uuids(array: pa.Array) -> pa.Array:
    texts = [None if v is None else str(uuid.UUID(bytes=v)) for v in array.to_pylist()]
    return pa.array(texts, pa.string())


def _decimals(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Returns decimals from the big-endian bytes of their unscaled numbers.

    Raises:
      ArrowInvalid: one has more digits than there are.
    """
    out: list[decimal.Decimal | None] = []
    for value in array.to_pylist():
        if value is None:
            out.append(None)
            continue
        number = int.from_bytes(value, "big", signed=True)
        if number.bit_length() > target.bit_width:
            raise pa.ArrowInvalid("a decimal has more digits than its schema says")
        sign, digits, _ = decimal.Decimal(number).as_tuple()
        out.append(decimal.Decimal((sign, digits, -target.scale)))
    return pa.array(out, target)
