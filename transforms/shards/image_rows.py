"""Rows with images: which are refused, and what becomes of the others.

Images of another size than is stated are faults. Boxes move with their images, features
are derived from these, and their fingerprints are stored.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from transforms.core.image.resize import AS_STORED, Geometry, turns
from transforms.core.model import ShardKey
from transforms.core.placing.leakage import (
    Fingerprints,
    Subject,
    pack_fingerprints,
)
from transforms.core.placing.sharding import ShardRows
from transforms.core.reasons import Fault, Reason
from transforms.core.schema import Feature, Kind, Schema, row_type
from transforms.shards.image_loading import ImageColumn, Loaded, LoadedImage
from transforms.work.store import Store


def faults(
    chunk: pa.Table,
    image: Feature,
    column: ImageColumn,
    schema: Schema,
    masked: ImageColumn | None = None,
) -> Iterator[tuple[int, int, LoadedImage, Fault]]:
    """Yields (row, place in the row, image, fault) for every image that is refused.

    An image of another size than the source states is refused too: what the source
    says of places in it would be wrong. So is a mask of another size than its image,
    which is among those `masked`.
    """
    stated = _stated(chunk, image, schema)
    for index, (row, item) in enumerate(zip(column.rows, column.images, strict=True)):
        fault = item.result if isinstance(item.result, Fault) else None
        if stated and fault is None:
            fault = _contradiction(item, stated, row)
        if masked is not None and fault is None:
            fault = _not_over(item, masked.values[row])
        if fault is not None:
            yield row, index - column.rows.index(row), item, fault


def _stated(
    chunk: pa.Table, image: Feature, schema: Schema
) -> dict[str, list[int | None]]:
    """Returns the sizes that the source states of each row's image, by side."""
    return {
        feature.states: chunk[feature.name].to_pylist()
        for feature in schema.features
        if feature.states and feature.derived_from == image.name
    }


def _contradiction(
    item: LoadedImage, stated: Mapping[str, list[int | None]], index: int
) -> Fault | None:
    """Returns the fault of an image whose size is not as its row states; else None."""
    source = item.prepared.source
    said = {side: values[index] for side, values in stated.items()}
    if _is_size(said, source.height, source.width):
        return None
    of_turned = turns(source.orientation) and _is_size(
        said, source.width, source.height
    )
    # The policy has applied an EXIF orientation.
    if of_turned and item.prepared.geometry != item.prepared.upright:
        return None
    side = next(s for s in said if said[s] not in (None, getattr(source, s)))
    message = f"its {side} is {getattr(source, side)}, but {said[side]} is stated"
    if of_turned:
        message += (
            f": its EXIF orientation {source.orientation} exchanges the two, so the "
            f"annotation is of the turned image; --exif apply turns it"
        )
    return Fault(Reason.SIZE_MISMATCH, message)


def _not_over(mask: LoadedImage, image: Loaded) -> Fault | None:
    """Returns why a mask does not fit its image, if the image is sound."""
    if not isinstance(image, LoadedImage) or isinstance(image.result, Fault):
        return None
    own, other = mask.prepared.source, image.prepared.source
    if (own.height, own.width) == (other.height, other.width):
        return None
    return Fault(
        Reason.SIZE_MISMATCH,
        f"the mask has {own.width} x {own.height} pixels, and the image "
        f"{other.width} x {other.height}",
    )


def _is_size(said: Mapping[str, int | None], height: int, width: int) -> bool:
    """Whether the stated sides are these pixels; a side that is None may be any."""
    actual = {"height": height, "width": width}
    return all(value in (None, actual[side]) for side, value in said.items())


def boxes_moved(
    chunk: pa.Table, loaded: Sequence[ImageColumn], schema: Schema
) -> pa.Table:
    """Returns the rows with boxes moved as their images were resized.

    Nothing says whether boxes are of the image as it is stored or as EXIF turns it.
    Where the image is turned, they are of the turned one, and stay on it, unless the
    stated size is that of the stored one alone: then they are turned, too.

    Row by row, because each image has a geometry of its own; hardly any has one.
    A box is of one image: features with several have none.
    """
    if not schema.of_kind(Kind.BOX):
        return chunk
    images = {
        feature.name: _geometries(column, _stated(chunk, feature, schema))
        for feature, column in zip(schema.loaded, loaded, strict=True)
        if not feature.is_list
    }
    for feature in schema.of_kind(Kind.BOX):
        shapes = images[feature.derived_from or next(iter(images))]
        if all(shape == AS_STORED for shape in shapes):
            continue
        boxes = [
            shape.map_boxes(cell).tolist() if cell else cell
            for shape, cell in zip(shapes, chunk[feature.name].to_pylist(), strict=True)
        ]
        index = chunk.schema.get_field_index(feature.name)
        moved = pa.array(boxes, row_type(feature))
        chunk = chunk.set_column(index, chunk.schema.field(index), moved)
    return chunk


def _geometries(
    column: ImageColumn, stated: Mapping[str, list[int | None]]
) -> list[Geometry]:
    """Returns how boxes move with the image of each row, if it has one."""
    shapes = [AS_STORED] * len(column)
    for row, item in zip(column.rows, column.images, strict=True):
        source = item.prepared.source
        said = {side: values[row] for side, values in stated.items()}
        is_of_stored = turns(source.orientation) and not _is_size(
            said, source.width, source.height
        )
        shapes[row] = item.prepared.geometry if is_of_stored else item.prepared.upright
    return shapes


def derived_columns(
    loaded: Sequence[ImageColumn], schema: Schema
) -> dict[str, pa.Array]:
    """Returns the columns that are derived from the images, by feature name."""
    by_name = dict(zip((f.name for f in schema.loaded), loaded, strict=True))
    alone = next(iter(by_name), "")
    return {
        feature.name: by_name[feature.derived_from or alone].derived(feature)
        for feature in schema.features
        if feature.derived
    }


def store_fingerprints(
    key: ShardKey, rows: ShardRows, prints: Sequence[tuple[int, int]], store: Store
) -> Fingerprints:
    """Stores the fingerprints of the images of one shard.

    Args:
      key: the shard.
      rows: of the shard.
      prints: of each image, its fingerprint (see `fingerprint_image`) and the position
        of its row in `rows.table`; a row may have several images. At least one.
      store: where to put them; a second attempt puts the same.
    """
    split, number = key
    values, positions = zip(*prints, strict=True)
    origins, numbers = rows.places(np.array(positions))
    packed = pack_fingerprints(
        np.array(values, np.uint64), np.zeros(len(values), np.int64), numbers, origins
    )
    # The rows of another plan may be others.
    name = f"images\0{split}\0{store.plan}"
    parts = [(packed.num_rows, packed.serialize())]
    (piece,) = store.put(name, number, parts)
    return Fingerprints(
        Subject.IMAGE,
        (split,),
        segment=dataclasses.replace(piece, origin=split),
    )
