"""Name all files that do not fit the others, where one was found."""

import collections
import itertools
from collections.abc import Callable, Iterable

from transforms.errors import MAX_MESSAGE_BYTES, InputError, bounded

# Files that are looked at again, and how many of the bad ones a message names.
_MOST_FILES = 1000
_MOST_NAMED = 20
_MOST_BYTES = 120


def naming_others(
    error: InputError, files: Iterable[tuple[str, Callable[[], tuple[str, ...]]]]
) -> InputError:
    """Returns the error of the first bad file, or one that names the others too.

    The columns that most files have are taken for those of the source.

    Args:
      error: of the first one.
      files: (origin, function) of each; the function returns the names of the file's
        columns, or raises InputError.
    """
    faults: dict[str, str] = {}
    columns: dict[str, tuple[str, ...]] = {}
    for origin, names_of in itertools.islice(files, _MOST_FILES):
        try:
            columns[origin] = names_of()
        except InputError as fault:
            faults[origin] = str(fault).split("; ")[0].split(". ")[0]
        except OSError:
            return error
    if not columns:
        # All are alike: what is wrong is likely the job.
        return error
    (usual, count), *_ = collections.Counter(columns.values()).most_common(1)
    for origin, names in columns.items():
        if names != usual:
            faults[origin] = f"{origin}: other columns than most files"
    looked_at = len(columns) + sum(origin not in columns for origin in faults)
    if len(faults) < 2 or 2 * count <= len(columns):
        return error
    head = f"{len(faults):,} of {looked_at:,} files do not fit the others: "
    tail = (
        ". Correct them, or leave them out with --exclude. Where only the delimiter or "
        "the encoding differs, convert them by themselves and join the datasets with "
        "'beam-tfrecord merge'."
    )
    room = MAX_MESSAGE_BYTES - len(head) - len(tail) - len("; and 1,000 more")
    named: list[str] = []
    for _, text in sorted(faults.items()):
        shown = bounded(text, _MOST_BYTES)
        room -= len(shown.encode()) + len("; ")
        if room < 0 or len(named) == _MOST_NAMED:
            break
        named.append(shown)
    more = len(faults) - len(named)
    return InputError(
        f"{head}{'; '.join(named)}{f'; and {more:,} more' if more else ''}{tail}"
    )
