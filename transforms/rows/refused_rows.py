"""Rows that no run holds: rejections that no other row decides.

A rejection has the row's values as JSON, which its checksum is of: keys in order, whole
floats as integers, what is missing left out. So it is the same whatever rows came with
it, and made what types of its columns.
"""

import functools
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from transforms.core.model import Rejection
from transforms.core.nesting import MAX_NESTING
from transforms.core.reasons import Fault
from transforms.errors import bounded
from transforms.rows.row_types import as_mapping

# Larger ones are in the text by their checksum.
_SHOWN_BYTES = 1 << 16
_EXACT = 2**53
_DIGEST_BYTES = 8
# Of Python's default texts of objects: where they are in memory.
_ADDRESS = re.compile(" at 0x[0-9A-Fa-f]+")


Refusals = Mapping[str, tuple[int, str]]
"""What is wrong, in a word -> how many rows were refused for it, and what to say where
this is wrong with every row."""


def merge_refusals(parts: Iterable[Refusals]) -> dict[str, tuple[int, str]]:
    """Returns the sums; of several sentences the first one in their order."""
    out: dict[str, tuple[int, str]] = {}
    for part in parts:
        for word, (rows, sentence) in part.items():
            before, known = out.get(word, (0, sentence))
            out[word] = before + rows, min(known, sentence)
    return out


def refuse(text: bytes, found: Fault, *, known_by: str = "", stage: str) -> Rejection:
    """Returns the rejection of a row.

    Args:
      text: its values, see `values_as_json`.
      found: what is wrong.
      known_by: its key, or the hash of its content; by default that of the text.
      stage: that refuses it.
    """
    digest = hashlib.blake2b(text, digest_size=_DIGEST_BYTES)
    return Rejection(
        source=known_by or digest.hexdigest(),
        row=None,
        line=None,
        stage=stage,
        reason=found.reason,
        message=bounded(found.message),
        sha256=hashlib.sha256(text).hexdigest(),
        raw=text,
    )


def values_as_json(row: Any) -> bytes:
    """Returns the values of a row, or of what is none, as one text.

        >>> values_as_json({"b": 1.0, "a": {2}, "c": None})
        b'{"a": "{2}", "b": 1}'

    Args:
      row: a row of any type, or any other value.
    """
    return json.dumps(_plain(row, ())).encode()


def _plain(value: Any, above: tuple[int, ...]) -> Any:
    """Returns a value as JSON has it; what JSON lacks as text.

    Args:
      value: any.
      above: ids of what it is in.
    """
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, float) and value.is_integer() and abs(value) <= _EXACT:
        return int(value)
    if type(value) in (int, float):
        return value
    if id(value) in above or len(above) > MAX_NESTING:
        return "..."
    inside = functools.partial(_plain, above=(*above, id(value)))
    convert = as_mapping(type(value))
    if convert is not None:
        parts = ((str(key), inside(part)) for key, part in convert(value).items())
        return dict(sorted(p for p in parts if p[1] is not None))
    if isinstance(value, np.generic | np.ndarray):
        return _of_numpy(value, inside)
    if isinstance(value, list | tuple):
        return [inside(part) for part in value]
    if isinstance(value, set | frozenset):
        return "{" + ", ".join(sorted(json.dumps(inside(part)) for part in value)) + "}"
    if isinstance(value, bytes | bytearray) and len(value) > _SHOWN_BYTES:
        return f"{len(value)} bytes, sha256 {hashlib.sha256(value).hexdigest()}"
    return _ADDRESS.sub("", repr(value))


def _of_numpy(value: Any, inside: Callable[[Any], Any]) -> Any:
    if value.nbytes > _SHOWN_BYTES and not value.dtype.hasobject:
        digest = hashlib.sha256(value.tobytes()).hexdigest()
        return f"array of {value.dtype} of shape {value.shape}, sha256 {digest}"
    found = value.tolist()
    return repr(value) if isinstance(found, np.generic) else inside(found)
