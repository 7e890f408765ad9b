"""Beam's service of job servers."""

import grpc
from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc

# A server that takes longer to answer is treated as unreachable.
_ASK_SECONDS = 10


def cancel_at(endpoint: str, name: str) -> None:
    """Cancels the jobs of a name at a job server; those that have ended stay as is.

    Args:
      endpoint: host:port of the server.
      name: that the job was submitted with.

    Raises:
      OSError: it cannot be asked.
    """
    try:
        with grpc.insecure_channel(endpoint) as channel:
            stub = beam_job_api_pb2_grpc.JobServiceStub(channel)
            asked = beam_job_api_pb2.GetJobsRequest()
            for job in stub.GetJobs(asked, timeout=_ASK_SECONDS).job_info:
                # The servers of Flink and Spark add a word that no other job has.
                if job.job_id.startswith(f"{name}_"):
                    ended = beam_job_api_pb2.CancelJobRequest(job_id=job.job_id)
                    stub.Cancel(ended, timeout=_ASK_SECONDS)
    except grpc.RpcError as error:
        raise OSError(f"no answer of the job server at {endpoint!r}") from error
