"""Texts that repeat a few values, as dictionaries of these.

Of a dictionary, a number a row is moved and not a text, which takes a third of the time
or less, also with what it costs to find the numbers.
"""

import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import is_bytes

# Values of one column that are looked at, and of how many bytes; how many different
# ones count as few.
_SAMPLED, _SAMPLED_BYTES = 1 << 12, 4 << 20
_FEW = 1 << 8
# Values that are numbered at a time: a column that begins like one of few may go on
# with others.
_PIECE = 1 << 16


def with_dictionaries(table: pa.Table) -> pa.Table:
    """Returns a table with columns of texts or bytes that repeat as dictionaries.

    >>> rows = pa.table({"animal": ["cat", "dog"] * 99})
    >>> with_dictionaries(rows)["animal"].type
    DictionaryType(dictionary<values=string, indices=int32, ordered=0>)
    """
    columns = table.columns
    for index, column in enumerate(columns):
        if is_bytes(column.type) and column.num_chunks:
            found = _dictionary_of(column)
            if found is not None:
                columns[index] = found
    # Of a packed column, the field says what is in it.
    fields = [
        field.with_type(column.type)
        for field, column in zip(table.schema, columns, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _dictionary_of(texts: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Returns texts as a dictionary, in one chunk; None if there are many different."""
    first = texts.chunk(0)
    mean = first.get_total_buffer_size() // max(len(first), 1)
    sample = first.slice(0, min(_SAMPLED, _SAMPLED_BYTES // max(mean, 1)))
    if pc.count_distinct(sample).as_py() >= min(_FEW, len(sample) // 4):
        return None
    pieces = []
    known = first.slice(0, 0)
    for chunk in texts.chunks:
        for start in range(0, len(chunk), _PIECE):
            piece = chunk.slice(start, _PIECE).dictionary_encode()
            if len(piece.dictionary) > _FEW:
                return None
            known = pa.concat_arrays([known, piece.dictionary]).unique()
            if len(known) > _FEW:
                return None
            pieces.append(piece)
    whole = pa.chunked_array(pieces).unify_dictionaries()
    return pa.chunked_array([whole.combine_chunks()])
