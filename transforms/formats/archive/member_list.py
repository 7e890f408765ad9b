"""The members of an archive, listed: many of them are packed, not Python objects.

Batches of members are compressed columns: some 20 bytes a member, which would take 500
as an object. A member is made from its columns when it is looked at.
"""

import array
import itertools
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.core.model import Reason
from transforms.formats.archive.model import Member, shown_name

_BATCH_MEMBERS = 4096


def identity_of(member: Member) -> str | None:
    """Returns what no two members may share; None where it does not matter.

    Names that differ only in case or normalisation are the same file on many disks,
    and readers of zip disagree on which of two equal names wins.
    """
    return None if member.is_hidden else member.origin.casefold()


def places_of_equals(hashes: npt.NDArray[np.int64]) -> list[int]:
    """Returns the places of values that are there more than once, in order."""
    ordered = np.sort(hashes)
    again = ordered[1:][ordered[1:] == ordered[:-1]]
    return np.flatnonzero(np.isin(hashes, again)).tolist() if len(again) else []


def repeated(member: Member, earlier: int) -> Member:
    """Returns a member with the fault that an earlier one has its name.

    Args:
      member: without a fault.
      earlier: number of the other.
    """
    return member._replace(
        fault=Reason.DUPLICATE_NAME,
        message=f"names of members must differ, not only in case; "
        f"{shown_name(member.name)} is the name of member {earlier + 1} too. "
        f"Rename one, or take one out.",
    )


class MemberList(Sequence[Member]):
    """Members in their order, those with faults and the litter of systems among them.

    A member whose name an earlier one has gets a fault. What was looked at last is kept
    as objects, so that looking from front to back is cheap.

        >>> members = [Member(0, b"a", "a", 5, 0), Member(1, b"A", "A", 7, 9)]
        >>> found = MemberList.of(members)
        >>> len(found), found[0].size, found[1].fault
        (2, 5, <Reason.DUPLICATE_NAME: 'duplicate_name'>)
    """

    def __init__(self, store: "_Store", places: Sequence[int], check: "_Check") -> None:
        """Takes members of a store by their places; use `of` and `select`."""
        self._store = store
        self._places = places
        self._check = check

    @classmethod
    def of(cls, members: Iterable[Member]) -> "MemberList":
        """Lists members."""
        store = _Store()
        hashes = array.array("q")
        remaining = iter(members)
        while some := list(itertools.islice(remaining, _BATCH_MEMBERS)):
            store.add(some)
            hashes.extend(hash(identity_of(member)) for member in some)
        store.find_repeats(np.frombuffer(hashes, np.int64))
        return cls(store, range(len(hashes)), _as_it_is)

    def select(
        self, keep: Callable[[Member], bool], check: "_Check | None" = None
    ) -> "MemberList":
        """Returns those members that `keep` holds for.

        Args:
          keep: is asked once for each, in order.
          check: returns a member as it is to be seen, perhaps with a fault.
        """
        places = array.array("q")
        for place, member in zip(self._places, self, strict=True):
            if keep(member):
                places.append(place)
        chosen = self._places if len(places) == len(self) else places
        return MemberList(self._store, chosen, check or self._check)

    def names(self) -> Iterator[str]:
        """Yields the names of all members of the archive, selected or not.

        Faster than by the members themselves.
        """
        return self._store.names()

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[Member]:
        return map(self._check, self._store.members(self._places))

    @overload
    def __getitem__(self, place: int) -> Member: ...

    @overload
    def __getitem__(self, place: slice) -> list[Member]: ...

    def __getitem__(self, place: int | slice) -> Member | list[Member]:
        if isinstance(place, slice):
            return [*map(self._check, self._store.members(self._places[place]))]
        (member,) = self._store.members([self._places[place]])
        return self._check(member)


_Check = Callable[[Member], Member]


def _as_it_is(member: Member) -> Member:
    return member


class _Store:
    """Batches of members; threads may read it at the same time."""

    def __init__(self) -> None:
        # Of each batch the compressed columns, and their bytes without compression.
        self._batches: list[tuple[bytes, int]] = []
        # For each place the number of an earlier member of that name, or -1.
        self._repeats: npt.NDArray[np.int64] | None = None
        self._latest: tuple[int, list[Member]] = (-1, [])

    def add(self, members: list[Member]) -> None:
        """Appends a batch; each but the last one is full."""
        columns = pickle.dumps([*zip(*members, strict=True)])
        packed = pa.compress(columns, "zstd", asbytes=True)
        self._batches.append((packed, len(columns)))

    def find_repeats(self, hashes: npt.NDArray[np.int64]) -> None:
        """Finds members whose name an earlier one has, by hashes of all identities."""
        places = places_of_equals(hashes)
        if not places:
            return
        # Equal hashes may be of names that differ.
        first: dict[str, int] = {}
        repeats = np.full(len(hashes), -1, np.int64)
        for place, member in zip(places, self.members(places), strict=True):
            identity = identity_of(member)
            if identity is None:
                continue
            earlier = first.setdefault(identity, member.number)
            if earlier != member.number and member.fault is None:
                repeats[place] = earlier
        self._repeats = repeats
        self._latest = (-1, [])

    def members(self, places: Iterable[int]) -> Iterator[Member]:
        """Yields the members at places of the archive; ascending ones are cheap."""
        # What another thread looked at last must not count here.
        number, made = self._latest
        for place in places:
            wanted, row = divmod(place, _BATCH_MEMBERS)
            if wanted != number:
                number, made = self._latest = wanted, self._made(wanted)
            yield made[row]

    def names(self) -> Iterator[str]:
        """Yields the names of all members."""
        column = Member._fields.index("name")
        for batch in self._batches:
            yield from _columns_in(*batch)[column]

    def _made(self, number: int) -> list[Member]:
        """Returns the members of a batch."""
        members = [*map(Member, *_columns_in(*self._batches[number]))]
        if self._repeats is not None:
            start = number * _BATCH_MEMBERS
            earlier = self._repeats[start : start + len(members)]
            for row in np.flatnonzero(earlier >= 0).tolist():
                members[row] = repeated(members[row], int(earlier[row]))
        return members


def _columns_in(packed: bytes, size: int) -> list[Any]:
    # Made in this process: no pickle comes from a file.
    columns: list[Any] = pickle.loads(pa.decompress(packed, size, "zstd"))
    return columns
