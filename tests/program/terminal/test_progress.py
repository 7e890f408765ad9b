"""Tests of `unit/terminal/test_progress.py` that start processes."""

import pathlib

import pytest

from beam_pipeline.commands.progress import shown_progress
from tests.support.plans import planned
from tests.support.segments import IN_FILES
from transforms.errors import RejectLimitError

Folder = pathlib.Path


def test_rejects_so_far_are_shown(
    tmp_path: Folder, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What finished tasks rejected is counted once, in the line of progress.

    A run that rejects too much leaves its work.
    """
    from beam_pipeline.running.convert import convert_plan

    monkeypatch.setattr("beam_pipeline.commands.progress._LINE_SECONDS", 0.0)
    source = tmp_path / "rows.csv"
    rows = ["x" if n % 1000 == 7 else str(n) for n in range(10_000)]
    source.write_text("a\n" + "\n".join(rows) + "\n")
    made = planned(source, tmp_path, IN_FILES, max_reject_rate=0)
    with pytest.raises(RejectLimitError):
        convert_plan(made)
    with shown_progress(made, quiet=False) as watch:
        watch()
        watch()
    assert capfd.readouterr().err.count(", 10 rejected") == 2
