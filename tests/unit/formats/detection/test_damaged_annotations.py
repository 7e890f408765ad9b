"""Annotations that are cut and changed: rows, rejections or one error, soon."""

import pathlib
import random
from collections import Counter
from collections.abc import Mapping

import pytest

from tests.support.box_layouts import write_layout
from tests.support.detection import read_planned
from tests.support.fuzzing import at_most, mutated
from transforms.errors import MAX_MESSAGE_BYTES, BeamTFRecordError

Folder = pathlib.Path
_CASES = 30
_TOKENS: Mapping[str, tuple[bytes, ...]] = {
    "yolo": (b"nan", b"1e999", b"-", b" ", b"\n", b"9" * 400, b"\0", b"&a [*a]", b"{"),
    "boxes_csv": (b",", b'"', b"\n", b"nan", b"1e999", b"9" * 400, b"a.jpg", b";"),
    "labelme": (b"null", b"[", b"{}", b"1e999", b"NaN", b'"', b"9" * 5000, b"\\ud800"),
}


@pytest.mark.parametrize(
    ("layout", "path"),
    [
        ("yolo", "data.yaml"),
        ("yolo", "train/labels/a.txt"),
        ("boxes_csv", "train_labels.csv"),
        ("labelme", "train/images/a.json"),
    ],
)
def test_damage(layout: str, path: str, tmp_path: Folder) -> None:
    """The account holds, and a message fits; nothing else is raised."""
    root = write_layout(tmp_path / "in", layout)
    good = (root / path).read_bytes()
    assert len(read_planned(root, format=layout).rows) == 3
    outcomes: Counter[str] = Counter()
    sizes = [1]
    for case in range(_CASES):
        rng = random.Random(f"{path} {case}")
        data = good[: rng.randrange(len(good))]
        if case % 3:
            data = mutated(good, rng, _TOKENS[layout])
        (root / path).write_bytes(data)
        try:
            with at_most():
                found = read_planned(root, format=layout)
        except BeamTFRecordError as error:
            outcomes["error"] += 1
            sizes.append(len(str(error).encode()))
        except BaseException as error:
            error.add_note(f"case {case}: {data!r:.2000}")
            raise
        else:
            outcomes["rejected" if found.rejections else "clean"] += 1
    assert 0 < min(sizes) <= max(sizes) <= MAX_MESSAGE_BYTES
    assert outcomes["clean"] + outcomes["rejected"] > _CASES // 10, outcomes
