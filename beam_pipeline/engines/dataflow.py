"""Dataflow: the job runs on Google's machines, which see nothing of this one.

Paths are those of buckets, access is by the workers' service account, and what a
worker installs is sent along; see `dataflow_submission`.
"""

import dataclasses
from collections.abc import Sequence

from beam_pipeline.engines.dataflow_checks import check_dataflow, is_detached
from beam_pipeline.engines.engine import (
    AddStages,
    Engine,
    JobSettings,
    Place,
    RunHooks,
    Submitted,
)
from beam_pipeline.engines.workers import refuse_starts
from transforms.work.reports import Reports

__all__ = ["DATAFLOW"]

# Beam's default is a dozen tasks in each process, and each holds a block or a shard in
# memory. Two are enough: one works while the other waits for the store.
_THREADS = 2


def _presets(place: Place) -> list[str]:
    """Returns Beam's flags for a place; later flags of the user win."""
    flags = [
        # Nothing is defined in `__main__`: the workers install all modules.
        "--no_save_main_session",
        f"--number_of_worker_harness_threads={_THREADS}",
    ]
    if place.program:
        flags.append(f"--extra_package={place.program}")
    if place.parallelism is not None:
        flags.append(f"--max_num_workers={place.parallelism}")
    return flags


@dataclasses.dataclass(frozen=True)
class _Dataflow(Engine):
    def check(self, settings: JobSettings, beam_flags: Sequence[str]) -> None:
        refuse_starts(settings, "Dataflow")
        check_dataflow(settings, beam_flags)

    def detaches(self, beam_flags: Sequence[str]) -> bool:
        return is_detached(beam_flags)

    def place(self, settings: JobSettings, beam_flags: Sequence[str]) -> Place:
        workers = settings.workers
        return Place("", "", parallelism=workers if isinstance(workers, int) else None)

    def run(
        self,
        add_stages: AddStages,
        place: Place,
        hooks: RunHooks,
        *,
        work_folder: str,
        reports: Reports,
    ) -> None:
        from beam_pipeline.engines.dataflow_submission import run_on_dataflow

        run_on_dataflow(self, place, add_stages, hooks, reports)

    def submit(self, add_stages: AddStages, place: Place, hooks: RunHooks) -> Submitted:
        from beam_pipeline.engines.dataflow_submission import submit_to_dataflow

        return submit_to_dataflow(self, place, add_stages, hooks)


DATAFLOW = _Dataflow(
    name="dataflow",
    runner="apache_beam.runners.dataflow.dataflow_runner:DataflowRunner",
    presets=_presets,
    caches_graph=False,
)
"""As of `--runner dataflow`."""
