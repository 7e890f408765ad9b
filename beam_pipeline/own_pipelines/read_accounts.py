"""The account of a read source, from `ReadRows` to `WriteDataset`."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import apache_beam as beam

from beam_pipeline.own_pipelines.read_source import ReadSource
from beam_pipeline.own_pipelines.rows_plan import RowsPlan
from transforms.core.model import PlaceFacts, ReadFacts, RejectLog


class ReadAccounts(NamedTuple):
    """What `ReadRows` has read, for `WriteDataset(..., accounts=read.accounts)`.

    Attributes:
      facts: a ReadFacts for each piece of the source, and a RejectLog for each with
        rejects.
      source: what is known of the source already.
    """

    facts: beam.PCollection[ReadFacts | RejectLog]
    source: ReadSource


def with_accounts(
    plan: RowsPlan, source: ReadSource, facts: Sequence[ReadFacts | RejectLog]
) -> RowsPlan:
    """Returns a plan whose account begins where the source was read."""
    run = dict(plan.publication.run)
    publication = dataclasses.replace(
        plan.publication,
        inputs=source.inputs,
        run=run | {"notes": [*run["notes"], *source.notes]},
        skipped=source.skipped,
        expected_rows=source.expected_rows,
        steps="add",
    )
    placed = [fact for fact in plan.facts if isinstance(fact, PlaceFacts)]
    return dataclasses.replace(
        plan,
        publication=publication,
        facts=(*facts, *placed),
        reading=source.versions,
    )
