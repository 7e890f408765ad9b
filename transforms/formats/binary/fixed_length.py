"""Files of fixed-length records.

Names of classes are in a file beside the data, one a line,
the first of id 0; a label that they do not cover is a reject.
"""

import abc
import dataclasses
import os
from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from transforms import files
from transforms.core.model import Block
from transforms.errors import InputError
from transforms.formats.binary.class_names import Names, read_names, same_names
from transforms.formats.binary.columns import features_of
from transforms.formats.binary.layout import Layout
from transforms.formats.binary.record_rows import (
    blocks_of,
    raw_rows,
    sample_of,
    sample_places,
)
from transforms.formats.table import (
    InputFile,
    Planned,
    RawRows,
    SourceFile,
    TableReader,
)

__all__ = [
    "Recognised",
    "RecordsReader",
]


@dataclasses.dataclass(frozen=True, slots=True)
class Recognised:
    """Binary format found in a source: its reader, and the files that belong to it.

    Attributes:
      reader: reads them.
      inputs: the relative paths of its inputs, in the order they were listed.
      companions: and of files that are read along with those.
    """

    reader: TableReader
    inputs: tuple[str, ...]
    companions: tuple[str, ...] = ()


class RecordsReader(TableReader):
    """Reads records of one length; which, the formats say.

    Attributes:
      names_required: whether a file of class names that a field speaks of must exist.
    """

    names_required: ClassVar[bool] = True

    @property
    @abc.abstractmethod
    def records(self) -> Layout:
        """How the records are laid out."""

    def plan(self, files: Sequence[InputFile]) -> Planned:
        """Samples up to 1,024 records, evenly; the layout says all of the features.

        Raises:
          InputError: a file's size is not the layout's, the files of class names are
            missing, differ or are too short.
        """
        layout = self.records
        counts = [_count(layout, file) for file in files]
        names = self._shared_names(files)
        blocks: list[RawRows] = []
        wanted = [field.name for field in layout.fields]
        for file, places in zip(files, sample_places(counts, layout.size), strict=True):
            if len(places):
                data = _gather(file, layout, places)
                self._check_names(layout, data, names, file)
                block = Block(file.origin, 0, 0, rows=len(places))
                blocks.append(self._rows(block, data, wanted, names))
        sample = sample_of(blocks, wanted, total_rows=sum(counts))
        return Planned(self, sample, features_of(layout.fields, names))

    def blocks(
        self, file: InputFile, *, block_bytes: int, limit_rows: int | None
    ) -> Iterator[Block]:
        """Yields blocks of whole records; InputError if the size is not the layout's.

        `start` and `stop` are byte offsets.
        """
        layout = self.records
        count = _count(layout, file)
        if limit_rows is not None:
            count = min(count, limit_rows)
        yield from blocks_of(
            file,
            count,
            header_bytes=layout.header_bytes,
            record_bytes=layout.size,
            block_bytes=block_bytes,
        )

    def read(
        self, file: SourceFile, block: Block, columns: Sequence[str]
    ) -> Iterator[RawRows]:
        """Yields the records of a block; raises OSError, InputError."""
        data = files.read_range(file.path, block.start, block.stop, stamp=block.stamp)
        names = self._names(os.path.dirname(file.path))
        yield self._rows(block, data, columns, names)

    def _rows(
        self, block: Block, data: bytes, columns: Sequence[str], names: Names
    ) -> RawRows:
        layout = self.records
        view = memoryview(data)

        def record(number: int) -> memoryview:
            start = (number - block.first_row) * layout.size
            return view[start : start + layout.size]

        return raw_rows(
            block, layout.fields, layout.views(data), columns, names, record
        )

    def _names(self, folder: str) -> Names:
        out = {}
        for field in self.records.fields:
            path = os.path.join(folder, field.classes)
            if field.classes and (self.names_required or files.exists(path)):
                out[field.name] = read_names(path)
        return out

    def _shared_names(self, files: Sequence[InputFile]) -> Names:
        folders = dict.fromkeys(os.path.dirname(file.path) for file in files)
        return same_names([(folder, self._names(folder)) for folder in folders])

    def _check_names(
        self, layout: Layout, data: bytes, names: Names, file: InputFile
    ) -> None:
        """Raises InputError where labels go on after the last name.

        A label that the format itself does not know is a damaged record instead.
        """
        views = layout.views(data)
        for field in layout.fields:
            known = len(names.get(field.name, ()))
            if not known < field.class_count or field.name not in names:
                continue
            ids = views[field.name]
            beyond = ids[(ids >= known) & (ids < field.class_count)]
            if beyond.size:
                raise InputError(
                    f"{field.classes!r} must name every class in the order of the ids; "
                    f"it has {known} names, and {file.origin} has records with "
                    f"{field.name!r} {int(beyond.max())}. Add the missing names."
                )


def _count(layout: Layout, file: InputFile) -> int:
    """Returns how many records a file holds; raises InputError (fault row 133)."""
    body = file.size - layout.header_bytes
    count, rest = divmod(body, layout.size)
    if body < 0 or rest:
        found = "shorter than the header" if body < 0 else f"{rest} bytes too many"
        raise InputError(
            f"A file of {layout.header_bytes} header bytes and records of "
            f"{layout.size} bytes has a size to match; {file.origin} has {file.size} "
            f"bytes: {count if body >= 0 else 0} records, {found}. It is cut off, "
            f"compressed, or laid out differently."
        )
    return count


def _gather(file: InputFile, layout: Layout, places: npt.NDArray[np.int64]) -> bytes:
    """Returns chosen records of a file; raises InputError."""
    out = []
    try:
        with file.open() as stream:
            for place in places.tolist():
                stream.seek(layout.header_bytes + place * layout.size)
                out.append(stream.read(layout.size))
    except OSError as error:
        raise InputError(
            f"Every file of the source must be readable; {file.origin} is not: "
            f"{error.strerror or error}."
        ) from error
    if any(len(record) < layout.size for record in out):
        raise InputError(
            f"Every file of the source must stay as it is; {file.origin} has become "
            f"shorter than {file.size} bytes. Run again."
        )
    return b"".join(out)
