"""The table that labels a folder of images: proposed, read whole, typed, joined."""

import contextlib
import dataclasses
import functools
import itertools
import os
import re
import shlex
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beam_pipeline.planning.features import declare
from beam_pipeline.planning.inputs import named_entry
from beam_pipeline.planning.recognition import head_in, make_format
from beam_pipeline.settings.spec import Spec
from transforms.core.infer.columns import infer_columns
from transforms.core.infer.evidence import Evidence
from transforms.core.model import ReadFacts
from transforms.core.rows.column import blamed_of
from transforms.core.rows.conform import conform, roundings_of
from transforms.core.schema import Feature, Kind, Schema
from transforms.errors import BeamTFRecordError, SourceError, SpecError
from transforms.formats.file_names import is_image_name, is_split_word
from transforms.formats.input_files import InputFiles
from transforms.formats.label_join import Labels, Orphan, join_labels
from transforms.formats.raw_rows import Complaint, as_numbers, with_nulls, with_points
from transforms.formats.registry import TABLE_FORMATS, TREES, claimed_by, table_format
from transforms.formats.table import Planned, TableReader
from transforms.publishing.target import REJECTS_SUFFIX
from transforms.stages.remarks import rounding_remarks
from transforms.storage.file_list import FileList
from transforms.storage.files import sizes_of, storage
from transforms.storage.paths import FileEntry, absolute

_BLOCK_BYTES = 64 << 20
# How many tables are looked at, the smallest first, and how many rows of each. Those
# after so many bytes are not: a sample of a large one takes a second.
_MOST_TABLES = 8
_MOST_BYTES = 64 << 20
_MOST_ROWS = 2000
# Of 100 rows that are looked at, this many ids must be those of images.
_FITTING = 50
# How columns of labels are mostly called.
_USUAL = re.compile(r"(?i)label|class|categor|target|tags")


@dataclasses.dataclass(frozen=True)
class LabelTable:
    """A table of labels, as it is in its file.

    Attributes:
      name: the file's name.
      columns: raw columns; n rows.
      numbers: n 0-based row numbers.
      refused: rows that cannot be read.
      notes: what a person should know of how it was understood.
    """

    name: str
    columns: dict[str, pa.Array]
    numbers: npt.NDArray[np.int64]
    refused: Sequence[Complaint]
    notes: tuple[str, ...] = ()


def format_of(path: str) -> str:
    """Returns the format of a table of labels, by its name; empty for no table."""
    return "csv" if path.lower().endswith(".txt") else claimed_by([(path, 0)])


def with_label_list(spec: Spec, entries: FileList) -> Spec:
    """Returns the job with how to read a table of labels that has no header.

    It is one if its first line begins with an image of the tree, and not with the names
    of columns. Between the cells are commas, semicolons, tabs or spaces.
    """
    path = str(spec.labels)
    if format_of(path) != "csv" or spec.header is not None:
        return spec
    try:
        head = head_in(os.path.dirname(path))(os.path.basename(path))
    except SourceError:
        return spec
    line = head.decode("utf-8-sig", "replace").partition("\n")[0].rstrip("\r")
    for delimiter in filter(None, (spec.delimiter, *"\t,; ")):
        image, *others = (cell.strip('"') for cell in line.split(delimiter))
        if not others or spec.id_column in (image, *others):
            continue
        if any(image in entry.origin and _is_id(image, entry) for entry in entries):
            names = [spec.id_column or "id", spec.label_column or "label"]
            columns = spec.columns or (names if len(others) == 1 else None)
            id_column = columns[0] if columns else spec.id_column or "column_0"
            update = {"header": False, "delimiter": delimiter, "columns": columns}
            return spec.model_copy(update={**update, "id_column": id_column})
    return spec


def _is_id(text: str, image: FileEntry) -> bool:
    """Whether a text names an image: its path or file name, with suffix or without."""
    path = image.origin
    name = os.path.basename(path)
    return text in (path, name, os.path.splitext(path)[0], os.path.splitext(name)[0])


def read_labels(spec: Spec) -> LabelTable:
    """Reads the whole table that `labels` names.

    Raises:
      SourceError: it cannot be read.
      SpecError: it is of no known table format, or has no such id column.
    """
    path = str(spec.labels)
    name = format_of(path)
    if not name or name in TREES:
        raise SpecError(
            f"labels must be a table, .csv, .txt or .parquet say; found {path!r}."
        )
    listed, planned = _sampled_table(spec, path)
    reader, sample = planned.reader, planned.sample
    assert isinstance(reader, TableReader)
    if spec.id_column not in sample.columns:
        raise SpecError(
            f"--id-column must be the column of {path!r} whose cells name the images; "
            f"found {spec.id_column!r}. It has {', '.join(sample.columns)}."
        )
    refused: list[Complaint] = []
    parts: list[dict[str, pa.Array]] = []
    numbers = [np.zeros(0, np.int64)]
    for block in reader.blocks(listed[0], block_bytes=_BLOCK_BYTES, limit_rows=None):
        for raw in reader.read(listed[0], block, list(sample.columns)):
            parts.append(dict(with_nulls(raw.columns, reader.null_values)))
            numbers.append(raw.numbers)
            refused += raw.refused
    kind = None if parts else pa.string()
    columns = {}
    for column in sample.columns:
        cells = pa.chunked_array([table[column] for table in parts], kind)
        columns[column] = cells.combine_chunks()
    rows = np.concatenate(numbers)
    return LabelTable(os.path.basename(path), columns, rows, refused, sample.notes)


def _sampled_table(spec: Spec, path: str) -> tuple[InputFiles, Planned]:
    """Returns a table of labels as its format reads it, with a sample."""
    entry = named_entry(path, os.path.dirname(path))
    root = os.path.dirname(absolute(path))
    listed = InputFiles.listed(FileList.of([entry]), root=root)
    return listed, make_format(spec, format_of(path)).plan(listed)


def labelled(spec: Spec, table: LabelTable) -> Spec:
    """Returns the job with the column of the label: the only one beside the ids.

    Raises:
      SpecError: there are several, or none, and nothing says which is the label.
    """
    declared = any(
        said.kind == "label" or said.label for said in spec.features.values()
    )
    if spec.label_column or spec.unlabelled or declared:
        return spec
    settled = {spec.id_column, spec.key_column, spec.group_column, *spec.drop}
    others = [name for name in table.columns if name not in settled]
    if len(others) == 1:
        return spec.model_copy(update={"label_column": others[0]})
    choices = f"one of {', '.join(map(repr, others[:20]))}" if others else "it has none"
    raise SpecError(
        f"The table of labels {table.name!r} must say which column is the label: "
        f"{choices}. Name it with --label-column, or use --unlabelled for none."
    )


def join_table(
    spec: Spec, table: LabelTable, entries: FileList
) -> tuple[Labels, Schema, dict[str, Evidence]]:
    """Joins the images and the table, and types what the table says.

    Returns:
      What is said of each image, the table's features, and by name what their kinds
      were inferred from.

    Raises:
      SourceError: an id occurs twice.
      SpecError: what is said of the features makes no sense.
    """
    id_column = str(spec.id_column)
    ids = table.columns[id_column]
    places, unmatched = join_labels(
        *(entries, ids.cast(pa.string()), table.numbers),
        table=table.name,
        root=absolute(spec.source),
    )
    pointed = as_numbers(table.columns, spec.decimal)
    inference = infer_columns(pointed, label_column=spec.label_column)
    # Ids stay what they are, however much they look like numbers.
    features = [
        Feature(f.name, Kind.TEXT, is_label=f.is_label) if f.name == id_column else f
        for f in inference.features
    ]
    # What the spec says of images is said of those in the tree.
    of_table = {"image_columns": [], "preset": "default", "feature_names": {}}
    schema = declare(features, table.columns, spec.model_copy(update=of_table))
    matched = places >= 0
    positions = pa.array(np.where(matched, places, 0), mask=~matched)
    taken = {name: column.take(positions) for name, column in table.columns.items()}
    origins = pa.array([entry.origin for entry in entries], pa.string())
    as_read = taken
    taken = dict(with_points(taken, schema.features, spec.decimal))
    rows, misfits = conform(taken, schema, len(entries), origins)
    unlabelled = "image_without_label", f"{table.name} has no row with the image's id"
    faults = [None if match else unlabelled for match in matched.tolist()]

    def row_of(index: int) -> int:
        return int(table.numbers[places[index]]) + 1

    blamed = blamed_of(misfits, len(entries))
    for index in np.flatnonzero(matched & (blamed >= 0)).tolist():
        misfit = misfits[blamed[index]]
        raw = as_read.get(misfit.feature.source_column, misfit.raw)
        reason, message = dataclasses.replace(misfit, raw=raw).complaint(index)
        where = f"{table.name}, row {row_of(index)}"
        faults[index] = (str(reason), f"{where}: {message}")
    orphans = [*unmatched, *(Orphan(*refused) for refused in table.refused)]
    kept = matched & (blamed < 0)

    def place(index: int, shown: str) -> str:
        return f"{shown!r} in row {row_of(index):,} of {table.name}"

    roundings = roundings_of(taken, rows, schema, kept, place)
    read = ReadFacts(table.name, 0, len(entries), roundings=roundings)
    pairs = zip(inference.features, inference.evidence, strict=True)
    evidence = {f.name: facts for f, facts in pairs if f.name in schema.names}
    labels = Labels(
        table=table.name,
        columns={name: rows[name] for name in rows.schema.names},
        faults=faults,
        orphans=sorted(orphans, key=lambda orphan: orphan.row or 0),
        notes=tuple(rounding_remarks([read])),
    )
    return labels, schema, evidence


def hint_of(spec: Spec, entries: FileList, skipped: Sequence[str]) -> str:
    """Returns the command that labels the images with a table that fits, or nothing.

    Looked at are the tables in the folder of the source, in the one above it and in
    those of the first image and of tables that are skipped. Of several tables, the one
    that names most images is proposed. A table with other columns of images, or
    with several rows of one image, as where a row is a box, is not.
    """
    root = absolute(spec.source)
    paths = [
        *(entry.path for entry in entries.first(1)),
        *filter(table_format, skipped),
    ]
    beside = [os.path.dirname(os.path.join(root, path)) for path in paths]
    best, hint = 0, ""
    for folder in dict.fromkeys([root, os.path.dirname(root), *beside]):
        for path in _small_tables_in(folder):
            said = with_label_list(spec.model_copy(update={"labels": path}), entries)
            columns: Mapping[str, pa.Array] = {}
            # One that cannot be read is not what the run was asked to read.
            with contextlib.suppress(OSError, BeamTFRecordError):
                columns = _sampled_table(said, path)[1].sample.columns
            for name, ids in columns.items():
                named = _images_of_labels(ids, entries, root)
                rest = (column for n, column in columns.items() if n != name)
                if len(named) > best and not any(map(_name_images, rest)):
                    best = len(named)
                    hint = _command(said, path, name, columns, named)
    return hint


def _small_tables_in(folder: str) -> list[str]:
    """Returns the tables in a folder, in the order of names; only the smallest ones."""
    paths: list[str] = []
    with contextlib.suppress(OSError, BeamTFRecordError):
        names = sorted(storage(folder).names_in())
        paths = [os.path.join(folder, name) for name in names]
    # What a failed run leaves beside its target names images, too.
    others = [path for path in paths if not path.endswith(REJECTS_SUFFIX)]
    tables = [path for path in others if format_of(path) in TABLE_FORMATS]
    sizes = sizes_of(path for path in tables if storage(path).is_file())
    smallest = sorted(sizes, key=lambda path: sizes[path])[:_MOST_TABLES]
    before = itertools.accumulate((sizes[path] for path in smallest), initial=0)
    chosen = {
        p for p, total in zip(smallest, before, strict=False) if total < _MOST_BYTES
    }
    return [path for path in tables if path in chosen]


def _images_of_labels(column: pa.Array, entries: FileList, root: str) -> list[str]:
    """Returns the images that ids of a table of labels name; none if few ids do."""
    kind = column.type
    if not (pa.types.is_string(kind) or pa.types.is_integer(kind)):
        return []
    ids = column.slice(0, _MOST_ROWS).cast(pa.string()).drop_null()
    try:
        numbers = np.arange(len(ids))
        places, orphans = join_labels(entries, ids, numbers, table="", root=root)
    except BeamTFRecordError:
        return []
    matched = len(ids) - len(orphans)
    if matched * 100 < len(ids) * _FITTING:
        return []
    return [e.path for e, row in zip(entries, places, strict=True) if row >= 0]


def _command(
    spec: Spec,
    path: str,
    id_column: str,
    columns: Mapping[str, pa.Array],
    named: Sequence[str],
) -> str:
    """Returns what to do with a table.

    Args:
      spec: with `labels` and what its file needs to be read.
      path: of the table.
      id_column: whose values are names of images.
      columns: a sample of all its columns.
      named: the images, of which there may be others in other folders.
    """
    output = [spec.output] if spec.output else []
    others = [name for name in columns if name != id_column]
    # Of a long table, rows of other splits may follow.
    first = os.path.commonpath(map(os.path.dirname, named)).partition("/")[0]
    is_whole = len(columns[id_column]) < _MOST_ROWS or not is_split_word(first)
    source = os.path.join(spec.source, first) if first and is_whole else spec.source
    words = ["beam-tfrecord", "convert", source, *output, "--labels", path]
    words += ["--id-column", id_column] if spec.header is not False else []
    of_boxes = [*filter(functools.partial(_is_class_of_boxes, [*columns]), others)]
    if of_boxes and spec.header is not False:
        words = ["beam-tfrecord", "convert", spec.source, *output]
        words += ["--label-column", of_boxes[0]]
        return (
            f"The rows of {path!r} are boxes, perhaps; where {of_boxes[0]!r} is their "
            f"class, try: {shlex.join(words)}"
        )
    usual = [name for name in others if _USUAL.search(name)]
    label = next(iter(usual or others), "")
    words += ["--label-column", label] if label else ["--unlabelled"]
    also = f" (or another of {', '.join(map(repr, others[:8]))})" if others[1:] else ""
    return (
        f"The ids in column {id_column!r} of {path!r} are names of these images; try: "
        f"{shlex.join(words)}{also}"
    )


def _is_class_of_boxes(columns: Sequence[str], name: str) -> bool:
    """Whether a column of a label table may say the class of a box."""
    from transforms.formats.detection.boxes_csv import columns_of

    roles = columns_of(columns, name) or {}
    return [*roles.values()].count(name) == 1


def _name_images(column: pa.Array) -> bool:
    """Whether a table of labels names other images in a column, by its first value."""
    texts = column.drop_null()
    return len(texts) > 0 and is_image_name(str(texts[0]))
