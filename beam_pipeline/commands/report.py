"""The command `report`: a dataset as one HTML file, to be looked at in a browser.

Its file, like that of `--report-json`, is written whole at the end; - is stdout. It
replaces only an earlier report or an empty file. It is outside of what a job reads and
writes: the next run would read a new file in a source, and a new file in an output
would block it.
"""

import os
import sys

from beam_pipeline.datasets.dataset import open_dataset_folder
from beam_pipeline.terminal import print_line, size_text
from transforms.errors import UsageError
from transforms.storage.files import storage
from transforms.storage.paths import is_remote

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
