"""The images that tables name: which columns do, where the files are, their sizes."""

import itertools
import os
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from beam_pipeline.planning.image_columns import Columns, items_of
from beam_pipeline.planning.inputs import Inputs
from beam_pipeline.settings.spec import Spec
from transforms.core.arrays import is_list
from transforms.core.schema import Feature, Kind, Schema
from transforms.errors import SpecError
from transforms.formats.file_names import is_image_name
from transforms.formats.input_files import InputFiles
from transforms.formats.table import TableSample
from transforms.storage.files import sizes_of
from transforms.storage.paths import is_remote, relative, spellings

# Files of all columns that are looked for, and folders that one may be in.
_LOOKED_AT, _MOST_FOLDERS = 64, 8

SIZED_IMAGES = 64
"""Images whose sizes are asked for where the rows only say where they are."""

# About what one takes where none of them is found.
_IMAGE_BYTES = 100_000


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
    features: Sequence[Feature], columns: Columns, folders: Sequence[str]
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
    asked = {
        name: paths[:: -(-len(paths) // most)] for name, (_, paths) in named.items()
    }
    # One question for all columns: a store answers many at a time.
    spelt = {path: _places(path, folders) for path in itertools.chain(*asked.values())}
    there = sizes_of(itertools.chain(*spelt.values())).keys()
    out = {}
    for name, paths in asked.items():
        hits = sum(not there.isdisjoint(spelt[path]) for path in paths)
        count, suffixed = named[name][0], len(named[name][1])
        if hits:
            out[name] = hits * suffixed / (len(paths) * count)
    return out


def _places(path: str, folders: Sequence[str]) -> list[str]:
    """Returns where an image may be that is called so in rows."""
    return [os.path.join(f, spelling) for f in folders for spelling in spellings(path)]


def _some_texts(column: pa.Array | pa.ChunkedArray) -> list[str | None]:
    """Returns texts from evenly through a column, or from its lists."""
    items = items_of(column)
    if items is None or not pa.types.is_string(items.type):
        return []
    step = max(-(-len(items) // _LOOKED_AT), 1)
    rows = pa.array(range(0, len(items), step), pa.int64())
    texts: list[str | None] = items.take(rows).to_pylist()
    return texts


def _is_inside(path: str) -> bool:
    """Whether a text may be the path of an image below a folder: no URL, say."""
    # The dot first: it is cheap, and texts of thousands of columns have none.
    if "." not in path or not is_image_name(path) or path.startswith("/"):
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


def named_images(sample: TableSample, schema: Schema, most: int) -> list[str]:
    """Returns images that the sample names, as it does: the first, and evenly on.

    Args:
      sample: of the files.
      schema: of the rows.
      most: how many of each column.
    """
    names = []
    for column in _columns_of_paths(sample, schema):
        texts = column.flatten() if is_list(column.type) else column
        if pa.types.is_string(texts.type) or pa.types.is_large_string(texts.type):
            texts = texts.drop_null()
            step = max(-(-len(texts) // most), 1)
            names += [texts[i].as_py().strip() for i in range(0, len(texts), step)]
    return [*filter(None, names)]


def _columns_of_paths(sample: TableSample, schema: Schema) -> Iterator[pa.Array]:
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


def mean_image_bytes(inputs: Inputs, named: Sequence[str], images_root: str) -> float:
    """Returns the mean size of images beside the files, else of some that they name.

    Where none of these is found, it is a guess.

    Args:
      inputs: the files.
      named: images, as the files name them.
      images_root: folder that they are relative to, as an absolute path; empty for
        the source's.

    Raises:
      StorageError: a store does not answer. A guess would decide other shards than
        the sizes do.
    """
    sizes = [e.size for e in inputs.companions if is_image_name(e.path)]
    if named and not sizes:
        folders = [images_root or inputs.root]
        plain = (name for name in named if "\0" not in name)
        paths = [path for name in plain for path in _places(name, folders)]
        # A store that does not answer is asked for one of them, and not for all.
        for some in (paths[:1], paths[1:]):
            sizes += sizes_of(some).values()
    return sum(sizes) / len(sizes) if sizes else _IMAGE_BYTES
