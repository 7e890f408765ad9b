"""The line of a job server's output that says why a job failed is shown."""

import pytest

from beam_pipeline.engines.beam_errors import telling, with_words_of
from transforms.errors import BeamTFRecordError, SourceError

# As Spark 3.5.0 and Beam's job server of it print them.
_LOST = (
    "26/11/22 01:58:02 INFO StandaloneAppClient$ClientEndpoint: Executor updated: "
    "app-20261122015801-0001/9 is now FAILED (java.io.IOException: No subfolder can be "
    "created in .)"
)
_KILLED = (
    "26/11/22 01:58:02 ERROR StandaloneSchedulerBackend: Application has been killed. "
    "Reason: Master removed our application: FAILED"
)
_STOPPED = (
    "java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext."
)
_FAILED = f"The pipeline failed: {_STOPPED} Nothing was committed."


def test_a_given_up_spark_job_names_the_executor() -> None:
    """Follow-up errors are not shown, since they do not say what to fix."""
    told = telling([_LOST, _KILLED, _STOPPED], _FAILED)
    assert told.startswith("Executor updated: app-20261122015801-0001/9 is now FAILED")
    assert "No subfolder can be created" in told


def test_a_lost_executor_is_no_reason_where_another_is_known() -> None:
    fault = "java.lang.OutOfMemoryError: Java heap space"
    assert telling([_LOST, fault], "The pipeline failed: X.") == fault


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ([], ""),
        (["Starting", " Listening "], "Listening"),
        (
            ["java.io.IOException: No space", "Stopping"],
            "java.io.IOException: No space",
        ),
        ([_KILLED, _STOPPED], _KILLED),
        ([_STOPPED, "Stopping"], ""),
    ],
)
def test_the_last_fault_with_details_is_reported(lines: list[str], told: str) -> None:
    """Neither what the error says already, nor what comes after the fault."""
    assert telling(lines, _FAILED) == told


def test_words_explain_an_error_of_others() -> None:
    error = with_words_of([_KILLED], BeamTFRecordError(_FAILED))
    assert str(error) == f"{_FAILED} The job server's last words: {_KILLED}"
    ours = SourceError("This says it all.")
    assert with_words_of([_KILLED], ours) is ours
