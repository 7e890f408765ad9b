"""Damaged archives as sources: items, rejects or one typed error."""

import json
import pathlib
import random

import pytest

from tests.conftest import Headline
from tests.support.archives import WRITERS, with_right_checksums
from tests.support.drawn_images import picture, saved
from tests.support.fuzzing import Subject, fuzzed, mutated
from tests.support.stress import CASES

Folder = pathlib.Path

PNG = saved(picture(height=5, width=7), "PNG")
JPEG = saved(picture(height=9, width=8), "JPEG", quality=60)
IMAGES = {"train/cat/1.png": PNG, "train/개/2.jpg": JPEG, "test/cat/3.png": b"no"}
TABLES = {"a.csv": b"n,t\n1,x\n2,y\n", "b/b.csv": b"n,t\n3,z\n"}
SAMPLES = {
    "0001.jpg": JPEG,
    "0001.cls": b"3",
    "0001.json": json.dumps({"caption": "글", "n": [1, 2]}).encode(),
    "0002.jpg": JPEG,
    "0002.cls": b"4",
    "0002.json": json.dumps({"caption": "b", "n": [3]}).encode(),
}
SUFFIXES = {
    "zip": "zip",
    "zip-stored": "zip",
    "tar-pax": "tar",
    "tar-gnu": "tar",
    "tar.gz": "tar.gz",
    "tar.zst": "tar.zst",
    "tar.xz": "tar.xz",
}
HELD = {"images": IMAGES, "tables": TABLES, "samples": SAMPLES}


def with_checksums_half(data: bytes, rng: random.Random) -> bytes:
    """Damage; in every second tar under checksums of headers that are right again."""
    out = mutated(data, rng)
    return with_right_checksums(out) if rng.random() < 0.5 else out


KINDS = {
    kind: tuple(
        Subject(f"{name}.{suffix}", WRITERS[name](files))
        for name, suffix in SUFFIXES.items()
        # Images and samples look alike in a zip.
        if kind != "samples" or suffix != "zip"
    )
    for kind, files in HELD.items()
}


@pytest.mark.parametrize("cases", CASES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_damaged_archives(
    kind: str, cases: range, tmp_path: Folder, headline: Headline
) -> None:
    """Any damage gives items, rejects or one typed error, soon."""
    outcomes = fuzzed(
        tmp_path,
        KINDS[kind],
        cases,
        change=with_checksums_half,
        planned_before=False,
    )
    assert outcomes["error"] > len(cases) // 4, outcomes
    assert outcomes["clean"] + outcomes["rejected"] > len(cases) // 50, outcomes
    headline(
        "H5", f"{{}} damaged archives of {kind}: no crash, hang or loss", len(cases)
    )
