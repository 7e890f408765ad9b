"""What the templates of the programs are filled with, for each library.

| program | reads with                                                               |
| ------- | ------------------------------------------------------------------------ |
| beam    | `ReadDataset` in a pipeline                                              |
| dali    | a pipeline of NVIDIA DALI over the shards and their text indexes         |
| grain   | a MapDataset over a split, with Grain's own shuffle and threads          |
| keras   | Keras 3: a PyDataset over a split, for any backend, without TensorFlow   |
| pandas  | a split as a DataFrame, whole or in batches                              |
| torch   | a DataLoader over a split, which is a map-style dataset as it is         |

For a number that a record lacks, version 2.4.0 of DALI gives what is in the memory,
whatever the default is. So features that are sometimes missing are not read.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2

from beam_pipeline.reader_programs.facts import Facts, assigned, literal
from beam_pipeline.terminal import count_text, printable
from transforms.core.manifest import FeatureFacts
from transforms.core.schema import Kind
from transforms.errors import UsageError


def rendered(reader: str, facts: Facts, names: Mapping[str, Any]) -> str:
    """Returns the program of a library.

    Args:
      reader: the library, which names the template.
      facts: of the dataset.
      names: what else the template uses.
    """
    return (
        _templates()
        .get_template(f"{reader}.jinja")
        .render(
            facts=facts,
            image=facts.image,
            split=literal(facts.split.name),
            **{"target": facts.label, **names},
        )
    )


@functools.cache
def _templates() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("beam_pipeline", "reader_programs"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        # The text is Python, and `literal` escapes what comes from the dataset.
        autoescape=False,
    )
    environment.filters |= {
        "literal": literal,
        "printable": printable,
        "counted": lambda count: count_text(count, "record"),
    }
    environment.globals["assigned"] = lambda *given: "\n".join(assigned(*given))
    return environment


def of(reader: str, facts: Facts) -> dict[str, Any]:
    """Returns what the template of a library uses: the features it reads, and more.

    Raises:
      UsageError: the library cannot read the dataset.
    """
    special = {"dali": _dali, "keras": _keras, "pandas": _pandas}
    names = special[reader](facts) if reader in special else {"features": facts.batched}
    facts.check(names["features"], reader)
    return names


def _dali(facts: Facts) -> dict[str, Any]:
    if facts.manifest.compression != "none":
        raise UsageError(
            f"DALI reads no compressed shards, and these are "
            f"{facts.manifest.compression}. Convert again with --compression none."
        )
    if facts.has_parts:
        raise UsageError(
            "A program for DALI needs one folder, and the dataset consists of parts. "
            "Join them first: beam-tfrecord merge DATASET OUTPUT, which copies nothing."
        )
    # DALI gives the bytes of a tensor, not its numbers.
    arrays = [f for f in facts.arrays if f.feature.kind is not Kind.TENSOR]
    features = [column for column in arrays if not facts.is_missing(column)]
    return {
        "features": features,
        "columns": _columns(features),
        "left_out": [f.feature.name for f in arrays if facts.is_missing(f)],
        "description": {f.feature.name: _described(f) for f in features},
    }


def _columns(features: Sequence[FeatureFacts]) -> str:
    return "\n".join(assigned("COLUMNS", [facts.feature.name for facts in features]))


def _described(facts: FeatureFacts) -> str:
    """Returns the arguments that describe a feature to DALI."""
    feature = facts.feature
    shape = list(feature.shape) if feature.is_list else []
    match feature.kind:
        case Kind.IMAGE:
            dtype, default = "string", '""'
        case Kind.FLOAT:
            dtype, default = "float32", "0.0"
        case _:
            dtype, default = "int64", "0"
    return f"{shape}, tfrec.{dtype}, {default}"


def _keras(facts: Facts) -> dict[str, Any]:
    features = facts.arrays
    if facts.image:
        # Sizes and depths of images are no inputs of a model.
        shown = (facts.image, facts.label)
        features = [f for f in features if f.feature.name in shown]
    names = [f.feature.name for f in features]
    return {
        "features": features,
        "inputs": [name for name in names if name != facts.label],
        "target": facts.label if facts.label in names else "",
    }


def _pandas(facts: Facts) -> dict[str, Any]:
    features = [f for f in facts.features if f.feature.kind is not Kind.IMAGE]
    return {"features": features, "columns": _columns(features)}
