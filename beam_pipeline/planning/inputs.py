"""Recognise and list the inputs of a job."""

import dataclasses
import hashlib
import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from beam_pipeline.planning.chosen_files import (
    MOST_OTHERS,
    choose_files,
    unmatched,
    without_other_yamls,
)
from beam_pipeline.planning.recognition import (
    JSON_ROWS,
    are_json_lines,
    format_of_named,
    format_of_yaml,
    head_in,
    neighbours,
    recognise,
    takes_json_lines,
)
from beam_pipeline.settings.spec import Spec
from beam_pipeline.terminal import count_text
from transforms.core.arrays import numpy_mask
from transforms.core.infer.evidence import Evidence
from transforms.core.placing.splitting import SplitRule
from transforms.core.reasons import Skipped
from transforms.core.schema import Schema
from transforms.errors import InputError, SourceError, source_error
from transforms.formats.file_names import plain_name
from transforms.formats.input_files import HeldListing
from transforms.formats.pairs import PairFolders, masks_folder
from transforms.formats.registry import FORMATS, TREES, Format, table_format
from transforms.formats.source import Source
from transforms.formats.tree_shape import only_texts
from transforms.storage.file_list import FileList, lines_of, origins_of
from transforms.storage.files import storage
from transforms.storage.paths import FileEntry, absolute, common_folder, is_remote
from transforms.storage.protocol import Standing
from transforms.storage.row_spool import RowSpool
from transforms.storage.visibility import Witness

if TYPE_CHECKING:
    from transforms.core.image.masks import MaskClasses


# How many files that are skipped for their suffix a plan names.
_PASSED_OVER = 5
# What notes call files of formats that are no tables.
_TITLES = {"files": "audio file", "archive": "archive"}


@dataclasses.dataclass(frozen=True)
class Inputs:
    """The files that the user points at.

    Attributes:
      format: a key of `FORMATS`.
      root: the folder that their paths are relative to; absolute, because workers
        may run in another one.
      entries: the files to read, in the order in which they were listed or named.
      skipped: files left out, by reason.
      companions: files that are read beside them and are no items: they decide bytes.
      notes: what a person should know of how they were chosen.
      passed_over: the first of the files that are skipped for their suffix.
      texts: of these, those that may hold annotations of images; see `only_texts`.
      masks: where the masks of images are; None where there are none.
      mask_files: all files in the folders of masks.
      mask_folder: the name of these folders, where a YAML states it.
      listed_splits: of images by their paths without suffix, where lists say them.
    """

    format: str
    root: str
    entries: FileList
    skipped: Mapping[str, int]
    companions: tuple[FileEntry, ...] = ()
    notes: tuple[str, ...] = ()
    passed_over: tuple[str, ...] = ()
    texts: FileList = dataclasses.field(default_factory=lambda: FileList.of(()))
    masks: PairFolders | None = None
    mask_files: FileList = dataclasses.field(default_factory=lambda: FileList.of(()))
    mask_folder: str = ""
    listed_splits: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def skipped_with(self, count: int) -> Mapping[str, int]:
        """Returns how many files are left out if so many more are not selected."""
        if not count:
            return self.skipped
        reason = str(Skipped.NOT_SELECTED)
        return {**self.skipped, reason: self.skipped.get(reason, 0) + count}

    def facts(self) -> dict[str, int | str]:
        """Returns what the manifest says of them: the same wherever they are."""
        digest = hashlib.sha256()
        listed = self.entries
        if self.companions:
            listed = FileList.of(itertools.chain(listed, self.companions))
        for batch in listed.by_origin().batches():
            digest.update(lines_of(origins_of(batch), batch["size"], end=b"\n"))
        return {
            "files": len(self.entries),
            "bytes": self.entries.bytes,
            "sha256": digest.hexdigest(),
        }


@dataclasses.dataclass(frozen=True)
class PlannedInputs:
    """The inputs of a job, with all that planning found out about them.

    Attributes:
      make: the path of the stored listing, or a listing that is held -> the source.
      listing: what is to be stored or held.
      schema: the features.
      rule: how rows fall into splits.
      records: split -> how many records, about.
      record_bytes: split -> how many bytes of shards, about.
      input_bytes: split -> bytes of input that its rows are in.
      classes: class names that are known already, to be shown.
      skipped: items left out, by reason.
      expected_rows: how many rows must be read; None if not known.
      mask_classes: what the pixels of masks mean; None for their numbers.
      rows_bytes: what the segments of all rows take, about.
      evidence: what the kinds of the features were inferred from, by name.
      layout: how the source was understood, for a person.
      label_map: class id -> name for readers of label maps; empty for none.
      images_settled: whether the format says what is stored of images, and under
        which names.
      notes: what a person should know of how the source was understood.
      content: the columns whose content decides the split of a row; empty where
        something else does.
      named_image: an image as rows name it; empty where none does.
    """

    make: Callable[[str | HeldListing], Source]
    listing: RowSpool
    schema: Schema
    rule: SplitRule
    records: Mapping[str, int]
    record_bytes: Mapping[str, int]
    input_bytes: Mapping[str, int]
    classes: dict[str, tuple[str, ...]]
    skipped: Mapping[str, int]
    expected_rows: int | None
    rows_bytes: int
    evidence: Mapping[str, Evidence]
    layout: str
    label_map: Mapping[int, str] = dataclasses.field(default_factory=dict)
    images_settled: bool = False
    notes: tuple[str, ...] = ()
    content: tuple[str, ...] = ()
    named_image: str = ""
    mask_classes: "MaskClasses | None" = None

    def witnesses(self, root: str, images_root: str) -> tuple[Witness, ...]:
        """Returns what shows that workers see the source; none in an object store.

        Args:
          root: of the source.
          images_root: folder of images that it names, as an absolute path; empty for
            its own.
        """
        listed = next(iter(self.listing.batches()), None)
        file = "" if listed is None else listed["path"][0].as_py()
        pairs = [(root, file), (images_root or root, self.named_image)]
        here = (p for p in pairs if not is_remote(p[0]) and os.path.exists(p[0]))
        return tuple(itertools.starmap(Witness.of, here))


def find_inputs(spec: Spec, standing: Standing) -> Inputs:
    """Recognises the source and lists its files.

    Args:
      spec: the job, resolved.
      standing: what `StoredPath.standing` says of its source.

    Raises:
      SourceError: it does not exist, is not readable, or is no source known here.
    """
    source = spec.source
    if not standing and any(c in source for c in "*?["):
        paths = storage(source).expand()
        if not paths:
            raise SourceError(f"The pattern {source!r} matches no file. Correct it.")
        return _inputs_of_files(spec, paths)
    if not standing:
        raise SourceError(f"The source must exist; there is no {source!r}.")
    config = ""
    if standing != "folder":
        if not (named := format_of_yaml(spec)):
            return _inputs_of_files(spec, [source])
        config, source = source, os.path.dirname(absolute(source))
        spec = spec.model_copy(update={"source": source, "format": named})
    listed = storage(source).list_tree()
    if config:
        listed = without_other_yamls(listed, config)
    format_name, entries = recognise(spec, listed)
    if format_name in TREES and spec.labels:
        entries = _without(entries, source, spec.labels)
    source_format = FORMATS[format_name]
    beside: tuple[FileEntry, ...] = ()
    if source_format.companions:
        beside = tuple(e for e in entries if source_format.is_companion(e.path))
        rest = (e for e in entries if not source_format.is_companion(e.path))
        entries = FileList.of(rest, by_path=True)
    takes: Callable[[str], bool] = source_format.takes
    if format_name == "jsonl" and not any(takes(entry.path) for entry in entries):
        takes = takes_json_lines(spec, entries)
    kept, skipped, others = choose_files(spec, entries, takes)
    if format_name not in TREES and not kept:
        raise InputError(
            f"The source must hold {source_format.title} files; {source!r} holds none."
        )
    notes = _pattern_notes(spec, listed) + _notes_on_skipped(others, format_name)
    of_images = format_name in ("images", "pairs")
    has_texts = others and format_name == "images"
    texts = only_texts(entries) if has_texts else FileList.of(())
    return Inputs(
        *(format_name, absolute(source), kept, skipped, beside, notes),
        others[:_PASSED_OVER],
        texts,
        mask_folder=masks_folder(others, head_in(source)) if of_images else "",
    )


def _notes_on_skipped(paths: Sequence[str], read: str) -> tuple[str, ...]:
    """Returns notes on files left out of the inputs that other formats would read."""
    names: dict[str, list[str]] = {}
    for path in paths:
        others = (name for name in _TITLES if FORMATS[name].takes(path))
        if name := table_format(path) or next(others, ""):
            names.setdefault(name, []).append(path)
    more = "or more " if len(paths) == MOST_OTHERS else ""
    labels = ", and --labels FILE labels from one" if read in TREES else ""
    notes = []
    for name, files in names.items():
        title = more + _TITLES.get(name, f"{FORMATS[name].title} file")
        notes.append(
            f"{count_text(len(files), title)} skipped, such as {files[0]!r:.80}; "
            f"--format {name} reads these instead{'' if name in _TITLES else labels}"
        )
    return tuple(notes)


def _pattern_notes(spec: Spec, entries: FileList) -> tuple[str, ...]:
    """Returns a note for each pattern that matches no file: it may be a slip."""
    given = {"include": spec.include, "exclude": spec.exclude}
    return tuple(
        f"--{flag} {pattern!r:.80} matches no file: a pattern is for the whole path or "
        f"for the file name, and 'NAME/' for all files in folders of that name"
        for flag, patterns in given.items()
        for pattern in unmatched(entries, patterns)
    )


def _without(entries: FileList, root: str, path: str) -> FileList:
    """Returns the files without the one at a path, which may be elsewhere."""
    inner = os.fsencode(os.path.relpath(absolute(path), absolute(root)))
    return entries.filter(lambda b: numpy_mask(pc.not_equal(b["path"], inner)))


def _inputs_of_files(spec: Spec, paths: Sequence[str]) -> Inputs:
    """Returns the inputs of a pattern or of one file; all must be of one format."""
    root = common_folder(paths)
    entries = [named_entry(path, root) for path in paths]
    is_open, by_content = spec.format == "auto", False
    format_name = format_of_named(spec, entries, root) if is_open else spec.format
    if is_open and are_json_lines(format_name, paths):
        format_name, by_content = "jsonl", True
    if format_name in TREES:
        raise SourceError(
            f"Such files are read from a folder, as label/file or split/label/file; "
            f"{paths[0]!r} was named by itself. Name the folder above its labels, with "
            f"--include for some of its files"
        )
    if not format_name:
        if plain_name(paths[0]).lower().endswith(".json"):
            raise InputError(f"{paths[0]!r} must hold rows. {JSON_ROWS}")
        raise SourceError(
            f"A file is recognised by its suffix, such as .csv, .jsonl or .parquet; "
            f"that of {paths[0]!r} is not known. Say what it is, as in --format csv; "
            f"point at the folder for images; or, for another format such as .xlsx or "
            f".orc, read it in Python and give the rows to beam_tfrecord.convert."
        )
    source_format = FORMATS[format_name]
    other = [path for path in paths if not source_format.takes(path)]
    if other and is_open and not by_content:
        raise InputError(
            f"All files of a source must be of one format; {other[0]!r} is no "
            f"{source_format.title}. Correct the pattern, or use --include."
        )
    listed = FileList.of(entries)
    kept, skipped, _ = choose_files(spec, listed)
    if not kept:
        raise SourceError(
            f"--include and --exclude must leave files; of {len(paths)} none is left."
        )
    beside: tuple[FileEntry, ...] = ()
    if source_format.companions:
        beside = _beside(source_format, root, list(kept))
    notes = _pattern_notes(spec, listed)
    return Inputs(format_name, root, kept, skipped, beside, notes)


def named_entry(path: str, root: str) -> FileEntry:
    """Returns a file that was named; SourceError where it cannot be read."""
    try:
        entry = storage(path).stat_entry(root)
    except OSError as error:
        raise source_error(
            f"The source must be readable; {path!r} is not: {error.strerror}.", error
        ) from error
    if not (is_remote(path) or storage(path).is_file()):
        raise InputError(
            f"The source must be regular files or a folder; {path!r} is a pipe, a "
            f"device or a socket. Write what it gives to a file."
        )
    return entry


def _beside(
    source_format: Format, root: str, entries: Sequence[FileEntry]
) -> tuple[FileEntry, ...]:
    """Returns the files beside the given ones that are read with them."""
    given = {entry.path for entry in entries}
    below = source_format.below
    around = storage(root).list_tree() if below else neighbours(entries, root)
    return tuple(
        e for e in around if source_format.is_companion(e.path) and e.path not in given
    )
