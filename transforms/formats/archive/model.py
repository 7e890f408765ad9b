"""What is known of an archive's member, and the limits on unpacking it.

An archive comes from anywhere. A name that would lead out of a folder, a link, a
device, an archive in the archive or a bomb is never followed, made or entered: the
member becomes a fault with a reason, and nothing is ever written to disk under the
name that an archive says.
"""

import dataclasses
import re
import unicodedata
from typing import NamedTuple

from transforms.core.image.policy import too_many_bytes
from transforms.core.model import Reason, Skipped
from transforms.errors import bounded
from transforms.formats.registry import FORMATS

ARCHIVE_SUFFIXES = FORMATS["archive"].suffixes
# Read by nothing here, but archives all the same: never data of their own.
_FOREIGN_SUFFIXES = (".7z", ".rar", ".tar.lz4", ".tar.lzma", ".tar.z", ".cab", ".cpio")
_LITTER = re.compile(r"(?:^|/)(?:\.|(?:__MACOSX|Thumbs\.db|desktop\.ini)(?:/|\Z))")
_DRIVE = re.compile("[A-Za-z]:")
_SHOWN_CHARS = 100


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """What an archive may ask for before it is taken for a bomb.

    Attributes:
      max_member_bytes: of one member, unpacked; a larger one is a fault.
      max_total_bytes: of all members together, unpacked; more is an error.
      max_ratio: unpacked bytes a packed byte, of a member of a zip (a fault) or of
        the whole stream of a tar (an error). Deflate cannot give more than 1,032.
      ratio_free_bytes: unpacked, less than which no ratio is too high.
      max_members: more is an error.
    """

    max_member_bytes: int = 1 << 30
    max_total_bytes: int = 1 << 42
    max_ratio: int = 200
    ratio_free_bytes: int = 16 << 20
    max_members: int = 5_000_000

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
      fault: why it is not to be read, as far as the headers show; None for nothing.
      message: the fault in words.
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
    fault: Reason | None = None
    message: str = ""

    @property
    def is_hidden(self) -> bool:
        """Whether it is left out unasked; a path out of the folder never is."""
        return self.fault is not Reason.UNSAFE_PATH and is_litter(self.name)

    @property
    def origin(self) -> str:
        """The name in NFC: the identity that placement hashes."""
        return unicodedata.normalize("NFC", self.name)

    @property
    def printable(self) -> str:
        """The name for reports: what is no text in it is escaped."""
        raw = self.origin.encode("utf-8", "surrogateescape")
        return raw.decode("utf-8", "backslashreplace")


@dataclasses.dataclass(frozen=True, slots=True)
class Content:
    """A member that was read, its size and (in a zip) its checksum found right."""

    member: Member
    data: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class MemberFault:
    """A member that cannot be an item, and why.

    Attributes:
      member: as the headers have it.
      reason: from the closed list.
      message: at most 1 KiB, for a person.
    """

    member: Member
    reason: Reason
    message: str


@dataclasses.dataclass(frozen=True, slots=True)
class SkippedMember:
    """A member that is left out on purpose."""

    member: Member
    reason: Skipped


Found = Content | MemberFault | SkippedMember


def bounded_image(member: Member, limit: int) -> Member:
    """Returns an image's member, with a fault where it has more than `limit` bytes.

    What has a fault is not read.
    """
    if member.fault is not None or member.size <= limit:
        return member
    fault = too_many_bytes(member.size, limit)
    return member._replace(fault=fault.reason, message=fault.message)


def is_litter(name: str) -> bool:
    """Whether a path has a hidden part or one that operating systems leave behind."""
    return _LITTER.search(name) is not None


def decode_name(raw: bytes, encoding: str) -> tuple[str, bool]:
    """Returns a stored name as text, and whether it is text in that encoding."""
    try:
        text = raw.decode(encoding)
        # UTF-7 can state half a surrogate pair, which is no text.
        text.encode()
    except UnicodeError:
        return raw.decode("utf-8", "surrogateescape"), False
    return text, True


def path_of(name: str) -> str:
    """Returns a path without redundant parts: `./a//b` is `a/b`.

    Parts that lead elsewhere, such as a leading `/`, stay for `name_fault` to reject.
    """
    path = "/".join(part for part in name.split("/") if part not in ("", "."))
    return f"/{path}" if name.startswith("/") else path


def name_fault(name: str, *, is_text: bool) -> tuple[Reason | None, str]:
    """Returns why a name is refused, and in words; (None, "") for a good one.

    Args:
      name: from `path_of`.
      is_text: whether it could be decoded.
    """
    # Most names are good: what messages show is made where there is one.
    unsafe = ""
    if not name or name == "/":
        unsafe = "is empty"
    elif name.startswith("/"):
        unsafe = "is absolute"
    elif _DRIVE.match(name):
        unsafe = "starts with a drive letter"
    elif "\\" in name:
        unsafe = "holds a backslash"
    elif "\0" in name:
        unsafe = "holds a zero byte"
    elif ".." in name.split("/"):
        unsafe = "leads out of its folder"
    if unsafe:
        return Reason.UNSAFE_PATH, (
            f"names of members must be relative paths with '/' between; "
            f"{shown_name(name)} {unsafe}. Pack the archive again from inside the "
            f"folder."
        )
    if not is_text:
        return Reason.INVALID_ENCODING, (
            f"names of members must be UTF-8 unless their encoding is stated; "
            f"{shown_name(name)} is not. State it (--zip-encoding cp949, say)."
        )
    if name.lower().endswith(ARCHIVE_SUFFIXES + _FOREIGN_SUFFIXES):
        return Reason.NESTED_ARCHIVE, (
            f"archives are read one level deep; {shown_name(name)} is an archive in an "
            f"archive. Take it out and name it as a source of its own, or exclude it."
        )
    return None, ""


def shown_name(name: str) -> str:
    """Returns a name as messages have it: quoted, escaped and not too long."""
    shown = ascii(name) if not name.isprintable() else repr(name)
    if len(shown) > _SHOWN_CHARS:
        shown = f"{shown[:_SHOWN_CHARS]}...{shown[-1]}"
    return bounded(shown)
