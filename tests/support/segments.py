"""Whether rows wait in files or in memory, as a test says and not as their size does.

A job decides by the size of its tables, and those of tests are small. `IN_FILES` or
`IN_MEMORY` among the arguments of a run decides instead:

    command("convert", source, out, IN_FILES)
    subprocess.run(program("convert", source, out, IN_FILES))

The program itself refuses them. Plans that a test makes are made within `waiting`, and
code that a test lets another process run calls `decide`.
"""

import contextlib
import sys
from collections.abc import Iterator, Sequence

IN_FILES = "rows in files"
IN_MEMORY = "rows in memory"
# The largest tables whose rows wait in memory; no table is smaller than nothing.
_LIMITS = {IN_FILES: -1, IN_MEMORY: sys.maxsize}


def decide(where: str) -> None:
    """Lets the rows of all jobs that this process plans from now on wait there."""
    # It loads Arrow, which programs that say nothing of rows need not wait for.
    from beam_pipeline.planning import plan

    plan._INLINE_BYTES = _LIMITS[where]


@contextlib.contextmanager
def waiting(where: str) -> Iterator[None]:
    """Lets rows of jobs planned meanwhile wait there; "" leaves it to their size."""
    if not where:
        yield
        return
    from beam_pipeline.planning import plan

    before = plan._INLINE_BYTES
    decide(where)
    try:
        yield
    finally:
        plan._INLINE_BYTES = before


def split(arguments: Sequence[object]) -> tuple[str, list[str]]:
    """Returns where rows wait, "" where nothing says so, and the other arguments."""
    texts = [str(each) for each in arguments]
    said = [each for each in texts if each in _LIMITS]
    assert len(said) <= 1
    return "".join(said), [each for each in texts if each not in _LIMITS]


def program(*arguments: object) -> list[str]:
    """Returns the command that runs the program with arguments, as a process."""
    where, rest = split(arguments)
    start = [__name__, where] if where else ["beam_pipeline"]
    return [sys.executable, "-m", *start, *rest]


if __name__ == "__main__":
    from beam_pipeline.beam_internals.loading import let_arrow_look, spare_imports
    from beam_pipeline.cli import program as run

    # As the program does, before anything loads NumPy and Arrow.
    spare_imports()
    let_arrow_look()
    decide(sys.argv.pop(1))
    run()
