"""Members of an archive and the rows they form, and the limits on unpacking them.

An archive comes from anywhere. A name that would lead out of a folder, a link, a
device, an archive in the archive or a bomb is never followed, made or entered: the
member becomes a fault with a reason, and nothing is ever written to disk under the
name that an archive says.
"""

import array
import dataclasses
import functools
import itertools
import pickle
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from transforms.core.image.policy import too_many_bytes
from transforms.core.image.resize import MAX_BYTES
from transforms.core.reasons import Fault, Reason
from transforms.errors import DamageError, InputError, bounded
from transforms.formats.file_names import in_nfc, is_image_name
from transforms.formats.registry import FORMATS

ARCHIVE_SUFFIXES = FORMATS["archive"].suffixes
# Read by nothing here, but archives all the same: never data of their own.
_FOREIGN_SUFFIXES = (".7z", ".rar", ".tar.lz4", ".tar.lzma", ".tar.z", ".cab", ".cpio")
_LITTER = re.compile(r"(?:^|/)(?:\.|(?:__MACOSX|Thumbs\.db|desktop\.ini)(?:/|\Z))")
_DRIVE = re.compile("[A-Za-z]:")
_SHOWN_CHARS = 100
# What members must be, and what to do where one is not.
_RULES = {
    Reason.UNSAFE_PATH: (
        "names of members must be relative paths with '/' between",
        "Pack the archive again from inside the folder",
    ),
    Reason.INVALID_ENCODING: (
        "names of members must be UTF-8 unless their encoding is stated",
        "State it (--zip-encoding cp949, say)",
    ),
    Reason.NESTED_ARCHIVE: (
        "archives are read one level deep",
        "Take it out and name it as a source of its own, or exclude it",
    ),
    Reason.DUPLICATE_NAME: (
        "names of members must differ, not only in case",
        "Rename one, or take one out",
    ),
    Reason.NOT_A_FILE: (
        "members must be regular files",
        "Pack what it stands for (--dereference --hard-dereference), or exclude it",
    ),
    Reason.ENCRYPTED: (
        "members must be readable without a password",
        "Pack it without one",
    ),
    Reason.UNSUPPORTED_METHOD: (
        "members must be whole, and in a zip stored or deflated",
        "Pack it again, without --sparse",
    ),
    Reason.TOO_LARGE: (
        "members must not be bombs",
        "Unpack it yourself if it is none",
    ),
    Reason.DAMAGED_MEMBER: (
        "members must hold what the directory of the archive states",
        "Fetch or write it again",
    ),
}
_BATCH_MEMBERS = 4096


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """How the members of an archive are read, and when it is taken for a bomb.

    Attributes:
      max_member_bytes: of one member, unpacked; a larger one is a fault.
      max_total_bytes: of all members together, unpacked; more is an error.
      max_ratio: unpacked bytes a packed byte, of a member of a zip (a fault) or of
        the whole stream of a tar (an error). Deflate cannot give more than 1,032.
      ratio_free_bytes: unpacked, less than which no ratio is too high.
      max_members: more is an error.
      max_image_bytes: of a member with an image's name; a larger one is a fault.
      name_encoding: of names that are not marked as UTF-8.
    """

    max_member_bytes: int = 1 << 30
    max_total_bytes: int = 1 << 42
    max_ratio: int = 200
    ratio_free_bytes: int = 16 << 20
    max_members: int = 5_000_000
    max_image_bytes: int = MAX_BYTES
    name_encoding: str = "utf-8"

    def is_bomb(self, unpacked: int, packed: int) -> bool:
        """Whether the ratio of unpacked to packed bytes is too high."""
        return unpacked > max(self.ratio_free_bytes, packed * self.max_ratio)


class Member(NamedTuple):
    """One member as the archive's headers have it; directories are not members.

    A tuple is made in a fifth of the time of a frozen dataclass, and archives have
    millions of members.

    Attributes:
      number: 0-based, among the archive's entries, directories included.
      raw_name: as stored.
      name: decoded, without `./` and doubled `/`; bytes that are not text are in it
        as surrogate escapes (and the member has a fault).
      size: bytes, unpacked, as declared.
      offset: of its header, in the file or in the unpacked stream of a packed tar.
      data_offset: of its data in the same; -1 where only the header says (zip).
      packed: bytes as stored.
      method: of the compression, by the numbers of zip; 0 in a tar.
      flags: of a zip's entry.
      crc32: of the content (zip).
      fault: why it is not to be read, or cannot be; None for nothing.
    """

    number: int
    raw_name: bytes
    name: str
    size: int
    offset: int
    data_offset: int = -1
    packed: int = 0
    method: int = 0
    flags: int = 0
    crc32: int = 0
    fault: Fault | None = None

    @property
    def reason(self) -> Reason | None:
        """That of the fault."""
        return self.fault.reason if self.fault else None

    @property
    def is_hidden(self) -> bool:
        """Whether it is left out unasked; a path out of the folder never is."""
        return self.reason is not Reason.UNSAFE_PATH and is_litter(self.name)

    @property
    def origin(self) -> str:
        """The name in NFC: the identity that placement hashes."""
        return in_nfc(self.name)

    @property
    def printable(self) -> str:
        """The name for reports: what is no text in it is escaped."""
        raw = self.origin.encode("utf-8", "surrogateescape")
        return raw.decode("utf-8", "backslashreplace")


class Item(NamedTuple):
    """A member, and its content or the fault that it was read with.

    Attributes:
      member: as it is listed, or with the fault that reading it found.
      data: its content, of the right size and (in a zip) checksum; None with a fault.
    """

    member: Member
    data: bytes | None


class MemberError(DamageError):
    """One member is damaged; those beside it may be whole. Becomes a fault of it."""


def is_litter(name: str) -> bool:
    """Whether a path has a hidden part or one that operating systems leave behind."""
    return _LITTER.search(name) is not None


def name_and_fault(raw: bytes, encoding: str) -> tuple[str, Fault | None]:
    """Returns the path that a stored name says, and why it is refused, if it is.

    `./a//b` is `a/b`. Parts that lead elsewhere, such as a leading `/`, are refused.
    """
    try:
        name = raw.decode(encoding)
        # UTF-7 can state half a surrogate pair, which is no text.
        name.encode()
        is_text = True
    except UnicodeError:
        name, is_text = raw.decode("utf-8", "surrogateescape"), False
    path = "/".join(segment for segment in name.split("/") if segment not in ("", "."))
    path = f"/{path}" if name.startswith("/") else path
    # Most names are good: what messages show is made where there is one.
    if unsafe := _why_unsafe(path):
        return path, refusal(Reason.UNSAFE_PATH, path, unsafe)
    if not is_text:
        return path, refusal(Reason.INVALID_ENCODING, path, "is not")
    if path.lower().endswith(ARCHIVE_SUFFIXES + _FOREIGN_SUFFIXES):
        return path, refusal(Reason.NESTED_ARCHIVE, path, "is an archive in it")
    return path, None


def _why_unsafe(path: str) -> str:
    """Returns what is wrong with a path, as a verb phrase; "" for a safe one."""
    if not path or path == "/":
        return "is empty"
    if path.startswith("/"):
        return "is absolute"
    if _DRIVE.match(path):
        return "starts with a drive letter"
    if "\\" in path:
        return "holds a backslash"
    if "\0" in path:
        return "holds a zero byte"
    return "leads out of its folder" if ".." in path.split("/") else ""


def refusal(reason: Reason, name: str, found: str) -> Fault:
    """Returns the fault of a member, and in words what it must be and what it is."""
    rule, remedy = _RULES[reason]
    return Fault(reason, bounded(f"{rule}; {shown_name(name)} {found}. {remedy}."))


def shown_name(name: str) -> str:
    """Returns a name as messages have it: quoted, escaped and not too long."""
    shown = ascii(name) if not name.isprintable() else repr(name)
    if len(shown) > _SHOWN_CHARS:
        shown = f"{shown[:_SHOWN_CHARS]}...{shown[-1]}"
    return bounded(shown)


def checked(members: Iterable[Member], limits: Limits, path: str) -> Iterator[Member]:
    """Yields members, with a fault those whose name came before, and large images.

    Names that differ only in case or normalisation are the same file on many disks,
    and readers of zip disagree on which of two equal names wins. The names are in
    memory until the last member.

    Raises:
      InputError: the archive at `path` holds more than the limits allow.
    """
    first: dict[str, int] = {}
    total = 0
    for member in members:
        number, total = member.number, total + member.size
        if number >= limits.max_members or total > limits.max_total_bytes:
            raise InputError(
                f"{path}: an archive may hold {limits.max_members:,} members of "
                f"{limits.max_total_bytes:,} bytes together; this one says that it "
                f"holds more. Split it, or check where it comes from."
            )
        if member.is_hidden:
            yield member
            continue
        earlier = first.setdefault(member.origin.casefold(), number)
        fault = member.fault
        if fault is None and earlier != number:
            detail = f"is the name of member {earlier + 1} too"
            fault = refusal(Reason.DUPLICATE_NAME, member.name, detail)
        elif member.size > limits.max_image_bytes and is_image_name(member.name):
            fault = fault or too_many_bytes(member.size, limits.max_image_bytes)
        yield member if fault is member.fault else member._replace(fault=fault)


class MemberList:
    """Members in their order, those with faults and the litter of systems among them.

    Batches of members are compressed columns: some 20 bytes a member, which would take
    500 as an object. The latest batch is kept as objects, so that looking from front to
    back is cheap. Threads may read a list at the same time.

        >>> members = [Member(0, b"a", "a", 5, 0), Member(1, b"B", "B", 7, 9)]
        >>> found = MemberList.of(members)
        >>> len(found), [member.size for member in found[1:]]
        (2, [7])

    Attributes:
      is_sequential: whether one can only be reached through all those before it.
    """

    def __init__(
        self,
        batches: Sequence[tuple[bytes, int]],
        places: Sequence[int],
        *,
        is_sequential: bool,
    ) -> None:
        """Takes compressed batches, and the places of its own among all members."""
        self.is_sequential = is_sequential
        self._batches = batches
        self._places = places
        self._made = functools.lru_cache(maxsize=1)(self._members_of)

    @classmethod
    def of(
        cls, members: Iterable[Member], *, is_sequential: bool = False
    ) -> "MemberList":
        """Lists members."""
        batches: list[tuple[bytes, int]] = []
        remaining, count = iter(members), 0
        while some := list(itertools.islice(remaining, _BATCH_MEMBERS)):
            columns = pickle.dumps([*zip(*some, strict=True)])
            batches.append((pa.compress(columns, "zstd", asbytes=True), len(columns)))
            count += len(some)
        return cls(batches, range(count), is_sequential=is_sequential)

    def select(self, keep: Callable[[Member], object]) -> "MemberList":
        """Returns those members that `keep` holds for; it is asked once for each."""
        places = array.array("q")
        for position, member in zip(self._places, self, strict=True):
            if keep(member):
                places.append(position)
        chosen = self._places if len(places) == len(self) else places
        return MemberList(self._batches, chosen, is_sequential=self.is_sequential)

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[Member]:
        return self._at(self._places)

    def __getitem__(self, places: slice) -> list[Member]:
        return [*self._at(self._places[places])]

    def _at(self, places: Iterable[int]) -> Iterator[Member]:
        number, made = -1, list[Member]()
        for position in places:
            batch, row = divmod(position, _BATCH_MEMBERS)
            if batch != number:
                number, made = batch, self._made(batch)
            yield made[row]

    def _members_of(self, number: int) -> list[Member]:
        packed, size = self._batches[number]
        # Made in this process: no pickle comes from a file.
        columns: list[Any] = pickle.loads(pa.decompress(packed, size, "zstd"))
        return [*map(Member, *columns)]


class Row(NamedTuple):
    """The members of a row, listed or read.

    Attributes:
      number: of the row in its archive.
      key: what its members share.
      is_repeated: whether an earlier row has the same key.
      members: as they are listed.
      items: the same as they were read; empty before.
    """

    number: int
    key: str
    is_repeated: bool
    members: Sequence[Member]
    items: Sequence[Item] = ()

    @property
    def size(self) -> int:
        """Bytes of all members."""
        return sum(member.size for member in self.members)
