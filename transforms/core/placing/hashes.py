r"""Hashes of rows: identity -> hash, which decides split, shard and order.

A row's identity is its origin (path relative to the source's root, NFC) and its
0-based number in that origin, or the key that a column gives it, or, for its split
alone, its content:

    unit   is never divided between splits: the row's group, else its key, else its
           content, if the batch has it, else its place (origin and number)
    order  by the row's key, else its place; never by its group. Rows of a pipeline have
           no place, and go by their content

Two independent 64-bit hashes decide everything. Of places:

    split  thresholds over  splitmix64(blake2b("split", split seed, origin) + row)
    order  key           =  splitmix64(blake2b("order", seed, origin) + row)
           shard         =  high 32 bits of key * shards >> 32; within it, by key

With a single hash, a small split would fall into few shards. Changing `seed` changes
order and shards and moves no row between splits.

Contents hash as splitmix64(base + content), texts in NFC with splitmix64 over their
UTF-8 bytes, eight at a time from the end:

    base = blake2b(kind "\0" purpose "\0" seed "\0"), 8 bytes, little-endian
    h    = splitmix64(base + length)
    h    = splitmix64(h ^ word)        for each word, the last one first

A word is eight bytes, little-endian; the first bytes of a text that do not fill one
are a word of their own. For texts of equal length each step is one to one, so two that
differ in one word never collide. Texts longer than `_LONGEST_MIXED` bytes hash as
blake2b of the base and their bytes. A key of 12 bytes takes 40 ns, one of 26 takes 70,
and some more if not all are ASCII; blake2b takes 470.

None of this may change: the bytes of every dataset ever written depend on it. The
golden values in tests/unit/core/placing/test_hashes.py and test_place_keys.py pin
it. splitmix64's finaliser: Steele, Lea and Flood, "Fast splittable pseudorandom number
generators", OOPSLA 2014.
"""

import hashlib
import unicodedata
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import data_of, offsets_of
from transforms.core.model import Batch

UInt64s = npt.NDArray[np.uint64]

# Values of a step that are looked at together, so that they stay in the cache.
_PIECE = 1 << 14
# Runs of rows whose origins are hashed together.
_ORIGINS = 1 << 16
# Purposes of a hash. LOCK has no seed: a lock outlives a change of it.
SPLIT = "split"
ORDER = "order"
LOCK = "lock"
# Kinds of texts.
KEY = "key"
_GROUP = "group"
_CONTENT = "content"

_LONGEST_MIXED = 128
_GOLDEN_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


def splitmix64(values: UInt64s) -> UInt64s:
    """Returns the splitmix64 finaliser of each value plus its golden gamma."""
    with np.errstate(over="ignore"):
        out = values + _GOLDEN_GAMMA
        for start in range(0, len(out), _PIECE):
            z = out[start : start + _PIECE]
            z ^= z >> np.uint64(30)
            z *= _MIX_1
            z ^= z >> np.uint64(27)
            z *= _MIX_2
            z ^= z >> np.uint64(31)
    return out


def origin_bases(origins: Sequence[str], purpose: str, seed: int) -> UInt64s:
    """Returns a 64-bit base for each origin: blake2b over purpose, seed and path.

    Origins hash in NFC: a tree keeps its placement when it is copied between file
    systems that normalise names differently.
    """
    salt = f"{purpose}\0{seed}\0".encode()
    texts = (unicodedata.normalize("NFC", origin) for origin in origins)
    parts = (salt + text.encode("utf-8", "surrogateescape") for text in texts)
    digests = b"".join(hashlib.blake2b(p, digest_size=8).digest() for p in parts)
    return np.frombuffer(digests, "<u8").astype(np.uint64)


def hash_rows(
    origins: str | Sequence[str] | pa.StringArray,
    numbers: npt.NDArray[np.int64],
    *,
    purpose: str,
    seed: int,
    lengths: npt.NDArray[np.int64] | None = None,
) -> UInt64s:
    """Returns the 64-bit hash of every row's identity.

    Args:
      origins: one origin for all rows, or one for each; with `lengths` one for each
        run of rows.
      numbers: n 0-based row numbers in their origins.
      purpose: what the hash decides; other purposes have independent hashes.
      seed: of that purpose.
      lengths: rows of each run, n in all.
    """
    if isinstance(origins, str):
        bases = origin_bases([origins], purpose, seed)
    else:
        # Neighbours are mostly of one origin: hash it once.
        if lengths is None:
            runs = pc.run_end_encode(origins)
            origins = runs.values
            lengths = np.diff(runs.run_ends.to_numpy(), prepend=0)
        # A million origins are no Python objects at a time.
        pieces = [
            _bases_of(origins[start : start + _ORIGINS], purpose, seed)
            for start in range(0, len(origins), _ORIGINS)
        ]
        bases = np.repeat(np.concatenate([np.zeros(0, np.uint64), *pieces]), lengths)
    with np.errstate(over="ignore"):
        return splitmix64(bases + numbers.view(np.uint64))


def _bases_of(
    origins: Sequence[str] | pa.StringArray, purpose: str, seed: int
) -> UInt64s:
    """Returns the bases of origins, some of them equal."""
    texts = origins.to_pylist() if isinstance(origins, pa.Array) else origins
    index_of: dict[str, int] = {}
    places = [index_of.setdefault(origin, len(index_of)) for origin in texts]
    return origin_bases([*index_of], purpose, seed)[places]


def hash_texts(
    texts: pa.StringArray, kind: str, *, purpose: str, seed: int = 0
) -> UInt64s:
    """Returns the 64-bit hashes of n texts; a null hashes as the empty text."""
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
    offsets = offsets_of(texts)
    data = data_of(texts)[offsets[0] : offsets[-1]]
    # All at once: if they are in NFC when joined, so is each of them. If they are not,
    # each still may be: then they are normalised for nothing.
    if (data & 0x80).any() and not unicodedata.is_normalized(
        "NFC", data.tobytes().decode()
    ):
        # In Python: Arrow 25's utf8_normalize gives NFD when asked for NFC.
        normal = [unicodedata.normalize("NFC", text) for text in texts.to_pylist()]
        texts = pa.array(normal, pa.large_string())
        offsets, data = offsets_of(texts), data_of(texts)
    return offsets - offsets[0], data


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
    hashes = _row_hashes if placeless else _key_or_place_hashes
    return hashes(batch, purpose=ORDER, seed=seed)


def unit_hashes(batch: Batch, *, purpose: str, seed: int = 0) -> UInt64s:
    """Returns the n hashes of the rows' units; a row without a group is its own.

    Args:
      batch: n rows.
      purpose: `SPLIT` or `LOCK`.
      seed: of that purpose.
    """
    if batch.groups is None:
        return _row_hashes(batch, purpose=purpose, seed=seed)
    hashes = hash_texts(batch.groups, _GROUP, purpose=purpose, seed=seed)
    if batch.groups.null_count:
        own = _row_hashes(batch, purpose=purpose, seed=seed)
        hashes = np.where(np.asarray(batch.groups.is_valid()), hashes, own)
    return hashes


def _row_hashes(batch: Batch, *, purpose: str, seed: int) -> UInt64s:
    """Returns hashes of rows by key, else by content if known, else by place."""
    if batch.keys is not None or batch.contents is None:
        return _key_or_place_hashes(batch, purpose=purpose, seed=seed)
    (base,) = origin_bases([""], f"{_CONTENT}\0{purpose}", seed)
    with np.errstate(over="ignore"):
        return splitmix64(base + batch.contents)


def _key_or_place_hashes(batch: Batch, *, purpose: str, seed: int) -> UInt64s:
    """Returns hashes of rows by key, else by their place: origin and row number."""
    if batch.keys is None:
        origins = batch.block.origin if batch.origins is None else batch.origins
        return hash_rows(origins, batch.numbers, purpose=purpose, seed=seed)
    return hash_texts(batch.keys, KEY, purpose=purpose, seed=seed)
