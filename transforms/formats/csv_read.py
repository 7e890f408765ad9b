"""A block of a CSV file as typed rows, and the rows that do not fit."""

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.coerce import Coerced, coerce, complaint
from transforms.core.model import Batch, Block, Reason, Rejection
from transforms.core.placement import check_split_name
from transforms.core.schema import Feature, Kind, Schema
from transforms.errors import ConservationError, SourceError, SpecError, bounded
from transforms.formats.csv_dialect import (
    CsvDialect,
    file_encoding,
    is_scannable,
    to_utf8,
    whole_to_utf8,
)
from transforms.formats.csv_records import Records, locate, parse

__all__ = ["read_block"]

# A column with cells that do not fit, and the texts it was made of.
_Misfit = tuple[Feature, pa.Array, Coerced]
# Of a record: its index in the block, the reason, the message.
_Complaint = tuple[int, Reason, str]

_STAGE = "read"
# Enough to recognise a value, little enough for the whole message to fit.
_SHOWN_CHARS = 60


def read_block(
    data: bytes | pa.Buffer,
    block: Block,
    dialect: CsvDialect,
    columns: Sequence[str],
    schema: Schema,
    *,
    split_column: str = "",
) -> tuple[Batch, list[Rejection]]:
    """Returns the rows of a block that fit the schema, and the rest as rejections.

    Only the columns that the schema names, and that of the splits, are looked at. A
    row is rejected for its number of fields, or else for the first feature, in the
    schema's order, that its cell does not fit, or else for its split.

    Args:
      data: the file's bytes from `block.start` to `block.stop`.
      block: as `iter_blocks` gave it.
      dialect: how the file is written.
      columns: the names of all columns of the file.
      schema: the features; those that are derived are left out.
      split_column: the column that names each row's split; empty for none.

    Raises:
      SourceError: the file has no column of a feature's name, or of the splits'.
      ConservationError: the data holds another number of records than the block.
    """
    features = [feature for feature in schema.features if not feature.derived]
    asked = [feature.source_column for feature in features]
    wanted = list(dict.fromkeys([*asked, split_column] if split_column else asked))
    if absent := [name for name in wanted if name not in columns]:
        raise SourceError(
            f"{block.origin} has no column {absent[0]!r}; it has {list(columns)}"
        )
    source = _Source(data, block, dialect)
    records, texts = _texts(source, columns, wanted)
    if len(records) != block.rows:
        raise ConservationError(
            f"{block.origin}, bytes {block.start} to {block.stop}: the scan counted "
            f"{block.rows} records, the parser {len(records)}; the file has perhaps "
            f"changed since it was listed"
        )
    numbers, miscounted = records.indices, records.miscounted
    # The texts are the largest thing here: `texts` alone holds them from now on.
    del records
    arrays: list[pa.Array] = []
    misfits: list[_Misfit] = []
    for feature in features:
        text, undecodable = texts[feature.source_column]
        coerced = coerce(_as_string(text, undecodable), feature)
        arrays.append(coerced.values)
        misfits += _misfits(feature, text, undecodable, coerced)
    splits = None
    if split_column:
        text, undecodable = texts[split_column]
        splits = _as_string(text, undecodable)
        named = Coerced(splits, _no_splits(splits), Reason.BAD_SPLIT)
        misfits += _misfits(Feature(split_column, Kind.TEXT), text, undecodable, named)
    texts.clear()
    rows = pa.RecordBatch.from_arrays(arrays, schema=schema.row_schema)
    complaints: list[_Complaint] = [
        (index, Reason.FIELD_COUNT, _miscount(fields, len(columns)))
        for index, fields in miscounted
    ]
    if misfits:
        blamed = _blamed(misfits, len(numbers))
        complaints += _complaints(source, misfits, blamed, numbers)
        fits = blamed < 0
        rows, numbers = rows.filter(pa.array(fits)), numbers[fits]
        splits = None if splits is None else splits.filter(pa.array(fits))
    batch = Batch(block, rows, numbers + block.first_row, splits=splits)
    return batch, source.rejections(sorted(complaints))


class _Source:
    """The bytes of a block, as they are and as UTF-8."""

    def __init__(
        self, data: bytes | pa.Buffer, block: Block, dialect: CsvDialect
    ) -> None:
        self.block = block
        self.dialect = dialect
        head = bytes(memoryview(data)[:4]) if block.start == 0 else b""
        self.encoding = file_encoding(head, dialect, block.origin)
        self.raw: bytes | pa.Buffer = data
        self.scannable = is_scannable(self.encoding, dialect)
        if self.scannable:
            self.utf8 = data
            if self.encoding != "utf-8":
                self.utf8 = to_utf8(bytes(data), self.encoding)
            return
        # Transcoded whole: the header is inside, and rows past a limit.
        text = whole_to_utf8(bytes(data), self.encoding, block.origin)
        skip = int(dialect.header)
        ends = locate(text, dialect, np.array([skip, skip + block.rows]))
        self.utf8 = self.raw = text[ends.starts[0] : ends.starts[1]]

    def message(self, feature: Feature, cell: pa.Scalar, reason: Reason) -> str:
        """Returns what is wrong with a cell, naming its column and its value."""
        where = f"column {feature.source_column!r} holds "
        value = cell.as_py()
        if isinstance(value, bytes) and reason is not Reason.INVALID_ENCODING:
            value = value.decode()
        if reason is Reason.BAD_SPLIT:
            shown = "nothing" if value is None else repr(_short(value))
            return bounded(
                f"{where}{shown}: not the name of a split (letters, digits, _ and -)"
            )
        if reason is not Reason.INVALID_ENCODING:
            shown = repr(_short(value))
            return bounded(f"{where}{shown}: {complaint(feature, reason)}")
        # Undo `to_utf8`, to show the bytes as they stand in the file.
        lone = "surrogateescape" if self.encoding == "utf-8" else "surrogatepass"
        raw = value.decode("utf-8", lone).encode(self.encoding, "surrogateescape")
        shown = _short(raw.decode(self.encoding, "backslashreplace"))
        return bounded(f"{where}'{shown}': not valid {self.encoding}")

    def rejections(self, complaints: list[_Complaint]) -> list[Rejection]:
        """Returns a rejection for each complaint; they ascend."""
        if not complaints:
            return []
        view = memoryview(self.raw)
        indices = np.array([index for index, _, _ in complaints], np.int64)
        places = locate(self.raw, self.dialect, indices)
        out = []
        for (index, reason, message), start, stop, lines in zip(
            complaints,
            places.starts.tolist(),
            places.stops.tolist(),
            places.lines.tolist(),
            strict=True,
        ):
            record = bytes(view[start:stop]).rstrip(b"\r\n")
            if not self.scannable:
                record = record.decode().encode(self.encoding)
            out.append(
                Rejection(
                    source=self.block.origin,
                    row=self.block.first_row + index + 1,
                    line=self.block.first_line + lines,
                    stage=_STAGE,
                    reason=reason,
                    message=message,
                    sha256=hashlib.sha256(record).hexdigest(),
                )
            )
        return out


def _texts(
    source: _Source, columns: Sequence[str], wanted: Sequence[str]
) -> tuple[Records, dict[str, tuple[pa.Array, npt.NDArray[np.bool_] | None]]]:
    """Returns the records, and each column with a mask of what is not valid text."""
    try:
        records = parse(source.utf8, columns, wanted, source.dialect)
    except pa.ArrowInvalid:
        records = parse(
            source.utf8, columns, wanted, source.dialect, as_type=pa.binary()
        )
        masks = [_undecodable(column) for column in records.columns]
        return records, dict(
            zip(wanted, zip(records.columns, masks, strict=True), strict=True)
        )
    return records, {
        name: (column, None)
        for name, column in zip(wanted, records.columns, strict=True)
    }


def _undecodable(column: pa.Array) -> npt.NDArray[np.bool_] | None:
    """Returns which cells of a binary column are not valid UTF-8; None for none."""
    try:
        column.cast(pa.string())
    except pa.ArrowInvalid:
        pass
    else:
        return None
    # A view is not checked; nor does the question need it to be.
    plain = pc.fill_null(pc.string_is_ascii(column.view(pa.string())), True)
    bad = np.zeros(len(column), np.bool_)
    for index in np.flatnonzero(~plain.to_numpy(zero_copy_only=False)).tolist():
        try:
            column[index].as_py().decode("utf-8")
        except UnicodeDecodeError:
            bad[index] = True
    return bad


def _as_string(text: pa.Array, undecodable: npt.NDArray[np.bool_] | None) -> pa.Array:
    if undecodable is not None:
        text = pc.if_else(pa.array(undecodable), pa.scalar(None, text.type), text)
    return text.cast(pa.string())


def _misfits(
    feature: Feature,
    text: pa.Array,
    undecodable: npt.NDArray[np.bool_] | None,
    coerced: Coerced,
) -> list[_Misfit]:
    """Returns what is wrong in a column, what is no text at all first."""
    found = []
    if undecodable is not None:
        unread = Coerced(text, undecodable, Reason.INVALID_ENCODING)
        found.append((feature, text, unread))
    if coerced.bad is not None:
        found.append((feature, text, coerced))
    return found


def _no_splits(splits: pa.StringArray) -> npt.NDArray[np.bool_] | None:
    """Returns which cells cannot name a split; None for none."""
    wrong = []
    for name in pc.unique(splits).to_pylist():
        try:
            check_split_name(name or "")
        except SpecError:
            wrong.append(name)
    if not wrong:
        return None
    bad = pc.is_in(splits, value_set=pa.array(wrong, pa.string()))
    return np.asarray(bad.to_numpy(zero_copy_only=False), np.bool_)


def _blamed(misfits: list[_Misfit], count: int) -> npt.NDArray[np.int64]:
    """Returns for each row the first misfit that is true of it, or -1."""
    blamed = np.full(count, -1, np.int64)
    for index in reversed(range(len(misfits))):
        blamed[misfits[index][2].bad] = index
    return blamed


def _complaints(
    source: _Source,
    misfits: list[_Misfit],
    blamed: npt.NDArray[np.int64],
    numbers: npt.NDArray[np.int64],
) -> list[_Complaint]:
    """Returns a complaint for each row with a cell to blame."""
    found = []
    for position in np.flatnonzero(blamed >= 0).tolist():
        feature, text, coerced = misfits[blamed[position]]
        reason = coerced.reason_at(position)
        message = source.message(feature, text[position], reason)
        found.append((int(numbers[position]), reason, message))
    return found


def _miscount(found: int, expected: int) -> str:
    fields = "1 field" if found == 1 else f"{found} fields"
    return f"row has {fields}, {expected} expected"


def _short(value: str) -> str:
    return value if len(value) <= _SHOWN_CHARS else value[: _SHOWN_CHARS - 3] + "..."
