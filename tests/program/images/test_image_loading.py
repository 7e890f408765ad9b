"""Whole conversions give the same bytes, however images are loaded."""

import pathlib

import pytest

from tests.support.drawn_images import picture, saved
from tests.support.image_sources import encoded, noise, tree
from tests.support.outputs import contents, dataset
from tests.support.runs import convert
from transforms.shards import image_loading

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
        ("--splits", "train=0.6,test=0.4", "--shard-size", "4KB"),
        ("--exif", "apply", "--preset", "imagenet"),
    ],
)
def test_ways_of_loading_change_no_byte(
    options: tuple[str, ...], tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shards, rejects and the manifest's facts are equal."""
    source = _source(tmp_path / "in")
    ways = {
        "here": (False, 12 << 20),
        "threads": (True, 12 << 20),
        "pieces": (False, 1_000),
    }
    found = []
    for name, (far, chunk_bytes) in ways.items():
        output = tmp_path / name / "out"
        output.parent.mkdir()
        monkeypatch.setattr(image_loading, "_is_far", lambda *_, far=far: far)
        monkeypatch.setattr(image_loading, "_CHUNK_BYTES", chunk_bytes)
        convert(source, output, "--max-reject-rate", "0.5", *options)
        found.append((contents(output), dataset(output)))
    assert found[0] == found[1] == found[2]
