"""Files that are parsed as a whole: a process keeps those that it parsed last.

Each block of such a file asks for all of its content, and most blocks that a worker
reads in a row are of the same file.
"""

import functools
import threading
from collections.abc import Callable
from typing import TypeVar

from transforms import files

_Content = TypeVar("_Content")


def kept_in_memory(
    count: int,
) -> Callable[[Callable[[str, int], _Content]], Callable[[str, int], _Content]]:
    """Decorates a function that parses a file: the last results are kept.

    The decorated function takes a path, and the stamp that the file had when it was
    listed (0 for unknown). The function itself gets the stamp that the file has now. It
    should compare the bytes that it parses with that stamp: content is kept by it.

    Args:
      count: how many files to keep.

    Raises:
      OSError: the file cannot be read, or has changed since it was listed.
    """

    def decorate(
        parse: Callable[[str, int], _Content],
    ) -> Callable[[str, int], _Content]:
        remembered = functools.lru_cache(maxsize=count)(parse)
        parsing = threading.Lock()

        @functools.wraps(parse)
        def load(path: str, stamp: int) -> _Content:
            with files.open_input(path, stamp=stamp) as file:
                found = files.stamp_of(file)
            # Threads that want the same file wait for one of them to parse it.
            with parsing:
                return remembered(path, found)

        return load

    return decorate
