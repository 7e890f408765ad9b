"""Which derived files a job writes, by its settings and its features."""

from beam_pipeline.settings.spec import Spec
from transforms.core.derived_settings import DerivedSettings
from transforms.core.manifest import Manifest
from transforms.core.schema import Kind, Schema

__all__ = ["derived_settings", "missing_files"]


def derived_settings(spec: Spec, schema: Schema) -> DerivedSettings:
    """Returns what `index` and `catalogue` of a spec come to.

    Args:
      spec: of the job.
      schema: of its rows.
    """
    return DerivedSettings.of(
        spec.index,
        spec.catalogue,
        compression=spec.compression,
        images=bool(schema.of_kind(Kind.IMAGE)),
        key=_key(spec, schema),
    )


def _key(spec: Spec, schema: Schema) -> str:
    """Returns the feature that the key column is stored as; empty for none."""
    for feature in schema.stored:
        is_one = not feature.is_list and feature.kind in (Kind.INT64, Kind.TEXT)
        if spec.key_column and feature.source_column == spec.key_column and is_one:
            return feature.name
    return ""


def missing_files(spec: Spec, manifest: Manifest) -> str:
    """Returns the command that adds derived files that were asked for; empty for none.

    For a dataset that is up to date, and was written without them.

    Args:
      spec: of the job.
      manifest: of the dataset at the output.
    """
    asked = derived_settings(
        spec, Schema(tuple(facts.feature for facts in manifest.features))
    )
    forms = {facts.file.rpartition(".")[2] for facts in manifest.derived}
    flags = []
    if spec.index == "text" and asked.text_index and "idx" not in forms:
        flags.append("--text")
    if spec.catalogue in ("scalars", "full") and "pq" not in forms:
        flags.append("--catalogue")
    return f"beam-tfrecord index {spec.output} {' '.join(flags)}" if flags else ""
