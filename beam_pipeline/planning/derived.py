"""Which derived files a job writes, by its settings and its features."""

from beam_pipeline.settings.spec import Spec
from transforms.core.derived_settings import DerivedSettings
from transforms.core.schema import Kind, Schema

__all__ = ["derived_settings"]


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
