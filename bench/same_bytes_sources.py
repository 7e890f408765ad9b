"""Makes the sources of `same_bytes.py` in a folder: tables, small images and others.

    python bench/same_bytes_sources.py FOLDER

Every value follows from a fixed seed. It runs in an environment of the program, whose
libraries it uses: Pillow, pyarrow and NumPy, and fastavro where that is installed.
"""

import csv
import gzip
import importlib.util
import io
import json
import pathlib
import random
import struct
import sys
import tarfile
import zipfile
from collections.abc import Iterable, Sequence
from typing import Any

import google_crc32c
import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
from PIL import Image

from beam_tfrecord import convert, encode_example

__all__ = ["make"]

_WORDS = [f"w{number}" for number in range(50)]
_ANIMALS = ("cat", "dog", "horse")
_SIZE = (64, 48)
_EXIF_ORIENTATION = 0x0112
_CRC_ROTATION = 15
_CRC_DELTA = 0xA282EAD8
_UINT32 = 0xFFFFFFFF

Folder = pathlib.Path
Rows = Iterable[Sequence[object]]


def make(root: Folder) -> None:
    """Makes all sources below `root`."""
    _csv_tables(root)
    _other_tables(root)
    _image_trees(root)
    _archives(root)
    _detection(root)
    _image_manifests(root)
    _binary(root)
    _tfrecords(root)
    _datasets(root)


def _write_csv(path: Folder, header: Sequence[str], rows: Rows) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(header)
        out.writerows(rows)


def _csv_tables(root: Folder) -> None:
    rng = random.Random(7)
    _write_csv(
        root / "rows.csv",
        ["id", "n", "x", "word", "flag", "when", "maybe"],
        (
            [
                number,
                rng.randrange(-9, 99),
                round(rng.gauss(0, 1), 4),
                rng.choice(_WORDS),
                rng.choice(["true", "false"]),
                f"2026-01-{1 + number % 28:02d}",
                "" if rng.random() < 0.1 else rng.randrange(5),
            ]
            for number in range(120_000)
        ),
    )
    _write_csv(
        root / "small.csv",
        ["id", "x", "word", "class"],
        (
            [number, rng.randrange(1000) / 8, rng.choice(_WORDS), number % 12]
            for number in range(3000)
        ),
    )
    (root / "small.csv.gz").write_bytes(
        gzip.compress((root / "small.csv").read_bytes(), mtime=0)
    )
    _write_csv(
        root / "bad.csv",
        ["a", "b"],
        ([n, "x" if n % 97 == 5 else n * 0.5] for n in range(20_000)),
    )
    (root / "bad.yaml").write_text("features: {b: {kind: float}}\n")
    _write_csv(
        root / "quoted.csv",
        ["k", "text"],
        (
            [n, 'a "quoted"\nline, and a comma' if n % 7 == 0 else f"plain {n}"]
            for n in range(3000)
        ),
    )
    _write_csv(
        root / "ragged.csv",
        ["a", "b"],
        ([n, n / 4, "more"][: 3 if n % 50 == 9 else 2] for n in range(1000)),
    )
    _write_csv(
        root / "wide.csv",
        [f"c{number}" for number in range(300)],
        ([f"{rng.gauss(0, 1):.4f}" for _ in range(300)] for _ in range(2000)),
    )
    for number in range(300):
        _write_csv(
            root / "many" / f"{number:04d}.csv",
            ["a", "b"],
            ([number, row] for row in range(20)),
        )
    for split, count in (("train", 400), ("test", 100)):
        _write_csv(
            root / "by-split" / f"{split}.csv",
            ["a", "word"],
            ([number, rng.choice(_WORDS)] for number in range(count)),
        )
    (root / "unclosed.csv").write_text('a,b\n1,"open\n2,x\n')
    (root / "classes.txt").write_text("\n".join(reversed(_ANIMALS)) + "\n")
    (root / "unknown.yaml").write_text("colour: blue\n")


def _row(number: int, rng: random.Random) -> dict[str, Any]:
    """Returns a row of values that Parquet, Arrow and JSON lines hold."""
    row: dict[str, Any] = {
        "id": number,
        "name": rng.choice(_WORDS),
        "tags": rng.sample(_WORDS, number % 4),
        "box": [[1.5, number], [2.0, 3.0]],
    }
    if number % 3:
        row["inner"] = {"a": number / 7, "b": number % 2 == 0}
    return row


def _other_tables(root: Folder) -> None:
    rng = random.Random(8)
    rows = [_row(number, rng) for number in range(20_000)]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (root / "rows.jsonl").write_text(text)
    (root / "rows.jsonl.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    table = pa.Table.from_pylist(rows)
    pa.parquet.write_table(table, root / "rows.parquet", row_group_size=3000)
    pa.feather.write_feather(table, str(root / "rows.arrow"), compression="lz4")
    sounds = [
        {"sound": {"bytes": rng.randbytes(50), "path": f"{number}.wav"}, "id": number}
        for number in range(100)
    ]
    pa.parquet.write_table(pa.Table.from_pylist(sounds), root / "sounds.parquet")
    whole = (root / "rows.parquet").read_bytes()
    (root / "cut.parquet").write_bytes(whole[: len(whole) // 2])
    numbers = np.random.default_rng(9)
    np.save(root / "matrix.npy", numbers.standard_normal((500, 6), np.float32))
    np.savez(
        root / "arrays.npz",
        x=numbers.standard_normal((500, 4, 3), np.float32),
        y=numbers.integers(0, 10, 500),
        name=np.array([f"n{number}" for number in range(500)]),
    )
    if importlib.util.find_spec("fastavro"):
        _avro(root / "rows.avro", rng)


def _avro(path: Folder, rng: random.Random) -> None:
    import fastavro

    fields = [
        {"name": "id", "type": "long"},
        {"name": "x", "type": ["null", "double"]},
        {"name": "word", "type": "string"},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    ]
    rows = [
        {
            "id": number,
            "x": None if number % 9 == 0 else number / 8,
            "word": rng.choice(_WORDS),
            "tags": rng.sample(_WORDS, number % 3),
            "day": 20_000 + number % 365,
        }
        for number in range(4000)
    ]
    schema = {"type": "record", "name": "row", "fields": fields}
    with path.open("wb") as file:
        fastavro.writer(file, schema, rows, codec="deflate", sync_marker=bytes(16))


def _drawn(number: int, size: tuple[int, int] = _SIZE) -> Image.Image:
    """Returns a gradient with some noise, another one for each number."""
    rng = np.random.default_rng(number)
    width, height = size
    across, down = np.meshgrid(np.arange(width), np.arange(height))
    planes = [across * 3 + number, down * 4, across + down + 7 * number]
    pixels = np.stack(planes, axis=-1) + rng.integers(0, 25, (height, width, 3))
    return Image.fromarray((pixels % 256).astype(np.uint8))


def _image_bytes(image: Image.Image, kind: str, **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def _write(path: Folder, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def _image_trees(root: Folder) -> None:
    for number in range(90):
        split = "test" if number % 5 == 0 else "train"
        name = f"{_ANIMALS[number % 3]}/{number:04d}.jpg"
        size = (64 + number % 7, 48 + number % 11)
        _write(
            root / "photos" / split / name, _image_bytes(_drawn(number, size), "JPEG")
        )
    for number in range(48):
        path = root / "numbered" / str(number % 12) / f"{number}.png"
        _write(path, _image_bytes(_drawn(number, (24, 24)), "PNG"))
    turned = Image.Exif()
    turned[_EXIF_ORIENTATION] = 6
    for number in range(8):
        image = _drawn(number)
        exif = turned if number % 2 else None
        contents = {
            "jpg": _image_bytes(image, "JPEG", exif=turned),
            "png": _image_bytes(image.convert("P"), "PNG", exif=exif),
            "bmp": _image_bytes(image.convert("L"), "BMP"),
            "tiff": _image_bytes(image, "TIFF"),
            "gif": _image_bytes(image, "GIF"),
        }
        for suffix, content in contents.items():
            _write(root / "mixed" / f"{suffix}-kind" / f"{number}.{suffix}", content)
    frames = [_drawn(number) for number in range(3)]
    moving = _image_bytes(frames[0], "GIF", save_all=True, append_images=frames[1:])
    for number in range(20):
        content = _image_bytes(_drawn(number), "JPEG")
        name = f"{_ANIMALS[number % 2]}/{number}.jpg"
        _write(root / "damaged" / name, content[:200] if number % 6 == 2 else content)
    _write(root / "damaged" / "cat" / "moving.gif", moving)


def _archives(root: Folder) -> None:
    images = sorted((root / "photos").rglob("*.jpg"))
    with zipfile.ZipFile(root / "photos.zip", "w") as archive:
        for image in images:
            member = zipfile.ZipInfo(str(image.relative_to(root)))
            archive.writestr(member, image.read_bytes())
    with tarfile.open(root / "photos.tar.gz", "w:gz") as tar:
        for image in images:
            _add(tar, str(image.relative_to(root)), image.read_bytes())
    (root / "samples").mkdir()
    with tarfile.open(root / "samples" / "part-0.tar", "w") as tar:
        for number, image in enumerate(images):
            _add(tar, f"{number:05d}.jpg", image.read_bytes())
            _add(tar, f"{number:05d}.cls", str(number % 5).encode())


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))


def _box(number: int) -> tuple[int, int, int, int]:
    """Returns x, y, width and height of a box within the image."""
    return number % 20, number % 15, 10 + number % 30, 8 + number % 20


def _coco(root: Folder, *, bad: int) -> None:
    """Writes 60 images of one or two boxes, `bad` of which extend beyond theirs."""
    numbers = range(60)
    boxes = [(n, n) for n in numbers] + [(n, n + 3) for n in numbers if n % 2]
    annotations = [
        {
            "id": place,
            "image_id": image,
            "category_id": 1 + seed % 3,
            "bbox": [60, 40, 30, 30] if place < bad else list(_box(seed)),
            "area": 100.5,
            "iscrowd": int(seed % 11 == 0),
        }
        for place, (image, seed) in enumerate(boxes)
    ]
    names = {number: f"{number:012}.jpg" for number in numbers}
    sides = {"width": _SIZE[0], "height": _SIZE[1]}
    content = {
        "images": [{"id": n, "file_name": names[n], **sides} for n in numbers],
        "annotations": annotations,
        "categories": [{"id": 1 + n, "name": name} for n, name in enumerate(_ANIMALS)],
    }
    text = json.dumps(content)
    _write(root / "annotations" / "instances_train2017.json", text.encode())
    for number, name in names.items():
        _write(root / "train2017" / name, _image_bytes(_drawn(number), "JPEG"))


def _voc(root: Folder, names: Sequence[str]) -> None:
    for number in range(40):
        left, top, width, height = _box(number)
        text = (
            f"<annotation><filename>{number:06}.jpg</filename><size>"
            f"<width>{_SIZE[0]}</width><height>{_SIZE[1]}</height></size>"
            f"<object><name>{names[number % len(names)]}</name>"
            f"<difficult>{number % 2}</difficult><bndbox>"
            f"<xmin>{left}</xmin><ymin>{top}</ymin>"
            f"<xmax>{left + width}</xmax><ymax>{top + height}</ymax>"
            "</bndbox></object></annotation>"
        )
        _write(root / "Annotations" / f"{number:06}.xml", text.encode())
        image = _image_bytes(_drawn(number), "JPEG")
        _write(root / "JPEGImages" / f"{number:06}.jpg", image)


def _detection(root: Folder) -> None:
    _coco(root / "coco", bad=0)
    _coco(root / "coco-bad", bad=9)
    _voc(root / "voc", _ANIMALS)
    _voc(root / "voc-numbers", [str(number) for number in range(12)])
    _turned_boxes(root)


def _turned_boxes(root: Folder) -> None:
    """Copies the VOC files, with images that EXIF turns and the sizes that one sees."""
    exif = Image.Exif()
    exif[_EXIF_ORIENTATION] = 6
    for path in sorted((root / "voc" / "Annotations").iterdir()):
        _write(root / "voc-turned" / "Annotations" / path.name, path.read_bytes())
        image = _drawn(int(path.stem), (_SIZE[1], _SIZE[0]))
        content = _image_bytes(image, "JPEG", exif=exif)
        _write(root / "voc-turned" / "JPEGImages" / f"{path.stem}.jpg", content)


def _image_manifests(root: Folder) -> None:
    splits = ("TRAIN", "TRAIN", "VALIDATION", "TEST", "UNASSIGNED")
    labels: list[Sequence[object]] = []
    boxes: list[Sequence[object]] = []
    for number in range(60):
        split, label = splits[number % 5], _ANIMALS[number % 3]
        left, top, width, height = _box(number)
        right, bottom = left + width, top + height
        sides = (left / 64, top / 48, "", "", right / 64, bottom / 48, "", "")
        labels.append((split, f"{number}.jpg", label))
        boxes.append((split, f"{number}.jpg", label, *sides))
        for name in ("automl", "automl-boxes", "metadata", "images-by-content"):
            path = root / name / f"{number}.jpg"
            _write(path, _image_bytes(_drawn(number), "JPEG"))
    _write_csv(root / "automl" / "all.csv", *_first_apart(labels))
    _write_csv(root / "automl-boxes" / "all.csv", *_first_apart(boxes))
    _write_csv(
        root / "metadata" / "metadata.csv",
        ["file_name", "score", "label"],
        ([f"{n}.jpg", n / 8, _ANIMALS[n % 3]] for n in range(60)),
    )
    _write_csv(
        root / "images-by-content" / "rows.csv",
        ["score", "seen"],
        ([n / 8, f"{n}.jpg"] for n in range(60)),
    )
    _write_csv(
        root / "photo-labels.csv",
        ["id", "kind"],
        ([f"{n:04d}", f"kind {n % 4}"] for n in range(90) if n % 5),
    )


def _first_apart(rows: list[Sequence[object]]) -> tuple[list[str], Rows]:
    """Returns the first row as the header: AutoML manifests have none."""
    return [str(cell) for cell in rows[0]], rows[1:]


def _binary(root: Folder) -> None:
    rng = np.random.default_rng(11)
    for name, count in (("data_batch_1", 200), ("test_batch", 50)):
        records = rng.integers(0, 256, (count, 1 + 32 * 32 * 3), np.uint8)
        records[:, 0] %= 10
        _write(root / "cifar" / f"{name}.bin", records.tobytes())
    names = "\n".join(f"class {number}" for number in range(10)) + "\n"
    _write(root / "cifar" / "batches.meta.txt", names.encode())
    pixels = rng.integers(0, 256, (120, 28, 28), np.uint8)
    labels = rng.integers(0, 10, 120).astype(np.uint8)
    head = struct.pack(">4I", 0x803, 120, 28, 28)
    _write(root / "digits" / "train-images-idx3-ubyte", head + pixels.tobytes())
    head = struct.pack(">2I", 0x801, 120)
    _write(root / "digits" / "train-labels-idx1-ubyte", head + labels.tobytes())


def _masked_crc(content: bytes) -> bytes:
    crc = google_crc32c.value(content)
    turned = (crc >> _CRC_ROTATION | crc << 32 - _CRC_ROTATION) + _CRC_DELTA
    return struct.pack("<I", turned & _UINT32)


def _framed(record: bytes) -> bytes:
    length = struct.pack("<Q", len(record))
    return length + _masked_crc(length) + record + _masked_crc(record)


def _tfrecords(root: Folder) -> None:
    rng = random.Random(12)
    for part in range(2):
        records = [
            encode_example(
                {
                    "id": 500 * part + number,
                    "x": number / 8,
                    "name": rng.choice(_WORDS),
                    "values": [rng.randrange(99) for _ in range(number % 4)],
                }
            )
            for number in range(500)
        ]
        content = b"".join(map(_framed, records))
        name = f"all.tfrecord-{part:05d}-of-00002"
        _write(root / "tfrecord" / name, content)
        packed = gzip.compress(content, mtime=0)
        _write(root / "tfrecord-gz" / f"{name}.gz", packed)
        damaged = bytearray(content)
        if part:
            damaged[len(content) // 2] ^= 1
        _write(root / "tfrecord-damaged" / name, bytes(damaged))
    _write(root / "tfrecord-cut" / "all.tfrecord", content[: len(content) // 2])


def _datasets(root: Folder) -> None:
    """Converts two trees of images with the version that makes the sources."""
    for place, name in enumerate(("photos", "numbered")):
        convert(root / name, root / "datasets" / str(place), name=name, workers=1)


if __name__ == "__main__":
    make(pathlib.Path(sys.argv[1]))
