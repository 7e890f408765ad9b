"""The inputs of the commands in the README and the docs, one of every kind."""

import json
import pathlib
import struct
import tarfile

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet
from PIL import Image

from beam_pipeline import sample
from tests.support.sequences import sequence
from transforms.core.tfrecord.frame import frame

Folder = pathlib.Path


def write_everything(folder: Folder) -> None:
    """Writes all sources into a folder."""
    sample.write_photos(folder / "photos")
    sample.write_rows(folder / "rows.csv")
    for write in (
        _landmarks,
        _shop,
        _scans,
        _cifar,
        _digits,
        _sensor,
        _tables,
        _archive,
        _street,
        _ade20k,
        _sales,
        _logs,
        _sounds,
        _video,
    ):
        write(folder)


def _image(path: Folder, seed: int, size: tuple[int, int] = (24, 16)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    values = np.random.default_rng(seed).integers(0, 256, (*size, 3), np.uint8)
    Image.fromarray(values).save(path)


def _landmarks(folder: Folder) -> None:
    lines = ["id,landmark_id"]
    for number in range(12):
        place = ("서울/남산", "부산/해운대")[number % 2]
        _image(folder / f"landmarks/train/{place}/{number:02}.JPG", number)
        lines.append(f"{number:02},{5 + 7 * (number % 2)}")
    (folder / "landmarks/train.csv").write_text("\n".join(lines), encoding="utf-8")


def _logs(folder: Folder) -> None:
    (folder / "logs").mkdir()
    for day in range(3):
        lines = [f"{day * 10 + i},{i / 4}" for i in range(10)]
        path = folder / f"logs/day-{day}.csv"
        path.write_text("\n".join(["second,load", *lines, ""]))


def _shop(folder: Folder) -> None:
    lines = []
    for number in range(10):
        _image(folder / f"shop/images/{number}.png", number)
        use = ("TRAIN", "TEST", "DISCARD")[number % 3]
        lines.append(f"{use},images/{number}.png,{'ab'[number % 2]}")
    (folder / "shop/manifest.csv").write_text("\n".join(lines))


def _scans(folder: Folder) -> None:
    for split in ("train", "test"):
        lines = ["file_name,animal"]
        for number in range(4):
            _image(folder / f"scans/{split}/{number}.png", number)
            lines.append(f"{number}.png,{('cat', 'dog')[number % 2]}")
        (folder / f"scans/{split}/metadata.csv").write_text("\n".join(lines))


def _cifar(folder: Folder) -> None:
    (folder / "cifar").mkdir()
    generator = np.random.default_rng(0)
    for name, count in (("data_batch_1.bin", 20), ("test_batch.bin", 5)):
        records = generator.integers(0, 256, (count, 3073), np.uint8)
        records[:, 0] %= 10
        (folder / "cifar" / name).write_bytes(records.tobytes())
    names = "airplane automobile bird cat deer dog frog horse ship truck".split()
    (folder / "cifar/batches.meta.txt").write_text("\n".join(names))


def _digits(folder: Folder) -> None:
    (folder / "digits").mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, (6, 28, 28), np.uint8)
    images = struct.pack(">IIII", 2051, *pixels.shape) + pixels.tobytes()
    labels = struct.pack(">II", 2049, 6) + bytes(range(6))
    (folder / "digits/train-images-idx3-ubyte").write_bytes(images)
    (folder / "digits/train-labels-idx1-ubyte").write_bytes(labels)


def _sensor(folder: Folder) -> None:
    header = b"SENSOR01"
    records = b"".join(
        struct.pack(">Hf", number, number / 2) + bytes(12) for number in range(30)
    )
    (folder / "sensor.bin").write_bytes(header + records)


def _tables(folder: Folder) -> None:
    rows = [{"id": n, "tags": ["a", "b"][: n % 3], "size": n / 4} for n in range(50)]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "events.jsonl").write_text(text)
    pyarrow.parquet.write_table(pa.Table.from_pylist(rows), folder / "events.parquet")
    types = {"id": "long", "tags": {"type": "array", "items": "string"}}
    fields = [{"name": n, "type": t} for n, t in {**types, "size": "double"}.items()]
    with (folder / "events.avro").open("wb") as avro:
        fastavro.writer(avro, {"type": "record", "name": "E", "fields": fields}, rows)
    patients = [f"{n},p{n // 4},{'yes' if n % 5 else 'no'}" for n in range(200)]
    lines = ["scan,patient,ill", *patients]
    (folder / "patients.csv").write_text("\n".join(lines))


def _archive(folder: Folder) -> None:
    with tarfile.open(folder / "photos.tar.gz", "w:gz") as archive:
        archive.add(folder / "photos", "photos")


def _sales(folder: Folder) -> None:
    lines = [f"{number},{number % 7}.5" for number in range(1000)]
    for name, price in (("raw", "unknown"), ("fixed", "4.5")):
        lines[400] = f"400,{price}"
        path = folder / name / "sales.csv"
        path.parent.mkdir()
        path.write_text("\n".join(["id,price", *lines, ""]))


def _sounds(folder: Folder) -> None:
    for label in ("bird", "rain"):
        for name in ("1.wav", "2.wav", "1.h5"):
            path = folder / "sounds" / label / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(label.encode())


def _video(folder: Folder) -> None:
    record = sequence({"id": [7]}, {"frame": [[1], [2]], "words": [[1, 2], []]})
    (folder / "video.tfrecord").write_bytes(frame(record))


def _ade20k(folder: Folder) -> None:
    for number, split in enumerate(("training", "validation")):
        path = folder / f"ade20k/images/{split}/{number}.jpg"
        _image(path, number, (40, 60))
        mask = folder / f"ade20k/annotations/{split}/{number}.png"
        mask.parent.mkdir(parents=True)
        Image.fromarray(np.full((40, 60), number, np.uint8)).save(mask)


def _street(folder: Folder) -> None:
    images, annotations = [], []
    for number in range(6):
        name = f"{number:03}.jpg"
        _image(folder / "street/images" / name, number, (40, 60))
        images.append({"id": number, "file_name": name, "height": 40, "width": 60})
        box = [5.0, 5.0, 20.0 + number, 10.0]
        kind = 1 + number % 2
        annotations.append(
            {"id": number, "image_id": number, "category_id": kind, "bbox": box}
            | {"area": box[2] * box[3], "iscrowd": 0}
            | {"segmentation": [[5, 5, 20, 5, 20, 15]]}
        )
    categories = [{"id": 1, "name": "car"}, {"id": 2, "name": "bus"}]
    data = {"images": images, "annotations": annotations, "categories": categories}
    (folder / "street/annotations").mkdir()
    (folder / "street/annotations/instances_train.json").write_text(json.dumps(data))
