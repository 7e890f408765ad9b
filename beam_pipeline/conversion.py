"""Converts: plan, work folder, run, report. What the command and Python share."""

import contextlib
from collections.abc import Callable, Iterator, Sequence

import apache_beam as beam
import pyarrow as pa

from beam_pipeline.disk_need import check_room
from beam_pipeline.engines.choice import choose, flag_given
from beam_pipeline.engines.table import engine_of
from beam_pipeline.job import make_job
from beam_pipeline.plan import Plan
from beam_pipeline.runner import check_beam_flags, run_job
from beam_pipeline.spec import Spec
from beam_pipeline.vocabularies import keep_names
from transforms import files, target, work_folder
from transforms.core.manifest import Manifest
from transforms.errors import COMMITTED_NOTE, DamageError, StorageError
from transforms.split_locks import install_lock
from transforms.store import Store

__all__ = ["check_flags", "convert_plan", "open_work_folder"]


@contextlib.contextmanager
def open_work_folder(
    plan: Plan, *, say: Callable[[str], None] = lambda text: None
) -> Iterator[tuple[Store, bool]]:
    """Holds the target's work folder; yields it, and whether it holds finished work.

    What an earlier run of the same work digest has finished is found there; what
    others left is removed. After a failure finished work stays, after a success none
    does but what `keep_work` asks for.

    Raises:
      TargetError: another run holds it, or it cannot be made.
    """
    keeps_items = plan.spec.keep_rejected_bytes
    store = Store(plan.work_folder, inline=plan.inline, keep_items=keeps_items)
    with work_folder.held(plan.directory) as hold:
        store = work_folder.open_store(hold, store, job=plan.digest, seen=plan.seen)
        found = work_folder.take_over(hold, plan.work_digest)
        store.make()
        listing = pa.BufferOutputStream()
        with pa.ipc.new_file(listing, plan.planned.listing.schema) as writer:
            writer.write_table(plan.planned.listing)
        data = memoryview(listing.getvalue())
        files.write_file(
            plan.listing_path, data, attempts=store.attempts, durable=False
        )
        plan.splits.store_tables(store)
        if plan.selection is not None:
            plan.selection.store_places(store)
        if text := found.in_words():
            say(text)
        try:
            yield store, bool(found)
        except BaseException:
            # What went wrong first is what counts; the next run clears up.
            with contextlib.suppress(OSError, StorageError):
                if _has_published(plan):
                    work_folder.end(hold, store, keeps_work=plan.spec.keep_work)
                else:
                    work_folder.leave(hold, store, seen=plan.seen)
            raise
        try:
            work_folder.end(hold, store, keeps_work=plan.spec.keep_work)
        except (OSError, StorageError) as error:
            error.add_note(COMMITTED_NOTE)
            raise


def _has_published(plan: Plan) -> bool:
    """Whether what stands at the target was written by this very run."""
    try:
        run = target.read_manifest(plan.directory).run
        now = target.state(plan.directory)
    except (OSError, DamageError, StorageError):
        return False
    return run.get("job") == plan.digest and now != plan.seen


def check_flags(spec: Spec, beam_flags: Sequence[str]) -> None:
    """Raises SpecError for a runner that is not known here, and for an unknown flag."""
    engine = engine_of(flag_given(beam_flags, "runner") or spec.runner)
    if beam_flags:
        check_beam_flags(beam_flags, engine)


def convert_plan(
    plan: Plan,
    *,
    beam_flags: Sequence[str] = (),
    between: beam.PTransform | None = None,
    watch: Callable[[], None] = lambda: None,
    say: Callable[[str], None] = lambda text: None,
) -> Manifest:
    """Runs a plan to its commit and returns the manifest of the dataset.

    Args:
      plan: from `beam_pipeline.plan.make_plan`.
      beam_flags: Beam's own flags.
      between: own steps from Batch to Batch, one for one, between read and place.
      watch: called ten times a second meanwhile.
      say: called with what a person should know at the start.

    Raises:
      SpecError: Beam does not know one of the flags.
      UsageError: what the engine needs is not there.
      BeamTFRecordError: the run failed and nothing was committed.
    """
    check_flags(plan.spec, beam_flags)
    chosen = choose(plan.spec, beam_flags)
    if remark := check_room(plan):
        say(remark)
    with open_work_folder(plan, say=say) as (store, resumes):
        job = make_job(plan, store, resumes=resumes)
        try:
            run_job(
                job,
                workers=plan.workers,
                chosen=chosen,
                beam_flags=beam_flags,
                between=between,
                watch=watch,
                abandon=store.abandon,
            )
        except BaseException as error:
            if _has_published(plan):
                error.add_note(COMMITTED_NOTE)
            raise
        if plan.splits.lock_path:
            install_lock(plan.splits.new_lock_in(store), plan.splits.lock_path)
    manifest = target.read_manifest(plan.directory)
    keep_names(manifest, plan.planned.schema, plan.spec, plan.vocabularies)
    return manifest
