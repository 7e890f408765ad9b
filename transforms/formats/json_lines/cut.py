"""Cut a file of JSON lines at line ends, and tell which lines are rows.

A line ends with LF or CR LF. Every line is a row, except for lines of white space.

A file that is one array is read as lines, too: each of its items becomes one, byte for
byte where it is in the file. A comma with no item before it, as some programs write at
the end, is passed over.

    [{"a": 1},              LF {"a": 1}
     {"a":            ->    LF TAB SPACE {"a": TAB SPACE 2} SPACE
      2}]
"""

import codecs
import dataclasses
import itertools
import re
from collections.abc import Iterable, Iterator
from typing import Literal

import numpy as np
import numpy.typing as npt

from transforms.core.json_text import json_levels, outside, parse_json
from transforms.core.model import Block
from transforms.errors import InputError
from transforms.formats.input_files import Content

# Longer than any sound line: a file without line ends is not JSON lines.
MAX_LINE_BYTES = 64 << 20

_SPACES = b" \t\r\n"
_STEP_BYTES = 1 << 20
# The first byte of an array that is no space is among these.
HEAD_BYTES = 4096
# That of UTF-32 in little endian begins with that of UTF-16.
_FOREIGN_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)

_Longs = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True, slots=True)
class Lines:
    """The lines of a cut piece that are rows; n of them.

    Attributes:
      data: the text.
      starts: int64 array of n: where each row's line begins.
      stops: int64 array of n: where it ends, the LF left out.
      numbers: int64 array of n: how many lines end before it.
      plain: whether every row begins with "{" and ends with "}".
      total: how many lines end.
    """

    data: bytes
    starts: _Longs
    stops: _Longs
    numbers: _Longs
    plain: bool
    total: int

    def __len__(self) -> int:
        return len(self.starts)

    def __iter__(self) -> Iterator[bytes]:
        spans = zip(self.starts.tolist(), self.stops.tolist(), strict=True)
        return (self.data[start:stop].rstrip(b"\r") for start, stop in spans)

    def __getitem__(self, index: int) -> bytes:
        """Returns a row without its line end."""
        return self.data[self.starts[index] : self.stops[index]].rstrip(b"\r")


def lines_of(data: bytes) -> Lines:
    """Returns which lines of a cut text are rows."""
    octets = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(octets == 10)
    total = len(ends)
    if len(data) and (not total or ends[-1] != len(data) - 1):
        ends = np.append(ends, len(data))
    starts = np.concatenate(([0], ends[:-1] + 1)) if len(ends) else ends
    numbers = np.arange(len(ends))
    # The last byte of each line; for an empty line, the LF before it.
    last = octets[np.maximum(ends - 1, 0)]
    returns = last == 13
    if returns.any():
        last = np.where(returns, octets[np.maximum(ends - 2, 0)], last)
    first = octets[np.minimum(starts, max(len(octets) - 1, 0))]
    odd = np.flatnonzero((first != 123) | (last != 125) | (ends - starts < 2))
    plain = True
    if len(odd):
        keep = np.ones(len(ends), np.bool_)
        for index in odd.tolist():
            line = data[starts[index] : ends[index]].strip(_SPACES)
            keep[index] = bool(line)
            plain &= not line or (line[:1] == b"{" and line[-1:] == b"}")
        starts, ends, numbers = starts[keep], ends[keep], numbers[keep]
    return Lines(data, starts, ends, numbers, plain, total)


def begins_as(head: bytes) -> Literal["lines", "array", ""]:
    """Returns what a file holds whose name does not say it.

    JSON lines have an object on the first line, and another after it: one object alone
    may be anything.

    Args:
      head: its first bytes; lines that are longer are not recognised.
    """
    text = head.removeprefix(codecs.BOM_UTF8).lstrip(_SPACES)
    if re.match(rb"\[\s*\{", text):
        return "array"
    first, _, rest = text.partition(b"\n")
    if not first.startswith(b"{") or not rest.lstrip(_SPACES).startswith(b"{"):
        return ""
    try:
        parse_json(first)
    except ValueError:
        return ""
    return "lines"


def is_array(head: bytes) -> bool:
    """Whether a file holds the items of an array, by its first `HEAD_BYTES`."""
    text = head[:HEAD_BYTES].removeprefix(codecs.BOM_UTF8)
    return text.lstrip(_SPACES).startswith(b"[")


def item_lines(
    pieces: Iterable[bytes], origin: str, start: int, *, level: int = 0
) -> Iterator[bytes]:
    """Yields the text of an array with each item on a line of the same length.

    Args:
      pieces: of the text.
      origin: its name in messages.
      start: bytes of the file before it.
      level: 0 at the beginning of the file, where the array must end with the text, or
        1 behind the beginning of the array.

    Raises:
      InputError: a comma is missing, or the end, or there is text behind it.
    """
    is_whole, has_ended, is_item = not level, False, False
    for piece, quotes, places, levels in json_levels(pieces, level):
        text = np.frombuffer(bytearray(piece), np.uint8)
        # JSON takes tabs between its values, and within strings neither.
        text[(text == ord("\n")) | (text == ord("\r"))] = ord("\t")
        opens = (text[places] == ord("[")) | (text[places] == ord("{"))
        last = places[levels == 0][:1]
        stop = 0 if has_ended else int(last[0]) + 1 if len(last) else len(text)
        rest = piece[stop:].lstrip(_SPACES)
        if rest:
            raise _broken(origin, start + len(piece) - len(rest), "nothing")
        commas = np.flatnonzero(text == ord(","))
        behind = np.concatenate(([level], levels))
        level = int(behind[-1])
        commas = commas[behind[np.searchsorted(places, commas)] == 1]
        commas = outside(commas, quotes)
        begins = places[opens & (levels == 2)]
        if is_item:
            begins = np.concatenate(([-1], begins))
        before = np.searchsorted(commas, begins)
        if not np.diff(before).all():
            second = begins[1:][np.diff(before) == 0][0]
            raise _broken(origin, start + int(second), "a comma")
        is_item = len(begins) > 0 and before[-1] == len(commas)
        if len(last):
            if text[last[0]] != ord("]"):
                raise _broken(origin, start + int(last[0]), "']'")
            has_ended, text[last] = True, ord(" ")
        text[commas] = text[places[opens & (levels == 1)]] = ord("\n")
        yield text.tobytes()
        start += len(piece)
    if is_whole and not has_ended:
        raise _broken(origin, start, "']'")


def _broken(origin: str, place: int, needed: str) -> InputError:
    """Returns the error of a file that is no JSON array: what must be at which byte."""
    return InputError(
        f"A file that begins with '[' must be one array, with commas between its "
        f"items; {origin}, byte {place}: {needed} must be here. Fetch or write the "
        f"file again."
    )


def cut(
    stream: Content, origin: str, block_bytes: int, limit_rows: int | None = None
) -> Iterator[tuple[bytes, Block]]:
    """Yields the pieces of a file that hold rows, `block_bytes` or longer.

    The byte order mark of UTF-8 is in none of them. Each is a block of the file, or of
    its content unpacked. The items of an array are on a line each, numbered from 1.

    Args:
      stream: the file, from its beginning.
      origin: its name in messages.
      block_bytes: least size of a piece but the last.
      limit_rows: stop after this many rows.

    Raises:
      InputError: a line is longer than `MAX_LINE_BYTES`, the file is UTF-16, or it is
        an array that breaks off.
    """
    head = stream.read(HEAD_BYTES)
    if head.startswith(_FOREIGN_MARKS):
        raise InputError(
            f"{origin} is UTF-16 or UTF-32; JSON is read as UTF-8. Convert it first."
        )
    mark = codecs.BOM_UTF8 if head.startswith(codecs.BOM_UTF8) else b""
    start, row, line = len(mark), 0, 1
    parts = iter(lambda: stream.read(_STEP_BYTES), b"")
    if is_array(head):
        # What is before the first item is a line that is no row.
        parts = item_lines(itertools.chain([head[start:]], parts), origin, start)
        head, line = b"", 0
    waiting = bytearray(head[start:])
    ended = False
    while not (ended and not waiting) and (limit_rows is None or row < limit_rows):
        end = waiting.find(b"\n", max(block_bytes, 1) - 1) + 1
        looked = len(waiting)
        while not end and not ended:
            chunk = next(parts, b"")
            waiting += chunk
            ended = not chunk
            end = waiting.find(b"\n", max(looked, block_bytes - 1)) + 1
            looked = len(waiting)
            if len(waiting) > max(block_bytes, 0) + MAX_LINE_BYTES:
                raise InputError(
                    f"{origin}, line {line + waiting.count(10)}: the line that starts "
                    f"here is longer than {MAX_LINE_BYTES >> 20} MiB; JSON lines hold "
                    f"an object a line, or one array of smaller objects. Write "
                    f"indented objects again as lines."
                )
        data = bytes(waiting[: end or len(waiting)])
        del waiting[: len(data)]
        lines = lines_of(data)
        rows = len(lines)
        if limit_rows is not None and row + rows > limit_rows:
            rows = limit_rows - row
            data = data[: int(lines.stops[rows - 1]) + 1]
        if rows:
            # Leave out empty lines at the start of a piece.
            skip = int(lines.starts[0])
            first = line + int(lines.numbers[0])
            stop = start + len(data)
            yield data[skip:], Block(origin, start + skip, stop, row, first, rows)
        start, row, line = start + len(data), row + rows, line + lines.total
