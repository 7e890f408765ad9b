"""Archives of any kind of rows: what their members are decides who reads them.

tar shards whose members come in samples, 0001.jpg and 0001.cls   WebDataset
members that are images                                           ArchiveImages
members that are tables                                           ArchiveTables
"""

import collections
import dataclasses
import importlib
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NoReturn

from transforms.core.image.policy import MAX_BYTES
from transforms.core.model import Block
from transforms.errors import InputError, SpecError
from transforms.formats.archive.images import ArchiveImages
from transforms.formats.archive.listing import list_archive
from transforms.formats.archive.model import Member, is_litter, shown_name
from transforms.formats.archive.tables import ArchiveTables, table_format
from transforms.formats.archive.webdataset import WebDataset
from transforms.formats.archive.webdataset_samples import key_and_column
from transforms.formats.image_suffixes import is_image_name
from transforms.formats.table import (
    InputFile,
    RawRows,
    TableReader,
    TableSample,
)

__all__ = ["ArchiveReader"]

# Format -> module and class of its reader.
_READERS = {
    "csv": ("csv.reader", "CsvReader"),
    "jsonl": ("json_lines.reader", "JsonLinesReader"),
    "parquet": ("columnar.parquet", "ParquetReader"),
    "arrow": ("columnar.arrow_ipc", "ArrowReader"),
}
# Settings that are not of CSV files alone.
_OF_ALL = frozenset(("zip_encoding", "max_image_bytes"))
# What a source holds is read off so many of its archives.
_LOOKED_AT = 2


@dataclasses.dataclass(frozen=True, slots=True)
class ArchiveReader(TableReader):
    """Archives, before it is known what they hold; `planned` gives their reader.

    Attributes:
      zip_encoding: of names that are not marked as UTF-8; None for UTF-8.
      max_image_bytes: a larger member that is an image is rejected unread.
      delimiter, quote, escape, header, columns, encoding, trim: of CSV files in
        archives; see `CsvReader`.
      null_values: of tables in archives; see `TableReader`.
    """

    title: ClassVar[str] = "archives"

    zip_encoding: str | None = None
    max_image_bytes: int = MAX_BYTES
    delimiter: str | None = None
    quote: str = '"'
    escape: str = ""
    header: bool | None = None
    columns: tuple[str, ...] | None = None
    encoding: str = "utf-8"
    trim: bool = False
    null_values: tuple[str, ...] = ()

    def sample(self, files: Sequence[InputFile]) -> TableSample:
        """Returns the sample of the reader that the members ask for."""
        return self._chosen(files).sample(files)

    def planned(self, sample: TableSample, files: Sequence[InputFile]) -> TableReader:
        """Returns the reader that the members ask for."""
        return self._chosen(files).planned(sample, files)

    def blocks(
        self, file: InputFile, *, block_bytes: int, limit_rows: int | None
    ) -> Iterator[Block]:
        """Is asked of the planned reader only."""
        _unplanned()

    def read(
        self, file: InputFile, block: Block, columns: Sequence[str]
    ) -> Iterator[RawRows]:
        """Is asked of the planned reader only."""
        _unplanned()

    def _chosen(self, files: Sequence[InputFile]) -> TableReader:
        """Returns the reader for what the members of the first archives are.

        Raises:
          InputError: they are nothing that can be read.
          SpecError: a setting of CSV for other members.
        """
        listed = [self._members(file) for file in files[:_LOOKED_AT]]
        members = [member for some in listed for member in some]
        tables = collections.Counter(table_format(member.name) for member in members)
        del tables[""]
        if all(map(_are_samples, files, listed)):
            self._check_settings("WebDataset")
            return WebDataset(self.zip_encoding, self.max_image_bytes)
        if any(is_image_name(member.name) for member in members):
            self._check_settings("images in archives")
            return ArchiveImages(self.zip_encoding, self.max_image_bytes)
        if not tables:
            shown = ", ".join(shown_name(m.name) for m in members[:3]) or "nothing"
            raise InputError(
                f"Archives must hold images, samples of WebDataset or tables (.csv, "
                f".jsonl, .parquet, .arrow); {files[0].origin!r} holds {shown}. Name "
                f"another one."
            )
        if len(tables) > 1:
            raise InputError(
                f"The tables in archives must be of one format; found "
                f"{', '.join(sorted(tables))}. Take one kind out."
            )
        (name,) = tables
        return ArchiveTables(name, self._inner(name), self.zip_encoding)

    def _members(self, file: InputFile) -> list[Member]:
        encoding = self.zip_encoding or ""
        listing = list_archive(file.path, file.origin, file.stamp, encoding)
        return [member for member in listing.members if not is_litter(member.name)]

    def _inner(self, name: str) -> TableReader:
        module, made = _READERS[name]
        found = getattr(importlib.import_module(f"transforms.formats.{module}"), made)
        if name != "csv":
            self._check_settings(f"{name} in archives", known=("null_values",))
            return found(null_values=self.null_values)
        return found(**self._csv_settings())

    def _csv_settings(self) -> dict[str, Any]:
        return {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name not in _OF_ALL
        }

    def _check_settings(self, what: str, known: Sequence[str] = ()) -> None:
        for field in dataclasses.fields(self):
            given = getattr(self, field.name) != field.default
            if given and field.name not in (*_OF_ALL, *known):
                raise SpecError(f"{field.name} is not for {what}; leave it out.")


def _are_samples(file: InputFile, members: Sequence[Member]) -> bool:
    """Whether this is a tar in which most members share a key with the next."""
    if file.origin.lower().endswith(".zip"):
        return False
    keys = [found[0] for m in members if (found := key_and_column(m.name))]
    shared = sum(a == b for a, b in itertools.pairwise(keys))
    if all(table_format(member.name) for member in members):
        return False
    # At least two members a sample, on the average of those that have a key.
    return bool(shared) and shared * 2 >= len(keys) - 1


def _unplanned() -> NoReturn:
    raise TypeError("a reader of archives is planned before it reads")
