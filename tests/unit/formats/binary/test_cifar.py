"""CIFAR in its binary version: pixels against NumPy, names, splits and damage."""

import os
import pathlib
import pickle
from typing import Any

import numpy as np
import pytest

from tests.support.cifar import listed, pixels_of, read_all, rows_of
from transforms.core.model import Reason
from transforms.core.schema import Feature, Kind
from transforms.errors import SourceError
from transforms.formats.binary.cifar import Cifar10Reader, Cifar100Reader, recognise

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


@pytest.fixture
def cifar10() -> pathlib.Path:
    """The real files, of which there are two."""
    folder = os.environ.get("BEAM_TFRECORD_TEST_DATA")
    if not folder:
        pytest.skip("BEAM_TFRECORD_TEST_DATA is not set")
    return pathlib.Path(folder, "cifar-10-batches-bin")


def test_real_files_are_recognised(cifar10: pathlib.Path) -> None:
    """The folder holds CIFAR-10: batches are inputs, the names a companion."""
    found = recognise(sizes(cifar10), heads(cifar10))
    assert found is not None
    assert found.reader == Cifar10Reader()
    assert found.inputs == ("data_batch_1.bin", "test_batch.bin")
    assert found.companions == ("batches.meta.txt",)
    assert [found.reader.split_of(path) for path in found.inputs] == ["train", "test"]


@pytest.mark.parametrize("name", ["data_batch_1.bin", "test_batch.bin"])
def test_real_records(cifar10: pathlib.Path, name: str) -> None:
    """Images are the 3,072 bytes that NumPy transposes to; labels are their names."""
    path = cifar10 / name
    records = np.fromfile(path, np.uint8).reshape(-1, 3073)
    reader = Cifar10Reader()
    raws = read_all(reader, listed(path), ["image", "label"])
    assert rows_of(raws, "image") == [p.tobytes() for p in pixels_of(records)]
    assert rows_of(raws, "label") == [CLASSES[i] for i in records[:, 0]]
    planned = reader.plan([listed(path)])
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
    found = recognise(sizes(tmp_path), heads(tmp_path), encode="png")
    assert found is not None
    assert found.reader == Cifar100Reader("png")
    assert found.inputs == ("test.bin", "train.bin")
    assert found.companions == ("coarse_label_names.txt", "fine_label_names.txt")
    assert found.reader.split_of("train.bin") == "train"
    assert found.reader.split_of("cifar/test.bin") == "test"
    reader = Cifar100Reader()
    file = listed(tmp_path / "train.bin")
    raws = read_all(reader, file, ["image", "label", "coarse_label"])
    assert rows_of(raws, "image") == [p.tobytes() for p in pixels_of(records)]
    assert rows_of(raws, "coarse_label") == [coarse[i] for i in records[:, 0]]
    assert rows_of(raws, "label") == [fine[i] for i in records[:, 1]]
    vocabularies = [f.vocabulary for f in reader.plan([file]).features]
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


def test_fault_132_names_below_the_largest_label(tmp_path: pathlib.Path) -> None:
    """A file of nine names for ten classes is an error that names both."""
    made(tmp_path / "data_batch_1.bin", 60)
    (tmp_path / "batches.meta.txt").write_text("\n".join(CLASSES[:9]))
    with pytest.raises(SourceError, match=r"9 names.*'label' 9"):
        Cifar10Reader().plan([listed(tmp_path / "data_batch_1.bin")])


def test_fault_133_cut_file(tmp_path: pathlib.Path) -> None:
    """A batch that was cut off is still an input, and an error with its size."""
    made(tmp_path / "data_batch_1.bin", 3)
    made(tmp_path / "data_batch_2.bin", 3)
    os.truncate(tmp_path / "data_batch_2.bin", 7000)
    found = recognise(sizes(tmp_path), heads(tmp_path))
    assert found is not None
    assert len(found.inputs) == 2
    with pytest.raises(SourceError, match=r"3073 bytes.*data_batch_2\.bin has 7000"):
        found.reader.plan([listed(tmp_path / name) for name in found.inputs])


def test_other_files_are_not_recognised(tmp_path: pathlib.Path) -> None:
    """Other names, and a `train.bin` of another size or content, are left alone."""
    (tmp_path / "train.bin").write_bytes(bytes(3074 * 2 - 1))
    (tmp_path / "weights.bin").write_bytes(bytes(3073))
    assert recognise(sizes(tmp_path), heads(tmp_path)) is None
    (tmp_path / "train.bin").write_bytes(b"\xff" * 3074)
    assert recognise(sizes(tmp_path), heads(tmp_path)) is None
    assert recognise([("train.bin", 0)], lambda _: b"") is None


def test_fault_133_pickles_are_never_loaded(tmp_path: pathlib.Path) -> None:
    """The Python version is refused with what to fetch instead."""
    (tmp_path / "data_batch_1").write_bytes(pickle.dumps({"labels": [1]}))
    with pytest.raises(SourceError, match=r"pickle.*binary version"):
        recognise(sizes(tmp_path), heads(tmp_path))


def test_other_files_with_the_names_of_pickles(tmp_path: pathlib.Path) -> None:
    """A file that is called test_batch and is no pickle says nothing of CIFAR."""
    (tmp_path / "test_batch").write_bytes(b"id,label\n1,cat\n")
    assert recognise(sizes(tmp_path), heads(tmp_path)) is None


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
    reader = Cifar10Reader("png")
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
