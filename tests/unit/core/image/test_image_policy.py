"""The image policy: what stays, what changes and how, what is refused, by the bytes."""

import io
import struct
import subprocess
import warnings
import zlib
from typing import Any, Literal

import numpy as np
import pytest
from PIL import EpsImagePlugin, Image, ImageOps
from PIL.JpegImagePlugin import JpegImageFile

from tests.support.drawn_images import (
    ARITHMETIC,
    ARITHMETIC_PROGRESSIVE,
    chunk,
    flat_jpeg,
    ihdr,
    make_bmp,
    make_png,
    picture,
    real_images,
    saved,
    segment,
)
from tests.support.prepared_images import frames, oriented, pixels, prepared
from transforms.core.image import check
from transforms.core.image.formats import ImageInfo, ImageNote, contradicts_suffix
from transforms.core.image.policy import ImagePolicy, prepare_image
from transforms.core.image.resize import Resize
from transforms.core.reasons import Fault, Reason
from transforms.errors import SpecError

END = chunk(b"IEND", b"")
PIXELS = chunk(b"IDAT", zlib.compress(bytes(4)))


def reason(data: bytes, policy: ImagePolicy | None = None) -> Reason:
    """The reason of an image that must be refused."""
    result = prepare_image(data, policy or ImagePolicy())
    assert isinstance(result, Fault), result
    return result.reason


# ---------------------------------------------------------------- nothing has to change


@pytest.mark.parametrize("check", ["structure", "decode", "none"])
def test_untouched_bytes_are_the_same_object(
    check: Literal["structure", "decode", "none"],
) -> None:
    """The default policy hands JPEG, PNG and BMP through, whatever their kind."""
    files = [saved(picture(mode), "JPEG") for mode in ("L", "RGB", "CMYK")]
    files += [make_png(color, 8) for color in (0, 2, 3, 4, 6)]
    files += [make_png(2, 16), make_bmp(24), make_bmp(32)]
    files += [saved(picture("L"), "BMP"), oriented("JPEG", 6), files[0] + b"tail"]
    for data in files:
        assert prepared(data, ImagePolicy(check=check)).data is data


@pytest.mark.parametrize(
    "policy",
    [
        ImagePolicy(channels=3),
        ImagePolicy(exif="apply"),
        ImagePolicy(output="jpeg", quality=10),
        ImagePolicy(resize=Resize("shorter", 24)),
        ImagePolicy(resize=Resize("longer", 100)),
        ImagePolicy(resize=Resize("exact", 24, 40)),
        ImagePolicy(resize=Resize("crop", 100, 100)),
        ImagePolicy(resize=Resize("pad", 24, 40)),
    ],
)
def test_what_fits_already_is_not_encoded_again(policy: ImagePolicy) -> None:
    """A policy that asks for what is there costs no generation of JPEG."""
    data = saved(picture(), "JPEG")
    assert prepared(data, policy).data is data


# ------------------------------------------------------------------ the fault catalogue


def test_fault_72_the_format_is_taken_from_the_bytes() -> None:
    """A PNG named .jpg is a PNG; that the name says otherwise can be counted."""
    format = prepared(make_png(2, 8)).info.format
    assert format == "png"
    assert contradicts_suffix("a/b.JPG", format)
    assert not contradicts_suffix("a/b.png", format)
    assert not contradicts_suffix("a/b", format)
    assert not contradicts_suffix("a/b.dat", format)


def test_fault_74_rows_that_are_missing_are_never_painted_black() -> None:
    """Right checksums, half the rows: Pillow would fill up, so encoding refuses."""
    half = zlib.compress(bytes(301 * 50))
    data = ihdr(100, 100, 8, 2, False) + chunk(b"tEXt", bytes(5000))
    data += chunk(b"IDAT", half) + END
    assert reason(data, ImagePolicy(channels=1)) is Reason.DAMAGED_IMAGE


def tiff_of(height: int, width: int, **tags: int) -> bytes:
    """A little-endian TIFF of these sizes and one byte of pixels."""
    fields = {256: width, 257: height, 258: 8, 259: 1, 262: 1, 273: 8, 278: height}
    fields |= {279: 1} | {int(k[1:]): v for k, v in tags.items()}
    out = b"II*\0" + struct.pack("<I", 10) + b"\0\0" + struct.pack("<H", len(fields))
    for tag in sorted(fields):
        out += struct.pack("<HHII", tag, 4, 1, fields[tag])
    return out + bytes(4)


def webp_of(kind: bytes, payload: bytes) -> bytes:
    body = b"WEBP" + kind + struct.pack("<I", len(payload)) + payload
    return b"RIFF" + struct.pack("<I", len(body)) + body


def gif_of(screen: int, image: int) -> bytes:
    """A GIF whose screen and only image have these sides."""
    out = b"GIF89a" + struct.pack("<HHBBB", screen, screen, 0x80, 0, 0)
    out += b"\0\0\0\xff\xff\xff," + struct.pack("<HHHHB", 0, 0, image, image, 0)
    return out + b"\2\2\x44\1\0;"


def enlarged(data: bytes, old: bytes, new: bytes) -> bytes:
    assert old in data
    return data.replace(old, new)


JP2 = saved(picture(), "JPEG2000")
J2K = saved(picture(), "JPEG2000", no_jp2=True)
SIDES_24_40 = struct.pack(">II", 24, 40)
SIDES_40_24 = struct.pack(">II", 40, 24)
HUGE = struct.pack(">II", 60_000, 60_000)


@pytest.mark.parametrize(
    "data",
    [
        ihdr(60_000, 60_000, 8, 2, False) + PIXELS + END,
        ihdr(8_001, 8_000, 1, 0, True) + PIXELS + END,
        make_bmp(24)[:18] + struct.pack("<ii", 10_000, -10_000) + make_bmp(24)[26:],
        make_bmp(4)[:18] + struct.pack("<ii", 40_000, 40_000) + make_bmp(4)[26:],
        flat_jpeg([(1, 1)])[:-1].replace(b"\x00\x10\x00\x18", b"\xff\x00\xff\x00"),
        gif_of(65_535, 65_535),
        gif_of(1, 65_535),
        webp_of(b"VP8X", bytes(4) + b"\xff\xff\x00\xff\xff\x00"),
        webp_of(b"VP8L", b"\x2f\xff\xff\xff\x0f" + bytes(8)),
        webp_of(b"VP8 ", b"\x10\0\0\x9d\x01*\xff\x3f\xff\x3f" + bytes(8)),
        tiff_of(60_000, 60_000),
        tiff_of(8, 8, t322=60_000, t323=60_000, t324=8, t325=1),
        b"P6\n60000 60000\n255\n",
        b"P1 60000 60000\n1 0",
        enlarged(JP2, SIDES_24_40, HUGE),
        enlarged(JP2, SIDES_40_24, HUGE),
        enlarged(J2K, SIDES_40_24, HUGE),
        enlarged(saved(picture(), "AVIF"), SIDES_40_24, struct.pack(">II", 9000, 9000)),
    ],
)
@pytest.mark.parametrize("check", ["structure", "decode", "none"])
def test_fault_76_huge_header_in_a_tiny_file(
    data: bytes, check: Literal["structure", "decode", "none"]
) -> None:
    """The limit comes before any decoder, in every format, and without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert reason(data, ImagePolicy(check=check)) is Reason.TOO_MANY_PIXELS


def test_fault_77_below_pillows_limit_but_above_ours() -> None:
    """Our own limit counts, of the source and of what a resize makes of it."""
    assert reason(ihdr(12_000, 12_000, 1, 0, False) + END) is Reason.TOO_MANY_PIXELS
    assert reason(gif_of(65_535, 1)) is Reason.TOO_MANY_PIXELS
    assert prepared(gif_of(1, 1)).info == ImageInfo("png", 1, 1, 3)
    data = saved(picture(height=1, width=3000), "PNG")
    grown = ImagePolicy(resize=Resize("shorter", 4000, enlarge=True))
    assert reason(data, grown) is Reason.TOO_MANY_PIXELS
    limit = ImagePolicy(max_pixels=24 * 40 - 1)
    for kind in (
        "JPEG",
        "PNG",
        "BMP",
        "GIF",
        "WEBP",
        "TIFF",
        "JPEG2000",
        "AVIF",
        "PPM",
    ):
        data = saved(picture(), kind)
        assert reason(data, limit) is Reason.TOO_MANY_PIXELS
        assert prepared(data, ImagePolicy(max_pixels=24 * 40))


def test_fault_78_bombs_in_metadata_are_never_inflated() -> None:
    """Compressed texts and profiles of 100 MB reach no parser, changed or not."""
    bomb = zlib.compress(bytes(100_000_000))
    extra = chunk(b"zTXt", b"Title\0\0" + bomb) + chunk(b"iCCP", b"x\0\0" + bomb)
    extra += chunk(b"eXIf", b"MM\0*\0\0\0\x08\xff\xff" + bytes(70_000))
    data = make_png(2, 8, extra=extra)
    assert prepared(data).data is data
    assert len(prepared(data, ImagePolicy(channels=1)).data) < 1000
    front = segment(0xE2, b"ICC_PROFILE\0\1\1" + bomb[:60_000])
    photo = saved(picture(), "JPEG")
    small = prepared(photo[:2] + front + photo[2:], ImagePolicy(channels=1))
    assert small.data == prepared(photo, ImagePolicy(channels=1)).data


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "WEBP", "AVIF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_fault_79_orientation(kind: str, orientation: int) -> None:
    """keep: pixels as stored and the fact beside them; apply: what a viewer shows."""
    data = oriented(kind, orientation)
    kept = prepared(data)
    assert kept.source.orientation == orientation
    assert (kept.info.height, kept.info.width) == (24, 40)
    assert (ImageNote.ORIENTATION in kept.notes) == (orientation > 1)
    if kind in ("JPEG", "PNG"):
        assert kept.data is data
    applied = prepared(data, ImagePolicy(exif="apply", output="png"))
    shown = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data))))
    np.testing.assert_array_equal(pixels(applied.data), shown)
    if kind == "TIFF":  # which Pillow turns itself
        upright = pixels(kept.data)
        np.testing.assert_array_equal(upright, np.asarray(picture()))


def test_fault_80_cmyk_is_counted() -> None:
    """CMYK stays unchanged, since TensorFlow returns RGB; the note says so."""
    data = saved(picture("CMYK"), "JPEG")
    result = prepared(data, ImagePolicy(channels=3))
    assert result.data is data
    assert result.notes == (ImageNote.CMYK,)


def test_fault_81_sixteen_bits() -> None:
    """16 bits stay in the file, and in gray also through a foreign format."""
    data = make_png(0, 16)
    result = prepared(data)
    assert result.data is data
    assert result.source.bits == 16
    assert result.notes == (ImageNote.SIXTEEN_BIT,)
    values = np.arange(24 * 40, dtype=np.uint16).reshape(24, 40) * 68
    for kind in ("TIFF", "PPM", "JPEG2000"):
        result = prepared(saved(Image.fromarray(values), kind))
        assert result.notes == (ImageNote.SIXTEEN_BIT, ImageNote.REENCODED)
        np.testing.assert_array_equal(pixels(result.data), values)
        narrow = prepared(
            saved(Image.fromarray(values), kind),
            ImagePolicy(resize=Resize("pad", 24, 41)),
        )
        assert ImageNote.LOST_PRECISION in narrow.notes
        np.testing.assert_array_equal(pixels(narrow.data)[:, 1:], values >> 8)


@pytest.mark.parametrize(
    ("data", "depth"),
    [
        (make_png(3, 8), 3),
        (make_png(3, 8, transparent=True), 4),
        (make_png(4, 8), 2),
        (make_png(0, 1), 1),
        (make_png(6, 8), 4),
        (make_png(2, 8, transparent=True), 3),
    ],
)
def test_fault_82_depths_and_channels(data: bytes, depth: int) -> None:
    """Unchanged by default; converted to 1, 3 or 4 on request."""
    assert prepared(data).info.depth == depth
    for channels in (1, 3, 4):
        result = prepared(data, ImagePolicy(channels=channels))
        assert result.info[:4] == ("png", 9, 11, channels)
        assert (result.data is data) == (depth == channels)
        flattened = depth in (2, 4) and channels != 4
        assert (ImageNote.FLATTENED in result.notes) == flattened


def test_fault_82_transparency_is_laid_on_white() -> None:
    """Transparent red is white, opaque red is red, halves are pink."""
    image = Image.new("RGBA", (3, 1))
    for x, alpha in enumerate((0, 128, 255)):
        image.putpixel((x, 0), (255, 0, 0, alpha))
    flat = prepared(saved(image, "PNG"), ImagePolicy(channels=3))
    assert pixels(flat.data).tolist() == [
        [[255, 255, 255], [255, 127, 127], [255, 0, 0]]
    ]
    jpeg = prepared(saved(image, "WEBP", lossless=True), ImagePolicy(output="jpeg"))
    assert jpeg.info == ImageInfo("jpeg", 1, 3, 3)
    assert pixels(jpeg.data)[0, 0].min() > 200


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG", "TIFF", "AVIF"])
def test_fault_83_several_images_in_a_file(kind: str) -> None:
    """Refused by default; by policy the first, and counted; never four dimensions."""
    data = frames(kind)
    assert reason(data) is Reason.ANIMATED_IMAGE
    result = prepared(data)
    assert ImageNote.SEVERAL_FRAMES in result.notes
    assert (result.info.height, result.info.width) == (24, 40)
    still = Image.open(io.BytesIO(data)).convert("RGB")
    found = Image.open(io.BytesIO(result.data)).convert("RGB")
    np.testing.assert_array_equal(np.asarray(found), np.asarray(still))


def bmp_of_runs() -> bytes:
    """A BMP of 256 colors in runs (BI_RLE8), each of one pixel."""
    palette = b"".join(bytes([i, 255 - i, i // 2, 0]) for i in range(256))
    row = b"".join(bytes([1, 3 * x]) for x in range(40)) + b"\0\0"
    pixels = row * 20 + b"\0\1"
    start = 54 + len(palette)
    head = b"BM" + struct.pack("<III", start + len(pixels), 0, start)
    head += struct.pack("<IiiHHIIiiII", 40, 40, 20, 1, 8, 1, len(pixels), 0, 0, 0, 0)
    return head + palette + pixels


_PHOTO = picture(height=60, width=90)


@pytest.mark.parametrize(
    "data",
    [
        saved(_PHOTO, "GIF"),
        saved(_PHOTO.quantize(16), "GIF", interlace=1, comment=b"a;" * 40),
        frames("GIF"),
        saved(_PHOTO, "WEBP"),
        saved(_PHOTO.convert("RGBA"), "WEBP", lossless=True),
        frames("WEBP"),
        saved(_PHOTO, "WEBP", icc_profile=bytes(300)),
        saved(_PHOTO, "BMP"),
        saved(_PHOTO.quantize(200).resize((92, 60)), "BMP"),
        make_bmp(16, width=12, height=40),
        bmp_of_runs(),
    ],
)
@pytest.mark.parametrize("check", ["structure", "decode"])
def test_a_gif_webp_or_bmp_that_is_cut_short(
    data: bytes, check: Literal["structure", "decode"]
) -> None:
    """Wherever a file ends early, it is refused."""
    policy = ImagePolicy(check=check, animation="first")
    prepared(data, policy)
    for size in range(len(data) - 1, 20, -10):
        assert reason(data[:size], policy) is Reason.DAMAGED_IMAGE


@pytest.mark.parametrize("kind", ["WEBP", "TIFF", "JPEG2000", "AVIF", "PPM", "GIF"])
def test_fault_84_formats_that_tensorflow_does_not_read(kind: str) -> None:
    """Encoded as PNG without loss, or refused: the policy says."""
    data = saved(picture(), kind)
    result = prepared(data, ImagePolicy())
    assert result.info == ImageInfo("png", 24, 40, 3)
    assert result.notes == (ImageNote.REENCODED,)
    seen = Image.open(io.BytesIO(data)).convert("RGB")
    np.testing.assert_array_equal(pixels(result.data), np.asarray(seen))
    assert reason(data, ImagePolicy(foreign="reject")) is Reason.UNSUPPORTED_FORMAT


def test_fault_84_heic_without_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Named and refused, with the extra to install; never tried by another decoder."""
    monkeypatch.setattr(check, "_plugin", lambda name: None)
    result = prepare_image(b"\0\0\0\x18ftypheic" + bytes(30))
    assert isinstance(result, Fault)
    assert result.reason is Reason.UNSUPPORTED_FORMAT
    assert "[heif]" in result.message


@pytest.mark.parametrize(
    "data",
    [
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
        b"\xc5\xd0\xd3\xc6" + bytes(40),
        b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        b"\xff\x0a" + bytes(20),
        b"P7\nWIDTH 1\nHEIGHT 1\nDEPTH 1\nMAXVAL 1\nENDHDR\n\0",
        b"8BPS\0\1" + bytes(30),
        b"\0\0\1\0\1\0" + bytes(20),
    ],
)
def test_fault_85_nothing_reaches_another_program(
    data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not on the list is refused before any plugin, as EPS and Ghostscript."""

    def fail(*args: object, **options: object) -> None:
        raise AssertionError("a program or a search for formats was started")

    monkeypatch.setattr(subprocess, "Popen", fail)
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", fail)
    monkeypatch.setattr(Image, "open", fail)
    assert reason(data) is Reason.UNSUPPORTED_FORMAT


def test_fault_86_bytes_before_and_behind() -> None:
    """Leading junk is damage; a tail is kept and counted, and cut by encoding."""
    for data in (saved(picture(), "JPEG"), make_png(2, 8)):
        assert reason(b"\0" + data) is Reason.NOT_AN_IMAGE
        tailed = data + b"PK\3\4 and a zip"
        result = prepared(tailed)
        assert result.data is tailed
        assert result.notes == (ImageNote.TRAILING_BYTES,)


def test_fault_87_extreme_sizes() -> None:
    """No pixels are damage, one is an image, a strip is an image with a note."""
    assert reason(ihdr(0, 0, 8, 2, False) + PIXELS + END) is Reason.DAMAGED_IMAGE
    assert reason(b"P6\n0 0\n255\n") is Reason.DAMAGED_IMAGE
    for kind in ("PNG", "JPEG", "BMP", "WEBP", "GIF"):
        assert prepared(saved(picture(height=1, width=1), kind)).info.width == 1
    strip = saved(picture("L", height=1, width=65_000), "JPEG")
    assert prepared(strip).notes == (ImageNote.THIN,)
    small = prepared(strip, ImagePolicy(resize=Resize("longer", 100)))
    assert (small.info.height, small.info.width) == (1, 100)


@pytest.mark.parametrize("data", [ARITHMETIC, ARITHMETIC_PROGRESSIVE])
def test_fault_89_rare_kinds_of_jpeg_are_decoded(data: bytes) -> None:
    """Arithmetic coding keeps its ramp through a resize."""
    result = prepared(data, ImagePolicy(output="png", resize=Resize("shorter", 4)))
    ramp = pixels(result.data).astype(int)
    assert (np.diff(ramp.mean(0)) > 0).all() or (np.diff(ramp.mean(1)) > 0).all()


def test_fault_89_what_cannot_be_kept_is_refused() -> None:
    """Floats, 32-bit integers, Lab and 12-bit JPEG never give wrong pixels silently."""
    for mode in ("F", "I"):
        data = saved(Image.new(mode, (4, 4), 70_000), "TIFF")
        assert reason(data) is Reason.UNSUPPORTED_FORMAT
    lab = saved(Image.new("LAB", (4, 4)), "TIFF")
    assert reason(lab) is Reason.UNSUPPORTED_FORMAT
    deep = flat_jpeg([(1, 1)], frame=0xC1, precision=12)
    assert reason(deep) is Reason.UNSUPPORTED_FORMAT


def test_fault_89_bmp_with_a_palette_keeps_its_colors() -> None:
    """TensorFlow would show the numbers of the palette: encoded as PNG, or refused."""
    image = picture().quantize(200)
    data = saved(image, "BMP")
    result = prepared(data)
    np.testing.assert_array_equal(pixels(result.data), np.asarray(image.convert("RGB")))
    assert reason(data, ImagePolicy(foreign="reject")) is Reason.UNSUPPORTED_FORMAT
    one_bit = picture("L").convert("1")
    np.testing.assert_array_equal(
        pixels(prepared(saved(one_bit, "BMP")).data), np.asarray(one_bit.convert("L"))
    )


# ---------------------------------------------------------------------------- changes


def test_results_are_deterministic_and_bare() -> None:
    """Twice the same bytes; of PNG only the chunks that make pixels."""
    image = picture()
    data = saved(
        image, "TIFF", dpi=(300, 300), description="words", icc_profile=b"x" * 99
    )
    first, second = prepared(data).data, prepared(bytes(bytearray(data))).data
    assert first == second
    kinds = []
    at = 8
    while at < len(first):
        (length,) = struct.unpack_from(">I", first, at)
        kinds.append(first[at + 4 : at + 8])
        at += 12 + length
    assert list(dict.fromkeys(kinds)) == [b"IHDR", b"IDAT", b"IEND"]
    again = prepared(first)
    assert again.data is first


@pytest.mark.parametrize(
    ("kind", "policy", "info"),
    [
        ("JPEG", ImagePolicy(output="png"), ImageInfo("png", 24, 40, 3)),
        ("PNG", ImagePolicy(output="jpeg"), ImageInfo("jpeg", 24, 40, 3)),
        ("BMP", ImagePolicy(output="jpeg"), ImageInfo("jpeg", 24, 40, 3)),
        ("BMP", ImagePolicy(channels=1), ImageInfo("png", 24, 40, 1)),
        ("JPEG", ImagePolicy(channels=1), ImageInfo("jpeg", 24, 40, 1)),
        ("JPEG", ImagePolicy(channels=4), ImageInfo("png", 24, 40, 4)),
        ("WEBP", ImagePolicy(output="jpeg"), ImageInfo("jpeg", 24, 40, 3)),
        ("PNG", ImagePolicy(resize=Resize("shorter", 12)), ImageInfo("png", 12, 20, 3)),
        ("JPEG", ImagePolicy(resize=Resize("crop", 9, 9)), ImageInfo("jpeg", 9, 9, 3)),
        ("GIF", ImagePolicy(resize=Resize("pad", 50, 60)), ImageInfo("png", 50, 60, 3)),
        (
            "JPEG",
            ImagePolicy(resize=Resize("exact", 50, 60, enlarge=True)),
            ImageInfo("jpeg", 50, 60, 3),
        ),
    ],
)
def test_formats_and_sizes(kind: str, policy: ImagePolicy, info: ImageInfo) -> None:
    """What comes out of each policy, as its own header says."""
    result = prepared(saved(picture(), kind), policy)
    assert result.info == info
    assert prepared(result.data).info[:4] == info[:4]


def test_smaller_images_are_counted() -> None:
    """A resize that may not enlarge says where it gave less than asked."""
    data = saved(picture(), "JPEG")
    for resize in (
        Resize("shorter", 30),
        Resize("longer", 50),
        Resize("exact", 20, 50),
        Resize("crop", 30, 30),
    ):
        policy = ImagePolicy(resize=resize)
        assert ImageNote.SMALLER_THAN_ASKED in prepared(data, policy).notes
    policy = ImagePolicy(resize=Resize("pad", 50, 50))
    assert prepared(data, policy).notes == ()


@pytest.mark.parametrize("mode", ["L", "LA", "RGB", "RGBA"])
def test_padding_is_black(mode: str) -> None:
    """Black is around the picture, transparent where there is alpha."""
    resize = Resize("pad", 30, 50)
    out = pixels(prepared(saved(picture(mode), "PNG"), ImagePolicy(resize=resize)).data)
    corner = np.atleast_1d(out[0, 0])
    assert set(corner[: len(mode.removesuffix("A"))]) == {0}
    assert not mode.endswith("A") or corner[-1] == 0
    np.testing.assert_array_equal(out[3:27, 5:45], np.asarray(picture(mode)))


@pytest.mark.parametrize(
    ("side", "filter"),
    [
        *((side, "bicubic") for side in (300, 130, 70, 40, 15)),
        *((70, filter) for filter in ("hamming", "bilinear", "lanczos")),
    ],
)
def test_scaled_decoding_is_close_to_a_full_one(
    side: int, filter: Literal["hamming", "bilinear", "bicubic", "lanczos"]
) -> None:
    """Photographs, or waves and noise: mean and largest error of the pixels."""
    files = real_images()[:4]
    files.append(saved(picture(height=611, width=801), "JPEG", quality=90))
    for data in files:
        resize = Resize("shorter", side, filter=filter)
        found = prepared(data, ImagePolicy(output="png", resize=resize))
        whole = Image.open(io.BytesIO(data))
        size = found.info.width, found.info.height
        exact = whole.resize(size, Image.Resampling[filter.upper()])
        error = np.abs(pixels(found.data).astype(int) - np.asarray(exact).astype(int))
        assert error.mean() < 1.5
        assert error.max() < 40
        assert np.percentile(error, 99) < 8


def tables_of(data: bytes) -> dict[int, list[int]]:
    image = Image.open(io.BytesIO(data))
    assert isinstance(image, JpegImageFile)
    return image.quantization


def test_quality_is_the_one_asked_for() -> None:
    """Better quality, more bytes; the tables are those of libjpeg at that quality."""
    data = saved(picture(height=100, width=100), "PNG")
    sizes = []
    for quality in (30, 75, 95):
        out = prepared(data, ImagePolicy(output="jpeg", quality=quality)).data
        sizes.append(len(out))
        reference = saved(picture(height=100, width=100), "JPEG", quality=quality)
        assert tables_of(out) == tables_of(reference)
    assert sizes == sorted(sizes)


def test_an_impossible_policy() -> None:
    """A policy that cannot be followed is a SpecError when it is made."""
    with pytest.raises(SpecError):
        ImagePolicy(channels=4, output="jpeg")


# ------------------------------------------------------------------------ class numbers

_COLORS = [0, 0, 0, 128, 0, 0, 0, 128, 0, 250, 250, 10]


def class_mask(mode: str, form: str = "PNG") -> bytes:
    """An image of four class numbers, at random places."""
    numbers = np.random.default_rng(0).integers(0, 4, (48, 64)).astype(np.uint16)
    if mode == "I;16":
        return saved(Image.fromarray(numbers * 1000), form)
    image = Image.fromarray(numbers.astype(np.uint8), mode)
    if mode == "P":
        image.putpalette(_COLORS)
    return saved(image, form)


@pytest.mark.parametrize("form", ["PNG", "GIF", "BMP", "TIFF"])
@pytest.mark.parametrize("rule", ["exact", "crop", "pad", "shorter"])
def test_palettes_are_never_mixed(form: str, rule: Any) -> None:
    """A resized palette image has the indices and the colors that it had, as PNG."""
    resize = Resize(rule, 24, 0 if rule == "shorter" else 32)
    found = prepared(class_mask("P", form), ImagePolicy(resize=resize))
    image = Image.open(io.BytesIO(found.data))
    assert (image.format, image.mode) == ("PNG", "P")
    assert np.unique(np.asarray(image)).tolist() == [0, 1, 2, 3]
    assert (image.getpalette() or [])[:12] == _COLORS
    assert found.info == ImageInfo("png", image.height, image.width, 3)


@pytest.mark.parametrize(
    ("mode", "numbers"),
    [("P", [0, 1, 2, 3]), ("L", [0, 1, 2, 3]), ("I;16", [0, 1000, 2000, 3000])],
)
@pytest.mark.parametrize(
    "policy",
    [
        ImagePolicy(resize=Resize("exact", 24, 32)),
        ImagePolicy(resize=Resize("pad", 30, 30), output="jpeg"),
        ImagePolicy(channels=3, output="jpeg"),
        ImagePolicy(channels=1),
    ],
)
def test_masks_keep_their_numbers(
    mode: str, numbers: list[int], policy: ImagePolicy
) -> None:
    """Whatever else happens to images, masks stay PNG of the numbers that they had."""
    found = prepared(class_mask(mode), policy.for_masks())
    image = Image.open(io.BytesIO(found.data))
    assert (image.format, image.mode) == ("PNG", mode)
    assert np.unique(np.asarray(image)).tolist() == numbers


def test_a_turned_palette_and_transparent_entries() -> None:
    """Turning moves indices, and entries that are transparent stay so."""
    image = Image.open(io.BytesIO(class_mask("P")))
    exif = Image.Exif()
    exif[274] = 6
    data = saved(image, "PNG", exif=exif, transparency=0)
    found = prepared(data, ImagePolicy(exif="apply"))
    turned = Image.open(io.BytesIO(found.data))
    assert found.info == ImageInfo("png", 64, 48, 4)
    assert turned.info["transparency"] == 0
    expected = np.rot90(np.asarray(image), -1)
    assert np.array_equal(np.asarray(turned), expected)
