"""What is known of a source before its rows are read."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from transforms.core.arrays import is_bytes, is_list
from transforms.core.schema import Feature, Kind, Schema
from transforms.work.worker_check import VersionRules


@dataclasses.dataclass(frozen=True)
class ReadSource:
    """What is known of a source before its rows are read.

    Attributes:
      root: the folder that paths of images are relative to.
      schema: of its rows; every feature that is not derived is a column.
      inputs: its files, as a manifest states them.
      skipped: items left out before reading, by reason.
      expected_rows: how many rows must be read; None if not known.
      notes: what a person should know of how it was understood.
      versions: that the workers of an engine must have to read it; None where threads
        of the program do.
    """

    root: str
    schema: Schema
    inputs: Mapping[str, Any]
    skipped: Mapping[str, int]
    expected_rows: int | None
    notes: tuple[str, ...]
    versions: VersionRules | None = None


def with_source_features(
    features: Sequence[Feature],
    types: Mapping[str, Sequence[pa.DataType]],
    source: ReadSource,
    *,
    label: str | None,
) -> list[Feature]:
    """Returns inferred features, those of the source where columns are as they were.

    Args:
      features: a feature for each column.
      types: that the values of each column join to.
      source: that the rows were read from.
      label: the column to predict, where the job says one.
    """
    known = _row_features(source.schema)
    out = []
    for feature in features:
        found = known.pop(feature.name, None)
        types_found = {_plain(kind) for kind in types[feature.name]}
        if found is None or types_found - {pa.null(), found[1]}:
            out.append(feature)
        elif label is None:
            out.append(found[0])
        elif found[0].name == label and found[0].kind is Kind.TEXT:
            # The source has not been told that its texts are class names.
            out.append(feature)
        else:
            is_label = found[0].name == label
            out.append(dataclasses.replace(found[0], is_label=is_label))
    names = {feature.name for feature in out}
    derived = (f for f in source.schema.features if f.derived and f.name not in names)
    return [*out, *derived]


def _row_features(schema: Schema) -> dict[str, tuple[Feature, pa.DataType]]:
    """Returns the features as rows have them, each with the type of its values."""
    types = schema.row_schema
    return {
        feature.name: (
            dataclasses.replace(
                feature, column="", pattern="", constant=None, separator=""
            ),
            _plain(types.field(feature.name).type),
        )
        for feature in schema.stored
        if not feature.derived
    }


def _plain(kind: pa.DataType) -> pa.DataType:
    """Returns the type that the values have as Python values."""
    if is_list(kind):
        return pa.list_(_plain(kind.value_type))
    if pa.types.is_integer(kind):
        return pa.int64()
    if pa.types.is_floating(kind):
        return pa.float64()
    if pa.types.is_large_string(kind) or not is_bytes(kind):
        return pa.string() if is_bytes(kind) else kind
    return kind if pa.types.is_string(kind) else pa.large_binary()
