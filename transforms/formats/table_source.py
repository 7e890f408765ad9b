"""The files of a table format as a source: typing, rejects, splits, keys and groups.

The listing of the files is one Arrow IPC file, in source order:

    path      string  relative to the root
    size      int64   bytes
    position  int64   bytes of the files before it
    stamp     int64   of the file as it was listed; see `transforms.files.stamp`
"""

import dataclasses
import hashlib
import json
import os
import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.model import Batch, Block, Reading, Reason, Rejection, Skipped
from transforms.core.placing.placement import is_split_name
from transforms.core.rows.conform import Misfit, conform
from transforms.core.rows.record_columns import count_parts
from transforms.core.schema import Feature, Kind, Schema
from transforms.errors import bounded
from transforms.formats.source import Source
from transforms.formats.table import (
    STAGE,
    Complaint,
    InputFile,
    RawRows,
    TableReader,
    unreadable,
)

__all__ = ["BY_SHARES", "DISCARD", "TableSource", "listing_of"]

# Values of `TableSource.split_words` beside names of splits.
BY_SHARES = ""
DISCARD = "/discard"


def listing_of(files: Sequence[InputFile]) -> pa.Table:
    """Returns the listing as drawn in the module's docstring."""
    return pa.table(
        {
            "path": pa.array([file.origin for file in files], pa.string()),
            "size": pa.array([file.size for file in files], pa.int64()),
            "position": pa.array([file.position for file in files], pa.int64()),
            "stamp": pa.array([file.stamp for file in files], pa.int64()),
        }
    )


@dataclasses.dataclass(frozen=True, slots=True)
class TableSource(Source):
    """The files of one table format under a listing.

    Attributes:
      reader: of the format.
      root: folder that the listing's paths are relative to.
      listing: path of the Arrow IPC file.
      schema: the features.
      images_root: folder that paths of images are relative to, itself relative to
        `root` or absolute; empty for that of the file that names them.
      split_column: the column that says each row's split; empty for none.
      split_words: what its values mean where they are no names of splits: a name,
        `BY_SHARES` or `DISCARD`.
      default_split: of files whose name says none, where those of others do; empty
        where none does.
      key_column: the column that says each row's identity; empty for none.
      group_column: rows of one value in it share a split; empty for none.
      block_bytes: least size of a block.
      limit: read so many rows, the first in source order; None for all.
    """

    reader: TableReader
    root: str
    listing: str
    schema: Schema
    images_root: str = ""
    split_column: str = ""
    split_words: Mapping[str, str] = dataclasses.field(default_factory=dict)
    default_split: str = ""
    key_column: str = ""
    group_column: str = ""
    block_bytes: int = 16 << 20
    limit: int | None = None

    @property
    def many_origins(self) -> bool:  # type: ignore[override]
        """Whether batches carry each row's own origin."""
        return self.reader.many_origins

    def inputs(self) -> Iterator[int]:
        """Yields each file; with a limit, all files are one input."""
        yield from range(1 if self.limit is not None else self._files().num_rows)

    def blocks(self, number: int) -> Iterator[Block]:
        """Yields the blocks of a file; raises SourceError where it is no such table."""
        table = self._files()
        if self.limit is None:
            yield from self._blocks_of(table, number, None)
            return
        left = self.limit
        for index in range(table.num_rows):
            for block in self._blocks_of(table, index, left):
                left -= block.rows
                yield block
            if left <= 0:
                return

    def read(self, block: Block) -> Iterator[Reading]:
        """Yields the rows of a block that fit the schema, and the rest."""
        path = os.path.join(self.root, block.origin)
        file = InputFile(block.origin, path, 0, stamp=block.stamp)
        try:
            for raw in self.reader.read(file, block, self._wanted):
                reading = self.reading(raw)
                # The raw rows would take their memory until the next ones are read.
                del raw
                yield reading
        except OSError as error:
            raise unreadable(path, error) from error

    @property
    def _wanted(self) -> list[str]:
        names = [
            feature.source_column
            for feature in self.schema.features
            if not feature.derived
            and feature.constant is None
            and not (feature.pattern and not feature.column)
        ]
        extra = [self._splits_by, self.key_column, self.group_column]
        return list(dict.fromkeys([*names, *filter(None, extra)]))

    @property
    def _splits_by(self) -> str:
        return self.split_column or self.reader.split_column

    def _files(self) -> pa.Table:
        with pa.memory_map(self.listing) as source:
            return pa.ipc.open_file(source).read_all()

    def _blocks_of(
        self, table: pa.Table, index: int, limit: int | None
    ) -> Iterator[Block]:
        origin = table["path"][index].as_py()
        path = os.path.join(self.root, origin)
        file = InputFile(
            origin,
            path,
            table["size"][index].as_py(),
            table["position"][index].as_py(),
            table["stamp"][index].as_py(),
        )
        try:
            yield from self.reader.blocks(
                file, block_bytes=self.block_bytes, limit_rows=limit
            )
        except OSError as error:
            raise unreadable(path, error) from error

    def reading(self, raw: RawRows) -> Reading:
        """Returns the typed rows of raw ones, and those that do not fit."""
        count = len(raw.numbers)
        origins = raw.block.origin if raw.origins is None else raw.origins
        rows, misfits = conform(
            raw.columns,
            self.schema,
            count,
            origins,
            texts_checked=self.reader.texts_checked,
        )
        if self.reader.image_base == "file":
            folder = self.images_root or posixpath.dirname(raw.block.origin)
            rows = _based(rows, self.schema, folder)
        splits, discarded = None, None
        if self._splits_by:
            column = raw.columns[self._splits_by]
            splits, discarded, wrong = self._splits(column)
            if wrong is not None:
                misfits.append(wrong)
        elif name := self.reader.split_of(raw.block.origin) or self.default_split:
            splits = pa.repeat(pa.scalar(name, pa.string()), count)
        keys = self._texts(raw, self.key_column, misfits)
        groups = self._texts(raw, self.group_column, misfits)
        blamed = _blamed(misfits, count)
        if discarded is not None:
            blamed[discarded] = -2
        complaints = [
            *raw.refused,
            *_complaints(
                misfits, blamed, raw.numbers if raw.places is None else raw.places
            ),
        ]
        keep = blamed == -1
        skipped = dict(raw.skipped)
        if discarded is not None and discarded.any():
            skipped[str(Skipped.DISCARDED)] = int(discarded.sum())
        reject = raw.reject or reject_typed(raw.block, raw.numbers, raw.columns)
        rejections = reject(sorted(complaints)) if complaints else []
        parts, gone, bad_parts = self._parts(raw, rows, keep)
        batch = Batch(
            raw.block,
            rows,
            raw.numbers,
            origins=raw.origins,
            splits=splits,
            keys=keys,
            groups=groups,
        )
        if not keep.all():
            batch = batch.filter(keep)
        return Reading(
            batch,
            [*rejections, *bad_parts],
            skipped,
            parts,
            gone,
        )

    def _parts(
        self, raw: RawRows, rows: pa.RecordBatch, keep: npt.NDArray[np.bool_]
    ) -> tuple[dict[str, int], dict[str, int], Sequence[Rejection]]:
        """Returns the parts of all rows, those of rows not kept, and bad ones.

        Formats that judge no boxes state none: theirs are counted as they are.
        """
        if not self.schema.of_kind(Kind.BOX):
            return {}, {}, ()
        if not raw.parts:
            gone = rows.filter(pa.array(~keep))
            features = self.schema.features
            return count_parts(rows, features), count_parts(gone, features), ()
        lost = dict(raw.parts_gone)
        for part, each in raw.parts_each.items():
            lost[part] = lost.get(part, 0) + int(each[~keep].sum())
        return dict(raw.parts), lost, raw.part_rejections

    def _splits(
        self, column: pa.Array
    ) -> tuple[pa.StringArray, npt.NDArray[np.bool_] | None, Misfit | None]:
        """Returns each row's split, which rows to leave out, and which name none."""
        encoded = column.cast(pa.string()).dictionary_encode()
        names: list[str | None] = []
        wrong: list[bool] = []
        out: list[bool] = []
        for text in encoded.dictionary.to_pylist():
            meant = self.split_words.get(text, text)
            names.append(meant or None)
            out.append(meant == DISCARD)
            wrong.append(bool(meant) and meant != DISCARD and not is_split_name(meant))
            if not text and text not in self.split_words:
                wrong[-1] = True
        indices = encoded.indices
        splits = pa.array(names, pa.string()).take(indices)
        bad = _chosen(wrong, indices, when_null=BY_SHARES not in self.split_words)
        discarded = _chosen(out, indices, when_null=False)
        if bad.any():
            feature = Feature(self._splits_by, Kind.TEXT)
            misfit = Misfit(feature, column, bad, Reason.BAD_SPLIT)
            return splits, discarded if discarded.any() else None, misfit
        return splits, discarded if discarded.any() else None, None

    def _texts(
        self, raw: RawRows, name: str, misfits: list[Misfit]
    ) -> pa.StringArray | None:
        """Returns a column of keys as text; a row without one is a misfit."""
        if not name:
            return None
        column = raw.columns[name]
        texts = column
        if not pa.types.is_string(column.type):
            texts = column.cast(pa.string())
        if texts.null_count:
            bad = np.asarray(texts.is_null().to_numpy(zero_copy_only=False), bool)
            feature = Feature(name, Kind.TEXT)
            misfits.append(Misfit(feature, column, bad, Reason.MISSING_VALUE))
        return texts


def _based(rows: pa.RecordBatch, schema: Schema, folder: str) -> pa.RecordBatch:
    """Returns the rows with the paths of images relative to the source's root."""
    if not folder:
        return rows
    for feature in schema.of_kind(Kind.IMAGE):
        if feature.inline:
            continue
        paths = rows[feature.name]
        fixed = pc.match_substring_regex(paths, "^(/|[A-Za-z][A-Za-z0-9+.-]*://)")
        moved = pc.binary_join_element_wise(folder, paths, "/")
        index = rows.schema.get_field_index(feature.name)
        rows = rows.set_column(index, feature.name, pc.if_else(fixed, paths, moved))
    return rows


def _chosen(
    flags: Sequence[bool], indices: pa.Array, *, when_null: bool
) -> npt.NDArray[np.bool_]:
    taken = pa.array([*flags, when_null]).take(pc.fill_null(indices, len(flags)))
    return np.asarray(taken.to_numpy(zero_copy_only=False), np.bool_)


def _blamed(misfits: Sequence[Misfit], count: int) -> npt.NDArray[np.int64]:
    """Returns for each row the first misfit that is true of it, or -1."""
    blamed = np.full(count, -1, np.int64)
    for index in reversed(range(len(misfits))):
        blamed[misfits[index].bad] = index
    return blamed


def _complaints(
    misfits: Sequence[Misfit],
    blamed: npt.NDArray[np.int64],
    numbers: npt.NDArray[np.int64],
) -> list[Complaint]:
    """Returns a complaint for each row with a cell to blame."""
    found = []
    for position in np.flatnonzero(blamed >= 0).tolist():
        misfit = misfits[blamed[position]]
        reason, message = misfit.complaint(position)
        found.append((int(numbers[position]), reason, message))
    return found


def reject_typed(
    block: Block, numbers: npt.NDArray[np.int64], columns: Mapping[str, pa.Array]
) -> "Callable[[Sequence[Complaint]], list[Rejection]]":
    """Returns what makes rejections of complaints where rows have no text form.

    The sha256 is that of the row's values as canonical JSON.
    """

    def reject(complaints: Sequence[Complaint]) -> list[Rejection]:
        places = {int(number): i for i, number in enumerate(numbers)}
        out = []
        for number, reason, message in complaints:
            place = places.get(number)
            digest = None
            if place is not None:
                row = {name: _plain(column[place]) for name, column in columns.items()}
                text = json.dumps(row, sort_keys=True, default=repr)
                digest = hashlib.sha256(text.encode(errors="replace")).hexdigest()
            out.append(
                Rejection(
                    source=block.origin,
                    row=number + 1,
                    line=None,
                    stage=STAGE,
                    reason=reason,
                    message=bounded(message),
                    sha256=digest,
                )
            )
        return out

    return reject


def _plain(value: pa.Scalar) -> Any:
    found = value.as_py()
    return found.hex() if isinstance(found, bytes) else found
