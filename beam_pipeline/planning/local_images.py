"""Find images that a table names by paths of one machine."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import is_list
from transforms.core.schema import Kind, Schema
from transforms.formats.table import InputFile, TableSample
from transforms.storage.local_paths import first_local

__all__ = ["first_local_image", "named_images"]


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
    for column in _named(sample, schema):
        if (found := first_local(column)) is not None:
            row, path = found
            return f"{path!r} in {_place(row, sample, files)}"
    return ""


def named_images(sample: TableSample, schema: Schema, most: int) -> list[str]:
    """Returns images that the sample names, as it does: the first, and evenly on.

    Args:
      sample: of the files.
      schema: of the rows.
      most: how many of each column.
    """
    found = []
    for column in _named(sample, schema):
        texts = column.flatten() if is_list(column.type) else column
        if pa.types.is_string(texts.type) or pa.types.is_large_string(texts.type):
            texts = texts.drop_null()
            step = max(-(-len(texts) // most), 1)
            found += [texts[i].as_py().strip() for i in range(0, len(texts), step)]
    return [*filter(None, found)]


def _named(sample: TableSample, schema: Schema) -> Iterator[pa.Array]:
    """Yields the columns of images that rows name: texts, or lists of texts."""
    for feature in schema.of_kind(Kind.IMAGE):
        column = sample.columns.get(feature.source_column)
        if feature.inline or column is None:
            continue
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
        if feature.separator and pa.types.is_string(column.type):
            column = pc.split_pattern(column, feature.separator)
        yield column


def _place(row: int, sample: TableSample, files: Sequence[InputFile]) -> str:
    if len(files) > 1:
        return f"a row of its {len(files):,} files"
    counted = sample.complete and not sample.unread
    return f"{f'row {row + 1:,}' if counted else 'a row'} of {files[0].origin}"
