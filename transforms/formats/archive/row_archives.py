"""Archives whose members, or runs of members with one key, are rows; images in them.

Images are arranged as `label/file` or `split/label/file`. The rule is that of folders
of images (`transforms.formats.images`), over the members' names. A single archive is
read like the folder that was packed. Of several, each counts as a folder with the
archive's name, so that `train.zip` and `test.zip` are splits, and one archive per class
gives the labels. Folders that all images share are dropped first.

Rows hold the images themselves, because a member of a packed archive can be read only
on the way through it.
"""

import abc
import array
import collections
import dataclasses
import functools
import itertools
import posixpath
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar

import numpy as np
import pyarrow as pa

from transforms.core.model import Block
from transforms.core.reasons import Fault, Reason, Rejection, Skipped
from transforms.core.schema import Feature, Kind
from transforms.errors import InputError, bounded
from transforms.formats.archive.archives import Archive, Archives, stem_of
from transforms.formats.archive.members import Item, Member, MemberList, Row
from transforms.formats.file_names import is_image_name
from transforms.formats.images import list_images
from transforms.formats.raw_rows import Complaint, RawRows, rejecter, rejection_of
from transforms.formats.table import (
    InputFile,
    Planned,
    SourceFile,
    TableReader,
    TableSample,
)
from transforms.formats.tree_shape import SPLIT_WORDS, Surroundings, only_texts
from transforms.storage.file_list import FileList, FileLister
from transforms.storage.paths import FileEntry

# A block of an archive that can be read at any place, and a piece of any block.
_MAX_BLOCK_ROWS = 4096
_PIECE_BYTES = 16 << 20
_SAMPLE_ROWS = 512
_SAMPLE_BYTES = 64 << 20
_IMAGE, _LABEL, _SPLIT = "image", "label", "split"
# What to do with an archive of another layout.
_UNPACK = (
    "Annotations, masks and tables of labels are read from folders: unpack it, and "
    "convert the folder."
)
# Not `filename`: a column of that name is taken to say where images are.
_NAME = "__name__"


class RowList:
    """The rows of an archive, made from its members as they are looked at."""

    def __init__(self, members: MemberList, reader: "type[RowArchive]") -> None:
        """Takes the members of an archive, those of no row among them."""
        # Where the members of each row begin, and where the last one's end.
        self._starts = array.array("q")
        self._repeated: set[int] = set()
        self._key_of = reader.key_of
        count, key = 0, None
        seen: set[str] = set()

        def belongs(member: Member) -> bool:
            nonlocal count, key
            if reader.skip_reason(member) is not None:
                return False
            own = reader.key_of(member)
            if own != key or not own:
                if own and own in seen:
                    self._repeated.add(len(self._starts))
                key = own
                seen.add(key)
                self._starts.append(count)
            count += 1
            return True

        self._members = members.select(belongs)
        self._starts.append(count)

    def __len__(self) -> int:
        return len(self._starts) - 1

    def between(self, start: int, stop: int) -> Iterator[Row]:
        """Yields the rows from one number up to another."""
        begin = self._starts[start]
        members = iter(self._members[begin : self._starts[stop]])
        for number in range(start, stop):
            count = self._starts[number + 1] - self._starts[number]
            own = [*itertools.islice(members, count)]
            key = self._key_of(own[0])
            yield Row(number, key, number in self._repeated, own)

    def __iter__(self) -> Iterator[Row]:
        for start in range(0, len(self), _MAX_BLOCK_ROWS):
            yield from self.between(start, min(start + _MAX_BLOCK_ROWS, len(self)))


# Of what `_listing` keeps.
@functools.lru_cache(maxsize=2)
def _rows_in(members: MemberList, reader: "type[RowArchive]") -> RowList:
    """Returns the rows that the members of a listing form, remembered with it."""
    return RowList(members, reader)


@dataclasses.dataclass(frozen=True, slots=True)
class RowArchive(Archives, TableReader):
    """Reads archives in which a member, or a run of members with one key, is a row.

    Archives that can be read at any place fall into blocks. The others are one block
    each: to find its middle, all before it would have to be unpacked again.

    Attributes:
      is_numbered: whether rows are known by their number, not by a name of their own.
    """

    is_numbered: ClassVar[bool] = False

    @staticmethod
    @abc.abstractmethod
    def skip_reason(member: Member) -> Skipped | None:
        """Returns why a member is in no row; None if it is in one."""

    @staticmethod
    @abc.abstractmethod
    def key_of(member: Member) -> str:
        """Returns what the members of one row share; empty for a row by itself."""

    @abc.abstractmethod
    def raw(self, rows: Sequence[Row], block: Block, columns: Sequence[str]) -> RawRows:
        """Returns a piece of rows as raw columns."""

    def listed_rows(self, file: SourceFile) -> RowList:
        """Returns the rows of an archive, those that cannot be read among them."""
        return _rows_in(self.listing(file), type(self))

    def blocks(
        self, file: InputFile, *, block_bytes: int, limit_rows: int | None
    ) -> Iterator[Block]:
        """Yields runs of rows; `start` and `stop` count those of the archive."""
        rows = self.listed_rows(file)
        count = len(rows) if limit_rows is None else min(len(rows), limit_rows)
        first = size = before = 0

        def block(stop: int) -> Block:
            first_row = first if self.is_numbered else 0
            return file.block(
                first, stop, rows=stop - first, before=before, first_row=first_row
            )

        cut = not self.listing(file).is_sequential
        for stop, row in enumerate(itertools.islice(rows, count if cut else 1), 1):
            if stop - 1 == first:
                before = min(row.members[0].offset, file.size)
            size += row.size
            is_full = size >= block_bytes or stop - first == _MAX_BLOCK_ROWS
            if cut and stop < count and is_full:
                yield block(stop)
                first, size = stop, 0
        yield block(count)

    def read(
        self, file: SourceFile, block: Block, columns: Sequence[str]
    ) -> Iterator[RawRows]:
        """Yields the rows of a block, piece by piece."""
        skipped = collections.Counter[str]()
        piece: list[Row] = []
        start, size = block.start, 0
        with self.opened(file) as archive:

            def given() -> RawRows:
                done = archive.packed_bytes * (start - block.start)
                part = dataclasses.replace(
                    block,
                    start=start,
                    stop=start + len(piece),
                    first_row=start if self.is_numbered else 0,
                    rows=len(piece),
                    position=block.position + done // max(block.rows, 1),
                )
                return self.raw(piece, part, columns)

            for row in self.rows_of(archive, file, block, skipped):
                # A full piece waits for another row. What is skipped comes with the
                # last piece, and one without rows would begin where the next block
                # does.
                if size >= _PIECE_BYTES or len(piece) == _MAX_BLOCK_ROWS:
                    yield given()
                    start += len(piece)
                    piece, size = [], 0
                piece.append(row)
                size += sum(len(data or b"") for _, data in row.items)
        yield dataclasses.replace(given(), skipped=dict(skipped))

    def rows_of(
        self,
        archive: Archive,
        file: SourceFile,
        block: Block,
        skipped: collections.Counter[str],
    ) -> Iterator[Row]:
        """Yields the rows of a block as they are read.

        The members that the first block leaves out are counted in `skipped`.
        """
        # Listing a packed archive would unpack it a second time.
        if archive.kind == "packed tar":
            # The walk goes on past a limit, to find out whether the archive is whole.
            walk = self._walked(archive, skipped)
            yield from (row for row in walk if row.number < block.stop)
            return
        if not block.start:
            reasons = map(self.skip_reason, self.listing(file))
            skipped.update(str(reason) for reason in reasons if reason is not None)
        for row in self.listed_rows(file).between(block.start, block.stop):
            yield row._replace(items=[*map(archive.read, row.members)])

    def _walked(
        self, archive: Archive, skipped: collections.Counter[str]
    ) -> Iterator[Row]:
        """Yields the rows of all members of an archive that are read in turn."""

        def items() -> Iterator[Item]:
            for member, read in archive.members():
                if (reason := self.skip_reason(member)) is not None:
                    skipped[str(reason)] += 1
                else:
                    yield read()

        seen: set[str] = set()
        groups = itertools.groupby(
            items(), lambda item: self.key_of(item.member) or item.member.number
        )
        for number, (key, group) in enumerate(groups):
            own = [*group]
            name = key if isinstance(key, str) else ""
            repeated = bool(name) and name in seen
            seen.add(name)
            yield Row(number, name, repeated, [i.member for i in own], own)


@dataclasses.dataclass(frozen=True, slots=True)
class ArchiveImages(RowArchive):
    """Archives of images.

    Attributes:
      by_archive: whether members' paths begin with the name of their archive.
      strip: how many leading folders all images share.
      folders_said: whether folders are taken as classes whatever they are called.
      split_column: the column that holds the next folder, where that is the split.
    """

    title: ClassVar[str] = "images in archives"
    many_origins: ClassVar[bool] = True
    origins_name_rows: ClassVar[bool] = True

    by_archive: bool = False
    strip: int = 0
    folders_said: bool = False
    split_column: str = ""

    @staticmethod
    def skip_reason(member: Member) -> Skipped | None:
        """Returns why a member is no item; None for an image, sound or not.

        A nested archive is an item too, and is rejected: skipped, its content would be
        lost without a word.
        """
        if member.is_hidden:
            return Skipped.HIDDEN
        if is_image_name(member.name) or member.reason is Reason.NESTED_ARCHIVE:
            return None
        return Skipped.OTHER_SUFFIX

    @staticmethod
    def key_of(member: Member) -> str:
        """Returns nothing: each image is a row by itself."""
        return ""

    def plan(self, files: Sequence[InputFile]) -> Planned:
        """Plans from names and sizes alone: images in the sample are all zeros.

        Raises:
          InputError: no images, or no rule for their folders; see `list_images`.
        """
        reader = dataclasses.replace(self, by_archive=len(files) > 1)
        first: dict[str, FileEntry] = {}
        others = FileLister()
        faults: list[Fault] = []

        def sound() -> Iterator[FileEntry]:
            for file in files:
                above = reader._above(file.origin)
                for member in self.listing(file):
                    if not is_image_name(member.name):
                        if member.name.isprintable():
                            others.add(above + member.name, 0, 0)
                    elif member.fault:
                        faults[:] = faults or [member.fault]
                    elif not member.is_hidden:
                        path = above + member.origin
                        entry = FileEntry(path, member.size, 0)
                        first.setdefault(posixpath.dirname(path), entry)
                        yield entry

        # A million members are no lists beside their listing.
        images = FileList.of(sound())
        strip = _shared_folders([f"{folder}/file" for folder in first])
        reader = dataclasses.replace(reader, strip=strip)
        root = files[0].origin if len(files) == 1 else f"{len(files)} archives"
        if faults and not images:
            raise InputError(f"{root}: no image can be read: {faults[0].message}")
        around = None if self.folders_said else Surroundings(only_texts(others.files()))
        bare = images
        if strip:
            bare = FileList.of(
                FileEntry("/".join(reader._parts(entry.path)), entry.size, 0)
                for entry in images
            )
        try:
            listing = list_images(bare, {}, root=root, around=around)
        except InputError as error:
            raise InputError(bounded(f"{error} {_UNPACK}")) from error
        if listing.splits:
            reader = dataclasses.replace(reader, split_column=_SPLIT)
        # Image, label and file name, as folders of images have them.
        features = (
            Feature(_IMAGE, Kind.IMAGE, inline=True),
            Feature(_LABEL, Kind.LABEL, is_label=True),
            Feature("filename", Kind.TEXT, column=_NAME),
        )
        step = max(-(-len(images) // _SAMPLE_ROWS), 1)
        chosen = [*itertools.islice(images, 0, None, step)]
        sample = reader._sample_of(chosen, first.values(), len(images))
        return Planned(reader, sample, features)

    def raw(self, rows: Sequence[Row], block: Block, columns: Sequence[str]) -> RawRows:
        """Returns a piece of images; all columns of them."""
        items = [item for row in rows for item in row.items]
        # Those that could not be read come last.
        items.sort(key=lambda item: item.data is None)
        good = [item for item in items if item.data is not None]
        above = f"{block.origin}/" if self.by_archive else ""
        sources = [above + item.member.printable for item in items]
        folder = self._above(block.origin)
        paths = [folder + item.member.origin for item in good]
        cells = self._columns([item.data for item in good], paths, sources[: len(good)])
        refused: list[Complaint] = [
            (index, *item.member.fault)
            for index, item in enumerate(items)
            if item.member.fault
        ]

        def rejection(complaint: Complaint) -> Rejection:
            index, reason, message = complaint
            raw = items[index].data
            return rejection_of(sources[index], (None, reason, message), raw)

        return RawRows(
            block,
            cells,
            np.zeros(len(good), np.int64),
            refused,
            rejecter(rejection),
            origins=cells[_NAME],
            places=np.arange(len(good)),
        )

    def _parts(self, path: str) -> list[str]:
        """Returns the folders and the name of an image, without shared folders."""
        return path.split("/")[self.strip :]

    def _above(self, archive: str) -> str:
        """Returns what the paths of an archive's members begin with in the source."""
        return f"{stem_of(archive)}/" if self.by_archive else ""

    def _sample_of(
        self, chosen: list[FileEntry], first: Iterable[FileEntry], total: int
    ) -> TableSample:
        """Returns a sample of some of all images, and one of each split.

        Args:
          chosen: spread evenly.
          first: of each folder.
          total: how many images there are.
        """
        while len(chosen) > 8 and sum(entry.size for entry in chosen) > _SAMPLE_BYTES:
            chosen = chosen[::2]
        if self.split_column:
            seen = {self._parts(entry.path)[0] for entry in chosen}
            for entry in first:
                split = self._parts(entry.path)[0]
                if split not in seen:
                    seen.add(split)
                    chosen.append(entry)
        paths = [entry.path for entry in chosen]
        images = [bytes(entry.size) for entry in chosen]
        count = len(chosen)
        return TableSample(
            self._columns(images, paths, paths),
            count,
            total_rows=total,
            complete=count == total,
        )

    def _columns(
        self, images: Sequence[bytes | None], paths: Sequence[str], names: Sequence[str]
    ) -> dict[str, pa.Array]:
        """Returns the columns of images: label and split are folders of their paths."""
        parts = [*map(self._parts, paths)]
        columns: dict[str, pa.Array] = {
            _IMAGE: pa.array(images, pa.large_binary()),
            _LABEL: pa.array([segments[-2] for segments in parts], pa.string()),
            _NAME: pa.array(names, pa.string()),
        }
        if self.split_column:
            columns[_SPLIT] = pa.array([segments[0] for segments in parts], pa.string())
        return columns


def _shared_folders(paths: Sequence[str]) -> int:
    """Returns how many leading folders are shared and are neither label nor split."""
    parts = [path.split("/") for path in paths]
    least = min(map(len, parts), default=0)
    strip = 0
    while least - strip > 2 and len({segments[strip] for segments in parts}) == 1:
        if least - strip == 3 and parts[0][strip].lower() in SPLIT_WORDS:
            break
        strip += 1
    return strip
