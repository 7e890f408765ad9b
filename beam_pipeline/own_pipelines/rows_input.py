"""What `WriteDataset` can be applied to, checked when the pipeline is built."""

from collections.abc import Mapping
from typing import Any

import apache_beam as beam

from transforms.errors import SpecError
from transforms.gather.row_types import check_row_type

__all__ = ["check_one_collection", "check_rows"]


def check_one_collection(given: Any) -> None:
    """Raises SpecError for several collections at once, as `ReadRows` gives."""
    parts = given.values() if isinstance(given, Mapping) else given
    if isinstance(parts, beam.Pipeline | beam.pvalue.PBegin) or (
        not isinstance(parts, beam.pvalue.PValue)
        and any(isinstance(part, beam.pvalue.PValue) for part in parts)
    ):
        raise SpecError(
            f"WriteDataset must be given one PCollection of rows; found a "
            f"{type(given).__name__}. Of what ReadRows gives write its rows, as in "
            f"read.rows | WriteDataset(...); join several by beam.Flatten()."
        )


def check_rows(rows: "beam.PCollection[Any]", *, examples: bool) -> None:
    """Checks what is known of rows before there are some.

    Args:
      rows: what the dataset is to be of.
      examples: whether elements may be serialised Examples.

    Raises:
      SpecError: they have no end, or windows, or a type that is no row.
    """
    if not rows.is_bounded:
        raise SpecError(
            "WriteDataset must be given a bounded PCollection; this one has no "
            "end. Read a bounded part of it, or write it with "
            "beam.io.WriteToTFRecord."
        )
    if not rows.windowing.is_default():
        raise SpecError(
            "WriteDataset must be given rows without windows; these are in "
            f"{type(rows.windowing.windowfn).__name__}. A dataset is one whole: "
            "put beam.WindowInto(GlobalWindows()) before it."
        )
    check_row_type(rows.element_type, examples=examples)
