"""How large blocks are: by the input alone, never by the workers."""

__all__ = ["block_size"]


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
