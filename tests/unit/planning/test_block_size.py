"""Blocks grow with the input, so that segments stay few."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_pipeline.planning.sizes import block_size

IMAGE_BYTES, SHARD_BYTES = 100_000, 150_000_000
LEAST, MOST, MOST_SEGMENTS = 4096, 1 << 17, 200_000


@pytest.mark.parametrize(
    ("images", "rows"),
    [(0, 4096), (1, 4096), (1_000_000, 4096), (3_000_000, 32_768), (10**7, 1 << 17)],
)
def test_blocks_of_images_grow_with_their_number(images: int, rows: int) -> None:
    """A million images have the blocks of a thousand; a billion the largest."""
    assert images_a_block(images) == rows
    assert images_a_block(10**9) == MOST


@given(st.integers(0, 10**7))
def test_blocks_times_shards_is_bounded(images: int) -> None:
    """As many segments as are allowed, or blocks as large as may be."""
    rows = images_a_block(images)
    shards = images * IMAGE_BYTES / SHARD_BYTES
    assert images / rows * shards <= MOST_SEGMENTS + 1 or rows == MOST
    assert rows % LEAST == 0


def images_a_block(images: int) -> int:
    return block_size(
        images,
        images * IMAGE_BYTES,
        shard_bytes=SHARD_BYTES,
        most_segments=MOST_SEGMENTS,
        least=LEAST,
        most=MOST,
    )
