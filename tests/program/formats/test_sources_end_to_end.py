"""Sources beside tables and folders of images, each from real bytes to records.

What goes in is written by others (NumPy, scikit-learn's digits, TensorFlow, TFDS,
zipfile, tarfile, webdataset, Pillow), and what comes out is read by TensorFlow.
"""

import gzip
import io
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import yaml
from PIL import Image

from beam_pipeline.planning.plan import make_plan
from beam_pipeline.settings.spec import make_spec
from tests.support.outputs import (
    account,
    contents,
    dataset,
    payloads,
    rejects,
    split_sizes,
)
from tests.support.runs import command, convert, refused
from transforms.core.example import messages

Folder = pathlib.Path
Array = np.ndarray[Any, Any]
Members = Mapping[str, bytes]

TOLERANT = ("--max-reject-rate", "1")
RNG = np.random.default_rng(7)
# Label folders in two scripts, one of them Korean.
PHOTOS = [
    f"{split}/{label}/{number}.{kind}"
    for split in ("train", "test")
    for label in ("cat", "고양이")
    for number, kind in enumerate(("png", "jpg", "png"))
]


def picture(number: int, kind: str = "png", **options: Any) -> bytes:
    """Returns an encoded image of noise, 12 wide and 9 high."""
    pixels = np.random.default_rng(number).integers(0, 256, (9, 12, 3), np.uint8)
    out = io.BytesIO()
    name = {"jpg": "JPEG"}.get(kind, kind)
    Image.fromarray(pixels).save(out, name, **options)
    return out.getvalue()


def photos() -> dict[str, bytes]:
    return {path: picture(i, path[-3:]) for i, path in enumerate(PHOTOS)}


def write_files(root: Folder, members: Members) -> Folder:
    for name, data in members.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return root


def write_archive(path: Folder, members: Members) -> Folder:
    """Writes an archive of the kind that its name says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
            for name, data in members.items():
                made.writestr(name, data)
        return path
    with tarfile.open(path, "w:gz" if path.suffix == ".gz" else "w") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def sorted_messages(directory: Folder, split: str | None = None) -> list[bytes]:
    """Returns the records as messages, in an order of their own."""
    return sorted(
        messages.Example.FromString(payload).SerializeToString(deterministic=True)
        for payload in payloads(directory, split)
    )


def values(directory: Folder, split: str | None = None) -> list[dict[str, Any]]:
    """Returns each record as name -> list of values, by protobuf."""
    out = []
    for payload in payloads(directory, split):
        features = messages.Example.FromString(payload).features.feature
        out.append(
            {
                name: list(getattr(feature, feature.WhichOneof("kind")).value)
                for name, feature in features.items()
            }
        )
    return out


def read_with_tensorflow(
    directory: Folder, description: Mapping[str, str], split: str
) -> list[dict[str, Any]]:
    """Returns a split as TensorFlow parses it, in the order of the shards.

    Args:
      directory: of the dataset.
      description: feature -> "int64", "string"..., "*" behind for lists.
      split: its name.
    """
    tf = pytest.importorskip("tensorflow")
    features = {
        name: tf.io.VarLenFeature(kind[:-1])
        if kind.endswith("*")
        else tf.io.FixedLenFeature([], kind)
        for name, kind in description.items()
    }
    shards = [
        str(directory / shard["file"])
        for facts in dataset(directory)["splits"]
        if facts["name"] == split
        for shard in facts["shards"]
    ]
    out = []
    for record in tf.data.TFRecordDataset(shards):
        parsed = tf.io.parse_example(record, features)
        out.append(
            {
                name: value.values.numpy().tolist()
                if isinstance(value, tf.sparse.SparseTensor)
                else value.numpy()
                for name, value in parsed.items()
            }
        )
    return out


def job_digest(source: object, output: object, **settings: object) -> str:
    """Returns the digest of a job."""
    given = {
        "source": str(source),
        "output": str(output),
        "overwrite": True,
        **settings,
    }
    plan = make_plan(make_spec(given))
    assert os.path.basename(plan.work_folder) == plan.work_digest
    return plan.digest


# Fixed-length binary.

CIFAR_NAMES = "airplane automobile bird cat deer dog frog horse ship truck".split()


def cifar(count: int, *, labels: int = 1) -> Array:
    records = RNG.integers(0, 256, (count, 3072 + labels), np.uint8)
    for column, classes in enumerate((20, 100) if labels == 2 else (10,)):
        records[:, column] %= classes
    return records


def cifar10(root: Folder) -> dict[str, Array]:
    """Writes three batches as NumPy lays them out, and the names of the classes."""
    root.mkdir()
    made = {name: cifar(12) for name in ("data_batch_1", "data_batch_2", "test_batch")}
    for name, records in made.items():
        (root / f"{name}.bin").write_bytes(records.tobytes())
    (root / "batches.meta.txt").write_text("\n".join([*CIFAR_NAMES, "", ""]))
    return made


def hwc(records: Array, labels: int = 1) -> Array:
    return records[:, labels:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)


@pytest.mark.parametrize("encode", ["raw", "png"])
def test_cifar10(tmp_path: Folder, encode: str) -> None:
    """TensorFlow reads the arrays that NumPy transposes to, raw and as PNG."""
    tf = pytest.importorskip("tensorflow")
    made = cifar10(tmp_path / "in")
    out = tmp_path / "out"
    convert(tmp_path / "in", out, "--no-shuffle", "--encode", encode)
    train = np.concatenate([made["data_batch_1"], made["data_batch_2"]])
    for split, wanted in {"train": train, "test": made["test_batch"]}.items():
        found = read_with_tensorflow(out, {"image": "string", "label": "int64"}, split)
        assert [row["label"] for row in found] == wanted[:, 0].tolist()
        for row, pixels in zip(found, hwc(wanted), strict=True):
            if encode == "png":
                image = tf.io.decode_image(row["image"]).numpy()
            else:
                flat = tf.io.decode_raw(row["image"], tf.uint8).numpy()
                image = flat.reshape(32, 32, 3)
            assert np.array_equal(image, pixels)
    assert (out / "label.labels.txt").read_text().split() == CIFAR_NAMES


def test_cifar100(tmp_path: Folder) -> None:
    """Both labels come with their names; the fine one is to be predicted."""
    root = tmp_path / "in"
    root.mkdir()
    made = {name: cifar(9, labels=2) for name in ("train", "test")}
    for name, records in made.items():
        (root / f"{name}.bin").write_bytes(records.tobytes())
    (root / "fine_label_names.txt").write_text("\n".join(f"f{i}" for i in range(100)))
    (root / "coarse_label_names.txt").write_text("\n".join(f"c{i}" for i in range(20)))
    convert(root, tmp_path / "out", "--no-shuffle")
    for split, records in made.items():
        assert values(tmp_path / "out", split) == [
            {"coarse_label": [row[0]], "label": [row[1]], "image": [image.tobytes()]}
            for row, image in zip(records.tolist(), hwc(records, 2), strict=True)
        ]
    labels = [f for f in dataset(tmp_path / "out")["features"] if f["kind"] == "label"]
    assert [(f["name"], f.get("is_label", False)) for f in labels] == [
        ("coarse_label", False),
        ("label", True),
    ]
    assert [len(f["classes"]) for f in labels] == [20, 100]


def test_class_names_are_part_of_the_job(tmp_path: Folder) -> None:
    """Other names of classes make another job and another dataset."""
    root = tmp_path / "in"
    cifar10(root)
    before = job_digest(root, tmp_path / "out")
    names = root / "batches.meta.txt"
    names.write_text(names.read_text().replace("airplane", "aircraft"))
    assert job_digest(root, tmp_path / "out") != before
    convert(root, tmp_path / "out")
    assert (tmp_path / "out/label.labels.txt").read_text().startswith("aircraft\n")


def idx(array: Array) -> bytes:
    """Returns an array of bytes in IDX, as LeCun's page describes the format."""
    head = struct.pack(">HBB", 0, 8, array.ndim)
    sizes = struct.pack(f">{array.ndim}I", *array.shape)
    return head + sizes + array.astype(np.uint8).tobytes()


def write_digits(root: Folder, *, packed: bool) -> dict[str, tuple[Array, Array]]:
    """Writes scikit-learn's digits as MNIST's four files."""
    digits = pytest.importorskip("sklearn.datasets").load_digits()
    root.mkdir()
    splits = {"train": slice(0, 1500), "t10k": slice(1500, None)}
    made = {}
    for name, part in splits.items():
        images, labels = digits.images[part].astype(np.uint8), digits.target[part]
        made[{"t10k": "test"}.get(name, name)] = (images, labels)
        for kind, array in (("images-idx3", images), ("labels-idx1", labels)):
            data = idx(array)
            path = root / f"{name}-{kind}-ubyte{'.gz' if packed else ''}"
            path.write_bytes(gzip.compress(data, mtime=0) if packed else data)
    return made


def test_idx(tmp_path: Folder) -> None:
    """The digits of scikit-learn come back, t10k as test."""
    made = write_digits(tmp_path / "in", packed=False)
    convert(tmp_path / "in", tmp_path / "out", "--no-shuffle")
    for split, (images, labels) in made.items():
        assert values(tmp_path / "out", split) == [
            {"image": [image.tobytes()], "label": [label]}
            for image, label in zip(images, labels.tolist(), strict=True)
        ]
    feature = dataset(tmp_path / "out")["features"][0]
    assert (feature["dtype"], feature["shape"]) == ("uint8", [8, 8, 1])


def test_idx_as_png_with_class_names(tmp_path: Folder) -> None:
    """Of gzip, images become PNG, and a vocabulary names the classes by their ids."""
    made = write_digits(tmp_path / "in", packed=True)
    names = "zero one two three four five six seven eight nine".split()
    (tmp_path / "names.txt").write_text("\n".join(names))
    named = ("--vocabulary", tmp_path / "names.txt")
    convert(tmp_path / "in", tmp_path / "out", "--no-shuffle", "--encode=png", *named)
    images, labels = made["test"]
    found = values(tmp_path / "out", "test")
    assert [row["label"] for row in found] == [[label] for label in labels]
    for row, image in zip(found, images, strict=True):
        with Image.open(io.BytesIO(row["image"][0])) as decoded:
            assert np.array_equal(np.array(decoded), image)
    assert (tmp_path / "out/label.labels.txt").read_text().split() == names


def test_idx_labels_are_part_of_the_job(tmp_path: Folder) -> None:
    """A changed file of labels, of the same size, is another job and other records."""
    root = tmp_path / "in"
    made = write_digits(root, packed=False)
    before = job_digest(root, tmp_path / "out")
    path = root / "t10k-labels-idx1-ubyte"
    path.write_bytes(path.read_bytes()[:-1] + b"\7")
    assert job_digest(root, tmp_path / "out") != before
    convert(root, tmp_path / "out", "--no-shuffle")
    labels = [row["label"][0] for row in values(tmp_path / "out", "test")]
    assert labels == [*made["test"][1][:-1], 7]
    assert labels[-1] != made["test"][1][-1]


RUN = np.dtype(
    [("time", ">u4"), ("skipped", "u1", 3), ("state", "u1"), ("grid", ">i2", (3, 2, 4))]
)
LAYOUT = {
    "header_bytes": 8,
    "endianness": "big",
    "fields": [
        {"name": "time", "dtype": "uint32"},
        {
            "name": "state",
            "dtype": "uint8",
            "offset": 7,
            "label": True,
            "classes": "states.txt",
        },
        {"name": "grid", "dtype": "int16", "shape": [3, 2, 4], "order": "CHW"},
    ],
}


def write_runs(root: Folder) -> Array:
    """Writes records with a header, a gap, big-endian numbers and a class id."""
    root.mkdir()
    made = np.zeros(40, RUN)
    made["time"] = RNG.integers(0, 2**32, 40)
    made["state"] = np.arange(40) % 3
    made["grid"] = RNG.integers(-(2**15), 2**15, (40, 3, 2, 4))
    (root / "run.dat").write_bytes(b"RUN-0001" + made.tobytes())
    (root / "states.txt").write_text("on\noff\nbroken\n")
    (root / "layout.yaml").write_text(yaml.safe_dump(LAYOUT))
    return made


def test_described_layout(tmp_path: Folder) -> None:
    """Header, offset, endianness and order are as described; TensorFlow reads it."""
    tf = pytest.importorskip("tensorflow")
    made = write_runs(tmp_path / "in")
    layout = ("--layout", tmp_path / "in/layout.yaml")
    out = tmp_path / "out"
    convert(tmp_path / "in", out, *layout, "--no-shuffle")
    assert account(out)["skipped"] == {}
    kinds = {"time": "int64", "state": "int64", "grid": "string"}
    found = read_with_tensorflow(out, kinds, "train")
    assert [row["time"] for row in found] == made["time"].tolist()
    assert [row["state"] for row in found] == made["state"].tolist()
    grids = made["grid"].transpose(0, 2, 3, 1)
    for row, grid in zip(found, grids, strict=True):
        decoded = tf.io.decode_raw(row["grid"], tf.int16).numpy().reshape(2, 4, 3)
        assert np.array_equal(decoded, grid)
    assert (out / "state.labels.txt").read_text().split() == ["on", "off", "broken"]
    # One file by its name gives the same.
    convert(tmp_path / "in/run.dat", tmp_path / "b", *layout, "--no-shuffle")
    assert payloads(tmp_path / "b") == payloads(out)


def test_layout_is_part_of_the_job(tmp_path: Folder) -> None:
    """The content of the layout file decides the job; its place does not."""
    root = tmp_path / "in"
    made = write_runs(root)
    layout = tmp_path / "there" / "other.yaml"
    layout.parent.mkdir()
    shutil.move(root / "layout.yaml", layout)
    before = job_digest(root, tmp_path / "out", layout=str(layout))
    moved = shutil.copy(layout, tmp_path / "moved.yaml")
    assert job_digest(root, tmp_path / "out", layout=str(moved)) == before
    layout.write_text(yaml.safe_dump({**LAYOUT, "endianness": "little"}))
    assert job_digest(root, tmp_path / "out", layout=str(layout)) != before
    convert(root, tmp_path / "b", "--layout", layout, "--no-shuffle")
    times = [row["time"][0] for row in values(tmp_path / "b")]
    assert times == made["time"].byteswap().tolist()
    names = root / "states.txt"
    now = job_digest(root, tmp_path / "out", layout=str(layout))
    names.write_text("on\noff\nlost!!\n")
    assert job_digest(root, tmp_path / "out", layout=str(layout)) != now
    # The manifest holds the layout itself: it runs again without the file.
    layout.unlink()
    spec = tmp_path / "b/manifest.json"
    convert(root, tmp_path / "c", "--spec", spec)
    assert sorted_messages(tmp_path / "c") == sorted_messages(tmp_path / "b")


def test_fault_132_label_out_of_range_from_end_to_end(tmp_path: Folder) -> None:
    """A class id without a name is a reject by its record; the others are there."""
    root = tmp_path / "in"
    made = cifar10(root)
    records = made["test_batch"]
    records[4, 0] = 77
    (root / "test_batch.bin").write_bytes(records.tobytes())
    convert(root, tmp_path / "out", *TOLERANT)
    (found,) = rejects(tmp_path / "out")
    assert (found["source"], found["row"]) == ("test_batch.bin", 5)
    assert found["reason"] == "out_of_range"
    assert "77" in found["message"]
    assert split_sizes(tmp_path / "out") == {"train": 24, "test": 11}


def test_fault_133_binary_sets_that_are_not_whole(tmp_path: Folder) -> None:
    """Wrong magic, counts and sizes, and pickles, are one error before any work."""
    root = tmp_path / "in"
    write_digits(root, packed=False)
    out = tmp_path / "out"
    images, labels = root / "train-images-idx3-ubyte", root / "train-labels-idx1-ubyte"
    good = images.read_bytes()
    images.write_bytes(good[:-1])
    assert "train-images-idx3-ubyte" in refused(4, root, out)
    images.write_bytes(b"\1\2" + good[2:])
    assert "train-images-idx3-ubyte" in refused(4, root, out)
    images.write_bytes(good)
    labels.write_bytes(idx(np.zeros(3, np.uint8)))
    assert "1500 images" in refused(4, root, out)
    batches = tmp_path / "batches"
    cifar10(batches)
    os.truncate(batches / "data_batch_1.bin", 5000)
    assert "data_batch_1.bin has 5000" in refused(4, batches, out)
    np.save(tmp_path / "a.npy", np.array([{}], object), allow_pickle=True)
    message = refused(4, tmp_path / "a.npy", out)
    assert "a.npy" in message
    assert "object" in message
    assert not out.exists()


# Existing TFRecord files.


@pytest.fixture(scope="module")
def pets(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """A dataset of this program: images in two splits, classes, a reject."""
    root = tmp_path_factory.mktemp("pets")
    bad = {"train/cat/bad.png": b"no image"}
    write_files(root / "in", photos() | bad)
    convert(root / "in", root / "pets", *TOLERANT)
    assert (root / "pets/rejects.jsonl").exists()
    return root / "pets"


def kinds_of(directory: Folder) -> dict[str, Any]:
    """Returns what the manifest says of features, without their statistics."""
    words = ("kind", "is_label", "classes", "shape", "dtype", "encoding", "derived")
    return {
        feature["name"]: {word: feature[word] for word in words if word in feature}
        for feature in dataset(directory)["features"]
    }


def test_reshard_keeps_records_and_metadata(pets: Folder, tmp_path: Folder) -> None:
    """More shards, the same messages, splits, classes and kinds; sidecars are none."""
    convert(pets, tmp_path / "out", "--shards", "3")
    for split in ("train", "test"):
        wanted = sorted_messages(pets, split)
        assert sorted_messages(tmp_path / "out", split) == wanted
    assert kinds_of(tmp_path / "out") == kinds_of(pets)
    found = account(tmp_path / "out")
    assert (found["read"], found["written"]) == (12, 12)
    assert (found["rejected"], found["skipped"]) == ({}, {})
    assert (tmp_path / "out/pets-train.tfrecord-00001-of-00003").exists()


def test_recompress_and_back(pets: Folder, tmp_path: Folder) -> None:
    """Through zlib and back to none, the records are what they were."""
    source = pets
    for kind in ("zlib", "none"):
        convert(source, tmp_path / kind, "--compression", kind, "--name", "pets")
        source = tmp_path / kind
    for split in ("train", "test"):
        assert sorted_messages(source, split) == sorted_messages(pets, split)
    raw = next((tmp_path / "zlib").glob("*-train.*")).read_bytes()
    assert len(zlib.decompress(raw)) > len(raw) // 2


def test_split_again_and_without_a_column(pets: Folder, tmp_path: Folder) -> None:
    """Shares take the place of the old splits; --drop leaves one feature out."""
    options = ("--splits", "a=0.5,b=0.5", "--drop", "filename,image")
    convert(pets, tmp_path / "out", *options)
    assert set(split_sizes(tmp_path / "out")) == {"a", "b"}
    wanted = values(pets)
    for row in wanted:
        del row["filename"], row["image"]
    order = lambda row: sorted(row.items())  # noqa: E731
    assert sorted(values(tmp_path / "out"), key=order) == sorted(wanted, key=order)
    # What was read off the images stays, as numbers.
    assert "derived" not in kinds_of(tmp_path / "out")["height"]


def test_images_are_resized_with_what_is_read_off_them(
    pets: Folder, tmp_path: Folder
) -> None:
    """Image features stay images: made smaller, their height and width follow."""
    convert(pets, tmp_path / "out", "--resize", "exact:3x4")
    for row in values(tmp_path / "out"):
        with Image.open(io.BytesIO(row["image"][0])) as image:
            assert image.size == (4, 3)
        assert (row["height"], row["width"]) == ([3], [4])


def test_datasets_merge_by_the_names_of_their_classes(
    pets: Folder, tmp_path: Folder
) -> None:
    """Two folders are one dataset; a class id means what its own dataset says."""
    root = tmp_path / "all"
    write_files(
        tmp_path / "in", {f"train/dog/{i}.png": picture(90 + i) for i in (1, 2)}
    )
    shutil.copytree(pets, root / "pets")
    convert(tmp_path / "in", root / "dogs")
    convert(root, tmp_path / "out")
    assert split_sizes(tmp_path / "out") == {"train": 8, "test": 6}
    names = (tmp_path / "out/label.labels.txt").read_text().split()
    assert names == ["cat", "dog", "고양이"]
    found = values(tmp_path / "out")
    for row in found:
        folder = row["filename"][0].decode().split("/")[1]
        assert names[row["label"][0]] == folder
    wanted = [row["image"] for row in values(pets) + values(root / "dogs")]
    assert sorted(row["image"] for row in found) == sorted(wanted)


def tensorflow_example(number: int) -> bytes:
    """Serialises a record with TensorFlow's own messages."""
    tf = pytest.importorskip("tensorflow")
    train = tf.train
    features = {
        "photo": train.Feature(bytes_list=train.BytesList(value=[picture(number)])),
        "count": train.Feature(int64_list=train.Int64List(value=[number - 5])),
        "scores": train.Feature(
            float_list=train.FloatList(value=[number / 2] * (number % 3))
        ),
    }
    if number % 4 == 0:
        del features["count"]
    message = train.Example(features=train.Features(feature=features))
    return bytes(message.SerializeToString(deterministic=True))


def test_bare_files_of_tensorflow(tmp_path: Folder) -> None:
    """Plain, gzip and zlib by content, whatever the names; records as they were."""
    tf = pytest.importorskip("tensorflow")
    root = tmp_path / "in"
    root.mkdir()
    records = [tensorflow_example(number) for number in range(30)]
    for i, kind in enumerate(("", "GZIP", "ZLIB")):
        # The suffixes are wrong: compressed files have none, plain ones have .gz.
        name = f"part-{i}.tfrecord" + (".gz" if not kind else "")
        options = tf.io.TFRecordOptions(compression_type=kind)
        with tf.io.TFRecordWriter(str(root / name), options) as writer:
            for record in records[i * 10 : i * 10 + 10]:
                writer.write(record)
    convert(root, tmp_path / "out", "--shards", "2")
    assert sorted_messages(tmp_path / "out") == sorted(records)
    kinds = {name: facts["kind"] for name, facts in kinds_of(tmp_path / "out").items()}
    assert kinds == {"count": "int64", "photo": "image", "scores": "float"}
    shards = sorted((tmp_path / "out").glob("*-of-*"))
    read = tf.data.TFRecordDataset(list(map(str, shards))).as_numpy_iterator()
    assert sorted(read) == sorted(payloads(tmp_path / "out"))


def test_directory_written_by_tfds(tmp_path: Folder) -> None:
    """What TFDS has written keeps its splits, classes and images, and is read again."""
    tfds = pytest.importorskip("tensorflow_datasets")
    features = tfds.features.FeaturesDict(
        {
            "image": tfds.features.Image(shape=(9, 12, 3)),
            "label": tfds.features.ClassLabel(names=["zebra", "ant"]),
            "name": tfds.features.Text(),
        }
    )
    (tmp_path / "zoo").mkdir()
    writer = tfds.core.SequentialWriter(
        tfds.core.DatasetInfo(
            builder=tfds.core.DatasetIdentity(
                name="zoo",
                config_name="",
                version=tfds.core.Version("1.0.0"),
                data_dir=str(tmp_path / "zoo"),
                module_name="zoo",
            ),
            features=features,
        ),
        max_examples_per_shard=4,
    )
    rows = [
        {
            "image": np.full((9, 12, 3), number, np.uint8),
            "label": number % 2,
            "name": f"동물 {number}",
        }
        for number in range(9)
    ]
    writer.initialize_splits(["train", "test"])
    writer.add_examples({"train": rows[:6], "test": rows[6:]})
    writer.close_all()
    convert(tmp_path / "zoo", tmp_path / "out", "--vocabulary", _names(tmp_path))
    builder = tfds.builder_from_directory(str(tmp_path / "out"))
    assert builder.info.features["label"].names == ["ant", "zebra"]
    found = [
        (split, row["name"].decode(), int(row["label"]), int(row["image"][0, 0, 0]))
        for split in ("train", "test")
        for row in tfds.as_numpy(builder.as_dataset(split=split))
    ]
    wanted = [
        ("train" if i < 6 else "test", f"동물 {i}", 1 - i % 2, i) for i in range(9)
    ]
    assert sorted(found) == sorted(wanted)


def _names(folder: Folder) -> Folder:
    path = folder / "names.txt"
    path.write_text("ant\nzebra\n")
    return path


# Archives.


def shards_of(directory: Folder) -> dict[str, bytes]:
    return {k: v for k, v in contents(directory).items() if "-of-" in k}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """The dataset that the folder of images makes."""
    root = tmp_path_factory.mktemp("folder")
    write_files(root / "photos", photos())
    convert(root / "photos", root / "out", "--preset", "imagenet")
    return root / "out"


@pytest.mark.parametrize("suffix", ["zip", "tar", "tar.gz"])
def test_archive_gives_the_shards_of_the_folder(
    tmp_path: Folder, folder: Folder, suffix: str
) -> None:
    """Packed or not, with Korean names, the same images make the same bytes."""
    path = write_archive(tmp_path / f"photos.{suffix}", photos())
    convert(path, tmp_path / "out", "--preset", "imagenet")
    assert shards_of(tmp_path / "out") == shards_of(folder)
    assert len(shards_of(folder)) == 2


# Runs the program, and says what was opened for writing and what names were made.
WATCHED = """
import json, os, sys
found = []
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
def watch(event, arguments):
    if event == "open":
        path, mode, flags = arguments
        if isinstance(flags, int) and flags & WRITES:
            found.append(os.fsdecode(path) if not isinstance(path, int) else "")
    elif event in ("os.rename", "os.link", "os.symlink", "shutil.unpack_archive"):
        found.append(os.fsdecode(arguments[1]))
    elif event == "os.mkdir":
        found.append(os.fsdecode(arguments[0]))
sys.addaudithook(watch)
from beam_pipeline.cli import main
try:
    main(sys.argv[1:])
except SystemExit as stop:
    assert stop.code == 0, stop.code
print(json.dumps(found))
"""


def test_nothing_is_extracted(tmp_path: Folder) -> None:
    """No file or folder of a member's name is made anywhere, and TMPDIR stays empty."""
    path = write_archive(tmp_path / "photos.tar.gz", photos())
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    arguments = ["convert", str(path), str(tmp_path / "out"), "--workers", "1"]
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, *arguments],
        env={**os.environ, "TMPDIR": str(temporary), "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout.splitlines()[-1])
    assert any("-of-00001" in name for name in made), "the hook sees what is written"
    parts = {part for name in PHOTOS for part in name.split("/")[1:]}
    parts |= {pathlib.PurePath(name).suffix for name in PHOTOS}
    for name in made:
        pure = pathlib.PurePath(name)
        assert not parts & {*pure.parts, pure.suffix}, name
    # Temporary files of Beam and the C library were removed, and held no image.
    assert list(temporary.iterdir()) == []


def test_tables_in_an_archive(tmp_path: Folder) -> None:
    """CSV members are one table; so are those of a tar.gz, compressed once more."""
    rows = [f"{number},이름 {number}" for number in range(20)]
    parts = {
        f"{name}.csv": "\n".join(["id,name", *rows[start : start + 10], ""]).encode()
        for name, start in (("a", 0), ("b", 10))
    }
    write_archive(tmp_path / "rows.zip", parts)
    convert(tmp_path / "rows.zip", tmp_path / "out")
    found = sorted(
        (r["id"][0], r["name"][0].decode()) for r in values(tmp_path / "out")
    )
    assert found == [(number, f"이름 {number}") for number in range(20)]


def test_webdataset(tmp_path: Folder) -> None:
    """Samples that webdataset writes have the fields that webdataset reads."""
    wds = pytest.importorskip("webdataset")
    path = tmp_path / "pets-000000.tar.gz"
    samples = [
        {
            "__key__": f"견본/{number:04d}",
            "png": picture(number),
            "cls": number % 3,
            "json": {"caption": f"설명 {number}", "size": [12, 9]},
        }
        for number in range(8)
    ]
    with wds.TarWriter(str(path)) as writer:
        for sample in samples:
            writer.write(sample)
    convert(path, tmp_path / "out", "--no-shuffle")
    read = wds.WebDataset(str(path), shardshuffle=False)
    for row, sample in zip(values(tmp_path / "out"), read, strict=True):
        assert row["key"] == [sample["__key__"].encode()]
        assert row["image"] == [sample["png"]]
        assert row["cls"] == [int(sample["cls"])]
        told = json.loads(sample["json"])
        assert row["json/caption"] == [told["caption"].encode()]
        assert row["json/size"] == told["size"]


def renamed(data: bytes, old: str, new: bytes) -> bytes:
    assert len(old.encode()) == len(new)
    return data.replace(old.encode(), new)


def test_fault_122_names_of_another_encoding_from_end_to_end(tmp_path: Folder) -> None:
    """CP949 names are rejects that name the option, and labels with it."""
    path = tmp_path / "old.zip"
    write_archive(path, {"xxxxxx/1.png": picture(1), "dog/2.png": picture(2)})
    path.write_bytes(renamed(path.read_bytes(), "xxxxxx", "고양이".encode("cp949")))
    convert(path, tmp_path / "a", *TOLERANT)
    (found,) = rejects(tmp_path / "a")
    assert found["reason"] == "invalid_encoding"
    assert "--zip-encoding" in found["message"]
    convert(path, tmp_path / "b", "--zip-encoding", "cp949")
    assert (tmp_path / "b/label.labels.txt").read_text().split() == ["dog", "고양이"]


def special(tar: tarfile.TarFile, name: str, kind: bytes, target: str = "") -> None:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    tar.addfile(info)


def test_fault_115_116_117_121_in_a_tar_from_end_to_end(tmp_path: Folder) -> None:
    """Ways out, links, archives inside and equal names are rejects, the rest rows."""
    path = tmp_path / "a.tar"
    good = {"cat/1.png": picture(1), "dog/2.png": picture(2)}
    bad = {
        "../cat/out.png": "unsafe_path",
        "/cat/absolute.png": "unsafe_path",
        "C:\\cat\\drive.png": "unsafe_path",
        "cat/inner.zip": "nested_archive",
        "cat/1.PNG": "duplicate_name",
    }
    members = {**good, **dict.fromkeys(bad, picture(3))}
    write_archive(path, members)
    with tarfile.open(path, "a") as tar:
        special(tar, "cat/link.png", tarfile.SYMTYPE, "/etc/passwd")
        special(tar, "cat/hard.png", tarfile.LNKTYPE, "cat/1.png")
        special(tar, "cat/pipe.png", tarfile.FIFOTYPE)
    links = dict.fromkeys(
        ["cat/link.png", "cat/hard.png", "cat/pipe.png"], "not_a_regular_file"
    )
    convert(path, tmp_path / "out", *TOLERANT)
    found = {each["source"]: each["reason"] for each in rejects(tmp_path / "out")}
    assert found == bad | links
    assert len(payloads(tmp_path / "out")) == 2
    assert not (tmp_path / "cat").exists()


def test_fault_117_118_123_in_a_zip_from_end_to_end(tmp_path: Folder) -> None:
    """Bombs, wrong checksums, passwords and odd methods are rejects by their member."""
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("cat/1.png", picture(1))
        made.writestr("dog/2.png", picture(2))
        made.writestr("cat/bomb.png", bytes(20_000_000), zipfile.ZIP_DEFLATED)
        made.writestr("cat/lzma.png", picture(3), zipfile.ZIP_LZMA)
        made.writestr("cat/crc.png", b"the checksum of this will be wrong")
        made.writestr("cat/lock.png", picture(4))
    data = bytearray(path.read_bytes().replace(b"will be wrong", b"is wrong now!"))
    local, central = data.index(b"cat/lock.png"), data.rindex(b"cat/lock.png")
    data[local - 24] |= 1
    data[central - 38] |= 1
    path.write_bytes(data)
    convert(path, tmp_path / "out", *TOLERANT)
    assert {each["source"]: each["reason"] for each in rejects(tmp_path / "out")} == {
        "cat/bomb.png": "member_too_large",
        "cat/lzma.png": "unsupported_method",
        "cat/crc.png": "damaged_member",
        "cat/lock.png": "encrypted",
    }
    assert len(payloads(tmp_path / "out")) == 2


def test_fault_118_119_120_damaged_archives_from_end_to_end(tmp_path: Folder) -> None:
    """What is cut or damaged is one error; a flipped pixel of a tar cannot be seen."""
    out = tmp_path / "out"
    for name in ("a.zip", "a.tar", "a.tar.gz"):
        path = write_archive(tmp_path / name, photos())
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) * 2 // 3])
        assert name in refused(4, path, out)
    tar = bytearray(write_archive(tmp_path / "b.tar", photos()).read_bytes())
    second = tar.index(PHOTOS[1].encode())
    tar[second + 5] ^= 1
    (tmp_path / "b.tar").write_bytes(tar)
    assert PHOTOS[0] in refused(4, tmp_path / "b.tar", out)
    assert not out.exists()
    # A byte inside an image, which PNG's own checksum detects.
    data = write_archive(tmp_path / "c.tar", photos()).read_bytes()
    image = photos()[PHOTOS[0]]
    at = data.index(image) + image.index(b"IDAT") + 30
    (tmp_path / "c.tar").write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    convert(tmp_path / "c.tar", out, *TOLERANT)
    assert [r["reason"] for r in rejects(out)] == ["damaged_image"]


def test_fault_124_names_with_newlines_in_an_archive(tmp_path: Folder) -> None:
    """A newline in a name is kept in the record, and escaped in what is printed."""
    members = {"cat/a\nb.png": picture(1), "dog/2.png": b"no image"}
    path = write_archive(tmp_path / "a.tar", members)
    convert(path, tmp_path / "out", *TOLERANT)
    (row,) = values(tmp_path / "out")
    assert row["filename"] == [b"cat/a\nb.png"]
    assert "a\nb" not in command("head", tmp_path / "out").out


def test_fault_125_archive_that_changes_under_a_plan(tmp_path: Folder) -> None:
    """Another archive of the same size is another job."""
    path = write_archive(tmp_path / "a.tar", photos())
    before = job_digest(path, tmp_path / "out")
    os.utime(path, ns=(1, 1))
    assert job_digest(path, tmp_path / "out") != before


# Detection.

OBJECT = "image/object"
BOX_KINDS = {
    **{
        f"{OBJECT}/bbox/{side}": "float32*" for side in ("xmin", "ymin", "xmax", "ymax")
    },
    f"{OBJECT}/class/text": "string*",
    f"{OBJECT}/class/label": "int64*",
}


def marked(size: tuple[int, int], box: tuple[int, int, int, int], **more: Any) -> bytes:
    """Returns a black JPEG with a white box (x, y, width, height)."""
    pixels = np.zeros((size[1], size[0], 3), np.uint8)
    x, y, width, height = box
    pixels[y : y + height, x : x + width] = 255
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "JPEG", quality=95, **more)
    return out.getvalue()


def write_coco(root: Folder, boxes: list[tuple[int, int, int, int]]) -> Folder:
    """Writes COCO's own layout: image i has the box i, and image 0 a second one."""
    images, annotations = [], []
    for number, box in enumerate(boxes, start=1):
        name = f"{number:012d}.jpg"
        write_files(root / "val2017", {name: marked((64, 48), box)})
        images.append({"id": number, "file_name": name, "height": 48, "width": 64})
        annotations.append(_annotation(number, number, box))
    annotations.append(_annotation(90, 1, (0, 0, 64, 48), category_id=90, iscrowd=1))
    write_instances(root, images, annotations)
    return root


def _annotation(number: int, image: int, box: Iterable[float], **more: Any) -> Any:
    x, y, width, height = box
    plain = {"category_id": 1, "area": width * height, "iscrowd": 0}
    found = {"id": number, "image_id": image, "bbox": [x, y, width, height]}
    return {**found, **plain, "segmentation": [[x, y, x + width, y]], **more}


def write_instances(root: Folder, images: list[Any], annotations: list[Any]) -> None:
    path = root / "annotations/instances_val2017.json"
    names = {1: "person", 90: "toothbrush"}
    content = {
        "images": images,
        "annotations": annotations,
        "categories": [{"id": key, "name": name} for key, name in names.items()],
    }
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content))


BOXES = [(8, 12, 16, 24), (20, 4, 30, 10), (32, 24, 32, 24)]


def test_coco(tmp_path: Folder) -> None:
    """TensorFlow parses the names of its Object Detection API as pycocotools has it."""
    pytest.importorskip("tensorflow")
    api = pytest.importorskip("pycocotools.coco")
    root = write_coco(tmp_path / "in", BOXES)
    out = tmp_path / "out"
    convert(root, out)
    kinds = {
        **BOX_KINDS,
        "image/encoded": "string",
        "image/source_id": "string",
        "image/height": "int64",
        "image/width": "int64",
        "image/format": "string",
        f"{OBJECT}/is_crowd": "int64*",
        f"{OBJECT}/area": "float32*",
    }
    found = read_with_tensorflow(out, kinds, "validation")
    oracle = api.COCO(str(root / "annotations/instances_val2017.json"))
    assert sorted(int(row["image/source_id"]) for row in found) == oracle.getImgIds()
    for row in found:
        (image,) = oracle.loadImgs(int(row["image/source_id"]))
        wanted = oracle.loadAnns(oracle.getAnnIds(image["id"]))
        assert (
            row["image/encoded"] == (root / "val2017" / image["file_name"]).read_bytes()
        )
        assert (row["image/height"], row["image/width"]) == (48, 64)
        assert row["image/format"] == b"jpeg"
        assert row[f"{OBJECT}/class/label"] == [each["category_id"] for each in wanted]
        assert row[f"{OBJECT}/is_crowd"] == [each["iscrowd"] for each in wanted]
        assert row[f"{OBJECT}/area"] == [each["area"] for each in wanted]
        assert row[f"{OBJECT}/class/text"] == [
            oracle.cats[each["category_id"]]["name"].encode() for each in wanted
        ]
        corners = np.array([each["bbox"] for each in wanted], float)
        corners[:, 2:] += corners[:, :2]
        corners /= (64, 48, 64, 48)
        sides = [
            row[f"{OBJECT}/bbox/{side}"] for side in ("xmin", "ymin", "xmax", "ymax")
        ]
        assert np.allclose(np.transpose(sides), corners, atol=1e-7)
    assert (out / "label_map.pbtxt").read_text() == (
        "item {\n  id: 1\n  name: 'person'\n}\n"
        "item {\n  id: 90\n  name: 'toothbrush'\n}\n"
    )
    assert "label_map.pbtxt" in [facts["file"] for facts in dataset(out)["files"]]
    # Resharded, boxes, accounts and the label map are what they were.
    convert(out, tmp_path / "b", "--compression", "gzip")
    assert sorted_messages(tmp_path / "b") == sorted_messages(out)
    assert account(tmp_path / "b")["parts"] == account(out)["parts"]
    assert (
        contents(tmp_path / "b")["label_map.pbtxt"]
        == (contents(out)["label_map.pbtxt"])
    )


@pytest.mark.parametrize(
    ("policy", "sums"),
    [
        ("box", {"read": 5, "written": 4, "rejected": 1, "gone": 0}),
        ("image", {"read": 5, "written": 3, "rejected": 0, "gone": 2}),
        ("clip", {"read": 5, "written": 5, "rejected": 0, "gone": 0}),
    ],
)
def test_fault_131_bad_boxes_from_end_to_end(
    tmp_path: Folder, policy: str, sums: dict[str, int]
) -> None:
    """Read = written + rejected + lost with any policy; no box is lost silently."""
    boxes = [*BOXES[:2], (8, 8, 16, 16)]
    root = write_coco(tmp_path / "in", boxes)
    path = root / "annotations/instances_val2017.json"
    content = json.loads(path.read_text())
    content["annotations"].append(_annotation(7, 2, (60, 40, 30, 30)))
    path.write_text(json.dumps(content))
    run = convert(root, tmp_path / "out", "--bad-box", policy, *TOLERANT)
    assert account(tmp_path / "out")["parts"] == {"boxes": sums}
    bad = [] if policy == "clip" else rejects(tmp_path / "out")
    assert [each["reason"] for each in bad] == ["bad_box"] * len(bad)
    assert len(payloads(tmp_path / "out")) == (2 if policy == "image" else 3)
    if policy == "box":
        assert "annotation 7" in bad[0]["message"]
        assert "[60, 40, 30, 30]" in bad[0]["message"]
        assert "rejected 1 of 5 boxes" in run.out
    if policy == "clip":
        found = [row for row in values(tmp_path / "out") if len(row[X_MAX]) == 2]
        assert all(row[X_MAX][-1] == 1 for row in found)


X_MAX = f"{OBJECT}/bbox/xmax"


def test_coco_images_that_are_missing_or_of_another_size(tmp_path: Folder) -> None:
    """Boxes would be misplaced, so both images are rejected with their boxes."""
    root = write_coco(tmp_path / "in", BOXES)
    (root / f"val2017/{2:012d}.jpg").unlink()
    (root / f"val2017/{3:012d}.jpg").write_bytes(marked((48, 64), (1, 1, 9, 9)))
    convert(root, tmp_path / "out", *TOLERANT)
    assert [(r["row"], r["reason"]) for r in rejects(tmp_path / "out")] == [
        (2, "unreadable"),
        (3, "size_mismatch"),
    ]
    boxes = {"read": 4, "written": 2, "rejected": 0, "gone": 2}
    assert account(tmp_path / "out")["parts"] == {"boxes": boxes}
    message = refused(2, root, tmp_path / "b", "--resize", "crop:32x32")
    assert "crop would cut boxes away" in message
    # Without the images, the rest of what is known can still be had.
    convert(root, tmp_path / "c", "--drop", "image/encoded")
    assert len(payloads(tmp_path / "c")) == 3
    convert(root, tmp_path / "d", "--drop", f"{OBJECT}/bbox", *TOLERANT)
    assert "parts" not in account(tmp_path / "d")


@pytest.mark.parametrize(
    "options", [("--exif", "apply"), ("--resize", "pad:96x80", "--enlarge")]
)
def test_boxes_move_with_their_images(tmp_path: Folder, options: Any) -> None:
    """Where the pixels are turned or padded, the box is still around the white part."""
    root = write_coco(tmp_path / "in", BOXES)
    exif = Image.Exif()
    exif[274] = 6
    for number, box in enumerate(BOXES, start=1):
        turned = marked((64, 48), box, exif=exif)
        (root / f"val2017/{number:012d}.jpg").write_bytes(turned)
    convert(root, tmp_path / "out", *options)
    for row in values(tmp_path / "out"):
        with Image.open(io.BytesIO(row["image/encoded"][0])) as image:
            assert image.getexif().get(274, 1) == 1 or "--exif" not in options
            white = np.array(image.convert("L")) > 128
        ys, xs = np.flatnonzero(white.any(1)), np.flatnonzero(white.any(0))
        height, width = white.shape
        assert [row["image/height"], row["image/width"]] == [[height], [width]]
        sides = [row[f"{OBJECT}/bbox/{s}"][0] for s in ("xmin", "ymin", "xmax", "ymax")]
        seen = [xs[0], ys[0], xs[-1] + 1, ys[-1] + 1]
        assert np.allclose(np.multiply(sides, [width, height] * 2), seen, atol=1.6)


def write_voc(root: Folder) -> dict[str, tuple[str, tuple[int, int, int, int]]]:
    """Writes a tree as the devkit has it; returns the object of each image."""
    things = {
        "2007_000001": ("dog", (8, 12, 24, 36)),
        "2007_000002": ("고양이", (20, 4, 50, 14)),
        "2007_000003": ("dog", (0, 0, 64, 48)),
        "2007_000004": ("dog", (1, 1, 2, 2)),
    }
    for stem, (name, box) in things.items():
        top = ElementTree.Element("annotation")
        ElementTree.SubElement(top, "filename").text = f"{stem}.jpg"
        size = ElementTree.SubElement(top, "size")
        for key, value in {"width": 64, "height": 48, "depth": 3}.items():
            ElementTree.SubElement(size, key).text = str(value)
        thing = ElementTree.SubElement(top, "object")
        for key, text in {"name": name, "pose": "Left", "difficult": "1"}.items():
            ElementTree.SubElement(thing, key).text = text
        sides = ElementTree.SubElement(thing, "bndbox")
        for key, value in zip(("xmin", "ymin", "xmax", "ymax"), box, strict=True):
            ElementTree.SubElement(sides, key).text = str(value)
        made = marked((64, 48), (1, 1, 9, 9))
        xml = ElementTree.tostring(top, encoding="utf-8")
        tree = {f"JPEGImages/{stem}.jpg": made, f"Annotations/{stem}.xml": xml}
        write_files(root, tree)
    sets = {"train": "2007_000001\n2007_000003\n", "val": "2007_000002\n"}
    lists = {f"ImageSets/Main/{name}.txt": text for name, text in sets.items()}
    write_files(root, {name: text.encode() for name, text in lists.items()})
    return things


def test_voc_with_its_image_sets(tmp_path: Folder) -> None:
    """Splits are those of ImageSets, class ids count from 1 in sorted order."""
    things = write_voc(tmp_path / "VOC2007")
    out = tmp_path / "out"
    convert(tmp_path / "VOC2007", out)
    assert split_sizes(out) == {"train": 2, "validation": 1}
    assert account(out)["skipped"] == {"not_selected": 1}
    for row in values(out):
        name, box = things[row["image/filename"][0].decode().partition(".")[0]]
        assert row[f"{OBJECT}/class/text"] == [name.encode()]
        assert row[f"{OBJECT}/class/label"] == [{"dog": 1, "고양이": 2}[name]]
        assert row[f"{OBJECT}/difficult"] == [1]
        assert row[f"{OBJECT}/view"] == [b"Left"]
        for side, value, size in zip(
            ("xmin", "ymin", "xmax", "ymax"), box, (64, 48, 64, 48), strict=True
        ):
            assert row[f"{OBJECT}/bbox/{side}"] == [pytest.approx(value / size)]
    assert "name: '고양이'" in (out / "label_map.pbtxt").read_text()
    # The lists are among the inputs: another list is another job.
    before = job_digest(tmp_path / "VOC2007", out)
    lists = tmp_path / "VOC2007/ImageSets/Main/val.txt"
    lists.write_text("2007_000004\n")
    assert job_digest(tmp_path / "VOC2007", out) != before
