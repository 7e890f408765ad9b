"""What the programs say of a dataset, and what their templates are filled with.

| program | reads with                                                               |
| ------- | ------------------------------------------------------------------------ |
| beam    | `ReadDataset` in a pipeline                                              |
| dali    | a pipeline of NVIDIA DALI over the shards and their text indexes         |
| grain   | a MapDataset over a split, with Grain's own shuffle and threads          |
| keras   | Keras 3: a PyDataset over a split, for any backend, without TensorFlow   |
| pandas  | a split as a DataFrame, whole or in batches                              |
| torch   | a DataLoader over a split, which is a map-style dataset as it is         |

For a number that a record lacks, version 2.4.0 of DALI gives what is in the memory,
whatever the default is. So features that are sometimes missing are not read there.

A feature that some records lack gets a value in its place that no record holds, so that
the two can be told apart; `open_dataset` gives it with `missing="schema"`:

| feature                     | value                                                  |
| --------------------------- | ------------------------------------------------------ |
| int64, timestamp            | -1, or below the smallest value where that is negative |
| label                       | -1                                                     |
| float                       | NaN                                                    |
| text, bytes, image, tensor  | empty; only here a record may hold the same            |

A bool is -1 too where it is read as a number, and False where it is read as a bool.
"""

import dataclasses
import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2

from beam_pipeline.terminal import count_text, printable
from transforms.core.manifest import FeatureFacts, Manifest, SplitFacts
from transforms.core.placing.splitting import is_validation
from transforms.core.schema import Feature, Kind
from transforms.errors import UsageError

WIDTH = 88
"""Characters of a line."""
# Height and width that models were most often trained with, and the least that a small
# model of convolutions takes.
_SIZE, _LEAST_SIZE = 224, 32
# More class names than this are left in the manifest.
_MAX_CLASSES = 100
# Types of DALI and their defaults; of other kinds they are those of int64.
_OF_DALI = {Kind.IMAGE: ("string", '""'), Kind.FLOAT: ("float32", "0.0")}
_BYTES = {Kind.IMAGE, Kind.BYTES, Kind.TENSOR}


@dataclasses.dataclass(frozen=True)
class Facts:
    """A dataset as the programs see it.

    Attributes:
      directory: where it is, as the user wrote it.
      manifest: what it says of itself.
    """

    directory: str
    manifest: Manifest

    @property
    def shard_folder(self) -> str:
        """Where the shards are: in a bucket, perhaps in a folder of their own."""
        folder = self.manifest.path(self.directory, "").rstrip("/")
        return folder or self.directory or "."

    @property
    def has_parts(self) -> bool:
        """Whether the dataset is one of parts, to which others may be added."""
        return "parts" in self.manifest.settings

    @property
    def split(self) -> SplitFacts:
        """The split that a program reads: train, or the largest."""
        return max(self.manifest.splits, key=lambda s: (s.name == "train", s.records))

    @property
    def validation(self) -> str:
        """The split that a model is validated with; empty for none."""
        names = [split.name for split in self.manifest.splits if split.records]
        return next(filter(is_validation, names), "")

    @property
    def unseen(self) -> str:
        """The split whose records a model predicts: test if there is one."""
        names = [split.name for split in self.manifest.splits if split.records]
        return "test" if "test" in names else self.validation or self.split.name

    @functools.cached_property
    def features(self) -> Sequence[FeatureFacts]:
        """The features that records hold."""
        return [facts for facts in self.manifest.features if not facts.feature.internal]

    @functools.cached_property
    def image(self) -> str:
        """The image that every record holds, which programs decode; empty for none."""
        for facts in self.features:
            feature = facts.feature
            if feature.kind is Kind.IMAGE and not (feature.is_list or feature.mask):
                return "" if self.is_missing(facts) else feature.name
        return ""

    @functools.cached_property
    def masks(self) -> list[str]:
        """The masks of the image that every record holds."""
        masks = [facts for facts in self.features if facts.feature.mask]
        own = (facts for facts in masks if facts.feature.derived_from == self.image)
        return [facts.feature.name for facts in own if not self.is_missing(facts)]

    @functools.cached_property
    def size(self) -> int:
        """Height and width to which programs resize the image: less for small ones."""
        derived = (f for f in self.features if f.feature.derived in ("height", "width"))
        own = [f for f in derived if f.feature.derived_from in ("", self.image)]
        sides = [int(facts.statistics.maximum or _SIZE) for facts in own]
        return min(max(_LEAST_SIZE, *sides), _SIZE) if sides else _SIZE

    @functools.cached_property
    def label(self) -> str:
        """What a model is to predict, or else the first label; empty for none."""
        labels = [facts.feature for facts in self.batched if facts.feature.is_label]
        labels += [f.feature for f in self.batched if f.feature.kind is Kind.LABEL]
        return next((feature.name for feature in labels), "")

    @functools.cached_property
    def classified(self) -> FeatureFacts | None:
        """The class of each image, if every record has an image and its class."""
        if not self.image or not self.label:
            return None
        (facts,) = (f for f in self.batched if f.feature.name == self.label)
        feature = facts.feature
        is_class = feature.kind is Kind.LABEL and not feature.is_list
        return None if not is_class or self.is_missing(facts) else facts

    @functools.cached_property
    def batched(self) -> Sequence[FeatureFacts]:
        """The features that make batches: of one shape, and the image."""
        return [*filter(self._is_batched, self.features)]

    @property
    def arrays(self) -> Sequence[FeatureFacts]:
        """The image, first, and the batched features that are numbers."""
        numeric = [
            facts for facts in self.batched if facts.feature.kind is not Kind.TEXT
        ]
        return sorted(numeric, key=lambda facts: facts.feature.name != self.image)

    def is_missing(self, facts: FeatureFacts) -> bool:
        """Whether some records lack a feature."""
        return facts.statistics.present < self.manifest.records

    def _is_batched(self, facts: FeatureFacts) -> bool:
        """Whether it is the image, or has one shape in every record of a batch."""
        feature, is_missing = facts.feature, self.is_missing(facts)
        if feature.kind is Kind.TENSOR:
            is_plain = feature.dtype != "string" and None not in feature.shape
            return is_plain and not is_missing
        if feature.kind in _BYTES:
            return feature.name == self.image
        # One value cannot fill in for a list.
        return not varies(feature) and not (feature.is_list and is_missing)

    def is_listed(self, facts: FeatureFacts) -> bool:
        """Whether the class names of a label are few enough to be printed."""
        is_label = facts.feature.kind is Kind.LABEL
        return is_label and len(facts.classes) <= _MAX_CLASSES

    def class_lists(self) -> list[str]:
        """Returns the lines that define CLASSES, if any label has few enough."""
        lines = []
        for facts in filter(self.is_listed, self.features):
            lines += assigned(f"CLASSES[{literal(facts.feature.name)}]", facts.classes)
        return ["CLASSES = {}", *lines] if lines else []

    def check(self, features: Sequence[FeatureFacts], library: str) -> None:
        """Raises UsageError if a program has no feature to read."""
        if not features:
            raise UsageError(
                f"A program for {library} needs an image that every record has, or a "
                f"feature of one shape; {self.manifest.name!r:.80} has none. "
                f"'code --as tensorflow' reads all of them, and so does open_dataset."
            )

    def lack(self, features: Sequence[FeatureFacts]) -> bool:
        """Whether some records lack one of these features."""
        return any(map(self.is_missing, features))


def varies(feature: Feature) -> bool:
    """Whether records hold other numbers of values, which no array of a batch can."""
    # A shape without values is one that TensorFlow refuses as a default.
    unknown = None in feature.shape or 0 in feature.shape
    return feature.kind is Kind.BOX or (feature.is_list and unknown)


def assigned(name: str, entries: Mapping[str, str] | Sequence[str]) -> list[str]:
    """Returns the lines that define a dictionary of program text, or a list of texts.

    >>> assigned("MISSING", {'"age"': "-1"}), assigned("COLUMNS", ["image", "label"])
    (['MISSING = {"age": -1}'], ['COLUMNS = ["image", "label"]'])

    Args:
      name: of the variable.
      entries: of it; texts of a list are made literals.
    """
    if isinstance(entries, Mapping):
        first, last = "{", "}"
        items = [f"{key}: {value}" for key, value in entries.items()]
    else:
        first, last = "[", "]"
        items = [literal(text) for text in entries]
    line = f"{name} = {first}{', '.join(items)}{last}"
    if len(line) <= WIDTH:
        return [line]
    return [f"{name} = {first}", *(f"    {item}," for item in items), last]


def literal(text: str) -> str:
    """Returns a text as a Python literal, with nothing in it that is not printable."""
    return json.dumps(text, ensure_ascii=not text.isprintable())


def rendered(reader: str, facts: Facts, names: Mapping[str, Any]) -> str:
    """Returns the program of a library.

    Args:
      reader: the library, which names the template.
      facts: of the dataset.
      names: what else the template uses.
    """
    template = _templates().get_template(f"{reader}.jinja")
    given = {"target": facts.label, "split": literal(facts.split.name), **names}
    return template.render(facts=facts, image=facts.image, **given)


@functools.cache
def _templates() -> jinja2.Environment:
    """Returns the templates of all programs; their filters escape a dataset's text."""
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
    """Returns what the programs' templates use but that of TensorFlow: features first.

    Raises:
      UsageError: the library cannot read the dataset.
    """
    if facts.manifest.compression != "none" and reader not in ("beam", "pandas"):
        raise UsageError(
            f"A program for {reader} needs shards that are not compressed, and these "
            f"are {facts.manifest.compression}. Convert again with --compression none; "
            f"those for tensorflow, beam and pandas read them in their order."
        )
    special = {"dali": _dali_names, "keras": _keras_names, "pandas": _pandas_names}
    names = special[reader](facts) if reader in special else {"features": facts.batched}
    facts.check(names["features"], reader)
    return names


def _dali_names(facts: Facts) -> dict[str, Any]:
    """Returns what DALI's program is filled with: numbers that no record lacks."""
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
        "left_out": [f.feature.name for f in arrays if facts.is_missing(f)],
        "description": {f.feature.name: _described(f) for f in features},
    }


def _described(facts: FeatureFacts) -> str:
    """Returns the arguments that describe a feature to DALI."""
    feature = facts.feature
    shape = list(feature.shape) if feature.is_list else []
    dtype, default = _OF_DALI.get(feature.kind, ("int64", "0"))
    return f"{shape}, tfrec.{dtype}, {default}"


def _keras_names(facts: Facts) -> dict[str, Any]:
    """Returns what the program for Keras is filled with: inputs, and target or ""."""
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


def _pandas_names(facts: Facts) -> dict[str, Any]:
    """Returns what the program for pandas is filled with: all features but images."""
    features = [f for f in facts.features if f.feature.kind is not Kind.IMAGE]
    return {"features": features}
