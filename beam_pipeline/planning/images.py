"""Plan a folder of images: its layout, its features, its shards, its masks."""

import dataclasses
import os
import shlex
from collections.abc import Collection

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beam_pipeline.planning.evidence import column_notes
from beam_pipeline.planning.feature_checks import check_keys
from beam_pipeline.planning.features import as_typed, declare, vocabularies_of
from beam_pipeline.planning.image_columns import stored_roles
from beam_pipeline.planning.inputs import Inputs, PlannedInputs
from beam_pipeline.planning.like import Like, settle_schema
from beam_pipeline.planning.sizes import block_size
from beam_pipeline.planning.splits import portions_of, rule_of
from beam_pipeline.settings.spec import Spec
from transforms.core.image.masks import MaskClasses
from transforms.core.image.png import SIGNATURE, decode_png
from transforms.core.image.policy import prepare_image
from transforms.core.infer.evidence import Evidence
from transforms.core.placing.splitting import SplitRule, SplitSource
from transforms.core.reasons import Fault, FaultError
from transforms.core.schema import Kind, Schema
from transforms.errors import MAX_MESSAGE_BYTES, InputError, SpecError, bounded
from transforms.formats import images
from transforms.formats.file_names import is_image_name
from transforms.formats.file_runs import RunSource
from transforms.formats.images import ImageListReader
from transforms.formats.label_join import Labels
from transforms.formats.pairs import (
    MASK,
    MASK_WORDS,
    PairFolders,
    find_layout,
    layout_of,
    mask_features,
    pair,
    sort_files,
)
from transforms.formats.tree_shape import Surroundings
from transforms.storage.file_list import FileList, in_source_order
from transforms.storage.files import storage
from transforms.storage.paths import FileEntry, absolute
from transforms.storage.row_spool import RowSpool

# A block of the most rows takes 0.1 GB while it is read, and one of the least 3 MB:
# blocks may grow before there are many segments.
_LEAST_BLOCK_ROWS, _MOST_BLOCK_ROWS = 4096, 1 << 17
_MOST_SEGMENTS = 50_000
_SHARD_BYTES = 150_000_000
# Masks that are looked into for a note.
_LOOKED_AT = 8
_MOST_CLASS_BYTES = 16 << 20
# What the features of a record of an image take beside the image, about.
_IMAGE_OVERHEAD_BYTES = 160


def plan_images(spec: Spec, inputs: Inputs, like: Like | None = None) -> PlannedInputs:
    """Plans a folder of images.

    Args:
      spec: of the job.
      inputs: the files.
      like: an earlier dataset whose features the records have.

    Raises:
      SourceError: its folders follow no rule.
      SpecError: a setting makes no sense for images.
    """
    of_files, are_pairs = inputs.format == "files", inputs.format == "pairs"
    unlabelled = spec.unlabelled or are_pairs
    by_folder = not (spec.labels or unlabelled)
    names = stored_roles(spec, inputs.format, labelled=by_folder)
    inputs, labels = paired(spec, inputs)
    entries = inputs.entries
    evidence: dict[str, Evidence] = {}
    notes: tuple[str, ...] = ()
    if spec.labels and inputs.masks is not None:
        raise SpecError(
            "labels and masks exclude each other; name a column of masks in a table."
        )
    if spec.labels:
        from beam_pipeline.planning.label_table import (
            join_table,
            labelled,
            read_labels,
            with_label_list,
        )

        spec = with_label_list(spec, entries)
        table = read_labels(spec)
        spec = labelled(spec, table)
        labels, table_schema, evidence = join_table(spec, table, entries)
        # Ids are texts, however much they look like numbers.
        inferred = {k: v for k, v in evidence.items() if k != spec.id_column}
        of_tree = spec.model_copy(update={"image_columns": []})
        notes = (*table.notes, *column_notes(table_schema, inferred, of_tree, {}))
        own = images.image_schema(names).features
        # Ids that are called like a feature of images are what finds these, no more.
        ids = {spec.id_column} & {f.name for f in own} - {spec.label_column}
        said = [f for f in table_schema.features if f.name not in ids]
        columns = {f.name: labels.columns[f.name] for f in said}
        labels = dataclasses.replace(labels, columns=columns)
        schema = Schema((*own, *map(as_typed, said)))
        check_keys(schema.features)
    else:
        features = images.image_schema(names).features
        columns = {} if unlabelled else {"label": pa.nulls(0, pa.string())}
        if labels is not None:
            features = (*features, *mask_features(names["image"]))
            columns[MASK] = labels.columns[MASK]
        schema = declare(features, columns, spec, is_tree=True)
    of_masks = mask_classes(spec, schema)
    if labels is not None and MASK in schema.names:
        notes = (*notes, *mask_notes(spec, inputs.root, labels, of_masks))
    command = ["beam-tfrecord", "convert", spec.source, *filter(None, [spec.output])]
    around = None
    if spec.format == "auto" and inputs.masks is None and not of_files:
        around = Surroundings(inputs.texts, shlex.join(command))
    try:
        listing = images.list_images(
            entries,
            inputs.skipped,
            root=inputs.root,
            limit=spec.limit,
            allow_empty=spec.min_records == 0,
            labels=labels,
            unlabelled=unlabelled,
            around=around,
            splits_in_paths=are_pairs,
            listed_splits=inputs.listed_splits,
        )
        is_one = len(listing.labels) == 1 and spec.format == "auto"
        if is_one and _label_hint(spec, inputs):
            raise InputError(
                f"Folders must say the class of their files, or a table; all are in "
                f"{listing.labels[0]!r}, which --format {inputs.format} takes as "
                f"their class."
            )
    except InputError as error:
        if hint := _label_hint(spec, inputs):
            room = MAX_MESSAGE_BYTES - len(hint.encode()) - 1
            raise InputError(f"{bounded(str(error), max(room, 0))} {hint}") from error
        raise
    in_source = {}
    if labels is None or labels.with_folders:
        in_source = {f.name: listing.labels for f in schema.of_kind(Kind.LABEL)}
    known = {} if like is None else like.model.classes
    new = {
        name: _first_files(listing.rows, {*names} - {*known.get(name, ())})
        for name, names in in_source.items()
        if like is not None
    }
    schema = settle_schema(like, schema, {}, spec, classes=new)
    # Those that records will have, not only those of the folders.
    classes = dict(in_source)
    for name, vocabulary in vocabularies_of(schema).items():
        if name in in_source:
            settled = vocabulary.settled(pa.array(in_source[name], pa.string()))
            classes[name] = tuple(settled.to_pylist())
    count = len(listing.rows)
    if listing.splits and spec.splits:
        raise SpecError(
            f"--splits cannot be given where folders say the split; found "
            f"{', '.join(listing.splits)}. Leave it out, or name a folder without them."
        )
    if listing.splits:
        rule = SplitRule(SplitSource.COLUMN, tuple(listing.splits))
        shares = dict(listing.splits)
    else:
        rule = rule_of(spec)
        shares = {
            name: (round(count * share), round(listing.bytes * share))
            for name, share in portions_of(rule).items()
        }
    sizes = {name: size for name, (_, size) in listing.splits.items()}
    source = labels.table if labels is not None else ""
    beside = f", labelled by {source}" if source else ""
    if are_pairs and inputs.masks is not None:
        folder = inputs.masks.base or inputs.masks.folders[0][1]
        where = f"in {folder!r:.80}" if folder else f"called *{inputs.masks.suffix}"
        beside = f", with masks {where}"
    folders = "split/" if listing.splits else ""
    folders += "" if beside or unlabelled else "label/"
    block_rows = block_size(
        count,
        listing.bytes,
        shard_bytes=_SHARD_BYTES,
        most_segments=_MOST_SEGMENTS,
        least=_LEAST_BLOCK_ROWS,
        most=_MOST_BLOCK_ROWS,
    )
    return PlannedInputs(
        make=lambda path: RunSource(
            ImageListReader(images.SPLIT_COLUMN if listing.splits else ""),
            inputs.root,
            path,
            schema,
            key_column=spec.key_column or "",
            group_column=spec.group_column or "",
            block_rows=block_rows,
        ),
        listing=listing.rows,
        schema=schema,
        rule=rule,
        records={name: n for name, (n, _) in shares.items()},
        record_bytes={
            name: size + n * _IMAGE_OVERHEAD_BYTES for name, (n, size) in shares.items()
        },
        input_bytes=sizes or dict.fromkeys(shares, listing.bytes),
        classes=classes,
        skipped=listing.skipped,
        expected_rows=count,
        rows_bytes=count * _IMAGE_OVERHEAD_BYTES,
        evidence=evidence,
        notes=(*notes, *(labels.notes if labels else ())),
        layout=f"{'files' if of_files else 'images'} as {folders}file{beside}",
        mask_classes=of_masks,
        # Class 0 is the background, which label maps leave out.
        label_map=dict(enumerate(of_masks.names[1:] if of_masks else (), start=1)),
    )


def _label_hint(spec: Spec, inputs: Inputs) -> str:
    """Returns a command with a table that labels the images; "" where there is none."""
    # Read by few jobs: those whose folders say no class, or one.
    from beam_pipeline.planning.label_table import hint_of

    return hint_of(spec, inputs.entries, inputs.passed_over)


def with_masks(spec: Spec, inputs: Inputs) -> Inputs:
    """Returns the inputs with masks apart from images, where there are masks.

    Folders of images become pairs where others hold their masks.

    Args:
      spec: of the job.
      inputs: of the format "images" or "pairs".

    Raises:
      InputError: masks that are asked for are not there.
      SpecError: the folder of masks is not there.
    """
    if spec.masks not in MASK_WORDS:
        return _with_folder(spec, inputs)
    is_open = spec.format == "auto" and not (spec.labels or spec.unlabelled)
    if inputs.format == "images" and not is_open:
        return inputs
    asked = inputs.format == "pairs" or bool(inputs.mask_folder)
    least = {"least": 0} if asked else {}
    layout = find_layout(inputs.entries, named=inputs.mask_folder, **least)
    if layout is None:
        if not asked:
            return inputs
        raise InputError(
            f"Pairs must be in folders such as images and masks, or called a.jpg and "
            f"a_mask.png; in {inputs.root!r:.200} none are. Name the folder with "
            f"--masks FOLDER."
        )
    kept, masks = sort_files(inputs.entries, layout)
    splits, lists = _listed_splits(inputs.root, layout)
    if splits:
        of_masks = {
            f"{mask}{stem.removeprefix(image)}{layout.suffix}"
            for image, mask in layout.folders
            for stem in splits
            if stem.startswith(image)
        }
        kept, masks = _with_stems(kept, splits), _with_stems(masks, of_masks)
    left_out = len(inputs.entries) - len(kept) - len(masks)
    return dataclasses.replace(
        inputs,
        format="pairs",
        entries=kept,
        skipped=inputs.skipped_with(left_out),
        companions=(*inputs.companions, *masks, *lists),
        masks=layout,
        mask_files=masks,
        listed_splits=splits,
    )


def _listed_splits(
    root: str, layout: PairFolders
) -> tuple[dict[str, str], list[FileEntry]]:
    """Returns the splits of pairs by their paths without suffix, as VOC's lists say.

    Also returns the lists; nothing where a folder of images has none beside it.
    """
    splits: dict[str, str] = {}
    entries: list[FileEntry] = []
    for folder, _ in layout.folders:
        above = os.path.dirname(folder.rstrip("/"))
        lists = os.path.join(root, above, "ImageSets", "Segmentation")
        if not (folder and storage(lists).is_folder()):
            return {}, []
        from transforms.formats.detection.voc import image_sets

        of_ids = image_sets(lists) or {}
        splits |= {f"{folder}{name}": split for name, split in of_ids.items()}
        entries += storage(lists).entries_in(root)
    return splits, entries


def _with_stems(files: FileList, stems: Collection[str]) -> FileList:
    """Returns the pairs' files whose paths without suffix are among these."""

    def is_listed(batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        paths = map(os.fsdecode, batch["path"].to_pylist())
        return np.array([os.path.splitext(path)[0] in stems for path in paths], bool)

    return files.filter(is_listed)


def _with_folder(spec: Spec, inputs: Inputs) -> Inputs:
    """Returns the inputs with the masks in the folder that the job names."""
    folder = mask_folder(spec, inputs.root)
    inner = os.path.relpath(folder, inputs.root) + "/"
    start = os.fsencode(inner)
    entries = FileList.of(
        (e for e in inputs.entries if not os.fsencode(e.path).startswith(start)),
        by_path=True,
    )
    base = folder if inner.startswith("../") else inner
    listed = storage(folder).list_tree()
    masks = FileList.of(
        (e for e in listed if not e.skipped and is_image_name(e.path)), by_path=True
    )
    layout = layout_of(entries, masks, base)
    companions = (*inputs.companions, *masks)
    return dataclasses.replace(
        inputs, entries=entries, companions=companions, masks=layout, mask_files=masks
    )


def mask_folder(spec: Spec, root: str) -> str:
    """Returns the folder of `--masks`, as it is or below the source.

    Raises:
      SpecError: it is not there.
    """
    places = [absolute(spec.masks), os.path.join(root, spec.masks)]
    for path in places:
        if storage(path).is_folder():
            return path.rstrip("/")
    raise SpecError(
        f"masks must be one of {', '.join(MASK_WORDS)}, or a folder; there is neither "
        f"{places[0]!r} nor {places[1]!r}."
    )


def paired(spec: Spec, inputs: Inputs) -> tuple[Inputs, Labels | None]:
    """Returns the inputs, their images in source order, and the mask of each image.

    Raises:
      InputError: a mask is that of two images.
    """
    entries = in_source_order(inputs.entries)
    if inputs.masks is None or spec.masks == "none":
        return dataclasses.replace(inputs, entries=entries), None
    masks = in_source_order(inputs.mask_files)
    entries, labels, left_out = pair(entries, masks, inputs.masks)
    labels = dataclasses.replace(
        labels, with_folders=inputs.format == "images" and not spec.unlabelled
    )
    skipped = inputs.skipped_with(left_out)
    return dataclasses.replace(inputs, entries=entries, skipped=skipped), labels


def mask_classes(spec: Spec, schema: Schema) -> MaskClasses | None:
    """Returns what the pixels of masks mean; None where nothing says it.

    Raises:
      SpecError: settings make no sense for these masks, or the list cannot be read.
    """
    masks = [f for f in schema.of_kind(Kind.IMAGE) if f.mask and f.derived_from]
    if masks and spec.exif == "apply":
        raise SpecError(
            "exif: apply turns images and not their masks, which state no "
            "orientation; leave it out, or leave out the masks with --masks none."
        )
    if spec.mask_classes is None:
        return None
    if not any(not mask.is_list for mask in masks):
        raise SpecError("mask_classes is for masks of classes; the source has none.")
    try:
        data, _ = storage(spec.mask_classes).read_stamped(_MOST_CLASS_BYTES)
        text = data.decode("utf-8")
        return MaskClasses.parse(text)
    except (OSError, ValueError) as error:
        raise SpecError(
            f"mask_classes must be a list of classes; {spec.mask_classes!r}: {error}."
        ) from error


def mask_notes(
    spec: Spec, root: str, labels: Labels, classes: MaskClasses | None
) -> tuple[str, ...]:
    """Returns a note on masks that mean something else to readers than they seem to."""
    policy = dataclasses.replace(spec.image_policy, mask_classes=classes)
    policy = dataclasses.replace(policy.for_masks(of_image=True), resize=None)
    paths = [path for path in labels.columns[MASK].to_pylist() if path]
    values: set[int] = set()
    for path in paths[:: -(-len(paths) // _LOOKED_AT) or 1]:
        try:
            data, _ = storage(os.path.join(root, path)).read_stamped(policy.max_bytes)
            # Other decoders have processes of their own.
            if data.startswith(SIGNATURE):
                result = prepare_image(data, policy)
                if not isinstance(result, Fault):
                    pixels = np.asarray(decode_png(result.data))
                    values.update(np.unique(pixels).tolist())
        except (OSError, FaultError):
            # Where it is read, it says why it cannot be.
            continue
    if values != {0, 255}:
        return ()
    return (
        "masks have only 0 and 255, which readers take for 'ignore'; --mask-classes "
        "FILE with the lines '0 background' and '255 object' stores 0 and 1",
    )


def _first_files(rows: RowSpool, names: set[str]) -> dict[str, str]:
    """Returns class name -> where its first file is, in words; for these names."""
    out: dict[str, str] = {}
    for batch in rows.batches() if names else ():
        columns = (batch.column(name).to_pylist() for name in ("label", "path"))
        for label, path in zip(*columns, strict=True):
            if label in names and label not in out:
                out[label] = f" in {path!r:.80}"
    return out
