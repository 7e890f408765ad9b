"""Orientation: carried over where pixels are encoded again, applied as Pillow does."""

import io
import time
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

from tests.support.drawn_images import chunk, make_png, picture, saved, segment
from tests.support.prepared_images import SMALLER, frames, oriented, pixels, prepared
from transforms.core.image.check import check_image
from transforms.core.image.formats import ImageInfo, ImageNote
from transforms.core.image.policy import ImagePolicy
from transforms.core.image.resize import Resize

XMP_NAME = b"http://ns.adobe.com/xap/1.0/\0"


def xmp(orientation: int, form: str = "attribute") -> bytes:
    """An XMP packet in either of the two forms of a simple property."""
    attribute = f' tiff:Orientation="{orientation}"' if form == "attribute" else ""
    element = f"<tiff:Orientation>{orientation}</tiff:Orientation>"
    return (
        '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999'
        f'/02/22-rdf-syntax-ns#"><rdf:Description{attribute} '
        'xmlns:tiff="http://ns.adobe.com/tiff/1.0/">'
        f"{'' if attribute else element}</rdf:Description></rdf:RDF></x:xmpmeta>"
    ).encode()


def exif_of(tag: int, kind: int, value: int) -> bytes:
    entry = tag.to_bytes(2) + kind.to_bytes(2) + (1).to_bytes(4) + value.to_bytes(2)
    return b"MM\0*\0\0\0\x08\0\x01" + entry + bytes(6)


def with_metadata(kind: str, packet: bytes, exif: bytes = b"") -> bytes:
    """A picture with an XMP packet, and with EXIF data where they are given."""
    named = b"Exif\0\0" + exif if exif else b""
    if kind == "JPEG":
        data = saved(picture(), "JPEG", exif=named)
        return data[:2] + segment(0xE1, XMP_NAME + packet) + data[2:]
    if kind == "TIFF":
        tags: dict[int, Any] = {700: packet}
        if exif:
            tags[0x0112] = int.from_bytes(exif[18:20])
        return saved(picture(), "TIFF", tiffinfo=tags)
    return saved(picture(), kind, xmp=packet, exif=named, lossless=True)


def shown(data: bytes) -> np.ndarray:
    """The pixels as Pillow turns them."""
    return np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data))))


def tag(data: bytes) -> int | None:
    """The orientation that Pillow reads in a file's EXIF."""
    found: int | None = Image.open(io.BytesIO(data)).getexif().get(0x0112)
    return found


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "WEBP", "AVIF"])
@pytest.mark.parametrize("orientation", range(2, 9))
@pytest.mark.parametrize("output", ["jpeg", "png", None])
def test_the_orientation_is_carried_over(
    kind: str, orientation: int, output: Any
) -> None:
    """What is encoded again as stored says how it is to be turned."""
    policy = ImagePolicy(resize=Resize("shorter", 12), output=output)
    result = prepared(oriented(kind, orientation), policy)
    assert ImageNote.ORIENTATION in result.notes
    assert (result.info.height, result.info.width) == (12, 20)
    assert tag(result.data) == orientation
    assert prepared(result.data).source.orientation == orientation


def test_bytes_of_the_tag() -> None:
    """Literal EXIF: a directory of one entry, in front of the pixels."""
    exif = bytes.fromhex("4d4d002a00000008 0001 0112000300000001 00060000 00000000")
    png = prepared(oriented("PNG", 6), SMALLER).data
    assert chunk(b"eXIf", exif) in png[: png.index(b"IDAT")]
    jpeg = prepared(oriented("JPEG", 6), SMALLER).data
    assert jpeg[20:].startswith(segment(0xE1, b"Exif\0\0" + exif))
    upright = prepared(oriented("JPEG", 1), SMALLER).data
    assert upright == jpeg[:20] + jpeg[20 + 10 + len(exif) :]


@pytest.mark.parametrize("form", ["attribute", "element"])
@pytest.mark.parametrize("kind", ["JPEG", "WEBP", "TIFF"])
def test_xmp_is_applied_and_kept(kind: str, form: str) -> None:
    """An orientation that only XMP states counts as one of EXIF."""
    data = with_metadata(kind, xmp(6, form))
    kept = prepared(data, SMALLER)
    assert kept.source.orientation == 6
    assert ImageNote.ORIENTATION in kept.notes
    assert tag(kept.data) == 6
    applied = prepared(data, ImagePolicy(exif="apply", output="png"))
    assert (applied.info.height, applied.info.width) == (40, 24)
    np.testing.assert_array_equal(pixels(applied.data), shown(data))
    assert tag(applied.data) is None
    if kind in ("JPEG", "PNG"):
        assert prepared(data).data is data


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")
@pytest.mark.parametrize("kind", ["JPEG", "WEBP"])
@pytest.mark.parametrize(
    "exif",
    [
        exif_of(0x0112, 3, 1),  # upright by EXIF
        exif_of(0x0112, 3, 3),  # another turn
        exif_of(0x0112, 3, 9),  # a tag without meaning
        exif_of(0x0112, 3, 0),  # another
        exif_of(0x0128, 3, 2),  # EXIF of other things
        exif_of(0x0112, 3, 3)[:10],  # EXIF that is cut short
    ],
)
def test_exif_comes_before_xmp(kind: str, exif: bytes) -> None:
    """Which of two statements counts is what Pillow says."""
    data = with_metadata(kind, xmp(6), exif)
    applied = prepared(data, ImagePolicy(exif="apply", output="png"))
    np.testing.assert_array_equal(pixels(applied.data), shown(data))


def test_the_last_packet_counts() -> None:
    """Of several XMP packets in a JPEG Pillow takes the last."""
    data = saved(picture(), "JPEG")
    packets = [segment(0xE1, XMP_NAME + xmp(n)) for n in (3, 6)]
    data = data[:2] + b"".join(packets) + data[2:]
    assert prepared(data).source.orientation == 6
    assert prepared(data, ImagePolicy(check="none")).source.orientation == 6


def test_a_png_of_very_many_texts_is_read_at_once() -> None:
    """The time grows with their number, not with its square."""
    data = make_png(2, 8, extra=chunk(b"tEXt", b"") * 200_000)
    before = time.process_time()
    assert isinstance(check_image(data), ImageInfo)
    assert time.process_time() - before < 10


@pytest.mark.parametrize(
    "extra",
    [
        chunk(b"iTXt", b"XML:com.adobe.xmp"),
        chunk(b"eXIf", b"Exif\0\0" * 100_000),
        chunk(b"eXIf", b""),
    ],
)
def test_metadata_without_sense_is_no_fault(extra: bytes) -> None:
    """An image is not refused, slow or large for what its metadata holds."""
    data = make_png(2, 8, extra=extra)
    assert prepared(data).source.orientation == 1
    assert prepared(data).data is data


def test_heic_is_turned_once() -> None:
    """libheif returns upright pixels: they are not rotated again, without a note."""
    heif = pytest.importorskip("pillow_heif")
    exif = Image.Exif()
    exif[0x0112] = 6
    out = io.BytesIO()
    image = heif.from_pillow(picture())
    image.save(out, quality=-1, exif=exif.tobytes())
    for policy in (ImagePolicy(), ImagePolicy(exif="apply")):
        result = prepared(out.getvalue(), policy)
        assert (result.info.height, result.info.width) == (40, 24)
        assert tag(result.data) is None


def test_the_tag_survives_changes_of_pixels() -> None:
    """Sixteen bits, CMYK, palettes and the first frame carry it as others do."""
    exif = Image.Exif()
    exif[0x0112] = 6
    sixteen = Image.fromarray(np.arange(960, dtype=np.uint16).reshape(24, 40) * 60)
    files = [
        saved(sixteen, "TIFF", exif=exif),
        saved(picture("CMYK"), "TIFF", exif=exif),
        saved(picture().convert("P"), "PNG", exif=exif),
        saved(picture("CMYK"), "JPEG", exif=exif),
    ]
    pages = [picture().rotate(90 * i) for i in range(3)]
    several = {"save_all": True, "append_images": pages[1:], "exif": exif.tobytes()}
    files.append(saved(pages[0], "WEBP", **several))
    assert tag(prepared(frames("GIF"), SMALLER).data) is None
    for data in files:
        assert tag(prepared(data, SMALLER).data) == 6
        whole = prepared(data, ImagePolicy(output="png", animation="first"))
        assert tag(whole.data) == 6
    assert pixels(prepared(files[0]).data).dtype == np.uint16
