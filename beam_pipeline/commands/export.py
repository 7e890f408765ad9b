"""The command `export`: the rows of a dataset as files that other programs open.

| dataset  | files                                                          |
| -------- | -------------------------------------------------------------- |
| images   | `OUT/split/class/name.jpg`; the bytes that the records hold    |
| tables   | `OUT/split.csv`, or `OUT/split.parquet` with `--format parquet` |

torchvision and Hugging Face Datasets read the first as a folder of images.
"""

import contextlib
import dataclasses
import errno
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from beam_pipeline.reading.open_dataset import (
    OpenDataset,
    condition_of,
    label_of,
    number_to_predict,
    open_dataset,
)
from beam_pipeline.terminal.printing import print_text, printable
from beam_pipeline.terminal.words import count_text, size_text
from transforms.core.image.formats import name_format
from transforms.core.manifest import MANIFEST_NAME
from transforms.core.schema import Kind
from transforms.errors import TargetError, UsageError
from transforms.reading.view import View
from transforms.storage.files import storage
from transforms.storage.paths import is_remote
from transforms.storage.retry import naming

TableFormat = Literal["csv", "parquet"]
# Rows of a table that are held in memory at a time.
_ROWS = 65_536
_PLAIN = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)
_SINGLE = (*_PLAIN, pa.types.is_string, pa.types.is_timestamp, pa.types.is_dictionary)
# Features called "filename" of these kinds name images: other programs store texts as
# bytes.
_NAMES = frozenset([Kind.TEXT, Kind.BYTES, Kind.LABEL, Kind.INT64])
# A file system refuses a name with these: too long, or of characters that it lacks.
# Such an image is named by its row.
_NO_NAME = frozenset([errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ])


@dataclasses.dataclass
class _Written:
    """How much was written of a split."""

    rows: int = 0
    bytes: int = 0


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
      split, label, where: see `beam_pipeline.commands.head.Choice`.
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
    _check_apart(output, dataset.path)
    condition = condition_of(dataset, label, where)
    names = [split] if split else [*dataset]
    image = _image_of(dataset)
    written: dict[str, _Written] = {}
    with _new_folder(output) as folder:
        for name in names:
            view = dataset[name]
            if condition:
                view = view.where(condition, limit=limit)
            view = view[:limit]
            if image:
                written[name] = _write_images(dataset, view, image, folder, name)
            else:
                file = os.path.join(folder, f"{_safe(name or 'rows')}.{table_format}")
                written[name] = _write_table(view, file, table_format)
    if not quiet:
        _print(output, written, "image" if image else "row")
    return 0


def _check_apart(output: str, dataset: str) -> None:
    """Raises TargetError where the output would be in the folder of a dataset."""
    is_dataset = os.path.lexists(os.path.join(dataset, MANIFEST_NAME))
    if is_dataset and not is_remote(output) and storage(output).is_inside(dataset):
        raise TargetError(
            f"The output must be outside of the dataset; {output!r} is in {dataset!r}. "
            f"Choose another."
        )


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
def _new_folder(output: str) -> Iterator[str]:
    """Gives a folder that gets its name when it is complete, or is removed.

    Raises:
      TargetError: the output exists, or its folder cannot be written to.
    """
    output = output if is_remote(output) else os.path.abspath(output)
    if is_remote(output):
        raise TargetError(
            f"The output of 'export' must be a folder on this machine; {output!r} is "
            f"in a store. Choose another."
        )
    if os.path.lexists(output):
        raise TargetError(
            f"The output of 'export' must not exist yet; {output!r} does. Remove it, "
            f"or choose another: 'export' does not overwrite, since it could not tell "
            f"its own files from yours."
        )
    parent, name = os.path.split(output)
    try:
        os.makedirs(parent, exist_ok=True)
        folder = tempfile.mkdtemp(prefix=f".{name}.export-", dir=parent)
    except OSError as error:
        raise TargetError(
            f"The output's folder must be writable; {parent!r} is not: "
            f"{error.strerror}."
        ) from error
    try:
        with naming(output):
            yield folder
        os.chmod(folder, 0o777 & ~_umask())
        os.rename(folder, output)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _write_images(
    dataset: OpenDataset, view: View, image: str, folder: str, split: str
) -> _Written:
    """Writes the images of a split, each into the folder of its class."""
    label = label_of(dataset.features.values()) or number_to_predict(dataset)
    name = dataset.features.get("filename")
    named = "filename" if name and name.kind in _NAMES and not name.is_list else ""
    columns = [image, *([label.name] if label else []), *([named] if named else [])]
    written = _Written()
    for number, row in enumerate(view.select(columns)):
        data = row[image]
        if data is None:
            continue
        parts = [folder, _safe(split)] if split else [folder]
        if label:
            class_name = row[label.name]
            parts.append(_safe("no label" if class_name is None else str(class_name)))
        stem = _safe(_stem(row[named] if named else None) or f"{number:08d}")
        try:
            _write_new(os.path.join(*parts), stem, f"-{number:08d}", data)
        except OSError as error:
            if error.errno not in _NO_NAME:
                raise
            _write_new(os.path.join(*parts), f"{number:08d}", f"-{number:08d}", data)
        written.rows += 1
        written.bytes += len(data)
    return written


def _stem(name: Any) -> str:
    """Returns the name of an image without folders and ending; empty for none."""
    if isinstance(name, bytes):
        name = os.fsdecode(name)
    return os.path.splitext(os.path.basename("" if name is None else str(name)))[0]


def _write_new(folder: str, stem: str, number: str, data: bytes) -> None:
    """Writes a new file; one with a number where an image has the name already."""
    os.makedirs(folder, exist_ok=True)
    ending = _ending(data)
    while True:
        # The file system decides which names are the same: "A.png" and "a.png" may be.
        with contextlib.suppress(FileExistsError):
            with open(os.path.join(folder, stem + ending), "xb") as file:
                file.write(data)
            return
        stem += number


def _ending(data: bytes) -> str:
    """Returns the ending of an image's name, by its content."""
    if data.startswith(b"\xff\xd8\xff"):
        return ".jpg"
    if data.startswith(b"\x89PNG"):
        return ".png"
    return f".{name_format(data) or 'bin'}"


def _write_table(view: View, path: str, table_format: TableFormat) -> _Written:
    """Writes the rows of a split as one file."""
    schema = view.arrow_schema
    if table_format == "csv":
        for field in schema:
            if not any(check(field.type) for check in _SINGLE):
                raise UsageError(
                    f"A CSV holds single values; {field.name!r} is {field.type}. Use "
                    f"--format parquet."
                )
    make = {"csv": pyarrow.csv.CSVWriter, "parquet": pyarrow.parquet.ParquetWriter}
    written = _Written()
    with make[table_format](path, _stored(schema)) as writer:
        for batch in view.batches(_ROWS):
            writer.write_batch(batch.cast(_stored(schema)))
            written.rows += batch.num_rows
    written.bytes = os.path.getsize(path)
    return written


def _stored(schema: pa.Schema) -> pa.Schema:
    """Returns the types of a file: names of classes as texts."""
    return pa.schema(
        [
            field.with_type(field.type.value_type)
            if pa.types.is_dictionary(field.type)
            else field
            for field in schema
        ]
    )


def _safe(name: str) -> str:
    """Returns a name that stays in its folder, on any file system.

    Bytes that are not UTF-8, as `os.fsdecode` gives them, are written as "%E9".
    """
    out = "".join(
        f"%{ord(c) & 0xFF:02X}"
        if c < " " or c in '/\\:*?"<>|' or "\udc80" <= c <= "\udcff"
        else c
        for c in name
    )
    return f"%2E{out[1:]}" if out.startswith(".") else out or "%"


def _print(output: str, written: Mapping[str, _Written], what: str) -> None:
    rows = sum(counts.rows for counts in written.values())
    size = sum(counts.bytes for counts in written.values())
    splits = ", ".join(f"{n or 'all'} {counts.rows:,}" for n, counts in written.items())
    print_text(
        f"exported {count_text(rows, what)}, {size_text(size)}, to {printable(output)} "
        f"({printable(splits)})"
    )
