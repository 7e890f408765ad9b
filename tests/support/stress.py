"""What `make stress` adds to the cases that `make test` takes.

A test marked `stress` is run by `make stress` alone. Hypothesis has a profile for each
of the two (`tests/conftest.py`); tests that draw cases from seeds of their own take
`CASES`, and those with another measure of size take `sizes`.

`make stress` sets `BEAM_TFRECORD_STRESS` to the first of its seeds, so that each run
takes new ones; a failed run is repeated with the number that it printed.
"""

import os
from collections.abc import Sequence
from typing import Any

import pytest

FIRST = int(os.environ.get("BEAM_TFRECORD_STRESS") or 0)
STRESS = FIRST > 0
# 10,000 damaged files take a reader one to three minutes.
_PORTIONS = [range(FIRST + at, FIRST + at + 5_000) for at in (0, 5_000)]


def sizes(first: object, *others: object) -> Sequence[Any]:
    """Returns values of a parameter: one for each run, others for `make stress`."""
    return [first, *(pytest.param(each, marks=pytest.mark.stress) for each in others)]


# Seeds for `parametrize`: 50 fixed ones, as many as Hypothesis takes, then new ones.
CASES = [
    range(50),
    *(pytest.param(seeds, marks=pytest.mark.stress) for seeds in _PORTIONS),
]
