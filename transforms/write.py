"""The stage `write`: the segments of a shard -> its finished file."""

import concurrent.futures
import dataclasses
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping

import apache_beam as beam
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms import files
from transforms.core import segment
from transforms.core.encoder import ExampleEncoder, large_record_pieces
from transforms.core.image import Check, ImageFault, ImageInfo, check_image
from transforms.core.model import (
    PlaceFacts,
    Reason,
    Rejection,
    RejectLog,
    Segment,
    ShardFile,
    ShardKey,
)
from transforms.core.naming import ShardName
from transforms.core.schema import Kind, Schema
from transforms.core.shard import Census, ShardRows, label_ids, record_schema
from transforms.core.statistics import Statistics, merge_all, summarize
from transforms.core.tfrecord import TFRecordWriter
from transforms.store import Store

__all__ = ["REJECTS", "ShardLayout", "TakeCensus", "WriteShards", "write_shard"]

REJECTS = "rejects"

# Rows encoded at a time: about 6 MB of small records.
_CHUNK_ROWS = 65_536
# Images loaded at a time; the next ones load while these are written.
_CHUNK_IMAGES = 64
_LOADERS = 4


@dataclasses.dataclass(frozen=True, slots=True)
class ShardLayout:
    """What decides the bytes of a shard, beside its rows.

    Attributes:
      name: of the dataset.
      schema: of the rows.
      seed, shuffle: see `transforms.core.placement.Sharding`.
      compression: "none", "gzip" or "zlib".
      root: folder that images lie under.
      image_check: see `transforms.core.image.check_image`.
    """

    name: str
    schema: Schema
    seed: int = 0
    shuffle: bool = True
    compression: str = "none"
    root: str = ""
    image_check: Check = "structure"


@dataclasses.dataclass
class TakeCensus(beam.PTransform):
    """Counts the rows of every shard and collects the class names.

    Input: PlaceFacts. Output: one Census, empty for no input.

    Attributes:
      classes: class names that are known beforehand, by label feature.
    """

    classes: Mapping[str, tuple[str, ...]]

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, facts: beam.PCollection[PlaceFacts]) -> beam.PCollection[Census]:
        """Merges the facts of all batches."""
        return facts | "Merge" >> beam.CombineGlobally(_MergeFacts(self.classes))


_Sums = tuple[dict[ShardKey, int], dict[str, set[str]]]


class _MergeFacts(beam.CombineFn):
    def __init__(self, classes: Mapping[str, tuple[str, ...]]) -> None:
        super().__init__()
        self.classes = classes

    def create_accumulator(self) -> _Sums:
        return {}, {}

    def add_input(self, sums: _Sums, facts: PlaceFacts) -> _Sums:
        rows, labels = sums
        for key, count in facts.rows.items():
            rows[key] = rows.get(key, 0) + count
        for feature, names in facts.labels.items():
            labels.setdefault(feature, set()).update(names)
        return sums

    def merge_accumulators(self, parts: Iterable[_Sums]) -> _Sums:
        sums = self.create_accumulator()
        for rows, labels in parts:
            self.add_input(sums, PlaceFacts("", 0, rows, _frozen(labels)))
        return sums

    def extract_output(self, sums: _Sums) -> Census:
        rows, labels = sums
        found = {
            feature: tuple(sorted(names, key=str.encode))
            for feature, names in labels.items()
        }
        return Census(dict(sorted(rows.items())), found | dict(self.classes))


def _frozen(labels: Mapping[str, set[str]]) -> dict[str, frozenset[str]]:
    return {feature: frozenset(names) for feature, names in labels.items()}


@dataclasses.dataclass
class WriteShards(beam.PTransform):
    """Writes each shard as one TFRecord file.

    Input: (shard, its segments) after the GroupByKey. Outputs: `shards`, a ShardFile
    for each; `rejects`, a RejectLog for each shard with rejects. A retry writes the
    same bytes under the same name. Counters: rows_written, rows_rejected.

    Attributes:
      layout: what decides the bytes.
      store: where segments and finished shards lie.
      census: the one Census of all rows.
    """

    layout: ShardLayout
    store: Store
    census: beam.pvalue.AsSingleton

    def __post_init__(self) -> None:
        super().__init__()

    def expand(
        self, shards: beam.PCollection[tuple[ShardKey, Iterable[Segment]]]
    ) -> beam.pvalue.DoOutputsTuple:
        """Writes each shard by itself."""
        return shards | "Write file" >> (
            beam.ParDo(_WriteFile(self.layout, self.store), self.census)
            .with_output_types(ShardFile)
            .with_outputs(REJECTS, main="shards")
        )


class _WriteFile(beam.DoFn):
    def __init__(self, layout: ShardLayout, store: Store) -> None:
        super().__init__()
        self.layout = layout
        self.store = store
        self.rows_written = beam.metrics.Metrics.counter("write", "rows_written")
        self.rows_rejected = beam.metrics.Metrics.counter("write", "rows_rejected")

    def process(
        self, element: tuple[ShardKey, Iterable[Segment]], census: Census
    ) -> Iterator[ShardFile | beam.pvalue.TaggedOutput]:
        key, segments = element
        shard, rejections = write_shard(
            key, list(segments), census, layout=self.layout, store=self.store
        )
        self.rows_written.inc(shard.records)
        if rejections:
            self.rows_rejected.inc(len(rejections))
            log: RejectLog = self.store.put_rejects(f"write\0{key}", rejections)
            yield beam.pvalue.TaggedOutput(REJECTS, log)
        yield shard


def write_shard(
    key: ShardKey,
    segments: list[Segment],
    census: Census,
    *,
    layout: ShardLayout,
    store: Store,
) -> tuple[ShardFile, list[Rejection]]:
    """Writes one shard; returns the facts of its file and the rows that it refused.

    Raises:
      OSError: the file could not be written; nothing has appeared under its name.
      EncodingError: a value cannot become part of a tf.train.Example.
    """
    split, number = key
    index, count = census.numbering(split, number)
    name = str(ShardName(layout.name, split, index, count, layout.compression))
    images = layout.schema.of_kind(Kind.IMAGE)
    schema = segment.segment_schema(layout.schema.row_schema, many_origins=bool(images))
    rows = ShardRows.of(
        [
            (piece.origin, segment.deserialize(store.get(piece), schema))
            for piece in segment.in_source_order(segments)
        ],
        seed=layout.seed,
        shuffle=layout.shuffle,
    )
    path = os.path.join(store.dataset, name)
    parts: list[dict[str, Statistics]] = []
    rejections: list[Rejection] = []
    with files.create(path, attempts=store.attempts) as file:
        with TFRecordWriter(file, compression=layout.compression) as writer:
            if images:
                _write_images(rows, census, layout, writer, parts, rejections)
            else:
                _write_rows(rows, census, layout, writer, parts)
        facts = writer.facts()
    shard = ShardFile(
        name=name,
        split=split,
        index=index,
        records=facts.records,
        bytes=facts.stored_bytes,
        payload_bytes=facts.payload_bytes,
        crc32c=facts.crc32c,
        statistics=merge_all(parts),
    )
    return shard, rejections


def _write_rows(
    rows: ShardRows,
    census: Census,
    layout: ShardLayout,
    writer: TFRecordWriter,
    parts: list[dict[str, Statistics]],
) -> None:
    schema = record_schema(layout.schema)
    encoder = ExampleEncoder(schema)
    for chunk, _ in rows.chunks(_CHUNK_ROWS):
        columns = _columns(chunk, layout.schema, census)
        records = pa.record_batch([columns[name] for name in schema.names], schema)
        framed = encoder.encode_framed(records)
        writer.write_framed(framed.buffer, records=records.num_rows)
        parts.append(_summaries(layout.schema, columns))


def _columns(chunk: pa.Table, schema: Schema, census: Census) -> dict[str, pa.Array]:
    """Returns the columns of records that rows alone decide, by feature name."""
    columns = {}
    for feature in schema.features:
        if feature.derived or feature.kind is Kind.IMAGE:
            continue
        column = chunk[feature.name]
        if feature.kind is Kind.LABEL:
            column = label_ids(column, census.classes[feature.name])
        columns[feature.name] = column.combine_chunks()
    return columns


def _summaries(
    schema: Schema, columns: Mapping[str, pa.Array]
) -> dict[str, Statistics]:
    labels = {f.name for f in schema.features if f.is_label or f.kind is Kind.LABEL}
    return {
        name: summarize(column, count_classes=name in labels)
        for name, column in columns.items()
    }


@dataclasses.dataclass(frozen=True, slots=True)
class _Loaded:
    """An image that was read: its bytes and facts, or the fault."""

    data: bytes
    info: ImageInfo | ImageFault


def _load(path: str, check: Check) -> _Loaded:
    try:
        data = files.read_bytes(path)
    except OSError as error:
        return _Loaded(b"", ImageFault(Reason.UNREADABLE, str(error.strerror)))
    return _Loaded(data, check_image(data, check))


def _write_images(
    rows: ShardRows,
    census: Census,
    layout: ShardLayout,
    writer: TFRecordWriter,
    parts: list[dict[str, Statistics]],
    rejections: list[Rejection],
) -> None:
    (image,) = layout.schema.of_kind(Kind.IMAGE)
    schema = record_schema(layout.schema, without=[image.name])
    encoder = ExampleEncoder(schema, split_at=image.name)

    def load_all(paths: list[str]) -> list[_Loaded]:
        return [
            _load(os.path.join(layout.root, path), layout.image_check) for path in paths
        ]

    for chunk, positions, loaded in _prefetched(rows, image.name, load_all):
        sound = np.array([isinstance(item.info, ImageInfo) for item in loaded], bool)
        for position, item in zip(
            positions[~sound], (x for x in loaded if _is_fault(x)), strict=True
        ):
            rejections.append(_rejection(rows, int(position), item))
        kept = [item for item in loaded if not _is_fault(item)]
        if not kept:
            continue
        columns = _columns(chunk.filter(pa.array(sound)), layout.schema, census)
        for feature in layout.schema.features:
            if feature.derived:
                values = [getattr(item.info, feature.derived) for item in kept]
                columns[feature.name] = pa.array(values, pa.int64())
        records = pa.record_batch([columns[name] for name in schema.names], schema)
        before, after = encoder.entries_around(records)
        framed: list[bytes] = []
        for item, head, tail in zip(
            kept, before.to_pylist(), after.to_pylist(), strict=True
        ):
            first, last = large_record_pieces(head, image.name, item.data, tail)
            framed += (first, item.data, last)
        writer.write_framed(b"".join(framed), records=len(kept))
        sizes = [len(item.data) for item in kept]
        parts.append(
            _summaries(layout.schema, columns)
            | {image.name: Statistics(len(sizes), min(sizes), max(sizes))}
        )


def _is_fault(item: _Loaded) -> bool:
    return isinstance(item.info, ImageFault)


def _prefetched(
    rows: ShardRows, column: str, load: Callable[[list[str]], list[_Loaded]]
) -> Iterator[tuple[pa.Table, npt.NDArray[np.int64], list[_Loaded]]]:
    """Yields each chunk with its images, while the next chunk's are being read."""
    with concurrent.futures.ThreadPoolExecutor(_LOADERS) as pool:
        waiting: list[
            tuple[pa.Table, npt.NDArray[np.int64], list[concurrent.futures.Future]]
        ] = []
        for chunk, positions in rows.chunks(_CHUNK_IMAGES):
            paths = chunk[column].to_pylist()
            step = -(-len(paths) // _LOADERS)
            pieces = [
                pool.submit(load, paths[i : i + step])
                for i in range(0, len(paths), step)
            ]
            waiting.append((chunk, positions, pieces))
            if len(waiting) == 2:
                yield _finished(*waiting.pop(0))
        for item in waiting:
            yield _finished(*item)


def _finished(
    chunk: pa.Table,
    positions: npt.NDArray[np.int64],
    pieces: list[concurrent.futures.Future],
) -> tuple[pa.Table, npt.NDArray[np.int64], list[_Loaded]]:
    return chunk, positions, [item for piece in pieces for item in piece.result()]


def _rejection(rows: ShardRows, position: int, item: _Loaded) -> Rejection:
    fault = item.info
    assert isinstance(fault, ImageFault)
    origin, _ = rows.origin(position)
    unread = fault.reason is Reason.UNREADABLE
    return Rejection(
        source=origin,
        row=None,
        line=None,
        stage="write",
        reason=fault.reason,
        message=fault.message,
        sha256=None if unread else hashlib.sha256(item.data).hexdigest(),
    )
