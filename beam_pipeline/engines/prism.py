"""Prism, Beam's runner in Go, on this machine, with the worker in its own process."""

from beam_pipeline.engines.engine import Place
from beam_pipeline.engines.job_server import JobServerEngine, worker_flags

__all__ = ["PRISM"]


def _presets(place: Place) -> list[str]:
    """Returns Beam's flags for a place; later flags of the user win."""
    return [
        *worker_flags(place),
        f"--prism_location={place.program}",
        "--prism_log_level=warn",
        # Without this the server stays for the next pipeline of this process.
        "--experiments=disable_prism_server_singleton",
    ]


PRISM = JobServerEngine(
    name="prism",
    runner="apache_beam.runners.portability.prism_runner:PrismRunner",
    presets=_presets,
    program_flag="prism_location",
    server_logger="PrismJobServer",
    # Prism waits for ever for a worker that has died.
    survives_losses=False,
)
"""As of `--runner prism`."""
