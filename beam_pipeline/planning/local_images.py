"""Find images that a table names by paths of one machine."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import numpy_mask
from transforms.core.schema import Kind, Schema
from transforms.formats.table import InputFile, TableSample

__all__ = ["first_local_image"]

_LOCAL = "^(/|(?i:file):)"


def first_local_image(
    sample: TableSample, schema: Schema, files: Sequence[InputFile]
) -> str:
    """Returns an image that the sample names by a path of one machine, and its row.

    Args:
      sample: of the files.
      schema: of the rows.
      files: those of the source.

    Returns:
      In words, as in "'/data/a.jpg' in row 7 of rows.csv"; empty for none. The row is
      counted where the sample has all rows of one file.
    """
    for feature in schema.of_kind(Kind.IMAGE):
        column = sample.columns.get(feature.source_column)
        if feature.inline or column is None:
            continue
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
        texts, rows = column, np.arange(len(column))
        if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
            texts, rows = column.flatten(), pc.list_parent_indices(column).to_numpy()
        if not (pa.types.is_string(texts.type) or pa.types.is_large_string(texts.type)):
            continue
        if feature.separator:
            cut = pc.split_pattern(texts, feature.separator)
            texts, rows = (
                pc.utf8_trim_whitespace(cut.flatten()),
                rows[pc.list_parent_indices(cut).to_numpy()],
            )
        local = numpy_mask(pc.fill_null(pc.match_substring_regex(texts, _LOCAL), False))
        if local.any():
            at = int(local.argmax())
            return f"{texts[at].as_py()!r} in {_place(int(rows[at]), sample, files)}"
    return ""


def _place(row: int, sample: TableSample, files: Sequence[InputFile]) -> str:
    if len(files) > 1:
        return f"a row of its {len(files):,} files"
    counted = sample.complete and not sample.unread
    return f"{f'row {row + 1:,}' if counted else 'a row'} of {files[0].origin}"
