"""The command `export`: the rows of a dataset as files that other programs open.

| dataset  | files                                                          |
| -------- | -------------------------------------------------------------- |
| images   | `OUT/split/class/name.jpg`; the bytes that the records hold    |
| tables   | `OUT/split.csv`, or `OUT/split.parquet` with `--format parquet` |

torchvision and Hugging Face Datasets read the first as a folder of images.
"""

import contextlib
import errno
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from typing import Any, Literal

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from beam_pipeline.datasets.open_dataset import (
    OpenDataset,
    condition_of,
    label_of,
    number_to_predict,
    open_dataset,
)
from beam_pipeline.terminal import count_text, print_line, size_text
from transforms.core.image.formats import name_format
from transforms.core.manifest import MANIFEST_NAME
from transforms.core.schema import Kind
from transforms.errors import TargetError, UsageError, refusing
from transforms.reading.view import View
from transforms.storage.files import storage
from transforms.storage.paths import is_remote
from transforms.storage.retry import naming

TableFormat = Literal["csv", "parquet"]
# Rows of a table that are held in memory at a time.
_ROWS = 65_536
_PLAIN = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)
_SINGLE = (*_PLAIN, pa.types.is_string, pa.types.is_timestamp)
# Features called "filename" of these kinds name images: other programs store texts as
# bytes.
_NAMES = frozenset([Kind.TEXT, Kind.BYTES, Kind.LABEL, Kind.INT64])
# A file system refuses a name with these: too long, or of characters that it lacks.
# Such an image is named by its row.
_NO_NAME = frozenset([errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ])
# What no name has on some file system, and bytes that are not UTF-8.
_UNFIT = re.compile('[\x00-\x1f/\\\\:*?"<>|\udc80-\udcff]')


def run(
    path: str,
    output: str,
    *,
    split: str = "",
    label: str = "",
    where: str = "",
    limit: int | None = None,
    table_format: TableFormat = "csv",
    quiet: bool = False,
) -> int:
    """Writes the chosen rows of a dataset into a new folder; returns 0.

    Args:
      path: of the dataset.
      output: the folder, which must not exist.
      split, label, where: see `beam_pipeline.commands.head.show`.
      limit: rows of each split at most.
      table_format: of datasets without images.
      quiet: print errors only.

    Raises:
      UsageError: the rows cannot be had in this form.
      SpecError: the choice names what is not there.
      TargetError: the output exists, or cannot be made.
      DamageError: a record is damaged; nothing is left at the output.
    """
    dataset = open_dataset(path, labels="names")
    condition = condition_of(dataset, label, where)
    image = _image_of(dataset)
    written: dict[str, tuple[int, int]] = {}
    with _new_folder(output, dataset.path) as folder:
        for name in [split] if split else dataset:
            view = dataset[name]
            view = view.where(condition, limit=limit) if condition else view[:limit]
            if image:
                written[name] = _write_images(dataset, view, image, folder, name)
            else:
                file = os.path.join(folder, f"{_safe(name or 'rows')}.{table_format}")
                written[name] = _write_table(view, file, table_format)
    if not quiet:
        rows = sum(rows for rows, _ in written.values())
        size = sum(size for _, size in written.values())
        what = count_text(rows, "image" if image else "row")
        splits = ", ".join(f"{n or 'all'} {rows:,}" for n, (rows, _) in written.items())
        print_line(f"exported {what}, {size_text(size)}, to {output} ({splits})")
    return 0


def _image_of(dataset: OpenDataset) -> str:
    """Returns the one image of each row; empty for tables.

    Raises:
      UsageError: rows have several.
    """
    images = [e for e in dataset.features.values() if e.kind is Kind.IMAGE]
    if len(images) > 1 or any(feature.is_list for feature in images):
        names = ", ".join(feature.name for feature in images)
        raise UsageError(
            f"Images are exported where each row has one; {dataset.path} has {names}. "
            f"Read it with open_dataset."
        )
    return images[0].name if images else ""


@contextlib.contextmanager
def _new_folder(output: str, dataset: str) -> Iterator[str]:
    """Gives a folder that gets its name when it is complete, or is removed.

    Raises:
      TargetError: the output exists or is in the dataset, or its folder cannot be
        written to.
    """
    is_dataset = os.path.lexists(os.path.join(dataset, MANIFEST_NAME))
    if (
        is_remote(output)
        or os.path.lexists(output)
        or (is_dataset and storage(os.path.abspath(output)).is_inside(dataset))
    ):
        raise TargetError(
            f"The output of 'export' must be a new folder on this machine, outside of "
            f"the dataset; {output!r} is not. Choose another: 'export' does not "
            f"overwrite, since it could not tell its own files from yours."
        )
    output = os.path.abspath(output)
    parent, name = os.path.split(output)
    # Not by `tempfile`, whose folders are the user's only.
    folder = os.path.join(parent, f".{name}.export-{secrets.token_hex(4)}")
    with refusing(
        TargetError, f"The output's folder must be writable; {parent!r} is not"
    ):
        os.makedirs(folder)
    try:
        with naming(output):
            yield folder
        os.rename(folder, output)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _write_images(
    dataset: OpenDataset, view: View, image: str, folder: str, split: str
) -> tuple[int, int]:
    """Writes the images of a split, each into the folder of its class.

    Returns:
      Their number, and their bytes.
    """
    label = label_of(dataset.features.values()) or number_to_predict(dataset)
    name = dataset.features.get("filename")
    named = "filename" if name and name.kind in _NAMES and not name.is_list else ""
    columns = [image, *([label.name] if label else []), *([named] if named else [])]
    count = size = 0
    for number, row in enumerate(view.select(columns)):
        data = row[image]
        if data is None:
            continue
        parts = [folder, *([_safe(split)] if split else [])]
        if label:
            class_name = row[label.name]
            parts.append(_safe("no label" if class_name is None else str(class_name)))
        directory = os.path.join(*parts)
        os.makedirs(directory, exist_ok=True)
        _write_new(directory, _stem(row[named]) if named else "", number, data)
        count, size = count + 1, size + len(data)
    return count, size


def _stem(name: Any) -> str:
    """Returns the name of an image without folders and ending; empty for none."""
    if isinstance(name, bytes):
        name = os.fsdecode(name)
    stem = os.path.splitext(os.path.basename("" if name is None else str(name)))[0]
    return _safe(stem) if stem else ""


def _write_new(folder: str, stem: str, number: int, data: bytes) -> None:
    """Writes a new file; one with a number where an image has the name already."""
    ending = f".{name_format(data) or 'bin'}"
    ending = {".jpeg": ".jpg"}.get(ending, ending)
    stem = stem or f"{number:08d}"
    while True:
        try:
            # The file system decides which names are the same: "A" and "a" may be.
            with open(os.path.join(folder, stem + ending), "xb") as file:
                file.write(data)
                return
        except FileExistsError:
            stem = f"{stem}-{number:08d}"
        except OSError as error:
            if error.errno not in _NO_NAME:
                raise
            stem = f"{number:08d}"


def _write_table(view: View, path: str, table_format: TableFormat) -> tuple[int, int]:
    """Writes the rows of a split as one file; returns their number, and its size."""
    # Names of classes are texts there.
    fields = []
    for field in view.arrow_schema:
        is_class = pa.types.is_dictionary(field.type)
        fields.append(field.with_type(field.type.value_type) if is_class else field)
        if table_format == "csv" and not any(c(fields[-1].type) for c in _SINGLE):
            raise UsageError(
                f"A CSV holds single values; {field.name!r} is {field.type}. Use "
                f"--format parquet."
            )
    schema = pa.schema(fields)
    make = {"csv": pyarrow.csv.CSVWriter, "parquet": pyarrow.parquet.ParquetWriter}
    rows = 0
    with make[table_format](path, schema) as writer:
        for batch in view.batches(_ROWS):
            writer.write_batch(batch.cast(schema))
            rows += batch.num_rows
    return rows, os.path.getsize(path)


def _safe(name: str) -> str:
    """Returns a name that stays in its folder, on any file system.

    Bytes that are not UTF-8, as `os.fsdecode` gives them, are written as "%E9".
    """
    out = _UNFIT.sub(lambda found: f"%{ord(found[0]) & 0xFF:02X}", name)
    return f"%2E{out[1:]}" if out.startswith(".") else out or "%"
