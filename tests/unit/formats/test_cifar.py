"""CIFAR in its binary version: pixels against NumPy, names, splits and damage."""

import hashlib
import os
import pathlib
import pickle
from typing import Any

import numpy as np
import pytest

from tests.support.cifar import listed, pixels_of, read_all, real_folder, rows_of
from transforms.core.reasons import Reason
from transforms.core.schema import Feature, Kind
from transforms.errors import SourceError
from transforms.formats.columnar.class_images import Cifar10Reader, Cifar100Reader
from transforms.formats.columnar.class_images import recognise_cifar as recognise
from transforms.formats.table import InputFile

CLASSES = tuple("airplane automobile bird cat deer dog frog horse ship truck".split())


def made(path: pathlib.Path, count: int, labels: int = 1) -> np.ndarray:
    """Writes a file of random pixels; returns its records."""
    random = np.random.default_rng(count)
    records = random.integers(0, 256, (count, labels + 3072), np.uint8)
    records[:, 0] %= 10
    if labels == 2:
        records[:, 1] %= 100
    path.write_bytes(records.tobytes())
    return records


def heads(root: pathlib.Path) -> Any:
    return lambda path: (root / path).read_bytes()[:64]


def sizes(root: pathlib.Path) -> list[tuple[str, int]]:
    paths = sorted(path for path in root.rglob("*") if path.is_file())
    return [(str(p.relative_to(root)), p.stat().st_size) for p in paths]


def test_real_files_are_recognised() -> None:
    """The folder holds CIFAR-10: batches are inputs, the names a companion."""
    folder = real_folder()
    found = recognise(sizes(folder), heads(folder))
    assert found == ["data_batch_1.bin", "test_batch.bin"]
    assert [Cifar10Reader().split_of(path) for path in found] == ["train", "test"]


@pytest.mark.parametrize("name", ["data_batch_1.bin", "test_batch.bin"])
def test_real_records(name: str) -> None:
    """Images are the 3,072 bytes that NumPy transposes to; labels are their names."""
    path = real_folder() / name
    records = np.fromfile(path, np.uint8).reshape(-1, 3073)
    planned = Cifar10Reader().plan([listed(path)])
    raws = read_all(planned.reader, listed(path), ["image", "label"])
    assert rows_of(raws, "image") == [p.tobytes() for p in pixels_of(records)]
    assert rows_of(raws, "label") == [CLASSES[i] for i in records[:, 0]]
    sample = planned.sample
    assert sample.total_rows == len(records)
    assert sample.complete
    assert planned.features == (
        Feature("label", Kind.LABEL, is_label=True, vocabulary=CLASSES),
        Feature("image", Kind.TENSOR, shape=(32, 32, 3), dtype="uint8", encoding="raw"),
    )


def test_cifar_100(tmp_path: pathlib.Path) -> None:
    """CIFAR-100 has a coarse and a fine label, each with its names."""
    coarse = [f"coarse {i}" for i in range(20)]
    fine = [f"fine {i}" for i in range(100)]
    (tmp_path / "coarse_label_names.txt").write_text("\n".join(coarse))
    (tmp_path / "fine_label_names.txt").write_text("\n".join(fine) + "\n\n")
    records = made(tmp_path / "train.bin", 50, labels=2)
    made(tmp_path / "test.bin", 20, labels=2)
    found = recognise(sizes(tmp_path), heads(tmp_path))
    assert found == ["test.bin", "train.bin"]
    reader = Cifar100Reader()
    assert reader.split_of("train.bin") == "train"
    assert reader.split_of("cifar/test.bin") == "test"
    file = listed(tmp_path / "train.bin")
    planned = reader.plan([file])
    raws = read_all(planned.reader, file, ["image", "label", "coarse_label"])
    assert rows_of(raws, "image") == [p.tobytes() for p in pixels_of(records)]
    assert rows_of(raws, "coarse_label") == [coarse[i] for i in records[:, 0]]
    assert rows_of(raws, "label") == [fine[i] for i in records[:, 1]]
    vocabularies = [f.vocabulary for f in planned.features]
    assert vocabularies == [tuple(coarse), tuple(fine), None]


def test_without_names_labels_are_numbers(tmp_path: pathlib.Path) -> None:
    """Where nothing names the classes, the label is the byte as an integer."""
    records = made(tmp_path / "data_batch_1.bin", 30)
    reader = Cifar10Reader()
    file = listed(tmp_path / "data_batch_1.bin")
    assert rows_of(read_all(reader, file, ["label"]), "label") == list(records[:, 0])
    assert reader.plan([file]).features[0] == Feature(
        "label", Kind.INT64, is_label=True
    )


def test_sample(tmp_path: pathlib.Path) -> None:
    """It holds 4 MiB of records, evenly of all files that have any."""
    files = []
    for number, count in enumerate((900, 0, 2100)):
        made(tmp_path / f"data_batch_{number}.bin", count)
        files.append(listed(tmp_path / f"data_batch_{number}.bin"))
    reader = Cifar10Reader()
    sample = reader.plan(files).sample
    assert (sample.rows, sample.total_rows, sample.complete) == (896, 3000, False)
    small = reader.plan(files[:2]).sample
    assert (small.rows, small.complete) == (640, False)
    assert reader.plan(files[1:2]).sample.rows == 0


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"a\n\nb\n", "line 2"),
        (b"a\nb\na\n", "lines 1 and 3"),
        (b"a\nb\n a \n", "lines 1 and 3"),
        (b"a\n\xff\n", "byte 2"),
        (b"", "must hold the names"),
        ("\n".join(CLASSES[:9]).encode(), r"batches\.meta\.txt.*10.*9"),
    ],
)
def test_fault_132_names_must_match_ids(
    tmp_path: pathlib.Path, data: bytes, word: str
) -> None:
    """A file of names that does not determine the ids is an error."""
    made(tmp_path / "data_batch_1.bin", 1)
    (tmp_path / "batches.meta.txt").write_bytes(data)
    with pytest.raises(SourceError, match=word):
        Cifar10Reader().plan([listed(tmp_path / "data_batch_1.bin")])


def test_names_of_any_line_end(tmp_path: pathlib.Path) -> None:
    """A byte order mark, CRLF and blank lines at the end are no part of the names."""
    made(tmp_path / "data_batch_1.bin", 0)
    text = "\r\n".join(["\ufeff고양이", "big dog ", *CLASSES[2:], "", "", ""])
    (tmp_path / "batches.meta.txt").write_bytes(text.encode())
    planned = Cifar10Reader().plan([listed(tmp_path / "data_batch_1.bin")])
    assert planned.features[0].vocabulary == ("고양이", "big dog", *CLASSES[2:])


def test_names_must_be_the_same_in_all_folders(tmp_path: pathlib.Path) -> None:
    """Ids that mean one thing here and another there are an error."""
    files = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        made(folder / "data_batch_1.bin", 2)
        (folder / "batches.meta.txt").write_text("\n".join(CLASSES))
        files.append(listed(folder / "data_batch_1.bin"))
    assert Cifar10Reader().plan(files).sample.rows == 4
    (folder / "batches.meta.txt").write_text("\n".join(CLASSES[::-1]))
    with pytest.raises(SourceError, match="same order"):
        Cifar10Reader().plan(files)


def test_a_file_that_changed_is_not_read(tmp_path: pathlib.Path) -> None:
    """A file with another stamp than it was listed with is an OSError."""
    path = tmp_path / "data_batch_1.bin"
    made(path, 2)
    file = InputFile(path.name, str(path), path.stat().st_size, stamp=12345)
    reader = Cifar10Reader()
    with pytest.raises(OSError, match="changed"):
        list(reader.read(file, file.whole(rows=2), ["label"]))
    os.truncate(path, 3073)
    with pytest.raises(OSError, match="changed"):
        reader.plan([file])


@pytest.mark.parametrize("named", [True, False])
def test_fault_132_label_beyond_the_classes(
    tmp_path: pathlib.Path, named: bool
) -> None:
    """A label over 9 is a reject, whether or not names say what 0 to 9 are."""
    path = tmp_path / "data_batch_1.bin"
    records = made(path, 30)
    records[[4, 29], 0] = [10, 255]
    path.write_bytes(records.tobytes())
    if named:
        (tmp_path / "batches.meta.txt").write_text("\n".join(CLASSES))
    (raw,) = read_all(Cifar10Reader(), listed(path), ["label"])
    assert [(n, r) for n, r, _ in raw.refused] == [
        (4, Reason.OUT_OF_RANGE),
        (29, Reason.OUT_OF_RANGE),
    ]
    assert len(raw.numbers) == 28
    assert "0 to 9" in raw.refused[1][2]
    assert raw.reject is not None
    first, second = raw.reject(raw.refused)
    assert (first.row, second.row) == (5, 30)
    assert first.sha256 == hashlib.sha256(records[4].tobytes()).hexdigest()
    assert "255" in second.message
    sample = Cifar10Reader().plan([listed(path)]).sample
    assert sample.columns["label"].null_count == (2 if named else 0)


def test_fault_133_cut_file(tmp_path: pathlib.Path) -> None:
    """A batch that was cut off is still an input, and an error with its size."""
    made(tmp_path / "data_batch_1.bin", 3)
    made(tmp_path / "data_batch_2.bin", 3)
    os.truncate(tmp_path / "data_batch_2.bin", 7000)
    found = recognise(sizes(tmp_path), heads(tmp_path))
    assert found == ["data_batch_1.bin", "data_batch_2.bin"]
    with pytest.raises(SourceError, match=r"data_batch_2\.bin.*found 7,000"):
        Cifar10Reader().plan([listed(tmp_path / name) for name in found])


def test_other_files_are_not_recognised(tmp_path: pathlib.Path) -> None:
    """Other names, and a `train.bin` of another size or content, are left alone."""
    (tmp_path / "train.bin").write_bytes(bytes(3074 * 2 - 1))
    (tmp_path / "weights.bin").write_bytes(bytes(3073))
    assert recognise(sizes(tmp_path), heads(tmp_path)) is None
    (tmp_path / "train.bin").write_bytes(b"\xff" * 3074)
    assert recognise(sizes(tmp_path), heads(tmp_path)) is None
    assert recognise([("train.bin", 0)], lambda _: b"") is None
    # Nor does a file that is called like a pickle, and is none.
    (tmp_path / "test_batch").write_bytes(b"id,label\n1,cat\n")
    assert recognise(sizes(tmp_path), heads(tmp_path)) is None


def test_fault_133_pickles_are_never_loaded(tmp_path: pathlib.Path) -> None:
    """The Python version is refused with what to fetch instead."""
    (tmp_path / "data_batch_1").write_bytes(pickle.dumps({"labels": [1]}))
    with pytest.raises(SourceError, match=r"pickle.*binary version"):
        recognise(sizes(tmp_path), heads(tmp_path))


def test_both_in_one_source_are_an_error(tmp_path: pathlib.Path) -> None:
    """CIFAR-10 and CIFAR-100 have different records and are no single dataset."""
    for folder, name, labels in (("a", "data_batch_1.bin", 1), ("b", "train.bin", 2)):
        (tmp_path / folder).mkdir()
        made(tmp_path / folder / name, 2, labels)
    with pytest.raises(SourceError, match="one by one"):
        recognise(sizes(tmp_path), heads(tmp_path))


def test_fault_133_mutated_files_never_crash(tmp_path: pathlib.Path) -> None:
    """Any bytes of the right length are rows or rejects, of any other an error."""
    random = np.random.default_rng(5)
    path = tmp_path / "data_batch_1.bin"
    reader = Cifar10Reader(are_files=True)
    for _ in range(60):
        data = random.bytes(int(random.integers(0, 3)) * 3073)
        if random.random() < 0.5:
            data += random.bytes(int(random.integers(1, 50)))
        path.write_bytes(data)
        file = listed(path)
        if len(data) % 3073:
            with pytest.raises(SourceError):
                reader.plan([file])
            continue
        raws = read_all(reader, file, ["label", "image"])
        found = sum(len(raw.numbers) + len(raw.refused) for raw in raws)
        assert found == len(data) // 3073
