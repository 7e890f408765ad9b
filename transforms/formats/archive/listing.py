"""Archives as the inputs of a table: their listings, and their members as files."""

import dataclasses
import functools

from transforms import files
from transforms.core.model import Block
from transforms.formats.archive.member_list import MemberList
from transforms.formats.archive.members import kind_of, list_members
from transforms.formats.archive.model import ARCHIVE_SUFFIXES


@dataclasses.dataclass(frozen=True, slots=True)
class ArchiveListing:
    """What an archive holds.

    Attributes:
      is_sequential: whether a member can only be reached through those before it.
      members: see `MemberList`.
    """

    is_sequential: bool
    members: MemberList


# A worker mostly reads blocks of one archive, one after the other. A listing of
# millions of members is too large to keep many.
@functools.lru_cache(maxsize=2)
def list_archive(path: str, origin: str, stamp: int, encoding: str) -> ArchiveListing:
    """Returns the listing of an archive; of a packed tar by unpacking all of it.

    Args:
      path: where it is.
      origin: what messages call it.
      stamp: of the archive as it was listed.
      encoding: of names; see `list_members`.

    Raises:
      OSError: it cannot be read, or has another stamp.
      DamageError, InputError: see `list_members`.
    """
    with files.open_input(path, stamp=stamp) as file:
        kind = kind_of(file, origin)
        members = list_members(file, origin, name_encoding=encoding)
        return ArchiveListing(kind.is_sequential, members)


def is_sequential(path: str) -> bool:
    """Whether members of an archive can only be reached through those before them."""
    with files.open_input(path) as file:
        return kind_of(file, path).is_sequential


def stem_of(origin: str) -> str:
    """Returns the path of an archive without its suffix, `.tar.gz` included."""
    suffixes = sorted(ARCHIVE_SUFFIXES, key=len, reverse=True)
    for suffix in suffixes:
        if origin.lower().endswith(suffix):
            return origin[: -len(suffix)]
    return origin


def piece_of(
    block: Block, start: int, rows: int, archive_bytes: int, *, numbered: bool = False
) -> Block:
    """Returns a piece of a block whose `start` and `stop` count rows.

    Args:
      block: of an archive.
      start: its first row.
      rows: how many it has.
      archive_bytes: size of an archive that is one block; else 0.
      numbered: whether rows have the numbers that `start` counts.
    """
    position = block.position
    if archive_bytes:
        position += archive_bytes * (start - block.start) // max(block.rows, 1)
    return dataclasses.replace(
        block,
        start=start,
        stop=start + rows,
        first_row=start if numbered else 0,
        rows=rows,
        position=position,
    )
