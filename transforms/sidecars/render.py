"""The files beside the shards, but manifest and rejects; and `schema.pbtxt` itself.

The code that publishes, repairs or points to a dataset asks here, and names no file. A
new kind of files has its lines in `render_sidecars`.

`schema.pbtxt` is the schema that TFX, TFDV and Ray Data read: the text form of the
message `tensorflow.metadata.v0.Schema`, one `feature` a key of the tf.train.Example:

    feature {
      name: 'age'
      type: FLOAT
      value_count { min: 1 max: 1 }          or presence and shape, where each record
    }                                        has as many values

| feature                      | says                                       |
| ---------------------------- | ------------------------------------------ |
| in every record, one shape   | presence { 1, 1 } and shape                |
| in every record, any length  | presence { 1, 1 } and value_count { 0 }    |
| not in every record          | value_count                                |
| label                        | int_domain: its ids, which are categorical |
| bool, image, timestamp       | bool_domain, image_domain, time_domain     |

tfx_bsl makes dense tensors of what has a shape, and sparse ones of the rest.

Source: `tensorflow_metadata/proto/v0/schema.proto` 1.21.0; tried with tfx_bsl 1.21.0
and TFDV 1.16.1.
"""

from collections.abc import Iterator, Mapping

from transforms.core.manifest import FeatureFacts, Manifest
from transforms.core.schema import Feature, Kind
from transforms.sidecars import tfds
from transforms.sidecars.label_map import LABEL_MAP_NAME, quoted, render_label_map
from transforms.sidecars.tfds import Rendered

SCHEMA_NAME = "schema.pbtxt"
_TYPES = dict.fromkeys(Kind, "INT") | {
    **dict.fromkeys((Kind.TEXT, Kind.BYTES, Kind.IMAGE, Kind.TENSOR), "BYTES"),
    **dict.fromkeys((Kind.FLOAT, Kind.BOX), "FLOAT"),
}
_TIMES = {
    "s": "UNIX_SECONDS",
    "ms": "UNIX_MILLISECONDS",
    "us": "UNIX_MICROSECONDS",
    "ns": "UNIX_NANOSECONDS",
}


def render_schema(manifest: Manifest) -> bytes:
    """Returns the content of `schema.pbtxt` for a dataset.

    >>> from transforms.core.statistics import Statistics
    >>> from transforms.core.manifest import Account, SplitFacts
    >>> age = FeatureFacts(Feature("age", Kind.FLOAT), Statistics(), (), False)
    >>> facts = Manifest("rows", "none", (age,), (), (), Account(0, 0), {}, {})
    >>> print(render_schema(facts).decode(), end="")
    feature {
      name: 'age'
      type: FLOAT
      value_count { min: 1 max: 1 }
    }
    """
    lines: list[str] = []
    records = manifest.records
    for facts in manifest.features:
        always = facts.always_present
        if always is None:
            always = facts.statistics.present == records
        for index, key in enumerate(facts.feature.record_keys):
            is_lengths = facts.feature.is_ragged and index == 1
            lines += [
                "feature {",
                f"  name: {quoted(key)}",
                f"  type: {'INT' if is_lengths else _TYPES[facts.feature.kind]}",
                *_number_of_values(facts.feature, always),
                *(() if is_lengths else _domain(facts)),
                "}",
            ]
    return "".join(f"{line}\n" for line in lines).encode()


def _number_of_values(feature: Feature, always: bool) -> Iterator[str]:
    """Yields how many values a record has, in how many dimensions."""
    is_list = feature.is_list or feature.kind is Kind.BOX
    count = 1 if not is_list else feature.values_each
    if feature.kind is Kind.BOX:
        count = None
    if always:
        yield "  presence { min_fraction: 1 min_count: 1 }"
    if count is None:
        yield "  value_count { min: 0 }"
    elif always:
        sizes = feature.shape if is_list else ()
        dims = "".join(f" dim {{ size: {size} }}" for size in sizes)
        yield f"  shape {{{dims} }}"
    else:
        yield f"  value_count {{ min: {count} max: {count} }}"


def _domain(facts: FeatureFacts) -> Iterator[str]:
    """Yields what the values mean, where the message has a word for it."""
    feature = facts.feature
    if feature.kind is Kind.LABEL and facts.classes:
        last = len(facts.classes) - 1
        yield f"  int_domain {{ min: 0 max: {last} is_categorical: true }}"
    elif feature.kind is Kind.BOOL:
        yield "  bool_domain { }"
    elif feature.kind is Kind.IMAGE:
        yield "  image_domain { }"
    elif feature.kind is Kind.TIMESTAMP:
        yield f"  time_domain {{ integer_format: {_TIMES[feature.unit]} }}"


def render_sidecars(
    manifest: Manifest, label_map: Mapping[int, str] | None = None
) -> Rendered:
    """Returns the files beside the shards, by name, and their notes.

    Args:
      manifest: of the dataset; its `files` and `derived` are ignored.
      label_map: class id -> name, for `label_map.pbtxt`, which the Object Detection
        API reads; None or empty for none.
    """
    rendered = tfds.render(manifest)
    files = dict(rendered.files)
    if label_map:
        files[LABEL_MAP_NAME] = render_label_map(label_map)
    derived = {SCHEMA_NAME: render_schema(manifest)}
    return Rendered(dict(sorted(files.items())), rendered.notes, derived)
