"""Plans of jobs that hold what some stages need, and nothing of the others."""

from collections.abc import Mapping
from typing import Any

from transforms.core.placing.placement import Sharding, SplitRule
from transforms.core.schema import Schema
from transforms.core.vocabulary import Vocabulary
from transforms.shards.shard_job import ShardLayout
from transforms.stages.job_plan import JobPlan, Publication
from transforms.work.store import Store

__all__ = ["job_plan", "publication_of"]

_NO_FEATURES = Schema(())
_ONE_SPLIT = Sharding(SplitRule(), {})


def publication_of(schema: Schema, sharding: Sharding, **settings: Any) -> Publication:
    """Returns what the commit is told of rows, and `settings` of it."""
    layout = ShardLayout("set", schema, sharding)
    given: dict[str, Any] = {
        "directory": "out",
        "seen": "",
        "job": "job",
        "layout": layout,
        "settings": {},
        "inputs": {},
        "run": {},
    }
    return Publication(**given | settings)


def job_plan(
    store: Store,
    schema: Schema = _NO_FEATURES,
    sharding: Sharding = _ONE_SPLIT,
    *,
    vocabularies: Mapping[str, Vocabulary] | None = None,
    **settings: Any,
) -> JobPlan:
    """Returns the plan of a job on rows, with `settings` of `JobPlan`."""
    publication = publication_of(schema, sharding)
    return JobPlan(store, publication, vocabularies or {}, **settings)
