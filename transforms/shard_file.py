"""One shard as a file: its segments in order, encoded, framed, written, renamed."""

import concurrent.futures
import dataclasses
import os
from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from transforms import files
from transforms.core import segment
from transforms.core.encoder import ExampleEncoder, large_record_pieces
from transforms.core.image import Check, ImageFault
from transforms.core.model import Rejection, Segment, ShardFile, ShardKey
from transforms.core.naming import ShardName
from transforms.core.schema import Kind, Schema
from transforms.core.shard import Census, ShardRows, label_ids, record_schema
from transforms.core.statistics import Statistics, merge_all, summarize
from transforms.core.tfrecord import TFRecordWriter
from transforms.image_loading import LoadedImage, load_ahead
from transforms.store import Store

__all__ = ["ShardLayout", "write_shard"]

# Rows encoded at a time: about 6 MB of small records.
_CHUNK_ROWS = 65_536


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
    with _Behind(writer) as behind:
        for start in range(0, len(rows), _CHUNK_ROWS):
            chunk, _ = rows.take(start, start + _CHUNK_ROWS)
            columns = _columns(chunk, layout.schema, census)
            records = pa.record_batch([columns[name] for name in schema.names], schema)
            framed = encoder.encode_framed(records)
            behind.write_framed(framed.buffer, records=records.num_rows)
            parts.append(_summaries(layout.schema, columns))


class _Behind:
    """Writes in a thread of its own, one piece behind: the next is encoded meanwhile.

    A failed write is raised by the next call, or on leaving.
    """

    def __init__(self, writer: TFRecordWriter) -> None:
        self._writer = writer
        self._pool = concurrent.futures.ThreadPoolExecutor(1)
        self._last: concurrent.futures.Future[None] | None = None

    def write_framed(self, data: bytes, *, records: int) -> None:
        """As `TFRecordWriter.write_framed`."""
        if self._last is not None:
            self._last.result()
        self._last = self._pool.submit(self._writer.write_framed, data, records=records)

    def __enter__(self) -> "_Behind":
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self._pool.shutdown()
        if kind is None and self._last is not None:
            self._last.result()


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
    with _Behind(writer) as behind:
        for chunk, positions, loaded in load_ahead(
            rows, image.name, root=layout.root, check=layout.image_check
        ):
            kept, sound = [], np.ones(len(loaded), bool)
            for i, item in enumerate(loaded):
                if isinstance(item.info, ImageFault):
                    origin, _ = rows.origin(int(positions[i]))
                    rejections.append(item.rejection(origin, item.info))
                    sound[i] = False
                else:
                    kept.append(item)
            if not kept:
                continue
            if len(kept) < len(loaded):
                chunk = chunk.filter(pa.array(sound))
            columns = _columns(chunk, layout.schema, census)
            columns |= _derived(kept, layout.schema)
            records = pa.record_batch([columns[name] for name in schema.names], schema)
            before, after = encoder.entries_around(records)
            framed: list[bytes] = []
            for item, head, tail in zip(
                kept, before.to_pylist(), after.to_pylist(), strict=True
            ):
                first, last = large_record_pieces(head, image.name, item.data, tail)
                framed += (first, item.data, last)
            behind.write_framed(b"".join(framed), records=len(kept))
            sizes = [len(item.data) for item in kept]
            parts.append(
                _summaries(layout.schema, columns)
                | {image.name: Statistics(len(sizes), min(sizes), max(sizes))}
            )


def _derived(loaded: list[LoadedImage], schema: Schema) -> dict[str, pa.Array]:
    """Returns the columns that are read off the images."""
    return {
        feature.name: pa.array(
            [getattr(item.info, feature.derived) for item in loaded], pa.int64()
        )
        for feature in schema.features
        if feature.derived
    }
