"""The facts of stages to and from JSON, for runs that resume.

    dataclass        {"=": its name, field: value, ...}
    enum member      {"enum": its name, "value": value}
    tuple            {"tuple": [...]}
    bytes            {"bytes": base64}
    mapping          {"keys": [...], "values": [...]}, in its order

Anything else is stored as itself. A block has a segment for each of thousands of
shards, so lists are stored by column where their items are alike:

    dataclasses      {"each": their name, "fields": {field: [value, ...], ...}}
    tuples           {"tuples": [[first value of each, ...], ...]}, all of one length
    equal texts      {"same": text or bytes, "times": their number}

Reading returns only the types of `_TYPES`: the file may be of a run that died, or of
another version.
"""

import base64
import dataclasses
import enum
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from transforms.core.manifest import FileFacts
from transforms.core.model import (
    PlaceFacts,
    ReadFacts,
    Reason,
    RejectLog,
    Rounding,
    Segment,
    ShardFile,
)
from transforms.core.placing.leakage import Fingerprints, Subject
from transforms.core.statistics import StatisticsTable

_TYPES: Mapping[str, type] = {
    kind.__name__: kind
    for kind in (
        *(FileFacts, Fingerprints, PlaceFacts, ReadFacts, Reason, RejectLog),
        *(Rounding, Segment, ShardFile, StatisticsTable, Subject),
    )
}

# Without the worker that has made a fact: who takes it over vouches for it.
_FIELDS = {
    kind: tuple(field.name for field in dataclasses.fields(kind) if field.compare)
    for kind in _TYPES.values()
    if dataclasses.is_dataclass(kind)
}
_THEMSELVES = frozenset((type(None), bool, int, float, str))
_ENCODER = json.JSONEncoder(separators=(",", ":"))


def to_json(value: Any) -> bytes:
    """Returns the JSON of facts: of the types above and of plain values.

    Raises:
      TypeError: there is something else among them.
    """
    return _ENCODER.encode(_plain(value)).encode("utf-8", "surrogatepass")


def from_json(data: bytes) -> Any:
    """Inverse of `to_json`.

    Raises:
      ValueError: the text is damaged, or of another version.
    """
    try:
        return _rich(json.loads(data))
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ValueError(f"not the facts of a run: {error}") from error


def _plain(value: Any) -> Any:
    kind = type(value)
    if kind in _THEMSELVES:
        return value
    if kind in _FIELDS:
        facts = {"=": kind.__name__}
        for name in _FIELDS[kind]:
            field = getattr(value, name)
            facts[name] = field if type(field) in _THEMSELVES else _plain(field)
        return facts
    if kind is tuple:
        return {"tuple": _plain_list([*value])}
    if kind is list:
        return _plain_list(value)
    if isinstance(value, enum.Enum) and kind.__name__ in _TYPES:
        return {"enum": _known(kind), "value": value.value}
    if isinstance(value, str | float):
        # Enum members that are stored as text, and NumPy's float64.
        return str(value) if isinstance(value, str) else float(value)
    if isinstance(value, np.integer):
        return int(value)
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, Mapping):
        keys, values = _plain_list([*value]), _plain_list([*value.values()])
        return {"keys": keys, "values": values}
    raise TypeError(f"Facts must be plain values; found {kind.__name__}.")


def _plain_list(values: list[Any]) -> Any:
    kinds = set(map(type, values))
    if len(kinds) == 1 and len(values) > 1:
        (kind,) = kinds
        if kind in (str, bytes) and values.count(values[0]) == len(values):
            return {"same": _plain(values[0]), "times": len(values)}
        if kind in _FIELDS:
            fields = {
                name: _plain_list([getattr(value, name) for value in values])
                for name in _FIELDS[kind]
            }
            return {"each": kind.__name__, "fields": fields}
        if kind is tuple and len(set(map(len, values))) == 1 and values[0]:
            columns = zip(*values, strict=True)
            return {"tuples": [_plain_list([*column]) for column in columns]}
    # A table's facts are lists of 10,000 plain values.
    return values if kinds <= _THEMSELVES else list(map(_plain, values))


def _known(kind: type) -> str:
    if _TYPES.get(kind.__name__) is not kind:
        raise TypeError(f"Facts must be of the known types; found {kind.__name__}.")
    return kind.__name__


def _rich(value: Any) -> Any:
    if isinstance(value, list):
        if _THEMSELVES.issuperset(map(type, value)):
            return value
        return [_rich(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "=" in value:
        fields = {name: _rich(item) for name, item in value.items() if name != "="}
        return _TYPES[value["="]](**fields)
    if "enum" in value:
        return _TYPES[value["enum"]](value["value"])
    if "bytes" in value:
        return base64.b64decode(value["bytes"], validate=True)
    if "tuple" in value:
        return tuple(_rich(value["tuple"]))
    if "same" in value:
        return [_rich(value["same"])] * value["times"]
    if "tuples" in value:
        return list(zip(*map(_rich, value["tuples"]), strict=True))
    if "each" in value:
        kind, columns = _TYPES[value["each"]], value["fields"]
        rows = zip(*map(_rich, columns.values()), strict=True)
        return [kind(**dict(zip(columns, row, strict=True))) for row in rows]
    return dict(zip(_rich(value["keys"]), _rich(value["values"]), strict=True))
