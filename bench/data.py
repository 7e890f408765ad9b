"""Creates the benchmark's inputs in bench/data/ if they are missing.

Seeds are fixed, so that figures of different days can be compared. Each input is built
beside its target and renamed, so that an interrupted run leaves no partial input.
"""

import io
import os
import pathlib
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.csv

__all__ = ["csv_of", "data_folder", "images_of", "wide_of"]

_ANIMALS = ("cat", "dog", "chicken", "horse", "goat")
_CHUNK_ROWS = 1_000_000


def data_folder() -> pathlib.Path:
    """Returns the folder of the inputs and creates it if it is missing."""
    folder = pathlib.Path(__file__).resolve().parent / "data"
    folder.mkdir(exist_ok=True)
    return folder


def csv_of(rows: int) -> pathlib.Path:
    """Returns a CSV of `rows` rows: a bool, an int 0-4, an animal, a normal float."""
    path = data_folder() / f"rows-{rows}.csv"
    if path.exists():
        return path
    rng = np.random.default_rng(20)
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        file.write(b"feature0,feature1,feature2,feature3\n")
        for start in range(0, rows, _CHUNK_ROWS):
            count = min(_CHUNK_ROWS, rows - start)
            numbers = rng.integers(0, len(_ANIMALS), count)
            flags = rng.integers(0, 2, count)
            # float32, as in a record: the text then has the digits it needs.
            values = rng.standard_normal(count, np.float32)
            table = pa.table(
                {
                    "feature0": pa.array(["False", "True"]).take(flags),
                    "feature1": numbers,
                    "feature2": pa.array(_ANIMALS).take(numbers),
                    "feature3": values,
                }
            )
            options = pyarrow.csv.WriteOptions(
                include_header=False, quoting_style="none"
            )
            pyarrow.csv.write_csv(table, file, options)
    partial.rename(path)
    return path


def wide_of(columns: int, rows: int) -> pathlib.Path:
    """Returns a CSV of `rows` rows of floats of up to four digits, 7 bytes a cell."""
    path = data_folder() / f"wide-{columns}-{rows}.csv"
    if path.exists():
        return path
    rng = np.random.default_rng(22)
    names = [f"c{number:05d}" for number in range(columns)]
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        file.write((",".join(names) + "\n").encode())
        each = max(_CHUNK_ROWS // columns, 1)
        for start in range(0, rows, each):
            shape = columns, min(each, rows - start)
            table = pa.table([*(rng.integers(1, 10_000, shape) / 1e4)], names)
            options = pyarrow.csv.WriteOptions(
                include_header=False, quoting_style="none"
            )
            pyarrow.csv.write_csv(table, file, options)
    partial.rename(path)
    return path


def _drawn_images(count: int) -> list[tuple[str, bytes]]:
    """Returns (label, JPEG) pairs of about 20 KB each, as a substitute for photos."""
    from PIL import Image

    rng = np.random.default_rng(21)
    images = []
    for number in range(count):
        width, height = (int(side) for side in rng.integers(220, 320, 2))
        coarse = rng.integers(0, 256, (24, 24, 3)).astype(np.uint8)
        image = Image.fromarray(coarse).resize(
            (width, height), Image.Resampling.BICUBIC
        )
        noise = rng.integers(-14, 15, (height, width, 3))
        pixels = np.clip(np.asarray(image) + noise, 0, 255).astype(np.uint8)
        out = io.BytesIO()
        Image.fromarray(pixels).save(out, "JPEG", quality=82)
        images.append((f"label-{number % 10}", out.getvalue()))
    return images


def images_of(count: int) -> pathlib.Path:
    """Returns a folder with train/<label>/, `count` JPEGs in all.

    Repeats the photos of `clothing/` in BEAM_TFRECORD_TEST_DATA, or drawn images if
    there are none. The files are copies, so that each has its own pages and inode.
    """
    given = os.environ.get("BEAM_TFRECORD_TEST_DATA", "")
    clothing = pathlib.Path(given, "clothing")
    real = bool(given) and clothing.is_dir()
    folder = data_folder() / f"images-{count}-{'clothing' if real else 'drawn'}"
    if folder.exists():
        return folder
    if real:
        images = [
            (path.parent.name, path.read_bytes())
            for path in sorted(clothing.glob("*/*/*.jpg"))
        ]
    else:
        images = _drawn_images(min(count, 1_000))
    partial = folder.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    for number in range(count):
        label, data = images[number % len(images)]
        path = partial / "train" / label / f"{number:06d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    partial.rename(folder)
    return folder
