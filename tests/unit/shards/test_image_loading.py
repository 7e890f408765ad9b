"""How images are loaded: where they are changes no image, fault or order."""

import dataclasses
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.support.drawn_images import picture, saved
from transforms import files
from transforms.core.image.policy import ImagePolicy
from transforms.core.placing.shard_rows import ShardRows
from transforms.core.schema import Feature, Kind
from transforms.core.segment import STAMP_COLUMN
from transforms.shards import image_loading
from transforms.shards.image_loading import ImageLoader
from transforms.shards.loaded_images import Loaded, loaded_items

_FEATURES = (
    Feature("image", Kind.IMAGE),
    Feature("views", Kind.IMAGE, shape=(None,)),
)


def _rows(folder: Path, count: int) -> ShardRows:
    """Rows with one image and lists of images; some are missing, broken or absent."""
    names: list[str | None] = []
    stamps = []
    for number in range(count):
        path = folder / f"{number}.jpg"
        data = saved(picture(height=8 + number % 5, width=9), "JPEG")
        path.write_bytes(data[:-2] if number % 7 == 3 else data)
        stamps.append(files.stat_entry(str(path), str(folder)).stamp)
        if number % 11 == 5:
            path.unlink()
        names.append(None if number % 13 == 8 else path.name)
    views = [names[i : i + i % 3] if i % 5 else None for i in range(count)]
    table = pa.table(
        {
            "image": pa.array(names, pa.string()),
            "views": pa.array(views, pa.list_(pa.string())),
            STAMP_COLUMN: [
                0 if i % 3 else stamp + (i % 17 == 6) for i, stamp in enumerate(stamps)
            ],
        }
    )
    order = np.random.default_rng(1).permutation(count)
    return ShardRows(table, order, ("x",), np.array([0]))


def _results(folder: Path, rows: ShardRows) -> list[tuple[int, list[object]]]:
    def result(loaded: Loaded) -> list[object]:
        if loaded is None or isinstance(loaded, list):
            return [type(loaded), *loaded_items(loaded)]
        return [loaded]

    return [
        (position, [result(each[i]) for each in images])
        for chunk, positions, images in ImageLoader(
            rows, _FEATURES, root=str(folder), policy=ImagePolicy()
        ).chunks()
        for i, position in enumerate(positions.tolist())
    ]


@pytest.mark.parametrize("count", [0, 1, 5, 40, 700])
def test_threads_do_not_change_what_is_loaded(
    count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Images, faults and their order are the same from a disk and from a store."""
    rows = _rows(tmp_path, count)
    found = _results(tmp_path, rows)
    assert [position for position, _ in found] == rows.order.tolist()
    monkeypatch.setattr(image_loading, "_are_far", lambda *_: True)
    assert _results(tmp_path, rows) == found


@pytest.mark.parametrize("far", [False, True])
def test_rows_of_many_boxes_come_in_small_chunks(
    far: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What rows have beside their images bounds a chunk, and changes no image."""
    monkeypatch.setattr(image_loading, "_are_far", lambda *_: far)
    rows = _rows(tmp_path, 40)
    boxes = pa.array([[[1.0, 2.0, 3.0, 4.0]] * 100] * 40)
    wide = dataclasses.replace(rows, table=rows.table.append_column("boxes", boxes))
    before = _results(tmp_path, rows)
    monkeypatch.setattr(image_loading, "_MAX_ROW_BYTES", 10_000)
    assert _results(tmp_path, wide) == before
    loader = ImageLoader(wide, _FEATURES, root=str(tmp_path), policy=ImagePolicy())
    assert {len(chunk) for chunk, _, _ in loader.chunks()} <= {1, 2, 3}
