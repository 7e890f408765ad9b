"""The command `convert`: settings -> plan -> run -> report, on a terminal or not."""

import contextlib
import functools
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from beam_pipeline.beam_internals.loading import (
    beam_loading,
    collect_seldom,
    let_arrow_look,
    load_for_engine,
)
from beam_pipeline.commands.progress import shown_planning, shown_progress
from beam_pipeline.commands.report_file import (
    check_report,
    failure_json,
    submitted_json,
    success_json,
    try_report,
)
from beam_pipeline.engines.presets import Engine
from beam_pipeline.engines.watch import RunHooks
from beam_pipeline.planning.plan import make_plan
from beam_pipeline.planning.request import prepare
from beam_pipeline.settings.spec import Spec, make_spec
from beam_pipeline.terminal import printing
from beam_pipeline.terminal.printing import printable
from transforms.core.manifest import MANIFEST_NAME, Manifest
from transforms.errors import (
    BeamTFRecordError,
    DamageError,
    StorageError,
    TargetError,
)
from transforms.publishing import target
from transforms.storage.files import storage
from transforms.storage.paths import absolute, is_remote, plain
from transforms.work.reject_files import remove_left

# Writes the result of a run as its report, if one was asked for; and says what is done.
_Report = Callable[[Mapping[str, Any], str], None]


def run(
    settings: Callable[[], Mapping[str, Any]],
    *,
    command_line: Mapping[str, Any],
    beam_flags: Sequence[str],
    report_json: str | None,
    with_page: bool,
    quiet: bool,
) -> int:
    """Converts and reports; returns 0 or raises the error of another exit code.

    Args:
      settings: returns the job's settings; called here to report its errors.
      command_line: the settings of the command line alone, without a spec file.
      beam_flags: Beam's own flags.
      report_json: where the result is written, whatever it is.
      with_page: write the page of the dataset beside it.
      quiet: print errors only.
    """
    started = time.monotonic()
    given: Mapping[str, Any] = {}
    path = report_json
    if path:
        check_report(path, command_line)

    def report(result: Mapping[str, Any], done: str) -> None:
        if path:
            seconds = round(time.monotonic() - started, 3)
            full = {**result, "seconds": seconds}
            text = json.dumps(full, indent=1, ensure_ascii=False)
            try_report(path, f"{text}\n", done=done)

    try:
        given = {key: _plain(value) for key, value in settings().items()}
        if report_json:
            # A report that is part of the spec's source or output is not written.
            path = None
            check_report(report_json, given)
            path = report_json
        spec = make_spec(given)
        write_page = None
        if with_page:
            # Only here: few jobs ask for it.
            from beam_pipeline.commands import dataset_page

            dataset_page.check_beside(given, spec.output)
            write_page = functools.partial(
                dataset_page.write_beside, spec.output, quiet=quiet
            )
        if not _convert(spec, beam_flags, report, quiet, started):
            if write_page is not None:
                printing.say(
                    "note: the job goes on without this program, so there is no report "
                    "of its dataset yet. Run 'beam-tfrecord report' when it has ended."
                )
            return 0
    except (BeamTFRecordError, OSError) as error:
        report(failure_json(error, given), "The run has failed.")
        raise
    if write_page is not None:
        write_page()
    return 0


def _plain(value: Any) -> Any:
    """Returns a setting without secrets: from here on it may be reported."""
    return plain(value) if isinstance(value, str) and is_remote(value) else value


def _convert(
    spec: Spec, beam_flags: Sequence[str], report: _Report, quiet: bool, started: float
) -> bool:
    """Converts, and reports success; returns False where the job goes on elsewhere."""
    engine: Engine | None = None
    if beam_flags or spec.runner != "local":
        # Only Beam knows its flags; without any, Beam is loaded beside planning.
        load_for_engine(spec.runner)
        from beam_pipeline.running.convert import find_engine

        engine = find_engine(spec, beam_flags)
    # A run that was killed while publishing is completed or undone first.
    target.at(spec.output).recover()
    before = 0
    with shown_planning(quiet=quiet):
        let_arrow_look()
        prepared = None
        # If the dataset is up to date, Beam is not needed: look before loading it.
        if storage(os.path.join(spec.output, MANIFEST_NAME)).exists():
            prepared = prepare(spec)
            if prepared.done is not None:
                _up_to_date(prepared.spec, prepared.done, report, quiet)
                return True
            with contextlib.suppress(OSError, DamageError, StorageError):
                before = target.read_manifest(spec.output).records
        with beam_loading() as loaded:
            plan = make_plan(prepared or spec)
            loaded()

    def say(text: str) -> None:
        if not quiet:
            printing.say(text)

    for note in plan.notes:
        say(note)
    if engine is not None and engine.detaches(beam_flags):
        from beam_pipeline.running.convert import submit_plan

        job = submit_plan(plan, engine, RunHooks(beam_flags, say=say))
        report(submitted_json(job, plan.directory), "The job is submitted.")
        if not quiet:
            from beam_pipeline.commands.report import show_submitted

            show_submitted(f"job {job}", spec.output, time.monotonic() - started)
        return False
    with shown_progress(plan, quiet=quiet) as watch:
        from beam_pipeline.running.convert import run_plan

        collect_seldom()
        manifest = run_plan(plan, engine, RunHooks(beam_flags, watch=watch, say=say))
    seconds = time.monotonic() - started
    result = success_json(manifest, plan.directory, seconds)
    shrunk = []
    if 2 * manifest.records < before:
        shrunk = [
            f"the dataset that was replaced had {before:,} records, this has "
            f"{manifest.records:,}"
        ]
    _committed(report, {**result, "notes": [*result["notes"], *shrunk]})
    if not quiet:
        from beam_pipeline.commands.report import show_result

        # A broken stdout does not fail a committed run.
        try:
            show_result(manifest, spec.output, seconds, shrunk)
            sys.stdout.flush()
        except OSError:
            printing.silence(sys.stdout)
    return True


def _committed(report: _Report, result: Mapping[str, Any]) -> None:
    report(result, f"The dataset is committed at {result['output']!r}.")


def _up_to_date(spec: Spec, manifest: Manifest, report: _Report, quiet: bool) -> None:
    """Reports that the dataset exists already; removes leftovers of earlier runs."""
    with contextlib.suppress(TargetError):
        target.at(spec.output).clear(sure=False)
    remove_left(target.rejects_path(spec.output))
    result = success_json(manifest, absolute(spec.output), 0)
    _committed(report, {**result, "status": "up to date"})
    if not quiet:
        from beam_pipeline.commands.report import show_up_to_date

        show_up_to_date(manifest, spec.output)
    if spec.catalogue and not any(f.file.endswith(".pq") for f in manifest.derived):
        command = f"beam-tfrecord index {spec.output} --catalogue"
        printing.say(
            f"note: the dataset was written without files that are asked for now; "
            f"{printable(command)!r} adds them"
        )
