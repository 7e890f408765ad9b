"""`ReadTFRecords`: the records of TFRecord files, with every checksum verified."""

import dataclasses
import glob
import itertools
import os
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam import coders
from apache_beam.io.filesystem import CompressionTypes

from transforms import files
from transforms.core.tfrecord import TFRecordReader
from transforms.errors import SourceError
from transforms.tfrecord.parameters import (
    COMPRESSIONS,
    check_coder,
    check_compression,
    check_path,
    type_of,
)

__all__ = ["ReadTFRecords"]


@dataclasses.dataclass
class ReadTFRecords(beam.PTransform):
    """Reads TFRecord files; takes the place of `beam.io.ReadFromTFRecord`.

    Input: the pipeline. Output: the records of all matching files, decoded, in no
    particular order. Both checksums of every record are checked; a file that ends
    too early, in a record or in its compressed stream, is an error, never a short
    answer. Files without a byte are fine: writers make them for empty shards.

    Counter: records_read (namespace tfrecord).

    Attributes:
      file_pattern: a name or a glob (`*`, `?`, `[...]`, `**`). A file or leading
        folder that exists as it is written stands for itself, whatever signs it
        holds.
      coder: decodes the records.
      compression_type: UNCOMPRESSED, GZIP, DEFLATE (a zlib stream), or AUTO: by the
        content of each file, never by its name.
      validate: a pattern without a match is an error, when made as when run;
        otherwise it gives no record.

    Raises:
      SpecError: when made, if a parameter is wrong.
      SourceError: no file matches, or one cannot be read.
      TFRecordError: when run, if a file is damaged; it names file, record and offset.
    """

    file_pattern: str
    coder: coders.Coder = dataclasses.field(default_factory=coders.BytesCoder)
    compression_type: str = CompressionTypes.AUTO
    validate: bool = True

    def __post_init__(self) -> None:
        super().__init__()
        check_path("file_pattern", self.file_pattern)
        check_coder(self.coder)
        check_compression(self.compression_type)
        if self.validate:
            _matching(self.file_pattern, validate=True)
        self.with_output_types(type_of(self.coder))

    def expand(self, start: beam.pvalue.PBegin) -> beam.PCollection[Any]:
        """Lists the files, and reads each by itself."""
        compression = COMPRESSIONS.get(self.compression_type)
        pattern = os.path.join(os.getcwd(), self.file_pattern)
        return (
            start
            | "Pattern" >> beam.Create([pattern])
            | "List files" >> beam.FlatMap(_matching, validate=self.validate)
            | "Spread" >> beam.Reshuffle()
            | "Read files"
            >> beam.ParDo(
                _ReadFile(self.coder, "auto" if compression is None else compression)
            ).with_output_types(type_of(self.coder))
        )


class _ReadFile(beam.DoFn):
    def __init__(self, coder: coders.Coder, compression: str) -> None:
        super().__init__()
        self.decode = None if type(coder) is coders.BytesCoder else coder.decode
        self.compression = compression
        self.records_read = beam.metrics.Metrics.counter("tfrecord", "records_read")

    def process(self, path: str) -> Iterator[Any]:
        with files.opened(path) as file:
            reader = TFRecordReader(
                file, compression=self.compression, allow_empty=True
            )
            for batch in reader.batches():
                payloads = batch.to_list()
                self.records_read.inc(len(payloads))
                if self.decode is None:
                    yield from payloads
                else:
                    yield from map(self.decode, payloads)


def _matching(pattern: str, *, validate: bool) -> list[str]:
    """Returns the files that the pattern names, in byte order.

    Raises:
      SourceError: there is none, and `validate` wants one.
    """
    if not files.is_pattern(pattern):
        found = [pattern] if files.is_file(pattern) else []
    else:
        # Leading folders that exist as they are written are no patterns.
        parts = pattern.split("/")
        heads = list(itertools.accumulate(parts, lambda head, part: f"{head}/{part}"))
        existing = [n for n, head in enumerate(heads) if os.path.isdir(head or "/")]
        literal = next((n for n, at in enumerate(existing) if n != at), len(existing))
        head = glob.escape("/".join([*parts[:literal], ""]))
        found = files.expand(head + "/".join(parts[literal:]))
    if validate and not found and files.is_folder(pattern):
        example = os.path.join(pattern, "*.tfrecord-*")
        raise SourceError(
            f"file_pattern must name files; {pattern!r} is a folder. Give a pattern of "
            f"the files to be read, such as {example!r} for all shards of a dataset, "
            f"or {example.replace('*', '*-train', 1)!r} for those of one split."
        )
    if validate and not found:
        raise SourceError(
            f"file_pattern must name at least one file; {pattern!r} names none. Check "
            f"the path, or read with validate=False."
        )
    return found
