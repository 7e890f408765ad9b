"""Find the images that a table names by paths."""

import os
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from beam_pipeline.settings.spec import Spec
from transforms import files
from transforms.core.arrays import is_list
from transforms.core.schema import Feature, Kind, Schema
from transforms.errors import SpecError
from transforms.formats.file_names import is_image_name
from transforms.formats.input_files import InputFiles
from transforms.formats.table import InputFile, TableSample
from transforms.storage.local_paths import first_local
from transforms.storage.paths import is_remote, relative, spellings

# Files of all columns that are looked for, and folders that one may be in.
_LOOKED_AT, _MOST_FOLDERS = 64, 8


def image_folders(files: InputFiles, images_root: str) -> list[str]:
    """Returns folders that paths in tables are relative to.

    Args:
      files: the tables.
      images_root: the folder of all images; empty for those of the tables.
    """
    if images_root:
        return [images_root]
    step = max(len(files) // _LOOKED_AT, 1)
    paths = [files[i].path for i in range(0, len(files), step)]
    return [*dict.fromkeys(map(os.path.dirname, paths))][:_MOST_FOLDERS]


def image_shares(
    features: Sequence[Feature],
    columns: Mapping[str, pa.Array | pa.ChunkedArray],
    folders: Sequence[str],
) -> dict[str, float]:
    """Returns the share of sampled cells that are relative paths of image files.

    Args:
      features: as they were inferred; those of texts are looked at.
      columns: raw columns by name.
      folders: those that the paths are relative to.

    Returns:
      Column -> share above 0: 1 where each cell has an image's suffix and each file
      that was looked for is there.
    """
    named: dict[str, tuple[int, list[str]]] = {}
    for feature in features:
        if feature.kind is not Kind.TEXT or len(named) == _LOOKED_AT:
            continue
        texts = _some_texts(columns[feature.source_column])
        paths = [text for text in texts if text and _is_inside(text)]
        if paths:
            named[feature.source_column] = (len(texts), paths)
    most = _LOOKED_AT // max(len(named), 1)
    looked_for = {
        name: paths[:: -(-len(paths) // most)] for name, (_, paths) in named.items()
    }
    places = {
        path: [
            os.path.join(folder, spelling)
            for folder in folders
            for spelling in spellings(path)
        ]
        for paths in looked_for.values()
        for path in paths
    }
    there = files.sizes_of(place for each in places.values() for place in each)
    out = {}
    for name, paths in looked_for.items():
        hits = sum(any(place in there for place in places[path]) for path in paths)
        count, suffixed = named[name][0], len(named[name][1])
        if hits:
            out[name] = hits * suffixed / (len(paths) * count)
    return out


def _some_texts(column: pa.Array | pa.ChunkedArray) -> list[str | None]:
    """Returns texts from evenly through a column, or from its lists."""
    while is_list(column.type):
        column = pc.list_flatten(column)
    if not pa.types.is_string(column.type):
        return []
    step = max(-(-len(column) // _LOOKED_AT), 1)
    rows = pa.array(range(0, len(column), step), pa.int64())
    found: list[str | None] = column.take(rows).to_pylist()
    return found


def _is_inside(path: str) -> bool:
    """Whether a text may be the path of an image below a folder: no URL, say."""
    if not is_image_name(path) or path.startswith("/"):
        return False
    return "://" not in path and "\0" not in path


def check_images_root(folder: str, source: str) -> None:
    """Raises SpecError where the folder of the images is not there.

    Args:
      folder: that `images_root` names; empty for none.
      source: the source's root.
    """
    if not folder or is_remote(folder) or os.path.isdir(folder):
        return
    beside = os.path.join(source, relative(folder, ""))
    hint = "Correct it."
    if os.path.isdir(beside):
        hint = f"In the folder of the source there is one; name it {beside!r}."
    raise SpecError(
        f"images_root must be a folder, relative to the current one; there is no "
        f"{folder!r}. {hint}"
    )


def check_images_named(spec: Spec, schema: Schema) -> None:
    """Raises SpecError for an `images_root` to which no path is relative."""
    folder = spec.images_folder
    # Rows of Python have it without a word: their copy lies in another folder.
    is_default = spec.fingerprint == "content" and spec.images_root == os.getcwd()
    named = any(not feature.inline for feature in schema.of_kind(Kind.IMAGE))
    if not folder or is_default or named:
        return
    raise SpecError(
        "images_root is for paths of images; no column of this source holds them. "
        "Leave it out, or name their columns with image_columns."
    )


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
