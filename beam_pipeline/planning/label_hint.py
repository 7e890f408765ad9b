"""A hint for a folder of images with a table beside it that seems to label them."""

import os
import shlex
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from beam_pipeline.planning.inputs import Inputs, named_entry
from beam_pipeline.settings.spec import Spec
from transforms import files
from transforms.errors import BeamTFRecordError
from transforms.formats.label_join import join_labels
from transforms.formats.registry import TABLE_FORMATS, claimed_by
from transforms.storage.file_list import FileList
from transforms.storage.paths import absolute

__all__ = ["hint_of"]

# How many tables are looked at, and how many rows of each.
_MOST_TABLES = 8
_MOST_ROWS = 2000
# Of 100 rows that are looked at, this many ids must be those of images.
_FITTING = 50


def hint_of(spec: Spec, entries: FileList) -> str:
    """Returns the command that labels the images with a table that fits, or nothing.

    Looked at are the tables in the folder of the source and in the one above it.
    """
    root = absolute(spec.source)
    for folder in (root, os.path.dirname(root)):
        for path in _tables(folder):
            columns = _columns(spec, path)
            for name, ids in columns.items():
                if _fits(ids, entries):
                    return _command(spec, path, name, [*columns])
    return ""


def _tables(folder: str) -> list[str]:
    try:
        names = files.names_in(folder)
    except (OSError, BeamTFRecordError):
        return []
    paths = [os.path.join(folder, name) for name in sorted(names)]
    found = [path for path in paths if claimed_by([(path, 0)]) in TABLE_FORMATS]
    return [path for path in found if files.is_file(path)][:_MOST_TABLES]


def _columns(spec: Spec, path: str) -> Mapping[str, pa.Array]:
    """Returns a sample of the columns of a table; none where it cannot be read."""
    from beam_pipeline.planning.tables import make_format, table_files

    name = claimed_by([(path, 0)])
    folder = os.path.dirname(path)
    try:
        entry = named_entry(path, folder)
        listed = table_files(Inputs(name, folder, FileList.of([entry]), {}))
        return make_format(spec, name).plan(listed).sample.columns
    except (OSError, BeamTFRecordError):
        # It is not what the run was asked to read.
        return {}


def _fits(column: pa.Array, entries: FileList) -> bool:
    kind = column.type
    if not (pa.types.is_string(kind) or pa.types.is_integer(kind)):
        return False
    ids = column.slice(0, _MOST_ROWS).cast(pa.string()).drop_null().unique()
    if not len(ids):
        return False
    try:
        joined = join_labels(entries, ids, np.arange(len(ids)), table="")
    except BeamTFRecordError:
        return False
    matched = len(ids) - len(joined.orphans)
    return matched * 100 >= len(ids) * _FITTING


def _command(spec: Spec, path: str, id_column: str, columns: Sequence[str]) -> str:
    others = [name for name in columns if name != id_column]
    words = ["beam-tfrecord", "convert", spec.source]
    words += [spec.output] if spec.output else []
    words += ["--labels", path, "--id-column", id_column]
    words += ["--label-column", others[0]] if others else ["--unlabelled"]
    also = f" (or another of {', '.join(map(repr, others[:8]))})" if others[1:] else ""
    return (
        f"The ids in column {id_column!r} of {path!r} are names of these images; try: "
        f"{shlex.join(words)}{also}"
    )
