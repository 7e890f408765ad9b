"""The facts of stages to and from JSON, for runs that resume.

    dataclass        {"=": its name, field: value, ...}
    enum member      {"enum": its name, "value": value}
    tuple            {"tuple": [...]}
    bytes            {"bytes": base64}
    mapping          {"map": [[key, value], ...]}, in its order

Anything else is stored as itself. Reading returns only the types of `_TYPES`: the file
may be of a run that died, or of another version.
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

__all__ = ["from_json", "to_json"]

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


def to_json(value: Any) -> bytes:
    """Returns the JSON of facts: of the types above and of plain values.

    Raises:
      TypeError: there is something else among them.
    """
    return json.dumps(_plain(value), separators=(",", ":")).encode(
        "utf-8", "surrogatepass"
    )


def from_json(data: bytes) -> Any:
    """Inverse of `to_json`.

    Raises:
      ValueError: the text is damaged, or of another version.
    """
    try:
        return _rich(json.loads(data))
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"not the facts of a run: {error}") from error


def _plain(value: Any) -> Any:
    kind = type(value)
    if kind in _THEMSELVES:
        return value
    if kind in _FIELDS:
        facts = {"=": kind.__name__}
        for name in _FIELDS[kind]:
            facts[name] = _plain(getattr(value, name))
        return facts
    if isinstance(value, enum.Enum) and kind.__name__ in _TYPES:
        return {"enum": _known(kind), "value": value.value}
    if isinstance(value, str | float):
        # Enum members that are stored as text, and NumPy's float64.
        return str(value) if isinstance(value, str) else float(value)
    if isinstance(value, np.integer):
        return int(value)
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, tuple):
        return {"tuple": _plain([*value])}
    if isinstance(value, Mapping):
        return {"map": [[_plain(k), _plain(v)] for k, v in value.items()]}
    if isinstance(value, list):
        # A table's facts are lists of 10,000 such values.
        if _THEMSELVES.issuperset(map(type, value)):
            return value
        return [_plain(item) for item in value]
    raise TypeError(f"Facts must be plain values; found {kind.__name__}.")


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
    return {_rich(key): _rich(item) for key, item in value["map"]}
