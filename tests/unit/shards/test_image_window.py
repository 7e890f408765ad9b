"""Images read into a buffer: what is loaded is what `load_image` loads."""

import concurrent.futures
import os
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest

from tests.support.drawn_images import picture, saved
from transforms import files
from transforms.core.image.policy import ImagePolicy
from transforms.core.model import Reason
from transforms.core.reasons import Fault
from transforms.shards import image_window
from transforms.shards.image_reading import load_image
from transforms.shards.image_window import ImageWindows
from transforms.shards.load_pace import FAR, HERE, LoadTimes
from transforms.shards.loaded_images import ImageColumn, LoadedImage, derived_value

_Row = TypeVar("_Row")
_POLICY = ImagePolicy(max_bytes=50_000)
_DATA = saved(picture(), "JPEG")
_DERIVED = "height width depth format codec colorspace sha256".split()


class _Here(LoadTimes):
    """Reads in the calling thread, whatever is measured."""

    def measure(self, loading: Iterator[_Row]) -> list[_Row]:
        """Measures as ever, and decides otherwise."""
        rows = super().measure(loading)
        self.pace = HERE
        return rows


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
        stamp = files.stat_entry(str(path), str(folder)).stamp
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


def _facts(image: LoadedImage) -> tuple[object, ...]:
    derived = {}
    if image.is_sound:
        derived = {name: derived_value(name, image) for name in _DERIVED}
        result = (image.prepared.data, image.prepared.source, image.prepared.geometry)
        return (image.data, *result, image.notes, derived)
    return (image.data, image.result)


@pytest.mark.parametrize(
    ("window", "group"), [(1 << 20, 1 << 19), (40_000, 4000), (1200, 300), (300, 1)]
)
def test_a_window_loads_what_a_reader_of_single_images_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window: int, group: int
) -> None:
    """Images, faults, notes and derived values, whatever the size of the buffer."""
    monkeypatch.setattr(image_window, "spare_buffers", deque())
    monkeypatch.setattr(image_window, "_WINDOW_BYTES", window)
    monkeypatch.setattr(image_window, "_GROUP_BYTES", group)
    paths, stamps = _tree(tmp_path)
    root = str(tmp_path)
    expected = []
    for path, stamp in zip(paths, stamps, strict=True):
        image = load_image(path, stamp, root, _POLICY)
        assert image is not None
        expected.append(image)
    found: list[tuple[object, ...]] = []
    row = plain = 0
    with ImageWindows(root, _POLICY) as windows:
        while row < len(paths):
            column = windows.fill(paths[row:], stamps[row:], _Here())
            assert len(column) > 0
            whole = ImageColumn.of(expected[row : row + len(column)])
            assert [bytes(each) for each in column.payloads] == whole.payloads
            assert column.crcs.tolist() == whole.crcs.tolist()
            found += map(_facts, column)
            sound = [i for i, image in enumerate(whole) if image.is_sound]
            ours, theirs = column.take(sound), whole.take(sound)
            assert ours.facts == theirs.facts
            assert ours.geometries == theirs.geometries
            for name in _DERIVED:
                expected_values = [derived_value(name, whole[i]) for i in sound]
                assert ours.derived(name) == expected_values
            for again in (False, True):
                prints = ours.fingerprints(readable_again=again)
                assert prints == theirs.fingerprints(readable_again=again)
            row += len(column)
            plain += sum(each is not None for each in column.plain)
    assert found == [_facts(image) for image in expected]
    assert plain == (40 if window > 1000 else 0)


def test_a_buffer_waits_for_the_writing_of_its_images(tmp_path: Path) -> None:
    """The third column goes where the first one was, when that has been written."""
    path = tmp_path / "a.jpg"
    path.write_bytes(saved(picture(), "JPEG"))
    load_image("a.jpg", 0, str(tmp_path), _POLICY)
    writing: list[concurrent.futures.Future[None]] = []
    with ImageWindows(str(tmp_path), _POLICY) as windows:
        for _ in range(2):
            windows.fill(["a.jpg"], [0], _Here())
            writing.append(concurrent.futures.Future())
            windows.keep_until(writing[-1])
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            third = pool.submit(windows.fill, ["a.jpg"], [0], _Here())
            with pytest.raises(TimeoutError):
                third.result(timeout=0.1)
            writing[0].set_result(None)
            assert len(third.result(timeout=60)) == 1
        windows.keep_until(writing[1])
        writing[1].set_result(None)


def test_a_failed_write_is_raised_before_its_buffer_is_used_again(
    tmp_path: Path,
) -> None:
    """What could not be written is not overwritten in silence."""
    failed: concurrent.futures.Future[None] = concurrent.futures.Future()
    failed.set_exception(OSError("no room"))
    with ImageWindows(str(tmp_path), _POLICY) as windows:
        windows.fill(["absent.jpg"], [0], _Here())
        windows.keep_until(failed)
        windows.fill(["absent.jpg"], [0], _Here())
        with pytest.raises(OSError, match="no room"):
            windows.fill(["absent.jpg"], [0], _Here())


def test_a_window_ends_where_reads_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One slow file is read; threads are to read the others."""
    (tmp_path / "a.jpg").write_bytes(saved(picture(), "JPEG"))
    real = files.read_into

    def read_into(
        paths: list[str], buffer: memoryview, enough: int
    ) -> list[tuple[int, int]]:
        time.sleep(5e-3)
        return real(paths, buffer, enough)

    monkeypatch.setattr(files, "read_into", read_into)
    times = LoadTimes()
    with ImageWindows(str(tmp_path), _POLICY) as windows:
        assert len(windows.fill(["a.jpg"] * 50, [0] * 50, times)) == 1
    assert times.pace == FAR


@pytest.mark.parametrize(
    "changed", [_DATA + b"x", _DATA[:-1], _DATA[:100], b"", _DATA + bytes(100_000)]
)
def test_a_file_that_grows_or_shrinks_while_it_is_read(
    changed: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its stamp is another one than when it was listed."""
    path = tmp_path / "a.jpg"
    path.write_bytes(_DATA)
    stamp = files.stat_entry(str(path), str(tmp_path)).stamp
    real = os.readv

    def readv(descriptor: int, buffers: list[memoryview]) -> int:
        path.write_bytes(changed)
        return real(descriptor, buffers)

    monkeypatch.setattr(os, "readv", readv)
    with ImageWindows(str(tmp_path), _POLICY) as windows:
        (image,) = windows.fill(["a.jpg"], [stamp], _Here())
    assert isinstance(image.result, Fault)
    assert image.result.reason is Reason.CHANGED_DURING_RUN


def test_a_column_of_no_images() -> None:
    """A chunk whose images are all refused has no sizes."""
    column = ImageColumn.of([])
    assert len(column.take([])) == 0
    assert (column.facts.present, column.facts.minimum) == (0, None)
    assert column.crcs.dtype == np.uint32
