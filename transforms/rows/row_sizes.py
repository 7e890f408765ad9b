"""How large rows are as records, with the image files that they name.

About: it decides how many shards a split has, and nothing else.
"""

import os
from collections.abc import Callable, Iterable, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import is_bytes, is_list
from transforms.core.infer.image_names import is_named_like_images
from transforms.rows.row_identity import RowRule
from transforms.rows.tally import ends_like_image, is_absolute

Longs = npt.NDArray[np.int64]

# What a record takes beside its values: its frame, and a feature's tags and lengths.
_ROW_BYTES = 24
_VALUE_BYTES = 8
_FEATURE_BYTES = 12


def row_sizes(rows: pa.RecordBatch) -> Longs:
    """Returns about how many bytes each of n rows takes as a record.

    A function of the values alone, not of how Arrow holds them.
    """
    out = np.full(rows.num_rows, _ROW_BYTES, np.int64)
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        constant = len(name.encode()) + _FEATURE_BYTES
        sizes = _value_sizes(column)
        if column.null_count:
            present = column.is_valid().to_numpy(zero_copy_only=False)
            sizes = np.where(present, sizes + constant, 0)
            out += sizes
        else:
            out += sizes + constant
    return out


def _value_sizes(column: pa.Array) -> Longs:
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    kind = column.type
    if is_bytes(kind):
        return np.asarray(pc.binary_length(column).fill_null(0)).astype(np.int64)
    if is_list(kind):
        counts = np.asarray(pc.list_value_length(column).fill_null(0)).astype(np.int64)
        items = column.flatten()
        if not is_bytes(items.type) and not is_list(items.type):
            return counts * _VALUE_BYTES
        sums = np.concatenate(([0], np.cumsum(_value_sizes(items))))
        stops = np.cumsum(counts)
        each: Longs = sums[stops] - sums[stops - counts]
        return each
    return np.full(len(column), _VALUE_BYTES, np.int64)


def file_sizes(
    rows: pa.RecordBatch,
    rule: RowRule,
    sizes_of: Callable[[Iterable[str]], Mapping[str, int]],
) -> Longs | None:
    """Returns how many bytes the image files of n rows have; None for no paths.

    A file that is not there counts nothing: it is a reject later.

    Args:
      rows: n of them.
      rule: says which columns are of images.
      sizes_of: returns path -> bytes of those files that are there.
    """
    columns = []
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        named = None if name in rule.texts else _paths(name, column, rule)
        if named is not None:
            columns.append(named)
    if not columns:
        return None
    distinct = {path for _, paths in columns for path in paths if path}
    sizes = sizes_of(sorted(distinct))
    out = np.zeros(rows.num_rows, np.int64)
    for rows_of, paths in columns:
        of_paths = [sizes.get(path, 0) for path in paths]
        np.add.at(out, rows_of, np.array(of_paths, np.int64))
    return out


def _paths(
    name: str, column: pa.Array, rule: RowRule
) -> tuple[Longs, list[str]] | None:
    """Returns (row, path) of the image files that a column names; None for none."""
    rows_of = np.arange(len(column))
    is_list_column = is_list(column.type)
    while is_list(column.type):
        rows_of = rows_of[np.asarray(pc.list_parent_indices(column))]
        column = column.flatten()
    if not pa.types.is_string(column.type):
        return None
    if name not in rule.images:
        is_named = is_named_like_images(name, is_list=is_list_column)
        ends = ends_like_image(column)
        if not is_named:
            # Relative paths say nothing without the folder.
            if not rule.images_root:
                return None
            ends = pc.and_not(ends, is_absolute(column))
        column = pc.if_else(ends, column, None)
    paths = [
        path if not path or "://" in path else os.path.join(rule.images_root, path)
        for path in column.fill_null("").to_pylist()
    ]
    return rows_of, paths
