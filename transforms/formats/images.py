"""Folders of labelled images: `label/file` and `split/label/file`.

The first level is a split only if every name there is a split's usual name
(`SPLIT_WORDS`, in any case); otherwise it is the label. Every file with an image's
suffix is a row, whatever it holds: what cannot be decoded becomes a reject with a
reason. Files without such a suffix are skipped and counted.

A row carries the path of its image; the image itself is read when its shard is
written. The listing is one Arrow IPC file, so a job stays small for a million files:

    path      string  relative to the root, as the file system has it
    origin    string  the same in NFC: its identity, and what is stored
    stamp     int64   of the file as it was listed; see `transforms.files.stamp`
    label     string  name of the folder that says the class
    split     string  name of the folder that says the split, or null
    position  int64   bytes of images before it in its split
"""

import collections
import dataclasses
import enum
import fnmatch
import os
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import numpy as np
import pyarrow as pa

from transforms.core.model import Batch, Block, Rejection
from transforms.core.placement import usual_order
from transforms.core.schema import Feature, Kind, Schema
from transforms.errors import SourceError, SpecError
from transforms.files import FileEntry
from transforms.formats.source import Source

__all__ = [
    "FEATURE_NAMES",
    "IMAGE_SUFFIXES",
    "SPLIT_WORDS",
    "TUTORIAL_NAMES",
    "ImageTree",
    "Listing",
    "Skipped",
    "arrange",
    "image_schema",
    "select",
]

SPLIT_WORDS = frozenset("train training val valid validation dev eval test".split())
IMAGE_SUFFIXES = frozenset(
    ".jpg .jpeg .jpe .jfif .png .bmp .dib .gif .webp .tif .tiff .jp2 .j2k .avif "
    ".heic .heif .ppm .pgm .pbm .pnm .ico .tga .psd .svg".split()
)
# Roles of an image's features and the names they have in records by default.
FEATURE_NAMES: Mapping[str, str] = {
    role: role for role in ("image", "label", "filename", "height", "width", "depth")
}
# The names of TensorFlow's tutorial on TFRecord; it stores no file name.
TUTORIAL_NAMES: Mapping[str, str] = {
    "height": "height",
    "width": "width",
    "depth": "depth",
    "label": "label",
    "image": "image_raw",
}
_KINDS = {"image": Kind.IMAGE, "label": Kind.LABEL, "filename": Kind.TEXT}
# How many files of each kind an error shows.
_SHOWN = 3


class Skipped(enum.StrEnum):
    """Why a file of the source is not read. The list is closed."""

    HIDDEN = "hidden"
    OTHER_SUFFIX = "other_suffix"
    NOT_INCLUDED = "not_included"
    EXCLUDED = "excluded"
    BEYOND_LIMIT = "beyond_limit"


@dataclasses.dataclass(frozen=True, slots=True)
class Listing:
    """The images of a source, in source order, and what was left out.

    Attributes:
      table: columns as drawn in the module's docstring; n rows.
      labels: the class names, sorted by their UTF-8 bytes.
      splits: split name -> (images, bytes); empty without split folders.
      bytes: of all images.
      skipped: files left out, by reason.
    """

    table: pa.Table
    labels: tuple[str, ...]
    splits: Mapping[str, tuple[int, int]]
    bytes: int
    skipped: Mapping[str, int]


def image_schema(names: Mapping[str, str]) -> Schema:
    """Returns the schema of an image source.

    Args:
      names: role -> feature name, roles of `FEATURE_NAMES`; a role that is left out
        is not stored.

    Raises:
      SpecError: unknown role, two features of one name, or no image.
    """
    unknown = sorted(set(names) - set(FEATURE_NAMES))
    if unknown or "image" not in names or len(set(names.values())) != len(names):
        raise SpecError(
            f"Features of images are named by role, each role and name once, 'image' "
            f"among them; roles are {', '.join(FEATURE_NAMES)}. Found {dict(names)}."
        )
    return Schema(
        tuple(
            Feature(
                names[role],
                _KINDS.get(role, Kind.INT64),
                column=role if role != names[role] else "",
                is_label=role == "label",
                derived=role if role not in _KINDS else "",
            )
            for role in FEATURE_NAMES
            if role in names
        )
    )


def select(
    entries: Sequence[FileEntry],
    *,
    suffixes: frozenset[str],
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
) -> tuple[list[FileEntry], dict[str, int]]:
    """Returns the files to read, and how many were left out by reason.

    A pattern is matched against the whole relative path and against the file name;
    `*` crosses folders. With `include`, what it matches is read whatever its suffix.
    """
    kept: list[FileEntry] = []
    skipped: collections.Counter[str] = collections.Counter()
    for entry in entries:
        name = entry.path.rpartition("/")[2]
        if entry.skipped:
            skipped[Skipped.HIDDEN] += 1
        elif include and not _matches(entry.path, name, include):
            skipped[Skipped.NOT_INCLUDED] += 1
        elif _matches(entry.path, name, exclude):
            skipped[Skipped.EXCLUDED] += 1
        elif not include and os.path.splitext(name)[1].lower() not in suffixes:
            skipped[Skipped.OTHER_SUFFIX] += 1
        else:
            kept.append(entry)
    return kept, {str(reason): n for reason, n in sorted(skipped.items())}


def _matches(path: str, name: str, patterns: Sequence[str]) -> bool:
    return any(
        fnmatch.fnmatchcase(path, p) or fnmatch.fnmatchcase(name, p) for p in patterns
    )


def arrange(
    entries: Sequence[FileEntry],
    skipped: Mapping[str, int],
    *,
    root: str,
    limit: int | None = None,
    allow_empty: bool = False,
) -> Listing:
    """Returns the listing of a tree of images, by the rule of the module.

    Args:
      entries: the images, as `select` chose them, in source order.
      skipped: what `select` left out.
      root: named in errors.
      limit: at most so many images, the first in source order.
      allow_empty: a tree without images is a listing of none.

    Raises:
      SourceError: no image; no rule for these folders; names that are equal in NFC
        or are not UTF-8.
    """
    entries = sorted(entries, key=lambda entry: entry.origin.encode(errors="replace"))
    if not entries and not allow_empty:
        raise SourceError(
            f"The source must hold images; {root!r} holds no file with a suffix like "
            f".jpg or .png. Name another folder, or use --include."
        )
    _check_names(entries)
    parts = [entry.path.split("/") for entry in entries]
    with_splits = _has_splits(parts, root)
    left_out = dict(skipped)
    if limit is not None and len(entries) > limit:
        left_out[Skipped.BEYOND_LIMIT] = len(entries) - limit
        entries, parts = entries[:limit], parts[:limit]
    labels = [unicodedata.normalize("NFC", part[-2]) for part in parts]
    splits = [part[0] for part in parts] if with_splits else [""] * len(parts)
    sizes = np.array([entry.size for entry in entries], np.int64)
    positions = np.zeros(len(entries), np.int64)
    totals: dict[str, tuple[int, int]] = {}
    names = np.array(splits)
    for split in usual_order(set(splits)):
        mine = names == split
        ends = np.cumsum(sizes[mine])
        positions[mine] = ends - sizes[mine]
        totals[split] = (int(mine.sum()), int(ends[-1]))
    table = pa.table(
        {
            "path": pa.array([entry.path for entry in entries], pa.string()),
            "origin": pa.array([entry.origin for entry in entries], pa.string()),
            "stamp": pa.array([entry.stamp for entry in entries], pa.int64()),
            "label": pa.array(labels, pa.string()),
            "split": pa.array(splits if with_splits else [None] * len(splits), "utf8"),
            "position": positions,
        }
    )
    return Listing(
        table=table,
        labels=tuple(sorted(set(labels), key=str.encode)),
        splits=totals if with_splits else {},
        bytes=int(sizes.sum()),
        skipped=left_out,
    )


def _check_names(entries: Sequence[FileEntry]) -> None:
    for before, entry in zip([None, *entries], entries, strict=False):
        try:
            entry.path.encode()
        except UnicodeEncodeError as error:
            raise SourceError(
                f"File names must be UTF-8; {os.fsencode(entry.path)!r} is not. "
                f"Rename it, or leave it out with --exclude."
            ) from error
        if before and before.origin == entry.origin:
            raise SourceError(
                f"File names must differ after Unicode normalisation (NFC); "
                f"{before.path.encode()!r} and {entry.path.encode()!r} do not. "
                f"Rename one."
            )


def _has_splits(parts: Sequence[Sequence[str]], root: str) -> bool:
    """Whether the first level says the split; raises where no rule fits."""
    depths = collections.Counter(map(len, parts))
    first = {part[0].lower() for part in parts if len(part) > 1}
    with_splits = bool(first) and first <= SPLIT_WORDS
    wanted = 3 if with_splits else 2
    if set(depths) - {wanted}:
        examples = []
        for depth in sorted(depths):
            shown = ["/".join(p) for p in parts if len(p) == depth][:_SHOWN]
            examples.append(f"{depths[depth]} like {', '.join(shown)}")
        rule = "split/label/file" if with_splits else "label/file or split/label/file"
        raise SourceError(
            f"Images must lie as {rule} below {root!r}; found "
            f"{'; '.join(examples)}. Point at the folder that holds the labels (or "
            f"the splits), or leave files out with --exclude."
        )
    return with_splits


@dataclasses.dataclass(frozen=True, slots=True)
class ImageTree(Source):
    """A tree of images under a listing.

    Attributes:
      root: folder that the listing's paths are relative to.
      listing: path of the Arrow IPC file that holds `Listing.table`.
      schema: from `image_schema`.
      rows: of the listing.
      block_rows: images a block.
    """

    many_origins: ClassVar[bool] = True

    root: str
    listing: str
    schema: Schema
    rows: int
    block_rows: int = 4096

    def inputs(self) -> Iterator[int]:
        """Yields the one listing."""
        yield 0

    def blocks(self, number: int) -> Iterator[Block]:
        """Yields runs of the listing; `start` and `stop` count images."""
        for start in range(0, self.rows, self.block_rows):
            stop = min(start + self.block_rows, self.rows)
            yield Block("", start, stop, first_row=start, rows=stop - start)

    def read(self, block: Block) -> tuple[Batch, list[Rejection]]:
        """Returns the rows of a run of the listing; nothing is rejected here."""
        with pa.memory_map(self.listing) as source:
            table = pa.ipc.open_file(source).read_all()
            piece = table.slice(block.start, block.rows).combine_chunks()
        columns = {name: piece[name].combine_chunks() for name in piece.column_names}
        roles = {"image": "path", "filename": "origin", "label": "label"}
        rows = pa.record_batch(
            [
                columns[roles[feature.source_column]]
                for feature in self.schema.features
                if not feature.derived
            ],
            schema=self.schema.row_schema,
        )
        known = columns["split"].null_count == 0
        batch = Batch(
            block,
            rows,
            numbers=np.zeros(block.rows, np.int64),
            origins=columns["origin"],
            stamps=columns["stamp"],
            splits=columns["split"] if known else None,
            positions=columns["position"].to_numpy(),
        )
        return batch, []
