"""What the program for TensorFlow says: `tf.data` over the shards.

| feature                 | read with                                      | gives    |
| ----------------------- | ---------------------------------------------- | -------- |
| one value               | FixedLenFeature([])                            | a scalar |
| list of known shape     | FixedLenFeature(shape)                         | a tensor |
| list of any length      | RaggedFeature: where it is absent, it is empty | a vector |
| with known inner sizes  | FixedLenSequenceFeature, likewise              | a tensor |
| list of lists           | RaggedFeature with RowLengths, likewise        | ragged   |
| boxes                   | four RaggedFeatures, one for each side         | vectors  |

A feature that every record holds has no default: its absence would be an error. Others
of a known shape have that of `facts`. What is encoded (images, tensors, timestamps) is
read as it is stored; a comment says how to decode it, and `prepare` decodes the image.
Where it has no class, `draw` writes a picture of its boxes, masks and key points.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from beam_pipeline.reader_programs.programs import Facts, assigned, literal, varies
from beam_pipeline.terminal import count_text, shape_text, share_text
from transforms.core.files import COMPRESSION_SUFFIXES
from transforms.core.manifest import FeatureFacts
from transforms.core.schema import BOX_SIDES, Feature, Kind, Unknown

_DTYPES = {
    Kind.INT64: "tf.int64",
    Kind.FLOAT: "tf.float32",
    Kind.BOOL: "tf.int64",
    Kind.TEXT: "tf.string",
    Kind.BYTES: "tf.string",
    Kind.LABEL: "tf.int64",
    Kind.IMAGE: "tf.string",
    Kind.TIMESTAMP: "tf.int64",
    Kind.TENSOR: "tf.string",
    Kind.BOX: "tf.float32",
}
_UNITS = {
    "s": "seconds",
    "ms": "milliseconds",
    "us": "microseconds",
    "ns": "nanoseconds",
}
# `tf.io.decode_raw` takes no unsigned type of more than 16 bits.
_RAW_DTYPES = {"uint32": "int32", "uint64": "int64"}
_COMPRESSION_TYPES = {"none": "", "gzip": "GZIP", "zlib": "ZLIB"}
# Without the last, an image has no known rank, and tf.image.resize refuses it.
_DECODING = "channels=3, expand_animations=False"


def tensorflow(facts: Facts) -> dict[str, Any]:
    """Returns what the template uses: sizes, classes and `feature_description`."""
    manifest = facts.manifest
    shards = {literal(s.name): str(len(s.shards)) for s in manifest.splits}
    records = {literal(s.name): str(s.records) for s in manifest.splits}
    sizes = [
        f"NAME = {literal(manifest.name)}",
        *assigned("SHARDS", shards),
        *assigned("RECORDS", records),
    ]
    constants = [] if facts.has_parts else sizes
    kinds = {column.feature.name: column.feature.kind for column in facts.features}
    boxes = [f"{name}/" for name, kind in kinds.items() if kind is Kind.BOX]
    # Of images with a class, a model is trained instead.
    is_drawn = facts.image and facts.classified is None
    return {
        "sizes": [*constants, *facts.class_lists()],
        "description": [*itertools.chain(*(_entry(f, facts) for f in facts.features))],
        "suffix": COMPRESSION_SUFFIXES[manifest.compression],
        "compression": _COMPRESSION_TYPES[manifest.compression],
        "decoding": _DECODING,
        "masks": facts.masks if is_drawn else [],
        "boxes": boxes[0] if is_drawn and boxes else "",
        "points": "image/object/keypoint/visibility" in kinds,
        "varies": any(varies(column.feature) for column in facts.features),
    }


def _entry(facts: FeatureFacts, of: Facts) -> Iterator[str]:
    """Yields the lines of one feature: what there is to say, and its entries."""
    feature, present = facts.feature, facts.statistics.present
    default, comments = "", list(_comments(facts, of))
    if of.is_missing(facts):
        value, meaning = _default(facts)
        if varies(feature):
            meaning = "empty"
        elif feature.is_list:
            value = f"[{value}] * {feature.values_each}"
        default = f", default_value={value}"
        share = share_text(present, of.manifest.records)
        comments.append(f"in {share} of the records; elsewhere {meaning}")
    for comment in comments:
        yield f"# {comment}"
    dtype = _DTYPES[feature.kind]
    if feature.is_ragged:
        yield from _ragged_entry(feature, dtype)
    elif feature.kind is Kind.BOX:
        for key in feature.record_keys:
            yield f"{literal(key)}: tf.io.RaggedFeature({dtype}),"
    else:
        yield f"{literal(feature.name)}: {_reader(feature, dtype, default)},"


def _ragged_entry(feature: Feature, dtype: str) -> Iterator[str]:
    """Yields the entry that parses a list of lists: its values, cut by row lengths."""
    values, lengths = map(literal, feature.record_keys)
    yield f"{literal(feature.name)}: tf.io.RaggedFeature("
    yield f"    {dtype},"
    yield f"    value_key={values},"
    yield f"    partitions=[tf.io.RaggedFeature.RowLengths({lengths})],"
    yield "),"


def _reader(feature: Feature, dtype: str, default: str) -> str:
    """Returns the entry of a feature that one key holds."""
    if not varies(feature):
        shape = list(feature.shape) if feature.is_list else []
        return f"tf.io.FixedLenFeature({shape}, {dtype}{default})"
    inner = feature.shape[1:]
    if inner and not _is_flat(feature):
        shape = list(inner)
        return f"tf.io.FixedLenSequenceFeature({shape}, {dtype}, allow_missing=True)"
    return f"tf.io.RaggedFeature({dtype})"


def _is_flat(feature: Feature) -> bool:
    """Whether a list of several dimensions can be read as one of values only."""
    if feature.is_ragged or not feature.is_list or len(feature.shape) < 2:
        return False
    # By a size of 0 TensorFlow would divide.
    return varies(feature) and (0 in feature.shape or None in feature.shape[1:])


def _comments(facts: FeatureFacts, of: Facts) -> Iterator[str]:
    """Yields what a reader must know to use a feature."""
    feature = facts.feature
    if feature.is_label:
        yield "to predict"
    match feature.kind:
        case Kind.LABEL:
            yield from _label_comments(facts, of)
        case Kind.BOOL:
            yield "0 or 1"
        case Kind.IMAGE if feature.mask and feature.derived_from:
            what = "masks of objects" if feature.is_list else "a mask of classes"
            value = "value[i]" if feature.is_list else "value"
            yield f"{what}: tf.io.decode_png({value}, channels=1)"
        case Kind.IMAGE:
            if feature.is_list:
                yield f"encoded images: tf.io.decode_image(value[i], {_DECODING})"
            else:
                yield f"an encoded image: tf.io.decode_image(value, {_DECODING})"
        case Kind.TIMESTAMP:
            unit = feature.unit or "s"
            yield (
                f"{_UNITS.get(unit, unit)} since 1970-01-01 UTC: "
                f'value.numpy().astype("datetime64[{unit}]")'
            )
        case Kind.TENSOR:
            yield _tensor_comment(feature)
        case Kind.BOX:
            yield f"boxes: their {', '.join(BOX_SIDES)}, in parallel lists"
    if _is_flat(feature):
        if feature.shape.count(None) > 1:
            yield f"all values of shape {shape_text(feature.shape)}, row by row"
        else:
            yield f"row by row: tf.reshape(value, {_reshape(feature.shape)})"


def _label_comments(facts: FeatureFacts, of: Facts) -> Iterator[str]:
    """Yields where the class names of an id are, and which id is for unknown names."""
    count = len(facts.classes)
    if of.is_listed(facts):
        yield f"index in CLASSES[{literal(facts.feature.name)}]"
    else:
        classes = count_text(count, "class", "classes")
        yield f"id of one of {classes}, whose names are in manifest.json"
    if facts.feature.unknown is Unknown.OOV and facts.feature.vocabulary is not None:
        yield f"{count - 1}: any name outside the given vocabulary"


def _tensor_comment(feature: Feature) -> str:
    """Returns what a tensor is, and the expression that decodes it."""
    dtype = feature.dtype
    named = f"{dtype or 'a tensor'} {shape_text(feature.shape) or '[]'}"
    if feature.encoding == "proto":
        given = f"tf.{dtype}" if dtype else "dtype"
        return f"{named}: tf.io.parse_tensor(value, {given})"
    stored = _RAW_DTYPES.get(dtype, dtype)
    decoded = f"tf.io.decode_raw(value, tf.{stored})"
    if stored != dtype:
        decoded = f"tf.bitcast({decoded}, tf.{dtype})"
    if feature.shape.count(None) > 1:
        return f"{named}, flat: {decoded}"
    return f"{named}: tf.reshape({decoded}, {_reshape(feature.shape)})"


def _reshape(shape: Sequence[int | None]) -> list[int]:
    """Returns a shape as `tf.reshape` takes it: -1 for a size that differs."""
    return [-1 if n is None else n for n in shape]


def _default(facts: FeatureFacts) -> tuple[str, str]:
    """Returns the default value as program text, and what to say of it."""
    match facts.feature.kind:
        case Kind.FLOAT | Kind.BOX:
            return 'float("nan")', "NaN"
        case Kind.TEXT | Kind.BYTES | Kind.IMAGE | Kind.TENSOR:
            return '""', "empty"
    number = str(facts.number_below)
    if facts.feature.kind not in (Kind.INT64, Kind.TIMESTAMP):
        return number, number
    which = (
        "which no record holds" if facts.number_below else "which others may hold too"
    )
    return number, f"{number}, {which}"
