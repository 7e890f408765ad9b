"""The commands `convert` and `plan`: settings -> plan -> run, and the text of both."""

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from beam_pipeline import terminal
from beam_pipeline.beam_internals.loading import (
    beam_loading,
    collect_seldom,
    let_arrow_look,
    load_for_engine,
)
from beam_pipeline.commands.progress import shown_progress
from beam_pipeline.commands.report import (
    check_report,
    failure_json,
    report_of,
    success_json,
    write_report,
)
from beam_pipeline.engines.presets import Engine
from beam_pipeline.planning.plan import Plan, make_plan, prepare
from beam_pipeline.planning.sizes import free_bytes, need_text
from beam_pipeline.settings.spec import Spec, make_spec
from beam_pipeline.terminal import (
    count_text,
    counts_text,
    examples_text,
    kind_text,
    present_text,
    print_line,
    print_next,
    print_splits,
    print_table,
    range_text,
    size_text,
)
from transforms.core.infer.evidence import Evidence
from transforms.core.manifest import MANIFEST_NAME, Manifest
from transforms.core.placing.splitting import SplitSource
from transforms.core.reasons import Skipped
from transforms.core.schema import Feature, Kind
from transforms.errors import BeamTFRecordError, StorageError, TargetError
from transforms.publishing import target
from transforms.storage.files import storage
from transforms.storage.paths import is_remote, plain
from transforms.work.rejects import remove_left

# Writes the result of a run as its report, if one was asked for.
_Report = Callable[[Mapping[str, Any]], None]


def run(
    settings: Callable[[], Mapping[str, Any]],
    *,
    command_line: Mapping[str, Any],
    beam_flags: Sequence[str],
    report_json: str,
    quiet: bool,
) -> int:
    """Converts and reports; returns 0 or raises the error of another exit code.

    Args:
      settings: returns the job's settings; called here to report its errors.
      command_line: the settings of the command line alone, without a spec file.
      beam_flags: Beam's own flags.
      report_json: where the result is written, whatever it is; empty for nowhere.
      quiet: print errors only.
    """
    started = time.monotonic()

    def report(result: Mapping[str, Any]) -> None:
        if not report_json:
            return
        full = {**result, "seconds": round(time.monotonic() - started, 3)}
        text = json.dumps(full, indent=1, ensure_ascii=False)
        try:
            write_report(report_json, f"{text}\n")
        except (OSError, StorageError) as error:
            why = getattr(error, "strerror", None) or error
            terminal.say(
                f"warning: the report could not be written to {report_json!r}: {why}. "
                f"The result of the run: {result['status']}."
            )

    def check(given: Mapping[str, Any]) -> None:
        if report_json:
            check_report(report_json, given.get("source"), given.get("output"))

    check(command_line)
    with _failure_reported(report, {}):
        given = {key: _plain(value) for key, value in settings().items()}
    # A report that is inside of the spec's source or output is not written.
    check(given)
    with _failure_reported(report, given):
        _convert(make_spec(given), beam_flags, report, quiet, started)
    return 0


@contextlib.contextmanager
def _failure_reported(report: _Report, settings: Mapping[str, Any]) -> Iterator[None]:
    """Reports a failure as JSON, with the settings so far, and lets it pass on."""
    try:
        yield
    except (BeamTFRecordError, OSError) as error:
        report(failure_json(error, settings))
        raise


def show_plan(settings: Mapping[str, Any]) -> int:
    """Prints what a run with these settings would do; returns 0."""
    spec = make_spec(settings)
    let_arrow_look()
    prepared = prepare(spec)
    if prepared.done is not None:
        _show_up_to_date(prepared.done, prepared.spec.output)
    else:
        _show_plan(make_plan(prepared))
    return 0


def _plain(value: Any) -> Any:
    """Returns a setting without secrets: from here on it may be reported."""
    return plain(value) if isinstance(value, str) and is_remote(value) else value


def _convert(
    spec: Spec, beam_flags: Sequence[str], report: _Report, quiet: bool, started: float
) -> None:
    """Converts, and reports what became of it."""
    engine: Engine | None = None
    if beam_flags or spec.runner != "local":
        # Only Beam knows its flags; without any, Beam is loaded beside planning.
        load_for_engine(spec.runner)
        from beam_pipeline.running.convert import find_engine

        engine = find_engine(spec, beam_flags)
    # A run that was killed while publishing is completed or undone first.
    target.at(spec.output).recover()
    let_arrow_look()
    prepared = None
    # If the dataset is up to date, Beam is not needed: look before loading it.
    if storage(os.path.join(spec.output, MANIFEST_NAME)).exists():
        prepared = prepare(spec)
        if prepared.done is not None:
            _up_to_date(prepared.spec, prepared.done, report, quiet)
            return
    await_beam = beam_loading()
    plan = make_plan(prepared or spec)
    await_beam()

    def say(text: str) -> None:
        if not quiet:
            terminal.say(text)

    for note in plan.notes:
        say(note)
    with shown_progress(plan, quiet=quiet) as watch:
        from beam_pipeline.engines.submit import RunHooks
        from beam_pipeline.running.convert import run_plan

        collect_seldom()
        manifest = run_plan(plan, engine, RunHooks(beam_flags, watch=watch, say=say))
    seconds = time.monotonic() - started
    report(success_json(report_of(manifest, plan.directory, seconds)))
    if not quiet:
        # A broken stdout does not fail a committed run.
        try:
            _show_result(manifest, spec.output, seconds)
            sys.stdout.flush()
        except OSError:
            terminal.silence(sys.stdout)


def _up_to_date(spec: Spec, manifest: Manifest, report: _Report, quiet: bool) -> None:
    """Reports that the dataset exists already; removes leftovers of earlier runs."""
    with contextlib.suppress(TargetError):
        target.at(spec.output).clear(sure=False)
    remove_left(target.rejects_path(spec.output))
    report(success_json(report_of(manifest, spec.output, 0, "up to date")))
    if not quiet:
        _show_up_to_date(manifest, spec.output)
    if spec.catalogue and not any(f.file.endswith(".pq") for f in manifest.derived):
        command = f"beam-tfrecord index {spec.output} --catalogue"
        terminal.say(
            f"note: the dataset was written without files that are asked for now; "
            f"{command!r} adds them"
        )


def _show_result(manifest: Manifest, output: str, seconds: float) -> None:
    """Prints the summary of a committed dataset."""
    print_splits(manifest.splits, has_total=True)
    account, see = manifest.account, f"see beam-tfrecord rejects {output}"
    if account.rejected:
        reasons = counts_text(account.rejected)
        total = sum(account.rejected.values())
        print_line(f"rejected {total:,} ({reasons}): {see}", "red")
    if account.skipped:
        total = sum(account.skipped.values())
        print_line(f"skipped {total:,} ({counts_text(account.skipped)})")
    for kind, counts in account.parts.items():
        if counts["rejected"]:
            of = f"{counts['rejected']:,} of {counts['read']:,} {kind}"
            print_line(f"rejected {of}: {see}", "red")
    if manifest.image_notes:
        print_line(
            f"images with something to know: {counts_text(manifest.image_notes)}"
        )
    for note in manifest.run.get("notes", []):
        print_line(f"note: {note}")
    rate = manifest.records / seconds if seconds else 0.0
    took = f"{seconds:.1f} s, {rate:,.0f} records/s"
    text = f"{output}  ({took}, digest {manifest.digest[:12]})"
    print_line("committed ", "green", text)
    print_next(output)


def _show_up_to_date(manifest: Manifest, output: str) -> None:
    """Prints that the dataset is there already, as the job would make it."""
    text = f"{output}  ({manifest.records:,} records, digest {manifest.digest[:12]})"
    print_line("up to date ", "green", text)


def _show_plan(plan: Plan) -> None:
    """Prints what a run would do."""
    planned = plan.planned
    files = count_text(len(plan.inputs.entries), "file")
    size = size_text(plan.inputs.entries.bytes)
    print_line(f"source  {plan.spec.source}: {planned.layout}, {files}, {size}")
    if planned.skipped:
        print_line(f"skipped {counts_text(planned.skipped)}")
    if names := plan.inputs.passed_over:
        listed = ", ".join(f"{name!r:.80}" for name in names)
        print_line(f"        {Skipped.OTHER_SUFFIX}, as {listed}")
    replaces = ", replacing the dataset there" if plan.seen else ""
    print_line(f"output  {plan.spec.output}{replaces}")
    for note in (*plan.notes, *planned.notes):
        print_line(f"note    {note}")
    where = "memory" if plan.inline else "files"
    print_line(
        f"workers {plan.workers}; rows are kept in {where} until they are written"
    )
    print_line(f"disk    {_disk(plan)}")

    columns = ("feature", "kind", "present", "range", "examples")
    width = len(columns) if planned.evidence else 2
    rows = [
        (f.name, kind_text(f), *_evidence(planned.evidence.get(f.name), f))[:width]
        for f in planned.schema.stored
    ]
    print_table(columns[:width], rows)

    # Folders are counted; shares of them, and rows of sampled tables, are not.
    by_shares = planned.rule.source is SplitSource.SHARES
    about = "~" if planned.expected_rows is None or by_shares else ""
    unknown = _is_size_unknown(plan)
    splits = []
    for name, shards in plan.sharding.shards.items():
        size = "unknown" if unknown else f"~{size_text(planned.record_bytes[name])}"
        splits.append((name, f"{about}{planned.records[name]:,}", f"{shards:,}", size))
    numbers = ("records", "shards", "size")
    print_table(("split", *numbers), splits, right=numbers)
    for feature_name, classes in planned.classes.items():
        shown = ", ".join(classes[:10]) + (", ..." if len(classes) > 10 else "")
        words = count_text(len(classes), "class", "classes")
        print_line()
        print_line(f"{feature_name}: {words}: {shown}")
    print_line()
    print_line("nothing was written", "dim")


def _is_size_unknown(plan: Plan) -> bool:
    """Whether there are rows, and every one that was looked at would be rejected."""
    planned = plan.planned
    return any(planned.records.values()) and not any(planned.record_bytes.values())


def _disk(plan: Plan) -> str:
    """Returns the disk space needed and free."""
    text = f"about {need_text(plan.spec, plan.needed_bytes)}"
    if _is_size_unknown(plan):
        text = "unknown: every row that was looked at would be rejected"
    try:
        return f"{text}; {size_text(free_bytes(plan.directory))} free"
    except OSError:
        return text


def _evidence(evidence: Evidence | None, feature: Feature) -> tuple[str, str, str]:
    """Returns the cells of a feature's row: share present, range, examples."""
    if evidence is None or not evidence.sampled:
        return "", "", ""
    extent = range_text(evidence.minimum, evidence.maximum, feature)
    # The ends of a range of instants are examples enough.
    is_range = extent and feature.kind is Kind.TIMESTAMP
    examples = "" if is_range else examples_text(evidence.examples)
    if evidence.misfits:
        wrong = examples_text(evidence.misfit_examples)
        examples += f" ({evidence.misfits:,} do not fit: {wrong})"
    return present_text(evidence), extent, examples
