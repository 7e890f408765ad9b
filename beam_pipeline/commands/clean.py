"""The command `clean`: list and remove what interrupted runs left behind."""

import os

from beam_pipeline.datasets import leftovers
from beam_pipeline.datasets.leftovers import Leftover
from beam_pipeline.terminal.console import new_table, open_console, print_table
from beam_pipeline.terminal.printing import printable
from beam_pipeline.terminal.words import count_text, size_text
from transforms import files
from transforms.errors import TargetError
from transforms.storage.paths import absolute, relative

_IN_USE = "in use by a run"
# Of rows of a pipeline.
_UNSURE = "left; once the pipeline has ended, --pipelines removes it"
# How many names of foreign files a line shows.
_SHOWN = 3


def run(directory: str, *, dry_run: bool, pipelines: bool, quiet: bool) -> int:
    """Lists what dead runs have left of a target or in a folder, and removes it.

    Args:
      directory: an output of `convert` or `WriteTFRecords`, or a folder of such.
      dry_run: only list.
      pipelines: whether all pipelines that write there are known to have ended.
      quiet: print errors only.

    Returns:
      0, or 1 when something could not be removed because a run is at work there, or
      may be.

    Raises:
      TargetError: there is neither the folder nor a leftover of it; or a file that is
        not ours has the name of a leftover. It stays; all others are removed.
    """
    found = leftovers.find(directory)
    if not found and not files.is_folder(directory):
        raise TargetError(
            f"{directory!r} must be a folder, or an output that was never finished; "
            f"there is nothing of that name. Correct the path."
        )
    outcomes = [_outcome(each, dry_run=dry_run, pipelines=pipelines) for each in found]
    if not quiet:
        _show(found, outcomes, directory)
    for each in found:
        if each.not_ours:
            raise TargetError(each.not_ours)
    return 1 if {_IN_USE, _UNSURE} & {*outcomes} else 0


def _outcome(each: Leftover, *, dry_run: bool, pipelines: bool) -> str:
    """Removes a leftover, unless it is to be listed only; returns what became of it."""
    if each.not_ours:
        return "not ours, left"
    held = ", ".join(map(repr, each.foreign[:_SHOWN]))
    if held and not each.kind:
        return f"left, for it holds {held}"
    if each.pipeline in leftovers.MAY_RUN and not pipelines:
        return _UNSURE
    if dry_run:
        return f"would be removed, but for {held}" if held else "would be removed"
    if not leftovers.remove(each, pipelines=pipelines):
        return _IN_USE
    if held:
        return f"removed, but for {held}"
    return "emptied, cannot be removed" if files.exists(each.path) else "removed"


def _show(found: list[Leftover], outcomes: list[str], directory: str) -> None:
    console = open_console()
    if not found:
        console.print(f"nothing was left of dead runs at {printable(directory)}")
        return
    # Relative paths fit a line; all are next to the target or in the folder.
    parent = os.path.dirname(absolute(directory))
    table = new_table("left", "size", "holds", "", right=("size",))
    for each, outcome in zip(found, outcomes, strict=True):
        name = printable(relative(each.path, parent))
        size = "" if each.not_ours else size_text(each.bytes)
        table.add_row(name, size, _holds(each), printable(outcome))
    print_table(console, table, apart=False)


def _holds(each: Leftover) -> str:
    if each.blocks or each.shards:
        return f"{count_text(each.blocks, 'block')}, {count_text(each.shards, 'shard')}"
    return "" if each.not_ours else each.kind or "no work"
