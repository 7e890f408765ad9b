"""IDX files, written and read."""

import gzip
import pathlib
import struct
from typing import Any

import numpy as np

from tests.support.cifar import listed
from transforms.formats.raw_rows import RawRows
from transforms.formats.table import InputFile, TableReader

TYPES = {"u1": 8, "i1": 9, "i2": 11, "i4": 12, "f4": 13, "f8": 14}


IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"


def idx(values: np.ndarray) -> bytes:
    """An independent writer: header by struct, values big-endian."""
    code = TYPES[values.dtype.str[1:]]
    head = struct.pack(f">HBB{values.ndim}I", 0, code, values.ndim, *values.shape)
    return head + values.astype(values.dtype.newbyteorder(">")).tobytes()


def digits(count: int = 100, sides: tuple[int, ...] = (28, 28)) -> Any:
    random = np.random.default_rng(count)
    images = random.integers(0, 256, (count, *sides), np.uint8)
    labels = random.integers(0, 10, count, np.uint8)
    return images, labels


def write(
    folder: pathlib.Path,
    images: np.ndarray,
    labels: np.ndarray,
    *,
    names: tuple[str, str] = (IMAGES, LABELS),
    packed: tuple[bool, bool] = (False, False),
) -> InputFile:
    folder.mkdir(exist_ok=True, parents=True)
    paths = []
    for values, name, pack in zip((images, labels), names, packed, strict=True):
        path = folder / (name + ".gz" * pack)
        path.write_bytes(gzip.compress(idx(values)) if pack else idx(values))
        paths.append(path)
    return listed(paths[0])


def read_all(
    reader: TableReader, file: InputFile, block_bytes: int = 10_000
) -> list[RawRows]:
    return [
        raw
        for block in reader.blocks(file, block_bytes=block_bytes, limit_rows=None)
        for raw in reader.read(file, block, ["image", "label"])
    ]


def noise(shape: tuple[int, ...], dtype: str, *, smooth: bool = False) -> np.ndarray:
    random = np.random.default_rng(7)
    top = np.iinfo(dtype).max
    values = random.integers(0, top, shape, dtype, endpoint=True)
    if smooth:
        values = (np.cumsum(values % 7, axis=2) % (top + 1)).astype(dtype)
    return values
