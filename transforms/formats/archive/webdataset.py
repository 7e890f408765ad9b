"""WebDataset: tar shards in which consecutive members with one key form a sample.

    images17/image194.left.jpg   key images17/image194, column left.jpg
    images17/image194.cls        column cls

The key is the path up to the first dot of the base name, the rest is the column, in
lower case. By the column's last part: images stay as they are, `cls` and its like are
integers, `txt` and its like texts, the fields of `json` columns of their own, as those
of JSON lines are (`json/caption`), anything else bytes; nothing is ever unpickled.
Where shards hold images of several suffixes and no sample two of them, they are one
column, `image`.

Source: the manual of webdataset 1.0, "WebDataset Format".
"""

import collections
import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, ClassVar

import numpy as np
import pyarrow as pa

from transforms.core.model import Block, Reason, Rejection, Skipped
from transforms.core.reasons import FaultError
from transforms.core.schema import Feature, Kind
from transforms.errors import InputError, bounded
from transforms.formats.archive.base import RowArchive
from transforms.formats.archive.members import read_member
from transforms.formats.archive.model import Content, Member, MemberFault
from transforms.formats.archive.webdataset_samples import (
    INTEGERS,
    KEY_COLUMN,
    MERGED,
    TEXTS,
    Sample,
    SampleList,
    contents_of,
    is_json,
    is_whole_number,
    key_and_column,
    sample_row,
    samples_of,
    skip_reason,
    type_of_column,
)
from transforms.formats.file_names import is_image_name
from transforms.formats.json_lines.parse import (
    check_names,
    columns_in,
    typed_members,
)
from transforms.formats.json_lines.types import (
    NO_COLUMNS,
    JsonType,
    of_value,
    unknown_member,
)
from transforms.formats.json_lines.types import merged as merged_types
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

_SAMPLE_ROWS = 256
_SAMPLE_BYTES = 64 << 20
_SAMPLE_SHARDS = 16

# A sample, and the content of its members.
_Read = tuple[Sample, list[Content]]


@dataclasses.dataclass(frozen=True, slots=True)
class WebDataset(RowArchive[_Read]):
    """Shards of a WebDataset.

    Attributes:
      merged: suffixes of images that share the column `image`.
      json: the types of the fields of json members, by suffix.
    """

    title: ClassVar[str] = "WebDataset"
    is_numbered: ClassVar[bool] = True

    merged: tuple[str, ...] = ()
    json: JsonType = NO_COLUMNS

    def plan(self, files: Sequence[InputFile]) -> Planned:
        """Lists all shards; samples the first rows of some, spread evenly.

        Raises:
          InputError: there are no samples.
        """
        suffixes: dict[str, None] = {}
        together: set[frozenset[str]] = set()
        total = 0
        step = -(-len(files) // _SAMPLE_SHARDS)
        looked_at = len(files[::step])
        taken: list[_Read] = []
        for index, file in enumerate(files):
            samples = self.listed_rows(file)
            total += len(samples)
            for sample in samples:
                has = frozenset(
                    found[1]
                    for member in sample.members
                    # A member with a fault gives no value; its name may not be text.
                    if member.fault is None and (found := key_and_column(member.name))
                )
                if has not in together:
                    together.add(has)
                    suffixes |= dict.fromkeys(sorted(has))
            if index % step == 0:
                taken += self._first_of(file, samples, looked_at)
        if not total:
            raise InputError(
                f"A WebDataset must hold samples, members like 0001.jpg and 0001.cls; "
                f"{files[0].origin!r} holds none."
            )
        images = [s for s in suffixes if "." not in s and is_image_name(f"x.{s}")]
        alone = all(sum(s in has for s in images) < 2 for has in together)
        merged = tuple(images) if len(images) > 1 and alone else ()
        reader = dataclasses.replace(self, merged=merged)
        read = [row for row in map(reader._row_or_none, taken) if row is not None]
        kinds = {
            suffix: merged_types(of_value(row.get(suffix)) for row in read)
            for suffix in suffixes
            if is_json(suffix)
        }
        kinds = {suffix: kind for suffix, kind in kinds.items() if kind.members}
        reader = dataclasses.replace(
            reader, json=JsonType("object", tuple(kinds.items()))
        )
        check_names(reader.json)
        names = [KEY_COLUMN]
        for suffix in suffixes:
            if suffix in kinds:
                names += sorted(name for name, _ in kinds[suffix].leaves(suffix))
            elif suffix in merged:
                names += [] if MERGED in names else [MERGED]
            elif not is_json(suffix):
                names.append(suffix)
        rows = []
        for row in read:
            with contextlib.suppress(FaultError):
                rows.append(reader._typed(row))
        columns = reader._columns(rows, names)
        table = TableSample(
            columns, len(rows), total_rows=total, complete=len(rows) == total
        )
        return Planned(reader, table, _features_of(columns))

    def listed_rows(self, file: SourceFile) -> SampleList:
        """Returns the samples of a shard."""
        listing = self.listing(file)
        return listing.derived(SampleList, lambda: SampleList(listing.members))

    def skip_reason(self, member: Member) -> Skipped | None:
        """Returns why a member belongs to no sample; None if it belongs to one."""
        return skip_reason(member)

    def read_row(self, stream: BinaryIO, file: SourceFile, row: Sample) -> _Read:
        """Returns a sample and the content of its members."""
        items = (
            read_member(stream, file.origin, self.bounded(member))
            for member in row.members
        )
        return row, contents_of(row, items)

    def rows_in(self, items: Iterator[Content | MemberFault]) -> Iterator[_Read]:
        """Yields the samples of consecutive members."""
        return samples_of(items)

    def contents_in(self, row: _Read) -> Sequence[Content]:
        """Returns the members of a sample that were read."""
        return row[1]

    def raw(
        self,
        rows: Sequence[_Read],
        block: Block,
        columns: Sequence[str],
        skipped: dict[str, int],
    ) -> RawRows:
        """Returns a piece of samples as raw columns."""
        read = {sample.number: contents for sample, contents in rows}
        values: list[dict[str, Any]] = []
        numbers: list[int] = []
        refused: list[Complaint] = []
        for sample, contents in rows:
            try:
                if sample.fault is not None:
                    raise FaultError(*sample.fault)
                values.append(self._typed(sample_row(sample, contents, self.merged)))
                numbers.append(sample.number)
            except FaultError as error:
                text = f"sample {sample.key!r}: {error.fault.message}"
                refused.append((sample.number, error.fault.reason, bounded(text)))

        def rejection(complaint: Complaint) -> Rejection:
            raw = None
            if complaint[1] is not Reason.TOO_MANY_BYTES:
                # Its members, one after the other.
                raw = b"".join(content.data for content in read[complaint[0]])
            return rejection_of(block.origin, complaint, raw)

        return RawRows(
            block,
            self._columns(values, columns),
            np.array(numbers, np.int64),
            refused,
            rejecter(rejection),
            skipped=skipped,
        )

    def _row_or_none(self, read: _Read) -> dict[str, Any] | None:
        """Returns the row of a sample, if it can be one."""
        sample, contents = read
        with contextlib.suppress(FaultError):
            if sample.fault is None:
                return sample_row(sample, contents, self.merged)
        return None

    def _typed(self, row: dict[str, Any]) -> dict[str, Any]:
        """Returns a row whose json is as its types have it; raises FaultError."""
        # Of all members, only those of json are objects.
        stated = {n: value for n, value in row.items() if isinstance(value, dict)}
        if unknown := unknown_member(stated, self.json):
            raise FaultError(
                Reason.MALFORMED,
                f"the fields of json must be those of the samples that were looked at "
                f"first; {unknown!r} is none of them",
            )
        return row | typed_members(stated, self.json)

    def _columns(
        self, rows: Sequence[dict[str, Any]], names: Iterable[str]
    ) -> dict[str, pa.Array]:
        """Returns the columns of typed rows."""
        fields = columns_in(rows, self.json)
        return {
            name: fields[name]
            if name in fields
            else pa.array([row.get(name) for row in rows], type_of_column(name))
            for name in names
        }

    def _first_of(
        self, file: SourceFile, samples: Sequence[Sample], shards: int
    ) -> list[_Read]:
        """Returns the first samples of a shard, one of `shards`, and their content."""
        left = _SAMPLE_BYTES // shards
        rows = 0
        for sample in samples[: max(_SAMPLE_ROWS // shards, 1)]:
            left -= sample.size
            if left < 0 and rows:
                break
            rows += 1
        block = Block(file.origin, 0, rows, rows=rows, stamp=file.stamp)
        return list(self.rows_of(file, block, collections.Counter()))


def _features_of(columns: Mapping[str, pa.Array]) -> tuple[Feature, ...]:
    """Returns the features whose suffix says more than their values do."""
    out = [Feature("key", Kind.TEXT, column=KEY_COLUMN)]
    for name, column in columns.items():
        ending = name.rpartition(".")[2]
        if name == KEY_COLUMN or is_json(name.partition("/")[0]):
            continue
        if name == MERGED or is_image_name(f"x.{ending}"):
            out.append(Feature(name, Kind.IMAGE, inline=True))
        elif ending in INTEGERS:
            whole = all(v is None or is_whole_number(v) for v in column.to_pylist())
            kind = Kind.INT64 if whole else Kind.LABEL
            out.append(Feature(name, kind, is_label=name == "cls"))
        else:
            kind = Kind.TEXT if ending in TEXTS else Kind.BYTES
            out.append(Feature(name, kind))
    return tuple(out)
