"""Give a job's workers the rules that they must meet, and a place for their reports."""

import contextlib
import dataclasses
import os
import secrets
from collections.abc import Iterator, Sequence

from beam_pipeline.engines.engine import Engine
from beam_pipeline.engines.workers import version_rules
from beam_pipeline.planning.plan import Plan
from transforms.core.schema import Kind
from transforms.errors import StorageError
from transforms.storage.object_clients import client_of
from transforms.storage.paths import is_remote
from transforms.work.reports import Reports
from transforms.work.store import Store
from transforms.work.worker_check import WorkerRules, store_variables

__all__ = ["with_rules"]

_WORD_BYTES = 6


@contextlib.contextmanager
def with_rules(
    store: Store,
    plan: Plan,
    engine: Engine | None,
    beam_flags: Sequence[str],
    *,
    stays: bool = False,
) -> Iterator[Store]:
    """Yields the store with the rules of its workers; as it is for a local run.

    Args:
      store: of the job.
      plan: of the job.
      engine: that runs it; None for the runner inside Beam.
      beam_flags: Beam's own flags.
      stays: whether a submitted job reports after this context has ended.
    """
    if engine is None:
        yield store
        return
    folder = os.path.join(store.reports, secrets.token_hex(_WORD_BYTES))
    reports = Reports(folder, store.attempts)
    far = is_remote(store.folder)
    spec = plan.spec
    elsewhere = engine.works_elsewhere(spec, beam_flags) and not spec.shared_output
    rules = WorkerRules(
        version_rules(
            images=bool(plan.planned.schema.of_kind(Kind.IMAGE)),
            compressed=spec.compression != "none",
        ),
        reports,
        elsewhere=elsewhere,
        witnesses=plan.planned.witnesses(plan.inputs.root, spec.images_folder),
        conditional=far and client_of(store.folder) is not None,
        variables=store_variables() if far else (),
    )
    reports.begin()
    try:
        yield dataclasses.replace(store, rules=rules)
    except BaseException:
        _end(reports)
        raise
    if not stays:
        _end(reports)


def _end(reports: Reports) -> None:
    # What stays is removed with the rest of the job's work.
    with contextlib.suppress(OSError, StorageError):
        reports.end()
