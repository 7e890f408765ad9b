"""TensorFlow: `tf.data` over the shards.

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
"""

from collections.abc import Iterator, Sequence

from beam_pipeline.reader_programs.facts import (
    Facts,
    assigned,
    literal,
    number_below,
    varies,
)
from beam_pipeline.terminal.words import count_text, shape_text, share_text
from transforms.core.manifest import FeatureFacts
from transforms.core.naming import COMPRESSION_SUFFIXES
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


def tensorflow(facts: Facts) -> str:
    """Returns the program: `feature_description`, `parse`, `read` and `batches`."""
    manifest = facts.manifest
    shards = {literal(s.name): str(len(s.shards)) for s in manifest.splits}
    records = {literal(s.name): str(s.records) for s in manifest.splits}
    compression = _COMPRESSION_TYPES[manifest.compression]
    option = f', compression_type="{compression}"' if compression else ""
    suffix = COMPRESSION_SUFFIXES[manifest.compression]
    definitions = [
        f"DIRECTORY = {literal(facts.shard_folder)}",
        f"NAME = {literal(manifest.name)}",
        *assigned("SHARDS", shards),
        *assigned("RECORDS", records),
        *facts.class_lists(),
        *([facts.size_line] if facts.image else []),
        "",
        "feature_description = {",
        *(f"    {line}" for column in facts.features for line in _entry(column, facts)),
        "}",
    ]
    mapped, batched = "", ".batch(size)"
    if facts.image:
        mapped = "\n        .map(prepare, num_parallel_calls=tf.data.AUTOTUNE)"
    if any(varies(column.feature) for column in facts.features):
        batched = ".ragged_batch(size)  # .batch takes no lists of any length"
    return f"""\
{facts.heading}
import tensorflow as tf

{chr(10).join(definitions)}


def parse(record):
    \"\"\"One serialised record -> feature name -> value.\"\"\"
    return tf.io.parse_single_example(record, feature_description)


def read(split):
    \"\"\"All records of a split, parsed.\"\"\"
    count = SHARDS[split]
    files = [
        f"{{DIRECTORY}}/{{NAME}}-{{split}}.tfrecord-{{i:05d}}-of-{{count:05d}}{suffix}"
        for i in range(count)
    ]
    dataset = tf.data.TFRecordDataset(files{option}).map(parse)
    # reading fails if a record is missing; Keras knows the number of steps
    counted = tf.data.experimental.assert_cardinality(RECORDS[split])
    return dataset.apply(counted)


{_preparing(facts)}\
def batches(split, size=32):
    \"\"\"Batches for training, in another order each time.\"\"\"
    return (
        read(split)
        .shuffle(1000)  # the files are shuffled; this varies the epochs{mapped}
        {batched}
        .prefetch(tf.data.AUTOTUNE)
    )


if __name__ == "__main__":
{_main(facts)}"""


def _preparing(facts: Facts) -> str:
    """Returns functions that decode the image; empty for none."""
    if not facts.image:
        return ""
    name = literal(facts.image)
    what = "Feature name -> value, with the decoded image."
    returned = f"row | {{{name}: decode(row[{name}])}}"
    if facts.classified is not None:
        what = "The image and its class, which are all that a model needs."
        returned = f"decode(row[{name}]), row[{literal(facts.label)}]"
    return f"""\
def decode(encoded):
    \"\"\"Decodes the bytes of an image and resizes it: float32, 0 to 1.\"\"\"
    # expand_animations=True would give images of no known rank
    image = tf.io.decode_image(encoded, {_DECODING})
    return tf.image.resize(image, [SIZE, SIZE]) / 255


def prepare(row):
    \"\"\"{what}\"\"\"
    return {returned}


"""


def _main(facts: Facts) -> str:
    """Returns what the program does: it prints a batch and trains a small model."""
    split = literal(facts.split.name)
    if facts.classified is None:
        return f"""\
    batch = next(iter(batches({split})))
    for name, values in batch.items():
        print(name, values.dtype.name, values.shape)
"""
    image, label = literal(facts.image), literal(facts.label)
    validated = ""
    if facts.validation:
        validated = f", validation_data=batches({literal(facts.validation)})"
    count = str(len(facts.classified.classes))
    shown = 'int(label), "is taken for", guess'
    if facts.is_listed(facts.classified):
        names = f"CLASSES[{label}]"
        count = f"len({names})"
        shown = f'{names}[label], "is taken for", {names}[guess]'
    return f"""\
    values, target = next(iter(batches({split})))
    print({image}, values.dtype.name, values.shape)
    print({label}, target.dtype.name, target.shape)

    # a small model, to be replaced by yours
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Conv2D(16, 3, strides=2, activation="relu"),
            tf.keras.layers.Conv2D(32, 3, strides=2, activation="relu"),
            tf.keras.layers.GlobalAveragePooling2D(),
            tf.keras.layers.Dense({count}, activation="softmax"),
        ]
    )
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(batches({split}){validated}, epochs=1)

    # of a file: decode(tf.io.read_file("photo.jpg"))
    image, label = next(iter(read({literal(facts.unseen)}).map(prepare)))
    guess = model.predict(image[None], verbose=0)[0].argmax()
    print({shown})
"""


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
    return [-1 if n is None else n for n in shape]


def _default(facts: FeatureFacts) -> tuple[str, str]:
    """Returns the default value as program text, and what to say of it."""
    match facts.feature.kind:
        case Kind.FLOAT | Kind.BOX:
            return 'float("nan")', "NaN"
        case Kind.TEXT | Kind.BYTES | Kind.IMAGE | Kind.TENSOR:
            return '""', "empty"
        case _:
            return number_below(facts)
