"""What a job gives its stages: rules of drift and leaks, settings of the commit.

`convert` plans before it runs, and gives each stage the plan as a value. `WriteDataset`
plans from the rows themselves, and gives it to the same stages as a side input.
"""

import dataclasses
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Literal

import apache_beam as beam

from transforms.core.placing.splitting import PLACE
from transforms.core.vocabulary import Vocabulary
from transforms.rows.typed_rows import SpooledTypes
from transforms.shards.shard_job import ShardLayout
from transforms.work.store import Store


@dataclasses.dataclass(frozen=True, slots=True)
class DriftRule:
    """What a dataset may have beside the one that it is like.

    Attributes:
      new_columns: features that are new, and were allowed.
      classes: label -> the names before.
      strict: whether a name that no vocabulary has ends the job, and is no reject.
    """

    new_columns: tuple[str, ...]
    classes: Mapping[str, tuple[str, ...]]
    strict: bool

    def found(self, classes: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
        """Returns what is new, for the manifest; without what is not.

        Args:
          classes: label -> its names now.
        """
        new = {
            name: [*names[len(self.classes[name]) :]]
            for name, names in classes.items()
            if name in self.classes
        }
        drift: dict[str, Any] = {
            "new_columns": [*self.new_columns],
            "new_classes": {name: names for name, names in new.items() if names},
        }
        return {what: items for what, items in drift.items() if items}


@dataclasses.dataclass(frozen=True, slots=True)
class Publication:
    """Settings of the commit: all it needs besides the facts.

    Attributes:
      directory: the target.
      seen: what `Target.state` said of it at the start.
      job: digest of the job; a second attempt knows its own work by it.
      layout: of the shards: it has the dataset's name, schema, compression and splits.
      settings: what decides bytes, for the manifest.
      inputs: facts of the inputs, for the manifest.
      run: for the manifest's `run` part; `notes` are what planning has found.
      skipped: items of the source that were left out before reading, by reason.
      expected_rows: how many rows must have been read; None if not known.
      expected_placed: how many must have been placed, or rejected there; None if not
        known.
      max_reject_rate: the share of rejects that is tolerated, of items and of
        their parts; see `transforms.stages.limits`.
      like: what is new beside an earlier dataset; None for a job that is like none.
      shared_settings: of a part, the settings in the manifest that all parts share;
        empty for a dataset that is no part.
      min_records, max_records: how many records it may have; None for any number but
        0, which `min_records` 0 allows.
      label_map: class id -> name, for the sidecars; empty for none.
      shares: of the splits, where shares alone decide; they sum to one.
      keeps_equal: whether nothing is published where the target holds an equal dataset.
      keeps_others: whether another dataset that the target holds ends the job.
      steps: what users' own steps between reading and placing may do beside changing
        rows: "drop" some, or also "add" some, which the account counts. Empty: none.
    """

    directory: str
    seen: str
    job: str
    layout: ShardLayout
    settings: Mapping[str, Any]
    inputs: Mapping[str, Any]
    run: Mapping[str, Any]
    skipped: Mapping[str, int] = dataclasses.field(default_factory=dict)
    expected_rows: int | None = None
    expected_placed: int | None = None
    max_reject_rate: float | None = None
    like: DriftRule | None = None
    shared_settings: tuple[str, ...] = ()
    min_records: int | None = None
    max_records: int | None = None
    label_map: Mapping[int, str] = dataclasses.field(default_factory=dict)
    shares: Mapping[str, Fraction] = dataclasses.field(default_factory=dict)
    keeps_equal: bool = False
    keeps_others: bool = False
    steps: Literal["", "drop", "add"] = ""


@dataclasses.dataclass(frozen=True, slots=True)
class LeakRule:
    """What a job asks of the stage `leak_check`.

    Attributes:
      identity: what units are hashes of, in words; see `Assignments`.
      keyed: whether a unit can have several rows.
      unique: whether a key in two splits fails the job.
      make_lock: whether to write the next split lock.
    """

    identity: str = PLACE
    keyed: bool = False
    unique: bool = False
    make_lock: bool = False


@dataclasses.dataclass(frozen=True)
class JobPlan:
    """Everything that the stages behind the rows need.

    Attributes:
      store: where segments and finished shards are.
      publication: what is published, and where.
      vocabularies: of label features, as far as they are known beforehand; all names
        are welcome to a feature that is not here.
      table: path of the splits of keys, for a split by a table of ids.
      lock: path of the splits that earlier runs gave; empty for none.
      with_fingerprints: whether `CheckLeaks` is to see where each unit went.
      leaks: what that stage is asked; None for nothing.
      spooled: for rows of a pipeline, what their values become.
    """

    store: Store
    publication: Publication
    vocabularies: Mapping[str, Vocabulary]
    table: str = ""
    lock: str = ""
    with_fingerprints: bool = False
    leaks: LeakRule | None = None
    spooled: SpooledTypes | None = None

    @property
    def layout(self) -> ShardLayout:
        """Where rows go, and what decides the bytes of a shard."""
        return self.publication.layout


PlanInput = JobPlan | beam.pvalue.AsSingleton
"""A plan as a stage takes it: known already, or as a side input."""


class Stage(beam.PTransform):
    """A stage whose parameters are the fields of a dataclass."""

    def __post_init__(self) -> None:
        super().__init__()
