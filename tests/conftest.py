"""Pytest settings of all tests: fixed generated cases, and the headline figures.

Hypothesis has two profiles. `commit` takes 50 examples, always the same, so that a run
in CI says what the run before it said. `stress`, for `make stress`, takes 500 new ones
in each run, and keeps those that failed in `.hypothesis`. Tests marked `stress` are run
by `make stress` alone.

A test that establishes one of the headline figures says how far it got, and the end of
the run shows all of them:

    def test_no_cut_is_silent(headline):
        ...
        headline("H2", "{} cuts: 0 silent", cuts)

"""

import signal
from collections import Counter
from collections.abc import Callable
from typing import Protocol

import pytest
from hypothesis import HealthCheck, settings

# Before their import, so that an assertion in them shows its values when it fails.
pytest.register_assert_rewrite("tests.support", "tests.storage.program")

from tests.support.stress import STRESS  # noqa: E402

_ANY_SPEED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("commit", _ANY_SPEED, max_examples=50, derandomize=True)
settings.register_profile("stress", _ANY_SPEED, max_examples=500)
settings.load_profile("stress" if STRESS else "commit")

# In the background of a shell, and under nohup, these are ignored, and would be by all
# programs under test. A handler is not handed on, as that is.
for _number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, lambda number, frame: None)

_PROPERTY = "headline"
# The servers run on in sessions of their own, and clients of stores keep connections.
# Files that are left open fail these tests as well.
_OF_SERVERS = (
    r"ignore:subprocess \d+ is still running:ResourceWarning",
    "ignore:unclosed <(socket|ssl):ResourceWarning",
    "ignore::DeprecationWarning:botocore",
)


class Headline(Protocol):
    """Notes a headline figure and what was reached: H2, "19,341 cuts: 0 silent"."""

    def __call__(self, figure: str, reached: str, cases: int = 0) -> None:
        """Notes it; where `{}` stands in it, the cases of all tests that say so."""


@pytest.fixture
def headline(record_property: Callable[[str, object], None]) -> Headline:
    """Returns the function that notes a figure."""

    def note(figure: str, reached: str, cases: int = 0) -> None:
        # As a property it travels with the test's report, also from xdist's processes.
        record_property(_PROPERTY, [figure, reached, cases])

    return note


@pytest.fixture
def without_runner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs conversions in this process by the stages' own code, without Beam's runner.

    For tests of what is read, refused and written, which Beam has no part in.
    """
    # Beam takes a second to import, which unit tests need not wait for.
    from tests.support import direct_run

    monkeypatch.setattr("beam_pipeline.running.convert.run_job", direct_run.run_job)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Says which tests stay together."""
    for item in items:
        # The tests of a file share what they have made. TensorFlow takes seconds to
        # import, so that one process runs all tests that read with it.
        file = item.nodeid.partition("::")[0]
        group = "readers" if file.startswith("tests/readers/") else file
        item.add_marker(pytest.mark.xdist_group(group))
        if file.startswith(("tests/clusters/", "tests/storage/", "tests/opens_in/")):
            for each in _OF_SERVERS:
                item.add_marker(pytest.mark.filterwarnings(each))


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter,
) -> None:
    """Shows the headline figures, H2 before H10, and which of them failed."""
    noted: Counter[tuple[str, str, bool]] = Counter()
    for outcome in ("passed", "failed"):
        for report in terminalreporter.getreports(outcome):
            for name, value in getattr(report, "user_properties", ()):
                if name == _PROPERTY and report.when == "call":
                    figure, reached, cases = value
                    noted[figure, reached, outcome == "failed"] += cases
    if not noted:
        return
    terminalreporter.section("headline figures")
    for (figure, reached, failed), cases in sorted(
        noted.items(), key=lambda item: (int(item[0][0].removeprefix("H")), item)
    ):
        text = reached.replace("{}", f"{cases:,}")
        terminalreporter.write_line(
            f"{figure:<4} {text}{'  (FAILED)' if failed else ''}", red=failed
        )
