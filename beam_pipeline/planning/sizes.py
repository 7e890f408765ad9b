"""How many shards a split gets, and how large blocks are: by the input alone."""

import math
from collections.abc import Mapping

from beam_pipeline.settings.options import MAX_SHARDS
from beam_pipeline.settings.spec import Spec
from beam_pipeline.terminal.words import size_text
from transforms.errors import SpecError

# Files of 100 to 200 MB can be read by many hosts in parallel without being many.
_MIN_SHARD_BYTES = 100_000_000
_MAX_SHARD_BYTES = 200_000_000


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


def shard_notes(spec: Spec, sizes: Mapping[str, int]) -> list[str]:
    """Returns which splits are too large for shards of the usual size.

    Args:
      spec: of the job.
      sizes: split -> how many bytes of shards, about.
    """
    if spec.shards is not None or spec.shard_size is not None:
        return []
    return [
        f"the shards of {name!r} will have about {size_text(size // MAX_SHARDS)} each: "
        f"a split has at most {MAX_SHARDS:,}"
        for name, size in sizes.items()
        if size > MAX_SHARDS * _MAX_SHARD_BYTES
    ]


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
    wanted = units * total_bytes // (shard_bytes * most_segments)
    size = least
    while size < wanted and size < most:
        size *= 2
    return size
