"""Makes the inputs of `growth.py`: each function writes `count` units into a folder.

    python growth_data.py NAME COUNT FOLDER

It runs as a process of its own, so that its memory is not that of the benchmark.
"""

import io
import json
import pathlib
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet

__all__ = ["BAD_IMAGES", "MAKERS", "REJECT_ROWS"]

_PART = 100_000
_WORDS = ("cat", "dog", "chicken", "horse", "goat")
# Rows and images of which a part is rejected.
REJECT_ROWS = 1_000_000
BAD_IMAGES = 100_000


def _write_csv(path: pathlib.Path, parts: Iterator[pa.Table]) -> None:
    with path.open("wb") as file:
        for number, table in enumerate(parts):
            options = pyarrow.csv.WriteOptions(
                include_header=number == 0, quoting_style="none"
            )
            pyarrow.csv.write_csv(table, file, options)


def _starts(count: int, part: int = _PART) -> Iterator[tuple[int, int]]:
    for start in range(0, count, part):
        yield start, min(start + part, count)


def _rows_table(start: int, stop: int) -> pa.Table:
    numbers = np.arange(start, stop)
    return pa.table(
        {
            "id": numbers,
            "score": (numbers % 1_009).astype("f4") / 7,
            "word": pa.array(_WORDS).take(pa.array(numbers % 5)),
        }
    )


def rows(folder: pathlib.Path, count: int, each: int = 1) -> None:
    """Writes a CSV of `count * each` rows of three columns."""
    parts = (_rows_table(*part) for part in _starts(count * each))
    _write_csv(folder / "rows.csv", parts)


def shards(folder: pathlib.Path, count: int) -> None:
    """Writes a CSV of 100 rows for each shard."""
    rows(folder, count, each=100)


def columns(folder: pathlib.Path, count: int) -> None:
    """Writes a CSV of 1,000 rows of `count` floats."""
    values = np.random.default_rng(30).standard_normal((1000, count), np.float32)
    _write_csv(
        folder / "wide.csv",
        iter([pa.table({f"c{i:05d}": values[:, i] for i in range(count)})]),
    )


def mixed_columns(folder: pathlib.Path, count: int) -> None:
    """Writes a CSV of 300 rows of `count` words, dates, floats with NA, and bools."""
    rng = np.random.default_rng(31)
    numbers = rng.standard_normal((300, count), np.float32).round(4).astype(str)
    numbers[rng.random((300, count)) < 0.05] = "NA"
    days = rng.integers(1, 29, (300, count)).astype(str)
    looks = (
        lambda at: np.char.add("word", days[:, at]),
        lambda at: np.char.add("2024-02-", np.char.zfill(days[:, at], 2)),
        lambda at: numbers[:, at],
        lambda at: np.where(numbers[:, at] > "0", "true", "false"),
    )
    table = pa.table({f"c{i:05d}": looks[i % len(looks)](i) for i in range(count)})
    _write_csv(folder / "mixed.csv", iter([table]))


def files(folder: pathlib.Path, count: int) -> None:
    """Writes `count` CSV files of ten rows, in folders of 1,000."""
    for number in range(count):
        parent = folder / f"{number // 1000:04d}"
        parent.mkdir(exist_ok=True)
        lines = (f"{row},{row / 7:.4f},word{row % 5}" for row in range(10))
        text = "\n".join(["id,score,word", *lines, ""])
        (parent / f"{number:06d}.csv").write_text(text)


def classes(folder: pathlib.Path, count: int) -> None:
    """Writes a CSV of two rows of each of `count` labels."""

    def part(start: int, stop: int) -> pa.Table:
        numbers = pa.array(np.arange(start, stop) * 7_919 % count)
        labels = pa.compute.binary_join_element_wise(
            "label", numbers.cast(pa.string()), "-"
        )
        return pa.table({"number": numbers, "label": labels})

    _write_csv(folder / "rows.csv", (part(*each) for each in _starts(2 * count)))


def row_bytes(folder: pathlib.Path, count: int) -> None:
    """Writes a CSV of 20 rows of a number and a text of `count` bytes."""
    rng = np.random.default_rng(31)
    with (folder / "rows.csv").open("wb") as file:
        file.write(b"number,text\n")
        for number in range(20):
            letters = rng.integers(ord("a"), ord("z") + 1, count, dtype=np.uint8)
            file.write(b"%d,%s\n" % (number, letters.tobytes()))


def _lists(rows: int, count: int) -> pa.Table:
    values = np.random.default_rng(32).standard_normal((rows, count), np.float32)
    return pa.table({"id": np.arange(rows), "values": list(values)})


def parquet_lists(folder: pathlib.Path, count: int) -> None:
    """Writes a Parquet file of 40 rows with a list of `count` floats."""
    pyarrow.parquet.write_table(_lists(40, count), folder / "lists.parquet")


def json_lists(folder: pathlib.Path, count: int) -> None:
    """Writes JSON lines: 20 rows with a list of `count` numbers."""
    with (folder / "lists.jsonl").open("w") as file:
        for row in _lists(20, count).to_pylist():
            file.write(json.dumps(row) + "\n")


def rejects(folder: pathlib.Path, count: int) -> None:
    """Writes a CSV of REJECT_ROWS rows, of which `count` have a cell too many."""
    with (folder / "rows.csv").open("w") as file:
        file.write("id,score,word\n")
        for number in range(REJECT_ROWS):
            # Spread evenly: `count` of the multiples are each the first in a row.
            more = number * count % REJECT_ROWS < count
            file.write(f"{number},{number / 7:.4f},word{',more' * more}\n")


def bad_images(folder: pathlib.Path, count: int) -> None:
    """Writes BAD_IMAGES images of ten labels, of which `count` are cut off."""
    contents = _jpegs()
    for number in range(BAD_IMAGES):
        parent = folder / f"label{number % 10}"
        parent.mkdir(exist_ok=True)
        content = contents[number % 100]
        if number * count % BAD_IMAGES < count:
            content = content[: len(content) // 2]
        (parent / f"{number:07d}.jpg").write_bytes(content)


def row_groups(folder: pathlib.Path, count: int) -> None:
    """Writes a Parquet file of `count` row groups of 200 rows."""
    table = _rows_table(0, 200)
    with pyarrow.parquet.ParquetWriter(folder / "rows.parquet", table.schema) as out:
        for _ in range(count):
            out.write_table(table)


def json_depth(folder: pathlib.Path, count: int) -> None:
    """Writes JSON lines of 600,000 rows; a number is `count` objects deep."""
    begin, end = '{"in":' * (count - 1), "}" * (count - 1)
    with (folder / "deep.jsonl").open("w") as file:
        for number in range(600_000):
            file.write(f'{begin}{{"id":{number}}}{end}\n')


def _jpegs() -> list[bytes]:
    """Returns 100 small images."""
    from PIL import Image

    found = []
    for number in range(100):
        out = io.BytesIO()
        Image.new("RGB", (16, 16), (number, 2 * number, 99)).save(out, "JPEG")
        found.append(out.getvalue())
    return found


def zip_members(folder: pathlib.Path, count: int) -> None:
    """Writes a zip of `count` images of ten labels."""
    images = _jpegs()
    with zipfile.ZipFile(folder / "images.zip", "w") as archive:
        for number in range(count):
            name = f"label{number % 10}/{number:07d}.jpg"
            archive.writestr(name, images[number % 100])


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))


def zip_tables(folder: pathlib.Path, count: int) -> None:
    """Writes a zip of `count` CSV files of one row."""
    with zipfile.ZipFile(folder / "tables.zip", "w") as archive:
        for number in range(count):
            text = f"id,x,name\n{number},{number / 7},n{number % 5}\n"
            archive.writestr(f"{number:07d}.csv", text)


def tar_members(folder: pathlib.Path, count: int) -> None:
    """Writes a tar of `count` images of ten labels."""
    images = _jpegs()
    with tarfile.open(folder / "images.tar", "w") as archive:
        for number in range(count):
            name = f"label{number % 10}/{number:07d}.jpg"
            _add(archive, name, images[number % 100])


def tars(folder: pathlib.Path, count: int) -> None:
    """Writes `count` WebDataset tars of ten samples."""
    images = _jpegs()
    for number in range(count):
        with tarfile.open(folder / f"part-{number:06d}.tar", "w") as archive:
            for sample in range(10):
                key = f"{number:06d}{sample}"
                _add(archive, f"{key}.jpg", images[(number + sample) % 100])
                _add(archive, f"{key}.cls", b"%d" % (sample % 5))


def images(folder: pathlib.Path, count: int) -> None:
    """Writes `count` small images of ten labels."""
    contents = _jpegs()
    for number in range(count):
        parent = folder / f"label{number % 10}"
        parent.mkdir(exist_ok=True)
        (parent / f"{number:07d}.jpg").write_bytes(contents[number % 100])


def annotations(folder: pathlib.Path, count: int) -> None:
    """Writes a COCO file of 200 images with `count` boxes each."""
    contents = _jpegs()
    (folder / "images").mkdir()
    names = [f"{number:03d}.jpg" for number in range(200)]
    for number, name in enumerate(names):
        (folder / "images" / name).write_bytes(contents[number % 100])
    boxes = (
        {
            "id": 200 * number + image,
            "image_id": image,
            "category_id": 1 + number % 5,
            "bbox": [number % 8, number % 7, 4.5, 3.25],
            "area": 14.625,
            "iscrowd": 0,
        }
        for number in range(count)
        for image in range(200)
    )
    (folder / "annotations").mkdir()
    with (folder / "annotations" / "instances_train.json").open("w") as file:
        listed = [
            {"id": i, "file_name": name, "width": 16, "height": 16}
            for i, name in enumerate(names)
        ]
        kinds = [{"id": 1 + i, "name": word} for i, word in enumerate(_WORDS)]
        file.write(f'{{"images":{json.dumps(listed)},')
        file.write(f'"categories":{json.dumps(kinds)},"annotations":[')
        for number, box in enumerate(boxes):
            file.write(("," if number else "") + json.dumps(box))
        file.write("]}")


MAKERS: dict[str, Callable[[pathlib.Path, int], None]] = {
    made.__name__: made
    for made in (
        rows,
        shards,
        columns,
        mixed_columns,
        files,
        classes,
        row_bytes,
        parquet_lists,
        json_lists,
        rejects,
        bad_images,
        row_groups,
        json_depth,
        zip_members,
        tar_members,
        zip_tables,
        tars,
        images,
        annotations,
    )
}


def main() -> None:
    """Makes one input."""
    name, count, folder = sys.argv[1:]
    made = pathlib.Path(folder)
    made.mkdir(parents=True)
    MAKERS[name](made, int(count))


if __name__ == "__main__":
    main()
