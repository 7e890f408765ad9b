"""The CRC32C of joined pieces, without the pieces."""

import google_crc32c
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from transforms.core.tfrecord.frame import joined_crc

_PIECES = st.lists(
    st.tuples(st.binary(max_size=8), st.sampled_from([0, 1, 15, 16, 4096, 70_001]))
)


@given(parts=_PIECES)
def test_joined_crc_is_that_of_the_joined_bytes(parts: list[tuple[bytes, int]]) -> None:
    """Pieces of any sizes, empty ones and no piece included."""
    pieces = [start + bytes(zeros) for start, zeros in parts]
    crcs = np.array([google_crc32c.value(piece) for piece in pieces], np.uint32)
    sizes = np.array([len(piece) for piece in pieces], np.int64)
    assert joined_crc(crcs, sizes) == google_crc32c.value(b"".join(pieces))


def test_sizes_beyond_32_bits() -> None:
    """Doubling a piece of zeros again and again gives the size of any file."""
    size, crc = 1, google_crc32c.value(b"\0")
    for _ in range(40):
        crcs, sizes = np.array([crc, crc], np.uint32), np.array([size, size])
        size, crc = 2 * size, joined_crc(crcs, sizes)
        if size == 1 << 22:
            assert crc == google_crc32c.value(bytes(size))
    whole = np.array([crc], np.uint32), np.array([size])
    more = np.array([crc, 0], np.uint32), np.array([size, 0])
    assert joined_crc(*whole) == joined_crc(*more) == crc
