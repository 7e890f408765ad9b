"""Plain JPEGs in a buffer: `prepare_image` is the oracle."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tests.support.damaged_images import intact_images
from tests.support.drawn_images import picture, real_images, saved, segment
from transforms.core.image.geometry import AS_STORED
from transforms.core.image.plain_jpegs import PlainJpeg, find_plain_jpegs
from transforms.core.image.policy import ImagePolicy, PreparedImage, prepare_image

_EXIF = Image.Exif()
_EXIF[274] = 6
_JPEG = saved(picture(), "JPEG")
_FILES = [
    *(data for _, data in intact_images(seed=3, rounds=1)),
    _JPEG,
    _JPEG + b"tail",
    _JPEG + _JPEG,
    _JPEG[:-2] + b"\xff\xff\xd9",
    _JPEG[:2] + segment(0xFE, b"a comment") + _JPEG[2:],
    saved(picture(), "JPEG", restart_marker_blocks=1),
    saved(picture(), "JPEG", exif=_EXIF.tobytes()),
    saved(picture(height=1, width=1000), "JPEG"),
    saved(picture(height=1, width=999), "JPEG"),
    b"",
    b"\xff\xd8\xff",
]


def _in_buffer(files: list[bytes], front: int = 0) -> list[PlainJpeg | None]:
    """The result for files that lie side by side, with other bytes around them."""
    data = b"\xff" * front + b"".join(files) + b"\xff\xd9" * 3
    bounds = itertools.pairwise(itertools.accumulate(map(len, files), initial=front))
    return find_plain_jpegs(memoryview(data), [*bounds], max_pixels=10_000)


def _expected(data: bytes, plain: PlainJpeg) -> bool:
    """Whether an image of which nothing is said but its size is that of a file."""
    found = prepare_image(data, ImagePolicy(max_pixels=10_000))
    assert isinstance(found, PreparedImage)
    info, source = found.info, found.source
    sides = (info.height, info.width, info.depth)
    return (
        (found.data, found.geometry, found.notes) == (data, AS_STORED, ())
        and (info.format, *sides) == ("jpeg", *plain)
        and source[:3] == ("jpeg", *plain[:2])
        and source[3:] == (1, 8)
    )


def test_files_that_are_plain() -> None:
    """The second time, all are that are stored as they are and get no note."""
    for data in _FILES:
        prepare_image(data)
    found = _in_buffer(_FILES, front=3)
    for data, plain in zip(_FILES, found, strict=True):
        assert plain is None or _expected(data, plain)
    assert [_in_buffer([data])[0] for data in _FILES] == found
    by_name = dict(zip(_FILES, found, strict=True))
    assert by_name[_JPEG] is not None
    assert by_name[saved(picture(), "JPEG", restart_marker_blocks=1)] is not None
    assert by_name[_JPEG + b"tail"] is None
    assert by_name[saved(picture(height=1, width=999), "JPEG")] is not None
    assert by_name[saved(picture(height=1, width=1000), "JPEG")] is None


def test_too_many_pixels_are_not_plain() -> None:
    """The limit is that of the policy; its fault names the sizes."""
    data = saved(picture(height=100, width=101), "JPEG")
    prepare_image(data)
    assert _in_buffer([data, _JPEG])[0] is None


def test_no_files() -> None:
    """Nothing in, nothing out."""
    assert _in_buffer([]) == []


@given(
    picks=st.lists(st.sampled_from(_FILES), max_size=4),
    at=st.floats(0, 1),
    piece=st.sampled_from(
        [b"\xff", b"\xff\xd9", b"\xff\xda", b"\xff\xd0", b"\0", b"x"]
    ),
    how=st.sampled_from(["insert", "replace", "cut", "remove"]),
    victim=st.sampled_from(_FILES),
)
def test_damaged_files_among_others(
    picks: list[bytes], at: float, piece: bytes, how: str, victim: bytes
) -> None:
    """What is called plain is what `prepare_image` stores as it is."""
    for data in (*picks, victim):
        prepare_image(data)
    place = int(at * len(victim))
    stop = place if how == "insert" else place + len(piece)
    rest = b"" if how == "cut" else victim[stop:]
    piece = b"" if how in ("cut", "remove") else piece
    files = [*picks, victim[:place] + piece + rest, *picks]
    for data, plain in zip(files, _in_buffer(files), strict=True):
        assert plain is None or _expected(data, plain)


def test_photographs_are_plain() -> None:
    """Of real files nearly all are plain, once one of their kind is known."""
    photographs = [data for data in real_images() if data.startswith(b"\xff\xd8")]
    if not photographs:
        pytest.skip("BEAM_TFRECORD_TEST_DATA is not set")
    for data in photographs:
        prepare_image(data)
    bounds = itertools.pairwise(itertools.accumulate(map(len, photographs), initial=0))
    whole = memoryview(b"".join(photographs))
    found = find_plain_jpegs(whole, [*bounds], max_pixels=1 << 27)
    assert sum(plain is not None for plain in found) > len(photographs) * 0.9
