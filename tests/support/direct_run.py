"""A whole conversion without a runner: every stage's own code, called in turn.

For tests that run one hundreds of times, each in a forked process of its own: a run of
a few rows takes milliseconds, and does every file operation that a runner's would.
"""

import os
import traceback
from collections.abc import Callable, Mapping
from typing import Any

import apache_beam as beam

from beam_pipeline.job import Job, make_job
from beam_pipeline.planning.features.vocabularies import keep_names
from beam_pipeline.planning.plan import Plan, make_plan, prepare
from beam_pipeline.running.convert import open_work_folder
from beam_pipeline.settings.spec import make_spec
from transforms.core.model import PlaceFacts
from transforms.errors import BeamTFRecordError
from transforms.publishing import target, work_folder
from transforms.stages import place, read, reuse, write
from transforms.stages.commit import commit_dataset
from transforms.stages.shard_counts import _MergeFacts

__all__ = ["forked", "run_directly"]

# The messages of a child about how it ended.
COMMITTED, REFUSED, BROKEN = 0, 1, 99


def run_directly(
    settings: Mapping[str, Any], *, planned: Callable[[], None] = lambda: None
) -> str:
    """Converts, as `convert` does; returns the digest of the dataset.

    Args:
      settings: of the spec.
      planned: called once the job is planned.
    """
    spec = make_spec(settings)
    work_folder.recover(spec.output)
    prepared = prepare(spec)
    if prepared.done is not None:
        work_folder.clear(spec.output)
        return prepared.done.digest
    plan = make_plan(prepared)
    planned()
    with open_work_folder(plan) as (store, resumes):
        digest = _run(make_job(plan, store, resumes=resumes), plan, resumes)
    manifest = target.read_manifest(plan.directory)
    keep_names(manifest, plan.planned.schema, plan.spec, plan.vocabularies)
    return digest


def _run(job: Job, plan: Plan, resumes: bool) -> str:
    blocks = [b for n in job.source.inputs() for b in job.source.blocks(n)]
    facts: list[Any] = []
    segments: list[Any] = []
    if resumes:
        stage = reuse.ReuseBlocks(job.source, job.store, False)
        looking = reuse._LookUp(stage)
        blocks = _sorted(
            [out for b in blocks for out in looking.process(b)],
            {reuse.FACTS: facts, reuse.REJECTS: facts, reuse.SEGMENTS: segments},
        )
    reading = read._ReadRows(read.ReadBlocks(job.source, job.store, remembered=True))
    placing = place._CutByShard(
        place.PlaceRows(job.layout.schema, job.layout.sharding, job.store)
    )
    placing.setup()
    for block in blocks:
        outputs = reading.process(block)
        for output in outputs:
            for batch in _sorted([output], {read.FACTS: facts, read.REJECTS: facts}):
                kept = {place.FACTS: facts, place.REJECTS: facts}
                segments += _sorted(list(placing.process(batch)), kept)
    merge = _MergeFacts(job.plan.vocabularies)
    sums = merge.create_accumulator()
    for fact in facts:
        if isinstance(fact, PlaceFacts):
            sums = merge.add_input(sums, fact)
    shard_counts = merge.extract_output(sums)
    shards: dict[Any, list[Any]] = {}
    for key, segment in segments:
        shards.setdefault(key, []).append(segment)
    writing = write._WriteFile(job.layout, job.store)
    for key in sorted(shards):
        done = writing.process((key, shards[key]), shard_counts)
        facts += _sorted(list(done), {write.REJECTS: facts})
    return commit_dataset(
        facts, shard_counts, publication=job.publication, store=job.store
    )


def _sorted(outputs: list[Any], tagged: Mapping[str, list[Any]]) -> list[Any]:
    """Collects tagged outputs; returns the others."""
    main = []
    for output in outputs:
        if isinstance(output, beam.pvalue.TaggedOutput):
            tagged[output.tag].append(output.value)
        else:
            main.append(output)
    return main


def forked(work: Callable[[], object]) -> int:
    """Does the work in a child; returns its exit status, negative for a signal.

    0 it was done, 1 an error of ours or of the system stopped it, 99 any other.
    """
    pid = os.fork()
    if pid == 0:
        status = BROKEN
        try:
            work()
            status = COMMITTED
        except (BeamTFRecordError, OSError):
            status = REFUSED
        except BaseException:  # noqa: BLE001 - a child must not run its parent's tests
            traceback.print_exc()
        finally:
            os._exit(status)
    _, ended = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(ended)
