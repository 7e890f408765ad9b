"""`schema DATASET --as tensorflow`: the program text that reads a dataset.

A feature that every record holds has no default: its absence would be an error. The
others get a default that no record holds, so that it can be told from a value:

| feature      | default_value                                            |
| ------------ | -------------------------------------------------------- |
| int64        | -1, or below the smallest value where that is negative   |
| bool, label  | -1                                                       |
| float        | NaN                                                      |
| text, bytes  | empty; only here a record may hold the same              |
"""

import json
from collections.abc import Iterator

from beam_pipeline.dataset import (
    Dataset,
    SingleFile,
    count_text,
    open_target,
    printable,
    share_text,
)
from transforms.core.manifest import FeatureFacts, Manifest
from transforms.core.naming import COMPRESSION_SUFFIXES
from transforms.core.schema import Kind
from transforms.errors import UsageError

__all__ = ["STYLES", "show", "tensorflow_code"]

STYLES = ("tensorflow",)

_DTYPES = {
    Kind.INT64: "tf.int64",
    Kind.FLOAT: "tf.float32",
    Kind.BOOL: "tf.int64",
    Kind.TEXT: "tf.string",
    Kind.BYTES: "tf.string",
    Kind.LABEL: "tf.int64",
    Kind.IMAGE: "tf.string",
}
_COMPRESSION_TYPES = {"none": "", "gzip": "GZIP", "zlib": "ZLIB"}
_INT64_MIN = -(2**63)
# More class names than this are left in the manifest.
_MAX_CLASSES = 100
_COLUMNS = 88


def show(path: str, style: str = "tensorflow") -> int:
    """Prints the program text that reads a dataset; returns 0.

    Raises:
      UsageError: there is no dataset, or no such style.
      DamageError: its manifest is damaged.
    """
    if style not in STYLES:
        raise UsageError(
            f"The style must be one of {', '.join(STYLES)}; found {style!r}."
        )
    target = open_target(path)
    if isinstance(target, SingleFile):
        if target.dataset is None:
            raise UsageError(
                f"A dataset is needed: its manifest knows the features, and "
                f"{path!r} is a single file that none names. 'inspect' shows what "
                f"such a file holds."
            )
        target = target.dataset
    print(tensorflow_code(target), end="")
    return 0


def tensorflow_code(dataset: Dataset) -> str:
    """Returns Python text that defines `feature_description`, `parse` and `read`."""
    manifest = dataset.manifest
    summary = (
        f"{printable(manifest.name)}: {count_text(manifest.records, 'record')}, "
        f"digest {manifest.digest[:12]}"
    )
    shards = {split.name: len(split.shards) for split in manifest.splits}
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
        *_class_lists(manifest),
        "",
        "feature_description = {",
        *(
            f"    {line}"
            for facts in manifest.features
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
        f"    return tf.data.TFRecordDataset(files{option}).map(parse)",
    ]
    return "\n".join(lines) + "\n"


def _entry(facts: FeatureFacts, manifest: Manifest) -> Iterator[str]:
    """Yields the lines of one feature: what there is to say, and its entry."""
    feature, present = facts.feature, facts.statistics.present
    default, comments = "", list(_comments(facts))
    if present < manifest.records:
        value, meaning = _default(facts)
        default = f", default_value={value}"
        share = share_text(present, manifest.records)
        comments.append(f"in {share} of the records; elsewhere {meaning}")
    for comment in comments:
        yield f"# {comment}"
    dtype = _DTYPES[feature.kind]
    yield f"{_literal(feature.name)}: tf.io.FixedLenFeature([], {dtype}{default}),"


def _comments(facts: FeatureFacts) -> Iterator[str]:
    kind = facts.feature.kind
    if facts.feature.is_label:
        yield "to predict"
    if kind is Kind.LABEL:
        if _is_listed(facts):
            yield f"index in CLASSES[{_literal(facts.feature.name)}]"
        else:
            count = count_text(len(facts.classes), "class", "classes")
            yield f"id of one of {count}, whose names are in manifest.json"
    elif kind is Kind.BOOL:
        yield "0 or 1"
    elif kind is Kind.IMAGE:
        yield "an encoded image: tf.io.decode_image(value, channels=3)"


def _default(facts: FeatureFacts) -> tuple[str, str]:
    """Returns the default value as program text, and what to say of it."""
    match facts.feature.kind:
        case Kind.FLOAT:
            return 'float("nan")', "NaN"
        case Kind.TEXT | Kind.BYTES | Kind.IMAGE:
            return '""', "empty"
        case Kind.INT64:
            smallest = facts.statistics.minimum
            if smallest is None or smallest >= 0:
                return "-1", "-1, which no record holds"
            if smallest > _INT64_MIN:
                return f"{smallest - 1}", f"{smallest - 1}, which no record holds"
            return "0", "0, which others may hold too"
        case _:
            return "-1", "-1"


def _is_listed(facts: FeatureFacts) -> bool:
    return facts.feature.kind is Kind.LABEL and len(facts.classes) <= _MAX_CLASSES


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
