"""Images in archives, arranged as `label/file` or `split/label/file`.

The rule is that of folders of images (`transforms.formats.images`), over the members'
names. A single archive is read like the folder that was packed. Of several, each counts
as a folder with the archive's name, so that `train.zip` and `test.zip` are splits, and
one archive per class gives the labels. Folders that all images share are dropped first.

Rows hold the images themselves, because a member of a packed archive can be read only
on the way through it.
"""

import collections
import dataclasses
import functools
import itertools
import posixpath
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from transforms.core.model import Block, Reason, Rejection, Skipped
from transforms.core.schema import Feature, Kind
from transforms.formats.archive.base import RowArchive
from transforms.formats.archive.member_list import MemberList
from transforms.formats.archive.members import (
    read_member,
)
from transforms.formats.archive.model import (
    ARCHIVE_SUFFIXES,
    Content,
    Member,
    MemberFault,
    bounded_image,
)
from transforms.formats.file_names import is_image_name
from transforms.formats.images import SPLIT_WORDS, arrange
from transforms.formats.input_files import only_texts
from transforms.formats.table import (
    Complaint,
    InputFile,
    Planned,
    RawRows,
    SourceFile,
    TableSample,
    rejecter,
    rejection_of,
)
from transforms.formats.tree_shape import Surroundings, check_tree
from transforms.storage.entries import FileEntry
from transforms.storage.file_list import FileList, FileLister

_SAMPLE_ROWS = 512
_SAMPLE_BYTES = 64 << 20
_IMAGE, _LABEL, _SPLIT = "image", "label", "split"
# Not `filename`: a column of that name is taken to say where images are.
_NAME = "__name__"


_Item = Content | MemberFault


class _PlannedImage(NamedTuple):
    """A sound image as a plan knows it.

    Attributes:
      path: among all the images of the source.
      name: its origin.
      size: bytes.
    """

    path: str
    name: str
    size: int


def is_image_member(member: Member) -> bool:
    """Whether a member is an item of a source of images, sound or not.

    A nested archive is an item too, and is rejected: skipped, its content would be
    lost without a word.
    """
    if member.is_hidden:
        return False
    return is_image_name(member.name) or member.fault is Reason.NESTED_ARCHIVE


@dataclasses.dataclass(frozen=True, slots=True)
class ArchiveImages(RowArchive[_Item]):
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

    def plan(self, files: Sequence[InputFile]) -> Planned:
        """Plans from names and sizes alone: images in the sample are all zeros.

        Raises:
          InputError: no images, or no rule for their folders; see `arrange`.
        """
        reader = dataclasses.replace(self, by_archive=len(files) > 1)
        first: dict[str, _PlannedImage] = {}
        counts: list[int] = []
        folders: collections.Counter[str] = collections.Counter()
        others = FileLister()

        def sound() -> Iterator[FileEntry]:
            for file in files:
                counts.append(0)
                above = f"{_stem_of(file.origin)}/" if reader.by_archive else ""
                for name in self.listing(file).members.names():
                    if not is_image_name(name) and name.isprintable():
                        others.add(above, [name], [0], [0])
                for member in self.listed_rows(file):
                    if member.fault is None:
                        counts[-1] += 1
                        path = reader._path(file.origin, member)
                        folder = posixpath.dirname(path)
                        folders[f"{folder}/" if folder else ""] += 1
                        entry = FileEntry(path, member.size, 0)
                        if folder not in first:
                            first[folder] = reader._planned(file.origin, entry)
                        yield entry

        # A million members are no lists beside their listing.
        found = FileList.of(sound())
        strip = _shared_folders([f"{folder}/file" for folder in first])
        root = files[0].origin if len(files) == 1 else f"{len(files)} archives"
        if not self.folders_said:
            around = reader._around(files, others.files())
            check_tree(found, folders, around, root=root)
        listing = arrange(_without_folders(found, strip), {}, root=root)
        split_column = _SPLIT if listing.splits else ""
        reader = dataclasses.replace(reader, strip=strip, split_column=split_column)
        # Image, label and file name, as folders of images have them.
        features = (
            Feature(_IMAGE, Kind.IMAGE, inline=True),
            Feature(_LABEL, Kind.LABEL, is_label=True),
            Feature("filename", Kind.TEXT, column=_NAME),
        )
        archives = itertools.chain.from_iterable(
            itertools.repeat(file.origin, count)
            for file, count in zip(files, counts, strict=True)
        )
        step = max(-(-len(found) // _SAMPLE_ROWS), 1)
        each = itertools.islice(zip(archives, found, strict=True), 0, None, step)
        chosen = [reader._planned(archive, entry) for archive, entry in each]
        sample = reader._sample_of(chosen, first.values(), len(found))
        return Planned(reader, sample, features)

    def _around(self, files: Sequence[InputFile], others: FileList) -> Surroundings:
        """Returns what is beside the images of archives."""
        source = shlex.quote(files[0].path) if len(files) == 1 else "SOURCE"
        return Surroundings(
            only_texts(others),
            f"beam-tfrecord convert {source} OUTPUT",
            images_alone="",
            folders_too="--format archive",
        )

    def skip_reason(self, member: Member) -> Skipped | None:
        """Returns why a member is no item; None if it is one."""
        if is_image_member(member):
            return None
        return Skipped.HIDDEN if member.is_hidden else Skipped.OTHER_SUFFIX

    def read_row(self, stream: BinaryIO, file: SourceFile, row: Member) -> _Item:
        """Returns an image, or why it cannot be read."""
        return read_member(stream, file.origin, row)

    def rows_in(self, items: Iterator[_Item]) -> Iterator[_Item]:
        """Returns the items: each is a row."""
        return items

    def contents_in(self, row: _Item) -> Sequence[Content]:
        """Returns the image, if it could be read."""
        return [row] if isinstance(row, Content) else []

    def raw(
        self,
        rows: Sequence[_Item],
        block: Block,
        columns: Sequence[str],
        skipped: dict[str, int],
    ) -> RawRows:
        """Returns a piece of images; all columns of them."""
        good: list[Content] = []
        bad: list[MemberFault] = []
        for item in rows:
            if isinstance(item, MemberFault):
                bad.append(item)
            else:
                good.append(item)
        names = [self._origin(block.origin, item.member) for item in good]
        paths = [self._path(block.origin, item.member) for item in good]
        found = self._columns([item.data for item in good], paths, names)
        refused: list[Complaint] = [
            (len(good) + i, fault.reason, fault.message) for i, fault in enumerate(bad)
        ]
        sources = [*names, *(self._origin(block.origin, f.member) for f in bad)]

        def rejection(complaint: Complaint) -> Rejection:
            place = complaint[0]
            raw = good[place].data if place < len(good) else None
            return rejection_of(sources[place], complaint, raw, numbered=False)

        return RawRows(
            block,
            found,
            np.zeros(len(good), np.int64),
            refused,
            rejecter(rejection),
            origins=found[_NAME],
            skipped=skipped,
            places=np.arange(len(good)),
        )

    def listed_rows(self, file: SourceFile) -> MemberList:
        """Returns the members that are images."""
        listing, limit = self.listing(file), self.max_image_bytes
        bounded = functools.partial(bounded_image, limit=limit)
        return listing.derived(
            (is_image_member, limit),
            lambda: listing.members.select(is_image_member, bounded),
        )

    def _origin(self, archive: str, member: Member) -> str:
        return f"{archive}/{member.printable}" if self.by_archive else member.printable

    def _parts(self, path: str) -> list[str]:
        """Returns the folders and the name of an image, without shared folders."""
        return path.split("/")[self.strip :]

    def _path(self, archive: str, member: Member) -> str:
        if self.by_archive:
            return f"{_stem_of(archive)}/{member.origin}"
        return member.origin

    def _planned(self, archive: str, entry: FileEntry) -> "_PlannedImage":
        """Returns what a sample needs of a sound member, by its path and size."""
        name = entry.path
        if self.by_archive:
            name = archive + entry.path.removeprefix(_stem_of(archive))
        return _PlannedImage(entry.path, name, entry.size)

    def _sample_of(
        self,
        chosen: list["_PlannedImage"],
        first: Iterable["_PlannedImage"],
        total: int,
    ) -> TableSample:
        """Returns a sample of some of all members, and one of each split.

        Args:
          chosen: spread evenly.
          first: of each folder.
          total: how many members there are.
        """
        while len(chosen) > 8 and sum(image.size for image in chosen) > _SAMPLE_BYTES:
            chosen = chosen[::2]
        if self.split_column:
            seen = {self._parts(image.path)[0] for image in chosen}
            for image in first:
                split = self._parts(image.path)[0]
                if split not in seen:
                    seen.add(split)
                    chosen.append(image)
        columns = self._columns(
            [bytes(image.size) for image in chosen],
            [image.path for image in chosen],
            [image.name for image in chosen],
        )
        count = len(chosen)
        return TableSample(columns, count, total_rows=total, complete=count == total)

    def _columns(
        self, images: Sequence[bytes], paths: Sequence[str], names: Sequence[str]
    ) -> dict[str, pa.Array]:
        """Returns the columns of images: label and split are folders of their paths."""
        parts = [*map(self._parts, paths)]
        columns: dict[str, pa.Array] = {
            _IMAGE: pa.array(images, pa.large_binary()),
            _LABEL: pa.array([part[-2] for part in parts], pa.string()),
            _NAME: pa.array(names, pa.string()),
        }
        if self.split_column:
            columns[_SPLIT] = pa.array([part[0] for part in parts], pa.string())
        return columns


def _without_folders(files: FileList, strip: int) -> FileList:
    """Returns files without the first `strip` folders of their paths."""
    if not strip:
        return files
    return FileList.of(
        FileEntry("/".join(entry.path.split("/")[strip:]), entry.size, 0)
        for entry in files
    )


def _shared_folders(paths: Sequence[str]) -> int:
    """Returns how many leading folders are shared and are neither label nor split."""
    parts = [path.split("/") for path in paths]
    least = min(map(len, parts), default=0)
    strip = 0
    while least - strip > 2 and len({each[strip] for each in parts}) == 1:
        if least - strip == 3 and parts[0][strip].lower() in SPLIT_WORDS:
            break
        strip += 1
    return strip


def _stem_of(origin: str) -> str:
    """Returns the path of an archive without its suffix, `.tar.gz` included."""
    suffixes = sorted(ARCHIVE_SUFFIXES, key=len, reverse=True)
    for suffix in suffixes:
        if origin.lower().endswith(suffix):
            return origin[: -len(suffix)]
    return origin
