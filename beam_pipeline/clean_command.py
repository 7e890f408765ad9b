"""The command `clean`: what dead runs have left, listed and removed."""

import os

from rich.table import Table

from beam_pipeline.dataset import count_text, printable, size_text
from beam_pipeline.terminal import Console
from transforms import files
from transforms.errors import TargetError
from transforms.publishing import leftovers
from transforms.publishing.leftovers import Leftover
from transforms.storage.paths import absolute, relative

__all__ = ["run"]


def run(directory: str, *, dry_run: bool, quiet: bool) -> int:
    """Lists what dead runs have left of a target or in a folder, and removes it.

    Args:
      directory: an output of `convert` or `WriteTFRecords`, or a folder of such.
      dry_run: only list.
      quiet: print errors only.

    Returns:
      0, or 1 when something could not be removed because a run is at work there.

    Raises:
      TargetError: there is neither the folder nor anything that was left of it.
    """
    found = leftovers.find(directory)
    if not found and not files.is_folder(directory):
        raise TargetError(
            f"{directory!r} must be a folder, or an output that was never finished; "
            f"there is nothing of that name. Correct the path."
        )
    kept = []
    if not dry_run:
        kept = [each for each in found if not leftovers.remove(each)]
    if not quiet:
        _show(found, kept, directory, dry_run)
    return 1 if kept else 0


def _show(
    found: list[Leftover], kept: list[Leftover], directory: str, dry_run: bool
) -> None:
    console = Console(highlight=False, markup=False, emoji=False)
    if not found:
        console.print(f"nothing was left of dead runs at {printable(directory)}")
        return
    # Names alone fit a line; they all lie beside the target, or in the folder.
    parent = os.path.dirname(absolute(directory))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("left", "size", "holds", ""):
        table.add_column(
            name, justify="right" if name == "size" else "left", overflow="fold"
        )
    for each in found:
        outcome = "would be removed" if dry_run else "removed"
        if each in kept:
            outcome = "in use by a run"
        name = printable(relative(each.path, parent))
        table.add_row(name, size_text(each.bytes), _holds(each), outcome)
    console.print(table)


def _holds(each: Leftover) -> str:
    if each.blocks or each.shards:
        blocks, shards = (
            count_text(each.blocks, "block"),
            count_text(each.shards, "shard"),
        )
        return f"{blocks}, {shards}"
    return each.kind
