"""`features.json`: the TFDS feature of every key of the records.

| feature             | always present        | else                  | absent gives   |
| ------------------- | --------------------- | --------------------- | ---------------|
| int64, timestamp    | Scalar                | optional Scalar       | smallest value |
| float               | Scalar                | optional Scalar       | smallest value |
| bool                | Scalar                | optional Scalar       | False          |
| text                | Text                  | optional Scalar       | empty          |
| bytes, proto tensor | Scalar of strings     | optional Scalar       | empty          |
| label               | ClassLabel            | Sequence of 0 or 1    | empty          |
| image               | Image                 | Sequence of 0 or 1    | empty          |
| list of images      | Sequence of Image, or | the same              | empty          |
|                     | of strings            |                       |                |
| raw tensor          | Tensor, decoded       | Sequence of 0 or 1    | empty          |
| list                | Sequence              | Sequence              | empty          |
| list of known shape | Tensor                | Tensor, first size -1 | empty          |
| ragged list         | Sequence of Sequences | the same              | empty          |
| box                 | four Sequences        | the same              | empty          |

Keys are those of the records: the four sides of a box, `name/xmin` and so on, are
features of their own, and TFDS finds `name/ragged_flat_values` of a ragged list
itself. TFDS decodes the images of a list to one tensor, so unless all are known to have
one size they are shown as strings.

Sources: `tensorflow_datasets/core/proto/feature.proto`, `core/features/` and
`core/example_parser.py` of TFDS 4.9.10; all of it tried out by the tests.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from transforms.core.manifest import FeatureFacts, Manifest
from transforms.core.schema import Feature, Kind

_PACKAGE = "tensorflow_datasets.core.features."
_DTYPES = {
    Kind.INT64: "int64",
    Kind.FLOAT: "float32",
    Kind.BOOL: "bool",
    Kind.TEXT: "string",
    Kind.BYTES: "string",
    Kind.TIMESTAMP: "int64",
    Kind.LABEL: "int64",
    Kind.TENSOR: "string",
    Kind.BOX: "float32",
}
# The types of `tf.io.decode_raw`, which TFDS uses, and uint64, which it casts.
_RAW_DTYPES = frozenset(
    "bool int8 int16 int32 int64 uint8 uint16 uint64 float16 float32 float64 "
    "complex64 complex128".split()
)
# The least that a BMP has before its pixels.
_BMP_HEADER_BYTES = 54

_Json = dict[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Shown:
    """The features as TFDS shows them.

    Attributes:
      features: key -> the JSON form of the proto `Feature`.
      notes: sentences about features that lose a type or shape.
    """

    features: Mapping[str, _Json]
    notes: tuple[str, ...]


def show_features(manifest: Manifest, listed: frozenset[str]) -> Shown:
    """Returns the entry of `features.json` for each key of the records.

    Args:
      manifest: of the dataset.
      listed: names of the labels that have a labels file.
    """
    features: dict[str, _Json] = {}
    notes = []
    # Counted once: wide datasets of many shards would take quadratic time.
    records = manifest.records
    for facts in manifest.features:
        feature = facts.feature
        if feature.internal:
            continue
        optional = facts.statistics.present < records
        if note := _lesser(facts, manifest, optional):
            notes.append(f"TFDS will show {feature.name!r} as {note}.")
        described = _describe(
            facts, manifest, feature.name in listed, optional=optional
        )
        for key in feature.record_keys if feature.kind is Kind.BOX else [feature.name]:
            features[key] = described
    return Shown(features, tuple(notes))


def typed(class_name: str, **content: _Json) -> _Json:
    """Returns the JSON form of a proto `Feature` of one of TFDS's classes."""
    return {"pythonClassName": _PACKAGE + class_name, **content}


def _describe(
    facts: FeatureFacts, manifest: Manifest, listed: bool, *, optional: bool
) -> _Json:
    feature = facts.feature
    if feature.kind is Kind.IMAGE:
        image = _image(facts, manifest)
        if feature.is_list:
            image = image if _stackable(facts, manifest) else _scalar(Kind.BYTES)
            return _sequence(image, None if optional else feature.values_each)
        return _sequence(image) if optional else image
    if feature.kind is Kind.TENSOR and not _undecodable(feature):
        tensor = _tensor(feature.shape, feature.dtype, "bytes")
        return _sequence(tensor) if optional else tensor
    if feature.is_ragged:
        return _sequence(_sequence(_value(facts, listed)))
    if feature.kind is Kind.BOX:
        return _sequence(_value(facts, listed))
    if len(feature.shape) == 1 and feature.is_list:
        (length,) = feature.shape
        if feature.kind is Kind.LABEL or length is None:
            return _sequence(_value(facts, listed), None if optional else length)
    if feature.is_list:
        return _tensor(_list_shape(feature, optional), _DTYPES[feature.kind])
    if optional:
        if feature.kind is Kind.LABEL and listed:
            return _sequence(_value(facts, listed))
        return _scalar(feature.kind, optional=True)
    return _value(facts, listed)


def _value(facts: FeatureFacts, listed: bool) -> _Json:
    """Returns the TFDS feature of a single value."""
    kind = facts.feature.kind
    if kind is Kind.LABEL and listed:
        return typed(
            "class_label_feature.ClassLabel",
            classLabel={"numClasses": str(len(facts.classes))},
        )
    return typed("text_feature.Text", text={}) if kind is Kind.TEXT else _scalar(kind)


def _scalar(kind: Kind, *, optional: bool = False) -> _Json:
    tensor: _Json = {"shape": {}, "dtype": _DTYPES[kind], "encoding": "none"}
    if optional:
        tensor["optional"] = True
    return typed("scalar.Scalar", tensor=tensor)


def _tensor(shape: tuple[int | None, ...], dtype: str, encoding: str = "none") -> _Json:
    return typed(
        "tensor_feature.Tensor",
        tensor={"shape": _dimensions(shape), "dtype": dtype, "encoding": encoding},
    )


def _sequence(feature: _Json, length: int | None = None) -> _Json:
    size = "-1" if length is None else str(length)
    return typed(
        "sequence_feature.Sequence", sequence={"length": size, "feature": feature}
    )


def _dimensions(shape: tuple[int | None, ...]) -> _Json:
    """Returns a shape as TFDS's JSON has it: sizes as text, -1 for any."""
    return {"dimensions": ["-1" if n is None else str(n) for n in shape]}


def _list_shape(feature: Feature, optional: bool) -> tuple[int | None, ...]:
    """Returns the shape in which TFDS can read a list that is not ragged."""
    shape = feature.shape
    if optional and None not in shape:
        # TFDS reads an absent list as an empty one, of another size than the rest.
        shape = (None, *shape[1:])
    # TensorFlow divides by a size of 0 here, and the process dies.
    too_many = shape.count(None) > 1 or (None in shape and 0 in shape)
    return (None,) if too_many else shape


def _stackable(image: FeatureFacts, manifest: Manifest) -> bool:
    """Whether all images of a feature are known to be decoded to one size."""
    by_role = dict(_derived(image, manifest))
    sizes = [by_role.get("height"), by_role.get("width")]
    same = all(size is not None and size.minimum == size.maximum for size in sizes)
    return same and _channels(image, manifest) is not None


def _lesser(facts: FeatureFacts, manifest: Manifest, optional: bool) -> str:
    """Returns how TFDS shows a feature that loses something, and why; else ""."""
    feature = facts.feature
    if feature.kind is Kind.IMAGE and feature.is_list:
        one_size = _stackable(facts, manifest)
        return "" if one_size else "bytes: it decodes lists of images of one size only"
    if feature.kind is Kind.TENSOR and (reason := _undecodable(feature)):
        return f"bytes: {reason}"
    dimensions = 0 if feature.is_ragged or not feature.is_list else len(feature.shape)
    if dimensions > 1 and len(_list_shape(feature, optional)) == 1:
        return "flat lists: it has no lists of this shape"
    return ""


def _undecodable(feature: Feature) -> str:
    """Returns why TFDS cannot decode a tensor, "" if it can."""
    if feature.encoding == "proto":
        return "tf.io.parse_tensor decodes them"
    if feature.dtype not in _RAW_DTYPES:
        return f"it cannot decode {feature.dtype or 'an unknown type'}"
    if feature.shape.count(None) > 1:
        return "more than one size of the shape is unknown"
    if 0 in feature.shape and None in feature.shape:
        return "there is nothing in them"
    return ""


def _image(facts: FeatureFacts, manifest: Manifest) -> _Json:
    channels = _channels(facts, manifest)
    # No encodingFormat: only writers use it, and a feature may mix formats.
    return typed(
        "image_feature.Image",
        image={"shape": _dimensions((None, None, channels)), "dtype": "uint8"},
    )


def _channels(image: FeatureFacts, manifest: Manifest) -> int | None:
    """Returns how many channels TFDS must decode; None: those of each image.

    TensorFlow decodes every format to 3 channels, and 4 where the depth is 4: in PNG
    and BMP. It decodes gray JPEG and PNG to 1 but refuses that for gray BMP, so each
    image keeps its own number, unless all files are too small to be a BMP of their
    size.
    """
    by_role = dict(_derived(image, manifest))
    depth = by_role.get("depth")
    if depth is None or depth.minimum != depth.maximum:
        return 3
    if depth.minimum == 4:
        return 4
    if depth.minimum != 1:
        return 3
    height, width = by_role.get("height"), by_role.get("width")
    if height is None or width is None:
        return None
    smallest_bmp = _BMP_HEADER_BYTES + (height.minimum or 0) * (width.minimum or 0)
    return 1 if (image.statistics.maximum or 0) < smallest_bmp else None


def _derived(image: FeatureFacts, manifest: Manifest) -> Iterator[tuple[str, Any]]:
    """Yields (what is derived, its statistics) for the features of one image."""
    for facts in manifest.features:
        source = facts.feature.derived_from
        # Without a name it is the only image there is.
        if facts.feature.derived and source in ("", image.feature.name):
            yield facts.feature.derived, facts.statistics
