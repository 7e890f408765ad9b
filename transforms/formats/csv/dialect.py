"""The dialect of a CSV file: delimiter, quote, header, encoding.

Bytes of an encoding are scanned as they are when the characters that give a CSV file
its structure cannot be part of another character in it: UTF-8, the ISO and Windows
pages, CP949, EUC-KR, Shift JIS, GBK. In UTF-16 and UTF-32 they can, and such a file is
transcoded whole.
"""

import codecs
import dataclasses
import functools
import re

from transforms.errors import InputError, SpecError

# The delimiter of cells with any number of spaces and tabs between them.
WHITESPACE = "whitespace"
# Bytes of a file that tell its encoding, and whether it begins with a line like sep=;
HEAD_BYTES = 64
# pandas and R write an index as the first column, without a name.
UNNAMED = "column_0"
_SEP_LINE = re.compile(r'\ufeff?"?sep=(.)"?(?:[\r\n]|$)', re.IGNORECASE)

# UTF-32 first: its little-endian mark begins with that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
    (codecs.BOM_UTF8, "utf-8"),
)


@dataclasses.dataclass(frozen=True, slots=True)
class CsvDialect:
    r"""How the files of one source are written.

    `CsvDialect()` is RFC 4180 with a header; `CsvDialect(delimiter="\t")` is TSV;
    `CsvDialect(header=False, columns=("id", "label"))` names the columns of a file
    that does not. Lines that start with `#` are records like any other: no dialect
    has comments.

    Attributes:
      delimiter: one ASCII character between fields; or `WHITESPACE` for runs of spaces
        and tabs, which mean nothing at the ends of a line.
      quote: one ASCII character around fields; empty if quotes mean nothing.
      escape: one ASCII character that takes the meaning from the one after it, inside
        quotes and outside; empty for none.
      header: the first record holds the columns' names.
      sep_line: there is one more record before, which Excel takes the delimiter from.
      columns: the columns' names, in the file's order; they replace the header's.
      encoding: a text encoding that Python knows. The byte order mark of UTF-16 or
        UTF-32 overrules it.
      trim: names and cells lose the white space at their ends; a cell of nothing else
        is blank.

    Raises:
      SpecError: a setting is malformed or two contradict each other.
    """

    delimiter: str = ","
    quote: str = '"'
    escape: str = ""
    header: bool = True
    columns: tuple[str, ...] | None = None
    encoding: str = "utf-8"
    trim: bool = False
    sep_line: bool = False

    @property
    def delimiters(self) -> str:
        """The characters that are between fields."""
        return " \t" if self.delimiter == WHITESPACE else self.delimiter

    @property
    def leading(self) -> int:
        """The number of records before the first row."""
        return int(self.header) + int(self.sep_line)

    def __post_init__(self) -> None:
        for name in ("delimiter", "quote", "escape"):
            mark = getattr(self, name)
            may_be = WHITESPACE if name == "delimiter" else ""
            if mark != may_be and not _is_mark(mark):
                raise SpecError(
                    f"{name} must be one ASCII character, no letter, digit or line "
                    f"end, or {may_be or 'empty for none'}; found {mark!r}"
                )
        marks = self.delimiters + self.quote + self.escape
        if len(set(marks)) < len(marks):
            raise SpecError(
                f"delimiter, quote and escape must differ; found {self.delimiter!r}, "
                f"{self.quote!r} and {self.escape!r}. A doubled quote needs no escape"
            )
        if self.columns is not None and (
            not self.columns
            or "" in self.columns
            or len(set(self.columns)) < len(self.columns)
        ):
            raise SpecError(
                f"columns must be distinct names, none of them empty; found "
                f"{list(self.columns)}"
            )
        # Use the codec's own name: latin1 and iso-8859-1 must compare equal.
        object.__setattr__(self, "encoding", _codec_name(self.encoding))


def file_encoding(head: bytes, dialect: CsvDialect, origin: str) -> str:
    """Returns the encoding of a file that starts with `head` (4 bytes suffice).

    Raises:
      InputError: the file is marked as UTF-8 and the dialect says otherwise.
    """
    marked = next((name for mark, name in _MARKS if head.startswith(mark)), "")
    if marked == "utf-8" and dialect.encoding != "utf-8":
        raise InputError(
            f"{origin} starts with the byte order mark of UTF-8, but the encoding is "
            f"said to be {dialect.encoding}; leave --encoding out for this file"
        )
    # Without a mark, UTF-16 is little-endian, as Windows writes it.
    unmarked = {"utf-16": "utf-16-le", "utf-32": "utf-32-le"}
    return marked or unmarked.get(dialect.encoding, dialect.encoding)


def sep_line(head: bytes, dialect: CsvDialect, origin: str) -> str:
    """Returns the delimiter that the first line says, as in sep=; and "" for none.

    Args:
      head: the file's first `HEAD_BYTES`.
      dialect: its encoding is used.
      origin: the file.
    """
    if b"sep=" not in head.replace(b"\0", b"")[:8].lower():
        return ""
    text = head.decode(file_encoding(head, dialect, origin), "ignore")
    match = _SEP_LINE.match(text)
    return match[1] if match and _is_mark(match[1]) else ""


def bom_length(head: bytes, encoding: str) -> int:
    """Returns how many bytes the byte order mark at the start of `head` takes."""
    mark = next((mark for mark, name in _MARKS if name == encoding), None)
    return len(mark) if mark and head.startswith(mark) else 0


@functools.lru_cache(maxsize=64)
def is_scannable(encoding: str, dialect: CsvDialect) -> bool:
    """Tells whether delimiters, quotes and line ends can be found in encoded bytes."""
    ascii_bytes = bytes(range(128))
    marks = {"\n", "\r", *dialect.delimiters, *dialect.quote, *dialect.escape}
    try:
        text = ascii_bytes.decode(encoding)
    except UnicodeDecodeError:
        return False
    if len(text) != 128 or any(text[ord(mark)] != mark for mark in marks):
        return False
    # A delimiter, quote or line end must never be the second byte of a character: in
    # Shift JIS, a backslash or a pipe is.
    return all(
        bytes([lead, ord(mark)]).decode(encoding, "surrogateescape").endswith(mark)
        for lead in range(128, 256)
        for mark in marks
    )


def to_utf8(data: bytes, encoding: str) -> bytes:
    """Returns the bytes of whole records as UTF-8.

    Bytes that are invalid in the encoding stay invalid: they become lone surrogates,
    which the CSV parser refuses, so that their rows can be found.
    """
    if encoding == "utf-8":
        return data
    return data.decode(encoding, "surrogateescape").encode("utf-8", "surrogatepass")


def _is_mark(text: str) -> bool:
    return (
        len(text) == 1 and text.isascii() and not text.isalnum() and text not in "\r\n"
    )


def _codec_name(encoding: str) -> str:
    try:
        name = codecs.lookup(encoding).name
        "".encode(name)
    except LookupError as error:
        raise SpecError(
            f"encoding must be a text encoding that Python knows, such as utf-8, "
            f"cp949 or latin-1; found {encoding!r}"
        ) from error
    return "utf-8" if name == "utf-8-sig" else name
