"""What the user points at: recognised and listed; what planning makes of it."""

import dataclasses
import hashlib
import os
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from beam_pipeline.spec import Spec
from transforms import files
from transforms.core.infer import Evidence
from transforms.core.placement import (
    SplitRule,
    SplitSource,
)
from transforms.core.schema import Schema
from transforms.errors import SourceError
from transforms.files import FileEntry
from transforms.formats import images
from transforms.formats.source import Source

__all__ = [
    "Inputs",
    "PlannedSource",
    "default_name",
    "find_inputs",
    "portions_of",
    "rule_of",
]

CSV_SUFFIXES = frozenset([".csv", ".tsv"])


@dataclasses.dataclass(frozen=True)
class Inputs:
    """The files that the user points at.

    Attributes:
      format: "images" or "csv".
      root: the folder that their paths are relative to.
      entries: the files to read, in source order.
      skipped: files left out, by reason.
    """

    format: str
    root: str
    entries: tuple[FileEntry, ...]
    skipped: Mapping[str, int]

    @property
    def bytes(self) -> int:
        """Of all files to read."""
        return sum(entry.size for entry in self.entries)

    def facts(self) -> dict[str, int | str]:
        """Returns what the manifest says of them: the same wherever they lie."""
        digest = hashlib.sha256()
        for entry in sorted(self.entries, key=lambda entry: entry.origin):
            digest.update(f"{entry.origin}\0{entry.size}\n".encode())
        return {
            "files": len(self.entries),
            "bytes": self.bytes,
            "sha256": digest.hexdigest(),
        }


@dataclasses.dataclass(frozen=True)
class PlannedSource:
    """A source with all that its planning found out.

    Attributes:
      make: the path of the stored listing -> the source.
      listing: what is to be stored there.
      schema: the features.
      rule: how rows fall into splits.
      records: split -> how many records, about.
      record_bytes: split -> how many bytes of shards, about.
      input_bytes: split -> bytes of input that its rows lie in.
      classes: class names that are known already.
      skipped: items left out, by reason.
      expected_rows: how many rows must be read; None if not known.
      rows_bytes: what the segments of all rows take, about.
      evidence: what the kinds of the features were inferred from, by name.
      layout: how the source was understood, for a person.
    """

    make: Callable[[str], Source]
    listing: pa.Table
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


def default_name(source: str) -> str:
    """Returns the dataset's name for a source: its base name without suffix."""
    path = source.rstrip("/")
    if any(c in os.path.basename(path) for c in "*?[") and not os.path.exists(path):
        path = os.path.dirname(path) or "."
    base = os.path.basename(os.path.abspath(path))
    if os.path.isfile(path):
        base = os.path.splitext(base)[0]
    base = unicodedata.normalize("NFC", base)
    return re.sub(r"[^\w.-]+", "_", base).strip("._-") or "dataset"


def find_inputs(spec: Spec) -> Inputs:
    """Recognises the source and lists its files.

    Raises:
      SourceError: it does not exist, is not readable, or is no source known here.
    """
    source = spec.source
    if files.is_pattern(source):
        paths = files.expand(source)
        if not paths:
            raise SourceError(f"The pattern {source!r} matches no file. Correct it.")
        return _csv_files(spec, paths)
    if not os.path.lexists(source):
        raise SourceError(f"The source must exist; there is no {source!r}.")
    if not os.path.isdir(source):
        return _csv_files(spec, [source])
    entries = files.list_tree(source)
    wanted = spec.format
    if wanted == "auto":
        suffixes = {os.path.splitext(e.path)[1].lower() for e in entries}
        if suffixes & images.IMAGE_SUFFIXES:
            wanted = "images"
        elif suffixes & CSV_SUFFIXES:
            wanted = "csv"
        else:
            shown = ", ".join(repr(e.path) for e in entries[:3]) or "nothing"
            raise SourceError(
                f"The source must hold images or .csv files; {source!r} holds "
                f"{shown}. Name another folder, or use --include with --format."
            )
    kept, skipped = images.select(
        entries,
        suffixes=images.IMAGE_SUFFIXES if wanted == "images" else CSV_SUFFIXES,
        include=spec.include,
        exclude=spec.exclude,
    )
    if wanted == "csv" and not kept:
        raise SourceError(f"The source must hold .csv files; {source!r} holds none.")
    return Inputs(wanted, source, tuple(kept), skipped)


def _csv_files(spec: Spec, paths: Sequence[str]) -> Inputs:
    other = [p for p in paths if os.path.splitext(p)[1].lower() not in CSV_SUFFIXES]
    if spec.format == "images":
        raise SourceError("Images must lie in a folder: label/file or split/label/file")
    if other and spec.format == "auto":
        raise SourceError(
            f"A file must be .csv or .tsv to be recognised; {other[0]!r} is not. "
            f"Say --format csv if it is CSV; point at the folder for images."
        )
    root = os.path.commonpath([os.path.dirname(os.path.abspath(p)) for p in paths])
    entries = []
    for path in paths:
        try:
            status = os.stat(path)
        except OSError as error:
            raise SourceError(
                f"The source must be readable; {path!r} is not: {error.strerror}."
            ) from error
        relative = os.path.relpath(path, root).replace(os.sep, "/")
        entries.append(FileEntry(relative, status.st_size, status.st_mtime_ns))
    kept, skipped = images.select(
        entries,
        suffixes=frozenset(os.path.splitext(p)[1].lower() for p in paths),
        include=spec.include,
        exclude=spec.exclude,
    )
    if not kept:
        raise SourceError(f"No file is left of {len(paths)} by --include / --exclude.")
    return Inputs("csv", root, tuple(kept), skipped)


def rule_of(spec: Spec) -> SplitRule:
    """Returns the rule of --splits, or that of one split."""
    if spec.splits:
        return SplitRule(
            SplitSource.SHARES, tuple(spec.splits), tuple(spec.splits.values())
        )
    return SplitRule()


def portions_of(rule: SplitRule) -> dict[str, float]:
    """Returns split -> its share of the rows."""
    if rule.source is not SplitSource.SHARES:
        return dict.fromkeys(rule.names, 1.0)
    bounds = [0.0, *(float(x) / 2**64 for x in rule.thresholds()), 1.0]
    return {name: bounds[i + 1] - bounds[i] for i, name in enumerate(rule.names)}
