"""`WriteDataset`: the rows of any pipeline as a whole, committed dataset.

rows -> stored pieces and counts, one element a bundle  Spool
     -> everything that is decided: one side input       Plan
     -> the pieces that count                            Admit
     -> the stages of `convert`                          Place, Count, Write, Commit
"""

import dataclasses
import functools
import logging
import os
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Unpack

import apache_beam as beam
from apache_beam.options.pipeline_options import StandardOptions

from beam_pipeline.engines.checks import check_seen
from beam_pipeline.graph import place_and_write, views_made_once
from beam_pipeline.own_pipelines.engine_workers import workers_of
from beam_pipeline.own_pipelines.parameters import given_of, raising_of_rows, spec_of
from beam_pipeline.own_pipelines.read_rows import ReadAccounts
from beam_pipeline.own_pipelines.rows_plan import plan_bundles, without_rows
from beam_pipeline.own_pipelines.rows_schema import types_of_rows
from beam_pipeline.settings.keywords import WriteKeywords
from beam_pipeline.version import deciding_versions
from transforms.core.manifest import Manifest
from transforms.core.model import Fact, ShardFile
from transforms.core.placing.sharding import ShardCounts
from transforms.errors import CommitError, SpecError
from transforms.publishing import target
from transforms.publishing.target import Seen, SharedRun
from transforms.rows.row_types import check_row_type
from transforms.rows.spool import SpooledBundle
from transforms.stages.commit import commit_dataset
from transforms.stages.job_plan import JobPlan
from transforms.stages.read import AdmitRows, SpoolRows
from transforms.storage.paths import absolute, is_remote
from transforms.storage.visibility import Witness
from transforms.work.worker_check import WorkerRules

_LOG = logging.getLogger(__name__)

__all__ = ["Committed", "WriteDataset"]

_WORD_BYTES = 8


@dataclasses.dataclass(frozen=True)
class Committed:
    """A published dataset: the one element that `WriteDataset` gives.

    Attributes:
      path: the dataset's folder.
      digest: of the dataset; equal ones have equal bytes.
      records: of each split.
      rejected: rows that did not become records, by reason.
      status: "committed"; "up to date" where the dataset was there already; or
        "repeated" where an earlier attempt had published other rows, which were kept.
    """

    path: str
    digest: str
    records: Mapping[str, int]
    rejected: Mapping[str, int]
    status: str


class WriteDataset(beam.PTransform):
    """Writes the rows of a pipeline as a dataset, whole or not at all.

        rows | WriteDataset("out/scored", label="species", splits={"train": 0.9,
                                                                   "test": 0.1})

    Input: a bounded PCollection of rows: dicts, `beam.Row`, named tuples, dataclasses,
    Arrow record batches and tables. Output: one `Committed`.

    What columns are is given by `features` or `like`, or said by the type of the
    elements (a row type, a named tuple, a dataclass), or inferred from all rows.

    Guarantees:
      - Equal collections of rows give equal bytes, with any runner, bundling, number
        of workers or retries: a row's place is decided by its key, or by its content.
      - The dataset appears in one step, or not at all. A target that holds a dataset
        is refused before it is replaced, unless `overwrite` is given.
      - No row is lost: rows that do not fit the schema are rejects, and the job fails
        where there are more of them than `max_reject_rate` allows.

    A worker needs about 100 MB beside Beam's own memory, and three to six times the
    bytes of the largest shard.
    Counters: rows_gathered (namespace gather).
    """

    def __init__(
        self,
        output: str | os.PathLike[str],
        *,
        label: str | None = None,
        splits: Mapping[str, str | float] | str | None = None,
        key: str | None = None,
        duplicates: Literal["refuse", "keep"] = "refuse",
        features: Mapping[str, Any] | None = None,
        like: str | os.PathLike[str] | None = None,
        num_shards: int | None = None,
        accounts: ReadAccounts | None = None,
        **settings: Unpack[WriteKeywords],
    ) -> None:
        """Checks the parameters; nothing is made before the pipeline runs.

        Args:
          output: the dataset's folder.
          label: the column to predict.
          splits: the share of each split, or "column:NAME" for a column that says it.
          key: the column that says what a row is; else that is all of its values.
          duplicates: "keep" allows rows with one key; else they fail the job.
          features: what columns are, in the words of a spec, as in {"id": "int64"};
            others are inferred.
          like: folder of a dataset, whose features, class ids, key, splits, seed and
            compression these rows get, as with `convert --like`; `part` and `allow`
            are settings. It is read now. If it is large, workers must see it, too.
          num_shards: of each split; else they have 100 to 200 MB.
          accounts: of the `ReadRows` that the rows come from. Then the manifest has
            the account of that source, and what steps have dropped or added; columns
            that are as they were read stay what the source says; and relative paths
            of images are relative to it, unless `images_root` says otherwise.
          settings: as `convert` has them; see `WriteKeywords`.

        Raises:
          SpecError: a parameter is wrong.
        """
        super().__init__()
        if accounts is not None and not isinstance(accounts, ReadAccounts):
            raise SpecError(
                f"accounts must be those of ReadRows, as in accounts=read.accounts; "
                f"found a {type(accounts).__name__}. Leave it out for other rows."
            )
        if duplicates not in ("refuse", "keep"):
            raise SpecError(
                f"duplicates must be 'refuse' or 'keep'; found {duplicates!r:.80}."
            )
        path = None if like is None else os.fspath(like)
        spec = spec_of(
            output,
            label=label,
            splits=splits,
            key=key,
            num_shards=num_shards,
            settings={**settings, "features": features, "like": path},
        )
        with raising_of_rows():
            self._given = given_of(spec, duplicates=duplicates)
        self._accounts = accounts
        self._directory = absolute(self._given.spec.output)

    def __ror__(self, rows: Any, label: str | None = None) -> Any:
        """Refuses several collections, which Beam would hand to `expand` as they are.

        Raises:
          SpecError: `rows` are several.
        """
        _check_one_collection(rows)
        return super().__ror__(rows, label)

    def expand(self, rows: beam.PCollection[Any]) -> beam.PCollection[Committed]:
        """Gathers, plans, writes, commits."""
        with views_made_once(rows.pipeline.options):
            return self._written(rows)

    def _written(self, rows: beam.PCollection[Any]) -> beam.PCollection[Committed]:
        spec, workers = self._given.spec, workers_of(rows.pipeline)
        # What workers must see: what it is, and its path.
        files = (self._given.earlier, self._given.ids)
        large = [f.path for f in files if f is not None and f.inline is None]
        places = [
            ("output", self._directory),
            ("folder of --images-root", spec.images_root),
            *(("file, which is too large for the graph", path) for path in large),
        ]
        with raising_of_rows():
            check_seen(workers, places, shared=spec.shared_output)
        # Whether a part that is there is the same is known in the end.
        may_hold = spec.overwrite or spec.part is not None
        find = functools.partial(
            deciding_versions, images=False, compressed=spec.compression != "none"
        )
        runner = str(rows.pipeline.options.view_as(StandardOptions).runner).lower()
        # Workers must see a folder of images on disk.
        local = [spec.images_root] if spec.images_root and workers is not None else []
        folders = [folder for folder in local if not is_remote(folder)]
        given = dataclasses.replace(
            self._given,
            declared={**types_of_rows(rows.element_type), **self._given.declared},
            source=None if self._accounts is None else self._accounts.source,
        )
        rule = given.row_rule()
        _check_rows(rows)
        run = SharedRun(
            self._directory,
            # Of this application: a second one of the same transform is another run.
            secrets.token_hex(16),
            keep_items=spec.keep_rejected_bytes,
            # One graph may be run many times, and workers know the id of the job.
            many="dataflow" in runner,
            rules=WorkerRules(
                wanted=find(),
                find=find,
                elsewhere=workers is not None and not spec.shared_output,
                witnesses=tuple(map(Witness.of, folders)),
                named=workers is not None,
            ),
            shared=workers is not None and not is_remote(self._directory),
        )
        seen = (
            rows.pipeline
            | "Once" >> beam.Impulse()
            | "Look at target"
            >> _Look(_LookAtTarget(), run, may_hold).with_output_types(
                tuple[None, Seen | SpooledBundle]
            )
        )
        bundles = rows | "Spool" >> SpoolRows(rule, run, may_hold)
        counts = bundles | "Without rows" >> beam.Map(without_rows)
        plan = (
            # What was seen is always there, so that there is a plan of no rows, too.
            (seen, counts)
            | "Flatten counts" >> beam.Flatten()
            | "Group counts" >> beam.GroupByKey()
            | "Plan"
            >> beam.Map(plan_bundles, given, rule, run).with_output_types(JobPlan)
        )
        planned = beam.pvalue.AsSingleton(plan)
        pieces, admitted = bundles | "Admit" >> AdmitRows(planned)
        read = [] if self._accounts is None else [self._accounts.facts]
        committed = place_and_write(
            pieces,
            planned,
            [admitted, *read],
            catalogue=spec.catalogue is not False,
            leaks=True,
            commit=functools.partial(_commit_of_run, run=run),
        )
        return (
            committed
            # An attempt at the commit finds all of its work, until one has succeeded.
            | "Keep" >> beam.GroupByKey()
            | "Clean up" >> beam.Map(_clean_up, run)
        )


@raising_of_rows()
def _commit_of_run(
    facts: list[Fact],
    counts: ShardCounts,
    plan: JobPlan,
    *,
    run: SharedRun,
) -> tuple[None, Committed]:
    """Commits the dataset, and gives it a key for the GroupByKey that keeps it."""
    return None, commit_rows(facts, counts, plan, run)


@raising_of_rows()
def _clean_up(element: tuple[None, Iterable[Committed]], run: SharedRun) -> Committed:
    """Ends the run once the commit has succeeded; returns what was committed."""
    (committed,) = element[1]
    run.end()
    return committed


def _check_one_collection(given: Any) -> None:
    """Raises SpecError for several collections at once, as `ReadRows` gives."""
    parts = given.values() if isinstance(given, Mapping) else given
    if isinstance(parts, beam.Pipeline | beam.pvalue.PBegin) or (
        not isinstance(parts, beam.pvalue.PValue)
        and any(isinstance(value, beam.pvalue.PValue) for value in parts)
    ):
        raise SpecError(
            f"WriteDataset must be given one PCollection of rows; found a "
            f"{type(given).__name__}. Of what ReadRows gives write its rows, as in "
            f"read.rows | WriteDataset(...); join several by beam.Flatten()."
        )


def _check_rows(rows: "beam.PCollection[Any]") -> None:
    """Checks what is known of rows before there are some.

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
    check_row_type(rows.element_type)


class _LookAtTarget(beam.DoFn):
    """Gives, for any one element, what is at the target before rows are written."""

    @raising_of_rows()
    def process(
        self, _: bytes, run: SharedRun, overwrite: bool, word: str = ""
    ) -> list[tuple[None, Seen]]:
        return [(None, run.look(word, overwrite=overwrite))]


class _Look(beam.ParDo):
    """Looks at the target, with a word for the submission.

    A second run of one pipeline object has another word; repeated attempts have the
    same. It would not do to draw it where the function is pickled: workers do so too.
    """

    def to_runner_api_parameter(self, *arguments: Any, **options: Any) -> Any:
        """Returns the stage as the runner gets it, each time that the pipeline runs."""
        self.kwargs = {**self.kwargs, "word": secrets.token_hex(_WORD_BYTES)}
        self.args[0].prepare()
        return super().to_runner_api_parameter(*arguments, **options)


def commit_rows(
    facts: list[Fact],
    counts: ShardCounts,
    plan: JobPlan,
    run: SharedRun,
) -> Committed:
    """Publishes the shards that were reported; a second attempt gives the same.

    Args:
      facts: what the stages have left.
      counts: of the rows.
      plan: of the rows.
      run: that they are of.

    Raises:
      CommitError: another job has published; or this one has ended, with other rows.
      WorkerError: a worker has other versions than the job's.
      Others: as `transforms.stages.commit.commit_dataset`.
    """
    publication = plan.publication
    shards = [fact for fact in facts if isinstance(fact, ShardFile)]
    manifest = run.published(publication.job)
    if manifest is not None:
        status = "committed"
        if not _holds(manifest, shards):
            began_after = target.at(run.directory).state() == publication.seen
            if began_after or run.has_ended(publication.job):
                # An engine has started a job again that had ended, or somebody has
                # submitted one graph twice: the rows of the second would be lost.
                raise CommitError(
                    f"A graph must be submitted once; this one has already published "
                    f"{manifest.name!r} of {manifest.records:,} records, and these are "
                    f"other rows. That dataset is whole and unchanged. Build the "
                    f"pipeline again for each run, with overwrite=True to replace a "
                    f"dataset."
                )
            status = "repeated"
            _LOG.warning(
                "An earlier attempt has published %r, and the rows of this one are "
                "others. They are not in the dataset, which is whole and stays as "
                "it is. If this graph was submitted twice, build the pipeline "
                "again.",
                run.directory,
            )
        return _committed_dataset(run, manifest, status)
    if run.has_ended(publication.job):
        return _unchanged(run, shards)
    if target.at(run.directory).state() != publication.seen:
        raise target.overtaken(run.directory)
    # What rows consist of, boxes say, is not followed through the steps of users.
    others = [fact for fact in facts if not isinstance(fact, ShardFile)]
    shards = [dataclasses.replace(s, parts={}, parts_gone={}) for s in shards]
    commit_dataset([*others, *shards], counts, plan)
    manifest, status = run.published(publication.job), "committed"
    if manifest is None:
        manifest, status = target.read_manifest(run.directory), "up to date"
    return _committed_dataset(run, manifest, status)


def _holds(manifest: Manifest, shards: Sequence[ShardFile]) -> bool:
    """Whether a dataset consists of these shards."""
    stated = [shard for split in manifest.splits for shard in split.shards]
    published = {(shard.file, shard.bytes, shard.crc32c) for shard in stated}
    return published == {(shard.name, shard.bytes, shard.crc32c) for shard in shards}


def _unchanged(run: SharedRun, shards: Sequence[ShardFile]) -> Committed:
    """Returns what the commit has given before the end of its run.

    That has left an equal dataset as it was, whose manifest has another run's token.

    Raises:
      CommitError: there is no such dataset; not the end has removed the run's work.
    """
    try:
        manifest = target.read_manifest(run.directory)
    except FileNotFoundError:
        raise run.store.is_gone() from None
    if not _holds(manifest, shards):
        raise run.store.is_gone()
    return _committed_dataset(run, manifest, "up to date")


def _committed_dataset(run: SharedRun, manifest: Manifest, status: str) -> Committed:
    """Returns what WriteDataset gives: path, digest, records by split, rejects."""
    return Committed(
        path=run.directory,
        digest=manifest.digest,
        records={split.name: split.records for split in manifest.splits},
        rejected=dict(manifest.account.rejected),
        status=status,
    )
