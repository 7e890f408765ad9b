"""Whether a Spark answers."""

import socket

import pytest

from beam_pipeline.engines.masters import reach_master
from transforms.errors import UsageError


def test_a_master_at_which_nobody_answers() -> None:
    """It is refused at once; Spark would try for a minute, and not name the cause."""
    with socket.create_server(("localhost", 0)) as server:
        port = server.getsockname()[1]
        reach_master(f"spark://localhost:{port}")
        reach_master(f"spark://localhost,localhost:{port}")
    for wrong, said in (
        (f"spark://localhost:{port}", "refused"),
        ("spark://localhost", "must end with a port"),
    ):
        with pytest.raises(UsageError, match=f"a Spark at {wrong!r}.*{said}"):
            reach_master(wrong)
    for others in ("local[2]", "yarn", "k8s://https://far.example"):
        reach_master(others)
