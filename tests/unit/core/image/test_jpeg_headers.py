"""Known headers of JPEGs: the walk over all markers is the oracle."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tests.support.drawn_images import (
    flat_jpeg,
    overflowing_jpeg,
    picture,
    real_images,
    saved,
    segment,
)
from transforms.core.image import jpeg_headers
from transforms.core.image.jpeg import JpegHeader, read_header, walk
from transforms.core.image.jpeg_headers import KnownHeaders
from transforms.errors import DamageError

_COMMENT = segment(0xFE, b"a comment")
_EXIF = Image.Exif()
_EXIF[274] = 6

_ACCEPTED = [
    saved(picture(), "JPEG"),
    saved(picture("L"), "JPEG"),
    saved(picture("CMYK"), "JPEG"),
    saved(picture(), "JPEG", quality=100),
    saved(picture(), "JPEG", optimize=True),
    saved(picture(), "JPEG", progressive=True),
    saved(picture(), "JPEG", exif=_EXIF.tobytes()),
    saved(picture(), "JPEG", restart_marker_blocks=1),
    flat_jpeg([(2, 2), (1, 1), (1, 1)], interleaved=False),
    flat_jpeg([(1, 1)], huffman=b""),
    flat_jpeg([(1, 1)], frame=0xC1, restart=1),
    overflowing_jpeg(8, 8),
]


def _known(files: list[bytes]) -> KnownHeaders:
    headers = KnownHeaders()
    for data in files:
        walk(data)
        headers.learn(data, read_header(data))
    return headers


def _walked(data: bytes) -> tuple[JpegHeader, int] | None:
    try:
        return read_header(data), walk(data)
    except DamageError:
        return None


def test_known_header_with_other_metadata_dimensions_and_pixels() -> None:
    """Neither a comment nor the dimensions nor the pixels are part of a header."""
    first, second = (
        saved(picture(height=height, width=width), "JPEG")
        for height, width in [(24, 40), (32, 17)]
    )
    headers = _known([first])
    for data in (first, second, second[:2] + _COMMENT + second[2:], second + b"tail"):
        found = headers.find(data)
        assert found is not None
        assert found == _walked(data)


@pytest.mark.parametrize("data", _ACCEPTED[5:7] + _ACCEPTED[8:9] + _ACCEPTED[11:])
def test_files_that_always_need_a_walk(data: bytes) -> None:
    """Progressive files, EXIF and several scans are never known."""
    assert _known([data]).find(data) is None


@pytest.mark.parametrize("data", _ACCEPTED[:5] + _ACCEPTED[7:8] + _ACCEPTED[9:11])
def test_files_that_are_known_the_second_time(data: bytes) -> None:
    """Sequential files of one scan are known, in color, gray and CMYK."""
    assert _known([data]).find(data) == _walked(data) is not None


def test_number_of_known_headers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files with tables of their own do not fill the memory."""
    monkeypatch.setattr(jpeg_headers, "_MAX_HEADERS", 2)
    headers = _known(_ACCEPTED[:4])
    found = [headers.find(data) is not None for data in _ACCEPTED[:4]]
    assert found == [True, True, False, False]


_changes = st.lists(
    st.tuples(
        st.sampled_from(["replace", "insert", "remove", "cut"]),
        # Most damage belongs into the header.
        st.one_of(st.integers(0, 700), st.integers(0, 4000)),
        st.one_of(
            st.binary(min_size=1, max_size=4),
            st.sampled_from([b"\xff", b"\xff\xd9", b"\xff\xda", b"\xff\xc0", _COMMENT]),
        ),
    ),
    min_size=1,
    max_size=3,
)


def _changed(data: bytes, changes: list[tuple[str, int, bytes]]) -> bytes:
    for how, place, piece in changes:
        at = place % (len(data) + 1)
        if how == "cut":
            data = data[:at]
        else:
            stop = at if how == "insert" else at + len(piece)
            data = data[:at] + (b"" if how == "remove" else piece) + data[stop:]
    return data


@given(data=st.sampled_from(_ACCEPTED), changes=_changes)
def test_known_headers_agree_with_the_walk(
    data: bytes, changes: list[tuple[str, int, bytes]]
) -> None:
    """What is found in a damaged file, also after a sound one, is the walk's result."""
    headers = _known(_ACCEPTED)
    headers.find(data)
    changed = _changed(data, changes)
    walked = _walked(changed)
    assert headers.find(changed) in (None, walked)
    if walked is not None:
        headers.learn(changed, walked[0])
        assert headers.find(changed) in (None, walked)
        assert headers.find(data) in (None, _walked(data))


def test_known_headers_agree_with_the_walk_on_photographs() -> None:
    """Real files are known after the first of their kind, with the walk's result."""
    photographs = real_images()
    if not photographs:
        pytest.skip("BEAM_TFRECORD_TEST_DATA is not set")
    headers = _known(photographs)
    found = [headers.find(data) for data in photographs]
    walked = [_walked(data) for data in photographs]
    pairs = zip(found, walked, strict=True)
    assert all(one in (None, other) for one, other in pairs)
    assert sum(one is not None for one in found) > len(photographs) * 0.9
