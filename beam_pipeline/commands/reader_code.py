"""`schema DATASET --as tensorflow`: print a program that reads the dataset.

| feature                 | read with                                      | gives    |
| ----------------------- | ---------------------------------------------- | -------- |
| one value               | FixedLenFeature([])                            | a scalar |
| list of known shape     | FixedLenFeature(shape)                         | a tensor |
| list of any length      | RaggedFeature: where it is absent, it is empty | a vector |
| with known inner sizes  | FixedLenSequenceFeature, likewise              | a tensor |
| list of lists           | RaggedFeature with RowLengths, likewise        | ragged   |
| boxes                   | four RaggedFeatures, one for each side         | vectors  |

A feature that every record holds has no default: its absence would be an error. The
others of a known shape get a default that no record holds, so that it can be told
from a value:

| feature                     | default_value                                          |
| --------------------------- | ------------------------------------------------------ |
| int64, timestamp            | -1, or below the smallest value where that is negative |
| bool, label                 | -1                                                     |
| float                       | NaN                                                    |
| text, bytes, image, tensor  | empty; only here a record may hold the same            |

What is encoded (images, tensors, timestamps) is read as it is stored; a comment says
how to decode it.
"""

import json
from collections.abc import Iterator, Sequence

from beam_pipeline.datasets.dataset import Dataset, SingleFile, open_target
from beam_pipeline.terminal.printing import print_text, printable
from beam_pipeline.terminal.words import count_text, shape_text, share_text
from transforms.core.manifest import FeatureFacts, Manifest
from transforms.core.naming import COMPRESSION_SUFFIXES
from transforms.core.schema import BOX_SIDES, Feature, Kind, Unknown
from transforms.errors import UsageError

__all__ = ["show", "tensorflow_code"]

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
_INT64_MIN = -(2**63)
# Without the last, an image has no known rank, and tf.image.resize refuses it.
_DECODING = "channels=3, expand_animations=False"
# More class names than this are left in the manifest.
_MAX_CLASSES = 100
_COLUMNS = 88


def show(path: str) -> int:
    """Prints the program text that reads a dataset; returns 0.

    Raises:
      UsageError: there is no dataset.
      DamageError: its manifest is damaged.
    """
    target = open_target(path)
    if isinstance(target, SingleFile):
        if target.dataset is None:
            raise UsageError(
                f"A dataset is needed: its manifest knows the features, and "
                f"{path!r} is a single file that none names. 'inspect' shows what "
                f"such a file holds."
            )
        target = target.dataset
    print_text(tensorflow_code(target), end="")
    return 0


def tensorflow_code(dataset: Dataset) -> str:
    """Returns Python text that defines `feature_description`, `parse` and `read`."""
    manifest = dataset.manifest
    summary = (
        f"{printable(manifest.name)}: {count_text(manifest.records, 'record')}, "
        f"digest {manifest.digest[:12]}"
    )
    shards = {split.name: len(split.shards) for split in manifest.splits}
    records = {split.name: split.records for split in manifest.splits}
    suffix = COMPRESSION_SUFFIXES[manifest.compression]
    compression = _COMPRESSION_TYPES[manifest.compression]
    option = f', compression_type="{compression}"' if compression else ""
    lines = [
        f"# {summary}",
        "import tensorflow as tf",
        "",
        f"DIRECTORY = {_literal(dataset.directory or '.')}",
        f"NAME = {_literal(manifest.name)}",
        *_dict("SHARDS", {_literal(k): str(n) for k, n in shards.items()}),
        *_dict("RECORDS", {_literal(k): str(n) for k, n in records.items()}),
        *_class_lists(manifest),
        "",
        "feature_description = {",
        *(
            f"    {line}"
            for facts in manifest.features
            if not facts.feature.internal
            for line in _entry(facts, manifest)
        ),
        "}",
        "",
        "",
        "def parse(record):",
        '    """One serialised record -> feature name -> value."""',
        "    return tf.io.parse_single_example(record, feature_description)",
        "",
        "",
        "def read(split):",
        '    """All records of a split, parsed."""',
        "    count = SHARDS[split]",
        "    files = [",
        '        f"{DIRECTORY}/{NAME}-{split}.tfrecord-{i:05d}-of-{count:05d}'
        f'{suffix}"',
        "        for i in range(count)",
        "    ]",
        *_batching(manifest),
        f"    dataset = tf.data.TFRecordDataset(files{option}).map(parse)",
        "    # reading fails if a record is missing; Keras knows the number of steps",
        "    counted = tf.data.experimental.assert_cardinality(RECORDS[split])",
        "    return dataset.apply(counted)",
    ]
    return "\n".join(lines) + "\n"


def _entry(facts: FeatureFacts, manifest: Manifest) -> Iterator[str]:
    """Yields the lines of one feature: what there is to say, and its entries."""
    feature, present = facts.feature, facts.statistics.present
    default, comments = "", list(_comments(facts))
    if present < manifest.records:
        value, meaning = _default(facts)
        if _varies(feature):
            meaning = "empty"
        elif feature.is_list:
            value = f"[{value}] * {feature.values_each}"
        default = f", default_value={value}"
        share = share_text(present, manifest.records)
        comments.append(f"in {share} of the records; elsewhere {meaning}")
    for comment in comments:
        yield f"# {comment}"
    dtype = _DTYPES[feature.kind]
    if feature.is_ragged:
        yield from _ragged_entry(feature, dtype)
    elif feature.kind is Kind.BOX:
        for key in feature.record_keys:
            yield f"{_literal(key)}: tf.io.RaggedFeature({dtype}),"
    else:
        yield f"{_literal(feature.name)}: {_reader(feature, dtype, default)},"


def _ragged_entry(feature: Feature, dtype: str) -> Iterator[str]:
    values, lengths = map(_literal, feature.record_keys)
    yield f"{_literal(feature.name)}: tf.io.RaggedFeature("
    yield f"    {dtype},"
    yield f"    value_key={values},"
    yield f"    partitions=[tf.io.RaggedFeature.RowLengths({lengths})],"
    yield "),"


def _reader(feature: Feature, dtype: str, default: str) -> str:
    """Returns the entry of a feature that one key holds."""
    if not _varies(feature):
        shape = list(feature.shape) if feature.is_list else []
        return f"tf.io.FixedLenFeature({shape}, {dtype}{default})"
    inner = feature.shape[1:]
    if inner and not _is_flat(feature):
        shape = list(inner)
        return f"tf.io.FixedLenSequenceFeature({shape}, {dtype}, allow_missing=True)"
    return f"tf.io.RaggedFeature({dtype})"


def _varies(feature: Feature) -> bool:
    """Whether it is read as a list of any length, which is empty where it is absent."""
    # A default without values is one that TensorFlow refuses.
    unknown = None in feature.shape or 0 in feature.shape
    return feature.kind is Kind.BOX or (feature.is_list and unknown)


def _is_flat(feature: Feature) -> bool:
    """Whether a list of several dimensions can be read as one of values only."""
    if feature.is_ragged or not feature.is_list or len(feature.shape) < 2:
        return False
    # By a size of 0 TensorFlow would divide.
    return _varies(feature) and (0 in feature.shape or None in feature.shape[1:])


def _batching(manifest: Manifest) -> Iterator[str]:
    """Yields a comment on batches where they need one."""
    if any(_varies(f.feature) for f in manifest.features if not f.feature.internal):
        yield "    # lists differ in length: .ragged_batch(n) batches them, not .batch"


def _comments(facts: FeatureFacts) -> Iterator[str]:
    """Yields what a reader must know to use a feature."""
    feature = facts.feature
    if feature.is_label:
        yield "to predict"
    match feature.kind:
        case Kind.LABEL:
            yield from _label_comments(facts)
        case Kind.BOOL:
            yield "0 or 1"
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


def _label_comments(facts: FeatureFacts) -> Iterator[str]:
    count = len(facts.classes)
    if _is_listed(facts):
        yield f"index in CLASSES[{_literal(facts.feature.name)}]"
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
    return [-1 if n is None else n for n in shape]


def _default(facts: FeatureFacts) -> tuple[str, str]:
    """Returns the default value as program text, and what to say of it."""
    match facts.feature.kind:
        case Kind.FLOAT | Kind.BOX:
            return 'float("nan")', "NaN"
        case Kind.TEXT | Kind.BYTES | Kind.IMAGE | Kind.TENSOR:
            return '""', "empty"
        case Kind.INT64 | Kind.TIMESTAMP:
            smallest = facts.statistics.minimum
            if smallest is None or smallest >= 0:
                return "-1", "-1, which no record holds"
            if smallest > _INT64_MIN:
                return f"{smallest - 1}", f"{smallest - 1}, which no record holds"
            return "0", "0, which others may hold too"
        case _:
            return "-1", "-1"


def _is_listed(facts: FeatureFacts) -> bool:
    """Whether the class names of a label are few enough to be printed."""
    few = len(facts.classes) <= _MAX_CLASSES
    return facts.feature.kind is Kind.LABEL and few and not facts.feature.internal


def _class_lists(manifest: Manifest) -> list[str]:
    """Returns the lines that define CLASSES, if any label has few enough."""
    lists = {}
    for facts in manifest.features:
        if _is_listed(facts):
            names = [_literal(name) for name in facts.classes]
            text = f"[{', '.join(names)}]"
            if len(_literal(facts.feature.name)) + len(text) + 7 > _COLUMNS:
                items = "".join(f"        {name},\n" for name in names)
                text = f"[\n{items}    ]"
            lists[_literal(facts.feature.name)] = text
    return _dict("CLASSES", lists, always_long=True) if lists else []


def _dict(
    name: str, entries: dict[str, str], *, always_long: bool = False
) -> list[str]:
    """Returns the lines that define a dictionary, one line if they fit into it."""
    short = ", ".join(f"{key}: {value}" for key, value in entries.items())
    line = f"{name} = {{{short}}}"
    if len(line) <= _COLUMNS and not always_long:
        return [line]
    long = [f"    {key}: {value}," for key, value in entries.items()]
    return [f"{name} = {{", *long, "}"]


def _literal(text: str) -> str:
    """Returns a text as a Python literal, with nothing in it that is not printable."""
    return json.dumps(text, ensure_ascii=not text.isprintable())
