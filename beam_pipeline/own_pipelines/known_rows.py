"""What is known of rows before they are seen."""

import dataclasses
from collections.abc import Mapping

from beam_pipeline.own_pipelines.earlier_runs import EarlierRuns, HeldFile
from beam_pipeline.own_pipelines.given_schema import (
    GivenSchema,
    example_features,
    like_dataset,
    root_of,
)
from beam_pipeline.own_pipelines.read_source import ReadSource
from beam_pipeline.planning.inputs import rule_of
from beam_pipeline.settings.spec import Spec
from transforms.core.manifest import Manifest
from transforms.core.placing.placement import SplitRule, SplitSource
from transforms.core.schema import Feature, Kind
from transforms.rows.inferred import Declared
from transforms.rows.row_identity import RowRule


@dataclasses.dataclass(frozen=True)
class Given:
    """What is known of rows before they are seen.

    Attributes:
      spec: of the job.
      schema: of a `pa.Schema`.
      earlier: the dataset that `like` names.
      names: that have their class ids already.
    """

    spec: Spec
    schema: GivenSchema | None
    earlier: HeldFile[Manifest] | None
    names: HeldFile[tuple[str, ...]] | None

    @property
    def read_by_workers(self) -> list[str]:
        """The files that are too large for the graph."""
        is_large = self.earlier is not None and self.earlier.inline is None
        return [self.earlier.path] if self.earlier is not None and is_large else []

    def whole(self) -> GivenSchema | None:
        """Returns the whole schema; None where columns are inferred."""
        if self.earlier is None:
            return self.schema
        return like_dataset(self.earlier.get(), self.spec.unknown_label)

    def examples(self) -> tuple[Feature, ...]:
        """Returns the features of elements that are serialised Examples."""
        earlier = None if self.earlier is None else self.earlier.get()
        return example_features(self.spec, self.whole(), earlier)


def split_rule(spec: Spec) -> SplitRule:
    """Returns how rows fall into splits, but for a table of splits."""
    if spec.split_column:
        return SplitRule(SplitSource.COLUMN)
    return rule_of(spec)


def row_rule_of(
    spec: Spec,
    declared: Mapping[str, Declared],
    given: Given,
    before: EarlierRuns,
    source: ReadSource | None,
) -> RowRule:
    """Returns what rows are known by, and how they fall into splits."""
    table = before.table()
    rule = split_rule(spec)
    if table is not None:
        rule = SplitRule(SplitSource.TABLE, table.names)
    kinds = {name: said.kind for name, said in declared.items()}
    # Text that is to be predicted is a class.
    labels = {name for name, kind in kinds.items() if kind is Kind.LABEL}
    labels |= {spec.label_column} if spec.label_column else set()
    labels |= {
        said.column or name for name, said in spec.features.items() if said.label
    }
    images = {name for name, kind in kinds.items() if kind is Kind.IMAGE}
    texts: frozenset[str] = frozenset()
    if source is not None:
        labels |= {feature.name for feature in source.schema.of_kind(Kind.LABEL)}
        images |= {feature.name for feature in source.schema.of_kind(Kind.IMAGE)}
        texts = frozenset(source.schema.names) - images
    whole = (Kind.INT64, Kind.LABEL)
    return RowRule(
        split=rule,
        split_column=spec.split_column or "",
        key_column=spec.key_column or "",
        group_column=spec.group_column or "",
        images=frozenset(images),
        texts=texts,
        images_root=root_of(spec, source),
        integers=frozenset(n for n, kind in kinds.items() if kind in whole),
        scalars=frozenset(declared.keys() - {*spec.drop} | labels),
        examples=given.examples if given.examples() else None,
        table=before.table if table is not None else None,
        lock=before.lock if before.splits is not None else None,
    )
