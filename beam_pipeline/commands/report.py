"""The plan and the result of a job as text for people."""

from collections.abc import Sequence

from beam_pipeline.planning.evidence import label_notes
from beam_pipeline.planning.plan import Plan, free_bytes, need_text
from beam_pipeline.terminal.console import (
    new_table,
    print_head,
    print_line,
    print_next,
    print_table,
    splits_table,
)
from beam_pipeline.terminal.words import (
    count_text,
    counts_text,
    examples_text,
    extent_text,
    kind_text,
    present_text,
    size_text,
)
from transforms.core.infer.evidence import Evidence
from transforms.core.manifest import Manifest
from transforms.core.placing.placement import SplitSource
from transforms.core.reasons import Skipped
from transforms.core.schema import Feature, Kind

_COUNTS = ("records", "shards", "size")


def show_result(
    manifest: Manifest, output: str, seconds: float, notes: Sequence[str] = ()
) -> None:
    """Prints the summary of a committed dataset, with notes beside its own."""
    table = splits_table(manifest.splits)
    if len(manifest.splits) > 1:
        table.add_row(
            "total",
            f"{manifest.records:,}",
            f"{sum(len(split.shards) for split in manifest.splits):,}",
            size_text(sum(split.bytes for split in manifest.splits)),
            bold=True,
        )
    print_table(table, apart=False)
    account = manifest.account
    if account.rejected:
        reasons = counts_text(account.rejected)
        total = sum(account.rejected.values())
        text = f"rejected {total:,} ({reasons}): see beam-tfrecord rejects {output}"
        print_line(text, "red")
    if account.skipped:
        total = sum(account.skipped.values())
        print_line(f"skipped {total:,} ({counts_text(account.skipped)})")
    for kind, counts in account.parts.items():
        if counts["rejected"]:
            print_line(
                f"rejected {counts['rejected']:,} of {counts['read']:,} {kind}: see "
                f"beam-tfrecord rejects {output}",
                "red",
            )
    if manifest.image_notes:
        print_line(
            f"images with something to know: {counts_text(manifest.image_notes)}"
        )
    for note in (*manifest.run.get("notes", []), *notes):
        print_line(f"note: {note}")
    rate = manifest.records / seconds if seconds else 0.0
    took = f"{seconds:.1f} s, {rate:,.0f} records/s"
    text = f"{output}  ({took}, digest {manifest.digest[:12]})"
    print_head("committed ", text, "green")
    print_next(output)


def show_submitted(what: str, output: str, seconds: float) -> None:
    """Prints that a job goes on without this program."""
    print_head("submitted ", f"{output}  ({what}, {seconds:.1f} s)", "green")
    print_line(
        f"it is there once {output}/manifest.json is; beam-tfrecord verify looks",
        "dim",
    )


def show_up_to_date(manifest: Manifest, output: str) -> None:
    """Prints that the dataset is there already, as the job would make it."""
    text = f"{output}  ({manifest.records:,} records, digest {manifest.digest[:12]})"
    print_head("up to date ", text, "green")


def show_plan(plan: Plan) -> None:
    """Prints what a run would do."""
    planned = plan.planned
    print_line(
        f"source  {plan.spec.source}: {planned.layout}, "
        f"{count_text(len(plan.inputs.entries), 'file')}, "
        f"{size_text(plan.inputs.bytes)}",
    )
    if planned.skipped:
        print_line(f"skipped {counts_text(planned.skipped)}")
    if names := plan.inputs.passed_over:
        count = planned.skipped.get(Skipped.OTHER_SUFFIX, 0)
        listed = ", ".join(f"{name!r:.80}" for name in names)
        if count > len(names):
            listed += f" and {count - len(names):,} more"
        print_line(f"        {Skipped.OTHER_SUFFIX}: {listed}")
    replaces = ", replacing the dataset there" if plan.seen else ""
    print_line(f"output  {plan.spec.output}{replaces}")
    unlabelled = label_notes(planned.schema, planned.evidence)
    for note in (*plan.notes, *planned.notes, *unlabelled):
        print_line(f"note    {note}")
    where = "memory" if plan.inline else "files"
    print_line(
        f"workers {plan.workers}; rows are kept in {where} until they are written"
    )
    print_line(f"disk    {_disk(plan)}")

    is_sampled = bool(planned.evidence)
    more = ("present", "range", "examples") if is_sampled else ()
    features = new_table("feature", "kind", *more)
    for feature in planned.schema.stored:
        evidence = planned.evidence.get(feature.name)
        facts = _evidence(evidence, feature) if is_sampled else ()
        features.add_row(feature.name, kind_text(feature), *facts)
    print_table(features)

    # Folders are counted; shares of them, and rows of sampled tables, are not.
    counted = planned.counted or (
        planned.expected_rows is not None
        and planned.rule.source is not SplitSource.SHARES
    )
    about = "" if counted else "~"
    unknown = _is_size_unknown(plan)
    splits = new_table("split", *_COUNTS, right=_COUNTS)
    for name, shards in plan.sharding.shards.items():
        splits.add_row(
            name,
            f"{about}{planned.records[name]:,}",
            f"{shards:,}",
            "unknown" if unknown else f"~{size_text(planned.record_bytes[name])}",
        )
    print_table(splits)
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
    text = f"about {need_text(plan)}"
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
    extent = extent_text(evidence, feature)
    # The ends of a range of instants are examples enough.
    is_range = extent and feature.kind is Kind.TIMESTAMP
    examples = "" if is_range else examples_text(evidence.examples)
    if evidence.misfits:
        wrong = examples_text(evidence.misfit_examples)
        examples += f" ({evidence.misfits:,} do not fit: {wrong})"
    return present_text(evidence), extent, examples
