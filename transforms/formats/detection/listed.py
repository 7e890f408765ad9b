"""Images as a listing with the objects of each: YOLO, LabelMe, a row a box.

    path, size, position, stamp    of the image, as `InputFiles` draws them
    annotation  string   path of the file with its objects, null for none; where there
                         is no image, `path` is that of this file, too
    label_stamp int64    of that file, where it is read by itself
    stated      string   the image as the annotation calls it; null for nothing
    split       string   null for none
    reason, message      why there is no row; null where there is one

A layout lists the images once, when the job is planned, with columns of its own beside
these. Workers read runs of the listing: `ListedReader.objects_of` gives the objects of
an image, and everything else is the same for all layouts.
"""

import abc
import dataclasses
import itertools
import os
import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from transforms.core.model import Block
from transforms.core.reasons import Fault, Reason, Skipped
from transforms.core.vocabulary import sorted_names
from transforms.errors import InputError
from transforms.formats.detection.boxed_images import BoxedReader
from transforms.formats.detection.objects import (
    Found,
    ImageObjects,
    detection_features,
)
from transforms.formats.file_names import in_nfc, is_image_name, split_in_path
from transforms.formats.input_files import LISTING, InputFiles
from transforms.formats.label_join import SourcePaths
from transforms.formats.pairs import MASK, MASK_WORDS
from transforms.formats.raw_rows import RawRows
from transforms.formats.table import InputFile, Planned, SourceFile, TableSample, only
from transforms.storage.files import read_ahead, storage
from transforms.storage.paths import FileEntry, is_remote
from transforms.storage.protocol import TooLargeError
from transforms.storage.visibility import unseen

# The reasons of images that are skipped.
DISCARDED, NOT_SELECTED = f"/{Skipped.DISCARDED}", f"/{Skipped.NOT_SELECTED}"
_SAMPLE_ROWS = 2000
# Images whose masks are drawn at once.
_DRAWN_AT_ONCE = 64
_COLUMNS: Mapping[str, pa.DataType] = {
    **dict(zip(LISTING.names, LISTING.types, strict=True)),
    "annotation": pa.string(),
    "label_stamp": pa.int64(),
    "stated": pa.string(),
    "split": pa.string(),
    "reason": pa.string(),
    "message": pa.string(),
}

# The columns of listings of tables, see `RowsReader`, beside those of all.
TABLE_COLUMNS = {
    "row": pa.int64(),
    "line": pa.int64(),
    "raw": pa.binary(),
    "rows": pa.list_(pa.int64()),
    "lines": pa.list_(pa.int64()),
    "cells": pa.list_(pa.list_(pa.string())),
}
# Columns that have no nulls.
_STATED = {"size": 0, "position": 0, "stamp": 0}


@dataclasses.dataclass(frozen=True, slots=True)
class ListedReader(BoxedReader):
    """Reads listings of images.

    Attributes:
      companions: the files beside those that `plan` is given; none once it is planned.
      whole: whether no file of the format was left out by a pattern.
      split_column: see `RowReader`.
    """

    # Whether the column of splits is the reader's own.
    says_split: ClassVar[bool] = True
    # Rows of a sample where masks are drawn, which may take far longer than boxes.
    drawn_rows: ClassVar[int] = _SAMPLE_ROWS
    # Whether the path of a file says the split of its rows.
    by_file: ClassVar[bool] = False
    # What is read of a listing at once.
    run_bytes: ClassVar[int] = 8 << 20
    # The most bytes of a file with the objects of an image (real ones have a few KB);
    # whether an empty one says that there are none.
    most_bytes: ClassVar[int] = 16 << 20
    may_be_empty: ClassVar[bool] = False

    companions: tuple[FileEntry, ...] = ()
    whole: bool = True
    split_column: str = ""

    def with_companions(self, files: Sequence[FileEntry], *, whole: bool) -> Self:
        """Returns the format that knows what is beside the files that it plans."""
        return dataclasses.replace(self, companions=tuple(files), whole=whole)

    def parse(self, data: bytes) -> ImageObjects | None:
        """Returns what a file of one image says, None for a file of others.

        Raises:
          ValueError, RecursionError: it is no such file.
        """
        raise NotImplementedError

    def load(
        self, file: SourceFile
    ) -> tuple[ImageObjects | Fault | None, bytes | None]:
        """Returns what a file of one image says, or why it cannot be read; its bytes.

        Args:
          file: whose stamp must be the one it has, unless it is 0.

        Raises:
          WorkerError: the file is on the disk of another machine.
        """
        try:
            data, stamp = storage(file.path).read_stamped(self.most_bytes)
        except FileNotFoundError:
            if never_seen := unseen(file.path):
                raise never_seen from None
            return Fault(Reason.CHANGED_DURING_RUN, "there is no such file"), None
        except TooLargeError as large:
            words = f"it has {large.size:,} bytes; at most {self.most_bytes:,} are read"
            return Fault(Reason.MALFORMED, f"not {self.what}: {words}"), None
        except OSError as error:
            return Fault(Reason.UNREADABLE, str(error.strerror)), None
        if file.stamp and stamp != file.stamp:
            message = "it has another size or time than when it was listed"
            return Fault(Reason.CHANGED_DURING_RUN, message), data
        if not data and not self.may_be_empty:
            return Fault(Reason.EMPTY_FILE, "the file is empty"), data
        try:
            return self.parse(data), data
        except UnicodeDecodeError:
            return Fault(Reason.INVALID_ENCODING, "it must be UTF-8"), data
        except (ValueError, RecursionError) as error:
            words = str(error) or type(error).__name__
            return Fault(Reason.MALFORMED, f"not {self.what}: {words}"), data

    def objects_of(self, row: Mapping[str, Any], root: str) -> Found:
        """Returns the objects of the file of an image; none where it has none."""
        if row["annotation"] is None:
            return ImageObjects(()), None
        path = row["annotation"]
        file = SourceFile(path, os.path.join(root, path), stamp=row["label_stamp"])
        image, data = self.load(file)
        if image is None:
            image = Fault(Reason.CHANGED_DURING_RUN, f"it is no {self.title} any more")
        return image, data

    def listed_files(
        self, files: Sequence[InputFile], names: set[str], others: list[str]
    ) -> Iterator[tuple[dict[str, Any], ImageObjects]]:
        """Yields files of one image as rows of the listing, with what they say.

        Adds the names of their classes to `names`, and files of others to `others`.
        """
        far = bool(files) and is_remote(files[0].root)
        loaded = read_ahead(self.load, files, far=far)
        for file, (image, _) in zip(files, loaded, strict=True):
            if image is None:
                others.append(file.origin)
                continue
            image = ImageObjects(()) if isinstance(image, Fault) else image
            names.update(item.name for item in image.objects)
            row = {
                "path": file.origin,
                "position": file.position,
                "annotation": file.origin,
                "label_stamp": file.stamp,
                "split": split_in_path(posixpath.dirname(file.origin)) or None,
            }
            yield row, image

    def source_images(self, root: str, folder: str | None = None) -> SourcePaths:
        """Returns the images beside the files that are planned, and those elsewhere.

        Args:
          root: the source's.
          folder: elsewhere, relative to the root; None for `images_root`.
        """
        images = [entry.path for entry in self.companions if not entry.skipped]
        start = ""
        if folder is not None or self.images_root:
            start = posixpath.join(self.images_root if folder is None else folder, "")
            listed = storage(os.path.join(root, start)).list_tree()
            start = start.removeprefix(posixpath.join(root, ""))
            images += [f"{start}{entry.path}" for entry in listed if not entry.skipped]
        return SourcePaths(filter(is_image_name, images), start.rstrip("/"))

    def split_of_image(self, path: str) -> str | None:
        """Returns the split that folders of an image say, below those of the place."""
        inner = path.removeprefix(self.images_root)
        return split_in_path(posixpath.dirname(inner)) or None

    def split_of(self, origin: str) -> str:
        """Returns the split that a word in the path says; else the listing says it."""
        return split_in_path(origin) if self.by_file else ""

    def read_run(
        self, run: pa.Table, root: str, block: Block, columns: Sequence[str]
    ) -> Iterator[RawRows]:
        """Yields the images of a run of the listing."""
        step = max(run.num_rows * self.run_bytes // max(run.nbytes, self.run_bytes), 1)
        step = min(step, _DRAWN_AT_ONCE) if self.masks == "all" else step
        start = block.start
        for first in range(0, run.num_rows, step):
            listed = run.slice(first, step).to_pylist()
            for origin, some in itertools.groupby(listed, self._file_of):
                rows = list(some)
                stop = start + len(rows)
                piece = dataclasses.replace(
                    block, origin=origin, start=start, stop=stop, rows=len(rows)
                )
                raw = self.rows_of(rows, root, piece)
                chosen = only(raw.columns, columns, piece.origin)
                yield dataclasses.replace(raw, columns=chosen)
                start = stop

    def _file_of(self, row: Mapping[str, Any]) -> str:
        """Returns the file whose path says the split of a row; empty for none."""
        return str(row["path"]) if self.by_file else ""

    def planned(
        self,
        tables: Iterable[pa.Table],
        root: str,
        *,
        notes: Sequence[str] = (),
        left_out: int = 0,
        others: Sequence[str] = (),
        objects: int = 0,
        outlines: int = 0,
        sampled: int = 0,
        seen: str = "",
    ) -> Planned:
        """Returns the plan of a listing, with some of its rows as the sample.

        Args:
          tables: the listing, some rows at a time.
          root: the source's.
          notes: what a person should know.
          left_out: how many files are not in the listing.
          others: files that are no annotations.
          objects: how many were looked at.
          outlines: how many of these have an outline.
          sampled: how many rows the sample has at most, spread evenly; 0 for the usual
            number.
          seen: see `Planned`.
        """
        notes = [*notes]
        if others:
            notes.insert(
                0,
                f"{len(others):,} files not read, such as {others[0]!r:.80}: they are "
                f"no {self.title}, or hold no objects of their own",
            )
        if self.masks == "all" and 0 < outlines < objects:
            notes.append(
                f"{objects - outlines:,} of {objects:,} objects have no outline: such "
                f"a mask is the box, filled"
            )
        if outlines and self.masks != "all":
            plural = "s" if outlines > 1 else ""
            notes.append(
                f"outlines of {outlines:,} object{plural}, or more, left out: the box "
                f"around each is read; --masks all stores masks, too"
            )
        stems: set[str] = set()
        listing = InputFiles.spooled(_with_stems(tables, stems), root=root)
        count = len(listing)
        if not count:
            raise InputError(
                f"{self.title} must list images; those of {root!r} do not. Leave them "
                f"out, or name another format."
            )
        if self.by_annotation and self.whole and not self.images_root:
            images = (e.path for e in self.companions if not e.skipped)
            bare = [p for p in images if _stem(p) not in stems and is_image_name(p)]
            if bare:
                notes.append(
                    f"{len(bare):,} image{'s' if bare[1:] else ''} not read, such as "
                    f"{bare[0]!r:.80}: in no annotation"
                )
        split_column = self.split_name if self.says_split else ""
        reader = dataclasses.replace(self, companions=(), split_column=split_column)
        if self.masks == "all" and not outlines:
            reader = dataclasses.replace(reader, masks="auto")
        usual = self.drawn_rows if self.masks == "all" else _SAMPLE_ROWS
        most = min(sampled or usual, count)
        evenly = np.linspace(0, count - 1, most, dtype=np.int64)
        rows = listing.rows(np.unique(evenly))
        block = Block("", 0, len(rows), rows=len(rows))
        raw = reader.rows_of(rows, root, block, is_sample=True)
        columns = dict(raw.columns)
        if self.masks not in MASK_WORDS and (lacking := columns[MASK].null_count):
            notes.append(
                f"{lacking:,} of {len(raw.numbers):,} sampled images have no class "
                f"mask: DeepLab and TF-Vision cannot read records without one"
            )
        if columns[self.split_name].null_count == len(raw.numbers):
            del columns[self.split_name]
            reader = dataclasses.replace(reader, split_column="")
        return Planned(
            reader,
            TableSample(
                columns,
                len(raw.numbers),
                unread=len(raw.refused),
                total_rows=count,
                complete=len(rows) == count,
                notes=tuple(notes),
            ),
            detection_features(columns),
            {number: name for name, number in self.class_ids.items()},
            files=listing,
            left_out=left_out + len(others),
            seen=seen,
        )


@dataclasses.dataclass(frozen=True, slots=True)
class RowsReader(ListedReader):
    """Reads listings whose images have rows of tables for objects.

    Beside the columns of all listings, a row has those of its first row, `row` and
    `line`, and `raw` where that is refused; and of all rows of an image `rows`, `lines`
    and `cells`: the word for the split, and texts, of which `of_object` are empty where
    the row is of no object.
    """

    origins_name_rows: ClassVar[bool] = False
    of_object: ClassVar[slice] = slice(1, None)
    # Whether the split and the name are among the raw fields of an image.
    raw_names: ClassVar[bool] = False

    @abc.abstractmethod
    def image_of(self, row: Mapping[str, Any]) -> ImageObjects | Fault:
        """Returns the objects of an image."""

    def objects_of(self, row: Mapping[str, Any], root: str) -> Found:
        """Returns the objects of the rows of an image, which must be of one split."""
        first: dict[str, int] = {}
        for number, cells in zip(row["rows"], row["cells"], strict=True):
            first.setdefault(cells[0], number + 1)
        texts = [text for cells in row["cells"] for text in cells[1:]]
        head = [next(iter(first)), row["stated"]] if self.raw_names else []
        raw = "\0".join([*head, *texts]).encode()
        if not row["stated"].strip():
            fault = Fault(Reason.MISSING_VALUE, "the path of the image is empty")
            return fault, raw
        if len(first) > 1:
            said = [f"row {row} says {word or 'none'}" for word, row in first.items()]
            words = f"all rows of an image must say one split; {' and '.join(said[:2])}"
            return Fault(Reason.BAD_SPLIT, words), raw
        return self.image_of(row), raw

    def mentions(
        self, row: Mapping[str, Any]
    ) -> list[tuple[int, int | None, list[str]]]:
        """Returns number, line and texts of the rows of an image that are objects."""
        lines = row["lines"] or itertools.repeat(None)
        numbers = row["rows"] or [0]
        rows = zip(numbers, lines, row["cells"] or (), strict=False)
        return [
            (number, line, cells[1:])
            for number, line, cells in rows
            if any(map(str.strip, cells[self.of_object]))
        ]

    def gone_parts(self, row: Mapping[str, Any]) -> int:
        """Returns how many boxes an image has that is no row."""
        return len(self.mentions(row))


def class_ids(names: Set[str]) -> dict[str, int]:
    """Returns the ids of a listing's classes by their sorted names; "" is none."""
    return {name: i for i, name in enumerate(sorted_names(names - {""}), start=1)}


def listing_of(
    rows: Sequence[Mapping[str, Any]], more: Mapping[str, pa.DataType] = {}
) -> pa.Table:
    """Returns rows as a listing; what a row lacks is null, or 0 of a file.

    Args:
      rows: with the columns that the module draws.
      more: the layout's own columns, and their types.
    """
    columns = {
        name: pa.array([row.get(name, _STATED.get(name)) for row in rows], kind)
        for name, kind in {**_COLUMNS, **more}.items()
    }
    return pa.table(columns)


def _stem(path: str) -> str:
    """Returns the file name in a path, of Windows too, without suffix and in NFC."""
    name = path.replace("\\", "/").rpartition("/")[2]
    return in_nfc(name.rpartition(".")[0] or name)


def _with_stems(tables: Iterable[pa.Table], stems: set[str]) -> Iterator[pa.Table]:
    """Yields parts of a listing; adds the stems of their images."""
    for table in tables:
        for name in {"path", "image"} & {*table.column_names}:
            stems.update(map(_stem, table[name].unique().drop_null().to_pylist()))
        yield table
