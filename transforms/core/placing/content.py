r"""Identity of rows without a key: a hash of the content of their own columns.

    row    sum over its cells of  splitmix64(base(name) + word(value)), modulo 2^64
    base   blake2b("column \0" "content \0" 0 "\0" name in NFC), 8 bytes

A sum does not depend on the order of the columns. Null, NaN, an empty text, a missing
column and the bytes of an image add nothing. The word of a value:

| value                          | word                                            |
| ------------------------------ | ----------------------------------------------- |
| number that a float64 equals   | its float64, -0 as 0                            |
| other integer in int64, uint64 | splitmix64(base("int64" or "uint64") + integer) |
| other number                   | the nearest float64                             |
| text that reads as a number    | as that number; spaces around it do not count   |
| bool; text true or false       | base("bool"), and 1 more for true               |
| other text, bytes in UTF-8     | `hashes.hash_texts`   , in NFC                  |
| other bytes                    | blake2b, 8 bytes                                |
| timestamp, date                | splitmix64(base("instant") + seconds) + nanos   |
| time of day, duration          | the same with bases of their own                |
| list, tensor, map              | splitmix64(base("list") + length + sum over its |
|                                | items of splitmix64(word + number * odd))       |
| struct                         | base("struct") + sum over its fields, as a row  |

A text reads as a number by the rules of `rows.coerce` for float, up to the largest
float64: `1`, `1.0` and `1e0` are the same number, `007` is a text. With an exponent it
is the nearest float64. The storage of a value does not count: dictionaries, views, the
width of integers, the unit and zone of times. A float32 counts as the float64 that
equals it.

None of this may change: the splits of every dataset written by shares depend on it.
The golden values in tests/unit/core/placing/test_content.py pin it. In an Arrow array
an integer or a float takes 3 ns, a text that is a number 17, another text 30 to 50.
"""

import functools
import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import data_of, numpy_mask, offsets_of, raw_values
from transforms.core.placing.hashes import UInt64s, hash_texts, origin_bases, splitmix64
from transforms.core.placing.leakage import Mask, without_images
from transforms.core.rows.common_type import is_any_list, is_binary
from transforms.core.rows.text_cells import (
    DECIMAL,
    INTEGER,
    NUMBER_WORD,
    not_utf8,
    trimmed,
    zero_led,
)

# The words of n values, and which of the values are present; None for all.
_Words = tuple[UInt64s, Mask | None]

_PURPOSE = "content"
# Rows hashed at a time: few enough for the processor's cache.
_ROWS = 1 << 15
# Cells that are cast to a number before all of them are.
_PROBES = (8, 256)
# Dictionary encoding pays if at most a quarter of the sample is distinct.
_SAMPLE_CELLS, _CELLS_EACH = 256, 4
# Every integer up to the first is a float64; the second is above those of 64 bits.
_EXACT, _NO_INTEGER = 2**53, 2.0**65
_NANOS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
# 10**22 is the largest power of ten that is a float64; a division by it rounds once.
_MOST_SCALE = 22
_ODD = np.uint64(0xD1342543DE82EF95)


def _bytes(given: bytes) -> Mask:
    """Returns which of the 256 bytes are among the given ones."""
    return np.isin(np.arange(256), list(given))


_DIGIT = _bytes(b"0123456789")
_NUMBER_STARTS = _bytes(b"0123456789+-. \t")
_WORD_STARTS = _bytes(b"nNiI")
_TRUTH_STARTS = _bytes(b"tTfF")
# nan, inf, infinity; true, false
_WORD_LENGTHS, _TRUTH_LENGTHS = (3, 8), (4, 5)


def _type_base(kind: str) -> np.uint64:
    """Returns what the words of a type start from: equal bits of two types differ."""
    return origin_bases([kind], _PURPOSE, 0)[0]


_INT64, _UINT64, _BOOL = map(_type_base, ("int64", "uint64", "bool"))
_INSTANT, _CLOCK, _DURATION = map(_type_base, ("instant", "clock", "duration"))
_LIST, _STRUCT, _NULL = map(_type_base, ("list", "struct", "null"))


def content_hashes(
    rows: pa.RecordBatch, names: Sequence[str], *, images: bool = False
) -> UInt64s:
    """Returns the 64-bit hashes of the contents of n rows.

    They do not depend on how rows are batched.

    Args:
      rows: the source's own columns.
      names: of the columns that count; missing ones add nothing.
      images: whether the bytes of images count, as their digests.
    """
    places = {name: index for index, name in enumerate(rows.schema.names)}
    columns = [
        (_base_of(name), rows.column(places[name])) for name in names if name in places
    ]
    out = np.zeros(rows.num_rows, np.uint64)
    for start in range(0, rows.num_rows, _ROWS):
        chunk = out[start : start + _ROWS]
        for base, column in columns:
            chunk += _mixed(base, _words(column.slice(start, _ROWS), images))
    return out


@functools.lru_cache(maxsize=1 << 16)
def _base_of(name: str) -> np.uint64:
    """Returns the number that keeps a column, or a field, apart from the others."""
    return origin_bases([name], f"column\0{_PURPOSE}", 0)[0]


def _mixed(base: np.uint64, words: _Words) -> UInt64s:
    """Returns the summands of n values of one column."""
    values, present = words
    with np.errstate(over="ignore"):
        summands = splitmix64(values + base)
    if present is not None:
        summands *= present
    return summands


def _words(array: pa.Array, images: bool) -> _Words:
    """Returns a word for each value, the same for equal content, and which have one.

    Images have none, unless they are said to count.
    """
    kind, types = array.type, pa.types
    if isinstance(array, pa.ExtensionArray):
        return _words(array.storage, images)
    if types.is_null(kind):
        return np.zeros(len(array), np.uint64), np.zeros(len(array), np.bool_)
    if types.is_dictionary(kind):
        return _taken(_words(array.dictionary, images), array.indices)
    if types.is_run_end_encoded(kind):
        return _words(pc.run_end_decode(array), images)
    if types.is_string(kind) or types.is_large_string(kind) or kind == pa.string_view():
        return _of_texts(array.cast(pa.large_string()))
    if types.is_floating(kind):
        return _of_floats(array)
    if types.is_struct(kind):
        return _of_structs(array, images)
    if is_any_list(kind):
        return _of_lists(array, images)
    if types.is_map(kind):
        pairs = pa.list_(pa.struct(list(kind.field(0).type)))
        return _of_lists(array.cast(pairs), images)
    if types.is_boolean(kind):
        return _BOOL + numpy_mask(array).astype(np.uint64), _present(array)
    if types.is_integer(kind):
        return _of_integers(raw_values(array)), _present(array)
    if types.is_decimal(kind):
        return _of_decimals(array)
    if is_binary(kind):
        return _of_bytes(array.cast(pa.large_binary()), images)
    if types.is_temporal(kind) and not types.is_interval(kind):
        return _of_times(array)
    # Intervals and unions count as their text in Python.
    texts = [None if v is None else str(v) for v in array.to_pylist()]
    return _of_texts(pa.array(texts, pa.large_string()))


def _present(array: pa.Array) -> Mask | None:
    """Returns the mask of values to hash, those not null; None if all are."""
    return numpy_mask(array.is_valid()) if array.null_count else None


def _taken(words: _Words, indices: pa.Array) -> _Words:
    """Returns the words at n indices; a null has none."""
    values, present = words
    there = _present(indices)
    if not len(values):
        return np.zeros(len(indices), np.uint64), np.zeros(len(indices), np.bool_)
    places = indices.fill_null(0).to_numpy()
    if present is not None:
        there = present[places] if there is None else there & present[places]
    return values[places], there


def _of_floats(array: pa.Array) -> _Words:
    """Returns the words of floats: their bits as float64; NaN is missing."""
    values = raw_values(array).astype(np.float64)
    missing = np.isnan(values)
    present = _present(array)
    if missing.any():
        present = ~missing if present is None else present & ~missing
    return _bits(values), present


def _bits(values: npt.NDArray[np.float64]) -> UInt64s:
    """Returns the bits of floats as words; adding 0 turns -0 into 0."""
    return (values + 0.0).view(np.uint64)


def _of_integers(values: npt.NDArray[np.integer]) -> UInt64s:
    """Returns the words of integers: those of equal float64s, or hashes beyond them."""
    floats = values.astype(np.float64)
    words = _bits(floats)
    if values.dtype.itemsize < 8:
        return words
    if values.min(initial=0) >= -_EXACT and values.max(initial=0) <= _EXACT:
        return words
    signed = values.dtype.kind == "i"
    inside = floats < (2.0**63 if signed else 2.0**64)
    back = np.where(inside, floats, 0.0).astype(values.dtype)
    others = np.flatnonzero(~inside | (back != values))
    whole = values[others]
    is_wide = (whole > 2**63 - 1) if not signed else np.zeros(len(whole), np.bool_)
    with np.errstate(over="ignore"):
        base = np.where(is_wide, _UINT64, _INT64)
        words[others] = splitmix64(base + whole.astype(np.uint64))
    return words


def _of_decimals(array: pa.Array) -> _Words:
    """Returns the words of decimals: those of equal float64s, or of their texts."""
    if not pa.types.is_decimal128(array.type) and array.type.precision <= 38:
        array = array.cast(pa.decimal128(array.type.precision, array.type.scale))
    present = _present(array)
    count, scale = len(array), array.type.scale
    words = np.zeros(count, np.uint64)
    simple = np.zeros(count, np.bool_)
    if pa.types.is_decimal128(array.type) and 0 <= scale <= _MOST_SCALE and count:
        stored = np.frombuffer(array.buffers()[1], "<i8")
        low, high = stored.reshape(-1, 2)[array.offset :][:count].T
        simple = (high == low >> 63) & (low >= -_EXACT) & (low <= _EXACT)
        words = _bits(low.astype(np.float64) / 10.0**scale)
    if present is not None:
        simple |= ~present
    others = np.flatnonzero(~simple)
    if len(others):
        texts = array.take(pa.array(others)).cast(pa.large_string())
        words[others] = _of_texts(texts)[0]
    return words, present


def _of_times(array: pa.Array) -> _Words:
    """Returns the words of dates, times and durations, whatever their unit."""
    kind = array.type
    types = pa.types
    base = _INSTANT
    if types.is_date32(kind):
        array = array.cast(pa.timestamp("s"))
    elif types.is_time(kind):
        base = _CLOCK
    elif types.is_duration(kind):
        base = _DURATION
    unit = "ms" if types.is_date64(kind) else array.type.unit
    narrow = pa.int32() if types.is_time32(kind) else pa.int64()
    values = array.view(narrow).fill_null(0).to_numpy().astype(np.int64)
    seconds, rest = np.divmod(values, _NANOS[unit])
    nanos = rest * (_NANOS["ns"] // _NANOS[unit])
    with np.errstate(over="ignore"):
        words = splitmix64(base + seconds.astype(np.uint64))
        words += nanos.astype(np.uint64)
    return words, _present(array)


def _of_structs(array: pa.Array, images: bool) -> _Words:
    """Returns the words of structs, which do not depend on the order of fields."""
    words = np.full(len(array), _STRUCT)
    for index, field in enumerate(array.type):
        values = _words(pc.struct_field(array, index), images)
        words += _mixed(_base_of(field.name), values)
    return words, _present(array)


def _of_lists(array: pa.Array, images: bool) -> _Words:
    """Returns the words of lists, which depend on the order of their items."""
    lengths = pc.list_value_length(array).fill_null(0).to_numpy().astype(np.int64)
    stops = np.cumsum(lengths)
    values, present = _words(array.flatten(), images)
    if present is not None:
        values = np.where(present, values, _NULL)
    places = np.arange(1, len(values) + 1, dtype=np.int64)
    places -= np.repeat(stops - lengths, lengths)
    with np.errstate(over="ignore"):
        items = splitmix64(values + places.astype(np.uint64) * _ODD)
        sums = np.concatenate((np.zeros(1, np.uint64), np.cumsum(items)))
        totals = sums[stops] - sums[stops - lengths]
        return splitmix64(_LIST + lengths.astype(np.uint64) + totals), _present(array)


def _of_bytes(array: pa.Array, images: bool) -> _Words:
    """Returns the words of bytes: of UTF-8 as of texts, of images of their digests."""
    array = without_images(array, digests=images)
    raw = not_utf8(array)
    if raw is None:
        return _of_texts(array.cast(pa.large_string()))
    texts = pc.if_else(pa.array(raw), pa.scalar(None, array.type), array)
    words, there = _of_texts(texts.cast(pa.large_string()))
    for row in np.flatnonzero(raw).tolist():
        digest = hashlib.blake2b(array[row].as_py(), digest_size=8).digest()
        words[row] = int.from_bytes(digest, "little")
    return words, None if there is None else there | raw


def _of_texts(texts: pa.Array) -> _Words:
    """Returns the words of texts; an empty one has none."""
    if (numbers := _all_numbers(texts)) is not None:
        return numbers, _present(texts)
    if _repeats(texts):
        encoded = texts.dictionary_encode()
        return _taken(_of_different(encoded.dictionary), encoded.indices)
    return _of_different(texts)


def _all_numbers(texts: pa.Array) -> UInt64s | None:
    """Returns the words of texts if all are plain numbers; else None."""
    for target in (pa.int64(), pa.uint64()):
        if (integers := _cast(texts, target)) is not None:
            return None if zero_led(texts) else _of_integers(raw_values(integers))
    values = _cast(texts, pa.float64())
    if values is None or zero_led(texts):
        return None
    # Arrow reads 1e999 as infinite and nan(1) as a number.
    are_finite = pc.all(pc.is_finite(values), min_count=0).as_py()
    return _words_of_decimals(raw_values(values), texts) if are_finite else None


def _cast(texts: pa.Array, target: pa.DataType) -> pa.Array | None:
    """Returns texts as numbers; None if Arrow reads one of them as none."""
    try:
        # Arrow tries all cells, and each that fails costs a microsecond: probe a few.
        for cells in _PROBES:
            pc.cast(texts.slice(0, cells), target)
        return pc.cast(texts, target)
    except pa.ArrowInvalid:
        return None


def _words_of_decimals(values: npt.NDArray[np.float64], texts: pa.Array) -> UInt64s:
    """Returns the words that decimal texts are hashed as; `values` are the texts."""
    words = _bits(values)
    sizes = np.abs(values)
    # float64 does not hold each integer of this size, so the text decides. Texts with
    # an exponent stay float64.
    large = np.flatnonzero((sizes >= _EXACT) & (sizes < _NO_INTEGER))
    if not len(large):
        return words
    written = texts.take(pa.array(large))
    written = pc.replace_substring_regex(written, r"\.0*$", "")
    whole = pc.match_substring_regex(written, INTEGER)
    large, written = large[numpy_mask(whole)], written.filter(whole)
    for row, text in zip(large.tolist(), written.to_pylist(), strict=True):
        number = int(text)
        if -(2**63) <= number < 2**64:
            kind = np.int64 if number < 2**63 else np.uint64
            words[row] = _of_integers(np.array([number], kind))[0]
    return words


def _repeats(texts: pa.Array) -> bool:
    """Whether texts repeat so often that each distinct one is better hashed once."""
    if len(texts) < _SAMPLE_CELLS * _CELLS_EACH:
        return False
    places = np.arange(_SAMPLE_CELLS) * (len(texts) // _SAMPLE_CELLS)
    sample = texts.take(pa.array(places))
    return len(sample.unique()) * _CELLS_EACH <= _SAMPLE_CELLS


def _of_different(texts: pa.Array) -> _Words:
    """Returns the words of texts that may be numbers, bools or other texts."""
    offsets = offsets_of(texts)
    starts, lengths = offsets[:-1], np.diff(offsets)
    data = data_of(texts)
    if not len(data):
        return np.zeros(len(texts), np.uint64), np.zeros(len(texts), np.bool_)
    first = data.take(starts, mode="clip")
    is_word = _WORD_STARTS[first] & np.isin(lengths, _WORD_LENGTHS)
    # In 2024-05-01 a minus follows a digit, as in no number.
    is_date = (data.take(starts + 4, mode="clip") == ord("-")) & (lengths > 4)
    is_date &= _DIGIT[data.take(starts + 3, mode="clip")]
    present = lengths > 0
    if texts.null_count:
        present &= numpy_mask(texts.is_valid())
    words = np.zeros(len(texts), np.uint64)
    rest = present.copy()
    maybe = np.flatnonzero((is_word | _NUMBER_STARTS[first]) & present & ~is_date)
    if len(maybe):
        candidate_words, numbers, missing = _of_candidates(texts.take(pa.array(maybe)))
        words[maybe] = candidate_words
        rest[maybe[numbers]] = False
        present[maybe[missing]] = False
    truth = np.flatnonzero(_TRUTH_STARTS[first] & np.isin(lengths, _TRUTH_LENGTHS))
    if len(truth):
        lower = pc.ascii_lower(texts.take(pa.array(truth)))
        # Not at import: the first `pa.array` of a process imports pandas.
        names = pa.array(["false", "true"])
        which = pc.index_in(lower.cast(pa.string()), value_set=names)
        said = numpy_mask(which.is_valid()) & rest[truth]
        values = which.fill_null(0).to_numpy().astype(np.uint64)
        words[truth[said]] = _BOOL + values[said]
        rest[truth[said]] = False
    if rest.all():
        return hash_texts(texts, "text", purpose=_PURPOSE), None
    if rest.any():
        others = texts.filter(pa.array(rest))
        words[rest] = hash_texts(others, "text", purpose=_PURPOSE)
    return words, None if present.all() else present


def _of_candidates(texts: pa.Array) -> tuple[UInt64s, Mask, Mask]:
    """Returns n words, which texts are numbers, and which of those are NaN."""
    quick = _all_numbers(texts)
    if quick is not None:
        every = np.ones(len(texts), np.bool_)
        return quick, every, ~every
    texts = trimmed(texts)
    decimals = pc.match_substring_regex(texts, DECIMAL)
    numbers = numpy_mask(decimals).copy()
    words = np.zeros(len(texts), np.uint64)
    missing = np.zeros(len(texts), np.bool_)
    written = texts.filter(decimals)
    values = raw_values(pc.cast(written, pa.float64()))
    words[numbers] = _words_of_decimals(values, written)
    # A decimal beyond the range of float64 is a text.
    numbers[np.flatnonzero(numbers)[np.isinf(values)]] = False
    others = np.flatnonzero(~numbers)
    named = pc.match_substring_regex(texts.take(pa.array(others)), NUMBER_WORD)
    others = others[numpy_mask(named)]
    if len(others):
        values = raw_values(pc.cast(texts.take(pa.array(others)), pa.float64()))
        words[others] = _bits(values)
        numbers[others] = True
        missing[others] = np.isnan(values)
    return words, numbers, missing
