"""The output of `head --json`: the first records, each as JSON on a line of its own."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from beam_pipeline.commands.head import (
    Choice,
    Record,
    first_records,
    is_text,
    open_chosen,
)
from beam_pipeline.terminal.printing import json_text, print_text
from transforms.core.image.check import check_image
from transforms.core.image.formats import ImageInfo
from transforms.core.manifest import FeatureFacts
from transforms.core.schema import Kind

Value = int | float | bytes


def show(path: str, count: int, choice: Choice) -> int:
    """Prints the first records of every split, or of a file, as JSON; returns 0.

    Raises:
      UsageError: there is neither a dataset nor a file, or a file where a choice needs
        a dataset.
      SpecError: the choice names what is not there.
      DamageError: a file is damaged; the good records before that are printed.
    """
    target, facts = open_chosen(path, choice)
    kinds = {key: fact for fact in facts.values() for key in fact.feature.record_keys}
    for record in first_records(target, count, choice):
        print_text(json_text(record_json(record, kinds)))
    return 0


def record_json(record: Record, facts: Mapping[str, FeatureFacts]) -> dict[str, Any]:
    """Returns a record for JSON.

    The values of a feature are a list, or one value where the manifest says that it
    has one. Numbers are as stored, so a label is its class id. Text is a string. Other
    bytes are an object with their size and SHA-256, and the format and size in pixels
    of an image. Floats that JSON lacks are "NaN", "Infinity" and "-Infinity", as in
    https://protobuf.dev/programming-guides/json/.

    Args:
      record: decoded, or not an Example: its features are null, and `error` says why.
      facts: what the manifest says of the feature of each key; empty without one.

    Example:
      >>> record_json(Record("", "a.tfrecord", 0, 17, {"n": [1, 2]}), {})["features"]
      {'n': [1, 2]}
    """
    head: dict[str, Any] = {
        "split": record.split,
        "file": record.file,
        "record": record.number,
        "bytes": record.size,
    }
    if record.values is None:
        return head | {"features": None, "error": record.error}
    features = {
        name: _values(values, facts.get(name)) for name, values in record.values.items()
    }
    return head | {"features": features}


def _values(values: Sequence[Value], facts: FeatureFacts | None) -> Any:
    """Returns the values of one key: a list, or one value of a feature with one."""
    found = [_value(value, facts) for value in values]
    if facts is None or facts.feature.is_list or len(facts.feature.record_keys) > 1:
        return found
    return found[0] if len(found) == 1 else found


def _value(value: Value, facts: FeatureFacts | None) -> Any:
    if isinstance(value, bytes):
        kind = facts.feature.kind if facts else None
        if kind is Kind.TEXT or (kind is None and is_text(value)):
            try:
                return value.decode()
            except UnicodeDecodeError:
                return _bytes(value)
        return _bytes(value)
    if isinstance(value, float):
        if math.isnan(value):
            return "NaN"
        if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        # The shortest number that reads back as the same float32.
        return float(str(np.float32(value)))
    return value


def _bytes(value: bytes) -> dict[str, Any]:
    """Returns size, SHA-256 and, of an image, format, width and height."""
    out: dict[str, Any] = {
        "bytes": len(value),
        "sha256": hashlib.sha256(value).hexdigest(),
    }
    image = check_image(value, "none")
    if isinstance(image, ImageInfo):
        out |= {"format": image.format, "width": image.width, "height": image.height}
    return out
