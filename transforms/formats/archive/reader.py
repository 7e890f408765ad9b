"""Archives of rows: the members decide which reader is used.

tar shards whose members come in samples, 0001.jpg and 0001.cls   WebDataset
members that are images                                           ArchiveImages
members that are tables                                           ArchiveTables
"""

import collections
import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

from transforms.errors import InputError, SpecError
from transforms.formats.archive.archives import Archives
from transforms.formats.archive.images import ArchiveImages
from transforms.formats.archive.members import is_litter, shown_name
from transforms.formats.archive.tables import ArchiveTables
from transforms.formats.archive.webdataset import WebDataset, key_and_column
from transforms.formats.file_names import is_image_name
from transforms.formats.registry import TABLE_FORMATS, table_format
from transforms.formats.table import (
    InputFile,
    Planned,
    TableFormat,
    TableReader,
)

# Archives that are opened to decide what a source contains.
_LOOKED_AT = 2


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
        if parsed := key_and_column(name):
            count += 1
            shared += parsed[0] == key
            key = parsed[0]
    # At least two members a sample, on the average of those that have a key.
    return not are_tables and bool(shared) and shared * 2 >= count - 1
