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
import dataclasses
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from transforms.core.model import Block
from transforms.core.reasons import FaultError, Reason, Rejection, Skipped
from transforms.core.schema import Feature, Kind
from transforms.errors import InputError, bounded
from transforms.formats.archive.members import Member, Row
from transforms.formats.archive.row_archives import RowArchive
from transforms.formats.file_names import is_image_name
from transforms.formats.json_lines.values import (
    NO_COLUMNS,
    JsonType,
    columns_in,
    object_of,
    of_value,
    parse_value,
    typed_members,
    without_faults,
)
from transforms.formats.json_lines.values import merged as merged_types
from transforms.formats.raw_rows import Complaint, RawRows, rejecter, rejection_of
from transforms.formats.registry import table_format
from transforms.formats.table import InputFile, Planned, SourceFile, TableSample

_SAMPLE_ROWS = 256
_SAMPLE_BYTES = 64 << 20
_SAMPLE_SHARDS = 16
_KEY = "__key__"
# The column of images of several suffixes.
_MERGED = "image"
# Last parts of columns, as webdataset's own decoder takes them.
_INTEGERS = frozenset("cls cls2 class count index inx id".split())
_TEXTS = frozenset("txt text transcript caption".split())
_JSON = frozenset("json jsn".split())
_NAME = re.compile(r"((?:.*/)?[^./]+)\.([^/]*)", re.DOTALL)


def key_and_column(name: str) -> tuple[str, str]:
    """Returns the key and the column of a member's name; no texts without a suffix."""
    match = _NAME.fullmatch(name)
    return (match[1], match[2].lower()) if match and match[2] else ("", "")


@dataclasses.dataclass(frozen=True, slots=True)
class WebDataset(RowArchive):
    """Shards of a WebDataset.

    Attributes:
      merged: suffixes of images that share the column `image`.
      json: the types of the fields of json members, by suffix.
    """

    title: ClassVar[str] = "WebDataset"
    is_numbered: ClassVar[bool] = True

    merged: tuple[str, ...] = ()
    json: JsonType = NO_COLUMNS

    @staticmethod
    def skip_reason(member: Member) -> Skipped | None:
        """Returns why a member belongs to no sample; None if it belongs to one."""
        if member.is_hidden:
            return Skipped.HIDDEN
        return None if any(key_and_column(member.name)) else Skipped.OTHER_SUFFIX

    @staticmethod
    def key_of(member: Member) -> str:
        """Returns the key of the sample that a member belongs to."""
        return key_and_column(member.name)[0]

    def plan(self, files: Sequence[InputFile]) -> Planned:
        """Lists all shards; samples the first rows of some, spread evenly.

        Raises:
          InputError: there are no samples.
        """
        together: dict[frozenset[str], None] = {}
        total = 0
        step = -(-len(files) // _SAMPLE_SHARDS)
        taken: list[Row] = []
        for index, file in enumerate(files):
            samples = self.listed_rows(file)
            total += len(samples)
            together |= dict.fromkeys(frozenset(_columns_of(row)) for row in samples)
            if index % step == 0:
                taken += self._first_of(file, len(files[::step]))
        if not total:
            raise InputError(
                f"A WebDataset must hold samples, members like 0001.jpg and 0001.cls; "
                f"{files[0].origin!r} holds none."
            )
        suffixes = dict.fromkeys(suffix for has in together for suffix in sorted(has))
        images = [s for s in suffixes if "." not in s and is_image_name(f"x.{s}")]
        alone = all(sum(s in has for s in images) < 2 for has in together)
        merged = tuple(images) if len(images) > 1 and alone else ()
        read = [*without_faults(lambda sample: _values(sample, merged), taken)]
        kinds = {
            suffix: merged_types(of_value(row.get(suffix)) for row in read)
            for suffix in suffixes
            if _ending(suffix) in _JSON
        }
        kinds = {suffix: kind for suffix, kind in kinds.items() if kind.members}
        fields = object_of(kinds).columns(files[0].origin)
        reader = dataclasses.replace(self, merged=merged, json=object_of(kinds))
        names = dict.fromkeys([_KEY])
        for suffix in suffixes:
            if suffix in kinds:
                own = (name for name in fields if name.startswith(f"{suffix}/"))
                names |= dict.fromkeys(sorted(own))
            elif _ending(suffix) not in _JSON:
                names[_MERGED if suffix in merged else suffix] = None
        rows = [*without_faults(reader._typed, read)]
        columns = reader._columns(rows, names)
        table = TableSample(
            columns, len(rows), total_rows=total, complete=len(rows) == total
        )
        return Planned(reader, table, _features_of(columns))

    def raw(self, rows: Sequence[Row], block: Block, columns: Sequence[str]) -> RawRows:
        """Returns a piece of samples as raw columns."""
        samples = {sample.number: sample for sample in rows}
        values: list[dict[str, Any]] = []
        numbers: list[int] = []
        refused: list[Complaint] = []
        for sample in rows:
            try:
                values.append(self._typed(_values(sample, self.merged)))
                numbers.append(sample.number)
            except FaultError as error:
                text = f"sample {sample.key!r}: {error.fault.message}"
                refused.append((sample.number, error.fault.reason, bounded(text)))

        def rejection(complaint: Complaint) -> Rejection:
            raw = None
            if complaint[1] is not Reason.TOO_MANY_BYTES:
                # Its members, one after the other.
                raw = b"".join(data or b"" for _, data in samples[complaint[0]].items)
            return rejection_of(block.origin, complaint, raw)

        return RawRows(
            block,
            self._columns(values, columns),
            np.array(numbers, np.int64),
            refused,
            rejecter(rejection),
        )

    def _typed(self, row: dict[str, Any]) -> dict[str, Any]:
        """Returns a row whose json is as its types have it; raises FaultError."""
        # Of all members, only those of json are objects.
        stated = {n: value for n, value in row.items() if isinstance(value, dict)}
        if unknown := next(_unknown_members(stated, self.json), None):
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
        texts = _INTEGERS | _TEXTS | {_KEY}
        return {
            name: fields[name]
            if name in fields
            else pa.array(
                [row.get(name) for row in rows],
                pa.string() if _ending(name) in texts else pa.large_binary(),
            )
            for name in names
        }

    def _first_of(self, file: SourceFile, shards: int) -> list[Row]:
        """Returns the first samples of a shard, one of `shards`, as they are read."""
        left = _SAMPLE_BYTES // shards
        most = max(_SAMPLE_ROWS // shards, 1)
        rows = 0
        for sample in itertools.islice(self.listed_rows(file), most):
            left -= sample.size
            if left < 0 and rows:
                break
            rows += 1
        block = Block(file.origin, 0, rows, rows=rows, stamp=file.stamp)
        with self.opened(file) as archive:
            return [*self.rows_of(archive, file, block, collections.Counter())]


def _columns_of(sample: Row) -> Iterator[str]:
    """Yields the columns of a sample; what cannot be read may have a name of none."""
    for member in sample.members:
        _, column = key_and_column(member.name)
        if column and member.reason in (None, Reason.TOO_MANY_BYTES):
            yield column


def _values(sample: Row, merged: Sequence[str]) -> dict[str, Any]:
    """Returns the values of a sample by column.

    Args:
      sample: as it was read.
      merged: suffixes of images that share the column `image`.

    Raises:
      FaultError: it cannot be a row.
    """
    if sample.is_repeated:
        raise FaultError(
            Reason.DUPLICATE_NAME,
            "the members of a sample must stand in a row; its key came before",
        )
    for member, _ in sample.items:
        if member.fault:
            raise FaultError(*member.fault)
    row: dict[str, Any] = {_KEY: sample.key}
    for member, data in sample.items:
        _, name = key_and_column(member.name)
        assert data is not None
        name = _MERGED if name in merged else name
        if name in row:
            raise FaultError(
                Reason.DUPLICATE_NAME,
                f"the members of a sample must have different suffixes; two are "
                f"{name!r}",
            )
        ending = _ending(name)
        if ending in _JSON:
            row[name] = _json_of(name, data)
        elif ending in _INTEGERS:
            row[name] = _text(name, data).strip()
        else:
            row[name] = _text(name, data) if ending in _TEXTS else data
    return row


def _ending(column: str) -> str:
    """Returns the last part of a column, which says what its values are."""
    return column.rpartition(".")[2]


def _text(name: str, data: bytes) -> str:
    """Returns a member's content as text; FaultError where it is not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise FaultError(
            Reason.INVALID_ENCODING, f"{name} must be UTF-8; it is not ({error})"
        ) from error


def _json_of(name: str, data: bytes) -> dict[str, Any]:
    """Returns the object of a json member; what is no object is its `value`."""
    try:
        value = parse_value(data)
    except FaultError as error:
        reason, message = error.fault
        raise FaultError(reason, f"{name} must be one JSON value; {message}") from error
    return value if isinstance(value, dict) else {"value": value}


def _features_of(columns: Mapping[str, pa.Array]) -> tuple[Feature, ...]:
    """Returns the features whose suffix says more than their values do."""
    out = [Feature("key", Kind.TEXT, column=_KEY)]
    for name, column in columns.items():
        ending = _ending(name)
        if name == _KEY or _ending(name.partition("/")[0]) in _JSON:
            continue
        if name == _MERGED or is_image_name(f"x.{ending}"):
            out.append(Feature(name, Kind.IMAGE, inline=True))
        elif ending in _INTEGERS:
            texts = column.drop_null().to_pylist()
            whole = all(re.fullmatch(r"[+-]?\d+", text) for text in texts)
            kind = Kind.INT64 if whole else Kind.LABEL
            out.append(Feature(name, kind, is_label=name == "cls"))
        else:
            kind = Kind.TEXT if ending in _TEXTS else Kind.BYTES
            out.append(Feature(name, kind))
    return tuple(out)


def _unknown_members(value: Any, kind: JsonType, path: str = "") -> Iterator[str]:
    """Yields the members in a value that its type does not have."""
    # A list in a column of several types is text, whatever its members are.
    if isinstance(value, list) and kind.name == "list" and kind.item:
        for item in value if kind.item.members else ():
            yield from _unknown_members(item, kind.item, path)
    elif isinstance(value, dict) and kind.name == "object":
        members = dict(kind.members)
        for name, item in value.items():
            if name not in members:
                yield f"{path}{name}"
            # Most are numbers and texts, and are not worth a call.
            elif isinstance(item, dict | list):
                yield from _unknown_members(item, members[name], f"{path}{name}/")


def are_samples(file: InputFile, names: Iterable[str]) -> bool:
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
