"""`ReadTFRecords`, `ReadAllTFRecords`; and the checks of parameters of all transforms.

patterns -> files, and what a manifest states of them    List files
         -> Reshuffle                                    Spread
         -> records                                      Read files

Every checksum of the records is verified. Checks of parameters raise a SpecError that
names the parameter and shows what was found; `WriteTFRecords` has some of them, too.
"""

import dataclasses
import glob
import itertools
import os
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam import coders
from apache_beam.io.filesystem import CompressionTypes

from transforms.core.files import PART_PREFIX
from transforms.core.manifest import (
    MANIFEST_NAME,
    PARTS_NAME,
    Manifest,
    ShardFacts,
)
from transforms.core.tfrecord.compression import Compression
from transforms.core.tfrecord.reader import TFRecordReader
from transforms.errors import SourceError, SpecError, source_error
from transforms.storage.files import storage
from transforms.storage.paths import Access, is_remote, plain

_records_read = beam.metrics.Metrics.counter("tfrecord", "records_read")
# What readers of TFRecord files know.
COMPRESSIONS = {
    CompressionTypes.UNCOMPRESSED: Compression.NONE,
    CompressionTypes.GZIP: Compression.GZIP,
    CompressionTypes.DEFLATE: Compression.ZLIB,
}


@dataclasses.dataclass(frozen=True, slots=True)
class _File:
    """A file to be read.

    Attributes:
      path: of the file.
      stated: what the manifest of its dataset states; None for a file of none.
      access: how its place is reached, wherever the file is read.
    """

    path: str
    stated: ShardFacts | None = None
    access: Access = dataclasses.field(default_factory=Access)


@dataclasses.dataclass
class ReadTFRecords(beam.PTransform):
    """Reads TFRecord files; takes the place of `beam.io.ReadFromTFRecord`.

    Input: the pipeline. Output: the records of all matching files, decoded, in no
    particular order. Both checksums of every record are checked; a file that ends
    too early, in a record or in its compressed stream, is an error, never a short
    answer. Files without a byte are fine: writers make them for empty shards. The
    shards of a dataset must also have the records, bytes and checksum that its
    manifest states.

    A retry reads a file again from its start. A file is read by one worker, which
    holds about 2 MiB of it, or its longest record; where files are few and the steps
    behind take long, put `beam.Reshuffle()` before these. Counter: records_read
    (namespace tfrecord).

        pipeline | ReadTFRecords("out/photos")    # all shards of a dataset
        pipeline | ReadTFRecords("out/photos/*-train.tfrecord-*")

    Attributes:
      file_pattern: a name or a glob (`*`, `?`, `[...]`, `**`), or the folder of a
        dataset; on a file system that every worker has mounted, or in a bucket
        (`s3://`, `gs://`). A file that exists as it is written stands for itself,
        whatever signs it holds; so does a leading folder, outside buckets.
      coder: decodes the records.
      compression_type: UNCOMPRESSED, GZIP, DEFLATE (a zlib stream), or AUTO: by the
        content of each file, never by its name.
      validate: a pattern without a match is an error, when made as when run;
        otherwise it gives no record.

    Raises:
      SpecError: when made, if a parameter is wrong.
      SourceError: no file matches, or one cannot be read.
      DamageError: the manifest of a dataset is damaged.
      TFRecordError: when run, if a file is damaged, or is not the one in the manifest;
        it names file, record and offset.
    """

    file_pattern: str
    coder: coders.Coder = dataclasses.field(default_factory=coders.BytesCoder)
    compression_type: str = CompressionTypes.AUTO
    validate: bool = True

    def __post_init__(self) -> None:
        super().__init__()
        check_path("file_pattern", self.file_pattern)
        # What it says of a bucket's server and keys travels apart, and is not shown.
        self.file_pattern = plain(self.file_pattern)
        check_coder(self.coder)
        check_compression(self.compression_type)
        if self.validate:
            _matching(self.file_pattern, validate=True)
        self.with_output_types(type_of(self.coder))

    def expand(self, start: beam.pvalue.PBegin) -> beam.PCollection[Any]:
        """Lists the files, and reads each by itself."""
        check_begin("ReadTFRecords", start)
        read = ReadAllTFRecords(
            self.coder, self.compression_type, validate=self.validate
        )
        # Not a step of its own: the labels of its steps stay as they were.
        return read.expand(start | "Pattern" >> beam.Create([self.file_pattern]))


@dataclasses.dataclass
class ReadAllTFRecords(beam.PTransform):
    """Reads the files that elements name; takes the place of `ReadAllFromTFRecord`.

        paths | ReadAllTFRecords(with_filename=True) | beam.MapTuple(parse)

    Input: names, globs and folders of datasets, as `ReadTFRecords` takes one. Output:
    the records of all matching files, decoded, in no particular order, with the window
    and timestamp of their element. A file that two elements name is read twice. All
    files of one element are listed by one worker, then read by all of them.

    Checks, memory, counter and what a retry does are those of `ReadTFRecords`.

    Attributes:
      coder: decodes the records.
      compression_type: as `ReadTFRecords` has it.
      with_filename: give pairs of a file's path and a record.
      validate: an element without a match is an error; otherwise it gives no record.

    Raises:
      SpecError: when made, if a parameter is wrong; when run, if an element cannot be a
        path.
      SourceError: when run, if no file matches, or one cannot be read.
      DamageError, TFRecordError: as `ReadTFRecords`.
    """

    coder: coders.Coder = dataclasses.field(default_factory=coders.BytesCoder)
    compression_type: str = CompressionTypes.AUTO
    with_filename: bool = False
    validate: bool = True

    def __post_init__(self) -> None:
        super().__init__()
        check_coder(self.coder)
        check_compression(self.compression_type)
        self.with_input_types(str)

    def expand(self, patterns: beam.PCollection[str]) -> beam.PCollection[Any]:
        """Lists the files of each element, and reads each file by itself."""
        compression = COMPRESSIONS.get(self.compression_type, "auto")
        kind = type_of(self.coder)
        # Workers may have another working directory.
        list_files = _ListFiles(os.getcwd(), validate=self.validate)
        return (
            patterns
            | "List files" >> beam.FlatMap(list_files).with_output_types(_File)
            | "Spread" >> beam.Reshuffle()
            | "Read files"
            >> beam.FlatMap(
                _read_file, self.coder, compression, self.with_filename
            ).with_output_types(
                beam.typehints.Tuple[str, kind] if self.with_filename else kind
            )
        )


def _read_file(
    file: _File, coder: coders.Coder, compression: str, with_filename: bool
) -> Iterator[Any]:
    """Yields the records of a file, decoded; then checks its stated size and CRC32C."""
    path, stated = file.path, file.stated
    with storage(path).opened() as stream:
        reader = TFRecordReader(stream, compression=compression, allow_empty=True)
        for batch in reader.batches():
            records: Iterable[Any] = batch.to_list()
            _records_read.inc(len(batch))
            if type(coder) is not coders.BytesCoder:
                records = map(coder.decode, records)
            if with_filename:
                yield from ((path, record) for record in records)
            else:
                yield from records
    if stated is not None:
        reader.check_stated(
            records=stated.records,
            stored_bytes=stated.bytes,
            crc32c=stated.crc32c,
        )


@dataclasses.dataclass(frozen=True, slots=True)
class _ListFiles:
    """Lists the files that a pattern names; see `_matching`.

    Attributes:
      directory: where relative patterns begin.
      validate: whether there must be a file.
      access: how buckets are reached, wherever their files are listed.
    """

    directory: str
    validate: bool
    access: Access = dataclasses.field(default_factory=Access)

    def __call__(self, pattern: str) -> list[_File]:
        check_path("file_pattern", pattern)
        pattern = plain(pattern)
        if not is_remote(pattern):
            pattern = os.path.join(self.directory, pattern)
        return _matching(pattern, validate=self.validate)


def _matching(pattern: str, *, validate: bool) -> list[_File]:
    """Returns the files that the pattern names, in byte order, or those of a dataset.

    Args:
      pattern: a name, a glob, or the folder of a dataset.
      validate: whether there must be one.

    Raises:
      SourceError: there is none, and `validate` wants one; or they cannot be listed.
      DamageError: the manifest of the dataset is damaged.
    """
    try:
        shards = _shards_of(pattern)
        if shards is not None:
            return shards
        paths = _files_of_pattern(pattern)
        is_folder = not paths and storage(pattern).is_folder()
    except OSError as error:
        raise source_error(
            f"{pattern}: cannot be listed: {error.strerror or error}.", error
        ) from error
    if validate and is_folder:
        example = os.path.join(pattern, "*.tfrecord-*")
        raise SourceError(
            f"file_pattern must name files, or the folder of a dataset; {pattern!r} is "
            f"a folder without {MANIFEST_NAME}. Give a pattern of the files, such as "
            f"{example!r} for all shards, or {example.replace('*', '*-train', 1)!r} "
            f"for those of one split."
        )
    if validate and not paths:
        raise SourceError(
            f"file_pattern must name at least one file; {pattern!r} names none. Check "
            f"the path, or read with validate=False."
        )
    return list(map(_File, paths))


def _files_of_pattern(pattern: str) -> list[str]:
    """Returns the files that a pattern or path names; nothing for a folder."""
    if not storage(pattern).is_pattern():
        return [pattern] if storage(pattern).is_file() else []
    if is_remote(pattern):
        return storage(pattern).expand()
    # Leading folders that exist as they are written are no patterns.
    parts = pattern.split("/")
    heads = itertools.accumulate(parts, "{}/{}".format)
    are_folders = (os.path.isdir(head or "/") for head in heads)
    literal = sum(itertools.takewhile(bool, are_folders))
    head = glob.escape("/".join([*parts[:literal], ""]))
    return storage(head + "/".join(parts[literal:])).expand()


def _shards_of(folder: str) -> list[_File] | None:
    """Returns the shards of the dataset in a folder; None where there is none."""
    path = os.path.join(folder, MANIFEST_NAME)
    if not storage(path).is_file():
        if not storage(os.path.join(folder, PARTS_NAME)).is_file():
            return None
        names = sorted(name.rstrip("/") for name in storage(folder).names_in())
        parts = [os.path.join(folder, n) for n in names if n.startswith(PART_PREFIX)]
        return [file for part in parts for file in _shards_of(part) or ()]
    manifest = Manifest.from_bytes(storage(path).read_bytes(), path)
    return [
        _File(manifest.path(folder, shard.file), shard)
        for split in manifest.splits
        for shard in split.shards
    ]


def check_begin(name: str, given: object) -> None:
    """Raises SpecError where a step that begins a pipeline is put behind another."""
    if not isinstance(given, beam.pvalue.PBegin):
        raise SpecError(
            f"{name} must begin a pipeline, as in pipeline | {name}(...); found a "
            f"{type(given).__name__} before it. Join the two later, by beam.Flatten() "
            f"or as a side input."
        )


def check_path(name: str, value: object) -> None:
    """Wants text that can be a path, of a file system or a bucket."""
    if not isinstance(value, str) or not value:
        raise SpecError(f"{name} must be a text that names files; found {value!r}.")
    check_characters(name, value)


def check_characters(name: str, value: str) -> None:
    """Raises SpecError for text that no file name can hold: NUL, half surrogates."""
    if "\0" in value or value != value.encode("utf-8", "replace").decode():
        raise SpecError(f"{name} must be Unicode text without NUL; found {value!r}.")


def check_coder(coder: object) -> None:
    """Raises SpecError if `coder` is a class and not an instance."""
    if not isinstance(coder, coders.Coder):
        raise SpecError(
            f"coder must be a beam.coders.Coder, such as beam.coders.BytesCoder(); "
            f"found {coder!r}."
        )


def check_compression(compression_type: object) -> None:
    """Wants AUTO or a compression that readers of TFRecord files know."""
    if compression_type not in (CompressionTypes.AUTO, *COMPRESSIONS):
        raise SpecError(
            f"compression_type must be AUTO, UNCOMPRESSED, GZIP or DEFLATE of "
            f"CompressionTypes, for readers of TFRecord files know no other; found "
            f"{compression_type!r}."
        )


def type_of(coder: coders.Coder) -> Any:
    """Returns the type of the coder's values, as far as it says."""
    try:
        return coder.to_type_hint()
    except NotImplementedError:
        return Any
