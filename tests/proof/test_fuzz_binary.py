"""Damaged binary tables: rows, rejections or one typed error, and no row is lost."""

import gzip
import io
import json
import pathlib
import struct
from decimal import Decimal

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import Headline
from tests.support.drawn_images import picture, saved
from tests.support.fuzzing import (
    OUTCOMES,
    Subject,
    corpus,
    fuzzed,
    planned_source,
    read_planned,
    replayed,
)
from tests.support.stress import CASES

Folder = pathlib.Path

TABLE = pa.table(
    {
        "i": pa.array([1, None, -3, 2**40] * 4),
        "f": pa.array([0.5, -1.0, float("nan"), None] * 4, pa.float32()),
        "t": pa.array(["글", "", None, "x" * 30] * 4),
        "d": pa.array(["a", "b", "a", "c"] * 4).dictionary_encode(),
        "l": pa.array([[1, 2], [], None, [3]] * 4),
        "s": pa.array([{"p": 1, "q": "z"}, {"p": None, "q": None}] * 8),
        "w": pa.array([0, 10**6, None, -1] * 4, pa.timestamp("us")),
    }
)
PNG = saved(picture(height=5, width=7), "PNG")


def parquet(**options: object) -> bytes:
    out = io.BytesIO()
    pq.write_table(TABLE, out, **options)
    return out.getvalue()


def arrow(*, stream: bool = False, compression: str | None = None) -> bytes:
    out = io.BytesIO()
    new = pa.ipc.new_stream if stream else pa.ipc.new_file
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with new(out, TABLE.schema, options=options) as writer:
        writer.write_table(TABLE, max_chunksize=5)
    return out.getvalue()


def avro(codec: str = "null") -> bytes:
    names = {"type": "enum", "name": "E", "symbols": ["a", "b", "c"]}
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
    point = {"name": "p", "type": ["null", "int"]}, {"name": "q", "type": "string"}
    fields = {
        "i": ["null", "long"],
        "f": ["float", "null"],
        "t": ["null", "string"],
        "d": names,
        "l": ["null", {"type": "array", "items": "long"}],
        "s": ["null", {"type": "record", "name": "S", "fields": [*point]}],
        "w": ["null", {"type": "long", "logicalType": "timestamp-micros"}],
        "n": [decimal, "null"],
        "m": {"type": "map", "values": "boolean"},
    }
    schema = {
        "type": "record",
        "name": "Row",
        "fields": [{"name": name, "type": kind} for name, kind in fields.items()],
    }
    rows = [
        {
            **row,
            "s": row["s"]["q"] and row["s"],
            "n": Decimal(number) / 4,
            "m": {"k": True},
        }
        for number, row in enumerate(TABLE.to_pylist() * 8)
    ]
    out = io.BytesIO()
    sync = b"0123456789abcdef"
    fastavro.writer(out, schema, rows, codec, sync_interval=900, sync_marker=sync)
    return out.getvalue()


def avro_numbers() -> bytes:
    fields = [{"name": "x", "type": "double"}, {"name": "y", "type": "double"}]
    out = io.BytesIO()
    fastavro.writer(
        out,
        {"type": "record", "name": "Row", "fields": fields},
        [{"x": n / 7, "y": -n / 3} for n in range(300)],
        sync_marker=b"0123456789abcdef",
    )
    return out.getvalue()


def numpy_file(array: np.ndarray, version: tuple[int, int] = (1, 0)) -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array(out, array, version)
    return out.getvalue()


def npz(*, compressed: bool = False) -> bytes:
    out = io.BytesIO()
    save = np.savez_compressed if compressed else np.savez
    save(
        out,
        x=np.arange(24, dtype=np.uint8).reshape(6, 2, 2),
        y=np.arange(6),
        name=np.array(["a", "글", "", "d", "e", "f"]),
    )
    return out.getvalue()


def idx(array: np.ndarray) -> bytes:
    head = struct.pack(">BBBB", 0, 0, 8, array.ndim)
    return head + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


DIGITS = idx(np.arange(6 * 4 * 3, dtype=np.uint8).reshape(6, 4, 3))
CLASSES = idx(np.arange(6, dtype=np.uint8) % 3)
BATCH = b"".join(bytes([n]) + bytes(range(256)) * 12 for n in range(3))
NAMES = b"".join(b"class %d\n" % n for n in range(10))
FINE = b"".join(bytes([n, 9 - n]) + bytes(range(256)) * 12 for n in range(3))
COCO = {
    "images": [
        {"id": n, "file_name": f"{n}.png", "height": 5, "width": 7} for n in (1, 2, 3)
    ],
    "annotations": [
        {"id": n, "image_id": 1 + n % 3, "category_id": 1 + n % 2, "bbox": [1, 1, n, 2]}
        | {"area": 2.0, "iscrowd": 0}
        for n in range(1, 5)
    ],
    "categories": [{"id": 1, "name": "cat"}, {"id": 2, "name": "개"}],
}
VOC = """<annotation><filename>1.png</filename>
<size><width>7</width><height>5</height><depth>3</depth></size>
<object><name>cat</name><difficult>0</difficult>
<bndbox><xmin>1</xmin><ymin>1</ymin><xmax>4</xmax><ymax>3</ymax></bndbox></object>
<object><name>개</name><bndbox><xmin>2</xmin><ymin>2</ymin><xmax>7</xmax><ymax>5</ymax>
</bndbox></object></annotation>
"""
AUTOML = "TRAIN,1.png,cat,0.1,0.1,,,0.5,0.5,,\nTEST,2.png,dog,0,0,,,1,1,,\n"
PICTURES = {f"{n}.png": PNG for n in (1, 2, 3)}

IDX = (
    Subject(
        "train-images-idx3-ubyte", DIGITS, {}, {"train-labels-idx1-ubyte": CLASSES}
    ),
    Subject(
        "t10k-labels-idx1-ubyte",
        CLASSES,
        {},
        {"t10k-images-idx3-ubyte": DIGITS},
        source="t10k-images-idx3-ubyte",
    ),
    Subject(
        "emnist-images-idx3-ubyte.gz",
        gzip.compress(DIGITS, mtime=0),
        {},
        {"emnist-labels-idx1-ubyte": CLASSES},
    ),
)
CIFAR = (
    Subject("data_batch_1.bin", BATCH, {}, {"batches.meta.txt": NAMES}),
    Subject(
        "batches.meta.txt",
        NAMES,
        {},
        {"test_batch.bin": BATCH},
        source="test_batch.bin",
    ),
    Subject("train.bin", FINE),
)
NUMPY = (
    Subject("a.npz", npz()),
    Subject("b.npz", npz(compressed=True)),
    Subject("c.npy", numpy_file(np.arange(12, dtype=np.float64).reshape(4, 3))),
    Subject("d.npy", numpy_file(np.arange(6, dtype=">i4"), (2, 0))),
)
PARQUET = (
    Subject("a.parquet", parquet(row_group_size=7)),
    Subject("b.parquet", parquet(compression="zstd", data_page_version="2.0")),
    Subject("c.parquet", parquet(use_dictionary=False, compression="none")),
)
ARROW = (
    Subject("a.arrow", arrow()),
    Subject("b.arrow", arrow(stream=True)),
    Subject("c.arrow", arrow(compression="zstd")),
)
AVRO = (
    Subject("a.avro", avro()),
    Subject("b.avro", avro("deflate")),
    Subject("c.avro", avro_numbers()),
)


DETECTION = (
    Subject("instances.json", json.dumps(COCO).encode(), {}, PICTURES),
    Subject("1.xml", VOC.encode(), {}, PICTURES),
    Subject("automl.csv", AUTOML.encode(), {}, PICTURES),
)
KINDS = {
    "IDX": IDX,
    "CIFAR": CIFAR,
    "npz and npy": NUMPY,
    "Parquet": PARQUET,
    "Arrow IPC": ARROW,
    "Avro": AVRO,
    "COCO, VOC and AutoML": DETECTION,
}


@pytest.mark.parametrize("cases", CASES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_damaged_files(
    kind: str, cases: range, tmp_path: Folder, headline: Headline
) -> None:
    """Any damage gives rows, rejections or one typed error, soon."""
    outcomes = fuzzed(tmp_path, KINDS[kind], cases, planned_before=False)
    assert outcomes["error"] > len(cases) // 4, outcomes
    assert outcomes["clean"] + outcomes["rejected"] > len(cases) // 50, outcomes
    headline("H5", f"{{}} damaged {kind} files: no crash, hang or loss", len(cases))


@pytest.mark.parametrize("path", corpus("binary"), ids=lambda path: path.name)
def test_what_once_failed(path: Folder, tmp_path: Folder) -> None:
    """Every file that once made the program fail is read or refused."""
    assert replayed(path, tmp_path).kind in OUTCOMES


def test_times_beyond_the_calendar_of_python(tmp_path: Folder) -> None:
    """A year after 9999 and an unknown zone are numbers like others."""
    far = pa.array([2**62, 5]).view(pa.timestamp("us"))
    path = tmp_path / "far.parquet"
    table = pa.table({"w": far, "z": far.view(pa.timestamp("us", "Nowhere/X"))})
    pq.write_table(table, path)
    outcome = read_planned(planned_source(path), path)
    assert [row["w"] for _, _, row in outcome.rows] == [2**62, 5]
    assert [row["z"] for _, _, row in outcome.rows] == [2**62, 5]
