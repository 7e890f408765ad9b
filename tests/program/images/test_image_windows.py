"""Whole conversions through buffers of images give the bytes of single reads."""

import collections
import pathlib

import pytest

from tests.support.drawn_images import picture, saved
from tests.support.image_sources import encoded, noise, tree
from tests.support.outputs import contents, dataset
from tests.support.runs import convert
from transforms.shards import image_window
from transforms.shards.image_window import ImageWindows

Folder = pathlib.Path


def _source(folder: Folder) -> Folder:
    images = {f"plain{i}": encoded(noise(8 + i % 3, 9)) for i in range(60)}
    images |= {f"cut{i}": encoded(noise(8, 9))[:-5] for i in range(5)}
    images |= {f"other{i}_png": encoded(noise(8, 9), "PNG") for i in range(5)}
    images["tail"] = saved(picture(), "JPEG") + b"tail"
    images["suffix_png"] = saved(picture(), "JPEG")
    images["empty"] = b""
    return tree(folder, **images)


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--no-shuffle",),
        ("--splits", "train=0.6,test=0.4", "--shard-size", "4KB"),
        ("--compression", "gzip"),
        ("--exif", "apply", "--preset", "imagenet"),
    ],
)
def test_windows_change_no_byte(
    options: tuple[str, ...], tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shards, rejects and the manifest's facts are equal."""
    source = _source(tmp_path / "in")
    spare: collections.deque[memoryview] = collections.deque()
    monkeypatch.setattr(image_window, "spare_buffers", spare)
    found = []
    for way in ("windows", "single"):
        output = tmp_path / way / "out"
        output.parent.mkdir()
        if way == "single":
            monkeypatch.setattr(ImageWindows, "suits", lambda _: False)
        convert(source, output, "--max-reject-rate", "0.5", *options)
        found.append((contents(output), dataset(output)))
    # Buffers were used, and are kept for the next shard.
    assert spare
    assert found[0] == found[1]
