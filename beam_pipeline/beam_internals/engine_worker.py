"""Beam's worker program, as the start program of its container would run it."""

import json
import os

import grpc
from apache_beam.portability.api import (
    beam_provision_api_pb2,
    beam_provision_api_pb2_grpc,
)
from apache_beam.runners.worker import sdk_worker_main
from google.protobuf import json_format, text_format


def serve_engine(endpoint: str) -> None:
    """Asks an engine what to do, and works for it until it hangs up.

    The variable WORKER_ID is the engine's name for this worker; it must be set before
    this module is loaded, since Beam reads it then.

    Args:
      endpoint: host and port of the engine's provision service.
    """
    channel = grpc.insecure_channel(endpoint)
    stub = beam_provision_api_pb2_grpc.ProvisionServiceStub(channel)
    info = stub.GetProvisionInfo(
        beam_provision_api_pb2.GetProvisionInfoRequest(),
        metadata=(("worker_id", os.environ["WORKER_ID"]),),
        wait_for_ready=True,
    ).info
    options = json.dumps(json_format.MessageToDict(info.pipeline_options))
    os.environ.update(
        PIPELINE_OPTIONS=options,
        RUNNER_CAPABILITIES=" ".join(info.runner_capabilities),
    )
    for service in ("control", "logging", "status"):
        field = f"{service}_endpoint"
        if info.HasField(field):
            os.environ[f"{service.upper()}_API_SERVICE_DESCRIPTOR"] = (
                text_format.MessageToString(getattr(info, field))
            )
    sdk_worker_main.main([])
