r"""Row identities as 64-bit hashes: of a group, a key, a content, or a place.

    unit   is never divided between splits: the row's group, else its key, else its
           content, if the batch has it, else its place (origin and number)
    order  by the row's key, else its place; never by its group. Rows of a pipeline have
           no place, and go by their content

Places hash by `placement.hash_rows`, contents as splitmix64(base + content), with the
base below. Texts hash in NFC, with splitmix64 over their UTF-8 bytes, eight at a time
from the end:

    base = blake2b(kind "\0" purpose "\0" seed "\0"), 8 bytes, little-endian
    h    = splitmix64(base + length)
    h    = splitmix64(h ^ word)        for each word, the last one first

A word is eight bytes, little-endian; the first bytes of a text that do not fill one
are a word of their own. For texts of equal length each step is one to one, so two that
differ in one word never collide. Texts longer than `_LONGEST_MIXED` bytes hash as
blake2b of the base and their bytes. A key of 12 bytes takes 40 ns, one of 26 takes 70,
and some more if not all are ASCII; blake2b takes 470.

None of this may change: the bytes of every dataset ever written depend on it. The
golden values in tests/unit/core/placing/test_place_keys.py pin it.
"""

import hashlib
import unicodedata

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import offsets_of
from transforms.core.model import Batch
from transforms.core.placing.placement import (
    UInt64s,
    hash_rows,
    origin_bases,
    splitmix64,
)

# Purposes of a hash. LOCK has no seed: a lock outlives a change of it.
SPLIT = "split"
ORDER = "order"
LOCK = "lock"
# Kinds of texts.
KEY = "key"
_GROUP = "group"
_CONTENT = "content"

_LONGEST_MIXED = 128


def hash_texts(
    texts: pa.StringArray, kind: str, *, purpose: str, seed: int = 0
) -> UInt64s:
    """Returns the 64-bit hashes of n texts; a null hashes as the empty text.

    They do not depend on how the array is sliced or chunked.
    """
    offsets, data = _utf8(texts)
    (base,) = origin_bases([""], f"{kind}\0{purpose}", seed)
    lengths = np.diff(offsets).astype(np.uint64)
    with np.errstate(over="ignore"):
        hashes = splitmix64(base + lengths)
    words = (lengths + np.uint64(7)) >> np.uint64(3)
    longest = int(lengths.max(initial=0))
    long_ones = np.flatnonzero(lengths > _LONGEST_MIXED)
    words[long_ones] = 0
    ends = offsets[1:]
    # words_ending[e] is the word of the eight bytes before byte e.
    padded = np.concatenate([np.zeros(8, np.uint8), data])
    words_ending: npt.NDArray[np.uint64] = np.ndarray(
        (len(data) + 1,), "<u8", buffer=padded, strides=(1,)
    )
    fewest = int(words.min(initial=_LONGEST_MIXED))
    for number in range(min((longest + 7) // 8, _LONGEST_MIXED // 8)):
        # Most keys are about equally long: a slice of all rows is cheaper than indices.
        all_rows = number < fewest
        rows = slice(None) if all_rows else np.flatnonzero(words > number)
        # Bytes of the word that are before the text: shifted out.
        missing = np.uint64(8 * number + 8) - np.minimum(
            lengths[rows], np.uint64(8 * number + 8)
        )
        word = words_ending[ends[rows] - 8 * number]
        word >>= missing << np.uint64(3)
        word ^= hashes[rows]
        hashes[rows] = splitmix64(word)
    for row in long_ones.tolist():
        text = data[offsets[row] : offsets[row + 1]].tobytes()
        digest = hashlib.blake2b(base.tobytes() + text, digest_size=8).digest()
        hashes[row] = int.from_bytes(digest, "little")
    return hashes


def _utf8(texts: pa.StringArray) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Returns offsets and bytes of the texts in NFC; the first offset is 0."""
    if texts.null_count:
        texts = pc.fill_null(texts, "")
    texts = texts.cast(pa.large_string())
    offsets, data = _buffers(texts)
    if (data & 0x80).any() and not _is_nfc(data):
        # In Python: Arrow 25's utf8_normalize gives NFD when asked for NFC.
        normal = [unicodedata.normalize("NFC", text) for text in texts.to_pylist()]
        offsets, data = _buffers(pa.array(normal, pa.large_string()))
    return offsets - offsets[0], data


def _is_nfc(data: npt.NDArray[np.uint8]) -> bool:
    """Whether the texts, joined to one, are in NFC.

    If they are, so is each of them. If they are not, each still may be: then they are
    normalised for nothing.
    """
    return unicodedata.is_normalized("NFC", data.tobytes().decode())


def _buffers(
    texts: pa.LargeStringArray,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    offsets, data = offsets_of(texts), texts.buffers()[2]
    if data is None:
        return offsets, np.zeros(0, np.uint8)
    return offsets, np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]


def key_hashes(keys: pa.StringArray) -> UInt64s:
    """Returns the `unit_hashes` of rows with these keys, for `LOCK`."""
    return hash_texts(keys, KEY, purpose=LOCK)


def order_hashes(batch: Batch, *, seed: int, placeless: bool = False) -> UInt64s:
    """Returns the n hashes that order the rows of a batch.

    Args:
      batch: n rows.
      seed: of the order.
      placeless: whether rows without keys go by their content.
    """
    if placeless:
        return _own(batch, purpose=ORDER, seed=seed)
    return _identities(batch, purpose=ORDER, seed=seed)


def unit_hashes(batch: Batch, *, purpose: str, seed: int = 0) -> UInt64s:
    """Returns the n hashes of the rows' units; a row without a group is its own.

    Args:
      batch: n rows.
      purpose: `SPLIT` or `LOCK`.
      seed: of that purpose.
    """
    if batch.groups is None:
        return _own(batch, purpose=purpose, seed=seed)
    hashes = hash_texts(batch.groups, _GROUP, purpose=purpose, seed=seed)
    if not batch.groups.null_count:
        return hashes
    own = _own(batch, purpose=purpose, seed=seed)
    return np.where(np.asarray(batch.groups.is_valid()), hashes, own)


def _own(batch: Batch, *, purpose: str, seed: int) -> UInt64s:
    if batch.keys is not None or batch.contents is None:
        return _identities(batch, purpose=purpose, seed=seed)
    (base,) = origin_bases([""], f"{_CONTENT}\0{purpose}", seed)
    with np.errstate(over="ignore"):
        return splitmix64(base + batch.contents)


def _identities(batch: Batch, *, purpose: str, seed: int) -> UInt64s:
    if batch.keys is None:
        origins = batch.block.origin if batch.origins is None else batch.origins
        return hash_rows(origins, batch.numbers, purpose=purpose, seed=seed)
    return hash_texts(batch.keys, KEY, purpose=purpose, seed=seed)
