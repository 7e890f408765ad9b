"""The command `report`: a dataset as one HTML file, to be looked at in a browser."""

import os

from beam_pipeline.commands.report_file import check_report, write_report
from beam_pipeline.datasets.dataset import open_dataset_folder
from beam_pipeline.terminal import print_line, size_text
from transforms.errors import UsageError
from transforms.storage.paths import is_remote

_HEAD = b"<!doctype html>\n<!-- beam-tfrecord report -->\n"


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
    """Returns where the page of a dataset is by default.

    Raises:
      UsageError: something is there that is no page of a dataset.
    """
    path = f"{os.path.abspath(directory)}.report.html"
    if is_remote(directory):
        path = f"{os.path.basename(directory.rstrip('/'))}.report.html"
    if os.path.exists(path):
        with open(path, "rb") as file:
            if file.read(len(_HEAD)) not in (b"", _HEAD):
                raise UsageError(
                    f"Without a name given, a report replaces only a report; {path!r} "
                    f"is something else. Move it away, or use 'report -o FILE'."
                )
    return path
