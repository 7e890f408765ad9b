"""The plan and the result, in words for a person and in JSON for a scheduler."""

from collections.abc import Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from beam_pipeline.dataset import count_text, kind_text, size_text
from beam_pipeline.disk_need import estimate, free_bytes, in_words
from beam_pipeline.plan import Plan
from beam_pipeline.printing import printable
from beam_pipeline.terminal import Console
from transforms.core.manifest import Manifest
from transforms.core.placing.placement import SplitSource
from transforms.core.rows.infer import Evidence
from transforms.errors import BeamTFRecordError

__all__ = [
    "failure_json",
    "show_plan",
    "show_result",
    "show_submitted",
    "show_up_to_date",
    "submitted_json",
    "success_json",
]

# How many examples of a column's values the plan shows.
_EXAMPLES = 3


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for index, name in enumerate(columns):
        table.add_column(name, justify="left" if index == 0 else "right")
    return table


def show_result(manifest: Manifest, output: str, seconds: float) -> None:
    """Prints the summary of a committed dataset."""
    console = Console(highlight=False, markup=False, emoji=False)
    table = _table("split", "records", "shards", "size")
    for split in manifest.splits:
        table.add_row(
            split.name,
            f"{split.records:,}",
            f"{len(split.shards):,}",
            size_text(split.bytes),
        )
    if len(manifest.splits) > 1:
        table.add_row(
            "total",
            f"{manifest.records:,}",
            f"{sum(len(split.shards) for split in manifest.splits):,}",
            size_text(sum(split.bytes for split in manifest.splits)),
            style="bold",
        )
    console.print(table)
    account = manifest.account
    if account.rejected:
        reasons = ", ".join(f"{k} {n:,}" for k, n in account.rejected.items())
        total = sum(account.rejected.values())
        text = f"rejected {total:,} ({reasons}): see beam-tfrecord rejects {output}"
        console.print(text, style="red", soft_wrap=True)
    if account.skipped:
        reasons = ", ".join(f"{k} {n:,}" for k, n in account.skipped.items())
        console.print(f"skipped {sum(account.skipped.values()):,} ({reasons})")
    for part, counts in account.parts.items():
        if counts["rejected"]:
            console.print(
                f"rejected {counts['rejected']:,} of {counts['read']:,} {part}: see "
                f"beam-tfrecord rejects {output}",
                style="red",
                soft_wrap=True,
            )
    if manifest.image_notes:
        found = ", ".join(f"{note} {n:,}" for note, n in manifest.image_notes.items())
        console.print(f"images with something to know: {found}", soft_wrap=True)
    for note in manifest.run.get("notes", []):
        console.print(f"note: {note}", soft_wrap=True)
    rate = manifest.records / seconds if seconds else 0.0
    console.print(
        Text.assemble(
            ("committed ", "green"),
            f"{output}  ({seconds:.1f} s, {rate:,.0f} records/s, "
            f"digest {manifest.digest[:12]})",
        ),
        soft_wrap=True,
    )


def show_submitted(what: str, output: str, seconds: float) -> None:
    """Prints that a job goes on without this program."""
    console = Console(highlight=False, markup=False, emoji=False)
    console.print(
        Text.assemble(("submitted ", "green"), f"{output}  ({what}, {seconds:.1f} s)"),
        soft_wrap=True,
    )
    console.print(
        f"it is there once {output}/manifest.json is; beam-tfrecord verify looks",
        style="dim",
        soft_wrap=True,
    )


def show_up_to_date(manifest: Manifest, output: str) -> None:
    """Prints that the dataset is there already, as the job would make it."""
    console = Console(highlight=False, markup=False, emoji=False)
    console.print(
        Text.assemble(
            ("up to date ", "green"),
            f"{output}  ({manifest.records:,} records, digest {manifest.digest[:12]})",
        ),
        soft_wrap=True,
    )


def show_plan(plan: Plan) -> None:
    """Prints what a run would do."""
    console = Console(highlight=False, markup=False, emoji=False)
    planned = plan.planned
    console.print(
        f"source  {plan.spec.source}: {planned.layout}, "
        f"{count_text(len(plan.inputs.entries), 'file')}, "
        f"{size_text(plan.inputs.bytes)}",
        soft_wrap=True,
    )
    if planned.skipped:
        reasons = ", ".join(f"{k} {n:,}" for k, n in planned.skipped.items())
        console.print(f"skipped {reasons}", soft_wrap=True)
    replaces = ", replacing the dataset there" if plan.seen else ""
    console.print(f"output  {plan.spec.output}{replaces}", soft_wrap=True)
    for note in (*plan.notes, *planned.notes):
        console.print(f"note    {note}", soft_wrap=True)
    segments = "in memory" if plan.inline else "in files"
    console.print(f"workers {plan.workers}, segments {segments}")
    console.print(f"disk    {_disk(plan)}\n", soft_wrap=True)

    known = bool(planned.evidence)
    more = ("present", "range", "examples") if known else ()
    features = _table("feature", "kind", *more)
    for column in features.columns[1:]:
        column.justify = "left"
    for feature in planned.schema.stored:
        kind = kind_text(feature)
        if feature.is_label:
            kind += ", to predict"
        facts = _evidence(planned.evidence.get(feature.name)) if known else ()
        features.add_row(printable(feature.name), kind, *facts)
    console.print(features)
    console.print()

    # Folders are counted; shares of them, and rows of sampled tables, are not.
    counted = planned.expected_rows is not None and (
        planned.rule.source is not SplitSource.SHARES
    )
    about = "" if counted else "~"
    splits = _table("split", "records", "shards", "size")
    for name, shards in plan.sharding.shards.items():
        splits.add_row(
            name,
            f"{about}{planned.records[name]:,}",
            f"{shards:,}",
            f"~{size_text(planned.record_bytes[name])}",
        )
    console.print(splits)
    for feature_name, classes in planned.classes.items():
        shown = ", ".join(classes[:10]) + (", ..." if len(classes) > 10 else "")
        console.print(
            f"\n{feature_name}: {len(classes):,} classes: {shown}", soft_wrap=True
        )
    console.print("\nnothing was written", style="dim")


def _disk(plan: Plan) -> str:
    text = f"about {in_words(estimate(plan))}"
    try:
        return f"{text}; {size_text(free_bytes(plan.directory))} free"
    except OSError:
        return text


def _evidence(evidence: Evidence | None) -> tuple[str, str, str]:
    if evidence is None or not evidence.sampled:
        return "", "", ""
    present = 1 - evidence.missing / evidence.sampled
    extent = ""
    if evidence.minimum is not None:
        extent = f"{evidence.minimum:g} to {evidence.maximum:g}"
    examples = ", ".join(evidence.examples[:_EXAMPLES])
    if evidence.misfits:
        wrong = ", ".join(evidence.misfit_examples[:_EXAMPLES])
        examples += f" ({evidence.misfits:,} do not fit: {wrong})"
    return f"{present:.1%}", extent, printable(examples)


def success_json(manifest: Manifest, directory: str, seconds: float) -> dict[str, Any]:
    """Returns the result of a committed run."""
    account = manifest.account
    return {
        "status": "committed",
        "exit_code": 0,
        "output": directory,
        "digest": manifest.digest,
        "records": manifest.records,
        "splits": {
            split.name: {
                "records": split.records,
                "bytes": split.bytes,
                "shards": len(split.shards),
            }
            for split in manifest.splits
        },
        "read": account.read,
        "written": account.written,
        "rejected": dict(account.rejected),
        "skipped": dict(account.skipped),
        "parts": {part: dict(counts) for part, counts in account.parts.items()},
        "image_notes": dict(manifest.image_notes),
        "notes": list(manifest.run.get("notes", [])),
        "seconds": round(seconds, 3),
    }


def submitted_json(
    job: str, template: str, directory: str, seconds: float
) -> dict[str, Any]:
    """Returns the result of a run that has handed its job over: nothing is known yet.

    Args:
      job: the engine's id of it; empty for none.
      template: where one was made; empty for none.
      directory: the target.
      seconds: the run took.
    """
    return {
        "status": "submitted",
        "exit_code": 0,
        "output": directory,
        "job": job or None,
        "template": template or None,
        "seconds": round(seconds, 3),
    }


def failure_json(
    error: BeamTFRecordError | OSError, settings: Mapping[str, Any], seconds: float
) -> dict[str, Any]:
    """Returns the result of a run that committed nothing.

    Where the run got as far as counting its items, it says how many were read, rejected
    and skipped, the last two by reason, and where the rejects are; else None.
    """
    output = settings.get("output")
    account = getattr(error, "account", None) or {}
    return {
        "status": "failed",
        "exit_code": getattr(error, "exit_code", BeamTFRecordError.exit_code),
        "error": type(error).__name__,
        "message": str(error),
        # What is no path may hold what would have been taken off one.
        "output": output if isinstance(output, str) else None,
        **{key: account.get(key) for key in ("read", "rejected", "skipped", "rejects")},
        "seconds": round(seconds, 3),
    }
