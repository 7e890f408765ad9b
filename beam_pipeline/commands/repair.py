"""The command `repair`: copy every sound record of damaged files, report the losses.

Of a dataset only the shards are copied: what the manifest and the files beside the
shards state would be wrong of other records.
"""

import contextlib
import dataclasses
import json
import os
import tempfile
from collections.abc import Iterator
from typing import IO, Any

from beam_pipeline.commands.report_file import ReportFile
from beam_pipeline.datasets.bare_files import find_bare_files
from beam_pipeline.datasets.dataset import Dataset, SingleFile, open_target
from beam_pipeline.datasets.repair import Range, Repaired, repair_file
from beam_pipeline.terminal.printing import print_prose, print_text, printable
from beam_pipeline.terminal.words import count_text
from transforms import files
from transforms.core.manifest import DERIVED_FOLDERS, MANIFEST_NAME, ShardFacts
from transforms.core.tfrecord.frame import DAMAGE_KINDS
from transforms.errors import (
    DamageError,
    SourceError,
    TargetError,
    UsageError,
    first_few,
)
from transforms.storage.paths import is_remote

# Ranges in memory before they go to a file of their own.
_LOG_BYTES = 1 << 20
# Foreign names in an error.
_SHOWN = 5


@dataclasses.dataclass(frozen=True, slots=True)
class _Task:
    """One file to repair.

    Attributes:
      source, target: paths.
      facts: what a manifest says of it, if one names it.
    """

    source: str
    target: str
    facts: ShardFacts | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class _Outcome:
    """What became of it; `result` is None where `error` says why there is none."""

    task: _Task
    result: Repaired | None
    error: str = ""

    def to_json(self) -> dict[str, Any]:
        out: dict[str, Any] = {"file": self.task.source}
        if self.result is None:
            return out | {"status": "failed", "error": self.error}
        return out | {
            "status": "copied" if self.result.is_copy else "repaired",
            "output": self.task.target,
            "records": self.result.facts.records,
            "bytes": self.result.facts.stored_bytes,
            "crc32c": f"{self.result.facts.crc32c:08x}",
            "skipped_ranges": self.result.ranges,
            "skipped_bytes": self.result.skipped_bytes,
        }


def run(source: str, target: str, *, overwrite: bool, report_json: str | None) -> int:
    """Repairs and prints; returns 0 when there is an output for every file, else 1.

    Raises:
      UsageError: there is nothing to repair, or the output cannot be written there.
    """
    if is_remote(source) or is_remote(target):
        raise UsageError(
            "Only files of this machine are repaired; copy the damaged ones here, "
            "repair them, and copy the result back."
        )
    tasks, dataset = _tasks(source, target)
    report = None
    if report_json:
        report = ReportFile(report_json, {"source": source, "output": target})
    if files.is_folder(source) or files.is_pattern(source):
        _check_folder(source, target, tasks, dataset)
    _check_target(tasks, overwrite=overwrite)
    width = max(len(printable(task.source)) for task in tasks)
    with _skipped_ranges() as ranges:
        outcomes = [_repair(task, ranges, width, overwrite=overwrite) for task in tasks]
        notes = [] if dataset is None else _notes(target, outcomes)
        if report is not None:
            report.write(
                lambda: _report_texts(source, target, outcomes, notes, ranges),
                done="The repair itself is done.",
            )
    _print_verdict(target, outcomes, notes)
    return 1 if any(outcome.result is None for outcome in outcomes) else 0


def _tasks(source: str, target: str) -> tuple[list[_Task], Dataset | None]:
    """Returns the files to repair, and the dataset whose shards they are."""
    if os.path.exists(os.path.join(source, MANIFEST_NAME)):
        with contextlib.suppress(DamageError):
            dataset = open_target(source)
            assert isinstance(dataset, Dataset)  # it is a directory
            shards = [s for split in dataset.manifest.splits for s in split.shards]
            return [
                _Task(dataset.path(shard.file), os.path.join(target, shard.file), shard)
                for shard in shards
            ], dataset
    if (bare := find_bare_files(source)) is not None:
        names = [os.path.basename(path) for path in bare.paths]
        if twice := {name for name in names if names.count(name) > 1}:
            raise UsageError(
                f"Files of a pattern must differ in their names, by which they go to "
                f"{target!r}; {min(twice)!r} is in several folders. Repair "
                f"one folder at a time."
            )
        return [
            _Task(path, os.path.join(target, name))
            for path, name in zip(bare.paths, names, strict=True)
        ], None
    found = open_target(source)
    if isinstance(found, Dataset):
        return _tasks(found.directory, target)
    if os.path.isdir(target):
        target = os.path.join(target, os.path.basename(source))
    return [_Task(found.path, target, found.facts)], None


def _check_folder(
    source: str, target: str, tasks: list[_Task], dataset: Dataset | None
) -> None:
    """Raises where the output of several files is part of something else."""
    if files.is_folder(source) and files.is_inside(target, source):
        raise TargetError(
            f"The output must be outside of what is repaired, or the next run would "
            f"read it; {target!r} is in {source!r}. Name another folder."
        )
    if not files.is_folder(target):
        return
    # An earlier repair has written these, perhaps.
    ours = {os.path.basename(task.target) for task in tasks} | {MANIFEST_NAME}
    if dataset is not None:
        ours |= {*dataset.manifest.file_names}
    names = files.names_with(target, DERIVED_FOLDERS)
    if foreign := [name for name in names if name not in ours]:
        raise TargetError(
            f"The output may hold only what a repair writes; {target!r} also holds "
            f"{first_few([*map(repr, foreign)], _SHOWN)}. Name another folder."
        )


def _check_target(tasks: list[_Task], *, overwrite: bool) -> None:
    """Makes the folder of the output; raises where it cannot be written to."""
    folder = os.path.dirname(tasks[0].target) or "."
    for task in tasks:
        with contextlib.suppress(OSError):
            # Also finds links and other spellings of one path.
            if os.path.samefile(task.source, task.target):
                raise UsageError(
                    f"The output must be another file than the damaged one, "
                    f"{task.source!r}: that is all there is of it."
                )
        if not overwrite and os.path.lexists(task.target):
            raise TargetError(
                f"The output must not exist; {task.target!r} does. Name another, or "
                f"give --overwrite."
            )
    if os.path.lexists(os.path.join(folder, MANIFEST_NAME)):
        raise TargetError(
            f"The output must be outside of datasets, whose manifests say what is in "
            f"them; {folder!r} has one. Name another folder."
        )
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise TargetError(
            f"The folder of the output must be writable; {folder!r} is not: "
            f"{error.strerror}."
        ) from error


def _repair(task: _Task, ranges: IO[str], width: int, *, overwrite: bool) -> _Outcome:
    """Repairs one file; prints every range that is skipped, and keeps it."""

    def skipped(found: Range) -> None:
        _print_range(task.source, found, width, first=ranges.tell() == 0)
        line = {
            "file": task.source,
            "from": found.start,
            "to": found.stop,
            "of": found.of,
            "reason": found.kind,
        }
        ranges.write(json.dumps(line) + "\n")

    try:
        result = repair_file(
            task.source,
            task.target,
            overwrite=overwrite,
            skipped=skipped,
            allow_empty=SingleFile(task.source, facts=task.facts).may_be_empty,
        )
    except (DamageError, SourceError) as error:
        print_prose(f"damage   {printable(str(error))}")
        return _Outcome(task, None, str(error))
    return _Outcome(task, result)


def _print_range(source: str, found: Range, width: int, *, first: bool) -> None:
    if first:
        print_text(
            f"{'skipped in':<{width}}  {'from byte':>15}  {'to byte':>15}  reason"
        )
    where = " (of its content)" if found.of == "content" else ""
    print_text(
        f"{printable(source):<{width}}  {found.start:>15,}  {found.stop:>15,}  "
        f"{found.kind}: {DAMAGE_KINDS[found.kind]}{where}"
    )


@contextlib.contextmanager
def _skipped_ranges() -> Iterator[IO[str]]:
    """Gives what holds the ranges, a line of JSON each, in bounded memory."""
    with tempfile.SpooledTemporaryFile(
        _LOG_BYTES, "w+", encoding="utf-8", newline="\n"
    ) as file:
        yield file


def _notes(target: str, outcomes: list[_Outcome]) -> list[str]:
    """Returns notes on shards that hold other records, and on what the copy lacks."""
    notes = [
        f"{target} has no {MANIFEST_NAME} and no files beside its shards. 'convert' "
        f"makes a dataset of it."
    ]
    for task, result in ((each.task, each.result) for each in outcomes):
        if task.facts is None or result is None or not result.is_copy:
            continue
        found, stated = result.facts, task.facts
        if (found.stored_bytes, found.crc32c) != (stated.bytes, stated.crc32c):
            notes.append(
                f"{task.source} is sound, but not what the manifest states: it holds "
                f"{count_text(found.records, 'record')} of {stated.records:,}."
            )
    return notes


def _report_texts(
    source: str,
    target: str,
    outcomes: list[_Outcome],
    notes: list[str],
    ranges: IO[str],
) -> Iterator[str]:
    """Yields the report; of the ranges, one line each, nothing is kept in memory."""
    head = json.dumps(
        {
            "source": source,
            "output": target,
            "files": [outcome.to_json() for outcome in outcomes],
            "notes": notes,
        },
        indent=1,
    ).removesuffix("\n}")
    yield f'{head},\n "skipped": ['
    ranges.seek(0)
    separator = "\n  "
    for line in ranges:
        yield separator + line.rstrip("\n")
        separator = ",\n  "
    yield "\n ]\n}\n"


def _print_verdict(target: str, outcomes: list[_Outcome], notes: list[str]) -> None:
    results = [each.result for each in outcomes if each.result is not None]
    records = sum(result.facts.records for result in results)
    ranges = sum(result.ranges for result in results)
    size = sum(result.skipped_bytes for result in results)
    repaired = sum(not result.is_copy for result in results)
    print_prose(
        f"{printable(target)}: {count_text(records, 'record')} in "
        f"{count_text(len(results), 'file')}, {repaired:,} of them repaired; skipped "
        f"{count_text(ranges, 'range')} of {count_text(size, 'byte')}."
    )
    if failed := len(outcomes) - len(results):
        print_prose(
            f"{count_text(failed, 'file')} could not be repaired, as said above."
        )
    for note in notes:
        print_prose(printable(note))
