"""IDX pairs: values against struct and NumPy, names, gzip, and damage."""

import gzip
import pathlib
import struct

import numpy as np
import pytest

from tests.support.cifar import listed, rows_of
from tests.support.idx import IMAGES, LABELS, TYPES, digits, read_all, write
from transforms.core.reasons import Reason
from transforms.core.schema import Feature, Kind
from transforms.errors import InputError, SourceError
from transforms.formats.columnar.class_images import IdxReader
from transforms.formats.columnar.class_images import recognise_idx as recognise
from transforms.formats.table import InputFile


@pytest.mark.parametrize("packed", [(a, b) for a in (0, 1) for b in (0, 1)])
@pytest.mark.parametrize("block_bytes", [1, 10_000, 1 << 30])
def test_pairs(
    tmp_path: pathlib.Path, packed: tuple[bool, bool], block_bytes: int
) -> None:
    """Images and labels are those that were written, plain or compressed."""
    images, labels = digits()
    file = write(tmp_path, images, labels, packed=packed)
    reader = IdxReader()
    raws = read_all(reader, file, block_bytes)
    assert rows_of(raws, "image") == [image.tobytes() for image in images]
    assert rows_of(raws, "label") == labels.tolist()
    assert np.concatenate([raw.numbers for raw in raws]).tolist() == list(range(100))
    planned = reader.plan([file])
    sample = planned.sample
    assert (sample.rows, sample.total_rows, sample.complete) == (100, 100, True)
    assert sample.columns["label"].to_pylist() == labels.tolist()
    assert planned.features == (
        Feature("image", Kind.TENSOR, shape=(28, 28, 1), dtype="uint8", encoding="raw"),
        Feature("label", Kind.INT64, is_label=True),
    )


@pytest.mark.parametrize("sides", [(3, 4), (3, 4, 1), (3, 4, 3), (3, 4, 4)])
def test_dimensions(tmp_path: pathlib.Path, sides: tuple[int, ...]) -> None:
    """Images have one to four channels, gray ones with or without an axis for it."""
    images, labels = digits(7, sides)
    file = write(tmp_path, images, labels)
    raws = read_all(IdxReader(), file)
    assert rows_of(raws, "image") == [image.tobytes() for image in images]
    assert rows_of(raws, "label") == labels.tolist()
    feature = IdxReader().plan([file]).features[0]
    assert feature.shape == (sides if len(sides) == 3 else (*sides, 1))


@pytest.mark.parametrize("kind", sorted(TYPES))
@pytest.mark.parametrize("sides", [(), (5,), (3, 4), (3, 4, 5), (2, 2, 2, 2)])
@pytest.mark.parametrize("which", [0, 1])
def test_other_types_and_dimensions(
    tmp_path: pathlib.Path, kind: str, sides: tuple[int, ...], which: int
) -> None:
    """What is no image in bytes, or no label in one, is an error that names NumPy."""
    if kind == "u1" and len(sides) == (2, 0)[which]:
        return
    pair = [*digits(7)]
    pair[which] = np.zeros((7, *sides), kind)
    with pytest.raises(InputError, match=rf"{(IMAGES, LABELS)[which]}.*NumPy"):
        IdxReader().plan([write(tmp_path, *pair)])


def test_class_names(tmp_path: pathlib.Path) -> None:
    """Where a vocabulary names the classes labels are names, others are rejects."""
    images, _ = digits(10, (2, 2))
    labels = np.array([0, 1, 2, 1, 0, 3, 0, 0, 249, 2], np.uint8)
    file = write(tmp_path, images, labels)
    planned = IdxReader(vocabulary=("T-shirt", "Trouser", "바지")).plan([file])
    assert isinstance(planned.reader, IdxReader)
    (raw,) = read_all(planned.reader, file)
    assert raw.columns["label"][1:4].to_pylist() == ["Trouser", "바지", "Trouser"]
    assert [(n, r) for n, r, _ in raw.refused] == [
        (5, Reason.OUT_OF_RANGE),
        (8, Reason.OUT_OF_RANGE),
    ]
    assert planned.features[1].vocabulary == ("T-shirt", "Trouser", "바지")


def test_large_compressed_file_comes_in_pieces(tmp_path: pathlib.Path) -> None:
    """Pieces have different starts and together cover the block."""
    images = np.arange(36 << 20, dtype=np.uint32).astype(np.uint8).reshape(-1, 1024)
    labels = (np.arange(len(images)) % 10).astype(np.uint8)
    file = write(tmp_path, images.reshape(-1, 32, 32), labels, packed=(True, True))
    file = InputFile(file.origin, file.path, file.size, position=10**9)
    (block,) = IdxReader().blocks(file, block_bytes=1, limit_rows=None)
    raws = list(IdxReader().read(file, block, ["image", "label"]))
    assert len(raws) == 3
    assert len({raw.block.start for raw in raws}) == 3
    assert sum(raw.block.rows for raw in raws) == block.rows == len(images)
    assert rows_of(raws, "label") == labels.tolist()
    assert rows_of(raws, "image") == [image.tobytes() for image in images]
    positions = [raw.block.position for raw in raws]
    assert positions == sorted(positions)
    assert positions[0] >= 10**9
    assert positions[-1] <= 10**9 + file.size
    (block,) = IdxReader().blocks(file, block_bytes=1, limit_rows=11)
    assert [r.block.rows for r in IdxReader().read(file, block, ["label"])] == [11]


@pytest.mark.parametrize(
    ("origin", "split"),
    [
        ("train-images-idx3-ubyte", "train"),
        ("mnist/t10k-images.idx3-ubyte.gz", "test"),
        ("test-images-idx3-ubyte", "test"),
        ("emnist-letters-train-images-idx3-ubyte.gz", "train"),
        ("val_images-idx3-ubyte", "validation"),
        ("test/images-idx3-ubyte", "test"),
        ("t10k-images-idx3-ubyte", "test"),
        ("train/t10k-images-idx3-ubyte", "test"),
        ("at10k-images-idx3-ubyte", ""),
        ("my-images-idx3-ubyte", ""),
        ("readme.txt", ""),
    ],
)
def test_split_by_name(origin: str, split: str) -> None:
    """The split is a word of the file's name, else the folder's."""
    assert IdxReader().split_of(origin) == split


def test_files_by_their_names() -> None:
    """Images are inputs, in the order listed, and their labels are companions."""
    paths = [
        "a/t10k-images-idx3-ubyte.gz",
        "a/t10k-labels-idx1-ubyte.gz",
        "a/train-images.idx3-ubyte",
        "a/train-labels.idx1-ubyte",
        "b/train-images-idx3-ubyte",
        "b/train-labels-idx1-ubyte.gz",
        "readme.md",
    ]
    found = recognise([(path, 1) for path in paths], lambda _: b"")
    assert found == [paths[0], paths[2], paths[4]]
    assert recognise([("readme.md", 3), ("images.zip", 3)], lambda _: b"") is None


@pytest.mark.parametrize(
    ("paths", "word"),
    [
        ([IMAGES], "none"),
        ([IMAGES, LABELS, "t10k-labels-idx1-ubyte"], "t10k-labels-idx1-ubyte"),
        ([IMAGES, LABELS, LABELS + ".gz"], "keep one"),
        ([IMAGES, IMAGES + ".gz", LABELS], "keep one"),
        (["a/" + IMAGES, "b/" + LABELS], "none"),
    ],
)
def test_fault_133_pairs_must_be_whole(paths: list[str], word: str) -> None:
    """Images without labels, labels without images, and doubles are errors."""
    with pytest.raises(SourceError, match=word):
        recognise([(path, 1) for path in paths], lambda _: b"")


@pytest.mark.parametrize(
    "head",
    [
        "",
        "0000",
        "1f8b080000000000",
        "01000803 00000001 0000001c 0000001c",
        "00000a03 00000001 0000001c 0000001c",
        "00000800 00000001",
        "00000803 00000001 0000001c 00",
        "000008ff 00000001 0000001c",
        "00000803 00000001 00000000 0000001c",
        "00000803 00000001 ffffffff ffffffff",
        "03080000 01000000 1c000000 1c000000",
    ],
)
def test_fault_133_wrong_magic(tmp_path: pathlib.Path, head: str) -> None:
    """An invalid header is an error that names the file (the last: little-endian)."""
    file = write(tmp_path, *digits(1))
    pathlib.Path(file.path).write_bytes(bytes.fromhex(head))
    with pytest.raises(SourceError, match=IMAGES):
        IdxReader().plan([listed(pathlib.Path(file.path))])


def test_fault_133_counts_must_agree(tmp_path: pathlib.Path) -> None:
    """As many labels as images, or an error with both counts."""
    images, labels = digits(10)
    file = write(tmp_path, images, labels[:9])
    with pytest.raises(SourceError, match=r"10 images.* 9 labels"):
        IdxReader().plan([file])
    with pytest.raises(SourceError, match=r"10 images.* 9 labels"):
        list(IdxReader().blocks(file, block_bytes=1, limit_rows=None))


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("change", [-1, 1, 784])
@pytest.mark.parametrize("packed", [False, True])
def test_fault_133_size_must_agree(
    tmp_path: pathlib.Path, which: int, change: int, packed: bool
) -> None:
    """The content of a file, plain or packed, must end where its header says."""
    file = write(tmp_path, *digits(10), packed=(packed, packed))
    path = tmp_path / ((IMAGES, LABELS)[which] + ".gz" * packed)
    data = gzip.decompress(path.read_bytes()) if packed else path.read_bytes()
    size = len(data) + change
    data = data[:change] if change < 0 else data + bytes(change)
    path.write_bytes(gzip.compress(data) if packed else data)
    said = path.name if packed else rf"{path.name}.*found {size:,}"
    with pytest.raises(SourceError, match=said):
        read_all(IdxReader(), listed(pathlib.Path(file.path)))


def test_fault_133_compressed_file_cut_anywhere(tmp_path: pathlib.Path) -> None:
    """A gzip file that ends early is an error at every byte, never fewer rows."""
    images, labels = digits(3, (4, 4))
    for which in (0, 1):
        file = write(tmp_path, images, labels, packed=(True, True))
        path = tmp_path / ((IMAGES, LABELS)[which] + ".gz")
        data = path.read_bytes()
        for size in range(len(data)):
            path.write_bytes(data[:size])
            with pytest.raises(SourceError):
                read_all(IdxReader(), listed(pathlib.Path(file.path)))


def test_fault_133_count_beyond_any_compression(tmp_path: pathlib.Path) -> None:
    """A small file that says it holds billions of images is refused at once."""
    head = struct.pack(">HBB3I", 0, 8, 3, 2**32 - 1, 28, 28)
    labels = struct.pack(">HBBI", 0, 8, 1, 2**32 - 1)
    (tmp_path / (IMAGES + ".gz")).write_bytes(gzip.compress(head + bytes(100)))
    (tmp_path / (LABELS + ".gz")).write_bytes(gzip.compress(labels + bytes(100)))
    with pytest.raises(SourceError, match="cannot be read"):
        IdxReader().plan([listed(tmp_path / (IMAGES + ".gz"))])


def test_fault_133_flipped_bytes_never_crash(tmp_path: pathlib.Path) -> None:
    """A file with any byte of its head changed is all rows or an error."""
    images, labels = digits(4, (3, 3))
    for which, packed in ((0, False), (1, False), (0, True), (1, True)):
        file = write(tmp_path, images, labels, packed=(packed, packed))
        path = tmp_path / ((IMAGES, LABELS)[which] + ".gz" * packed)
        data = path.read_bytes()
        for at in range(min(len(data), 30)):
            for value in (data[at] ^ 1, data[at] ^ 0x80, 0, 255):
                path.write_bytes(data[:at] + bytes([value]) + data[at + 1 :])
                try:
                    raws = read_all(IdxReader(), listed(pathlib.Path(file.path)))
                except SourceError:
                    continue
                assert sum(len(raw.numbers) for raw in raws) == 4
        for name in (IMAGES, LABELS):
            (tmp_path / (name + ".gz" * packed)).unlink()


def test_all_files_have_one_shape(tmp_path: pathlib.Path) -> None:
    """Images of another shape in a second file are an error that names both."""
    first = write(tmp_path / "a", *digits(3, (4, 4)))
    second = write(tmp_path / "b", *digits(3, (4, 5)))
    with pytest.raises(SourceError, match=r"\(4, 4, 1\).*\(4, 5, 1\)"):
        IdxReader().plan([first, second])


def test_empty_pair(tmp_path: pathlib.Path) -> None:
    """No images are no rows, plain or compressed."""
    for packed in (False, True):
        file = write(tmp_path / str(packed), *digits(0), packed=(packed, packed))
        assert read_all(IdxReader(), file) == []
        sample = IdxReader().plan([file]).sample
        assert (sample.rows, sample.complete) == (0, True)
