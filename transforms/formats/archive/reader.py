"""Archives of rows: the members decide which reader is used. Images are read here.

    tar shards whose members come in samples, 0001.jpg and 0001.cls   WebDataset
    members that are images                                           ArchiveImages
    members that are tables                                           ArchiveTables

Images are arranged as `label/file` or `split/label/file`. The rule is that of folders
of images (`transforms.formats.images`), over the members' names. A single archive is
read like the folder that was packed. Of several, each counts as a folder with the
archive's name, so that `train.zip` and `test.zip` are splits, and one archive per class
gives the labels. Folders that all images share are dropped first.

Rows hold the images themselves, because a member of a packed archive can be read only
on the way through it.
"""

import collections
import dataclasses
import itertools
import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from transforms.core.model import Block
from transforms.core.reasons import Fault, Reason, Rejection, Skipped
from transforms.core.schema import Feature, Kind
from transforms.errors import InputError, SpecError, bounded
from transforms.formats.archive.archives import Archives, Row, RowArchive
from transforms.formats.archive.members import (
    ARCHIVE_SUFFIXES,
    Item,
    Member,
    is_litter,
    shown_name,
)
from transforms.formats.archive.tables import ArchiveTables
from transforms.formats.archive.webdataset import WebDataset, key_and_column
from transforms.formats.file_names import is_image_name
from transforms.formats.images import list_images
from transforms.formats.raw_rows import Complaint, RawRows, rejecter, rejection_of
from transforms.formats.registry import TABLE_FORMATS, table_format
from transforms.formats.table import (
    InputFile,
    Planned,
    TableFormat,
    TableReader,
    TableSample,
)
from transforms.formats.tree_shape import SPLIT_WORDS, Surroundings, only_texts
from transforms.storage.entries import FileEntry
from transforms.storage.file_list import FileList, FileLister

# Archives that are opened to decide what a source contains.
_LOOKED_AT = 2
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


@dataclasses.dataclass(frozen=True, slots=True)
class ArchiveReader(Archives, TableFormat):
    """Archives, before it is known what they hold.

    Attributes:
      folders_said: see `ArchiveImages`.
      table_settings: settings of the tables in archives, for their own reader.
    """

    title: ClassVar[str] = "archives"

    folders_said: bool = False
    table_settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @classmethod
    def with_settings(cls, settings: Mapping[str, Any]) -> Self:
        """Returns the reader; it hands on the settings that are not its own."""
        own = ("zip_encoding", "max_image_bytes", "folders_said")
        return cls(
            **{name: value for name, value in settings.items() if name in own},
            table_settings={n: v for n, v in settings.items() if n not in own},
        )

    def plan(self, files: Sequence[InputFile]) -> Planned:
        """Plans with the reader that the members of the first archives ask for.

        Raises:
          InputError: they are nothing that can be read.
          SpecError: a setting that is not for what the members are.
        """
        return self._chosen(files).plan(files)

    def _chosen(self, files: Sequence[InputFile]) -> TableFormat:
        looked_at = files[:_LOOKED_AT]

        def names() -> Iterator[str]:
            return itertools.chain.from_iterable(map(self._names, looked_at))

        told = (self.zip_encoding, self.max_image_bytes)
        if all(_are_samples(file, self._names(file)) for file in looked_at):
            self._check_settings("WebDataset", ())
            return WebDataset(*told)
        if any(map(is_image_name, names())):
            self._check_settings("images in archives", ())
            return ArchiveImages(*told, folders_said=self.folders_said)
        tables = collections.Counter(map(table_format, names()))
        del tables[""]
        if not tables:
            few = itertools.islice(names(), 3)
            shown = ", ".join(map(shown_name, few)) or "nothing"
            suffixes = ", ".join(fmt.suffixes[0] for fmt in TABLE_FORMATS.values())
            raise InputError(
                f"Archives must hold images, samples of WebDataset or tables "
                f"({suffixes}); {files[0].origin!r} holds {shown}. Name another one."
            )
        if len(tables) > 1:
            raise InputError(
                f"The tables in archives must be of one format; found "
                f"{', '.join(sorted(tables))}. Take one kind out."
            )
        (name,) = tables
        return ArchiveTables(*told, format=name, inner=self._inner(name))

    def _names(self, file: InputFile) -> Iterator[str]:
        """Yields the names of the members of an archive."""
        members = self.listing(file)
        return (member.name for member in members if not is_litter(member.name))

    def _inner(self, name: str) -> TableReader:
        fmt = TABLE_FORMATS[name]
        self._check_settings(f"{name} in archives", fmt.options)
        made = fmt.reader_class().with_settings(self.table_settings)
        assert isinstance(made, TableReader)
        return made

    def _check_settings(self, what: str, known: Sequence[str]) -> None:
        for name in self.table_settings:
            if name not in known:
                raise SpecError(f"{name} is not for {what}; leave it out.")


def _are_samples(file: InputFile, names: Iterable[str]) -> bool:
    """Whether this is a tar in which most members share a key with the next."""
    if file.origin.lower().endswith(".zip"):
        return False
    count = shared = 0
    key, are_tables = None, True
    for name in names:
        are_tables = are_tables and bool(table_format(name))
        own, _ = key_and_column(name)
        if own:
            count += 1
            shared += own == key
            key = own
    # At least two members a sample, on the average of those that have a key.
    return not are_tables and bool(shared) and shared * 2 >= count - 1


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
                above = f"{_stem_of(file.origin)}/" if reader.by_archive else ""
                for member in self.listing(file):
                    if not is_image_name(member.name):
                        if member.name.isprintable():
                            others.add(above + member.name, 0, 0)
                    elif member.fault:
                        faults[:] = faults or [member.fault]
                    elif not member.is_hidden:
                        path = reader._path(file.origin, member)
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
        items: list[Item] = [item for row in rows for item in row.items]
        good = [item for item in items if item.data is not None]
        bad = [item for item in items if item.data is None]
        above = f"{block.origin}/" if self.by_archive else ""
        members = [*(item.member for item in good), *(item.member for item in bad)]
        sources = [above + member.printable for member in members]
        paths = [self._path(block.origin, item.member) for item in good]
        cells = self._columns([item.data for item in good], paths, sources[: len(good)])
        refused: list[Complaint] = [
            (index, *item.member.fault)
            for index, item in enumerate(bad, len(good))
            if item.member.fault
        ]

        def rejection(complaint: Complaint) -> Rejection:
            index = complaint[0]
            raw = good[index].data if index < len(good) else None
            return rejection_of(sources[index], complaint, raw, numbered=False)

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

    def _path(self, archive: str, member: Member) -> str:
        """Returns the path of a member among all the members of the source."""
        if self.by_archive:
            return f"{_stem_of(archive)}/{member.origin}"
        return member.origin

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


def _stem_of(origin: str) -> str:
    """Returns the path of an archive without its suffix, `.tar.gz` included."""
    ends = [suffix for suffix in ARCHIVE_SUFFIXES if origin.lower().endswith(suffix)]
    return origin[: len(origin) - max(map(len, ends), default=0)]
