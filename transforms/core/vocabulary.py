r"""Vocabularies of class labels: the names and the id of each, and their files.

A name's id is its position. Names that the spec gives come first, in their order. By
`transforms.core.schema.Unknown`, other names in the rows follow in the order of
`in_id_order`, or share the id after the last, or are rejected.

Two files have them. A list of names: UTF-8, one name a line, the first has id 0. A
vocabulary lock of version 0.2 has the escapes `\\`, `\n` and `\r`, and `\e` for the
empty name. And the label map of the TensorFlow Object Detection API, with ids from 1 (0
is the background), the text form of the message StringIntLabelMap:

    item {
      id: 3
      name: 'car'
    }

Its texts are UTF-8 in quotes; quotes, backslashes and control characters are escaped as
in C (`\'`, `\\`, `\n`, `\001`). Sources:
`object_detection/protos/string_int_label_map.proto` of tensorflow/models;
https://protobuf.dev/reference/protobuf/textformat-spec/

Where classes get other names: a new name that is a class already gives its id to the
records. One that is not takes the id of the first of its old classes, and records of
the others get that id. No other class changes its id, so that models which know the ids
stay right: a class whose records have all gone to another stays in the list, without
records.
"""

import dataclasses
import decimal
import functools
import re
import unicodedata
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from transforms.core.schema import Unknown
from transforms.errors import SpecError, bounded

if TYPE_CHECKING:
    import pyarrow as pa

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
LABEL_MAP_NAME = "label_map.pbtxt"
# The proto's id is an int32.
_MAX_ID = 2**31 - 1
_QUOTED = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_TO_QUOTE = re.compile(r"[\x00-\x1f\x7f\\']")


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

    def settled(self, found: "pa.StringArray") -> "pa.StringArray":
        """Returns all names in the order of their ids.

        Args:
          found: the distinct names of all rows, in any order.
        """
        # Imported here, because a command line is checked without Arrow.
        import pyarrow as pa
        import pyarrow.compute as pc

        given = pa.array(self.given, pa.string())
        if self.unknown is Unknown.OOV:
            return pa.concat_arrays([given, pa.array([UNKNOWN_NAME])])
        if self.unknown is Unknown.REJECT:
            return given
        new = found.filter(pc.invert(pc.is_in(found, value_set=given)))
        return pa.concat_arrays([given, in_id_order(new)])


def in_id_order(names: "pa.StringArray") -> "pa.StringArray":
    """Returns distinct class names in the order in which ids are given to them.

    Whole numbers are sorted by their value, where all names are such; else names are
    sorted by their UTF-8 bytes. The order decides ids and must not change.

        >>> import pyarrow as pa
        >>> in_id_order(pa.array(["10", "9", "-1", "09"])).to_pylist()
        ['-1', '09', '9', '10']
    """
    import pyarrow as pa
    import pyarrow.compute as pc

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


@functools.cache
def _message() -> Any:
    """Returns the class of StringIntLabelMap, of the fields that are read."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    package = "object_detection.protos"
    file = descriptor_pb2.FileDescriptorProto(name="label_map.proto", package=package)
    kind = descriptor_pb2.FieldDescriptorProto
    item = file.message_type.add(name="Item")
    item.field.add(name="name", number=1, type=kind.TYPE_STRING, label=1)
    item.field.add(name="id", number=2, type=kind.TYPE_INT32, label=1)
    file.message_type.add(name="StringIntLabelMap").field.add(
        name="item",
        number=1,
        type=kind.TYPE_MESSAGE,
        label=kind.LABEL_REPEATED,
        type_name=f".{package}.Item",
    )
    # A pool of its own: TensorFlow's object_detection registers the same names.
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    descriptor = pool.FindMessageTypeByName(f"{package}.StringIntLabelMap")
    return message_factory.GetMessageClass(descriptor)


def render_label_map(names: Mapping[int, str]) -> bytes:
    """Returns the file's content.

    Args:
      names: class id -> class name.

    Raises:
      SpecError: an id outside 1 to 2^31 - 1, or two ids of one name.
    """
    if wrong := [number for number in names if not 1 <= number <= _MAX_ID]:
        raise SpecError(
            f"Ids of a label map count from 1 to {_MAX_ID}; found {min(wrong)} for "
            f"{names[min(wrong)]!r}. Renumber the classes."
        )
    _checked(names.items())
    return "".join(
        f"item {{\n  id: {number}\n  name: {quoted(names[number])}\n}}\n"
        for number in sorted(names)
    ).encode()


def parse_label_map(data: bytes) -> dict[int, str]:
    """Returns class id -> class name, in the file's order.

    Only `id` and `name` of the items are read; other fields are skipped.

    Raises:
      SpecError: it is no label map, or ids or names repeat.
    """
    # Imported here: few runs read a label map.
    from google.protobuf import text_format

    try:
        text = data.decode("utf-8-sig")
        with warnings.catch_warnings():
            # Python only warns of an escape that it does not know.
            warnings.simplefilter("error")
            label_map = text_format.Parse(text, _message()(), allow_unknown_field=True)
        if not label_map.item and text.strip():
            raise ValueError("no item")
        for item in label_map.item:
            if not (item.HasField("id") and item.HasField("name")):
                raise ValueError("an item without id or name")
    except (text_format.ParseError, ValueError, RecursionError, Warning) as error:
        raise SpecError(
            f"A label map is text like: item {{ id: 1 name: 'cat' }}. Found: {error}."
        ) from error
    return _checked((item.id, item.name) for item in label_map.item)


def _checked(items: Iterable[tuple[int, str]]) -> dict[int, str]:
    """Returns a label map as id -> name; SpecError where an id or name repeats."""
    names: dict[int, str] = {}
    ids: dict[str, int] = {}
    for number, name in items:
        if number in names:
            raise SpecError(
                f"Ids of a label map must differ; {number} is both "
                f"{names[number]!r} and {name!r}."
            )
        if name in ids:
            raise SpecError(
                f"Names of a label map must differ; {ids[name]} and {number} are both "
                f"{name!r}. Rename one."
            )
        names[number], ids[name] = name, number
    return names


def quoted(text: str) -> str:
    r"""Returns a text in quotes.

    >>> print(quoted("owner's"))
    'owner\'s'
    """
    escaped = _TO_QUOTE.sub(lambda m: _QUOTED.get(m[0], f"\\{ord(m[0]):03o}"), text)
    return f"'{escaped}'"
