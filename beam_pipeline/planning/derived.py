"""Which derived files a job writes, by its settings and its features."""

from beam_pipeline.settings.spec import Spec
from transforms.core.catalogue import DerivedSettings
from transforms.core.manifest import Manifest
from transforms.core.schema import Kind, Schema


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
    has_catalogue = any(facts.file.endswith(".pq") for facts in manifest.derived)
    if not spec.catalogue or has_catalogue:
        return ""
    return f"beam-tfrecord index {spec.output} --catalogue"
