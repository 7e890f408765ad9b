"""The records of TFRecord files: where files can be cut, and what a sample holds.

A plain file is cut at any record, found by walking from header to header. The walk
checks the headers' checksums and no more: those of payloads are checked when the block
is read. Of a compressed file nothing but the beginning can be found.
"""

import collections
import dataclasses
import functools
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, NoReturn

import numpy as np
import pyarrow as pa

from transforms.core.example.decoder import VALUE_TYPES, read_columns
from transforms.core.example.messages import other_kind
from transforms.core.schema import SEQUENCE_ENCODING, STEPS, Feature, Kind
from transforms.core.tfrecord.compression import Compression, detect
from transforms.core.tfrecord.frame import DEFAULT_MAX_RECORD_BYTES, HEADER_BYTES
from transforms.core.tfrecord.index import record_ends
from transforms.core.tfrecord.reader import PayloadBatch, TFRecordReader
from transforms.core.tfrecord.walk import Kept, Salvage, boundaries, first_damage
from transforms.errors import InputError, TFRecordError
from transforms.formats.columnar.arrow_batches import PIECE_BYTES
from transforms.formats.raw_rows import grouped
from transforms.formats.table import InputFile, SourceFile
from transforms.formats.tfrecord_files.stored_features import any_example

# A sample reads at most this many files, and this many places in each, so that
# planning takes no longer for a larger source.
MAX_FILES = 64
_PLACES = 8

_NOTHING = PayloadBatch.of([])
_KINDS = {
    pa.int64(): Kind.INT64,
    pa.float32(): Kind.FLOAT,
    pa.large_binary(): Kind.BYTES,
}


def compression_of(stream: BinaryIO, path: str) -> Compression:
    """Returns how an open file is compressed, by its first bytes; rewinds it.

    Raises:
      TFRecordError: the content is of a compression that no TFRecord reader reads.
    """
    head = stream.read(HEADER_BYTES)
    stream.seek(0)
    return detect(head, path=path)


def cut(stream: BinaryIO, path: str, block_bytes: int) -> Iterator[tuple[int, int]]:
    """Yields (end, records) of each block of a plain file, `block_bytes` or longer.

    Raises:
      TFRecordError: a header is damaged, or the file ends inside a record.
    """

    def read(start: int, stop: int) -> bytes:
        stream.seek(start)
        return stream.read(stop - start)

    size = stream.seek(0, io.SEEK_END)
    begin = records = 0
    for ends in record_ends(read, size, path=path):
        at = 0
        while (last := int(np.searchsorted(ends, begin + block_bytes))) < len(ends):
            yield int(ends[last]), records + last + 1 - at
            begin, records, at = int(ends[last]), 0, last + 1
        records += len(ends) - at
    if records:
        yield size, records


def damage_of(path: str) -> TFRecordError:
    """Reads a damaged file from its start; returns the error about the damage."""
    try:
        TFRecordReader(path, allow_empty=True).verify()
    except TFRecordError as error:
        return error
    return TFRecordError(
        f"{path}: the file changed while it was read. Read it again when its writer "
        f"is done.",
        path=path,
    )


def payloads_between(data: bytes, path: str, offset: int, first: int) -> PayloadBatch:
    """Returns the records that a piece of a plain file holds, all of them checked.

    Args:
      data: whole records with their frames.
      path: the file.
      offset: where in it they begin.
      first: number of the first record.

    Raises:
      TFRecordError: a record is damaged.
    """
    starts, lengths, stop = boundaries(data)
    sound = len(starts) and stop == len(data)
    sound = sound and lengths.max() <= DEFAULT_MAX_RECORD_BYTES
    if not sound or first_damage(data, starts, lengths):
        raise damage_of(path)
    offsets = starts + (offset - HEADER_BYTES)
    return PayloadBatch(data, starts, lengths, first, offsets)


def unpacked(stream: BinaryIO, path: str, piece_bytes: int) -> Iterator[PayloadBatch]:
    """Yields the records of a file from its start, some `piece_bytes` at a time."""
    reader = TFRecordReader(stream, allow_empty=True)
    # Errors name it by the path that it was listed with.
    reader.path = path
    yield from in_pieces(reader.batches(), piece_bytes)


def counted(stream: BinaryIO, file: SourceFile, limit: int) -> int:
    """Returns how many records a compressed file has, up to a limit."""
    rows = 0
    for payloads in unpacked(stream, file.path, 0):
        rows += len(payloads)
        if rows >= limit:
            return limit
    return rows


def in_pieces(
    batches: Iterable[PayloadBatch], piece_bytes: int
) -> Iterator[PayloadBatch]:
    """Yields the records of batches of one file, `piece_bytes` or more at a time."""
    pieces = grouped(batches, lambda batch: len(batch.data), piece_bytes)
    return map(PayloadBatch.joined, pieces)


def some_payloads(data: bytes) -> PayloadBatch | None:
    """Returns the whole records of a piece from inside a file; damage ends them."""
    for span in Salvage(lambda start, stop: data[start:stop], len(data)):
        if isinstance(span, Kept):
            sound = data[span.start : span.stop]
            starts, lengths, _ = boundaries(sound)
            return PayloadBatch(sound, starts, lengths, 0, starts)
    return None


@dataclasses.dataclass(frozen=True, slots=True)
class Learned:
    """What some records hold.

    Attributes:
      kinds: by feature, in how many records it is which list of the message.
      lists: features that have another number of values than one somewhere.
      steps: by list of a SequenceExample or a list of Examples, how many values all of
        its steps have; -1 where their numbers differ, 0 where there is no step.
      complaint: why the first payload that is no Example is none; empty for none.
      in_sequence: whether any is a SequenceExample or a list of Examples.
    """

    kinds: Mapping[str, collections.Counter[str]]
    lists: frozenset[str]
    steps: Mapping[str, int]
    complaint: str
    in_sequence: bool = False

    @property
    def values(self) -> dict[str, pa.DataType]:
        """The types of single values, by sorted names: of several the most frequent."""
        return {
            name: VALUE_TYPES[max(counts, key=counts.__getitem__)]
            for name, counts in sorted(self.kinds.items())
        }

    def features_of(self, values: Mapping[str, pa.DataType]) -> Iterator[Feature]:
        """Yields the features of records whose single values have these types."""
        encoding = SEQUENCE_ENCODING if self.in_sequence else ""
        for name, value in values.items():
            size = self.steps.get(name)
            shape: tuple[int | None, ...] = ()
            if name in self.lists or size is not None:
                shape = (None,)
            if size is not None and (size == -1 or size > 1):
                shape = (None, None if size == -1 else size)
            yield Feature(name, _KINDS[value], shape=shape, encoding=encoding)


def combined(a: Learned, b: Learned) -> Learned:
    """Returns what the records of both hold."""
    none = collections.Counter[str]()
    kinds = {
        name: a.kinds.get(name, none) + b.kinds.get(name, none)
        for name in dict.fromkeys([*a.kinds, *b.kinds])
    }
    steps = dict(a.steps)
    for name, size in b.steps.items():
        before = steps.get(name) or size
        steps[name] = before if size in (0, before) else -1
    return Learned(
        kinds,
        a.lists | b.lists,
        steps,
        a.complaint or b.complaint,
        a.in_sequence or b.in_sequence,
    )


def learn(payloads: PayloadBatch) -> Learned:
    """Returns the features of n records."""
    others: set[str] = set()

    def parse(data: bytes) -> Any:
        others.add(kind := other_kind(data))
        return any_example(data, kind)

    parsed = read_columns(payloads, parse=parse)
    kinds: dict[str, collections.Counter[str]] = {}
    lists: set[str] = set()
    steps: dict[str, int] = {}
    for name, columns in parsed.features.items():
        if name.endswith(STEPS):
            counts = columns["int64_list"].values.unique().to_pylist()
            only = counts[0] if len(counts) == 1 else -1
            steps[name.removesuffix(STEPS)] = (only or -1) if counts else 0
            continue
        # Of two kinds that are as frequent, the one found first counts.
        for kind in sorted(columns, key=lambda kind: columns[kind].first):
            column = columns[kind]
            rows = payloads if column.rows is None else column.rows
            kinds.setdefault(name, collections.Counter())[kind] = len(rows)
            if column.counts is not None:
                lists.add(name)
    complaint = next(map(str, parsed.errors.values()), "")
    return Learned(kinds, frozenset(lists), steps, complaint, any(others))


@dataclasses.dataclass(frozen=True, slots=True)
class _Place:
    """Some records of one file.

    Attributes:
      origin: the file.
      payloads: the records.
      stored_bytes: of the file that they take.
      ended: whether they are all there are.
    """

    origin: str
    payloads: PayloadBatch
    stored_bytes: int
    ended: bool


def sampled(file: InputFile, budget: int) -> _Place:
    """Returns records of a file, about `budget` bytes of them."""
    batches: list[PayloadBatch] = []
    ended = True
    with file.open() as stream:
        plain = compression_of(stream, file.path) is Compression.NONE
        spread = plain and file.size > budget
        share = budget // _PLACES if spread else budget
        size = 0
        # At least one record is read, even if it is longer than the budget.
        for batch in unpacked(stream, file.path, 0):
            ended = not batches or size < share
            if not ended:
                break
            batches.append(batch)
            size += len(batch.data)
        stored = size if plain else min(stream.tell(), file.size)
        if spread and not ended:
            for index in range(1, _PLACES):
                stream.seek(file.size * index // _PLACES)
                records = some_payloads(stream.read(share))
                if records is not None:
                    batches.append(records)
                    stored += int(records.lengths.sum()) + 16 * len(records)
    payloads = PayloadBatch.joined(batches or [_NOTHING])
    return _Place(file.origin, payloads, stored, ended)


def learned_from(file: InputFile) -> Learned:
    """Returns what all records of a file hold."""
    with file.open() as stream:
        pieces = unpacked(stream, file.path, PIECE_BYTES)
        return functools.reduce(combined, map(learn, pieces), learn(_NOTHING))


def refuse(seen: Sequence[tuple[str, Learned]]) -> NoReturn:
    """Raises the error for records of which none is an Example that has features.

    Args:
      seen: origins, and what the records there hold.
    """
    problem = "found no record with a feature"
    for origin, learned in seen:
        if learned.complaint:
            problem = f"a record of {origin} is none: {learned.complaint.rstrip('.')}"
            break
    raise InputError(f"TFRecord files must hold tf.train.Examples; {problem}.")
