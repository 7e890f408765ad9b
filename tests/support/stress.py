"""How many generated cases a test takes: few in `make quick`, all in `make stress`.

Cases come from fixed seeds, so that the few are the first of the many.
"""

import os

QUICK = bool(os.environ.get("BEAM_TFRECORD_QUICK"))
STRESS = bool(os.environ.get("BEAM_TFRECORD_STRESS"))


def count(normal: int, full: int) -> int:
    """Returns `full` where `BEAM_TFRECORD_STRESS` is set, else `normal`."""
    return full if STRESS else normal


def cases(normal: int) -> int:
    """Returns how many cases Hypothesis tries in a unit test: a third in quick runs."""
    return normal // 3 if QUICK else normal


def portions(cases: int, size: int = 10_000) -> list[range]:
    """Returns the numbers of the cases in portions: what one test is to take."""
    return [range(at, min(at + size, cases)) for at in range(0, cases, size)]
