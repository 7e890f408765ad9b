"""Samples of a WebDataset: consecutive members with one key, as columns."""

import array
import collections
import dataclasses
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.core.model import Reason, Skipped
from transforms.core.reasons import Fault, FaultError
from transforms.formats.archive.member_list import MemberList, places_of_equals
from transforms.formats.archive.model import (
    Content,
    Found,
    Member,
    MemberFault,
)
from transforms.formats.json_lines.parse import parse_value

KEY_COLUMN = "__key__"
# The column of images of several suffixes.
MERGED = "image"
# Last parts of columns, as webdataset's own decoder takes them.
INTEGERS = frozenset("cls cls2 class count index inx id".split())
TEXTS = frozenset("txt text transcript caption".split())
JSON = frozenset("json jsn".split())
_REPEATED = Fault(
    Reason.DUPLICATE_NAME,
    "the members of a sample must stand in a row; its key came before",
)
_NAME = re.compile(r"((?:.*/)?[^./]+)\.([^/]*)", re.DOTALL)


def key_and_column(name: str) -> tuple[str, str] | None:
    """Returns the key and the column of a member's name; None if it has no suffix."""
    match = _NAME.fullmatch(name)
    return (match[1], match[2].lower()) if match and match[2] else None


def skip_reason(member: Member) -> Skipped | None:
    """Returns why a member belongs to no sample; None if it belongs to one."""
    if member.is_hidden:
        return Skipped.HIDDEN
    return None if key_and_column(member.name) else Skipped.OTHER_SUFFIX


@dataclasses.dataclass(slots=True)
class Sample:
    """The members of one key, in a row; `number` counts the samples of the shard."""

    key: str
    number: int
    members: list[Member] = dataclasses.field(default_factory=list)
    fault: Fault | None = None

    @property
    def size(self) -> int:
        """Bytes of all members."""
        return sum(member.size for member in self.members)

    @property
    def offset(self) -> int:
        """Where its first member begins; see `Member`."""
        return self.members[0].offset


def _grouped(members: Iterable[Member]) -> Iterator[Sample]:
    """Yields the samples of consecutive members."""
    current: Sample | None = None
    number = 0
    for member in members:
        if skip_reason(member) is not None:
            continue
        found = key_and_column(member.name)
        assert found is not None
        if current is None or found[0] != current.key:
            if current is not None:
                yield current
            current = Sample(found[0], number)
            number += 1
        current.members.append(member)
    if current is not None:
        yield current


class SampleList(Sequence[Sample]):
    """The samples of a shard, made from its members as they are looked at.

    A key that comes again has a fault.

        >>> names = ["a.jpg", "a.cls", "b.jpg"]
        >>> members = [Member(i, b"", name, 9, 0) for i, name in enumerate(names)]
        >>> found = SampleList(MemberList.of(members))
        >>> [(sample.key, len(sample.members)) for sample in found]
        [('a', 2), ('b', 1)]
    """

    def __init__(self, members: MemberList) -> None:
        """Groups the members of a shard, without those that belong to no sample."""
        # Where the members of each sample begin, and where the last one's end.
        starts, hashes = array.array("q"), array.array("q")
        count, key = 0, None

        def belongs(member: Member) -> bool:
            nonlocal count, key
            if member.is_hidden or (found := key_and_column(member.name)) is None:
                return False
            if found[0] != key:
                key = found[0]
                starts.append(count)
                hashes.append(hash(key))
            count += 1
            return True

        self._members = members.select(belongs)
        starts.append(count)
        self._starts = starts
        self._repeats = frozenset[int]()
        self._repeats = frozenset(self._find_repeats(np.frombuffer(hashes, np.int64)))

    def _find_repeats(self, hashes: npt.NDArray[np.int64]) -> Iterator[int]:
        """Yields the samples whose key an earlier one has, by hashes of all keys."""
        seen: set[str] = set()
        # Equal hashes may be of keys that differ.
        for number in places_of_equals(hashes):
            key = self[number].key
            if key in seen:
                yield number
            seen.add(key)

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __iter__(self) -> Iterator[Sample]:
        return self._samples(self._members, range(len(self)))

    @overload
    def __getitem__(self, place: int) -> Sample: ...

    @overload
    def __getitem__(self, place: slice) -> list[Sample]: ...

    def __getitem__(self, place: int | slice) -> Sample | list[Sample]:
        chosen = range(len(self))[place]
        if isinstance(chosen, int):
            (sample,) = self[chosen : chosen + 1]
            return sample
        if chosen.step != 1:
            return [self[number] for number in chosen]
        start, stop = self._starts[chosen.start], self._starts[chosen.stop]
        return [*self._samples(self._members[start:stop], chosen)]

    def _samples(self, members: Iterable[Member], numbers: range) -> Iterator[Sample]:
        """Yields consecutive samples, from their members."""
        left = iter(members)
        for number in numbers:
            count = self._starts[number + 1] - self._starts[number]
            own = list(itertools.islice(left, count))
            found = key_and_column(own[0].name)
            assert found is not None
            fault = _REPEATED if number in self._repeats else None
            yield Sample(found[0], number, own, fault)


def samples_of(items: Iterable[Found]) -> Iterator[tuple[Sample, list[Content]]]:
    """Yields samples with what could be read; a first fault becomes the sample's.

    Args:
      items: the members that belong to samples, in the shard's order.
    """
    seen: set[str] = set()
    pending: collections.deque[Found] = collections.deque()

    def members() -> Iterator[Member]:
        for item in items:
            pending.append(item)
            yield item.member

    for sample in _grouped(members()):
        if sample.key in seen:
            sample.fault = _REPEATED
        seen.add(sample.key)
        yield sample, contents_of(sample, (pending.popleft() for _ in sample.members))


def contents_of(sample: Sample, items: Iterable[Found]) -> list[Content]:
    """Returns what could be read of a sample; a first fault becomes the sample's.

    Args:
      sample: without the faults that reading finds.
      items: its members as they were read.
    """
    contents = []
    for item in items:
        if isinstance(item, Content):
            contents.append(item)
        elif isinstance(item, MemberFault) and sample.fault is None:
            sample.fault = Fault(item.reason, item.message)
    return contents


def sample_row(
    sample: Sample, contents: Sequence[Content], merged: Sequence[str]
) -> dict[str, Any]:
    """Returns the values of a sample by column.

    Args:
      sample: gives the key.
      contents: the content of its members.
      merged: suffixes of images that share the column `image`.

    Raises:
      FaultError: it cannot be a row.
    """
    row: dict[str, Any] = {KEY_COLUMN: sample.key}
    for content in contents:
        found = key_and_column(content.member.name)
        assert found is not None
        name = MERGED if found[1] in merged else found[1]
        if name in row:
            raise FaultError(
                Reason.DUPLICATE_NAME,
                f"the members of a sample must have different suffixes; two are "
                f"{name!r}",
            )
        ending = name.rpartition(".")[2]
        if ending in JSON:
            row[name] = _json_of(name, content.data)
        elif ending in INTEGERS or ending in TEXTS:
            row[name] = _text(name, content.data, strip=ending in INTEGERS)
        else:
            row[name] = content.data
    return row


def _text(name: str, data: bytes, *, strip: bool) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise FaultError(
            Reason.INVALID_ENCODING, f"{name} must be UTF-8; it is not ({error})"
        ) from error
    return text.strip() if strip else text


def is_whole_number(text: str) -> bool:
    """Whether a text is a whole number."""
    return re.fullmatch(r"[+-]?\d+", text) is not None


def is_json(column: str) -> bool:
    """Whether the members of a column are JSON."""
    return column.rpartition(".")[2] in JSON


def _json_of(name: str, data: bytes) -> dict[str, Any]:
    """Returns the object of a json member; what is no object is its `value`."""
    try:
        value = parse_value(data)
    except FaultError as error:
        reason, message = error.fault
        raise FaultError(reason, f"{name} must be one JSON value; {message}") from error
    return value if isinstance(value, dict) else {"value": value}


def type_of_column(name: str) -> pa.DataType:
    """Returns the raw type of a column that does not come from json."""
    ending = name.rpartition(".")[2]
    texts = name == KEY_COLUMN or ending in INTEGERS or ending in TEXTS
    return pa.string() if texts else pa.large_binary()
