"""The command `convert`: settings -> plan -> run -> report, in a terminal or not."""

import gc
import json
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

from beam_pipeline import report
from beam_pipeline.plan import Plan, make_plan
from beam_pipeline.progress import shown_planning, shown_progress
from beam_pipeline.spec import make_spec
from transforms.core.manifest import Manifest
from transforms.errors import BeamTFRecordError

__all__ = ["run"]


def run(
    settings: Mapping[str, Any],
    *,
    beam_flags: Sequence[str],
    report_json: str | None,
    quiet: bool,
) -> int:
    """Converts and reports; returns the exit code 0 or raises the error of another."""
    started = time.monotonic()
    try:
        spec = make_spec(settings)
        with shown_planning(quiet=quiet):
            plan = make_plan(spec)
        manifest = _convert(plan, beam_flags, quiet)
    except BeamTFRecordError as error:
        if report_json:
            result = report.failure_json(error, settings, time.monotonic() - started)
            _write_json(report_json, result)
        raise
    seconds = time.monotonic() - started
    if report_json:
        _write_json(report_json, report.success_json(manifest, plan, seconds))
    if not quiet:
        report.show_result(manifest, plan.spec.output, seconds)
    return 0


def _convert(plan: Plan, beam_flags: Sequence[str], quiet: bool) -> Manifest:
    # A handler of its own keeps the root logger from printing what Beam warns about
    # while it is imported.
    logging.getLogger().addHandler(logging.NullHandler())
    with shown_progress(plan, quiet=quiet) as watch:
        # Shown before Beam is imported, which takes a second.
        watch()
        from beam_pipeline.convert import convert_plan

        gc.freeze()
        gc.enable()
        return convert_plan(plan, beam_flags=beam_flags, watch=watch)


def _write_json(path: str, result: Mapping[str, Any]) -> None:
    with open(path, "w", encoding="utf-8") as file:
        json.dump(result, file, indent=1, ensure_ascii=False)
        file.write("\n")
