"""The files behind views: threads, processes, replaced and damaged ones."""

import datetime
import logging
import pathlib
import pickle
import shutil
from typing import Any

import numpy as np
import pytest
from PIL import Image

import beam_tfrecord
from tests.support.datasets import animals, write_dataset
from tests.support.drawn_images import saved
from tests.support.kinds import EVERY_KIND, row_of_every_kind, write_kinds
from transforms.core.schema import Feature, Kind
from transforms.errors import (
    DamageError,
    ExampleError,
    SpecError,
    TFRecordError,
)
from transforms.reading.folder import warn_once
from transforms.reading.view import View

Folder = pathlib.Path


def opened(folder: Folder) -> View:
    return beam_tfrecord.open_dataset(folder)["train"]


def shards(folder: Folder) -> list[Folder]:
    return sorted(folder.glob("*.tfrecord-*"))


def bare(folder: Folder) -> Folder:
    """Writes two shards of 3 and 2 records, and nothing beside them."""
    write_dataset(folder, {"train": animals(3, 2)})
    for path in folder.iterdir():
        if "tfrecord" not in path.name:
            path.unlink()
    return folder


def test_replaced_while_open(tmp_path: Folder) -> None:
    """Rows of one dataset only: of the old one, or an error."""
    folder = tmp_path / "d"
    write_dataset(folder, {"train": animals(3, 3)})
    view, other = opened(folder), pickle.dumps(opened(folder))
    assert view[0]["id"] == 0
    shutil.rmtree(folder)
    write_dataset(folder, {"train": animals(3, 3, start=50)})
    assert view[1]["id"] == 1
    with pytest.raises(DamageError, match="replaced while open"):
        view[4]
    with pytest.raises(DamageError, match="replaced while open"):
        pickle.loads(other)
    assert opened(folder)[4]["id"] == 54


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
def test_compressed_shards(tmp_path: Folder, compression: str) -> None:
    """They are read in order; for single rows the error says what to do."""
    folder = tmp_path / "d"
    write_dataset(folder, {"train": animals(3, 2)}, compression=compression)
    view = opened(folder)
    assert [row["id"] for row in view] == [*range(5)]
    assert [row["id"] for row in view[2:4]] == [2, 3]
    assert [row["id"] for row in view[::2]] == [0, 2, 4]
    assert [*view[[1, 4]].records] == [*view.records][1::3]
    assert [row["id"] for row in view.where("id != 2")] == [0, 1, 3, 4]
    for read in (
        lambda: view[3],
        lambda: view.__getitems__([0, 1]),
        lambda: [*view[::-1]],
        lambda: [*view.shuffled(1)],
        lambda: view.records[0],
    ):
        with pytest.raises(SpecError, match="--compression none"):
            read()


def test_files_without_metadata(tmp_path: Folder) -> None:
    """Their features are those of the first records; a number of records is counted."""
    folder = bare(tmp_path / "d")
    found = beam_tfrecord.open_dataset(folder)
    assert found.splits == {"": None}
    view = found[""]
    assert len(view) == 5
    assert view[4]["id"] == 4
    assert view[4]["note"] == "메모 4".encode()
    said = {"id": "int64", "note": "text"}
    (path, *_) = shards(folder)
    named = beam_tfrecord.open_dataset(path, features=said)[""]
    assert [*named][1] == {"id": 1, "note": "메모 1"}


def test_files_without_an_index_are_scanned_once(
    tmp_path: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    """By the first `len` or `[i]`, not before, which says so."""
    folder = bare(tmp_path / "d")
    for first in (len, lambda view: view[4], lambda view: view[-1]):
        caplog.clear()
        warn_once.cache_clear()
        with caplog.at_level(logging.WARNING):
            view = beam_tfrecord.open_dataset(folder, features={"id": "int64"})[""]
            assert not caplog.messages
            first(view)
            (message,) = caplog.messages
            assert "'beam-tfrecord index' makes one" in message
            assert len(view) == 5
            assert [view[place]["id"] for place in range(5)] == [*range(5)]
            assert caplog.messages == [message]


def test_a_tfds_folder(tmp_path: Folder) -> None:
    """Without our manifest, TFDS's files say what is there."""
    folder = tmp_path / "d"
    write_dataset(folder, {"train": animals(3), "test": animals(2, start=7)})
    (folder / "manifest.json").unlink()
    found = beam_tfrecord.open_dataset(folder)
    assert found.splits == {"train": 3, "test": 2}
    assert [row["id"] for row in found["test"]] == [7, 8]


def test_rows_of_every_kind(tmp_path: Folder) -> None:
    """Values of fixed shapes are arrays that may be written to."""
    more = {**row_of_every_kind(), "words": [], "ragged": [[], [7]], "box": []}
    write_kinds(tmp_path / "d", [row_of_every_kind(), {}, more], EVERY_KIND)
    found = beam_tfrecord.open_dataset(tmp_path / "d", labels="names", times="int")
    full, empty, last = found["train"]
    assert empty == dict.fromkeys(full)
    assert full["vector"].dtype == np.float32
    assert full["pixels"].dtype == np.uint8
    assert full["vector"].tolist() == [[0.5, 1.0], [1.5, 2.0]]
    full["vector"][0, 0] = 7
    full["pixels"][0, 0] = 7
    assert full["pixels"].tolist() == [[7, 1], [2, 3], [4, 5]]
    assert [each.tolist() for each in full["ragged"]] == [[1], [], [2, 3]]
    assert {each.dtype for each in full["ragged"]} == {np.dtype(np.int64)}
    assert full["box"].shape == (2, 4)
    assert (full["tags"], full["when"]) == (["dog"], 1_709_210_096_000)
    assert (last["words"], last["box"].shape) == ([], (0, 4))
    assert [each.tolist() for each in last["ragged"]] == [[], [7]]
    one = found["train"][2]
    assert str(one) == str(last)


def test_times(tmp_path: Folder) -> None:
    """Aware, in UTC; an int for nanoseconds, and in years that Python lacks."""
    features = [
        *(Feature(unit, Kind.TIMESTAMP, unit=unit) for unit in ("s", "ms", "us", "ns")),
        Feature("list", Kind.TIMESTAMP, unit="s", shape=(None,)),
    ]
    near = {"s": -1, "ms": 1_709_210_096_789, "us": -1, "ns": 5, "list": [7, 8]}
    far = {"s": 253_402_300_800, "ms": -62_135_596_800_001, "us": 2**62}
    write_kinds(tmp_path / "d", [near, far], features)
    train = beam_tfrecord.open_dataset(tmp_path / "d")["train"]
    utc = datetime.UTC
    for one, other in ([train[0], train[1]], [*train]):
        assert one["s"] == datetime.datetime(1969, 12, 31, 23, 59, 59, tzinfo=utc)
        assert one["s"].tzinfo is utc
        assert one["ms"] == datetime.datetime(
            2024, 2, 29, 12, 34, 56, 789_000, tzinfo=utc
        )
        assert one["us"].microsecond == 999_999
        assert one["ns"] == 5
        assert one["list"].tolist() == [7, 8]
        assert other == far | {"ns": None, "list": None}
        assert {type(other[unit]) for unit in far} == {int}
    numbers = beam_tfrecord.open_dataset(tmp_path / "d", times="int")["train"]
    assert {name: numbers[0][name] for name in ("s", "ms", "us", "ns")} == {
        name: value for name, value in near.items() if name != "list"
    }


def _png(mode: str) -> bytes:
    colour = 1 if mode == "L" else (1, 2, 3, 4)[: len(mode)]
    return saved(Image.new(mode, (3, 2), colour), "PNG")


def test_images_as_arrays(tmp_path: Folder) -> None:
    """Of one channel or three, writable; what no image is, is an error."""
    images = [_png("L"), _png("RGB"), _png("RGBA")]
    rows = [{"image": data} for data in (*images, b"BM")]
    write_kinds(tmp_path / "d", [*rows, {}], [Feature("image", Kind.IMAGE)])
    stored = beam_tfrecord.open_dataset(tmp_path / "d")["train"]
    assert [row["image"] for row in stored] == [*images, b"BM", None]
    train = beam_tfrecord.open_dataset(tmp_path / "d", images="array")["train"]
    arrays = [row["image"] for row in train[:3]]
    assert [array.shape for array in arrays] == [(2, 3, 1), (2, 3, 3), (2, 3, 3)]
    assert {array.dtype for array in arrays} == {np.dtype(np.uint8)}
    assert arrays[2][0, 0].tolist() == [1, 2, 3]
    arrays[0][0, 0] = 9
    assert train[4] == {"image": None}
    with pytest.raises(ExampleError, match=r"record 3: .*images='bytes'"):
        train[3]


def test_without_the_check(tmp_path: Folder) -> None:
    """A damaged payload is given as it is; of a pickled view, too."""
    write_dataset(tmp_path / "d", {"train": animals(2)})
    (path,) = shards(tmp_path / "d")
    data = bytearray(path.read_bytes())
    place = data.index("메모 0".encode())
    data[place + len("메모 ".encode())] = ord("9")
    path.write_bytes(data)
    view = beam_tfrecord.open_dataset(tmp_path / "d", check=False)["train"]
    for each in (view, pickle.loads(pickle.dumps(view))):
        assert each[0]["note"] == "메모 9"
        assert [row["note"] for row in each] == ["메모 9", "메모 1"]
    with pytest.raises(TFRecordError, match=r"record 0 .*'repair'"):
        opened(tmp_path / "d")[0]


def test_missing_values_of_the_schema(tmp_path: Folder) -> None:
    """Those that no record holds; None for what is not given as it is stored."""
    values = {"n": 3, "x": 1.5, "flag": True, "note": "a", "raw": b"b", "label": "cat"}
    kinds = "int64 float bool text bytes label".split()
    features = [Feature(n, Kind(k)) for n, k in zip(values, kinds, strict=True)]
    features += [Feature("image", Kind.IMAGE), Feature("below", Kind.INT64)]
    features += [Feature("at", Kind.TIMESTAMP, unit="s"), Feature("box", Kind.BOX)]
    features.append(Feature("list", Kind.INT64, shape=(None,)))
    row = {**values, "image": _png("L"), "below": -7, "at": 0, "list": [1], "box": []}
    write_kinds(tmp_path / "d", [row, {}], features)

    def absent(**looks: Any) -> dict[str, Any]:
        found = beam_tfrecord.open_dataset(tmp_path / "d", missing="schema", **looks)
        one, other = found["train"][1], [*found["train"]][1]
        assert type(one["x"]) is type(other["x"]) is np.float32
        assert np.isnan(one.pop("x"))
        assert np.isnan(other.pop("x"))
        assert one == other
        return one

    stored = {
        **{"n": -1, "below": -8, "flag": False, "note": "", "raw": b"", "image": b""},
        **{"label": -1, "at": -1, "list": None, "box": None},
    }
    assert absent(times="int") == stored
    given = absent(labels="names", images="array")
    assert given == stored | {"label": None, "image": None, "at": None}
    for wrong in ("scheme", 3):
        with pytest.raises(SpecError, match="'schema' or None; found"):
            beam_tfrecord.open_dataset(
                tmp_path / "d",
                missing=wrong,  # type: ignore[arg-type]
            )


def test_what_is_missing(tmp_path: Folder) -> None:
    """The values asked for; an unknown name is an error."""
    write_dataset(tmp_path / "d", {"train": animals(3)})
    found = beam_tfrecord.open_dataset(tmp_path / "d", missing={"note": "-"})
    assert [row["note"] for row in found["train"]] == ["메모 0", "메모 1", "-"]
    assert found["train"][2]["note"] == "-"
    assert found["train"].select(["id"])[2] == {"id": 2}
    with pytest.raises(SpecError, match="'nota'"):
        beam_tfrecord.open_dataset(tmp_path / "d", missing={"nota": 0})
    with pytest.raises(SpecError, match="labels must be"):
        beam_tfrecord.open_dataset(tmp_path / "d", labels="name")  # type: ignore[arg-type]
