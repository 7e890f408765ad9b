"""How large blocks are: by the input alone, never by the workers."""

__all__ = ["block_size"]

# Each block has at most one segment for each shard.
_MOST_SEGMENTS = 500_000


def block_size(
    units: int, total_bytes: int, *, shard_bytes: int, least: int, most: int
) -> int:
    """Returns how many units a block has, where blocks are made of runs of an input.

        >>> block_size(10_000, 10**9, shard_bytes=150_000_000, least=4096, most=131_072)
        4096

    Blocks times shards stays under half a million, where `most` allows it: with
    `total_bytes / shard_bytes` shards, that is

        units / size * total_bytes / shard_bytes <= 500,000

    Args:
      units: of the input: rows or bytes.
      total_bytes: of the input.
      shard_bytes: bytes of the input that become one shard, about.
      least, most: bounds of the result, `most` a power of two times `least`.

    Returns:
      A power of two times `least`.
    """
    wanted = units * total_bytes // (shard_bytes * _MOST_SEGMENTS)
    size = least
    while size < wanted and size < most:
        size *= 2
    return size
