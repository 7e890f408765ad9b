"""The readers that are tried, and the table of the docs that says how they fared."""

import dataclasses
import json
import pathlib
from collections.abc import Mapping
from typing import Any

_RESULT = pathlib.Path(__file__).with_name("result.json")


@dataclasses.dataclass(frozen=True)
class Reader:
    """A program of `readers`.

    Attributes:
      name: what the table calls it.
      environment: where it runs.
      missing: what it gives for a missing age, weight and note.
      said: the same in words.
      variables: of its environment.
    """

    name: str
    environment: str
    missing: tuple[Any, Any, Any]
    said: str
    variables: tuple[tuple[str, str], ...] = ()


_NULLS = (None, None, None)
_DEFAULTS = (-1, None, "")
_LEAST = (-(2**63), -3.4028234663852886e38, "")
_PANDAS, _POLARS, _DUCKDB = (
    (("LIBRARY", library),) for library in ("pandas", "polars", "duckdb")
)
# Program, and a word that tells its lines apart.
READERS = {
    "tf_data": Reader("`tf.data`", "tensorflow", _DEFAULTS, "the stated default"),
    "tfds name": Reader(
        "TFDS, `tfds.load`",
        "tensorflow",
        _LEAST,
        "the smallest number, empty text",
        (("OPENED_BY", "name"),),
    ),
    "tfds folder": Reader(
        "TFDS, `builder_from_directory`",
        "tensorflow",
        _LEAST,
        "the smallest number, empty text",
        (("OPENED_BY", "folder"),),
    ),
    "tfx_bsl": Reader("TFX, `TFExampleRecord`", "tensorflow", _NULLS, "null"),
    "beam_tfrecord": Reader(
        "Beam, `ReadFromTFRecord`", "tensorflow", _NULLS, "no key in the Example"
    ),
    "ray_data": Reader("Ray Data, `read_tfrecords`", "ray", _NULLS, "null"),
    "vahidk": Reader("tfrecord, its reader", "torch", _NULLS, "no key"),
    "vahidk_workers": Reader(
        "tfrecord, `TFRecordDataset` with 3 workers and `.idx`",
        "torch",
        _NULLS,
        "no key",
    ),
    "dali": Reader(
        "NVIDIA DALI, `fn.readers.tfrecord` with `.idx`",
        "torch",
        _NULLS,
        "any number, whatever the default; a missing text is an error",
    ),
    "grain_iterable": Reader(
        "Grain, `TFRecordIterDataset`", "torch", _NULLS, "no key in the Example"
    ),
    "grain_map": Reader("Grain, `MapDataset` of a view", "torch", _NULLS, "`None`"),
    "torch_loader": Reader(
        "PyTorch, `DataLoader` of a view, 2 workers",
        "torch",
        _DEFAULTS,
        "what `missing=` says",
    ),
    "keras tensorflow": Reader(
        "Keras on TensorFlow, `PyDataset` of a view",
        "tensorflow",
        _NULLS,
        "`None`, or what `missing=` says",
        (("KERAS_BACKEND", "tensorflow"),),
    ),
    "keras torch": Reader(
        "Keras on PyTorch, `PyDataset` of a view",
        "torch",
        _NULLS,
        "`None`, or what `missing=` says",
        (("KERAS_BACKEND", "torch"),),
    ),
    "views pandas": Reader(
        "pandas, `from_arrow` of a view", "torch", _NULLS, "NaN", _PANDAS
    ),
    "views polars": Reader(
        "Polars, `DataFrame` of a view", "torch", _NULLS, "null", _POLARS
    ),
    "views duckdb": Reader("DuckDB, SQL over a view", "torch", _NULLS, "NULL", _DUCKDB),
    "catalogues pandas": Reader(
        "pandas, `read_parquet` of the catalogue", "torch", _NULLS, "NaN", _PANDAS
    ),
    "catalogues polars": Reader(
        "Polars, `read_parquet` of the catalogue", "torch", _NULLS, "null", _POLARS
    ),
    "catalogues duckdb": Reader(
        "DuckDB, `read_parquet` of the catalogue", "torch", _NULLS, "NULL", _DUCKDB
    ),
}


@dataclasses.dataclass(frozen=True)
class Line:
    """A line of the table.

    Attributes:
      reader: name of the library, and how it reads.
      versions: of the packages that were tried.
      missing: what a missing number, float and text become.
    """

    reader: str
    versions: dict[str, str]
    missing: str


def write(lines: Mapping[str, Line]) -> None:
    """Stores the lines for the docs, if the run has all of them."""
    if lines.keys() == READERS.keys():
        content = [dataclasses.asdict(lines[name]) for name in READERS]
        text = json.dumps(content, indent=1, ensure_ascii=False)
        _RESULT.write_text(f"{text}\n", encoding="utf-8")
