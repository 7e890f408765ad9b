"""The policy for images from the command line to the records."""

import io
import json
import pathlib

import pytest
from PIL import Image

from tests.support.image_sources import encoded, noise, picture, tree
from tests.support.outputs import first_values, rejects
from tests.support.runs import convert, refused

# The stages' own code: what is tested here is not up to Beam.
pytestmark = pytest.mark.usefixtures("without_runner")

Folder = pathlib.Path


def sizes(directory: Folder) -> dict[str, tuple[int, int, int]]:
    """Returns height, width and depth as stored, after checking them by decoding."""
    out = {}
    for record in first_values(directory):
        shape = (record["height"], record["width"], record["depth"])
        image = Image.open(io.BytesIO(record["image"]))
        assert (image.height, image.width, len(image.getbands())) == shape
        out[record["filename"].decode().removeprefix("label/")] = shape
    return out


@pytest.mark.parametrize(
    ("resize", "large", "small"),
    [
        ("shorter:30", (30, 60, 3), (20, 10, 3)),
        ("longer:30", (15, 30, 3), (20, 10, 3)),
        ("exact:30x40", (30, 40, 3), (20, 10, 3)),
        ("crop:30x20", (30, 20, 3), (20, 10, 3)),
        ("pad:30", (30, 30, 3), (30, 30, 3)),
    ],
)
def test_resize(
    resize: str,
    large: tuple[int, int, int],
    small: tuple[int, int, int],
    tmp_path: Folder,
) -> None:
    """Every mode gives its size; small images stay small unless that is asked for."""
    source = tree(
        tmp_path / "in",
        large_png=encoded(noise(100, 200), "PNG"),
        small_png=encoded(noise(20, 10), "PNG"),
    )
    convert(source, tmp_path / "out", "--resize", resize)
    assert sizes(tmp_path / "out") == {"large.png": large, "small.png": small}


def test_resize_may_enlarge(tmp_path: Folder) -> None:
    """Where it is asked for, small images grow."""
    source = tree(tmp_path / "in", small_png=encoded(noise(20, 10), "PNG"))
    convert(source, tmp_path / "out", "--resize", "shorter:30", "--enlarge")
    assert sizes(tmp_path / "out") == {"small.png": (60, 30, 3)}


def test_what_needs_no_change_keeps_its_bytes(tmp_path: Folder) -> None:
    """Of images that are resized, those that fit already are not touched."""
    small = encoded(noise(20, 10))
    source = tree(tmp_path / "in", a_jpg=small, b_jpg=encoded(noise(100, 100)))
    convert(source, tmp_path / "out", "--resize", "shorter:40", "--image-quality", 80)
    found = {r["filename"]: r["image"] for r in first_values(tmp_path / "out")}
    assert found[b"label/a.jpg"] == small
    assert sizes(tmp_path / "out")["b.jpg"] == (40, 40, 3)


def test_fault_79_exif_orientation(tmp_path: Folder) -> None:
    """Orientation is left in the file and counted, or applied to the pixels."""
    exif = Image.Exif()
    exif[0x0112] = 6
    data = encoded(noise(20, 40), exif=exif)
    source = tree(tmp_path / "in", turned_jpg=data)
    run = convert(source, tmp_path / "keep")
    assert "orientation 1" in run.out
    (record,) = first_values(tmp_path / "keep")
    assert (record["image"], record["height"], record["width"]) == (data, 20, 40)
    convert(source, tmp_path / "apply", "--exif", "apply")
    assert sizes(tmp_path / "apply") == {"turned.jpg": (40, 20, 3)}
    (record,) = first_values(tmp_path / "apply")
    assert Image.open(io.BytesIO(record["image"])).getexif().get(0x0112, 1) == 1


@pytest.mark.parametrize(("channels", "depth"), [(1, 1), (3, 3), (4, 4)])
def test_fault_82_channels(channels: int, depth: int, tmp_path: Folder) -> None:
    """All images are brought to one number of channels."""
    source = tree(
        tmp_path / "in",
        gray_png=encoded(noise(5, 6, mode="L"), "PNG"),
        rgb_jpg=encoded(noise(5, 6)),
        rgba_png=encoded(noise(5, 6, mode="RGBA"), "PNG"),
    )
    convert(source, tmp_path / "out", "--channels", channels)
    assert {shape[2] for shape in sizes(tmp_path / "out").values()} == {depth}


@pytest.mark.parametrize(("form", "start"), [("jpeg", b"\xff\xd8"), ("png", b"\x89P")])
def test_one_output_format(form: str, start: bytes, tmp_path: Folder) -> None:
    """All images become JPEG, or PNG."""
    source = tree(
        tmp_path / "in",
        a_png=encoded(noise(5, 6), "PNG"),
        b_jpg=encoded(noise(5, 6)),
        c_bmp=encoded(noise(5, 6), "BMP"),
    )
    convert(source, tmp_path / "out", "--image-format", form)
    images = [record["image"] for record in first_values(tmp_path / "out")]
    assert len(images) == 3
    assert all(image.startswith(start) for image in images)


def test_limits(tmp_path: Folder) -> None:
    """Pixels and bytes are limited before anything is decoded."""
    source = tree(
        tmp_path / "in",
        few_png=encoded(noise(5, 6), "PNG"),
        many_png=encoded(noise(50, 60), "PNG"),
    )
    tolerant = ("--max-reject-rate", 0.5)
    convert(source, tmp_path / "a", "--max-pixels", 100, *tolerant)
    convert(source, tmp_path / "b", "--max-image-bytes", "1KB", *tolerant)
    reasons = [(r["source"], r["reason"]) for d in "ab" for r in rejects(tmp_path / d)]
    assert reasons == [
        ("label/many.png", "too_many_pixels"),
        ("label/many.png", "too_many_bytes"),
    ]


def test_fault_72_suffix_and_content(tmp_path: Folder) -> None:
    """A PNG that is named .jpg is stored unchanged and counted."""
    data = encoded(noise(5, 6), "PNG")
    run = convert(tree(tmp_path / "in", odd_jpg=data), tmp_path / "out")
    assert "suffix 1" in run.out
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["dataset"]["image_notes"] == {"suffix": 1}


def test_fault_83_first_frame_on_demand(tmp_path: Folder) -> None:
    """An animation is rejected, or its first frame is taken."""
    frames = [Image.new("RGB", (6, 5), color) for color in ("red", "blue")]
    data = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    source = tree(tmp_path / "in", moving_gif=data, still_png=picture("PNG"))
    convert(source, tmp_path / "a", "--max-reject-rate", 0.5)
    assert [r["reason"] for r in rejects(tmp_path / "a")] == ["animated_image"]
    convert(source, tmp_path / "b", "--animations", "first")
    found = {r["filename"]: r["image"] for r in first_values(tmp_path / "b")}
    first = Image.open(io.BytesIO(found[b"label/moving.gif"])).convert("RGB")
    assert first.getpixel((0, 0)) == (255, 0, 0)


@pytest.mark.parametrize(
    "options",
    [
        ("--resize", "wide:30"),
        ("--resize", "shorter:0"),
        ("--resize", "shorter:30x40"),
        ("--channels", 2),
        ("--image-quality", 101),
        ("--channels", 4, "--image-format", "jpeg"),
    ],
)
def test_settings_that_make_no_sense(
    options: tuple[object, ...], tmp_path: Folder
) -> None:
    """Each is reported before anything is read."""
    refused(2, tree(tmp_path / "in", a_png=picture("PNG")), tmp_path / "out", *options)


def test_workers_and_chunks_do_not_decide_bytes(tmp_path: Folder) -> None:
    """Resized images are the same bytes with one worker or two."""
    files = {f"i{n}_jpg": encoded(noise(40 + n, 50)) for n in range(24)}
    source = tree(tmp_path / "in", **files)
    for workers in (1, 2):
        options = ("--resize", "shorter:20", "--workers", workers, "--name", "x")
        convert(source, tmp_path / f"out{workers}", *options, "--shards", 2)
    first, second = (
        [p.read_bytes() for p in sorted((tmp_path / f"out{n}").glob("x-train*"))]
        for n in (1, 2)
    )
    assert len(first) == 2
    assert first == second


def test_fault_129_same_image_in_two_splits(tmp_path: Folder) -> None:
    """The same bytes in train and test are reported with their places."""
    for place in ("train/a/1.png", "test/a/2.png", "train/a/3.png"):
        path = tmp_path / "in" / place
        path.parent.mkdir(parents=True, exist_ok=True)
        seed = 9 if place == "train/a/3.png" else 8
        path.write_bytes(encoded(noise(seed, 5), "PNG"))
    run = convert(tmp_path / "in", tmp_path / "out")
    (note,) = [line for line in run.out.splitlines() if "note" in line]
    assert "train/a/1.png" in run.out
    assert "test/a/2.png" in run.out
    assert "3.png" not in run.out
    assert note
