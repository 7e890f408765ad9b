"""Masks of classes: where a source has them, and what a job may do to them."""

import dataclasses
import os

import numpy as np

from beam_pipeline.planning.inputs import Inputs
from beam_pipeline.settings.spec import Spec
from transforms.core.image.masks import MaskClasses
from transforms.core.image.png import SIGNATURE, decode_png
from transforms.core.image.policy import prepare_image
from transforms.core.reasons import Fault, FaultError, Skipped
from transforms.core.schema import Kind, Schema
from transforms.errors import InputError, SpecError
from transforms.formats.file_names import is_image_name
from transforms.formats.images import in_source_order
from transforms.formats.label_join import Labels
from transforms.formats.pairs import (
    MASK,
    MASK_WORDS,
    find_layout,
    layout_of,
    pair,
    sort_files,
)
from transforms.storage.file_list import FileList
from transforms.storage.files import storage
from transforms.storage.paths import absolute

# Masks that are looked into for a note.
_LOOKED_AT = 8


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
    asked = inputs.format == "pairs"
    layout = find_layout(inputs.entries, **({"least": 0} if asked else {}))
    if layout is None:
        if not asked:
            return inputs
        raise InputError(
            f"Pairs must be in folders such as images and masks, or called a.jpg and "
            f"a_mask.png; in {inputs.root!r:.200} none are. Name the folder with "
            f"--masks FOLDER."
        )
    images, masks = sort_files(inputs.entries, layout)
    skipped = dict(inputs.skipped)
    left = len(inputs.entries) - len(images) - len(masks)
    if left:
        skipped[str(Skipped.NOT_SELECTED)] = left
    return dataclasses.replace(
        inputs,
        format="pairs",
        entries=images,
        skipped=skipped,
        companions=(*inputs.companions, *masks),
        masks=layout,
        mask_files=masks,
    )


def _with_folder(spec: Spec, inputs: Inputs) -> Inputs:
    """Returns the inputs with the masks in the folder that the job names."""
    folder = mask_folder(spec, inputs.root)
    inner = os.path.relpath(folder, inputs.root) + "/"
    images, base = inputs.entries, folder
    if not inner.startswith("../"):
        start = os.fsencode(inner)
        images = FileList.of(
            (e for e in images if not os.fsencode(e.path).startswith(start)),
            by_path=True,
        )
        base = inner
    listed = storage(folder).list_tree()
    masks = FileList.of(
        (e for e in listed if not e.skipped and is_image_name(e.path)), by_path=True
    )
    layout = layout_of(images, masks, "", base)
    companions = (*inputs.companions, *masks)
    return dataclasses.replace(
        inputs, entries=images, companions=companions, masks=layout, mask_files=masks
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
    images = in_source_order(inputs.entries)
    if inputs.masks is None or spec.masks == "none":
        return dataclasses.replace(inputs, entries=images), None
    pairing = pair(images, in_source_order(inputs.mask_files), inputs.masks)
    skipped = dict(inputs.skipped)
    if pairing.left_out:
        name = str(Skipped.NOT_SELECTED)
        skipped[name] = skipped.get(name, 0) + pairing.left_out
    labels = dataclasses.replace(
        pairing.labels, with_folders=inputs.format == "images" and not spec.unlabelled
    )
    return dataclasses.replace(inputs, entries=pairing.images, skipped=skipped), labels


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
        text = storage(spec.mask_classes).read_bytes().decode("utf-8")
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
