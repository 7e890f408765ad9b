"""The servers and the proxy themselves, through Arrow's clients."""

import concurrent.futures
import os
import time

import pyarrow.fs as pafs
import pytest

from tests.storage.conftest import Server
from tests.storage.fault_proxy import FaultProxy, Rule

_LARGE = 12 << 20


def _write(system: pafs.FileSystem, path: str, data: bytes) -> None:
    with system.open_output_stream(path) as sink:
        sink.write(data)


def _read(system: pafs.FileSystem, path: str) -> bytes:
    with system.open_input_file(path) as file:
        return bytes(file.read())


def test_a_bucket_is_empty_at_first(server: Server) -> None:
    """Each test has a bucket of its own, with nothing in it."""
    assert server.arrow().get_file_info(pafs.FileSelector(server.bucket)) == []


@pytest.mark.parametrize("size", [0, 1, _LARGE])
def test_what_is_written_through_the_proxy_is_read_back(
    server: Server, size: int
) -> None:
    """Objects pass it unchanged, in one request or in parts, and are listed."""
    data = os.urandom(size)
    path = f"{server.bucket}/folder/a b+ü%.bin"
    with FaultProxy(server.endpoint) as proxy:
        system = server.through(proxy.endpoint).arrow()
        _write(system, path, data)
        assert _read(system, path) == data
        (found,) = system.get_file_info(
            pafs.FileSelector(f"{server.bucket}/folder", recursive=True)
        )
        assert (found.path, found.size) == (path, size)
        assert proxy.count() >= 3
    assert _read(server.arrow(), path) == data


def test_a_part_of_an_object_is_read(server: Server) -> None:
    """A read of a range gets just these bytes."""
    data = os.urandom(100_000)
    path = f"{server.bucket}/a"
    _write(server.arrow(), path, data)
    with FaultProxy(server.endpoint) as proxy:
        file = server.through(proxy.endpoint).arrow().open_input_file(path)
        assert file.read_at(1000, 50_000) == data[50_000:51_000]
        assert proxy.count("GET") >= 1


@pytest.mark.parametrize("status", [500, 503])
def test_a_read_that_is_refused_once_is_tried_again(
    server: Server, status: int
) -> None:
    """The client sees the status, and asks again."""
    # Arrow's client takes an object that is shorter than the refusal for broken.
    data = os.urandom(20_000)
    path = f"{server.bucket}/a"
    _write(server.arrow(), path, data)
    code = {500: "InternalError", 503: "SlowDown"}[status]
    with FaultProxy(server.endpoint) as proxy:
        system = server.through(proxy.endpoint).arrow()
        proxy.set(Rule("status", status=status, code=code, methods=("GET",)))
        assert _read(system, path) == data
        assert proxy.count() >= 2


def test_a_truncated_answer_is_not_taken_for_whole(server: Server) -> None:
    """Half a body is an error or is fetched again, never half an object."""
    data = os.urandom(1_000_000)
    path = f"{server.bucket}/a"
    _write(server.arrow(), path, data)
    with FaultProxy(server.endpoint) as proxy:
        system = server.through(proxy.endpoint).arrow()
        with system.open_input_file(path) as file:
            proxy.set(Rule("cut_answer", after_bytes=500_000, methods=("GET",)))
            try:
                assert file.read() == data
            except OSError:
                assert proxy.count("GET") == 1


def test_a_request_that_is_cut_leaves_no_object(s3_server: Server) -> None:
    """The server has had half of a body, and shows nothing."""
    with FaultProxy(s3_server.endpoint) as proxy:
        system = s3_server.through(proxy.endpoint).arrow(
            retry_strategy=pafs.AwsStandardS3RetryStrategy(max_attempts=1)
        )
        proxy.set(Rule("cut_request", after_bytes=1000, methods=("PUT",), times=None))
        with pytest.raises(OSError, match=r"NETWORK|curl"):
            _write(system, f"{s3_server.bucket}/a", os.urandom(100_000))
        assert proxy.count("PUT") == 1
    info = s3_server.arrow().get_file_info(f"{s3_server.bucket}/a")
    assert info.type == pafs.FileType.NotFound


def test_a_lost_answer_leaves_the_work_done(s3_server: Server) -> None:
    """With the answer cut before its head, the object is there anyway."""
    with FaultProxy(s3_server.endpoint) as proxy:
        system = s3_server.through(proxy.endpoint).arrow(
            retry_strategy=pafs.AwsStandardS3RetryStrategy(max_attempts=1)
        )
        proxy.set(Rule("cut_answer", methods=("POST",), contains="uploadId="))
        with pytest.raises(OSError, match=r"NETWORK|curl"):
            _write(system, f"{s3_server.bucket}/a", b"abc")
    assert _read(s3_server.arrow(), f"{s3_server.bucket}/a") == b"abc"


def test_latency_is_added_to_each_request_and_not_to_all_in_turn(
    server: Server,
) -> None:
    """Requests wait side by side."""
    path = f"{server.bucket}/a"
    _write(server.arrow(), path, b"abc")
    with FaultProxy(server.endpoint) as proxy:
        system = server.through(proxy.endpoint).arrow()
        system.get_file_info(path)
        proxy.set(latency=0.3)
        begin = time.perf_counter()
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            found = list(pool.map(system.get_file_info, [path] * 8))
        assert {info.size for info in found} == {3}
        assert 0.3 <= time.perf_counter() - begin < 8 * 0.3


def test_a_stalled_request_is_given_up(s3_server: Server) -> None:
    """The client's own time limit is what ends it."""
    path = f"{s3_server.bucket}/a"
    _write(s3_server.arrow(), path, b"abc")
    with FaultProxy(s3_server.endpoint) as proxy:
        system = s3_server.through(proxy.endpoint).arrow(
            request_timeout=0.3,
            retry_strategy=pafs.AwsStandardS3RetryStrategy(max_attempts=1),
        )
        proxy.set(Rule("stall", seconds=5, times=None))
        begin = time.perf_counter()
        with pytest.raises(OSError, match=r"[Tt]imeout|network|NETWORK|curl"):
            system.get_file_info(path)
        assert time.perf_counter() - begin < 5
