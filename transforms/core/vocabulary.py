r"""Vocabularies of class labels: the names and the id of each, and lists of them.

A name's id is its position. Names that the spec gives come first, in their order. By
`transforms.core.schema.Unknown`, other names in the rows follow in the order of
`in_id_order`, or share the id after the last, or are rejected.

A file of them is a list of names: UTF-8, one name a line, the first has id 0. A
vocabulary lock of version 0.2 has the escapes `\\`, `\n` and `\r`, and `\e` for the
empty name.

Where classes get other names: a new name that is a class already gives its id to the
records. One that is not takes the id of the first of its old classes, and records of
the others get that id. No other class changes its id, so that models which know the ids
stay right: a class whose records have all gone to another stays in the list, without
records.

Lists of distinct names pass between stages as a `Segment`: there may be a million
class names, and an engine keeps several copies of what passes between its stages. So a
segment is the list itself, or its place in a file.
"""

import dataclasses
import decimal
import hashlib
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence

import google_crc32c
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.schema import Unknown
from transforms.core.segment import Segment, deserialize
from transforms.errors import SpecError, bounded

# Under OOV, the class of all names that a vocabulary lacks.
UNKNOWN_NAME = "<unknown>"

# The escapes of a vocabulary lock of version 0.2, and its line for the empty name.
_ESCAPES = {r"\\": "\\", r"\n": "\n", r"\r": "\r"}
_EMPTY = r"\e"
# The digits of ASCII alone, and no `+`: other texts are names.
_WHOLE_NUMBER = "^-?[0-9]+$"
_MAX_SHOWN = 10
# Names that are looked at for lists of classes.
_MAX_LISTS = 4096

_NAMES = pa.schema([("names", pa.string())])
# Longer lists are in files.
_MOST_INLINE_BYTES = 1 << 14
# Blocks mostly have the same names: more lists of them that travel become one.
_MOST_LISTS = 64
# Names held beyond the distinct ones before duplicates are removed.
_SPARE_NAMES = 1 << 20
# Names that are hashed at a time.
_NAMES_AT_ONCE = 1 << 16


@dataclasses.dataclass(frozen=True, slots=True)
class Vocabulary:
    """The class names of one feature that are known before its rows are read.

    Attributes:
      given: names in the order of their ids.
      unknown: what becomes of other names.
    """

    given: tuple[str, ...] = ()
    unknown: Unknown = Unknown.APPEND

    def __post_init__(self) -> None:
        if len(set(self.given)) != len(self.given):
            twice = next(n for i, n in enumerate(self.given) if n in self.given[:i])
            raise SpecError(
                f"A vocabulary must name each class once; {twice!r} stands there "
                f"twice. Remove one."
            )
        if self.unknown is Unknown.OOV and UNKNOWN_NAME in self.given:
            raise SpecError(
                f"A vocabulary with unknown: oov must not name {UNKNOWN_NAME!r} "
                f"itself: that is the class of all other names. Remove it."
            )

    def settled(self, found: pa.StringArray) -> pa.StringArray:
        """Returns all names in the order of their ids.

        Args:
          found: the distinct names of all rows, in any order.
        """
        given = pa.array(self.given, pa.string())
        if self.unknown is Unknown.OOV:
            return pa.concat_arrays([given, pa.array([UNKNOWN_NAME])])
        if self.unknown is Unknown.REJECT:
            return given
        new = found.filter(pc.invert(pc.is_in(found, value_set=given)))
        return pa.concat_arrays([given, in_id_order(new)])


def in_id_order(names: pa.StringArray) -> pa.StringArray:
    """Returns distinct class names in the order in which ids are given to them.

    Whole numbers are sorted by their value, where all names are such; else names are
    sorted by their UTF-8 bytes. The order decides ids and must not change.

        >>> import pyarrow as pa
        >>> in_id_order(pa.array(["10", "9", "-1", "09"])).to_pylist()
        ['-1', '09', '9', '10']
    """
    are_numbers = pc.match_substring_regex(names, _WHOLE_NUMBER)
    if pc.all(are_numbers, skip_nulls=False).as_py():
        # A Decimal has any number of digits, unlike what `int` reads.
        numbers = sorted(
            names.to_pylist(), key=lambda text: (decimal.Decimal(text), text)
        )
        return pa.array(numbers, names.type)
    # Arrow orders texts by their UTF-8 bytes.
    return names.take(pc.array_sort_indices(names))


def sorted_names(names: Iterable[str]) -> tuple[str, ...]:
    """Returns distinct class names in the order of `in_id_order`."""
    import pyarrow as pa

    return tuple(in_id_order(pa.array(list(names), pa.string())).to_pylist())


def parse_names(data: bytes, *, path: str) -> tuple[str, ...]:
    """Returns the names of a file, one a line.

    The escapes of a lock are read where the whole file has the form of one.

    Raises:
      SpecError: the text is not UTF-8, has an empty line, or names a class twice.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SpecError(
            f"A vocabulary must be UTF-8 text; {path!r} is not at byte "
            f"{error.start:,}. Convert it."
        ) from error
    # Python's splitlines() would also split at characters that names may hold.
    text = text.replace("\r\n", "\n").rstrip("\n")
    lines = text.split("\n") if text else []
    for number, line in enumerate(lines, 1):
        if not line:
            raise SpecError(
                f"Every line of the vocabulary {path!r} must hold a name; line "
                f"{number:,} is empty. Remove it."
            )
    return _checked_names(_unescaped(lines), path)


def _unescaped(lines: Sequence[str]) -> Sequence[str]:
    r"""Returns the names in the lines of a lock; other lines as they are.

    A lock shows itself by `\\` or a line `\e`; every backslash begins an escape there.
    """
    escapes = {text for line in lines for text in re.findall(r"\\.?", line)}
    if not (r"\\" in escapes or _EMPTY in lines) or escapes - {*_ESCAPES, _EMPTY}:
        return lines
    return [
        ""
        if line == _EMPTY
        else re.sub(r"\\.", lambda m: _ESCAPES.get(m[0], m[0]), line)
        for line in lines
    ]


def _checked_names(names: Sequence[str], path: str) -> tuple[str, ...]:
    """Returns class names; SpecError with the lines of a name that occurs twice."""
    lines: dict[str, int] = {}
    for number, name in enumerate(names, 1):
        if name in lines:
            raise SpecError(
                f"The vocabulary {path!r} must name each class once; {name[:60]!r} "
                f"stands on lines {lines[name]:,} and {number:,}. Remove one."
            )
        lines[name] = number
    return tuple(names)


def vocabulary_warnings(
    feature: str, classes: Sequence[str], counts: Mapping[str, int] | None
) -> list[str]:
    """Returns warnings about likely mistakes in a vocabulary, each of at most 1 KiB.

    Args:
      feature: its name.
      classes: the class names.
      counts: class name -> records; None where they were not counted.
    """
    groups = _alike(classes)
    padded = [name for name in classes if name != name.strip()]
    empty = []
    if counts is not None:
        empty = [n for n in classes if n != UNKNOWN_NAME and not counts.get(n)]
    out = []
    if groups:
        shown = "; ".join(" and ".join(map(repr, names)) for names in groups[:5])
        out.append(f"{len(groups):,} class names of {feature!r} are alike: {shown}")
    if separator := _separator(classes):
        lists = [name for name in classes if separator in name]
        out.append(
            f"{len(lists):,} class names of {feature!r} share words with {separator!r} "
            f"between, such as {_shown(lists[:3])}; if the words are classes, give the "
            f'feature `separator: "{separator}"` in a --spec'
        )
    if padded:
        out.append(
            f"{len(padded):,} class names of {feature!r} begin or end with a space: "
            f"{_shown(padded)}"
        )
    if empty:
        out.append(
            f"{len(empty):,} {'classes' if len(empty) > 1 else 'class'} of {feature!r} "
            f"{'have' if len(empty) > 1 else 'has'} no record: {_shown(empty)}"
        )
    return [bounded(text) for text in out]


def _separator(names: Sequence[str]) -> str:
    """Returns what is between the classes in names that are lists of them, or "".

    The words of a list are classes alone, too, or one of them changes its place among
    the others. Those of plain names do not: golden retriever and labrador retriever,
    dog and hot dog, red car and blue car.
    """
    for separator in (" | ", "|", "; ", ";", ", ", ",", " "):
        split = [name.split(separator) for name in names[:_MAX_LISTS]]
        lists = [words for words in split if len(words) > 1]
        alone = {words[0] for words in split if len(words) == 1}
        from_start: dict[str, set[int]] = {}
        from_end: dict[str, set[int]] = {}
        for words in lists:
            for index, word in enumerate(words):
                from_start.setdefault(word, set()).add(index)
                from_end.setdefault(word, set()).add(len(words) - index)
        # The last word of a name is its noun, wherever that is.
        moved = {w for w in from_end if min(len(from_start[w]), len(from_end[w])) > 1}
        likely = [
            terms for terms in lists if alone.issuperset(terms) or moved & {*terms}
        ]
        if len(likely) > 1 and len(likely) * 2 >= len(lists):
            return separator
    return ""


def _alike(names: Sequence[str]) -> list[list[str]]:
    """Returns groups of names that differ only in case, spaces or normal form."""
    # Hashes first: the folded texts of a million names would take much memory.
    hashes = np.fromiter((hash(_folded(name)) for name in names), np.int64, len(names))
    values, counts = np.unique(hashes, return_counts=True)
    groups: dict[str, list[str]] = {}
    for index in np.flatnonzero(np.isin(hashes, values[counts > 1])).tolist():
        groups.setdefault(_folded(names[index]), []).append(names[index])
    return [group for group in groups.values() if len(group) > 1]


def _folded(name: str) -> str:
    """Returns a name without the differences of case, spaces and normal form."""
    if name.isascii() and name.isalnum():
        return name.lower()
    return " ".join(unicodedata.normalize("NFKC", name).casefold().split())


def _shown(names: Sequence[str]) -> str:
    """Returns the first names, quoted, for a message; "..." stands for more."""
    more = " ..." if len(names) > _MAX_SHOWN else ""
    return ", ".join(map(repr, names[:_MAX_SHOWN])) + more


def put_names(
    names: pa.StringArray, write: Callable[[Sequence[pa.Buffer]], str]
) -> Segment:
    """Returns n names as a segment.

    Args:
      names: in one array without nulls.
      write: stores pieces end to end in a file; returns its name.
    """
    piece = _inline_names(names)
    if piece.size <= _MOST_INLINE_BYTES:
        return piece
    message = pa.py_buffer(piece.payload)
    crc = google_crc32c.value(message)
    return dataclasses.replace(piece, payload=b"", file=write([message]), crc32c=crc)


def _inline_names(names: pa.StringArray) -> Segment:
    """Returns names as a segment that holds them itself."""
    message = pa.record_batch([names], schema=_NAMES).serialize()
    return Segment("", 0, len(names), message.size, payload=message.to_pybytes())


def get_names(part: Segment, read: Callable[[Segment], pa.Buffer]) -> pa.StringArray:
    """Inverse of `put_names`; `read` returns the message of a segment."""
    return deserialize(read(part), _NAMES)["names"]


def digest_of(names: pa.StringArray) -> str:
    """Returns a digest of names in their order; a null is a name of its own."""
    digest = hashlib.blake2b(digest_size=16)
    lengths = pc.fill_null(pc.binary_length(names), -1)
    digest.update(lengths.to_numpy(zero_copy_only=False).tobytes())
    for start in range(0, len(names), _NAMES_AT_ONCE):
        chunk = names.slice(start, _NAMES_AT_ONCE).drop_null()
        digest.update("".join(chunk.to_pylist()).encode())
    return digest.hexdigest()


def put_classes(
    names: pa.StringArray, write: Callable[[Sequence[pa.Buffer]], str]
) -> Segment:
    """As `put_names`, of the class names of a feature in the order of their ids.

    The segment has their digest.
    """
    return dataclasses.replace(put_names(names, write), input_digest=digest_of(names))


def load_classes(
    classes: Mapping[str, Segment], read: Callable[[Segment], pa.Buffer]
) -> dict[str, pa.StringArray]:
    """Returns label feature -> its class names, which `put_classes` has stored."""
    return {feature: get_names(segment, read) for feature, segment in classes.items()}


def distinct_names(
    parts: Iterable[Segment], read: Callable[[Segment], pa.Buffer]
) -> pa.StringArray:
    """Returns the distinct names of lists; few lists are in memory at a time."""
    pending = [pa.array([], pa.string())]
    for segment in parts:
        pending.append(get_names(segment, read))
        if sum(map(len, pending[1:])) > max(len(pending[0]), _SPARE_NAMES):
            pending = [_distinct(pending)]
    return pending[0] if len(pending) == 1 else _distinct(pending)


def merged_lists(lists: Sequence[Segment]) -> list[Segment]:
    """Returns lists of names; few of them travel inside their descriptors."""
    inline = [segment for segment in lists if not segment.file]
    if len(inline) <= _MOST_LISTS:
        return [*lists]
    names = distinct_names(inline, lambda segment: pa.py_buffer(segment.payload))
    return [*(segment for segment in lists if segment.file), _inline_names(names)]


def _distinct(parts: Sequence[pa.StringArray]) -> pa.StringArray:
    """Returns the distinct names of several lists, in the order of occurrence."""
    return pa.chunked_array(parts, pa.string()).unique()
