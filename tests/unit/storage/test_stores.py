"""Clients of stores: each is made once in a process."""

import concurrent.futures
import threading
from typing import Any

import pytest

from transforms.storage import stores

_THREADS = 16


def test_threads_that_begin_together_share_a_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A client of S3 takes 20 ms of processor time, and 64 threads read at once."""
    made: list[Any] = []

    class Store:
        """A store that takes long to connect to."""

        def __init__(self, place: str, parameters: dict[str, str]) -> None:
            """Connects."""
            made.append(self)
            threading.Event().wait(0.1)

    monkeypatch.setitem(stores._KINDS, "s3", Store)
    begin = threading.Barrier(_THREADS)

    def client(_: int) -> Any:
        begin.wait()
        return stores.client_of("s3://a-bucket-of-this-test/key")

    with concurrent.futures.ThreadPoolExecutor(_THREADS) as pool:
        clients = list(pool.map(client, range(_THREADS)))
    assert made == [clients[0]]
    assert set(clients) == set(made)
