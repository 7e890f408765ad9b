"""Sizes: of tables, records, shards and blocks; the room that a job needs on disk.

Sizes are by the input alone: those of tables by a sample of their rows.
"""

import dataclasses
import math
import os
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_pipeline.planning.image_columns import image_places, items_of
from beam_pipeline.planning.inputs import Inputs
from beam_pipeline.settings.options import MAX_SHARDS
from beam_pipeline.settings.spec import Spec
from beam_pipeline.terminal import size_text
from transforms.core.arrays import one_array
from transforms.core.infer.evidence import Evidence
from transforms.core.rows.column import FLOAT32_EXACT
from transforms.core.schema import Feature, Kind, Missing, Schema, record_fields
from transforms.core.tfrecord.frame import OVERHEAD_BYTES
from transforms.errors import SpecError, StorageError
from transforms.formats.file_names import is_image_name
from transforms.formats.table import TableSample
from transforms.storage.files import sizes_of
from transforms.storage.paths import is_remote, work_folder

# Less room than this share of the estimate cannot be enough, however wrong it is;
# records compress to no less than about the second.
_SURE, _SURE_COMPRESSED = 0.5, 0.05

# Files of 100 to 200 MB can be read by many hosts in parallel without being many.
_MIN_SHARD_BYTES = 100_000_000
_MAX_SHARD_BYTES = 200_000_000

# Rows whose records are encoded to learn how large records are, and about how many
# bytes of them at once: the least, and for each column, which costs by itself.
_SIZED_ROWS = 20_000
_SIZED_BYTES, _SIZED_COLUMN_BYTES = 16 << 20, 8 << 10

SIZED_IMAGES = 64
"""Images whose sizes are asked for where the rows only say where they are."""

# About what one takes where none of them is found.
_IMAGE_BYTES = 100_000


def shards_of(spec: Spec, size: int) -> int:
    """Returns how many shards a split of about this many bytes gets.

    Raises:
      SpecError: they would be too many.
    """
    if spec.shards is not None:
        return spec.shards
    if spec.shard_size is None:
        return choose_shards(size)
    shards = max(1, math.ceil(size / spec.shard_size))
    if shards > MAX_SHARDS:
        raise SpecError(
            f"A split may have at most {MAX_SHARDS:,} shards; shard_size "
            f"{spec.shard_size:,} would make {shards:,}. Choose a larger one."
        )
    return shards


def choose_shards(size: int) -> int:
    """Returns how many shards `size` bytes make: each of 100 to 200 MB.

    Among the counts that do, the one that most powers of two divide, so that hosts
    and workers share them evenly; of those, the one nearest to 150 MB a shard. More
    than 13 TB make as many as there may be, which are larger.
    """
    if size <= _MAX_SHARD_BYTES:
        return 1
    fewest = min(-(-size // _MAX_SHARD_BYTES), MAX_SHARDS)
    most = min(max(size // _MIN_SHARD_BYTES, fewest), MAX_SHARDS)
    middle = 2 * size / (_MIN_SHARD_BYTES + _MAX_SHARD_BYTES)
    return max(range(fewest, most + 1), key=lambda n: (n & -n, -abs(n - middle)))


def block_size(
    units: int,
    total_bytes: int,
    *,
    shard_bytes: int,
    most_segments: int,
    least: int,
    most: int,
) -> int:
    """Returns how many units a block has, where blocks are made of runs of an input.

        >>> bounds = {"most_segments": 50_000, "least": 4096, "most": 131_072}
        >>> block_size(10_000_000, 40 * 10**9, shard_bytes=150_000_000, **bounds)
        65536

    A block has at most one segment for each shard, so that with
    `total_bytes / shard_bytes` shards these are

        units / size * total_bytes / shard_bytes <= most_segments

    Args:
      units: of the input: rows or bytes.
      total_bytes: of the input.
      shard_bytes: bytes of the input that become one shard, about.
      most_segments: of the job, where `most` allows it. A runner in one process holds
        220 bytes for each while it groups them, and as much when it passes them on.
      least, most: bounds of the result, `most` a power of two times `least`.

    Returns:
      A power of two times `least`.
    """
    least_bytes = units * total_bytes // (shard_bytes * most_segments)
    size = least
    while size < least_bytes and size < most:
        size *= 2
    return size


def number_of_rows(sample: TableSample, inputs: Inputs) -> float:
    """Returns how many rows there are: exact where the format or the sample says."""
    if sample.total_rows is not None:
        return sample.total_rows
    seen = sample.rows + sample.unread
    if not sample.sampled_bytes:
        return seen
    return inputs.entries.bytes * seen / sample.sampled_bytes


def bytes_of_rows(sample: TableSample, inputs: Inputs) -> int:
    """Returns what all rows take once they are unpacked, about."""
    size = sum(map(_content_bytes, sample.columns.values()))
    unpacked = size * number_of_rows(sample, inputs) / max(sample.rows, 1)
    return max(inputs.entries.bytes, round(unpacked))


def _content_bytes(column: pa.Array | pa.ChunkedArray) -> int:
    """Returns the bytes of texts without offsets; of other columns with all buffers."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return pc.sum(pc.binary_length(column)).as_py() or 0
    return int(column.nbytes)


def mean_record_bytes(
    sample: TableSample,
    schema: Schema,
    evidence: Mapping[str, Evidence],
    image_bytes: float,
) -> float:
    """Returns the mean size of a framed record, from some rows of the sample."""
    count = min(sample.rows, _SIZED_ROWS)
    sized = Schema(tuple(_sized(f) for f in schema.features if not f.derived))
    differing = (f for f in sized.features if not _is_fixed(f, evidence.get(f.name)))
    others = {feature.source_column for feature in differing}
    fixed = {feature.source_column for feature in sized.features} - others
    if not others:
        count, at_once = min(count, 1), 1
    else:
        sample_bytes = sum(column.nbytes for column in sample.columns.values())
        most = max(_SIZED_BYTES, _SIZED_COLUMN_BYTES * len(sample.columns))
        at_once = max(most * sample.rows // max(sample_bytes, 1), 1)
    paths = [f.name for f in schema.of_kind(Kind.IMAGE) if not f.inline]
    alike = [f.name for f in sized.stored if f.source_column in fixed]
    sized = Schema(tuple(f for f in sized.features if f.source_column not in fixed))
    rows = encoded_bytes = 0
    images = dict.fromkeys(paths, 0)
    looked_at = {n: c for n, c in sample.columns.items() if n not in fixed}
    for start in range(0, count, at_once):
        length = min(at_once, count - start)
        columns = {n: one_array(c.slice(start, length)) for n, c in looked_at.items()}
        fitting, fit_count = _fitting(columns, sized, length)
        if fit_count:
            rows += fit_count
            encoded_bytes += _encoded_bytes(fitting, fit_count, sized, alike)
            for name in paths:
                images[name] += len(items_of(fitting[name]))
    if not rows:
        return 0.0
    size = encoded_bytes / rows + OVERHEAD_BYTES
    return size + image_bytes * sum(count / rows for count in images.values())


def kept_share(sample: TableSample, schema: Schema, condition: str | None) -> float:
    """Returns by how much a condition makes sizes less: the share of rows it keeps.

    Raises:
      SpecError: it is no condition over these rows.
    """
    if condition is None:
        return 1.0
    from transforms.reading.row_filter import row_filter

    chosen = row_filter(condition, schema).condition
    used = [f for f in schema.features if f.name in chosen.columns]
    count = min(sample.rows, _SIZED_ROWS)
    names = {feature.source_column for feature in used} & sample.columns.keys()
    columns = {name: one_array(sample.columns[name].slice(0, count)) for name in names}
    rows, fit_count = _fitting(columns, Schema(tuple(used)), count)
    return float(chosen.certain(rows).mean()) if fit_count else 1.0


def _fitting(
    columns: Mapping[str, pa.Array], sized: Schema, count: int
) -> tuple[pa.RecordBatch, int]:
    """Returns the rows of raw columns that fit, and how many they are."""
    # Loaded where tables are sized: up-to-date datasets are answered without it.
    from transforms.core.rows.column import blamed_of
    from transforms.core.rows.conform import conform

    rows, misfits = conform(columns, sized, count, "")
    if not misfits:
        return rows, count
    fits = blamed_of(misfits, count) < 0
    return rows.filter(pa.array(fits)), int(fits.sum())


def _encoded_bytes(
    rows: pa.RecordBatch, count: int, sized: Schema, alike: Sequence[str]
) -> int:
    """Returns the size of the records of rows, without their frames.

    Args:
      rows: n rows under `sized`.
      count: n, which rows without a column do not say.
      sized: features whose values differ in size.
      alike: the names of other features, each of 4 bytes in every row.
    """
    from transforms.core.example.encoder import ExampleEncoder
    from transforms.core.rows.record_columns import record_columns

    values = record_columns(pa.table(rows), sized.features)
    values |= {f.name: rows[f.name] for f in sized.of_kind(Kind.IMAGE)}
    fields = [field for f in sized.features for field in record_fields(f)]
    fields += [pa.field(name, pa.float32()) for name in alike]
    values |= dict.fromkeys(alike, pa.array(np.zeros(count, np.float32)))
    record_schema = pa.schema(fields)
    records = pa.record_batch([values[f.name] for f in fields], record_schema)
    encoded = ExampleEncoder(record_schema).encode(records)
    return int(pc.sum(pc.binary_length(encoded), min_count=0).as_py())


def _sized(feature: Feature) -> Feature:
    """Returns a feature that all rows have, and whose records are as large.

    A class id takes less than the name; the estimate may be too high by that.
    """
    kind = feature.kind
    if kind in (Kind.LABEL, Kind.IMAGE) and not feature.inline:
        kind = Kind.TEXT
    missing = feature.missing
    if missing is Missing.REJECT:
        missing = Missing.OMIT
    return dataclasses.replace(feature, kind=kind, missing=missing, vocabulary=None)


def _is_fixed(feature: Feature, evidence: Evidence | None) -> bool:
    """Whether each row of the sample has a float that fits: 4 bytes, whichever."""
    if feature.kind is not Kind.FLOAT or feature.shape or feature.pattern:
        return False
    if evidence is None or evidence.missing or evidence.misfits:
        return False
    low, high = evidence.minimum, evidence.maximum
    if feature.constant is not None or low is None or high is None:
        return False
    return max(-low, high) < FLOAT32_EXACT


def mean_image_bytes(inputs: Inputs, named: Sequence[str], images_root: str) -> float:
    """Returns the mean size of images beside the files, else of some that they name.

    Where none of these is found, it is a guess.

    Args:
      inputs: the files.
      named: images, as the files name them.
      images_root: folder that they are relative to, as an absolute path; empty for
        the source's.

    Raises:
      StorageError: a store does not answer. A guess would decide other shards than
        the sizes do.
    """
    sizes = [e.size for e in inputs.companions if is_image_name(e.path)]
    if named and not sizes:
        folders = [images_root or inputs.root]
        plain = (name for name in named if "\0" not in name)
        paths = [path for name in plain for path in image_places(name, folders)]
        # A store that does not answer is asked for one of them, and not for all.
        for some in (paths[:1], paths[1:]):
            sizes += sizes_of(some).values()
    return sum(sizes) / len(sizes) if sizes else _IMAGE_BYTES


def free_bytes(directory: str) -> int:
    """Returns the room for a job with this output, its unfinished work counted in.

    Raises:
      OSError: the file system does not say.
    """
    folder = os.path.dirname(os.path.abspath(directory))
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    status = os.statvfs(folder)
    total = status.f_bavail * status.f_frsize
    for parent, _, names in os.walk(work_folder(directory)):
        for name in names:
            try:
                total += os.lstat(os.path.join(parent, name)).st_size
            except OSError:
                # Another run is at work there, which will be said elsewhere.
                continue
    return total


def need_text(spec: Spec, needed: int) -> str:
    """Returns the bytes that a job needs as text: "3.1 GB before compression"."""
    words = size_text(needed)
    if _remakes_images(spec):
        return f"{words} if images stay as large as they are"
    return words if spec.compression == "none" else f"{words} before compression"


def check_room(spec: Spec, needed: int) -> None:
    """Raises StorageError where the room is not enough for `needed` bytes, by far."""
    # Object stores do not say what is free, and images of another size may be small.
    if is_remote(spec.output) or _remakes_images(spec):
        return
    try:
        free = free_bytes(spec.output)
    except OSError:
        # What is not known is no reason to stop.
        return
    sure = _SURE if spec.compression == "none" else _SURE_COMPRESSED
    if free < needed * sure:
        raise StorageError(
            f"There must be room for the output; {spec.output!r} needs about "
            f"{need_text(spec, needed)}, and {size_text(free)} are free on its file "
            f"system. Nothing was read. Make room, or choose another output."
        )


def _remakes_images(spec: Spec) -> bool:
    """Whether settings change pixels, so that the sizes of outputs are unknown."""
    changing = (spec.resize, spec.image_format, spec.channels)
    return any(setting is not None for setting in changing)
