"""`WriteTFRecords`: records of any kind to TFRecord files.

It takes the parameters of `beam.io.WriteToTFRecord` and promises more. A write goes

    records -> pieces of some 12 MiB, with the hash of each record      Spool
            -> (shard, its records of a piece)                          Cut by shard
            -> GroupByKey: descriptors and small pieces cross it
            -> finished files in the work folder                        Write files
            -> renamed, one after another                               Publish

The work folder, and what is in it, is drawn in `renaming`. A record's place depends on
its bytes alone: with h = blake2b(record, 8 bytes, LE),

    shard  high 32 bits of h * shards >> 32
    order  within the shard by (h, bytes); equal records stay, side by side

so a multiset of records has one arrangement, whatever order and bundles it came in.
None of this may change: the bytes of every file ever written depend on it. The golden
files in tests/program/stages/test_tfrecord_transforms.py pin it.
"""

import dataclasses
import functools
import hashlib
import os
import re
import secrets
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NoReturn

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam import coders
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.transforms.window import GlobalWindows

from transforms.core import segment
from transforms.core.placing.hashes import UInt64s
from transforms.core.placing.sharding import shard_of_keys
from transforms.core.segment import KEY_COLUMN, PIECE_BYTES, Segment
from transforms.core.tfrecord.compression import Compression
from transforms.core.tfrecord.frame import DEFAULT_MAX_RECORD_BYTES, OVERHEAD_BYTES
from transforms.core.tfrecord.writer import FrameFacts, TFRecordWriter
from transforms.errors import EncodingError, SpecError
from transforms.storage.files import storage
from transforms.storage.paths import is_remote, shown
from transforms.storage.retry import persistently
from transforms.tfrecord.read import (
    COMPRESSIONS,
    check_characters,
    check_coder,
    check_compression,
    check_path,
    type_of,
)
from transforms.tfrecord.renaming import (
    RenamedFiles,
    WritePlan,
    WrittenShard,
    abandon,
    abandoning,
    check_target,
    fill_template,
    publish,
)

_DEFAULT_TEMPLATE = "-SSSSS-of-NNNNN"
# 100 to 200 MB a file is what readers of TFRecord files are advised to use.
_SHARD_BYTES = 150_000_000
# A file is written from parts of this size at most, each loaded and ordered as a whole:
# this takes three times the memory.
_PART_BYTES = 50_000_000
# A record that waits takes its length and about this.
_OBJECT_BYTES = 48
_RECORD = "record"
_records_written = beam.metrics.Metrics.counter("tfrecord", "records_written")
_SCHEMA = pa.schema([(_RECORD, pa.large_binary()), (KEY_COLUMN, pa.uint64())])


@dataclasses.dataclass
class WriteTFRecords(beam.PTransform):
    """Writes records to TFRecord files; takes the place of `beam.io.WriteToTFRecord`.

    The parameters are those of `WriteToTFRecord` but for two: there is no
    `triggering_frequency`, for the input has an end, and templates hold no signs of
    windows (`U`, `V`, `W`), for names depend on number and count of the file alone.

    Input: elements that the coder turns into bytes; by default, bytes. Bounded;
    windows are dropped. Output: the name of every file, beginning with
    `file_path_prefix` as it was given.

    Guarantees:
      - Equal collections of records give equal bytes in files of equal names: with
        any runner, order, bundling or number of retries. Records are dealt out and
        ordered by a hash of their bytes; duplicates are kept.
      - Files appear under their names only when all of them are whole and synced,
        each by one rename. When anything fails before the first rename, no new file
        appears, and files that were there before stay as they were. Files of exactly
        these names are replaced; nothing else is touched: no name is ever a pattern.
      - A failure or a kill in the middle of the renames leaves whole files, some of
        them new. A retry goes on with the others; the next write with the same
        prefix, template and suffix replaces them all.
      - A retried or repeated bundle adds nothing.

    A failure of this step removes its own work folder; one of another step, one in the
    middle of the renames, or a killed process can leave it
    (`.<name>.beam-tfrecord/` beside the files). The next write with the same prefix,
    template and suffix removes it, and so does `beam-tfrecord clean`. Of two such
    writes at the same time the one that started first may fail by that; a mix of both
    is never published.

    Beside Beam's own memory a worker needs some 250 MB, whatever the sizes of bundles
    and files; more where a great many records are equal. Records cross the shuffle only
    from bundles of less than 256 KiB; others go through the disk twice.

    Counter: records_written (namespace tfrecord).

    Attributes:
      file_path_prefix: of the files, on a file system that every worker shares; its
        folder is made if it is missing.
      coder: encodes the elements.
      file_name_suffix: of the files.
      num_shards: how many files; 0 takes one for every 150 MB. There are exactly so
        many, empty ones if there are fewer records; at least one.
      shard_name_template: S and N stand for number and count of the file, one digit
        each at least; None is "-SSSSS-of-NNNNN", "" is one file without a number.
      compression_type: UNCOMPRESSED, GZIP, or AUTO: by the file's name, gzip for .gz.

    Raises:
      SpecError: when made, if a parameter is wrong.
      TargetError: when run, if the files cannot be written there.
      EncodingError: when run, if an element does not become bytes of at most 1 GiB.
      CommitError: when run, if the files could not be written or renamed.
    """

    file_path_prefix: str
    coder: coders.Coder = dataclasses.field(default_factory=coders.BytesCoder)
    file_name_suffix: str = ""
    num_shards: int = 0
    shard_name_template: str | None = None
    compression_type: str = CompressionTypes.AUTO

    def __post_init__(self) -> None:
        super().__init__()
        check_local_path("file_path_prefix", self.file_path_prefix)
        check_coder(self.coder)
        template = self._template
        check_name_part("shard_name_template", template)
        check_name_part("file_name_suffix", self.file_name_suffix)
        check_template(template)
        check_num_shards(self.num_shards)
        if not os.path.basename(self._target("").shown(0, 1)):
            raise SpecError(
                f"The files must have a name; {self.file_path_prefix!r} with template "
                f"'' is a folder. Name a file in it."
            )
        self.with_input_types(type_of(self.coder))

    @property
    def _template(self) -> str:
        given = self.shard_name_template
        return _DEFAULT_TEMPLATE if given is None else given

    def _target(self, run: str) -> RenamedFiles:
        ending = fill_template(self._template, 0, 1) + self.file_name_suffix
        return RenamedFiles(
            prefix=self.file_path_prefix,
            template=self._template,
            suffix=self.file_name_suffix,
            compression=compression_of(
                self.compression_type, self.file_path_prefix + ending
            ),
            # Workers may have another working directory.
            directory=os.path.join(
                os.getcwd(), os.path.dirname(self.file_path_prefix)
            ).rstrip("/")
            or "/",
            run=run,
        )

    def expand(self, records: beam.PCollection[Any]) -> beam.PCollection[str]:
        """Spools, deals out, writes, publishes."""
        if not records.is_bounded:
            raise SpecError(
                "WriteTFRecords must be given a bounded PCollection; this one has no "
                "end. Write it with beam.io.WriteToTFRecord."
            )
        # Random, and yet no byte of the output depends on it: it keeps runs apart.
        target = self._target(secrets.token_hex(8))
        shard_count = self.num_shards if self._template else 1
        if not records.windowing.is_default():
            records = records | "Drop windows" >> beam.WindowInto(GlobalWindows())
        spooled = records | "Spool" >> beam.ParDo(
            _SpoolRecords(target, self.coder, shard_count)
        ).with_output_types(tuple[Segment, int])
        measures = spooled | "Measure" >> beam.MapTuple(
            lambda piece, payload_bytes: (piece.rows, payload_bytes)
        ).with_output_types(tuple[int, int])
        # One WritePlan
        plan = (
            records.pipeline
            | "Once" >> beam.Impulse()
            | "Plan shards"
            >> beam.Map(_plan_shards, beam.pvalue.AsIter(measures), target, shard_count)
        )
        # (shard, a packed segment); an empty one for each, so that no file is missing
        named = plan | "Name shards" >> beam.FlatMap(_name_shards)
        parts = spooled | "Cut by shard" >> beam.FlatMap(
            _cut_by_shard, beam.pvalue.AsSingleton(plan), target
        )
        shards = (
            (named, parts)
            | "Join" >> beam.Flatten()
            | "Group" >> beam.GroupByKey()
            | "Write files"
            >> beam.Map(_write_shard, target).with_output_types(WrittenShard)
        )
        return plan | "Publish" >> beam.FlatMap(
            publish, beam.pvalue.AsIter(shards), target
        ).with_output_types(str)


class _SpoolRecords(beam.DoFn):
    """Stores the records of a bundle in pieces, and says how many bytes they hold.

    Each attempt writes files of its own; only what it has returned names them.
    """

    def __init__(self, target: RenamedFiles, coder: coders.Coder, wanted: int) -> None:
        super().__init__()
        self.target = target
        self.wanted = wanted
        # BytesCoder would assert what is checked here anyway.
        self.encode = None if type(coder) is coders.BytesCoder else coder.encode

    def setup(self) -> None:
        check_target(self.target, [(0, self.wanted or 1)])

    def start_bundle(self) -> None:
        self.word = secrets.token_hex(8)
        self.records: list[bytes] = []
        self.taken = 0
        self.size = 0

    def process(self, element: Any) -> Iterable[tuple[Segment, int]] | None:
        record = element if self.encode is None else self.encode(element)
        if not isinstance(record, bytes):
            self._refuse(f"be bytes, not {type(record).__name__}; found {record!r:.99}")
        size = len(record)
        if size > DEFAULT_MAX_RECORD_BYTES:
            self._refuse(f"have at most 1 GiB; found {size:,} bytes")
        self.records.append(record)
        self.size += size + _OBJECT_BYTES
        return [self._store()] if self.size >= PIECE_BYTES else None

    def finish_bundle(self) -> Iterator[beam.utils.windowed_value.WindowedValue]:
        if self.records:
            yield GlobalWindows.windowed_value(self._store())

    def _store(self) -> tuple[Segment, int]:
        rows, hashes = hashed_rows(self.records)
        name = f"{self.word}-{self.taken}"
        with abandoning(self.target):
            put_rows = self.target.make_work().put_rows
            piece = segment.spooled_piece(name, rows, hashes, put_rows)
        payload_bytes = self.size - _OBJECT_BYTES * piece.rows
        self.taken += piece.rows
        self.records, self.size = [], 0
        return piece, payload_bytes

    def _refuse(self, what: str) -> NoReturn:
        number = self.taken + len(self.records)
        abandon(self.target)
        raise EncodingError(
            f"Every record must {what}, as element {number:,} of its bundle. Encode "
            f"it first, or name its coder. No file was written."
        )


def _plan_shards(
    _: bytes, measures: Iterable[tuple[int, int]], target: RenamedFiles, wanted: int
) -> WritePlan:
    """Chooses the number of files, and clears away what earlier runs left."""
    counts = list(measures)
    records, payload_bytes = (sum(count[i] for count in counts) for i in (0, 1))
    stored = payload_bytes + OVERHEAD_BYTES * records
    shards = wanted or max(1, -(-stored // _SHARD_BYTES))
    parts = max(1, -(-stored // (shards * _PART_BYTES)))
    with abandoning(target):
        check_target(target, [(index, shards) for index in range(shards)])
        if storage(target.hidden).exists():
            with target.own.held():
                target.own.remove_runs(but=target.run)
    return WritePlan(shards, parts, records, payload_bytes)


def _name_shards(plan: WritePlan) -> Iterable[tuple[int, bytes]]:
    """Returns an empty segment for each shard: one without records is a file too."""
    nothing = segment.pack(Segment("", 0, 0, 0))
    return [(index, nothing) for index in range(plan.shards)]


def _cut_by_shard(
    spooled: tuple[Segment, int], plan: WritePlan, target: RenamedFiles
) -> Iterable[tuple[int, bytes]]:
    """Returns the records of a piece for each shard; `start` is their part of it."""
    piece, _ = spooled
    # What has come inside its descriptor goes on in it.
    store = dataclasses.replace(target.store, inline=not piece.file)
    with abandoning(target):
        rows, hashes = segment.open_piece(store.get(piece))
        assert hashes is not None, "records have no keys"
        rows = rows.append_column(KEY_COLUMN, pa.array(hashes))
        # Parts of shards are shards of shards: both go by the high bits.
        numbers = shard_of_keys(hashes, plan.shards * plan.parts)
        places, messages = [], []
        for number, some in segment.cut(rows, numbers):
            places.append(divmod(number, plan.parts))
            messages.append((some.num_rows, some.serialize()))
        stored = store.put(piece.origin, 0, messages)
    return [
        (shard, segment.pack(dataclasses.replace(descriptor, start=part)))
        for (shard, part), descriptor in zip(places, stored, strict=True)
    ]


def _write_shard(
    element: tuple[int, Iterable[bytes]], target: RenamedFiles
) -> WrittenShard:
    """Writes the records of one shard in their order; a retry replaces the file."""
    index, packed = element
    segments = segment.in_source_order(packed)
    with abandoning(target):
        facts = persistently(functools.partial(_write_file, target, index, segments))
    _records_written.inc(facts.records)
    return index, facts


def _write_file(
    target: RenamedFiles, index: int, segments: Iterable[Segment]
) -> FrameFacts:
    """Writes a file of the work folder, durably."""
    store = target.make_work()
    parts: dict[int, list[Segment]] = {}
    for descriptor in segments:
        if descriptor.rows:
            parts.setdefault(descriptor.start, []).append(descriptor)
    path = target.finished(index)
    with (
        storage(path).create(attempts=store.attempts) as file,
        TFRecordWriter(file, compression=target.compression) as writer,
    ):
        for part in sorted(parts):
            for record in in_order(store.get_all(parts.pop(part))):
                writer.write(record)
    return writer.facts()


def hashed_rows(records: Sequence[bytes]) -> tuple[pa.RecordBatch, UInt64s]:
    """Returns records as rows, in the order of their hashes, and these."""
    blake2b = hashlib.blake2b
    digests = b"".join([blake2b(record, digest_size=8).digest() for record in records])
    hashes = np.frombuffer(digests, "<u8")
    order = np.argsort(hashes)
    ordered = pa.array([records[i] for i in order.tolist()], pa.large_binary())
    return pa.record_batch([ordered], [_RECORD]), hashes[order]


def in_order(messages: Iterable[pa.Buffer]) -> list[bytes]:
    """Returns the records of one or more segments by (hash, bytes)."""
    pieces = [segment.deserialize(message, _SCHEMA) for message in messages]
    order = [(KEY_COLUMN, "ascending"), (_RECORD, "ascending")]
    rows = pa.Table.from_batches(pieces).sort_by(order)
    records: list[bytes] = rows[_RECORD].to_pylist()
    return records


# By these Beam would choose a compression that no reader of TFRecord files knows, or
# that of zlib streams, which are read only.
_FOREIGN_SUFFIXES = (".bz2", ".zst", ".zstd", ".xz", ".lzma", ".deflate", ".zlib")


def check_local_path(name: str, value: object) -> None:
    """Wants text that can be a path on a mounted file system."""
    check_path(name, value)
    if is_remote(str(value)):
        raise SpecError(
            f"{name} must be a path on a file system that every worker has mounted; "
            f"found {shown(value)}. Mount the store, or write the files elsewhere and "
            f"copy them."
        )


def check_name_part(name: str, value: object) -> None:
    """Requires text that can be part of a file name."""
    if not isinstance(value, str) or "/" in value:
        raise SpecError(f"{name} must be a text without '/'; found {value!r}.")
    check_characters(name, value)


def check_template(template: str) -> None:
    """Wants the file's number in every name, and nothing that changes by the run."""
    if template and "S" not in template:
        raise SpecError(
            f"shard_name_template must hold S, for the number of the file, or be "
            f"''; found {template!r}."
        )
    if match := re.search("[UVW]", template):
        raise SpecError(
            f"shard_name_template may not hold {match[0]}: names depend on "
            f"nothing but number and count of the file; found {template!r}."
        )


def check_num_shards(shards: object) -> None:
    """Wants an integer from 0."""
    if isinstance(shards, bool) or not isinstance(shards, int) or shards < 0:
        raise SpecError(f"num_shards must be an integer from 0; found {shards!r}.")


def compression_of(compression_type: str, name: str) -> Compression:
    """Returns what files are written in; AUTO goes by the end of the file's name."""
    check_compression(compression_type)
    if compression_type == CompressionTypes.DEFLATE:
        raise SpecError(
            "compression_type DEFLATE, a zlib stream, is read, not written. Take GZIP."
        )
    if compression_type != CompressionTypes.AUTO:
        return COMPRESSIONS[compression_type]
    name = name.lower()
    if name.endswith(_FOREIGN_SUFFIXES):
        raise SpecError(
            f"Files that end in {os.path.splitext(name)[1]} would need a compression "
            f"that is not written. End them in .gz, or set compression_type."
        )
    return Compression.GZIP if name.endswith(".gz") else Compression.NONE
