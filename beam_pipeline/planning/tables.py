"""Plan tables of any format: sample, schema, splits, shards."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from beam_pipeline.planning.evidence import column_notes, feature_evidence
from beam_pipeline.planning.feature_checks import check_named
from beam_pipeline.planning.features import declare
from beam_pipeline.planning.image_columns import (
    check_images_named,
    check_images_root,
    image_folders,
    image_shares,
    named_images,
)
from beam_pipeline.planning.images import mask_classes
from beam_pipeline.planning.inputs import Inputs, PlannedInputs
from beam_pipeline.planning.like import Like, settle_schema
from beam_pipeline.planning.recognition import make_format
from beam_pipeline.planning.sizes import (
    SIZED_IMAGES,
    block_size,
    bytes_of_rows,
    kept_share,
    mean_image_bytes,
    mean_record_bytes,
    number_of_rows,
)
from beam_pipeline.planning.splits import (
    DEFAULT_SPLIT,
    SplitFiles,
    deciding_columns,
    rule_of_table,
    said_by_files,
    split_words,
    splits_by_file,
)
from beam_pipeline.settings.spec import Spec
from beam_pipeline.terminal import count_text
from transforms.core.arrays import return_freed_memory, type_nesting
from transforms.core.infer.columns import infer_batches, infer_columns
from transforms.core.infer.evidence import Evidence
from transforms.core.reasons import Skipped
from transforms.core.schema import Kind, Schema
from transforms.errors import InputError, SpecError
from transforms.formats.file_runs import (
    RunReader,
    RunSource,
    TableSource,
    file_notes,
    folder_notes,
    run_files_of,
)
from transforms.formats.input_files import InputFiles
from transforms.formats.raw_rows import as_numbers, with_nulls, with_points
from transforms.formats.registry import FORMATS
from transforms.formats.source import Source
from transforms.formats.table import InputFile, Planned, RowReader, TableReader

_COLUMN_SETTINGS = ("split_column", "key_column", "group_column")
# Blocks that `infer: full` reads one after another.
_INFERRED_BYTES = 8 << 20
# A worker holds several times the bytes of a block that it reads.
_LEAST_BLOCK_BYTES, _MOST_BLOCK_BYTES = 8 << 20, 256 << 20
# A block costs by its columns, too: with 6 KiB for each, 10,000 take 0.6 of the time.
_COLUMN_BYTES, _MOST_COLUMNS_BYTES = 8 << 10, 64 << 20
_MOST_SEGMENTS = 500_000
# Shards have about 150 MB of records, three times their text.
_SHARD_TEXT_BYTES = 50_000_000


def plan_tables(spec: Spec, inputs: Inputs, like: Like | None = None) -> PlannedInputs:
    """Plans the files of a table format: samples them and infers their schema.

    Args:
      spec: of the job.
      inputs: the files.
      like: an earlier dataset whose features the rows have.

    Raises:
      InputError: they cannot be read as one table.
      SpecError: a setting makes no sense for them.
      StorageError: the store of the images that they name does not answer.
    """
    check_images_root(spec.images_folder, inputs.root)
    table = InputFiles.listed(inputs.entries, root=inputs.root)
    folders = image_folders(table, spec.images_folder)
    left_out_by = {Skipped.EXCLUDED, Skipped.NOT_INCLUDED} & inputs.skipped.keys()
    made = make_format(spec, inputs.format).with_companions(
        inputs.companions, whole=not left_out_by
    )
    planned = made.plan(table)
    # Parsing takes as much again as the sample itself.
    return_freed_memory()
    reader = planned.reader
    listed = table
    if planned.files is not None:
        listed = InputFiles.of(planned.files, root=inputs.root)
    left_out = planned.left_out
    if left_out is None:
        left_out = len(table) - len(listed)
    columns = with_nulls(planned.sample.columns, reader.null_values)
    sample = dataclasses.replace(planned.sample, columns=columns)
    planned = dataclasses.replace(planned, sample=sample)
    if nul := next((name for name in columns if "\0" in name), ""):
        # Arrow would cut it there, and then not find it again.
        raise InputError(
            f"{listed[0].origin}: names of columns must hold no NUL character; found "
            f"{nul[:60]!r}. The file is damaged, or in another encoding; fetch or "
            f"write it again, or rename the column."
        )
    words_column, words = split_words(spec, reader, columns)
    splits_by = spec.split_column or reader.split_column or words_column
    check_named({name: getattr(spec, name) for name in _COLUMN_SETTINGS}, columns)
    schema, evidence, shares = _schema(spec, planned, listed, splits_by, folders, like)
    check_images_named(spec, schema)
    classes = mask_classes(spec, schema)
    _check_fits(spec, schema, reader)
    by_file: SplitFiles = {}
    by_stem = False
    if not (splits_by or spec.splits or spec.split_ids):
        stems = FORMATS[inputs.format].stems
        by_file, by_stem = splits_by_file(reader, listed, stems=stems)
    rule, portions = rule_of_table(spec, sample, splits_by, words, by_file)
    total_rows = number_of_rows(sample, inputs)
    rows = round(total_rows)
    kept = kept_share(sample, schema, spec.where)
    if spec.limit is not None:
        rows = min(rows, spec.limit)
    fraction = rows / total_rows if total_rows else 0.0
    named = named_images(sample, schema, SIZED_IMAGES)
    image_bytes = mean_image_bytes(inputs, named, spec.images_folder)
    row_bytes = kept * mean_record_bytes(sample, schema, evidence, image_bytes)
    shared: dict[str, Any] = {
        "root": inputs.root,
        "listing": "",
        "schema": schema,
        "images_root": spec.images_folder,
        "split_column": "" if splits_by == reader.split_column else splits_by,
        "split_words": words,
        "default_split": DEFAULT_SPLIT if by_file else "",
        "split_stems": by_stem,
        "key_column": spec.key_column or "",
        "group_column": spec.group_column or "",
        "limit": spec.limit,
    }
    source: Source
    if isinstance(reader, RunReader):
        # Files of one row each are read by the thousand.
        source = RunSource(reader=reader, **shared)
    else:
        assert isinstance(reader, TableReader)
        wide = min(_COLUMN_BYTES * len(columns), _MOST_COLUMNS_BYTES)
        block_bytes = block_size(
            inputs.entries.bytes,
            inputs.entries.bytes,
            shard_bytes=_SHARD_TEXT_BYTES,
            most_segments=_MOST_SEGMENTS,
            least=max(_LEAST_BLOCK_BYTES, wide),
            most=_MOST_BLOCK_BYTES,
        )
        run_files = 0
        if spec.limit is None and not reader.many_origins:
            run_files = run_files_of(
                listed.origins, listed.sizes, block_bytes=block_bytes
            )
        source = TableSource(
            reader=reader, block_bytes=block_bytes, run_files=run_files, **shared
        )
    if rule.shares and not (spec.key_column or spec.group_column):
        source = source.known_by(deciding_columns(source, sample))
        rule = dataclasses.replace(rule, by_content=bool(source.content))
    # Files of one row each are one table, whatever they are called.
    file_facts: list[str] = []
    if isinstance(reader, TableReader) and not (by_file or splits_by):
        file_facts += file_notes(reader, listed)
    # Parts of a dataset are in folders like part=2026-11-03, too.
    if inputs.format != "tfrecord":
        file_facts += folder_notes(listed, {*columns, *schema.names})
    of_columns = column_notes(schema, evidence, spec, shares)
    width = count_text(len(columns), "column")
    return PlannedInputs(
        make=lambda path: dataclasses.replace(source, listing=path),
        listing=listed.listing,
        schema=schema,
        rule=rule,
        records={name: round(rows * kept * share) for name, share in portions.items()},
        record_bytes={
            name: round(rows * row_bytes * share) for name, share in portions.items()
        },
        input_bytes={
            name: max(round(inputs.entries.bytes * fraction), 1) for name in portions
        },
        classes={},
        skipped=inputs.skipped_with(left_out),
        expected_rows=None,
        rows_bytes=bytes_of_rows(sample, inputs),
        evidence=evidence,
        label_map=planned.label_map,
        mask_classes=classes,
        images_settled=reader.images_named or any(f.states for f in schema.features),
        layout=f"{reader.title} of {width}{said_by_files(by_file)}{planned.seen}",
        notes=(*sample.notes, *of_columns, *file_facts),
        content=source.content,
        named_image=named[0] if named else "",
    )


def _check_fits(spec: Spec, schema: Schema, reader: RowReader) -> None:
    """Raises SpecError for settings that make no sense for the rows of tables."""
    names_images = spec.preset != "default" or spec.feature_names
    resize = str(spec.resize).partition(":")[0]
    points = [f.name for f in schema.stored if "/keypoint/" in f.source_column]
    faults = {
        f"splits and split_column cannot be given where {reader.title} say the split "
        f"themselves": reader.split_column and (spec.splits or spec.split_column),
        "preset and feature_names are for images; this table has none. Name features "
        "by their columns, or by `features` of a spec": (
            names_images and not schema.of_kind(Kind.IMAGE)
        ),
        "resize: crop would cut boxes away, and what belongs to them would have to go "
        "too; use pad, shorter, longer or exact": (
            resize == "crop" and schema.of_kind(Kind.BOX)
        ),
        f"resize: pad and exif: apply move the pixels of images, and not their key "
        f"points; leave them out, or leave out the points: drop of a --spec names "
        f"{', '.join(points)}": points and (resize == "pad" or spec.exif == "apply"),
    }
    for fault, is_there in faults.items():
        if is_there:
            raise SpecError(f"{fault}.")


def _schema(
    spec: Spec,
    planned: Planned,
    listed: InputFiles,
    splits_by: str,
    folders: Sequence[str],
    like: Like | None,
) -> tuple[Schema, dict[str, Evidence], dict[str, float]]:
    """Returns the features, what speaks for them, and which columns name images.

    The last is the share of sampled texts that are paths of image files, by column.
    """
    reader, sample, declared = planned.reader, planned.sample, planned.features
    settled = {f.name if f.derived else f.source_column for f in declared}
    # What cannot be inferred can be left out, or be a tensor.
    settled |= {*spec.drop} - {spec.label_column}
    tensors = {f.column or n for n, f in spec.features.items() if f.kind == "tensor"}
    types = {name: column.type for name, column in sample.columns.items()}
    settled |= {n for n in tensors & types.keys() if type_nesting(types[n]) > 2}
    left_out = {*settled, splits_by}
    columns = {n: c for n, c in sample.columns.items() if n not in left_out}
    said = spec.label_column
    if said is None and like is not None and like.label in sample.columns:
        said = like.label
    label = None if reader.label_column else said
    if label in settled:
        declared = tuple(
            dataclasses.replace(f, is_label=f.source_column == label) for f in declared
        )
        label = None
    if label is None and splits_by and {"label", "image_uri"} <= columns.keys():
        label = "label"
    # Listings say the kinds of all their columns.
    if spec.infer == "full" and isinstance(reader, TableReader):
        inference = infer_batches(
            _blocks_of_tables(reader, listed, list(columns)), label_column=label
        )
    else:
        pointed = as_numbers(columns, reader.decimal)
        inference = infer_columns(pointed, label_column=label)
    shares = {}
    if not reader.images_named and spec.image_columns is None:
        shares = image_shares(inference.features, columns, folders)
    schema = declare(
        [*declared, *inference.features],
        sample.columns,
        spec,
        images_named=reader.images_named,
        image_files={name for name, share in shares.items() if share == 1},
    )
    if like is not None:
        numbers = like.model.features
        pointed = with_points(sample.columns, numbers, reader.decimal)
        schema = settle_schema(like, schema, pointed, spec)
    pointed = with_points(sample.columns, schema.features, reader.decimal)
    sample = dataclasses.replace(sample, columns=pointed)
    pairs = zip(inference.features, inference.evidence, strict=True)
    inferred = {feature.source_column: (feature, facts) for feature, facts in pairs}
    origins = listed.origins.combine_chunks()
    paths = {f.source_column for f in schema.of_kind(Kind.IMAGE) if not f.inline}
    given = (f for f in schema.stored if not f.derived and f.constant is None)
    evidence = {
        feature.name: feature_evidence(feature, inferred, sample, origins, paths)
        for feature in given
        if feature.source_column in sample.columns or feature.pattern
    }
    return schema, evidence, shares


def _blocks_of_tables(
    reader: TableReader, listed: Sequence[InputFile], columns: list[str]
) -> Iterator[Mapping[str, pa.Array]]:
    """Yields the raw columns of all rows of tables, block by block."""
    for file in listed:
        for block in reader.blocks(file, block_bytes=_INFERRED_BYTES, limit_rows=None):
            for raw in reader.read(file, block, columns):
                cells = {name: raw.columns[name] for name in columns}
                nulled = with_nulls(cells, reader.null_values)
                yield as_numbers(nulled, reader.decimal)
