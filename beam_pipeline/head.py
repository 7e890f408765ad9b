"""`head DATASET|FILE -n 3`: the first records, readable, long bytes shortened."""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from rich.cells import cell_len
from rich.text import Text

from beam_pipeline.dataset import Dataset, SingleFile, open_target, printable
from beam_pipeline.terminal import Console
from transforms.core.decoder import parse_example
from transforms.core.image import ImageInfo, check_image
from transforms.core.manifest import FeatureFacts
from transforms.core.schema import Kind
from transforms.core.tfrecord import TFRecordReader
from transforms.errors import ExampleError, UsageError

__all__ = [
    "Record",
    "describe_bytes",
    "describe_value",
    "first_records",
    "is_text",
    "show",
]

# How much of a value is shown.
_MAX_CHARACTERS = 200
_MAX_ITEMS = 8
_MAX_BYTES = 4

Value = int | float | bytes


@dataclasses.dataclass(frozen=True, slots=True)
class Record:
    """One record, decoded.

    Attributes:
      split: of the dataset; "" in a single file.
      file: its name, or its path where a single file was asked for.
      number: 0-based, in the file.
      size: of the serialised Example in bytes.
      values: by feature; None: it is no tf.train.Example.
      error: then why.
    """

    split: str
    file: str
    number: int
    size: int
    values: Mapping[str, Sequence[Value]] | None
    error: str = ""


def show(path: str, count: int = 3) -> int:
    """Prints the first records of every split, or of a file; returns 0.

    Raises:
      UsageError: there is neither a dataset nor a file.
      DamageError: a file is damaged; the good records before that are printed.
    """
    target = open_target(path)
    dataset = target.dataset if isinstance(target, SingleFile) else target
    facts = {} if dataset is None else _facts(dataset)
    console = Console(highlight=False, soft_wrap=True, emoji=False, markup=False)
    place: tuple[str, str] | None = None
    for record in first_records(target, count):
        if place is not None:
            console.print()
        if place != (record.split, record.file):
            place = (record.split, record.file)
            split = f"{record.split}  " if record.split else ""
            console.print(Text.assemble((split, "bold"), printable(record.file)))
        console.print(Text(f"record {record.number:,}", "bold"))
        for name, value in _lines(record, facts):
            console.print(Text.assemble("  ", (name, "cyan"), "  ", value))
    if place is None and count:
        console.print("no records")
    return 0


def first_records(target: Dataset | SingleFile, count: int) -> Iterator[Record]:
    """Yields the first `count` records of every split, or of the file.

    Raises:
      UsageError: the count is negative.
      TFRecordError: a file is damaged.
      SourceError: a file cannot be read.
    """
    if count < 0:
        raise UsageError(f"The number of records must be 0 or more; found {count}.")
    if isinstance(target, SingleFile):
        yield from _of_file(TFRecordReader(target.path), "", target.path, count)
        return
    manifest = target.manifest
    for split in manifest.splits:
        left = count
        for shard in split.shards:
            if not left:
                break
            reader = TFRecordReader(
                target.path(shard.file),
                compression=manifest.compression,
                allow_empty=shard.records == 0,
            )
            for record in _of_file(reader, split.name, shard.file, left):
                yield record
                left -= 1


def _of_file(
    reader: TFRecordReader, split: str, file: str, count: int
) -> Iterator[Record]:
    if not count:
        return
    for number, payload in enumerate(reader):
        values, error = None, ""
        try:
            values = parse_example(payload)
        except ExampleError as found:
            error = str(found)
        yield Record(split, file, number, len(payload), values, error)
        if number + 1 == count:
            return


def _facts(dataset: Dataset) -> dict[str, FeatureFacts]:
    return {facts.feature.name: facts for facts in dataset.manifest.features}


def _lines(record: Record, facts: Mapping[str, FeatureFacts]) -> list[tuple[str, str]]:
    """Returns (feature, value) as text, the features aligned.

    Those of the manifest come first, in its order, also where they are absent.
    """
    if record.values is None:
        return [("not a tf.train.Example:", printable(record.error))]
    names = [*facts, *(name for name in record.values if name not in facts)]
    width = max((cell_len(printable(name)) for name in names), default=0)
    out = []
    for name in names:
        values = record.values.get(name)
        if values is None:
            text = "(absent)"
        else:
            text = describe_value(values, facts.get(name))
        shown = printable(name)
        out.append((shown + " " * (width - cell_len(shown)), text))
    return out or [("(no features)", "")]


def describe_value(values: Sequence[Value], facts: FeatureFacts | None = None) -> str:
    """Returns the values of one feature for people, on one line.

    Args:
      values: of one type; exactly one is shown without brackets.
      facts: what the manifest says of the feature, if there is one.
    """
    if len(values) == 1:
        return _describe(values[0], facts)
    shown = [_describe(value, facts) for value in values[:_MAX_ITEMS]]
    if len(values) > _MAX_ITEMS:
        shown.append(f"... {len(values) - _MAX_ITEMS:,} more")
    return f"[{', '.join(shown)}]"


def _describe(value: Value, facts: FeatureFacts | None) -> str:
    if isinstance(value, bytes):
        kind = facts.feature.kind if facts else None
        if kind is Kind.TEXT or (kind is None and is_text(value)):
            return _quoted(value)
        return f"<{describe_bytes(value)}>"
    if isinstance(value, float):
        return _shortest(value)
    if facts and facts.feature.kind is Kind.BOOL:
        return f"{value} ({'false' if value == 0 else 'true'})"
    if facts and facts.feature.kind is Kind.LABEL:
        known = 0 <= value < len(facts.classes)
        name = printable(facts.classes[value]) if known else "no such class"
        return f"{value} ({name})"
    return str(value)


def _shortest(value: float) -> str:
    """Returns the shortest text that reads back as the same float32."""
    if not math.isfinite(value):
        return str(value)
    return str(np.float32(value))


def _quoted(value: bytes) -> str:
    text = value[: 4 * _MAX_CHARACTERS].decode("utf-8", "backslashreplace")
    if len(value) <= 4 * _MAX_CHARACTERS and len(text) <= _MAX_CHARACTERS:
        return f'"{printable(text)}"'
    return f'"{printable(text[:_MAX_CHARACTERS])}..." ({len(value):,} bytes)'


def is_text(value: bytes) -> bool:
    """Whether bytes look like text: UTF-8 without control characters."""
    # A cut may fall into a character: four bytes less settle that.
    head = value[:1024]
    try:
        text = head.decode()
    except UnicodeDecodeError as error:
        if len(head) == len(value) or error.start < len(head) - 3:
            return False
        text = head[: error.start].decode()
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
