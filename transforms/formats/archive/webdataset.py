"""WebDataset: tar shards in which consecutive members with one key form a sample.

    images17/image194.left.jpg   key images17/image194, column left.jpg
    images17/image194.cls        column cls

The key is the path up to the first dot of the base name, the rest is the column, in
lower case. By the column's last part: images stay as they are, `cls` and its like are
integers, `txt` and its like texts, the fields of `json` columns of their own
(`json/caption`), anything else bytes; nothing is ever unpickled. Where shards hold
images of several suffixes and no sample two of them, they are one column, `image`.

Source: the manual of webdataset 1.0, "WebDataset Format".
"""

import collections
import dataclasses
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, ClassVar

import numpy as np
import pyarrow as pa

from transforms.core.model import Block, Reason, Rejection, Skipped
from transforms.core.reasons import FaultError
from transforms.core.schema import Feature, Kind
from transforms.errors import InputError, bounded
from transforms.formats.archive.base import RowArchive
from transforms.formats.archive.members import list_archive, read_member
from transforms.formats.archive.model import Content, Member, MemberFault
from transforms.formats.archive.webdataset_samples import (
    INTEGERS,
    JSON,
    KEY_COLUMN,
    MERGED,
    TEXTS,
    Sample,
    SampleList,
    contents_of,
    is_whole_number,
    json_types,
    key_and_column,
    sample_row,
    samples_of,
    skip_reason,
    type_of_column,
)
from transforms.formats.file_names import is_image_name
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


# Asked for every block of an archive: see `list_archive`.
@functools.lru_cache(maxsize=2)
def _samples_in(path: str, origin: str, stamp: int, encoding: str) -> SampleList:
    return SampleList(list_archive(path, origin, stamp, encoding).members)


@dataclasses.dataclass(frozen=True, slots=True)
class WebDataset(RowArchive[_Read]):
    """Shards of a WebDataset.

    Attributes:
      merged: suffixes of images that share the column `image`.
      json_columns: fields of json members, and their Arrow types.
    """

    title: ClassVar[str] = "WebDataset"
    is_numbered: ClassVar[bool] = True

    merged: tuple[str, ...] = ()
    json_columns: tuple[tuple[str, pa.DataType], ...] = ()

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
        rows = list(_rows_of(taken, merged))
        names = [KEY_COLUMN]
        types: list[tuple[str, pa.DataType]] = []
        for suffix in suffixes:
            if suffix.rpartition(".")[2] in JSON:
                types += json_types(suffix, rows)
                names += [name for name, _ in types if name not in names]
            elif suffix in merged:
                names += [] if MERGED in names else [MERGED]
            else:
                names.append(suffix)
        reader = dataclasses.replace(self, merged=merged, json_columns=tuple(types))
        columns, _ = reader._arrays(rows, names)
        table = TableSample(
            columns, len(rows), total_rows=total, complete=len(rows) == total
        )
        return Planned(reader, table, _features_of(columns))

    def listed_rows(self, file: SourceFile) -> SampleList:
        """Returns the samples of a shard."""
        return _samples_in(file.path, file.origin, file.stamp, self.zip_encoding or "")

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
        json_names = {name for name, _ in self.json_columns}
        for sample, contents in rows:
            try:
                if sample.fault is not None:
                    raise FaultError(*sample.fault)
                row = sample_row(sample, contents, self.merged)
                unknown = sorted(k for k in row if "/" in k and k not in json_names)
                if unknown:
                    raise FaultError(
                        Reason.MALFORMED,
                        f"the fields of json must be those of the samples that were "
                        f"looked at first; {unknown[0]!r} is none of them",
                    )
            except FaultError as error:
                text = f"sample {sample.key!r}: {error.fault.message}"
                refused.append((sample.number, error.fault.reason, bounded(text)))
                continue
            values.append(row)
            numbers.append(sample.number)
        arrays, wrong = self._arrays(values, columns)
        for place, message in wrong.items():
            text = f"sample {values[place][KEY_COLUMN]!r}: {message}"
            refused.append((numbers[place], Reason.WRONG_TYPE, bounded(text)))
        if wrong:
            keep = np.ones(len(values), bool)
            keep[list(wrong)] = False
            arrays = {k: v.filter(pa.array(keep)) for k, v in arrays.items()}
            numbers = [n for n, kept in zip(numbers, keep, strict=True) if kept]

        def rejection(complaint: Complaint) -> Rejection:
            raw = None
            if complaint[1] is not Reason.TOO_MANY_BYTES:
                # Its members, one after the other.
                raw = b"".join(content.data for content in read[complaint[0]])
            return rejection_of(block.origin, complaint, raw)

        return RawRows(
            block,
            arrays,
            np.array(numbers, np.int64),
            refused,
            rejecter(rejection),
            skipped=skipped,
        )

    def _arrays(
        self, rows: Sequence[Mapping[str, Any]], columns: Iterable[str]
    ) -> tuple[dict[str, pa.Array], dict[int, str]]:
        """Returns the columns, and by place why a row does not fit its json types."""
        types = dict(self.json_columns)
        wrong: dict[int, str] = {}
        arrays = {}
        for name in columns:
            values = [row.get(name) for row in rows]
            kind = types.get(name) or type_of_column(name)
            try:
                arrays[name] = pa.array(values, kind)
            except (pa.ArrowException, OverflowError):
                for place, value in enumerate(values):
                    try:
                        pa.array([value], kind)
                    except (pa.ArrowException, OverflowError):
                        shown = repr(value)[:60]
                        found = f"{name} holds {shown}, which is no {kind}"
                        wrong.setdefault(place, found)
                        values[place] = None
                arrays[name] = pa.array(values, kind)
        return arrays, wrong

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


def _rows_of(taken: Sequence[_Read], merged: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yields the rows of the samples that can be read."""
    for sample, contents in taken:
        if sample.fault is None:
            try:
                row = sample_row(sample, contents, merged)
            except FaultError:
                continue
            yield row


def _features_of(columns: Mapping[str, pa.Array]) -> tuple[Feature, ...]:
    """Returns the features whose suffix says more than their values do."""
    out = [Feature("key", Kind.TEXT, column=KEY_COLUMN)]
    for name, column in columns.items():
        ending = name.rpartition(".")[2]
        if name == KEY_COLUMN or name.partition("/")[0].rpartition(".")[2] in JSON:
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
