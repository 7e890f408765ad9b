"""A planned source: its blocks, and their raw rows typed, split and refused.

Sources travel to the workers: frozen, small, and without open files. Their formats
give raw rows; typing, rejects, splits, keys and groups are the same for all.
"""

import abc
import dataclasses
import hashlib
import pickle
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import lists_like, numpy_mask
from transforms.core.model import Batch, Block, Reading, Rounding
from transforms.core.placing.content import content_hashes
from transforms.core.placing.hashes import UInt64s
from transforms.core.placing.splitting import is_split_name
from transforms.core.reasons import Reason, Rejection, Skipped
from transforms.core.rows.column import Misfit, blamed_of, fault
from transforms.core.rows.conform import conform, roundings_of
from transforms.core.rows.record_columns import count_parts
from transforms.core.schema import Feature, Kind, Schema
from transforms.formats.file_names import split_of_stem
from transforms.formats.input_files import HeldListing, opened
from transforms.formats.raw_rows import (
    RawRows,
    origins_of,
    rejections_of,
    with_nulls,
    with_points,
)
from transforms.formats.table import RowReader
from transforms.storage.paths import without_access
from transforms.storage.visibility import first_local, is_elsewhere, unseen

# Values of `Source.split_words` beside names of splits.
BY_SHARES = ""
DISCARD = "/discard"


@dataclasses.dataclass(frozen=True, slots=True)
class Source(abc.ABC):
    """A planned source: where the inputs are, and how their rows are typed.

    Attributes:
      reader: of the format.
      root: folder that the listing's paths are relative to.
      listing: of the inputs: the path of the file that holds it, or itself.
      schema: the features of every row.
      images_root: folder that paths of images are relative to, as an absolute path;
        empty for that of the file that names them.
      split_column: the column that says each row's split; empty for none.
      split_words: what its values mean where they are no names of splits: a name,
        `BY_SHARES` or `DISCARD`.
      default_split: of files whose name says none, where those of others do; empty
        where none does.
      split_stems: whether the names of files are words for splits, all of them.
      key_column: the column that says each row's identity; empty for none.
      group_column: rows of one value in it share a split; empty for none.
      content: columns whose content rows are known by; empty where they are known by
        something else, or where nothing asks.
      limit: read this many rows, the first in source order; None for all.
    """

    reader: RowReader
    root: str
    listing: str | HeldListing
    schema: Schema
    images_root: str = ""
    split_column: str = ""
    split_words: Mapping[str, str] = dataclasses.field(default_factory=dict)
    default_split: str = ""
    split_stems: bool = False
    key_column: str = ""
    group_column: str = ""
    content: tuple[str, ...] = ()
    limit: int | None = None

    @abc.abstractmethod
    def inputs(self) -> Iterator[int]:
        """Yields the number of each input that `blocks` can cut by itself."""

    @abc.abstractmethod
    def blocks(self, number: int) -> Iterator[Block]:
        """Yields the blocks of one input, in source order."""

    @abc.abstractmethod
    def read(self, block: Block) -> Iterator[Reading]:
        """Yields what became of the rows of a block, in source order.

        Most formats yield once. What can only be read from its beginning, a compressed
        file or an archive, is one block and yields piece after piece, each with a
        block of its own in its batch: (origin, start) tells all pieces of a job apart.
        """

    @property
    def many_origins(self) -> bool:
        """Whether a batch spans several origins, each row with its own."""
        return self.reader.many_origins

    def input_digest(self, block: Block, *, by_position: bool) -> str:
        """Returns a digest of what decides the rows of a block: of equal ones, equal.

        Args:
          block: of this source.
          by_position: whether it matters how much input is before each row.
        """
        digest = hashlib.blake2b(self.planned_digest(), digest_size=16)
        digest.update(self._facts_of(block, by_position=by_position))
        return digest.hexdigest()

    def planned_digest(self) -> bytes:
        """Returns a digest of all that planning decided; not of the listing."""
        reader = self.reader.without_diagnostics()
        plain = dataclasses.replace(self, reader=reader, listing="")
        return hashlib.blake2b(pickle.dumps(plain), digest_size=16).digest()

    def known_by(self, content: Sequence[str]) -> Self:
        """Returns the source whose batches have the content of these columns."""
        columns = set(self.wanted)
        beside = [name for name in content if name not in columns]
        reader = self.reader.giving(beside)
        return dataclasses.replace(self, reader=reader, content=tuple(content))

    @property
    def wanted(self) -> list[str]:
        """The columns that become rows."""
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
        with opened(self.listing) as listing:
            return listing.slice(0, listing.num_rows)

    def _run(self, block: Block) -> pa.Table:
        """Returns the rows of the listing that a run of it is."""
        with opened(self.listing) as listing:
            return listing.slice(block.start, block.stop - block.start)

    def _facts_of(self, block: Block, *, by_position: bool) -> bytes:
        """Returns what the rows of a block depend on, beside what was planned.

        Of a run of the listing, what that says of its files.
        """
        if block.origin:
            if not by_position:
                block = dataclasses.replace(block, position=0)
            return repr(dataclasses.astuple(block)).encode("utf-8", "surrogatepass")
        run = self._run(block)
        if not by_position:
            run = run.drop_columns("position")
        (rows,) = run.combine_chunks().to_batches() or [None]
        return b"" if rows is None else rows.serialize().to_pybytes()

    def reading(self, raw: RawRows) -> Reading:
        """Returns the typed rows of raw ones, and those that do not fit."""
        schema = self.schema
        count = len(raw.numbers)
        origins = raw.block.origin if raw.origins is None else raw.origins
        as_read = raw.columns
        pointed = with_points(as_read, schema.features, self.reader.decimal)
        if pointed is not as_read:
            raw = dataclasses.replace(raw, columns=pointed)
        columns = with_nulls(raw.columns, self.reader.null_values)
        rows, misfits = conform(columns, schema, count, origins)
        if pointed is not as_read:
            # Messages show what the source holds.
            misfits = [
                dataclasses.replace(m, raw=as_read.get(m.feature.source_column, m.raw))
                for m in misfits
            ]
        if self.reader.image_base == "file":
            folder = self.images_root or posixpath.dirname(raw.block.origin)
            rows = _based(rows, schema, folder)
        if is_elsewhere():
            _check_seen(rows, schema, raw)
        rows = _without_access(rows, schema)
        splits, discarded = None, None
        if self._splits_by:
            column = columns[self._splits_by]
            splits, discarded, wrong = self._splits(column)
            if wrong is not None:
                misfits.append(wrong)
        elif name := self._split_of(raw.block.origin):
            splits = pa.repeat(pa.scalar(name, pa.string()), count)
        keys = self._texts(columns, self.key_column, misfits)
        groups = self._texts(columns, self.group_column, misfits)
        skipped = dict(raw.skipped)
        blamed = blamed_of(misfits, count)
        if discarded is not None:
            blamed[discarded] = -2
            skipped[str(Skipped.DISCARDED)] = int(discarded.sum())
        keep = blamed == -1
        rejections = rejections_of(raw, misfits, blamed)
        parts, gone, bad_parts = self._parts(raw, rows, keep)

        def locate(position: int, shown: str) -> str:
            return f"{shown!r} in {_row(raw, position)}"

        roundings = roundings_of(columns, rows, schema, keep, locate)
        for name, mask in raw.cut.items():
            if len(at := np.flatnonzero(mask & keep)):
                roundings[name] = dataclasses.replace(
                    roundings.get(name, Rounding()),
                    cut=len(at),
                    first_cut=_row(raw, int(at[0])),
                )
        contents = self._contents(raw)
        batch = Batch(
            raw.block,
            rows,
            raw.numbers,
            origins=origins_of(raw) if self.many_origins else raw.origins,
            splits=splits,
            keys=keys,
            groups=groups,
            contents=contents,
            stamps=raw.stamps,
            positions=raw.positions,
        )
        if not keep.all():
            batch = batch.filter(keep)
        return Reading(
            batch,
            [*rejections, *bad_parts] if bad_parts else rejections,
            skipped,
            parts,
            gone,
            roundings,
        )

    def _contents(self, raw: RawRows) -> UInt64s | None:
        if not self.content:
            return None
        batch = pa.RecordBatch.from_pydict({n: raw.columns[n] for n in self.content})
        return content_hashes(batch, self.content)

    def _split_of(self, origin: str) -> str:
        """Returns the split that the path of a file says, or the one for the rest."""
        stem = split_of_stem(origin) if self.split_stems else ""
        return self.reader.split_of(origin) or stem or self.default_split

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
        for part, counts in raw.parts_each.items():
            lost[part] = lost.get(part, 0) + int(counts[~keep].sum())
        return dict(raw.parts), lost, raw.part_rejections

    def _splits(
        self, column: pa.Array
    ) -> tuple[pa.StringArray, npt.NDArray[np.bool_] | None, Misfit | None]:
        """Returns each row's split, which rows to leave out, and which name none."""
        encoded = column.cast(pa.string()).dictionary_encode()
        texts = encoded.dictionary.to_pylist()
        words = self.split_words
        meant = [words.get(text, text) for text in texts]
        fits = [t in words or t == DISCARD or is_split_name(t) for t in texts]
        indices = encoded.indices
        splits = pa.array([name or None for name in meant], pa.string()).take(indices)
        bad = ~numpy_mask(pa.array(fits, pa.bool_()).take(indices))
        if BY_SHARES in words:
            bad &= numpy_mask(column.is_valid())
        out = [name == DISCARD for name in meant]
        discarded = numpy_mask(pa.array(out, pa.bool_()).take(indices))
        faults = fault(bad, Reason.BAD_SPLIT)
        misfit = None
        if faults is not None:
            misfit = Misfit(Feature(self._splits_by, Kind.TEXT), column, faults)
        return splits, discarded if discarded.any() else None, misfit

    def _texts(
        self, columns: Mapping[str, pa.Array], name: str, misfits: list[Misfit]
    ) -> pa.StringArray | None:
        """Returns a column of keys as text; a row without one may be a misfit."""
        if not name:
            return None
        column = columns[name]
        texts = column.cast(pa.string())
        lacking = fault(numpy_mask(texts.is_null()), Reason.MISSING_VALUE)
        if lacking is not None and self.reader.keys_required:
            misfits.append(Misfit(Feature(name, Kind.TEXT), column, lacking))
        return texts


def _based(rows: pa.RecordBatch, schema: Schema, folder: str) -> pa.RecordBatch:
    """Returns a source's rows with the paths of images relative to its root."""
    if not folder:
        return rows
    for feature in schema.of_kind(Kind.IMAGE):
        if feature.inline:
            continue
        column = rows[feature.name]
        paths = column.flatten() if feature.is_list else column
        fixed = pc.match_substring_regex(paths, "^(/|[A-Za-z][A-Za-z0-9+.-]*://)")
        moved = pc.binary_join_element_wise(folder, paths, "/")
        based = pc.if_else(fixed, paths, moved)
        rows = _with_items(rows, feature, based)
    return rows


def _without_access(rows: pa.RecordBatch, schema: Schema) -> pa.RecordBatch:
    """Returns a source's rows; names of images say no more how a place is reached.

    The images themselves keep that until they are read.
    """
    images = {f.source_column for f in schema.of_kind(Kind.IMAGE) if not f.inline}
    for feature in schema.features:
        if feature.kind is not Kind.TEXT or feature.source_column not in images:
            continue
        column = rows[feature.name]
        names = column.flatten() if feature.is_list else column
        given = pc.fill_null(pc.match_substring_regex(names, "://.*[?@]"), False)
        if not pc.any(given).as_py():
            continue
        plain = pa.array(map(without_access, names.filter(given).to_pylist()))
        names = pc.replace_with_mask(names, given, plain.cast(names.type))
        rows = _with_items(rows, feature, names)
    return rows


def _with_items(
    rows: pa.RecordBatch, feature: Feature, items: pa.Array
) -> pa.RecordBatch:
    """Returns a source's rows with other values of a feature, or items of its lists."""
    index = rows.schema.get_field_index(feature.name)
    column = lists_like(rows[index], items) if feature.is_list else items
    return rows.set_column(index, rows.schema.field(index), column)


def _check_seen(rows: pa.RecordBatch, schema: Schema, raw: RawRows) -> None:
    """Raises WorkerError for a source's image that is on another machine's disk."""
    for feature in schema.of_kind(Kind.IMAGE):
        if feature.inline or (first := first_local(rows[feature.name])) is None:
            continue
        position, path = first
        if never_seen := unseen(path, place=_row(raw, position)):
            raise never_seen


def _row(raw: RawRows, position: int) -> str:
    """Returns where a row of a source is, in words."""
    origin = raw.block.origin
    if raw.origins is not None:
        origin = raw.origins[position].as_py()
    return f"row {int(raw.numbers[position]) + 1:,} of {origin}"
