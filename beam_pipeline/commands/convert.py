"""The command `convert`: settings -> plan -> run -> report, on a terminal or not."""

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from beam_pipeline.beam_internals.loading import (
    beam_loading,
    collect_seldom,
    let_arrow_look,
    load_for_engine,
)
from beam_pipeline.commands.progress import shown_planning, shown_progress
from beam_pipeline.commands.report_file import (
    ReportFile,
    failure_json,
    submitted_json,
    success_json,
)
from beam_pipeline.engines.engine import Engine, RunHooks, refuse_starts
from beam_pipeline.planning.plan import Plan, Prepared, make_plan, prepare
from beam_pipeline.settings.options import SETTINGS
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

if TYPE_CHECKING:
    from beam_pipeline.commands.dataset_page import PageBeside


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
    page: PageBeside | None = None
    report_file = ReportFile(report_json, command_line) if report_json else None
    try:
        given = {key: _plain(key, value) for key, value in settings().items()}
        if report_json:
            # A report that is part of the spec's source or output is not written.
            report_file = None
            report_file = ReportFile(report_json, given)
        spec = make_spec(given)
        if with_page:
            # Only here: few jobs ask for it.
            from beam_pipeline.commands import dataset_page

            page = dataset_page.PageBeside(given, spec.output)
        engine: Engine | None = None
        if beam_flags or spec.runner != "local":
            # Only Beam knows its flags; without any, Beam is loaded beside planning.
            load_for_engine(spec.runner)
            from beam_pipeline.running.convert import find_engine

            engine = find_engine(spec, beam_flags)
        else:
            refuse_starts(spec, "a local run")
        # A run that was killed while publishing is completed or undone first.
        target.at(spec.output).recover()
        with shown_planning(quiet=quiet):
            let_arrow_look()
            # If the dataset is up to date, Beam is not needed: look before loading it.
            exists = storage(os.path.join(spec.output, MANIFEST_NAME)).exists()
            prepared = prepare(spec) if exists else None
            if prepared is not None and prepared.done is not None:
                code = _up_to_date(prepared, prepared.done, report_file, quiet, started)
                if page is not None:
                    page.write(quiet=quiet)
                return code
            with beam_loading() as loaded:
                plan = make_plan(prepared or spec)
                loaded()
        if engine is not None and engine.detaches(beam_flags):
            if page is not None:
                printing.say(
                    "note: the job goes on without this program, so there is no report "
                    "of its dataset yet. Run 'beam-tfrecord report' when it has ended."
                )
            return _submit(plan, engine, beam_flags, report_file, quiet, started)
        before = _records_at(spec.output) if exists else 0
        manifest = _convert(plan, engine, beam_flags, quiet)
    except (BeamTFRecordError, OSError) as error:
        failed = failure_json(error, given, time.monotonic() - started)
        _write_report(report_file, failed, done="The run has failed.")
        raise
    seconds = time.monotonic() - started
    result = success_json(manifest, plan.directory, seconds)
    shrunk = _shrunk(before, manifest.records)
    _write_report(report_file, {**result, "notes": [*result["notes"], *shrunk]})
    if not quiet:
        _summarize(manifest, plan, seconds, shrunk)
    if page is not None:
        page.write(quiet=quiet)
    return 0


def _plain(key: str, value: Any) -> Any:
    """Returns a setting without secrets: from here on it may be reported."""
    if key in SETTINGS and SETTINGS[key].is_address:
        return value
    return plain(value) if isinstance(value, str) and is_remote(value) else value


def _up_to_date(
    prepared: Prepared,
    manifest: Manifest,
    report_file: ReportFile | None,
    quiet: bool,
    started: float,
) -> int:
    """Reports that the dataset exists already; removes leftovers of earlier runs."""
    with contextlib.suppress(TargetError):
        target.at(prepared.spec.output).clear(sure=False)
    remove_left(target.rejects_path(prepared.spec.output))
    seconds = time.monotonic() - started
    result = success_json(manifest, absolute(prepared.spec.output), seconds)
    _write_report(report_file, {**result, "status": "up to date"})
    if not quiet:
        from beam_pipeline.commands import report

        report.show_up_to_date(manifest, prepared.spec.output)
    if command := _missing_files(prepared.spec, manifest):
        printing.say(
            f"note: the dataset was written without files that are asked for now; "
            f"{printable(command)!r} adds them"
        )
    return 0


def _submit(
    plan: Plan,
    engine: Engine,
    beam_flags: Sequence[str],
    report_file: ReportFile | None,
    quiet: bool,
    started: float,
) -> int:
    """Submits a job without waiting for it, and reports that."""
    from beam_pipeline.running.convert import submit_plan

    hooks = RunHooks(beam_flags, say=_sayer(plan, quiet))
    job = submit_plan(plan, engine, hooks)
    seconds = time.monotonic() - started
    result = submitted_json(job, plan.directory, seconds)
    _write_report(report_file, result, done="The job is submitted.")
    if not quiet:
        from beam_pipeline.commands import report

        report.show_submitted(f"job {job}", plan.spec.output, seconds)
    return 0


def _sayer(plan: Plan, quiet: bool) -> Callable[[str], None]:
    """Returns a function that prints messages; prints the notes of the plan first."""

    def say(text: str) -> None:
        if not quiet:
            printing.say(text)

    for note in plan.notes:
        say(note)
    return say


def _convert(
    plan: Plan, engine: Engine | None, beam_flags: Sequence[str], quiet: bool
) -> Manifest:
    say = _sayer(plan, quiet)
    with shown_progress(plan, quiet=quiet) as watch:
        from beam_pipeline.running.convert import run_plan

        collect_seldom()
        return run_plan(plan, engine, RunHooks(beam_flags, watch=watch, say=say))


def _records_at(output: str) -> int:
    """Returns the records of the dataset that a run may replace; 0 if unknown."""
    try:
        return target.read_manifest(output).records
    except (OSError, DamageError, StorageError):
        return 0


def _shrunk(before: int, now: int) -> list[str]:
    """Returns a note if more than half of the records of a target are gone."""
    if 2 * now >= before:
        return []
    return [f"the dataset that was replaced had {before:,} records, this has {now:,}"]


def _summarize(
    manifest: Manifest, plan: Plan, seconds: float, notes: Sequence[str]
) -> None:
    """Prints the result; a broken stdout does not fail a committed run."""
    from beam_pipeline.commands import report

    try:
        report.show_result(manifest, plan.spec.output, seconds, notes)
        sys.stdout.flush()
    except OSError:
        printing.silence(sys.stdout)


def _write_report(
    report_file: ReportFile | None, result: Mapping[str, Any], *, done: str = ""
) -> None:
    """Writes the report, if one was asked for; a failure changes no exit code."""
    if report_file is None:
        return
    text = json.dumps(result, indent=1, ensure_ascii=False) + "\n"
    done = done or f"The dataset is committed at {result['output']!r}."
    report_file.write(text, done=done)


def _missing_files(spec: Spec, manifest: Manifest) -> str:
    """Returns the command that adds derived files that were asked for; empty for none.

    For a dataset that is up to date, and was written without them.

    Args:
      spec: of the job.
      manifest: of the dataset at the output.
    """
    has_catalogue = any(facts.file.endswith(".pq") for facts in manifest.derived)
    if not spec.catalogue or has_catalogue:
        return ""
    return f"beam-tfrecord index {spec.output} --catalogue"
