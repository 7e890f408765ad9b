"""Folders of labelled images or other files: `label/file` and `split/label/file`.

The first level is a split only if every name there is a split's usual name
(`tree_shape.SPLIT_WORDS`, in any case); otherwise it is the label. Every file with an
image's suffix is a row, whatever it holds: what cannot be decoded becomes a reject with
a reason. Files without such a suffix are skipped and counted. Other files, as those of
audio, are listed by the same rules and stored as they are.

A row carries the path of its image; the image itself is read when its shard is
written. The listing is one Arrow IPC file, so a job stays small for a million files:

    path      string  relative to the root, as the file system has it
    origin    string  the same in NFC: its identity, and what is stored
    stamp     int64   of the file as it was listed; see `paths.stamp`
    label     string  name of the folder that says the class
    split     string  name of the folder that says the split, or null
    position  int64   bytes of images before it in its split
    reason    string  why it is rejected, or null; only where a table labels the tree
    message   string  the same in words
    row       int64   of a label without an image: its 0-based row in the table that
                      `origin` names; else null
    =NAME             the value of each feature that the table gives
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import numpy_mask
from transforms.core.model import Block
from transforms.core.placing.splitting import usual_order
from transforms.core.reasons import Reason, Rejection, Skipped
from transforms.core.schema import Feature, Kind, Schema
from transforms.core.vocabulary import sorted_names
from transforms.errors import InputError, SpecError
from transforms.formats.file_names import in_nfc, split_in_path
from transforms.formats.file_runs import RunReader
from transforms.formats.label_join import Labels
from transforms.formats.raw_rows import Complaint, RawRows, rejecter, rejection_of
from transforms.formats.tree_shape import (
    Surroundings,
    check_tree,
    first_folder,
    folder_counts,
    has_splits,
)
from transforms.storage.file_list import (
    FileList,
    in_source_order,
    origins_of,
    stamps_of,
)
from transforms.storage.row_spool import RowSpool

# Of raw rows; no feature of a table has such a name.
SPLIT_COLUMN = "/split"
# Roles of an image's features and the names they have in records by default.
FEATURE_NAMES: Mapping[str, str] = {
    role: role for role in ("image", "label", "filename", "height", "width", "depth")
}
# Of files that are no images.
NAMES_OF_FILES: Mapping[str, str] = {
    role: role for role in ("file", "label", "filename")
}
PRESETS: Mapping[str, Mapping[str, str]] = {
    "default": FEATURE_NAMES,
    # The names of TensorFlow's tutorial on TFRecord; it stores no file name.
    "tutorial": {
        **{role: role for role in ("height", "width", "depth", "label")},
        "image": "image_raw",
    },
    # The names of the ImageNet scripts of tensorflow/models (build_imagenet_data.py),
    # where class ids start at 1 and 0 is the background.
    "imagenet": {
        "image": "image/encoded",
        "label": "image/class/label",
        "text": "image/class/text",
        "synset": "image/class/synset",
        "filename": "image/filename",
        "height": "image/height",
        "width": "image/width",
        "depth": "image/channels",
        "colorspace": "image/colorspace",
        "codec": "image/format",
    },
}
BACKGROUND = "background"
# Every role: what it is, and the column of the listing that it is read from. Those
# without a column are derived from the image when it is loaded.
_ROLES: Mapping[str, tuple[Kind, str]] = {
    "image": (Kind.IMAGE, "image"),
    "file": (Kind.FILE, "file"),
    "label": (Kind.LABEL, "label"),
    "text": (Kind.TEXT, "label"),
    "synset": (Kind.TEXT, "label"),
    "filename": (Kind.TEXT, "filename"),
    **dict.fromkeys(("height", "width", "depth"), (Kind.INT64, "")),
    **dict.fromkeys(("colorspace", "format", "codec"), (Kind.TEXT, "")),
    "source_id": (Kind.TEXT, "filename"),
    "sha256": (Kind.TEXT, ""),
}
_LISTING = pa.schema(
    {
        "path": pa.string(),
        "origin": pa.string(),
        "stamp": pa.int64(),
        "label": pa.string(),
        "split": pa.string(),
        "position": pa.int64(),
    }
)


@dataclasses.dataclass(frozen=True, slots=True)
class Listing:
    """The images of a source, in source order, and what was left out.

    Attributes:
      rows: columns as drawn in the module's docstring; n rows.
      labels: the class names, as `in_id_order` sorts them.
      splits: split name -> (images, bytes); empty without split folders.
      bytes: of all images.
      skipped: files left out, by reason.
    """

    rows: RowSpool
    labels: tuple[str, ...]
    splits: Mapping[str, tuple[int, int]]
    bytes: int
    skipped: Mapping[str, int]


def image_schema(names: Mapping[str, str]) -> Schema:
    """Returns the schema of a source of images or other files.

    Args:
      names: role -> feature name; a role that is left out is not stored.

    Raises:
      SpecError: unknown role, two features of one name, or no image.
    """
    of_files = "file" in names
    roles = NAMES_OF_FILES if of_files else [role for role in _ROLES if role != "file"]
    whole = "file" if of_files else "image"
    unknown = sorted(set(names) - set(roles))
    if unknown or whole not in names or len(set(names.values())) != len(names):
        raise SpecError(
            f"Features of {whole}s are named by role, each role and name once, "
            f"{whole!r} among them; roles are {', '.join(roles)}. Found {dict(names)}."
        )
    # The default order, and the others behind it.
    order = dict.fromkeys(("file", *FEATURE_NAMES, *_ROLES))
    return Schema(tuple(_of_role(role, names[role]) for role in order if role in names))


def _of_role(role: str, name: str) -> Feature:
    """Returns the feature of a role; what no column holds is derived from the image."""
    kind, column = _ROLES[role]
    return Feature(
        name,
        kind,
        column=column if column != name else "",
        is_label=role == "label",
        derived="" if column else role,
    )


def list_images(
    entries: FileList,
    skipped: Mapping[str, int],
    *,
    root: str,
    limit: int | None = None,
    allow_empty: bool = False,
    labels: Labels | None = None,
    unlabelled: bool = False,
    around: Surroundings | None = None,
    splits_in_paths: bool = False,
    listed_splits: Mapping[str, str] = {},
) -> Listing:
    """Returns the listing of the images in a tree, by the rule of the module.

    Args:
      entries: the images, as `choose_files` chose them.
      skipped: what it left out.
      root: named in errors.
      limit: at most this many images, the first in source order.
      allow_empty: a tree without images is a listing of none.
      labels: what a table says of each image, which are then in source order; folders
        say nothing but, perhaps, the split.
      unlabelled: folders say no label either, and may be as deep as they like.
      around: what is beside the images; None to take folders as classes whatever they
        are called.
      splits_in_paths: whether any folder may say the split, with a word in its name.
      listed_splits: of all images, by their paths without suffix, where lists say them.

    Raises:
      InputError: no image; no rule for these folders; folders that are part of an
        annotated dataset; names that are equal in NFC or are not UTF-8.
    """
    entries = in_source_order(entries)
    if not entries and not allow_empty:
        raise InputError(
            f"The source must hold images, or audio files; {root!r} holds no file with "
            f"a suffix like .jpg or .wav. Name another folder, or use --include."
        )
    by_folders = (labels is None or labels.with_folders) and not unlabelled
    folders = folder_counts(entries)
    if around is not None and by_folders:
        check_tree(entries, folders, around, root=root)
    split_of: Callable[[str], str] = first_folder
    if listed_splits:
        with_splits, split_of = True, listed_splits.__getitem__
    elif splits_in_paths:
        with_splits, split_of = all(map(split_in_path, folders)), split_in_path
    else:
        with_splits = has_splits(entries, folders, root, by_folders=by_folders)
    left_out = dict(skipped)
    if limit is not None and len(entries) > limit:
        left_out[Skipped.BEYOND_LIMIT] = len(entries) - limit
    rows = RowSpool(_LISTING)
    classes: set[str] = set()
    totals: dict[str, tuple[int, int]] = {}
    # What decides the split: a folder, or the path without its suffix.
    tail = r"\.[^./]*$" if listed_splits else "[^/]*$"
    for batch in entries.batches():
        if limit is not None:
            batch = batch.slice(0, max(limit - len(rows), 0))
        by = split_of if with_splits else None
        rows.append(_listed(batch, by_folders, by, tail, classes, totals))
    if labels is not None:
        rows = RowSpool.of(_labelled(rows.table(), labels, with_splits))
    order = usual_order(set(totals))
    return Listing(
        rows=rows,
        labels=sorted_names(classes),
        splits={name: totals[name] for name in order} if with_splits else {},
        bytes=sum(size for _, size in totals.values()),
        skipped=left_out,
    )


def _listed(
    batch: pa.RecordBatch,
    by_folders: bool,
    split_of: Callable[[str], str] | None,
    tail: str,
    classes: set[str],
    totals: dict[str, tuple[int, int]],
) -> pa.RecordBatch:
    """Returns rows of the listing; adds to the classes, and to images and bytes."""
    paths = batch["path"].cast(pa.string())
    folders = pc.replace_substring_regex(paths, tail, "").dictionary_encode()
    texts, places = folders.dictionary.to_pylist(), folders.indices
    labels: list[str | None] = [None] * len(texts)
    if by_folders:
        labels = [in_nfc(text.split("/")[-2]) for text in texts]
        classes.update(filter(None, labels))
    names = [split_of(text) if split_of else "" for text in texts]
    splits = pa.array(names if split_of else [None] * len(names), pa.string())
    sizes = batch["size"].to_numpy()
    positions = np.zeros(len(sizes), np.int64)
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    of_folder = np.array([numbers[name] for name in names], np.int64)
    of_row = of_folder[places.to_numpy()] if len(names) else positions
    for name, number in numbers.items():
        mine = of_row == number
        count, size = totals.get(name, (0, 0))
        ends = size + np.cumsum(sizes[mine])
        positions[mine] = ends - sizes[mine]
        totals[name] = (count + int(mine.sum()), int(ends[-1]))
    columns = [
        paths,
        origins_of(batch).cast(pa.string()),
        pa.array(stamps_of(batch)),
        pa.array(labels, pa.string()).take(places),
        splits.take(places),
        pa.array(positions),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_LISTING)


def _labelled(table: pa.Table, labels: Labels, with_splits: bool) -> pa.Table:
    """Returns a listing of images with what a table says, its orphans behind them."""
    count = table.num_rows
    faults = labels.faults[:count]
    columns = {name: table[name] for name in table.column_names} | {
        "reason": pa.array([fault and fault[0] for fault in faults], pa.string()),
        "message": pa.array([fault and fault[1] for fault in faults], pa.string()),
        "row": pa.nulls(count, pa.int64()),
    }
    columns |= {f"={name}": c.slice(0, count) for name, c in labels.columns.items()}
    listed = pa.table(columns)
    split = table["split"][0].as_py() if with_splits and count else None
    orphans = [
        {
            "origin": orphan.origin or labels.table,
            "split": split,
            "reason": str(orphan.reason),
            "message": orphan.message,
            "row": orphan.row,
        }
        for orphan in labels.orphans
    ]
    return pa.concat_tables([listed, pa.Table.from_pylist(orphans, listed.schema)])


@dataclasses.dataclass(frozen=True, slots=True)
class ImageListReader(RunReader):
    """Reads the rows of a listing of images: paths, and what folders or a table say.

    Attributes:
      split_column: see `RowReader`.
    """

    image_base: ClassVar[Literal["file", "root"]] = "root"
    # An image whose key is missing in the table is a row all the same.
    keys_required: ClassVar[bool] = False

    split_column: str = ""

    def read_run(
        self, run: pa.Table, root: str, block: Block, columns: Sequence[str]
    ) -> Iterator[RawRows]:
        """Yields a run at once; rows for which the listing has a reason are refused."""
        listed = {name: run[name].combine_chunks() for name in run.column_names}
        rows, places = listed, np.arange(run.num_rows)
        refused: list[Complaint] = []
        if "reason" in listed:
            sound = listed["reason"].is_null()
            reasons, messages = listed["reason"], listed["message"]
            refused = [
                (index, Reason(reasons[index].as_py()), messages[index].as_py())
                for index in places[~numpy_mask(sound)].tolist()
            ]
            rows = {name: column.filter(sound) for name, column in listed.items()}
            places = places[numpy_mask(sound)]
        arrays = {
            "image": rows["path"],
            "file": rows["path"],
            "filename": rows["origin"],
            "label": rows["label"],
        }
        arrays |= {n[1:]: column for n, column in rows.items() if n.startswith("=")}
        arrays[SPLIT_COLUMN] = rows["split"]
        yield RawRows(
            block,
            arrays,
            # Each is the first row of its file.
            np.zeros(len(places), np.int64),
            refused,
            rejecter(_rejection, listed),
            origins=rows["origin"],
            places=places,
            stamps=rows["stamp"],
            positions=rows["position"].to_numpy(zero_copy_only=False),
        )


def _rejection(listed: Mapping[str, pa.Array], complaint: Complaint) -> Rejection:
    """Returns the rejection of a row of a listing; an orphan's is in its table."""
    index, reason, message = complaint
    row = listed["row"][index].as_py() if "row" in listed else None
    return rejection_of(listed["origin"][index].as_py(), (row, reason, message), None)
