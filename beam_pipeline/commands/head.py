"""The command `head`: the first records, readable, with long bytes shortened."""

import codecs
import contextlib
import hashlib
import itertools
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from beam_pipeline.datasets.dataset import Dataset, SingleFile, open_target
from beam_pipeline.terminal import (
    instant_text,
    json_text,
    print_line,
    print_text,
    printable,
    text_width,
)
from transforms.core.example.messages import parse_record
from transforms.core.image.check import check_image
from transforms.core.image.formats import ImageInfo
from transforms.core.manifest import FeatureFacts
from transforms.core.schema import Kind
from transforms.core.tfrecord.reader import TFRecordReader
from transforms.errors import ExampleError, UsageError
from transforms.storage.files import storage
from transforms.storage.paths import absolute

# How much of a value is shown.
_MAX_CHARACTERS = 200
_MAX_ITEMS = 8
_MAX_BYTES = 4

# The values of a step are a list.
Value = int | float | bytes | list[Any]


class Record(NamedTuple):
    """One record.

    Attributes:
      split: of the dataset; "" in a single file.
      file: its name, or its path where a single file was asked for.
      number: 0-based, in the file.
      payload: its bytes, a serialised Example if all is well.
    """

    split: str
    file: str
    number: int
    payload: bytes


def show(
    path: str,
    count: int = 3,
    *,
    split: str = "",
    label: str = "",
    where: str = "",
    as_json: bool = False,
) -> int:
    """Prints the first records of every split, or of a file; returns 0.

    Args:
      path: of the dataset or the file.
      count: of records of each split.
      split: its name; empty for all.
      label: the name of a class; empty for all.
      where: a condition; empty for none. See `transforms.reading.condition`.
      as_json: print each record as JSON on a line of its own.

    Raises:
      UsageError: there is neither a dataset nor a file, or a file where a choice needs
        a dataset.
      SpecError: the choice names what is not there.
      DamageError: a file is damaged; the good records before that are printed.
    """
    target = open_target(path)
    choice = (split, label, where)
    dataset = target.dataset if isinstance(target, SingleFile) else target
    if isinstance(target, SingleFile):
        if any(choice):
            raise UsageError(
                f"Records can be chosen in a dataset; {path!r} is one file. Leave out "
                f"--split, --label and --where."
            )
        records = _of_file(target, "", target.path, count)
    elif any(choice):
        records = _chosen(target, count, *choice)
    else:
        records = _first(target, count)
    stated = () if dataset is None else dataset.manifest.features
    facts = {fact.feature.name: fact for fact in stated}
    if as_json:
        kinds = {key: f for f in facts.values() for key in f.feature.record_keys}
        for record in records:
            print_text(json_text(record_json(record, kinds)))
        return 0
    shown = ""
    for record in records:
        if shown:
            print_line()
        name = f"{record.split}  " if record.split else ""
        if shown != f"{name}{record.file}":
            shown = f"{name}{record.file}"
            print_line(name, "bold", record.file)
        print_line(f"record {record.number:,}", "bold")
        for name, value in _lines(record.payload, facts):
            print_line(f"  {name}", "cyan", f"  {value}")
    if not shown and count:
        print_line("no records")
    return 0


def _first(target: Dataset, count: int) -> Iterator[Record]:
    """Yields the first records of each split."""
    for facts in target.manifest.splits:
        left = count
        for shard in facts.shards:
            file = SingleFile(target.path(shard.file), facts=shard)
            for record in _of_file(file, facts.name, shard.file, left):
                yield record
                left -= 1


def _chosen(
    target: Dataset, count: int, split: str, label: str, where: str
) -> Iterator[Record]:
    """Yields the first of the chosen records of each split."""
    # Only here: the first records of a dataset are shown before it is imported.
    from beam_pipeline.datasets.open_dataset import condition_of, open_dataset

    dataset = open_dataset(target.directory or ".")
    condition = condition_of(dataset, label, where)
    folder = os.path.join(absolute(target.path("")), "")
    for name in [split] if split else dataset:
        view = dataset[name]
        view = view.where(condition, limit=count) if condition else view[:count]
        for payload, (path, number) in zip(view.records, view.origins(), strict=True):
            yield Record(name, path.removeprefix(folder), number, payload)


def _of_file(file: SingleFile, split: str, name: str, count: int) -> Iterator[Record]:
    """Yields the first records of one file."""
    if not count:
        return
    with storage(file.path).opened() as stream:
        reader = TFRecordReader(stream, allow_empty=file.may_be_empty)
        for number, payload in enumerate(itertools.islice(reader, count)):
            yield Record(split, name, number, payload)


def _lines(payload: bytes, facts: Mapping[str, FeatureFacts]) -> list[tuple[str, str]]:
    """Returns (key, value) as text, the keys aligned.

    Those of the manifest come first, in its order; features that are absent are named.
    """
    try:
        values = parse_record(payload)
    except ExampleError as error:
        return [("not a tf.train.Example:", str(error))]
    shown = []
    for feature_facts in facts.values():
        feature = feature_facts.feature
        keys = [key for key in feature.record_keys if key in values]
        if not keys and not feature.internal:
            shown.append((feature.name, "(absent)"))
        shown += [(key, describe_value(values.pop(key), feature_facts)) for key in keys]
    shown += [(name, describe_value(left)) for name, left in values.items()]
    names = [printable(name) for name, _ in shown]
    width = max(map(text_width, names), default=0)
    padded = [name + " " * (width - text_width(name)) for name in names]
    texts = [text for _, text in shown]
    return [*zip(padded, texts, strict=True)] or [("(no features)", "")]


def describe_value(values: Sequence[Value], facts: FeatureFacts | None = None) -> str:
    """Returns the values of one key for people, on one line.

    Args:
      values: of one type; exactly one is shown without brackets, unless the feature
        holds lists.
      facts: what the manifest says of the feature, if there is one.
    """
    is_list = facts is not None and facts.feature.is_list
    is_single = len(values) == 1 and not is_list and not isinstance(values[0], list)
    return _describe(values[0] if is_single else [*values], facts)


def _describe(value: Value, facts: FeatureFacts | None) -> str:
    """Returns one value for people, by the kind of its feature."""
    kind = facts.feature.kind if facts else None
    match value, kind:
        case list(), _:
            shown = [_describe(item, facts) for item in value[:_MAX_ITEMS]]
            if len(value) > len(shown):
                shown.append(f"... {len(value) - len(shown):,} more")
            return f"[{', '.join(shown)}]"
        case bytes(), _:
            if kind is Kind.TEXT or (kind is None and is_text(value)):
                return _quoted(value)
            return f"<{describe_bytes(value)}>"
        case float(), _:
            return _shortest(value)
        case int(), Kind.LABEL if facts:
            named = 0 <= value < len(facts.classes)
            name = printable(facts.classes[value]) if named else "no such class"
            return f"{value} ({name})"
        case int(), Kind.TIMESTAMP if facts:
            instant = instant_text(value, facts.feature.unit)
            return f"{value} ({instant})" if instant else str(value)
    return str(value)


def _shortest(value: float) -> str:
    """Returns the shortest text that reads back as the same float32."""
    return str(np.float32(value))


def _quoted(value: bytes) -> str:
    """Returns text in quotes, cut where it is long."""
    text = value[: 4 * _MAX_CHARACTERS].decode("utf-8", "backslashreplace")
    if len(value) <= 4 * _MAX_CHARACTERS and len(text) <= _MAX_CHARACTERS:
        return f'"{printable(text)}"'
    return f'"{printable(text[:_MAX_CHARACTERS])}..." ({len(value):,} bytes)'


def is_text(value: bytes) -> bool:
    """Whether bytes look like text: UTF-8 without control characters."""
    try:
        # The cut may fall into a UTF-8 character.
        decoder = codecs.getincrementaldecoder("utf-8")()
        text = decoder.decode(value[:1024], final=len(value) <= 1024)
    except UnicodeDecodeError:
        return False
    return all(character.isprintable() or character in "\t\r\n" for character in text)


def describe_bytes(value: bytes) -> str:
    """Returns "21,345 bytes, JPEG 400x300, starts ff d8 ff e0"."""
    parts = [f"{len(value):,} byte{'' if len(value) == 1 else 's'}"]
    if value[:2] in (b"\xff\xd8", b"\x89P", b"BM"):
        image = check_image(value, "none")
        if isinstance(image, ImageInfo):
            parts.append(f"{image.format.upper()} {image.width}x{image.height}")
    if value:
        word = "starts " if len(value) > _MAX_BYTES else ""
        parts.append(f"{word}{value[:_MAX_BYTES].hex(' ')}")
    return ", ".join(parts)


def record_json(record: Record, facts: Mapping[str, FeatureFacts]) -> dict[str, Any]:
    r"""Returns a record for JSON.

    The values of a feature are a list, or one value where the manifest says that it
    has one. Numbers are as stored, so a label is its class id. Text is a string. Other
    bytes are an object with their size and SHA-256. Floats that JSON lacks are "NaN",
    "Infinity" and "-Infinity", as in
    https://protobuf.dev/programming-guides/json/.

    Args:
      record: the features of one that is no Example are null, and `error` says why.
      facts: what the manifest says of the feature of each key; empty without one.

    Example:
      >>> one = b"\n\r\n\x0b\n\x02id\x12\x05\x1a\x03\n\x01\x02"
      >>> record_json(Record("", "a.tfrecord", 0, one), {})["features"]
      {'id': [2]}
    """
    head: dict[str, Any] = {
        "split": record.split,
        "file": record.file,
        "record": record.number,
        "bytes": len(record.payload),
    }
    try:
        by_name = parse_record(record.payload)
    except ExampleError as error:
        return head | {"features": None, "error": str(error)}
    features = {
        name: _json_values(values, facts.get(name)) for name, values in by_name.items()
    }
    return head | {"features": features}


def _json_values(values: Sequence[Value], facts: FeatureFacts | None) -> Any:
    """Returns the values of one key: a list, or one value of a feature with one."""
    items = [_json_value(value, facts) for value in values]
    if facts is None or facts.feature.is_list or len(facts.feature.record_keys) > 1:
        return items
    return items[0] if len(items) == 1 else items


def _json_value(value: Value, facts: FeatureFacts | None) -> Any:
    """Returns a value for JSON: bytes as size and sha256, NaN and infinity as text."""
    match value:
        case list():
            return [_json_value(element, facts) for element in value]
        case bytes():
            kind = facts.feature.kind if facts else None
            if kind is Kind.TEXT or (kind is None and is_text(value)):
                with contextlib.suppress(UnicodeDecodeError):
                    return value.decode()
            return {"bytes": len(value), "sha256": hashlib.sha256(value).hexdigest()}
        case float() if math.isfinite(value):
            return float(_shortest(value))
        case float():
            return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
    return value
