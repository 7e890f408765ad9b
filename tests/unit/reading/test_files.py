"""The files behind views: threads, processes, replaced and damaged ones."""

import concurrent.futures
import pathlib
import pickle
import shutil

import numpy as np
import pytest

import beam_tfrecord
from tests.support.datasets import animals, write_dataset
from tests.support.kinds import EVERY_KIND, row_of_every_kind, write_kinds
from transforms.core.tfrecord.record_index import index_file
from transforms.errors import BeamTFRecordError, DamageError, SpecError, TFRecordError
from transforms.reading import folder as open_files
from transforms.reading.view import View

Folder = pathlib.Path


def opened(folder: Folder, split: str = "train") -> View:
    return beam_tfrecord.open_dataset(folder)[split]


def shards(folder: Folder) -> list[Folder]:
    return sorted(folder.glob("*.tfrecord-*"))


def test_many_threads_and_few_files(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file is closed only when no read holds it: rows never change places."""
    write_dataset(tmp_path / "d", {"train": animals(*[2] * 100)})
    monkeypatch.setattr(open_files, "most_files", lambda: 2)
    records = opened(tmp_path / "d").records
    expected = [*records]

    def work(seed: int) -> bool:
        places = np.random.default_rng(seed).integers(0, 200, 400)
        return all(records[int(place)] == expected[place] for place in places)

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        assert all(pool.map(work, range(16)))
    assert len(records._split.records._folder.open) <= 2


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


@pytest.mark.parametrize("place", [0, 9, 14, -1])
def test_damage(tmp_path: Folder, place: int) -> None:
    """A changed byte of a length, a payload or a checksum is found, and named."""
    folder = tmp_path / "d"
    write_dataset(folder, {"train": animals(1, 2)})
    path = shards(folder)[1]
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)
    view = opened(folder)
    assert view[0]["id"] == 0
    with pytest.raises(TFRecordError, match=path.name):
        view.__getitems__([1, 2])
    with pytest.raises(TFRecordError, match=path.name):
        list(view)


def test_a_shard_that_was_cut(tmp_path: Folder) -> None:
    """It says how many bytes there must be."""
    folder = tmp_path / "d"
    write_dataset(folder, {"train": animals(4)})
    (path,) = shards(folder)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(TFRecordError, match="must have"):
        opened(folder)[0]


def test_an_index(tmp_path: Folder) -> None:
    """It is used where it is there; one of another file is damage."""
    folder = tmp_path / "d"
    write_dataset(folder, {"train": animals(3, 2)})
    first, second = shards(folder)
    offsets = []
    for path in (first, second):
        located = opened(folder)._split.records._locate(0 if path == first else 1)
        offsets.append(bytes(located))
        index = folder / index_file(path.name)
        index.parent.mkdir(exist_ok=True)
        index.write_bytes(offsets[-1])
    assert [row["id"] for row in opened(folder)] == [*range(5)]
    index.write_bytes(offsets[0])
    with pytest.raises(TFRecordError, match="index"):
        opened(folder)[4]
    index.write_bytes(offsets[1][:-3])
    with pytest.raises(TFRecordError, match="index"):
        opened(folder)[4]


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
def test_compressed_shards(tmp_path: Folder, compression: str) -> None:
    """gzip is read at random; for one stream the error says what to choose."""
    folder = tmp_path / "d"
    write_dataset(folder, {"train": animals(3, 2)}, compression=compression)
    view = opened(folder)
    assert [row["id"] for row in view] == [*range(5)]
    assert [row["id"] for row in view[2:4]] == [2, 3]
    if compression == "gzip":
        assert view[3]["id"] == 3
    else:
        with pytest.raises(SpecError, match="compression='gzip'"):
            view[0]


def test_files_without_metadata(tmp_path: Folder) -> None:
    """Their features are those of the first records; a number of records is counted."""
    folder = tmp_path / "d"
    write_dataset(folder, {"train": animals(3, 2)})
    for path in folder.iterdir():
        if "tfrecord" not in path.name:
            path.unlink()
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


def test_a_tfds_folder(tmp_path: Folder) -> None:
    """Without our manifest, TFDS's files say what is there."""
    folder = tmp_path / "d"
    write_dataset(folder, {"train": animals(3), "test": animals(2, start=7)})
    (folder / "manifest.json").unlink()
    found = beam_tfrecord.open_dataset(folder)
    assert found.splits == {"train": 3, "test": 2}
    assert [row["id"] for row in found["test"]] == [7, 8]


def test_nothing_there(tmp_path: Folder) -> None:
    """It is the user's mistake."""
    with pytest.raises(BeamTFRecordError):
        beam_tfrecord.open_dataset(tmp_path / "none")


def test_rows_of_every_kind(tmp_path: Folder) -> None:
    """Values of fixed shapes are arrays that may be written to."""
    more = {**row_of_every_kind(), "words": [], "ragged": [[], [7]], "box": []}
    write_kinds(tmp_path / "d", [row_of_every_kind(), {}, more], EVERY_KIND)
    found = beam_tfrecord.open_dataset(tmp_path / "d", labels="names", times="int")
    full, empty, last = found["train"]
    assert empty == dict.fromkeys(full)
    assert full["vector"].dtype == np.float32
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


def test_arrays_of_rows_are_their_own(tmp_path: Folder) -> None:
    """An array that is kept does not keep those of its neighbours."""
    write_kinds(tmp_path / "d", [row_of_every_kind()] * 3, EVERY_KIND)
    rows = list(beam_tfrecord.open_dataset(tmp_path / "d")["train"])
    for name in ("vector", "box"):
        first, second = rows[0][name], rows[1][name]
        unchanged = second.tolist()
        first[:] = 7
        assert second.tolist() == unchanged
        assert first.base is None or first.base.size == first.size


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
