"""Recognise the format of a source by the names and first bytes of its files."""

import dataclasses
import functools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beam_pipeline.planning.chosen_files import (
    YAML_NAME,
    are_plain_images,
    choose_files,
)
from beam_pipeline.planning.features import class_names
from beam_pipeline.settings.spec import Spec
from transforms.core.arrays import numpy_mask
from transforms.errors import BeamTFRecordError, InputError, SpecError, source_error
from transforms.formats.file_names import IMAGE_SUFFIXES, is_image_name, plain_name
from transforms.formats.input_files import open_content
from transforms.formats.json_lines.cut import begins_as
from transforms.formats.pairs import masks_folder
from transforms.formats.registry import (
    FORMAT_OPTIONS,
    FORMATS,
    METADATA_NAMES,
    claimed_by,
)
from transforms.formats.table import SourceFile, TableFormat
from transforms.storage.file_list import FileList
from transforms.storage.files import storage
from transforms.storage.paths import FileEntry, absolute, is_remote

# Enough to tell a format by: the keys of a JSON object may come after long values.
_HEAD_BYTES = 1 << 16
# What tables of images hold: the column's usual name, or a file's.
_IMAGE_NAMES = re.compile(
    f"(?i)file_name|({'|'.join(map(re.escape, IMAGE_SUFFIXES))})".encode()
)
# Of files whose name does not say that they are JSON lines: how many are looked at, and
# their first bytes.
_MOST_HEADS, _LINE_BYTES = 64, 256 << 10
# Formats whose files may be JSON lines by their content, if they are by nothing else.
_MAY_BE_JSON_LINES = frozenset(["", "coco", "csv", "jsonl"])
JSON_ROWS = (
    "JSON must be a list of the rows, each row as an object, or one object on each "
    "line; a row on one line is read with --format jsonl."
)
"""What a file of JSON must hold, for messages."""

# What files of rows hold. COCO's results are arrays, too.
_JSON = frozenset(["lines", "array"])


def format_of_yaml(spec: Spec) -> str:
    """Returns the format of the folder whose YAML is SOURCE; empty for other files."""
    if not YAML_NAME.search(spec.source):
        return ""
    folder, name = os.path.split(absolute(spec.source))
    formats = {
        "yolo": FORMATS["yolo"].recognised([(name, 0)], head_in(folder)),
        "pairs": bool(masks_folder([name], head_in(folder))),
    }
    asked = formats if spec.format == "auto" else [spec.format]
    return next((name for name in asked if formats.get(name)), "")


def head_in(root: str) -> Callable[[str], bytes]:
    """Returns what reads the first bytes of a file in a folder, of each only once."""

    @functools.cache
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


def recognise(spec: Spec, entries: FileList) -> tuple[str, FileList]:
    """Returns the format of a folder, and the files that are or may be its items."""
    if spec.format != "auto":
        return spec.format, entries
    chosen = entries
    if spec.exclude:
        # Others are not to be opened, whatever they are.
        all_included = spec.model_copy(update={"include": []})
        chosen = choose_files(all_included, entries).files
    telling = _telling(chosen)
    if metadata := _metadata_tables(spec, chosen, telling):
        # Hugging Face's way: tables that name the images beside them.
        return metadata
    claim = _claimed_by(spec, _NamesAndSizes(telling), head_in(spec.source))
    if claim and spec.include:
        # Files that are left out may hide the format of those that are chosen.
        included = choose_files(spec, entries).files
        if not any(FORMATS[claim].takes(entry.path) for entry in included):
            telling = _telling(included)
            by_name = _NamesAndSizes(telling)
            claim = _claimed_by(spec, by_name, head_in(spec.source)) or claim
    if claim in ("", "coco") and _json_suffixes(spec, telling, all_alike=not claim):
        return "jsonl", entries
    if claim:
        return claim, entries
    first = entries.first(3)
    shown = ", ".join(repr(e.path) for e in first) or "nothing"
    raise InputError(
        f"The source must hold images or tables; {spec.source!r} holds {shown}. Name "
        f"another folder, or use --include with --format. {JSON_ROWS}"
    )


def _claimed_by(
    spec: Spec, files: Iterable[tuple[str, int]], head: Callable[[str], bytes]
) -> str:
    """Returns what `claimed_by` does, or tables of boxes whose classes a job names."""
    claim = claimed_by(files, head)
    if spec.label_column and claim in ("images", "csv"):
        from transforms.formats.detection import boxes_csv

        if boxes_csv.recognise(files, head, spec.label_column):
            return "boxes_csv"
    return claim


def takes_json_lines(spec: Spec, entries: FileList) -> Callable[[str], bool]:
    """Returns what tells the files that are JSON lines by their content.

    Raises:
      InputError: some files of a suffix are, and others are not.
    """
    suffixes = _json_suffixes(spec, entries)
    return lambda path: _suffix(path) in suffixes


def are_json_lines(format_name: str, paths: Sequence[str]) -> bool:
    """Whether files that were named, and claimed by a format, are rather JSON lines."""
    if format_name not in _MAY_BE_JSON_LINES:
        return False
    kinds = set[str]().union(*_json_kinds("", paths).values())
    return kinds == {"lines"} or (not format_name and bool(kinds) and kinds <= _JSON)


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
    chosen = choose_files(spec, entries).files
    paths = [entry.path for entry in chosen if not is_image_name(entry.path)]
    suffixes = []
    for suffix, kinds in _json_kinds(spec.source, paths).items():
        wanted = _JSON if all_alike else _JSON - {"array"}
        others = [path for kind, path in kinds.items() if kind not in wanted]
        if len(others) == len(kinds) or (others and not all_alike):
            continue
        suffixes.append(suffix)
        if others:
            example = next(path for kind, path in kinds.items() if kind in wanted)
            raise InputError(
                f"All {suffix or 'such'} files of a source must be JSON lines or "
                f"arrays of objects, as {example!r} is; {others[0]!r} is not. Write "
                f"each of its objects on a line, or leave it out with --exclude."
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
        with open_content(SourceFile(path, path)) as stream:
            return begins_as(stream.read(_LINE_BYTES))
    except (OSError, InputError):
        # Where it is read, it says why it cannot be.
        return ""


def _suffix(path: str) -> str:
    """Returns the suffix in lower case, below that of a compression."""
    return os.path.splitext(plain_name(path.lower()))[1]


class _NamesAndSizes:
    """Paths and sizes by which a format is recognised, which asks several times."""

    def __init__(self, files: FileList) -> None:
        self._files = files

    def __iter__(self) -> Iterator[tuple[str, int]]:
        for entry in self._files:
            if not entry.skipped:
                yield entry.path, entry.size


def _telling(entries: FileList) -> FileList:
    """Returns the files whose names say of what format they are.

    Those are all but the images: of plain names of images there is one.
    """
    image_found = False

    def tells(batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        nonlocal image_found
        plain = are_plain_images(batch["path"])
        telling = ~plain
        images = np.flatnonzero(plain & ~numpy_mask(batch["hidden"]))
        if len(images) and not image_found:
            image_found = telling[images[0]] = True
        return telling

    return entries.filter(tells)


def _metadata_tables(
    spec: Spec, files: FileList, entries: FileList
) -> tuple[str, FileList] | None:
    """Returns format and files where tables name images beside them; else None.

    Args:
      spec: the job.
      files: all of the source.
      entries: those of them whose names say of what format they are.
    """
    head = head_in(spec.source)
    tables = [e for e in entries if os.path.basename(e.path) in METADATA_NAMES]
    # One of cameras, say, names no image; Parquet is not seen into here.
    paths = [entry.path for entry in tables]
    if not any(p.endswith(".parquet") or _names_images(head(p)) for p in paths):
        return None
    plain = (are_plain_images(batch["path"]).any() for batch in files.batches())
    if not (any(plain) or any(is_image_name(entry.path) for entry in entries)):
        return None
    names = {claimed_by([(entry.path, entry.size)]) for entry in tables}
    if len(names) > 1:
        raise InputError(
            f"The metadata files of a source must be of one kind; found "
            f"{', '.join(entry.path for entry in tables[:4])}. Keep one kind."
        )
    rest = [e for e in entries if e not in tables and not is_image_name(e.path)]
    kept = sorted([*tables, *rest], key=lambda e: os.fsencode(e.path))
    return names.pop(), FileList.of(kept, by_path=True)


def _names_images(head: bytes) -> bool:
    """Whether the first bytes of a table, to be recognised by, name images."""
    # UTF-16 has zeros between the letters; of a longer row the head does not tell.
    is_cut = len(head) == _HEAD_BYTES and b"\n" not in head
    return is_cut or _IMAGE_NAMES.search(head.replace(b"\0", b"")) is not None


def format_of_named(spec: Spec, entries: Sequence[FileEntry], root: str) -> str:
    """Returns the format of files that were named one by one."""
    around = neighbours(entries, root)
    for name, source_format in FORMATS.items():
        if source_format.content_check and any(
            source_format.takes(entry.path) for entry in entries
        ):
            # Of the files beside them only those that the format reads with them.
            beside = [e for e in around if source_format.is_companion(e.path)]
            listed = {e.path: e.size for e in (*beside, *entries)}
            if claimed_by(list(listed.items()), head_in(root)) == name:
                return name
    return _claimed_by(spec, [(e.path, e.size) for e in entries], head_in(root))


def neighbours(entries: Sequence[FileEntry], root: str) -> list[FileEntry]:
    """Returns the files by which the format of those beside them is recognised."""
    out = []
    for folder in sorted({os.path.dirname(entry.path) for entry in entries}):
        out += storage(os.path.join(root, folder)).entries_in(root)
    return out


def make_format(spec: Spec, format_name: str) -> TableFormat:
    """Returns the format that was recognised, with the settings that it knows.

    Raises:
      SpecError: a setting is for other formats.
    """
    source_format = FORMATS[format_name]
    made = source_format.reader_class()
    fields = {field.name for field in dataclasses.fields(cast(Any, made))}
    given: dict[str, Any] = {}
    for name, field in Spec.model_fields.items():
        value = getattr(spec, name)
        if name not in FORMAT_OPTIONS or value == field.default:
            continue
        if name not in source_format.options:
            raise SpecError(f"{name} is not for {source_format.title}; leave it out.")
        given[name] = tuple(value) if isinstance(value, list) else value
    # What some formats need of settings that are for all.
    offered = {
        "images_root": spec.images_folder or None,
        "max_image_bytes": spec.image_policy.max_bytes,
        "image_policy": spec.image_policy,
        "folders_said": spec.format != "auto",
        "full": spec.infer == "full",
        "are_files": spec.image_format is not None,
        "label_column": spec.label_column,
        "vocabulary": class_names(spec.vocabulary) if spec.vocabulary else None,
    }
    offered = {k: v for k, v in offered.items() if k in fields and v is not None}
    return made.with_settings(given | offered)
