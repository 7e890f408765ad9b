"""A whole conversion without a runner: every stage's own code, called in turn.

For tests that run one hundreds of times, each in a forked process of its own, and for
tests of what is read and written: a run of a few rows takes milliseconds, where Beam
takes a quarter of a second, and does every file operation that a runner's would. Stages
and what crosses them are pickled, as a runner does.
"""

import os
import pickle
import traceback
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import apache_beam as beam
from apache_beam.internal import pickler

from beam_pipeline.engines.presets import Engine
from beam_pipeline.engines.submit import RunHooks, translated
from beam_pipeline.graph import Job, make_job
from beam_pipeline.planning.plan import make_plan, prepare
from beam_pipeline.running.convert import open_work_folder
from beam_pipeline.running.convert import run_job as run_on_beam
from beam_pipeline.settings.spec import Spec, make_spec
from transforms.core.model import PlaceFacts
from transforms.core.placing.splitting import SplitSource
from transforms.errors import BeamTFRecordError
from transforms.publishing import target
from transforms.shards import decoders
from transforms.stages import place as placing_stage
from transforms.stages import read, write
from transforms.stages.commit import commit_dataset
from transforms.stages.place import count_shards, counts_of, merged_sums
from transforms.storage.paths import Access

_Crossing = TypeVar("_Crossing")

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
    target.at(spec.output).recover()
    prepared = prepare(spec)
    if prepared.done is not None:
        target.at(spec.output).clear(sure=True)
        return prepared.done.digest
    plan = make_plan(prepared)
    planned()
    with open_work_folder(plan) as (store, resumes):
        digest = _run(make_job(plan, store, resumes=resumes))
    return digest


def run_job(
    job: Job,
    hooks: RunHooks,
    *,
    workers: int,
    engine: Engine | None = None,
    spec: Spec | None = None,
) -> None:
    """Takes the place of `beam_pipeline.running.convert.run_job`.

    What only a runner can do is left to it: other engines and processes, a user's own
    steps and flags, a stratified split, the search for leaks.
    """
    stratified = job.plan.layout.sharding.rule.source is SplitSource.STRATIFIED
    elsewhere = engine is not None or workers > 1
    if elsewhere or stratified or job.plan.leaks or hooks.between or hooks.beam_flags:
        run_on_beam(job, hooks, workers=workers, engine=engine, spec=spec)
        return
    try:
        hooks.watch()
        _run(job)
    except Exception as error:
        raise translated(error) from error
    finally:
        decoders.SHARED.end_idle()


def _run(job: Job) -> str:
    plan = job.plan
    by_position = not plan.layout.sharding.shuffle
    source, store = _crossed(job.source), plan.store
    blocks = [
        _crossed(block)
        for number in source.inputs()
        for block in read._blocks_of_input(number, source, None, Access())
    ]
    facts: list[Any] = []
    segments: list[Any] = []
    if job.resumes:
        blocks = _sorted(
            [
                out
                for block in blocks
                for out in read._look_up(block, source, store, by_position)
            ],
            {
                read.FACTS: facts,
                read.REJECTS: facts,
                read.SEGMENTS: segments,
            },
        )
    reading = _crossed(
        read._ReadRows(
            read.ReadBlocks(
                source,
                store,
                remembered=True,
                by_position=by_position,
                row_filter=job.row_filter,
            )
        )
    )
    placing = _crossed(placing_stage.CutByShard())
    for block in blocks:
        outputs = reading.process(block)
        for output in outputs:
            for batch in _sorted([output], {read.FACTS: facts, read.REJECTS: facts}):
                kept_facts = {placing_stage.FACTS: facts, placing_stage.REJECTS: facts}
                segments += _sorted(list(placing.process(batch, plan)), kept_facts)
    sums = [counts_of(fact) for fact in facts if isinstance(fact, PlaceFacts)]
    shard_counts = count_shards(_crossed(merged_sums(sums)), plan)
    shards: dict[Any, list[Any]] = {}
    for key, segment in segments:
        shards.setdefault(key, []).append(segment)
    writing = _crossed(write._WriteFile())
    writing.setup()
    writing.start_bundle()
    rows: list[Any] = []
    for key in sorted(shards):
        done = writing.process((key, _crossed(shards[key])), plan, shard_counts)
        facts += _sorted(list(done), {write.REJECTS: facts, write.CATALOGUE: rows})
    windowed: dict[str, list[Any]] = {write.REJECTS: [], write.CATALOGUE: []}
    last = _sorted(list(writing.finish_bundle()), windowed)
    facts += [each.value for each in (*last, *windowed[write.REJECTS])]
    parts: dict[Any, list[Any]] = {}
    for part, row in [*rows, *(each.value for each in windowed[write.CATALOGUE])]:
        parts.setdefault(part, []).append(_crossed(row))
    facts += [
        write._write_catalogue_part((part, parts[part]), plan, shard_counts)
        for part in sorted(parts)
    ]
    return commit_dataset(_crossed(facts), shard_counts, plan)


def _crossed(given: _Crossing) -> _Crossing:
    """Returns what another process would get."""
    if isinstance(given, beam.DoFn):
        return pickler.loads(pickler.dumps(given))
    return pickle.loads(pickle.dumps(given))


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
