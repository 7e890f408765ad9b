"""Names in one piece of memory, as a million of Python's texts take 70 bytes each."""

import array
import io
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar, overload

if TYPE_CHECKING:
    import pyarrow as pa

_AT_ONCE = 1 << 12
_Item = TypeVar("_Item")


class Names(Sequence[str]):
    """A sequence of texts that never changes; it equals a tuple of the same texts.

    It needs neither Arrow nor NumPy, which commands like `verify` do not load.

        >>> names = Names(["cat", "", "dog"])
        >>> names[2], len(names), "" in names
        ('dog', 3, True)
        >>> names[1:] == ("", "dog")
        True

    Args:
      names: the texts; lone surrogates are kept.
    """

    __slots__ = ("_data", "_ends")

    def __init__(self, names: Iterable[str] = ()) -> None:
        out = io.BytesIO()
        ends = array.array("q", [0])
        for group in in_groups(names):
            encoded = [name.encode("utf-8", "surrogatepass") for name in group]
            lengths = itertools.accumulate(map(len, encoded), initial=ends.pop())
            ends.extend(lengths)
            out.write(b"".join(encoded))
        self._data, self._ends = out.getvalue(), ends

    @classmethod
    def of_arrow(cls, texts: "pa.StringArray") -> "Names":
        """Returns the names in an Arrow array without nulls."""
        return cls(
            name
            for start in range(0, len(texts), _AT_ONCE)
            for name in texts.slice(start, _AT_ONCE).to_pylist()
        )

    def __len__(self) -> int:
        return len(self._ends) - 1

    @overload
    def __getitem__(self, place: int) -> str: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[str, ...]: ...

    def __getitem__(self, place: int | slice) -> str | tuple[str, ...]:
        numbers = range(len(self))[place]
        if isinstance(numbers, int):
            return self._name(numbers)
        if numbers.step != 1 or not numbers:
            return tuple(map(self._name, numbers))
        ends = self._ends[numbers.start : numbers.stop + 1]
        first = ends[0]
        text = self._data[first : ends[-1]].decode("utf-8", "surrogatepass")
        if len(text) < ends[-1] - first:
            return tuple(map(self._name, numbers))
        # All of it is ASCII: places of bytes are places of characters.
        pairs = itertools.pairwise(ends)
        return tuple([text[start - first : stop - first] for start, stop in pairs])

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), _AT_ONCE):
            yield from self[start : start + _AT_ONCE]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Names):
            return self._data == other._data and self._ends == other._ends
        if not isinstance(other, tuple):
            return NotImplemented
        return len(self) == len(other) and all(map(str.__eq__, self, other))

    __hash__ = None  # type: ignore[assignment]  # it equals tuples

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, itertools.islice(self, 10)))
        return f"Names([{shown}{', ...' if len(self) > 10 else ''}])"

    def _name(self, number: int) -> str:
        start, stop = self._ends[number], self._ends[number + 1]
        return self._data[start:stop].decode("utf-8", "surrogatepass")


def in_groups(items: Iterable[_Item]) -> Iterator[list[_Item]]:
    """Yields the items in lists of some thousand, for work on many at a time."""
    if isinstance(items, Sequence):
        for start in range(0, len(items), _AT_ONCE):
            yield list(items[start : start + _AT_ONCE])
        return
    rest = iter(items)
    while group := list(itertools.islice(rest, _AT_ONCE)):
        yield group
