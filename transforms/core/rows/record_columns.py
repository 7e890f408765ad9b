"""Convert rows to the columns of records: the input of the Example encoder.

label      class ids, which `number_labels` makes of class names
box        list of 4 sides     -> four lists, one for each side
ragged     list of lists       -> all values in one list, and the lists' lengths
the rest                       as it is

Texts that repeat a few values become dictionaries of these first: then a number a row
is moved and not a text, which takes a third of the time or less, also with what it
costs to find the numbers.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import (
    flattened,
    is_bytes,
    list_of,
    lists_like,
    numpy_mask,
    one_array,
)
from transforms.core.schema import (
    BOX_SIDES,
    LOADED,
    Feature,
    Kind,
    Schema,
    Unknown,
    record_fields,
)
from transforms.errors import EncodingError

# Values of one column that are looked at, and of how many bytes; how many different
# ones count as few.
_SAMPLED, _SAMPLED_BYTES = 1 << 12, 4 << 20
_FEW = 1 << 8


def record_schema(schema: Schema, *, without: Sequence[str] = ()) -> pa.Schema:
    """Returns the Arrow schema that the Example encoder is given."""
    return pa.schema(
        [
            field
            for feature in schema.features
            if feature.name not in without
            for field in record_fields(feature)
        ]
    )


def record_columns(rows: pa.Table, features: Sequence[Feature]) -> dict[str, pa.Array]:
    """Returns the columns of records that rows alone decide, by their keys.

    Images, and columns derived from images, are left out.

    Args:
      rows: n rows; labels are class ids.
      features: of the rows.
    """
    columns: dict[str, pa.Array] = {}
    for feature in features:
        if feature.derived or feature.internal or feature.kind in LOADED:
            continue
        array = one_array(rows[feature.name])
        if feature.kind is Kind.BOX:
            parts = _sides(array)
        elif feature.is_ragged:
            parts = _unragged(array)
        else:
            parts = [array]
        columns.update(zip(feature.record_keys, parts, strict=True))
    return columns


def number_labels(
    rows: pa.Table, features: Sequence[Feature], classes: Mapping[str, pa.StringArray]
) -> pa.Table:
    """Returns rows with class ids in the place of class names.

    Pass all rows of a shard at once: hashing the names costs the same for one row.

    Args:
      rows: n rows.
      features: of the rows.
      classes: label feature -> its class names in the order of their ids.
    """
    for feature in features:
        if feature.kind is not Kind.LABEL:
            continue
        others = feature.unknown is Unknown.OOV and feature.vocabulary is not None
        ids = label_ids(rows[feature.name], classes[feature.name], others=others)
        index = rows.schema.get_field_index(feature.name)
        rows = rows.set_column(index, feature.name, ids)
    return rows


def count_parts(
    rows: pa.Table | pa.RecordBatch, features: Sequence[Feature]
) -> dict[str, int]:
    """Returns how many parts ("boxes") the rows have in all."""
    boxes = [feature for feature in features if feature.kind is Kind.BOX]
    counts = [
        pc.sum(pc.list_value_length(rows[feature.name])).as_py() or 0
        for feature in boxes
    ]
    return {"boxes": sum(counts)} if boxes else {}


def label_ids(
    names: pa.Array | pa.ChunkedArray, classes: pa.StringArray, *, others: bool = False
) -> pa.Array | pa.ChunkedArray:
    """Returns the class ids of class names; missing names stay missing.

    Args:
      names: n names, or n lists of them.
      classes: the names in the order of their ids.
      others: whether all names that are no class get the last class's id.

    Raises:
      EncodingError: a name is no class: rows were changed after they were counted.
    """
    if pa.types.is_list(names.type):
        lists = one_array(names)
        inner = label_ids(lists.flatten(), classes, others=others)
        return lists_like(lists, inner)
    ids = pc.index_in(names, value_set=classes)
    if ids.null_count != names.null_count:
        unknown = pc.and_(ids.is_null(), names.is_valid())
        if not others:
            raise EncodingError(
                f"Every class name must be in the vocabulary; "
                f"{names.filter(unknown)[0].as_py()!r} is not."
            )
        last = pa.scalar(len(classes) - 1, ids.type)
        ids = pc.if_else(unknown, last, ids)
    return ids.cast(pa.int64())


def _sides(boxes: pa.Array) -> list[pa.Array]:
    """Returns n lists of the boxes' sides, one column for each side."""
    # NumPy takes a quarter of the time of Arrow's `list_element`.
    flat = boxes.flatten().flatten().to_numpy(zero_copy_only=False)
    sides = np.ascontiguousarray(flat.reshape(-1, len(BOX_SIDES)).T)
    return [lists_like(boxes, pa.array(side)) for side in sides]


def _unragged(lists: pa.Array) -> list[pa.Array]:
    """Returns the values of lists of lists in one list each, and the lengths."""
    mask = lists.is_null() if lists.null_count else None
    starts, inner = flattened(lists, None if mask is None else ~numpy_mask(mask))
    bounds, flat = flattened(inner, None)
    values = list_of(flat, np.diff(bounds[starts]), mask)
    return [values, lists_like(lists, pa.array(np.diff(bounds)))]


def with_dictionaries(table: pa.Table) -> pa.Table:
    """Returns the columns of records with texts or bytes that repeat as dictionaries.

    >>> rows = pa.table({"animal": ["cat", "dog"] * 99})
    >>> with_dictionaries(rows)["animal"].type
    DictionaryType(dictionary<values=string, indices=int32, ordered=0>)
    """
    columns = table.columns
    for index, column in enumerate(columns):
        if is_bytes(column.type) and column.num_chunks:
            encoded = _dictionary_of(column)
            if encoded is not None:
                columns[index] = encoded
    # Of a packed column, the field says what is in it.
    fields = [
        field.with_type(column.type)
        for field, column in zip(table.schema, columns, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _dictionary_of(texts: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Returns a column of records as a dictionary; None if many texts are different."""
    first = texts.chunk(0)
    mean = first.get_total_buffer_size() // max(len(first), 1)
    count = max(min(_SAMPLED, _SAMPLED_BYTES // max(mean, 1)), 1)
    # From all of it: a column that begins like one of few may go on with others.
    step = -(-len(first) // count) or 1
    sample = first.take(pa.array(np.arange(0, len(first), step)))
    if pc.count_distinct(sample).as_py() >= min(_FEW, len(sample) // 4):
        return None
    encoded = one_array(texts.dictionary_encode())
    return None if len(encoded.dictionary) > _FEW else pa.chunked_array([encoded])
