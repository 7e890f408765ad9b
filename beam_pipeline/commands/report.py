"""Reports: of a run as facts, and by the command `report` of a dataset as HTML.

The page of a dataset is one file, to be looked at in a browser. Like the file of
`--report-json`, it is written whole at the end; - is stdout. It replaces only an
earlier report or an empty file. It is outside of what a job reads and writes: the next
run would read a new file in a source, and a new file in an output would block it.
"""

import contextlib
import dataclasses
import os
import sys
from collections.abc import Mapping
from typing import Any

from beam_pipeline.datasets.dataset import open_dataset_folder
from beam_pipeline.terminal import print_line, size_text
from transforms.core.files import is_part_name, part_folder, part_name
from transforms.core.manifest import Manifest
from transforms.errors import BeamTFRecordError, UsageError
from transforms.storage.files import storage
from transforms.storage.paths import absolute, is_remote

_HEAD = b"<!doctype html>\n<!-- beam-tfrecord report -->\n"
# Of a report as JSON.
_JSON_FIELD = b'"exit_code":'


def check_report(path: str, *job_paths: object) -> None:
    """Raises UsageError where no report may be written, as in a folder of the job."""
    real = os.path.realpath(path)
    local = [p for p in job_paths if isinstance(p, str) and not is_remote(p)]
    is_possible = os.path.isfile(real) or not os.path.exists(real)
    is_possible &= os.access(os.path.dirname(real), os.W_OK)
    if path != "-" and (not is_possible or any(map(storage(real).is_inside, local))):
        raise UsageError(
            f"The report must be a file of this machine, outside of source and output, "
            f"in a folder that can be written, or - for stdout; {path!r} is not."
        )
    if path != "-" and os.path.exists(real) and not _is_report(real):
        raise UsageError(
            f"A report replaces only an earlier report or an empty file; {path!r} is "
            f"something else. Move it away, or name another file."
        )


def _is_report(path: str) -> bool:
    """Whether a file may be overwritten: it is empty, or a report of ours."""
    with open(path, "rb") as file:
        start = file.read(len(_HEAD))
        is_json = start.startswith(b"{") and _JSON_FIELD in start + file.read()
    return start in (b"", _HEAD) or is_json


def write_report(path: str, text: str) -> None:
    """Writes a report; a file appears when it is whole."""
    data = text.encode("utf-8", "backslashreplace")
    if path == "-":
        # What was printed before comes first.
        sys.stdout.flush()
        with open(1, "wb", closefd=False) as file:
            file.write(data)
    else:
        # Where a link leads is what is replaced.
        real = os.path.realpath(path)
        storage(real).write_file(data, attempts=os.path.dirname(real))


def run(path: str, output: str, *, quiet: bool) -> int:
    """Writes the page of a dataset; returns 0.

    Args:
      path: of the dataset.
      output: the file; empty for `DATASET.report.html`, beside the dataset or, where
        that is in a bucket, in the current folder.
      quiet: print errors only.

    Raises:
      UsageError: there is no dataset, or the file cannot be written.
      DamageError: the dataset is damaged.
    """
    target = open_dataset_folder(path, "'report'")
    output = output or _page_path(target.directory)
    check_report(output, target.directory)
    # Only here: it loads Jinja2, Arrow and Pillow.
    from beam_pipeline.page.build import build_page

    page = _HEAD.decode() + build_page(target)
    write_report(output, page)
    if not quiet and output != "-":
        print_line(f"wrote {output}, {size_text(len(page.encode()))}")
    return 0


def _page_path(directory: str) -> str:
    """Returns where the page of a dataset is by default."""
    if is_remote(directory):
        return f"{os.path.basename(directory.rstrip('/'))}.report.html"
    return f"{os.path.abspath(directory)}.report.html"


@dataclasses.dataclass(frozen=True)
class Report:
    """The result of a committed run; the same facts as `--report-json` writes.

    Attributes:
      status: "committed", or "up to date" where the dataset was there already.
      output: the dataset's folder.
      digest: digest of the dataset; equal ones have equal bytes.
      records: records of all splits.
      splits: records, bytes and number of shards of each split, by its name.
      classes: records of each class, by split and label.
      part: name of the part that was written; empty for a dataset of none.
      drift: what is new beside the dataset that it is like, and was allowed:
        `new_columns`, and `new_classes` by label.
      read: items of the source.
      written: items that became records.
      rejected: items that did not, by reason.
      skipped: items that were left out on purpose, by reason.
      parts: what items consist of ("boxes"): how many were read, written, rejected on
        their own, and lost with rejected items; without those that steps of `between`
        have changed.
      image_notes: images that have something worth knowing, counted by what it is.
      notes: what readers of the dataset should know, a sentence each. They name
        settings by their options, as errors do.
      seconds: how long the run took.
      dropped_by_steps, added_by_steps: how many rows the steps of `between` took away
        or added in all; one of them is 0.
    """

    status: str
    output: str
    digest: str
    records: int
    splits: dict[str, dict[str, int]]
    read: int
    written: int
    rejected: dict[str, int]
    skipped: dict[str, int]
    parts: dict[str, dict[str, int]]
    image_notes: dict[str, int]
    notes: list[str]
    seconds: float
    dropped_by_steps: int
    added_by_steps: int
    classes: dict[str, dict[str, dict[str, int]]]
    part: str
    drift: dict[str, Any]


def report_of(
    manifest: Manifest, output: str, seconds: float, status: str = "committed"
) -> Report:
    """Returns the result of a run whose dataset is there."""
    return Report(
        status=status,
        output=absolute(output),
        digest=manifest.digest,
        records=manifest.records,
        splits={
            s.name: {"records": s.records, "bytes": s.bytes, "shards": len(s.shards)}
            for s in manifest.splits
        },
        classes={
            s.name: {name: dict(counts) for name, counts in s.classes.items()}
            for s in manifest.splits
        },
        part=part_name(absolute(output)),
        drift=dict(manifest.run.get("drift", {})),
        image_notes=dict(manifest.image_notes),
        notes=list(manifest.run.get("notes", [])),
        seconds=round(seconds, 3),
        **dataclasses.asdict(manifest.account),
    )


def success_json(report: Report) -> dict[str, Any]:
    """Returns the result of a committed run for a file."""
    return {"exit_code": 0, **dataclasses.asdict(report)}


def failure_json(
    error: BeamTFRecordError | OSError, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the result of a run that committed nothing.

    Where the run got as far as counting its items, it says how many were read, rejected
    and skipped, the last two by reason, what became of their parts, and where the
    rejects are; else None. Nothing was written, so `written` is always None.
    """
    counts = ("read", "written", "rejected", "skipped", "parts", "rejects")
    output = _output_of(settings)
    account = getattr(error, "account", None) or {}
    return {
        "status": "failed",
        "exit_code": getattr(error, "exit_code", BeamTFRecordError.exit_code),
        "error": type(error).__name__,
        "message": str(error),
        "output": output,
        "part": part_name(output or ""),
        **{key: account.get(key) for key in counts},
    }


def _output_of(settings: Mapping[str, Any]) -> str | None:
    """Returns the dataset's folder as the report of a success names it."""
    output, part = settings.get("output"), str(settings.get("part") or "")
    if not isinstance(output, str):
        # What is no path may hold what would have been taken off one.
        return None
    if is_part_name(part):
        output = part_folder(output, part)
    with contextlib.suppress(UsageError):
        output = absolute(output)
    return output
