"""From what the user points at to a planned source: recognise, list, infer."""

import dataclasses
import difflib
import hashlib
import os
import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from beam_pipeline.spec import Spec
from transforms import files
from transforms.core.coerce import coerce
from transforms.core.encoder import ExampleEncoder
from transforms.core.frame import OVERHEAD_BYTES
from transforms.core.infer import Evidence, infer_features
from transforms.core.placement import (
    SplitRule,
    SplitSource,
    check_split_name,
    usual_order,
)
from transforms.core.schema import Feature, Kind, Schema
from transforms.errors import SourceError, SpecError
from transforms.files import FileEntry
from transforms.formats import images
from transforms.formats.csv import CsvDialect, Sample, sample_blocks
from transforms.formats.csv_sample import SAMPLE_BYTES
from transforms.formats.csv_table import CsvTable
from transforms.formats.images import ImageTree
from transforms.formats.source import Source

__all__ = ["FORMATS", "Inputs", "PlannedSource", "default_name", "find_inputs"]

CSV_SUFFIXES = frozenset([".csv", ".tsv"])
# What the features of a record of an image take beside the image, about.
_IMAGE_OVERHEAD_BYTES = 160
# Rows whose records are encoded to learn how large records are.
_SIZED_ROWS = 20_000


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


def plan_images(spec: Spec, inputs: Inputs) -> PlannedSource:
    """Plans a folder of images.

    Raises:
      SourceError: its folders follow no rule.
      SpecError: a setting makes no sense for images.
    """
    for setting in ("split_column", "label_column"):
        if getattr(spec, setting):
            raise SpecError(f"{setting} is for tables; images take it from folders.")
    names = dict(
        images.TUTORIAL_NAMES if spec.preset == "tutorial" else images.FEATURE_NAMES
    )
    if unknown := sorted(set(spec.feature_names) - set(images.FEATURE_NAMES)):
        raise SpecError(
            f"feature_names are given by role, as in image=image_raw; roles are "
            f"{', '.join(images.FEATURE_NAMES)}; found {unknown[0]!r}."
        )
    names = {k: v for k, v in (names | spec.feature_names).items() if v}
    schema = images.image_schema(names)
    listing = images.arrange(
        inputs.entries, inputs.skipped, root=inputs.root, limit=spec.limit
    )
    count = listing.table.num_rows
    found = dict(listing.splits) or {"": (count, listing.bytes)}
    if listing.splits and spec.splits:
        raise SpecError(
            f"--splits cannot be given where folders say the split; found "
            f"{', '.join(listing.splits)}."
        )
    if listing.splits:
        for name in listing.splits:
            check_split_name(name)
        rule = SplitRule(SplitSource.COLUMN, tuple(listing.splits))
        shares = {name: found[name] for name in listing.splits}
    else:
        rule = _rule(spec)
        shares = {
            name: (round(count * share), round(listing.bytes * share))
            for name, share in _portions(rule).items()
        }
    layout = "split/label/file" if listing.splits else "label/file"
    return PlannedSource(
        make=lambda path: ImageTree(inputs.root, path, schema, count),
        listing=listing.table,
        schema=schema,
        rule=rule,
        records={name: n for name, (n, _) in shares.items()},
        record_bytes={
            name: size + n * _IMAGE_OVERHEAD_BYTES for name, (n, size) in shares.items()
        },
        input_bytes={
            name: size if listing.splits else listing.bytes
            for name, (_, size) in shares.items()
        },
        classes={
            feature.name: listing.labels for feature in schema.of_kind(Kind.LABEL)
        },
        skipped=listing.skipped,
        expected_rows=count,
        rows_bytes=count * _IMAGE_OVERHEAD_BYTES,
        evidence={},
        layout=f"images as {layout}",
    )


def plan_csv(spec: Spec, inputs: Inputs) -> PlannedSource:
    """Plans CSV files: samples them and infers their schema.

    Raises:
      SourceError: they cannot be read as CSV under one header.
      SpecError: a setting makes no sense for them.
    """
    if spec.preset != "default" or spec.feature_names:
        raise SpecError("preset and feature_names are for images; CSV has its header.")
    tabs = all(entry.path.lower().endswith(".tsv") for entry in inputs.entries)
    dialect = CsvDialect(
        delimiter=spec.delimiter or ("\t" if tabs else ","),
        header=spec.header,
        columns=None if spec.columns is None else tuple(spec.columns),
        encoding=spec.encoding,
    )
    sample = sample_blocks(
        [
            (entry.path, entry.size, _opener(os.path.join(inputs.root, entry.path)))
            for entry in inputs.entries
        ],
        dialect,
    )
    columns = tuple(sample.columns)
    if spec.split_column and spec.split_column not in columns:
        near = difflib.get_close_matches(spec.split_column, columns, n=1, cutoff=0.0)
        raise SpecError(
            f"split_column must be a column of the source; found "
            f"{spec.split_column!r}; the nearest name is {near[0]!r}."
        )
    inference = infer_features(
        {k: v for k, v in sample.columns.items() if k != spec.split_column},
        label_column=spec.label_column,
    )
    schema = Schema(inference.features)
    rule, portions = _csv_rule(spec, sample)
    total_rows = _total_rows(sample, inputs)
    rows = round(total_rows)
    if spec.limit is not None:
        rows = min(rows, spec.limit)
    fraction = rows / total_rows if total_rows else 0.0
    row_bytes = _record_bytes(sample, schema)
    sizes = [entry.size for entry in inputs.entries]
    listing = pa.table(
        {
            "path": [entry.path for entry in inputs.entries],
            "position": np.cumsum([0, *sizes[:-1]]),
        }
    )
    return PlannedSource(
        make=lambda path: CsvTable(
            root=inputs.root,
            listing=path,
            dialect=dialect,
            columns=columns,
            schema=schema,
            split_column=spec.split_column or "",
            block_bytes=_block_bytes(inputs.bytes),
            limit=spec.limit,
        ),
        listing=listing,
        schema=schema,
        rule=rule,
        records={name: round(rows * share) for name, share in portions.items()},
        record_bytes={
            name: round(rows * row_bytes * share) for name, share in portions.items()
        },
        input_bytes={name: max(round(inputs.bytes * fraction), 1) for name in portions},
        classes={},
        skipped=inputs.skipped,
        expected_rows=None,
        rows_bytes=inputs.bytes,
        evidence=dict(zip(schema.names, inference.evidence, strict=True)),
        layout=f"CSV of {len(columns)} columns",
    )


# One line a format; `find_inputs` says which of them a source is.
FORMATS: Mapping[str, Callable[[Spec, Inputs], PlannedSource]] = {
    "images": plan_images,
    "csv": plan_csv,
}


def _opener(path: str) -> Callable[[], object]:
    return lambda: files.open_input(path)


def _rule(spec: Spec) -> SplitRule:
    if spec.splits:
        return SplitRule(
            SplitSource.SHARES, tuple(spec.splits), tuple(spec.splits.values())
        )
    return SplitRule()


def _portions(rule: SplitRule) -> dict[str, float]:
    """Returns split -> its share of the rows."""
    if rule.source is not SplitSource.SHARES:
        return dict.fromkeys(rule.names, 1.0)
    bounds = [0.0, *(float(x) / 2**64 for x in rule.thresholds()), 1.0]
    return {name: bounds[i + 1] - bounds[i] for i, name in enumerate(rule.names)}


def _csv_rule(spec: Spec, sample: Sample) -> tuple[SplitRule, dict[str, float]]:
    if not spec.split_column:
        rule = _rule(spec)
        return rule, _portions(rule)
    counts: dict[str, int] = {}
    for item in sample.columns[spec.split_column].value_counts().to_pylist():
        if item["values"]:
            counts[check_split_name(item["values"])] = item["counts"]
    total = sum(counts.values()) or 1
    names = tuple(usual_order(counts))
    return SplitRule(SplitSource.COLUMN, names), {
        name: counts[name] / total for name in names
    }


def _total_rows(sample: Sample, inputs: Inputs) -> float:
    """Returns how many rows there are: exact where all of them were sampled."""
    seen = sample.rows + sample.miscounted
    if inputs.bytes <= SAMPLE_BYTES or not sample.sampled_bytes:
        return seen
    return inputs.bytes * seen / sample.sampled_bytes


def _record_bytes(sample: Sample, schema: Schema) -> float:
    """Returns the mean size of a framed record, from some rows of the sample."""
    columns = []
    fits = np.ones(min(sample.rows, _SIZED_ROWS), bool)
    for feature in schema.features:
        # A class id takes less than the name; the estimate may be too high by that.
        kind = Kind.TEXT if feature.kind is Kind.LABEL else feature.kind
        texts = sample.columns[feature.source_column].slice(0, _SIZED_ROWS)
        coerced = coerce(texts.combine_chunks(), Feature(feature.name, kind))
        columns.append(coerced.values)
        if coerced.bad is not None:
            fits &= ~coerced.bad
    if not fits.any():
        return 0.0
    rows = pa.record_batch(columns, names=schema.names).filter(pa.array(fits))
    encoded = ExampleEncoder(rows.schema).encode(rows)
    return len(encoded.buffers()[2]) / len(encoded) + OVERHEAD_BYTES


def _block_bytes(total: int) -> int:
    """Returns the size of blocks: from the input alone, never from the workers.

    Blocks times shards stays under half a million: with shards of 150 MB of records,
    about three times their text, that is total ** 2 / (50 MB * block).
    """
    wanted = total * total // (50_000_000 * 500_000)
    size = 16 << 20
    while size < wanted and size < 256 << 20:
        size *= 2
    return size
