"""How images are loaded changes no image, fault, note or order."""

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.support.drawn_images import picture, saved
from transforms.core.image.policy import ImagePolicy
from transforms.core.placing.sharding import ShardRows
from transforms.core.reasons import Fault, Reason
from transforms.core.schema import Feature, Kind
from transforms.core.segment import STAMP_COLUMN
from transforms.shards import image_loading
from transforms.shards.image_loading import (
    ImageColumn,
    Loaded,
    LoadedImage,
    load_image,
    load_images,
)
from transforms.storage.files import storage

_IMAGE = Feature("image", Kind.IMAGE)
_FEATURES = (_IMAGE, Feature("views", Kind.IMAGE, shape=(None,)))
_POLICY = ImagePolicy(max_bytes=50_000)
_DATA = saved(picture(), "JPEG")


def _rows(folder: Path, count: int) -> ShardRows:
    """Rows with one image and lists of images; some are missing, broken or absent."""
    names: list[str | None] = []
    stamps = []
    for number in range(count):
        path = folder / f"{number}.jpg"
        data = saved(picture(height=8 + number % 5, width=9), "JPEG")
        path.write_bytes(data[:-2] if number % 7 == 3 else data)
        stamps.append(storage(str(path)).stat_entry(str(folder)).stamp)
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


def _results(folder: Path, rows: ShardRows) -> list[tuple[int, list[Loaded]]]:
    return [
        (position, [column.values[i] for column in columns])
        for chunk, positions, columns in load_images(
            rows, _FEATURES, root=str(folder), policy=ImagePolicy()
        )
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
    monkeypatch.setattr(image_loading, "_is_far", lambda *_: True)
    assert _results(tmp_path, rows) == found


def _one_a_row(paths: list[str], stamps: list[int] | None = None) -> ShardRows:
    columns: dict[str, list[str] | list[int]] = {"image": paths}
    if stamps is not None:
        columns[STAMP_COLUMN] = stamps
    order = np.arange(len(paths))
    return ShardRows(pa.table(columns), order, ("x",), np.array([0]))


# ------------------------------------------------------------------ files of every kind


def _tree(folder: Path) -> tuple[list[str], list[int]]:
    """Files of every kind: plain, unusual, damaged, gone, changed, large, no file."""
    paths, stamps = [], []
    for number in range(150):
        name = f"{number}.jpg"
        data = saved(picture(height=8 + number % 5, width=9 + number % 7), "JPEG")
        kind = number % 15
        if kind == 2:
            data = data[:-2]
        elif kind == 3:
            data = saved(picture(height=9, width=9), "PNG")
        elif kind == 4:
            data += b"tail"
        elif kind == 5:
            data = saved(picture(height=9, width=9), "JPEG", progressive=True)
        elif kind == 6:
            name = f"{number}.png"
        elif kind == 7:
            data = b""
        elif kind == 8:
            data += bytes(60_000 if number % 2 else 30_000)
        elif kind == 9:
            name = f"é{number}.jpg"
        path = folder / name
        path.write_bytes(data)
        stamp = storage(str(path)).stat_entry(str(folder)).stamp
        if kind == 9:
            # As a table may say it: in the other Unicode form.
            name = f"e\u0301{number}.jpg"
        elif kind == 10:
            path.unlink()
        elif kind == 11:
            path.write_bytes(data + b"more")
        elif kind == 12:
            path.unlink()
            os.mkfifo(path)
        elif kind == 13:
            name = f"file://{path}"
        elif kind == 14:
            name = str(path)
        paths.append(name)
        stamps.append(0 if number % 4 == 0 else stamp)
    return paths, stamps


def _reasons(kind: int, number: int) -> set[Reason]:
    """The reason why a file of `_tree` is refused; none for a sound one."""
    is_stamped = number % 4 != 0
    match kind:
        case 2:
            return {Reason.DAMAGED_IMAGE}
        case 7:
            return {Reason.EMPTY_FILE}
        case 8 if number % 2:
            return {Reason.TOO_MANY_BYTES}
        case 10:
            return {Reason.CHANGED_DURING_RUN if is_stamped else Reason.UNREADABLE}
        case 11 if is_stamped:
            return {Reason.CHANGED_DURING_RUN}
        case 12:
            return {Reason.UNREADABLE}
    return set()


@pytest.mark.parametrize("chunk_bytes", [1 << 20, 4_000, 1])
@pytest.mark.parametrize("far", [False, True])
def test_a_loader_loads_what_a_reader_of_single_images_loads(
    far: bool, chunk_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Images, faults and notes, whatever the way and the size of chunks."""
    monkeypatch.setattr(image_loading, "_is_far", lambda *_: far)
    monkeypatch.setattr(image_loading, "_CHUNK_BYTES", chunk_bytes)
    paths, stamps = _tree(tmp_path)
    root = str(tmp_path)
    expected = [
        load_image(path, stamp, root, _POLICY)
        for path, stamp in zip(paths, stamps, strict=True)
    ]
    rows = _one_a_row(paths, stamps)
    chunks = load_images(rows, [_IMAGE], root=root, policy=_POLICY)
    found = [image for *_, (column,) in chunks for image in column.images]
    assert found == expected
    for number, image in enumerate(found):
        fault = {image.result.reason} if isinstance(image.result, Fault) else set()
        assert fault == _reasons(number % 15, number), number


@pytest.mark.parametrize(
    "changed", [_DATA + b"x", _DATA[:-1], _DATA[:100], b"", _DATA + bytes(100_000)]
)
def test_a_file_that_grows_or_shrinks_while_it_is_read(
    changed: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its stamp is another one than when it was listed."""
    path = tmp_path / "a.jpg"
    path.write_bytes(_DATA)
    stamp = storage(str(path)).stat_entry(str(tmp_path)).stamp
    real = os.pread

    def read(descriptor: int, size: int, start: int) -> bytes:
        path.write_bytes(changed)
        return real(descriptor, size, start)

    monkeypatch.setattr(os, "pread", read)
    image = load_image("a.jpg", stamp, str(tmp_path), _POLICY)
    assert image is not None
    assert isinstance(image.result, Fault)
    assert image.result.reason is Reason.CHANGED_DURING_RUN


# -------------------------------------------------------------------- columns of images


@pytest.fixture
def two(tmp_path: Path) -> list[LoadedImage | None]:
    """A JPEG of 8 x 9 pixels and a PNG of 3 x 4."""
    images = {
        "a.jpg": saved(picture(height=8, width=9), "JPEG"),
        "b.png": saved(picture(height=3, width=4), "PNG"),
    }
    for name, data in images.items():
        (tmp_path / name).write_bytes(data)
    return [load_image(name, 0, str(tmp_path), _POLICY) for name in images]


def test_values_are_where_their_images_are(two: list[LoadedImage | None]) -> None:
    """In rows with one image, none, and lists of them."""
    first, second = two
    height = Feature("height", Kind.INT64, derived="height")
    heights = Feature("heights", Kind.INT64, shape=(None,), derived="height")
    assert ImageColumn([first, second]).derived(height).to_pylist() == [8, 3]
    column = ImageColumn([None, second, first])
    assert column.derived(height).to_pylist() == [None, 3, 8]
    assert (list(column.rows), column.are_single) == ([1, 2], False)
    column = ImageColumn([[second, first], None, [], [first]])
    assert column.derived(heights).to_pylist() == [[3, 8], None, [], [8]]
    assert (list(column.rows), column.are_single) == ([0, 0, 3], False)
    assert column.take([0, 2]).derived(heights).to_pylist() == [[3, 8], []]
    facts = column.statistics
    assert (facts.present, facts.fewest, facts.most) == (3, 0, 2)
    prints = column.fingerprints()
    assert prints[0] != prints[1] == prints[2]


def test_a_column_of_no_images() -> None:
    """A chunk whose images are all refused has no sizes."""
    column = ImageColumn([])
    assert len(column.take([])) == 0
    facts = column.statistics
    assert (facts.present, facts.minimum) == (0, None)
    assert column.crcs.dtype == np.uint32
