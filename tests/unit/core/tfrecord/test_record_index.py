"""Indexes of files as text."""

import itertools

import numpy as np
import pytest

from transforms.core.tfrecord import record_index
from transforms.core.tfrecord.record_index import text_index


@pytest.mark.parametrize("together", [1, 2, 3, 100])
@pytest.mark.parametrize("offsets", [[], [0], [0, 20], [0, 20, 37, 54, 80]])
def test_a_text_index_has_a_line_for_each_record(
    offsets: list[int], together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it begins and its size, however many lines are made together."""
    monkeypatch.setattr(record_index, "_LINES_TOGETHER", together)
    lines = [f"{start} {stop - start}\n" for start, stop in itertools.pairwise(offsets)]
    assert text_index(np.array(offsets, np.uint64)) == "".join(lines).encode()
