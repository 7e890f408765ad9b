"""Rows and their loaded images: what is read off them, what contradicts them."""

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from transforms.core.image.check import ImageFault
from transforms.core.image.geometry import AS_STORED
from transforms.core.model import Reason
from transforms.core.schema import Feature, Kind, Schema, record_type, row_type
from transforms.image_loading import DERIVED, Images, LoadedImage

__all__ = ["boxes_moved", "bytes_of", "derived_columns", "faults"]


def faults(
    chunk: pa.Table,
    image: Feature,
    loaded: Sequence[LoadedImage | None],
    schema: Schema,
) -> Iterator[tuple[int, LoadedImage, ImageFault]]:
    """Yields the rows whose image is refused: their number, the image, and why.

    An image of another size than the source states is refused too: what the source
    says of places in it would be wrong.
    """
    stated = {
        feature.states: chunk[feature.name].to_pylist()
        for feature in schema.features
        if feature.states and feature.derived_from == image.name
    }
    for index, item in enumerate(loaded):
        if item is None:
            continue
        if isinstance(item.result, ImageFault):
            yield index, item, item.result
        elif stated and (fault := _contradiction(item, stated, index)) is not None:
            yield index, item, fault


def _contradiction(
    item: LoadedImage, stated: Mapping[str, list[int | None]], index: int
) -> ImageFault | None:
    source = item.prepared.source
    for side, values in stated.items():
        found = getattr(source, side)
        if values[index] is not None and values[index] != found:
            return ImageFault(
                Reason.SIZE_MISMATCH,
                f"its {side} is {found}, but {values[index]} is stated",
            )
    return None


def boxes_moved(chunk: pa.Table, loaded: Images, schema: Schema) -> pa.Table:
    """Returns the rows with their boxes where the images' changes have put them.

    Row by row, because each image has a geometry of its own; hardly any has one.
    """
    images = dict(
        zip((f.name for f in schema.of_kind(Kind.IMAGE)), loaded, strict=True)
    )
    for feature in schema.of_kind(Kind.BOX):
        items = images[feature.derived_from or next(iter(images))]
        shapes = [
            AS_STORED if item is None else item.prepared.geometry for item in items
        ]
        if all(shape == AS_STORED for shape in shapes):
            continue
        boxes = [
            shape.map_boxes(found).tolist() if found else found
            for shape, found in zip(
                shapes, chunk[feature.name].to_pylist(), strict=True
            )
        ]
        index = chunk.schema.get_field_index(feature.name)
        moved = pa.array(boxes, row_type(feature))
        chunk = chunk.set_column(index, chunk.schema.field(index), moved)
    return chunk


def bytes_of(loaded: Sequence[LoadedImage | None]) -> pa.Array:
    """Returns the files to be stored as a column."""
    files = [None if item is None else item.prepared.data for item in loaded]
    return pa.array(files, pa.large_binary())


def derived_columns(loaded: Images, schema: Schema) -> dict[str, pa.Array]:
    """Returns the columns that are read off the images, by feature name."""
    by_name = dict(
        zip((f.name for f in schema.of_kind(Kind.IMAGE)), loaded, strict=True)
    )
    alone = next(iter(by_name), "")
    return {
        feature.name: pa.array(
            [
                None if item is None else DERIVED[feature.derived](item)
                for item in by_name[feature.derived_from or alone]
            ],
            record_type(feature),
        )
        for feature in schema.features
        if feature.derived
    }
