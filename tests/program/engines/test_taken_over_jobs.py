"""The engine's job of a run whose lease has expired, and who ends it."""

import concurrent.futures
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import grpc
import pytest
from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc

from beam_pipeline.beam_internals.job_service import cancel_at
from beam_pipeline.engines.engine import Place
from beam_pipeline.engines.presets import FLINK, SPARK
from beam_pipeline.running.convert import _end_job

PLACE = Place("", "", master="flink:8081")
NOTE = {"engine": "flink", "master": "flink:8081", "engine_job": "beam-tfrecord-1"}


@pytest.mark.parametrize(
    ("note", "ended"),
    [
        (NOTE, [("flink:8081", "beam-tfrecord-1")]),
        ({**NOTE, "job_endpoint": "other:8099"}, [("flink:8081", "beam-tfrecord-1")]),
        ({**NOTE, "master": "other:8081"}, []),
        ({**NOTE, "engine": "spark"}, []),
        ({}, []),
    ],
)
def test_the_run_that_takes_over_ends_the_job(
    note: Mapping[str, Any], ended: list[tuple[str, str]]
) -> None:
    """Of its own engine and master alone: it has no way to others."""
    found: list[tuple[str, str]] = []

    def cancel(master: str, job: str) -> None:
        found.append((master, job))
        # It has ended by itself, or Flink is being started again.
        raise OSError("refused")

    _end_job(dataclasses.replace(FLINK, cancel=cancel), PLACE, note)
    assert found == ended


class Jobs(beam_job_api_pb2_grpc.JobServiceServicer):
    """The jobs of a job server.

    Attributes:
      cancelled: ids of those that it was asked to end.
    """

    def __init__(self) -> None:
        self.cancelled: list[str] = []

    def GetJobs(self, request: Any, context: Any) -> Any:
        """Returns three, of which one is a run's."""
        ids = ("beam-tfrecord-1_a", "beam-tfrecord-12_b", "other_c")
        found = [beam_job_api_pb2.JobInfo(job_id=each) for each in ids]
        return beam_job_api_pb2.GetJobsResponse(job_info=found)

    def Cancel(self, request: Any, context: Any) -> Any:
        """Notes whom it was asked to end."""
        self.cancelled.append(request.job_id)
        return beam_job_api_pb2.CancelJobResponse()


@pytest.fixture
def server() -> Iterator[tuple[str, Jobs]]:
    """A job server that runs already."""
    jobs = Jobs()
    made = grpc.server(concurrent.futures.ThreadPoolExecutor(2))
    beam_job_api_pb2_grpc.add_JobServiceServicer_to_server(jobs, made)
    port = made.add_insecure_port("localhost:0")
    made.start()
    yield f"localhost:{port}", jobs
    made.stop(None).wait()


def test_a_job_server_that_goes_on_is_asked(server: tuple[str, Jobs]) -> None:
    """Spark has no other way; the server and the master must be this run's own."""
    endpoint, jobs = server
    place = Place("", "", master="spark://m:7077", job_endpoint=endpoint)
    note = {**NOTE, "engine": "spark", "master": place.master, "job_endpoint": endpoint}
    for other in (
        {**note, "job_endpoint": "other:8099"},
        {**note, "master": "spark://other:7077"},
        {**note, "engine": "flink"},
        {**note, "engine_job": "beam-tfrecord"},
    ):
        _end_job(SPARK, place, other)
    assert jobs.cancelled == []
    _end_job(SPARK, place, note)
    assert jobs.cancelled == ["beam-tfrecord-1_a"]


def test_engines_that_cannot_be_asked() -> None:
    """Spark's job ends with a driver of its own; a local run has none."""
    _end_job(SPARK, dataclasses.replace(PLACE, master="m"), {**NOTE, "engine": "spark"})
    _end_job(None, None, NOTE)
    with pytest.raises(OSError, match="no answer of the job server at 'localhost:9'"):
        cancel_at("localhost:9", "beam-tfrecord-1")
