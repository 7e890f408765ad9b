"""COCO JSON files: one object with lists of images, annotations and categories.

    {"images":      [{"id": 9, "file_name": "a.jpg", "height": 480, "width": 640}],
     "annotations": [{"id": 1, "image_id": 9, "category_id": 3, "iscrowd": 0,
                      "bbox": [x, y, width, height], "area": 123.5}],
     "categories":  [{"id": 3, "name": "car"}]}

Arrow parses the whole file at once into columns and skips other fields (most of a file
is outlines of objects). Where Arrow refuses a file, such as one with numbers in quotes,
the json module parses it: far slower, but more lenient.

Source: https://cocodataset.org/#format-data
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from transforms import files
from transforms.core.nesting import parse_json
from transforms.errors import InputError
from transforms.formats.parsed_files import kept_in_memory

__all__ = ["CocoFile", "load_coco"]

_IMAGE = {
    "id": pa.int64(),
    "file_name": pa.string(),
    "height": pa.float64(),
    "width": pa.float64(),
}
_ANNOTATION = {
    "id": pa.int64(),
    "image_id": pa.int64(),
    "category_id": pa.int64(),
    "bbox": pa.list_(pa.float64()),
    "area": pa.float64(),
    "iscrowd": pa.int64(),
    "caption": pa.string(),
}
_CATEGORY = {"id": pa.int64(), "name": pa.string()}
_LISTS: Mapping[str, Mapping[str, pa.DataType]] = {
    "images": _IMAGE,
    "annotations": _ANNOTATION,
    "categories": _CATEGORY,
}
# Arrow counts the bytes of what it parses at once in int32.
_MAX_BYTES = 2**31 - 2
# A dataset has a file for train and one for validation as a rule, and a worker may
# read blocks of both.
_KEPT_FILES = 2


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class CocoFile:
    """One file, its annotations found by image.

    Attributes:
      images: id (int64 or string), file_name, height, width; n rows in the file's
        order.
      annotations: id, image_id, category_id, bbox, area, iscrowd, caption; m rows in
        the file's order.
      categories: (id, name) by id.
      order: int64 array of m: annotations by the image they belong to; those of no
        image come first.
      starts: int64 array of n + 1: where in `order` those of each image begin.
    """

    images: pa.RecordBatch
    annotations: pa.RecordBatch
    categories: tuple[tuple[int, str], ...]
    order: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]

    @property
    def strays(self) -> npt.NDArray[np.int64]:
        """The annotations that belong to no image."""
        return self.order[: self.starts[0]]

    def annotations_of(
        self, rows: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Returns the annotations of some images, and how many each image has."""
        counts = self.starts[rows + 1] - self.starts[rows]
        ends = np.cumsum(counts)
        first = np.repeat(self.starts[rows] - (ends - counts), counts)
        return self.order[first + np.arange(len(first))], counts


@kept_in_memory(_KEPT_FILES)
def load_coco(path: str, stamp: int) -> CocoFile:
    """Returns a file's content.

    Args:
      path: of the file.
      stamp: of the file as it was listed; 0 for unknown.

    Raises:
      InputError: it is not COCO JSON.
      OSError: it cannot be read, or has changed since it was listed.
    """
    data = files.read_bytes(path, stamp=stamp)
    if len(data) > _MAX_BYTES:
        raise InputError(
            f"COCO JSON is parsed as a whole, up to {_MAX_BYTES} bytes; {path!r} has "
            f"{len(data)}. Cut it into several files, by images."
        )
    try:
        lists = _parse(data)
    except ValueError as error:
        raise InputError(
            f"{path!r} must be COCO JSON: one object with lists named images, "
            f"annotations and categories. Found: {error}. Correct it, or leave the "
            f"file out."
        ) from error
    images, annotations = lists["images"], lists["annotations"]
    _check_images(images, path)
    parents = pc.fill_null(_image_of(annotations["image_id"], images["id"]), -1)
    rows = np.asarray(parents).astype(np.int64)
    order = np.argsort(rows, kind="stable")
    starts = np.searchsorted(rows[order], np.arange(len(images) + 1))
    return CocoFile(
        images, annotations, _categories(lists["categories"], path), order, starts
    )


def _image_of(image_ids: pa.Array, ids: pa.Array) -> pa.Array:
    """Returns the row of the image that each id names; null for none."""
    if image_ids.type != ids.type:
        image_ids, ids = image_ids.cast(pa.string()), ids.cast(pa.string())
    return pc.index_in(image_ids, value_set=ids, skip_nulls=True)


def _check_images(images: pa.RecordBatch, path: str) -> None:
    if not len(images):
        raise InputError(
            f"{path!r} must list images; its list is empty. Leave the file out."
        )
    ids = images["id"].drop_null()
    if pc.count_distinct(ids).as_py() == len(ids):
        return
    counts = ids.value_counts()
    twice = counts.filter(pc.greater(counts.field("counts"), 1))[0].as_py()
    names = images["file_name"].filter(pc.equal(images["id"], twice["values"]))
    raise InputError(
        f"Ids of images must differ; in {path!r} {twice['counts']} images have the id "
        f"{twice['values']!r}, among them {names[0].as_py()!r} and "
        f"{names[1].as_py()!r}. Give them ids of their own."
    )


def _categories(table: pa.RecordBatch, path: str) -> tuple[tuple[int, str], ...]:
    out: dict[int, str] = {}
    names: dict[str, int] = {}
    for row in table.to_pylist():
        number, name = row["id"], row["name"]
        if number is None or not name:
            raise InputError(
                f"Categories must have an integer id and a name; {path!r} has one with "
                f"id {number!r} and name {name!r}. Correct it."
            )
        if number in out or name in names:
            other = number if number in out else names[name]
            raise InputError(
                f"Ids and names of categories must differ; {path!r} has {other}: "
                f"{out[other]!r} and {number}: {name!r}. Rename or renumber one."
            )
        out[number], names[name] = name, number
    return tuple(sorted(out.items()))


def _parse(data: bytes) -> dict[str, pa.RecordBatch]:
    """Returns the three lists as columns; raises ValueError."""
    try:
        return _parse_columns(data)
    except (pa.ArrowInvalid, UnicodeDecodeError):
        return _parse_objects(data)


def _parse_columns(data: bytes) -> dict[str, pa.RecordBatch]:
    schema = pa.schema(
        [
            pa.field(name, pa.list_(pa.struct(list(fields.items()))))
            for name, fields in _LISTS.items()
        ]
    )
    table = pyarrow.json.read_json(
        pa.BufferReader(data),
        # The file is a single object, which Arrow cannot parse across two pieces.
        read_options=pyarrow.json.ReadOptions(
            use_threads=False, block_size=len(data) + 1
        ),
        parse_options=pyarrow.json.ParseOptions(
            explicit_schema=schema,
            newlines_in_values=True,
            unexpected_field_behavior="ignore",
        ),
    )
    # Arrow's JSON parser does not check that texts are UTF-8.
    table.validate(full=True)
    if table.num_rows != 1 or table["images"].null_count:
        raise pa.ArrowInvalid("not one object with a list of images")
    return {
        name: pa.RecordBatch.from_arrays(
            table[name].combine_chunks().flatten().flatten(), names=list(fields)
        )
        for name, fields in _LISTS.items()
    }


def _parse_objects(data: bytes) -> dict[str, pa.RecordBatch]:
    found = parse_json(data)
    if not isinstance(found, dict) or not isinstance(found.get("images"), list):
        raise ValueError("no object with a list of images")
    lists: dict[str, pa.RecordBatch] = {}
    for name, fields in _LISTS.items():
        items = found.get(name) or []
        if not isinstance(items, list):
            raise ValueError(f"{name} is no list")
        lists[name] = pa.RecordBatch.from_arrays(
            [
                _column(items, field, kind, may_be_text=(name, field) in _IDS)
                for field, kind in fields.items()
            ],
            names=list(fields),
        )
    return lists


def _column(
    items: Sequence[Any], field: str, kind: pa.DataType, *, may_be_text: bool
) -> pa.Array:
    """Returns one field of all items, null where a value has another type."""
    values = [item.get(field) if isinstance(item, dict) else None for item in items]
    if may_be_text and any(isinstance(value, str) for value in values):
        texts = [None if value is None else _text(str(value)) for value in values]
        return pa.array(texts, pa.string())
    return pa.array([_READ[kind](value) for value in values], kind)


# Ids may be texts: some labelling tools write names there.
_IDS = {("images", "id"), ("annotations", "id"), ("annotations", "image_id")}


def _integer(value: Any) -> int | None:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return int(value)
    return None


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _numbers(value: Any) -> list[float | None] | None:
    return [_number(item) for item in value] if isinstance(value, list) else None


def _text(value: Any) -> str | None:
    if not isinstance(value, str):
        return None
    try:
        value.encode()
    except UnicodeEncodeError:
        return None
    return value


_READ: Mapping[pa.DataType, Callable[[Any], Any]] = {
    pa.int64(): _integer,
    pa.float64(): _number,
    pa.string(): _text,
    pa.list_(pa.float64()): _numbers,
}
