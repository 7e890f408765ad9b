"""What `WriteDataset` can be applied to, checked when the pipeline is built."""

from collections.abc import Mapping, Sequence
from typing import Any

import apache_beam as beam

from beam_pipeline.engines.places import host_elsewhere
from transforms.errors import SpecError, TargetError
from transforms.gather.row_types import check_row_type
from transforms.storage.paths import is_remote

__all__ = ["check_one_collection", "check_rows", "check_seen"]


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


def check_seen(paths: Sequence[str], pipeline: beam.Pipeline) -> None:
    """Refuses large files of this machine where the workers are on others.

    Raises:
      TargetError: the workers do not see one of them.
    """
    local = [path for path in paths if not is_remote(path)]
    who = workers_elsewhere(pipeline) if local else ""
    if who:
        raise TargetError(
            f"{who} must see {local[0]!r}, a path of this machine: it is too large to "
            f"travel in the pipeline's graph. Copy it to a bucket, or use a runner on "
            f"this machine."
        )


def workers_elsewhere(pipeline: beam.Pipeline) -> str:
    """Returns whose workers are on other machines, in words; empty for nobody's."""
    runner = type(pipeline.runner).__name__
    if "Dataflow" in runner:
        return "Dataflow's workers"
    flags: Mapping[str, Any] = pipeline.options.get_all_options()
    for name, flag in (("Flink", "flink_master"), ("Spark", "spark_master_url")):
        master = flags.get(flag)
        host = host_elsewhere(str(master)) if master else ""
        if runner.startswith(name) and host:
            return f"The workers of {name} at {host!r}"
    return ""
