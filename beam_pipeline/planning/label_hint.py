"""A hint for a folder of images with a table beside it that seems to label them."""

import os
import re
import shlex
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from beam_pipeline.planning.inputs import Inputs, named_entry
from beam_pipeline.planning.label_table import format_of, with_list
from beam_pipeline.settings.spec import Spec
from transforms import files
from transforms.errors import BeamTFRecordError
from transforms.formats.image_suffixes import is_image_name
from transforms.formats.label_join import join_labels
from transforms.formats.registry import TABLE_FORMATS
from transforms.formats.split_words import is_split_word
from transforms.publishing.target import REJECTS_SUFFIX
from transforms.storage.file_list import FileList
from transforms.storage.paths import absolute

__all__ = ["hint_of"]

# How many tables are looked at, and how many rows of each.
_MOST_TABLES = 8
_MOST_ROWS = 2000
# Of 100 rows that are looked at, this many ids must be those of images.
_FITTING = 50
# How columns of labels are mostly called.
_USUAL = re.compile(r"(?i)label|class|categor|target|tags")


def hint_of(spec: Spec, entries: FileList) -> str:
    """Returns the command that labels the images with a table that fits, or nothing.

    Looked at are the tables in the folder of the source, in the one above it and in
    that of the first image. Of several tables, the one that names most images is
    proposed; a table whose columns name images alone is a source by itself.
    """
    root = absolute(spec.source)
    beside = [os.path.dirname(os.path.join(root, e.path)) for e in entries.first(1)]
    best, hint = 0, ""
    for folder in dict.fromkeys([root, os.path.dirname(root), *beside]):
        for path in _tables(folder):
            said = with_list(spec.model_copy(update={"labels": path}), entries)
            columns = _columns(said, path)
            for name, ids in columns.items():
                named = _named_images(ids, entries)
                if len(named) > best:
                    best = len(named)
                    hint = _command(said, path, name, columns, named)
    return hint


def _tables(folder: str) -> list[str]:
    try:
        names = files.names_in(folder)
    except (OSError, BeamTFRecordError):
        return []
    paths = [os.path.join(folder, name) for name in sorted(names)]
    tables = [
        path
        for path in paths
        # What a failed run leaves beside its target names images, too.
        if format_of(path) in TABLE_FORMATS and not path.endswith(REJECTS_SUFFIX)
    ]
    return [path for path in tables if files.is_file(path)][:_MOST_TABLES]


def _columns(spec: Spec, path: str) -> Mapping[str, pa.Array]:
    """Returns a sample of the columns of a table; none where it cannot be read."""
    from beam_pipeline.planning.tables import make_format, table_files

    name = format_of(path)
    folder = os.path.dirname(path)
    try:
        entry = named_entry(path, folder)
        listed = table_files(Inputs(name, folder, FileList.of([entry]), {}))
        return make_format(spec, name).plan(listed).sample.columns
    except (OSError, BeamTFRecordError):
        # It is not what the run was asked to read.
        return {}


def _named_images(column: pa.Array, entries: FileList) -> list[str]:
    """Returns the images that a column names; none where few of its values are ids."""
    kind = column.type
    if not (pa.types.is_string(kind) or pa.types.is_integer(kind)):
        return []
    ids = column.slice(0, _MOST_ROWS).cast(pa.string()).drop_null().unique()
    try:
        joined = join_labels(entries, ids, np.arange(len(ids)), table="")
    except BeamTFRecordError:
        return []
    matched = len(ids) - len(joined.orphans)
    if matched * 100 < len(ids) * _FITTING:
        return []
    return [e.path for e, row in zip(entries, joined.rows, strict=True) if row >= 0]


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
    convert = ["beam-tfrecord", "convert"]
    ids = columns[id_column].drop_null()
    others = [name for name in columns if name != id_column]
    images = [name for name in others if _are_images(columns[name])]
    start = f"The ids in column {id_column!r} of {path!r} are names of these images"
    if images:
        said = ["--image-columns", ",".join([id_column, *images])]
        return f"{start}; try: {shlex.join([*convert, path, *output, *said])}"
    if len(ids.unique()) < len(ids):
        return (
            f"{start}, of which some are in several rows, as where a row is a box; for "
            f"a record a row try: {shlex.join([*convert, path, *output])}"
        )
    # Of a long table, rows of other splits may follow.
    first = os.path.commonpath(map(os.path.dirname, named)).partition("/")[0]
    is_whole = len(ids) < _MOST_ROWS or not is_split_word(first)
    source = os.path.join(spec.source, first) if first and is_whole else spec.source
    words = [*convert, source, *output, "--labels", path]
    words += ["--id-column", id_column] if spec.header is not False else []
    usual = [name for name in others if _USUAL.search(name)]
    label = next(iter(usual or others), "")
    words += ["--label-column", label] if label else ["--unlabelled"]
    also = f" (or another of {', '.join(map(repr, others[:8]))})" if others[1:] else ""
    return f"{start}; try: {shlex.join(words)}{also}"


def _are_images(column: pa.Array) -> bool:
    """Whether the first value of a column is called like an image."""
    texts = column.drop_null()
    return len(texts) > 0 and is_image_name(str(texts[0]))
