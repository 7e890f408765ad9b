"""Recognise and list the inputs of a job."""

import dataclasses
import hashlib
import itertools
import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from beam_pipeline.settings.spec import Spec
from beam_pipeline.terminal.words import count_text
from transforms.core.arrays import numpy_mask
from transforms.core.infer.evidence import Evidence
from transforms.core.placing.placement import (
    SplitRule,
)
from transforms.core.schema import Schema
from transforms.errors import BeamTFRecordError, InputError, SourceError, source_error
from transforms.formats.file_names import is_image_name, is_split_word, plain_name
from transforms.formats.input_files import (
    MOST_OTHERS,
    Chosen,
    are_plain_images,
    choose_files,
    only_texts,
    unmatched,
)
from transforms.formats.json_lines.cut import begins_as
from transforms.formats.pairs import Layout
from transforms.formats.registry import (
    FORMATS,
    METADATA_NAMES,
    TREES,
    Format,
    claimed_by,
    table_format,
)
from transforms.formats.source import HeldListing, Source
from transforms.formats.whole_files import is_packed, open_unpacked
from transforms.storage.entries import FileEntry, Standing
from transforms.storage.file_list import (
    FileList,
    Order,
    lines_of,
    origins_of,
)
from transforms.storage.files import storage
from transforms.storage.paths import absolute, common_folder, is_remote
from transforms.storage.row_spool import RowSpool
from transforms.storage.visibility import Witness

if TYPE_CHECKING:
    from transforms.core.image.class_masks import MaskClasses

# Enough to tell a format by: the keys of a JSON object may come after long values.
_HEAD_BYTES = 1 << 16
_YAML = re.compile(r"(?i)\.ya?ml$")
# TFDS keeps each version of a dataset in a folder of its own.
_VERSION = re.compile(r"\d+\.\d+\.\d+")

# Of files whose name does not say that they are JSON lines: how many are looked at, and
# their first bytes.
_MOST_HEADS, _LINE_BYTES = 64, 256 << 10
# Formats whose files may be JSON lines by their content, if they are by nothing else.
_MAY_BE_JSON_LINES = frozenset(["", "coco", "csv", "jsonl"])
# How many files that are skipped for their suffix a plan names.
_PASSED_OVER = 5


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
    """

    format: str
    root: str
    entries: FileList
    skipped: Mapping[str, int]
    companions: tuple[FileEntry, ...] = ()
    notes: tuple[str, ...] = ()
    passed_over: tuple[str, ...] = ()
    texts: FileList = dataclasses.field(default_factory=lambda: FileList.of(()))
    masks: Layout | None = None
    mask_files: FileList = dataclasses.field(default_factory=lambda: FileList.of(()))

    @property
    def bytes(self) -> int:
        """Of all files to read."""
        return self.entries.bytes

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
            "bytes": self.bytes,
            "sha256": digest.hexdigest(),
        }


@dataclasses.dataclass(frozen=True)
class PlannedSource:
    """A source with all that its planning found out.

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
      counted: whether `records` are exact, as far as no row is rejected.
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
      given_classes: the class names that the setting `vocabulary` gives.
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
    given_classes: tuple[str, ...] = ()
    named_image: str = ""
    counted: bool = False
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
        return tuple(
            Witness.of(path, file)
            for path, file in pairs
            if not is_remote(path) and os.path.exists(path)
        )


def default_name(source: str, standing: Standing, output: str) -> str:
    """Returns the dataset's name: the source's base name without suffix.

    Where that is a word for a split, and so no name, it is that of the output.

    Args:
      source: a path or a pattern.
      standing: what `StoredPath.standing` says of it.
      output: of the job.
    """
    path = source.rstrip("/")
    if not standing and any(c in os.path.basename(path) for c in "*?["):
        path = os.path.dirname(path) or "."
    base = os.path.basename(absolute(path))
    if standing == "file":
        base = os.path.splitext(plain_name(base))[0]
    name = _as_name(base)
    return output_name(output) if not name or is_split_word(name) else name


def output_name(output: str) -> str:
    """Returns the dataset's name for an output: its folder's, which is no version."""
    path = absolute(output)
    if _VERSION.fullmatch(os.path.basename(path)):
        path = os.path.dirname(path)
    return _as_name(os.path.basename(path)) or "dataset"


def _as_name(base: str) -> str:
    base = unicodedata.normalize("NFC", base)
    return re.sub(r"[^\w.-]+", "_", base).strip("._-")


def find_inputs(spec: Spec, standing: Standing | None = None) -> Inputs:
    """Recognises the source and lists its files.

    Args:
      spec: the job, resolved.
      standing: what `StoredPath.standing` says of its source; None to look.

    Raises:
      SourceError: it does not exist, is not readable, or is no source known here.
    """
    source = spec.source
    if standing is None:
        standing = storage(source).standing()
    if not standing and any(c in source for c in "*?["):
        paths = storage(source).expand()
        if not paths:
            raise SourceError(f"The pattern {source!r} matches no file. Correct it.")
        return _named_files(spec, paths)
    if not standing:
        raise SourceError(f"The source must exist; there is no {source!r}.")
    config = ""
    if standing != "folder":
        if not _is_dataset(spec):
            return _named_files(spec, [source])
        config, source = source, os.path.dirname(absolute(source))
        spec = spec.model_copy(update={"source": source, "format": "yolo"})
    listed = storage(source).list_tree()
    if config:
        listed = _without_others(listed, config)
    format_name, entries = _recognise(spec, listed)
    if format_name in TREES and spec.labels:
        entries = _without(entries, source, spec.labels)
    source_format = FORMATS[format_name]
    beside: tuple[FileEntry, ...] = ()
    if source_format.companions:
        is_beside = source_format.is_companion
        beside = tuple(entry for entry in entries if is_beside(entry.path))
        rest = (entry for entry in entries if not is_beside(entry.path))
        entries = FileList.of(rest, Order.PATH)
    takes: Callable[[str], bool] = source_format.takes
    if format_name == "jsonl" and not any(takes(entry.path) for entry in entries):
        takes = _having(_json_suffixes(spec, entries))
    kept, skipped, others = _choose(spec, entries, takes)
    if format_name not in TREES and not kept:
        raise InputError(
            f"The source must hold {source_format.title} files; {source!r} holds none."
        )
    notes = _pattern_notes(spec, listed) + _table_notes(others)
    has_texts = others and format_name == "images"
    texts = only_texts(entries) if has_texts else FileList.of(())
    return Inputs(
        *(format_name, absolute(source), kept, skipped, beside, notes),
        others[:_PASSED_OVER],
        texts,
    )


def _choose(
    spec: Spec, entries: FileList, takes: Callable[[str], bool] = lambda _: True
) -> Chosen:
    """Returns the files that the patterns of a job choose."""
    return choose_files(
        entries, takes=takes, include=spec.include, exclude=spec.exclude
    )


def _is_dataset(spec: Spec) -> bool:
    """Whether SOURCE is the YAML of a YOLO dataset, whose folder is to be read."""
    if spec.format not in ("auto", "yolo") or not _YAML.search(spec.source):
        return False
    folder, name = os.path.split(absolute(spec.source))
    return FORMATS["yolo"].recognised([(name, 0)], head_in(folder))


def _without_others(entries: FileList, path: str) -> FileList:
    """Returns the files of a folder without the YAMLs other than the one at a path."""
    named = pc.match_substring_regex
    kept = os.fsencode(os.path.basename(path))

    def keep(batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        others = numpy_mask(named(batch["path"], _YAML.pattern))
        return ~others | numpy_mask(pc.equal(batch["path"], kept))

    return entries.filter(keep)


def _table_notes(paths: Sequence[str]) -> tuple[str, ...]:
    """Returns a note on the tables among files that are skipped for their suffix."""
    names: dict[str, list[str]] = {}
    for path in paths:
        if name := table_format(path):
            names.setdefault(name, []).append(path)
    more = "or more " if len(paths) == MOST_OTHERS else ""
    return tuple(
        f"{count_text(len(tables), f'{more}{FORMATS[name].title} file')} skipped, such "
        f"as {tables[0]!r:.80}; --format {name} reads these instead"
        for name, tables in names.items()
    )


def _pattern_notes(spec: Spec, entries: FileList) -> tuple[str, ...]:
    """Returns a note for each pattern that matches no file: it may be a slip."""
    out = []
    for flag, patterns in (("include", spec.include), ("exclude", spec.exclude)):
        for pattern in unmatched(entries, patterns) if patterns else ():
            note = f"--{flag} {pattern!r:.80} matches no file"
            if entries and not pattern.endswith("/"):
                note += (
                    f": a pattern is for the whole path, such as "
                    f"{next(iter(entries)).path!r:.80}, or for the file name; 'NAME/' "
                    f"is for all files in folders of that name"
                )
            out.append(note)
    return tuple(out)


def _without(entries: FileList, root: str, path: str) -> FileList:
    """Returns the files without the one at a path, which may be elsewhere."""
    top = os.path.join(absolute(root), "")
    named = absolute(path)
    if not named.startswith(top):
        return entries
    inner = os.fsencode(named.removeprefix(top))
    return entries.filter(lambda b: numpy_mask(pc.not_equal(b["path"], inner)))


def head_in(root: str) -> Callable[[str], bytes]:
    """Returns what reads the first bytes of a file in a folder."""

    def head(path: str) -> bytes:
        full = os.path.join(root, path)
        try:
            with storage(full).open_input() as stream:
                return stream.read(_HEAD_BYTES)
        except OSError as error:
            if is_remote(full):
                raise
            raise unreadable_file(full, error) from error

    return head


def unreadable_file(path: str, error: OSError) -> BeamTFRecordError:
    """Returns the error for a file of a source that cannot be read."""
    return source_error(
        f"Every file of the source must be a regular file that can be read; {path!r} "
        f"is not: {error.strerror or error}. Correct it, or leave it out with "
        f"--exclude.",
        error,
    )


def _recognise(spec: Spec, entries: FileList) -> tuple[str, FileList]:
    """Returns the format of a folder, and the files that are or may be its items."""
    wanted = entries
    if spec.exclude:
        # Others are not to be opened, whatever they are.
        wanted = choose_files(entries, takes=lambda _: True, exclude=spec.exclude).files
    telling, has_images = _telling(wanted)
    if spec.format == "auto" and (metadata := _metadata(telling, has_images)):
        # Hugging Face's way: tables that name the images beside them.
        return metadata
    if spec.format != "auto":
        return spec.format, entries
    claim = claimed_by(_NamesAndSizes(telling), head_in(spec.source))
    if claim in ("", "coco") and _json_suffixes(spec, telling, all_alike=not claim):
        return "jsonl", entries
    if claim:
        return claim, entries
    shown = ", ".join(repr(e.path) for e in entries.first(3)) or "nothing"
    raise InputError(
        f"The source must hold images or tables; {spec.source!r} holds {shown}. Name "
        f"another folder, or use --include with --format."
    )


def _having(suffixes: frozenset[str]) -> Callable[[str], bool]:
    return lambda path: _suffix(path) in suffixes


def _json_suffixes(
    spec: Spec, entries: FileList, *, all_alike: bool = True
) -> frozenset[str]:
    """Returns the suffixes of the files that are JSON lines by their content.

    Args:
      spec: the job.
      entries: the files.
      all_alike: whether a suffix must not have other files, too; else it is left out.

    Raises:
      InputError: some files of a suffix are, and others are not.
    """
    chosen = _choose(spec, entries).files
    paths = [entry.path for entry in chosen if not is_image_name(entry.path)]
    suffixes = []
    for suffix, kinds in _json_kinds(spec.source, paths).items():
        if "lines" not in kinds or not (all_alike or len(kinds) == 1):
            continue
        suffixes.append(suffix)
        example = kinds.pop("lines")
        for path in kinds.values():
            raise InputError(
                f"All {suffix or 'such'} files of a source must be JSON lines, as "
                f"{example!r} is; {path!r} is not. Write each of its objects on a "
                f"line, or leave it out with --exclude."
            )
    return frozenset(suffixes)


def _json_kinds(root: str, paths: Sequence[str]) -> dict[str, dict[str, str]]:
    """Returns suffix -> what JSON its files hold -> one of them; some are looked at."""
    out: dict[str, dict[str, str]] = {}
    for path in paths[:: -(-len(paths) // _MOST_HEADS) or 1]:
        kinds = out.setdefault(_suffix(path), {})
        kinds.setdefault(_json_in(os.path.join(root, path)), path)
    return out


def _json_in(path: str) -> str:
    """Returns what JSON a file holds by its content; empty for none."""
    try:
        if is_packed(path):
            with open_unpacked(path, path) as unpacked:
                return begins_as(unpacked.read(_LINE_BYTES))
        with storage(path).open_input() as stream:
            return begins_as(stream.read(_LINE_BYTES))
    except (OSError, InputError):
        # Where it is read, it says why it cannot be.
        return ""


def _suffix(path: str) -> str:
    return os.path.splitext(plain_name(path.lower()))[1]


class _NamesAndSizes:
    """Paths and sizes of files that are not hidden, as often as they are asked for."""

    def __init__(self, files: FileList) -> None:
        self._files = files

    def __iter__(self) -> Iterator[tuple[str, int]]:
        for entry in self._files:
            if not entry.skipped:
                yield entry.path, entry.size


def _telling(entries: FileList) -> tuple[FileList, bool]:
    """Returns the files whose names say of what format they are.

    Those are all but the images: of plain names of images there is one. Also returns
    whether there are such names.
    """
    image_found, has_images = False, False

    def tells(batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        nonlocal image_found, has_images
        plain = are_plain_images(batch["path"])
        has_images |= bool(plain.any())
        telling = ~plain
        images = np.flatnonzero(plain & ~numpy_mask(batch["hidden"]))
        if len(images) and not image_found:
            image_found = telling[images[0]] = True
        return telling

    named = entries.filter(tells)
    return named, has_images


def _metadata(entries: FileList, has_images: bool) -> tuple[str, FileList] | None:
    tables = [e for e in entries if os.path.basename(e.path) in METADATA_NAMES]
    if not tables:
        return None
    if not (has_images or any(is_image_name(entry.path) for entry in entries)):
        return None
    names = {claimed_by([(entry.path, entry.size)]) for entry in tables}
    if len(names) > 1:
        raise InputError(
            f"The metadata files of a source must be of one kind; found "
            f"{', '.join(entry.path for entry in tables[:4])}. Keep one kind."
        )
    rest = [e for e in entries if e not in tables and not is_image_name(e.path)]
    kept = sorted([*tables, *rest], key=lambda e: os.fsencode(e.path))
    return names.pop(), FileList.of(kept, Order.PATH)


def _named_files(spec: Spec, paths: Sequence[str]) -> Inputs:
    root = common_folder(paths)
    entries = [named_entry(path, root) for path in paths]
    format_name = spec.format
    if format_name == "auto":
        format_name = _claimed(entries, root)
    by_content = spec.format == "auto" and format_name in _MAY_BE_JSON_LINES
    if by_content:
        named = _json_kinds("", paths).values()
        json_kinds = {kind for kinds in named for kind in kinds}
        is_array = not format_name and json_kinds == {"array"}
        by_content = json_kinds == {"lines"} or is_array
    format_name = "jsonl" if by_content else format_name
    if format_name in TREES:
        raise SourceError(
            "Such files must be in a folder: label/file or split/label/file"
        )
    if not format_name:
        raise SourceError(
            f"A file is recognised by its suffix, such as .csv, .jsonl or .parquet; "
            f"that of {paths[0]!r} is not known. Say what it is, as in --format csv; "
            f"point at the folder for images."
        )
    source_format = FORMATS[format_name]
    other = [path for path in paths if not source_format.takes(path)]
    if other and spec.format == "auto" and not by_content:
        raise InputError(
            f"All files of a source must be of one format; {other[0]!r} is no "
            f"{source_format.title}. Correct the pattern, or use --include."
        )
    listed = FileList.of(entries)
    kept, skipped, _ = _choose(spec, listed)
    if not kept:
        raise SourceError(f"No file is left of {len(paths)} by --include / --exclude.")
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


def _claimed(entries: Sequence[FileEntry], root: str) -> str:
    """Returns the format of files that were named one by one."""
    around = _neighbours(entries, root)
    for name, source_format in FORMATS.items():
        if source_format.content_check and any(
            source_format.takes(entry.path) for entry in entries
        ):
            # Of the files beside them only those that the format reads with them.
            beside = [e for e in around if source_format.is_companion(e.path)]
            listed = {e.path: e.size for e in (*beside, *entries)}
            if claimed_by(list(listed.items()), head_in(root)) == name:
                return name
    return claimed_by([(e.path, e.size) for e in entries], head_in(root))


def _neighbours(entries: Sequence[FileEntry], root: str) -> list[FileEntry]:
    """Returns the files in the folders of the given ones."""
    folders = sorted({os.path.dirname(entry.path) for entry in entries})
    return [
        entry
        for folder in folders
        for entry in storage(os.path.join(root, folder)).entries_in(root)
    ]


def _beside(
    source_format: Format, root: str, entries: Sequence[FileEntry]
) -> tuple[FileEntry, ...]:
    """Returns the files beside the given ones that are read with them."""
    given = {entry.path for entry in entries}
    around: Iterable[FileEntry] = _neighbours(entries, root)
    if source_format.below:
        around = storage(root).list_tree()
    return tuple(
        e for e in around if source_format.is_companion(e.path) and e.path not in given
    )
