"""Which threads load images: decided by waits, without effect on what is loaded."""

import dataclasses
import resource
import threading
import time
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
from transforms.shards import image_loading, load_pace
from transforms.shards.image_loading import ImageLoader
from transforms.shards.load_pace import (
    FAR,
    HERE,
    NEAR,
    LoadTimes,
    Pace,
    pace_for,
)
from transforms.shards.loaded_images import Loaded, loaded_items
from transforms.storage.file_systems import CONNECTIONS

_LONG_SECONDS = 5e-3
_FEATURES = (
    Feature("image", Kind.IMAGE),
    Feature("views", Kind.IMAGE, shape=(None,)),
)


@pytest.mark.parametrize(
    ("wait", "busy", "threads"),
    [
        (0, 0, 0),
        (49e-6, 400e-6, 0),
        (0, 600e-6, 2),
        (50e-6, 0, 2),
        (200e-6, 0, 8),
        (800e-6, 0, 32),
        (1e-3, 0, CONNECTIONS),
        (1, 0, CONNECTIONS),
    ],
)
def test_threads_for_waits(wait: float, busy: float, threads: int) -> None:
    """The longer a read waits, the more threads wait side by side."""
    assert pace_for(wait, busy).threads == threads


def test_rows_that_do_not_wait_are_loaded_by_the_calling_thread() -> None:
    """Four rows decide at first; later chunks are measured with 16 each."""
    times = LoadTimes()
    assert times.is_due()
    assert times.measure(iter(range(100))) == [0, 1, 2, 3]
    assert times.pace == HERE
    assert times.is_due()
    assert times.measure(iter(range(100))) == list(range(16))
    assert times.measure(iter(range(3))) == [0, 1, 2]
    assert times.pace == HERE


def test_the_first_long_wait_decides() -> None:
    """Where reads wait for long, one is enough; threads then load for a while."""
    times = LoadTimes()
    calls: list[int] = []

    def wait(row: int) -> int:
        calls.append(row)
        time.sleep(_LONG_SECONDS)
        return row

    assert times.measure(map(wait, range(100))) == calls == [0]
    assert times.pace == FAR
    assert not times.is_due()


def _wait(seconds: float) -> float:
    if seconds:
        time.sleep(seconds)
    return seconds


def test_a_single_wait_does_not_bring_threads() -> None:
    """Of the rows of the calling thread the median decides, in either direction."""
    times = LoadTimes()
    times.measure(iter(range(4)))
    times.measure(map(_wait, [0, 0, _LONG_SECONDS, *[0] * 13]))
    assert times.pace == HERE
    times.measure(map(_wait, [_LONG_SECONDS] * 16))
    assert times.pace == FAR


def test_other_rows_need_not_wait_for_the_first() -> None:
    """While a row takes long, others are loaded by threads; then it decides."""
    times = LoadTimes()
    ready = threading.Event()
    loading = times.begin(lambda: ready.wait(60))
    assert not loading.done()
    assert times.pace == FAR
    assert not times.is_due()
    ready.set()
    assert loading.result(60)
    assert times.pace == FAR
    assert not times.is_due()


def test_a_first_row_that_does_not_wait_decides_nothing() -> None:
    """Nor does one that fails: further rows are measured."""
    times = LoadTimes()
    assert times.begin(lambda: 7).result(60) == 7
    assert times.is_due()
    with pytest.raises(StopIteration):
        times.begin(lambda: next(iter([]))).result(60)
    assert times.is_due()
    assert times.pace == NEAR


def test_a_first_row_that_takes_long_and_computes_brings_no_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Meanwhile other rows are loaded by threads; then the pace is as it was."""
    monkeypatch.setattr(load_pace, "_pauses", lambda: 7)
    times = LoadTimes()
    loading = times.begin(lambda: _wait(20 * _LONG_SECONDS))
    assert times.pace == FAR
    loading.result(60)
    assert times.pace == NEAR
    assert times.is_due()


def test_a_pace_that_is_confirmed_is_measured_less_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After 1 second, 2, 4 and so on up to 64; another pace begins with 1 again."""
    now = 1000.0
    monkeypatch.setattr(load_pace, "_REST", 0)
    monkeypatch.setattr(time, "perf_counter", lambda: now)
    paces = iter([*[FAR] * 9, NEAR, NEAR])
    monkeypatch.setattr(load_pace, "pace_for", lambda *_: next(paces))
    times = LoadTimes()
    for rest in (1, 2, 4, 8, 16, 32, 64, 64, 64, 1, 2):
        assert times.is_due()
        times.measure(iter(range(1)))
        now += rest - 0.1
        assert not times.is_due()
        now += 0.1


def test_time_of_other_processes_is_no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that never paused had no processor; where none counts, all time counts."""
    times = LoadTimes()
    with monkeypatch.context() as patch:
        patch.setattr(load_pace, "_pauses", lambda: 7)
        times.measure(map(_wait, [_LONG_SECONDS] * 4))
    assert times.pace == HERE
    monkeypatch.delattr(resource, "RUSAGE_THREAD")
    times.measure(map(_wait, [_LONG_SECONDS] * 16))
    assert times.pace == FAR


def test_no_rows_decide_nothing() -> None:
    """A shard whose rows are all refused has none to measure."""
    times = LoadTimes()
    assert times.measure(iter(range(0))) == []
    assert times.is_due()


class _Fixed(LoadTimes):
    """Takes one pace from the second chunk on, whatever is measured."""

    def __init__(self, pace: Pace) -> None:
        super().__init__()
        self._fixed = pace
        self._asked = False

    def is_due(self) -> bool:
        """Each second time, so that chunks with and without measured rows mix."""
        self.pace = self._fixed
        self._asked = not self._asked
        return self._asked


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
def test_the_pace_does_not_change_what_is_loaded(
    count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Images, faults and their order are the same at every pace."""
    rows = _rows(tmp_path, count)
    found = []
    for pace in (HERE, NEAR, FAR, pace_for(100e-6, 0)):
        monkeypatch.setattr(image_loading, "_times", _Fixed(pace))
        found.append(_results(tmp_path, rows))
    assert [position for position, _ in found[0]] == rows.order.tolist()
    assert all(one == found[0] for one in found)


@pytest.mark.parametrize("pace", [HERE, NEAR])
def test_rows_of_many_boxes_come_in_small_chunks(
    pace: Pace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What rows have beside their images bounds a chunk, and changes no image."""
    monkeypatch.setattr(image_loading, "_times", _Fixed(pace))
    rows = _rows(tmp_path, 40)
    boxes = pa.array([[[1.0, 2.0, 3.0, 4.0]] * 100] * 40)
    wide = dataclasses.replace(rows, table=rows.table.append_column("boxes", boxes))
    before = _results(tmp_path, rows)
    monkeypatch.setattr(image_loading, "_MAX_ROW_BYTES", 10_000)
    assert _results(tmp_path, wide) == before
    loader = ImageLoader(wide, _FEATURES, root=str(tmp_path), policy=ImagePolicy())
    assert {len(chunk) for chunk, _, _ in loader.chunks()} <= {1, 2, 3}


def test_images_that_wait_are_read_side_by_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the first slow read, many threads read, and what they read is the same."""
    rows = _rows(tmp_path, 100)
    readers: set[int] = set()
    real = files.read_stamped

    def read(path: str, limit: int | None = None) -> tuple[bytes, int]:
        readers.add(threading.get_ident())
        time.sleep(_LONG_SECONDS)
        return real(path, limit)

    monkeypatch.setattr(files, "read_stamped", read)
    monkeypatch.setattr(image_loading, "_times", LoadTimes())
    slow = _results(tmp_path, rows)
    assert len(readers) > 10
    monkeypatch.setattr(files, "read_stamped", real)
    monkeypatch.setattr(image_loading, "_times", _Fixed(HERE))
    assert _results(tmp_path, rows) == slow
