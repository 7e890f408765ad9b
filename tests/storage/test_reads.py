"""Objects of S3 are read with one request each, which says what it is of."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from tests.conftest import Headline
from tests.storage.conftest import Server
from tests.storage.fault_proxy import FaultProxy, Rule
from tests.storage.program import Program, assert_same
from tests.support.runs import convert
from transforms.storage import remote
from transforms.storage.files import storage
from transforms.storage.protocol import TooLargeError

_NAMES = ("in/plain", "in/with space+plus%and~", "in/é/한글", "in/empty")


@pytest.fixture
def reached(s3_server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    """A proxy before the server, which this process uses."""
    with FaultProxy(s3_server.endpoint) as proxy:
        for name, value in s3_server.through(proxy.endpoint).environment.items():
            monkeypatch.setenv(name, value)
        yield proxy


def by_arrow(monkeypatch: pytest.MonkeyPatch, path: str) -> tuple[bytes, int]:
    """Reads a file as all are read that are few."""
    with monkeypatch.context() as patch:
        patch.setattr(remote, "_FEW_READS", 10**9)
        return storage(path).read_stamped()


@pytest.mark.parametrize("name", _NAMES)
def test_one_request_a_read(
    name: str,
    s3_server: Server,
    reached: FaultProxy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bytes, size and time are those that Arrow gives with two requests."""
    data = b"" if name == "in/empty" else os.urandom(100_000)
    s3_server.write(name, data)
    path = f"{s3_server.url}/{name}"
    expected = by_arrow(monkeypatch, path)
    monkeypatch.setattr(remote, "_FEW_READS", 0)
    reached.set()
    before = len(reached.requests)
    assert storage(path).read_stamped() == expected == (data, expected[1])
    if data:
        assert storage(path)._read_range(5, 99) == (data[5:99], expected[1])
        assert storage(path)._read_range(99_990, 10**6) == (data[-10:], expected[1])
    asked = reached.requests[before:]
    assert [each.method for each in asked] == ["GET"] * (3 if data else 1)


def test_what_fails_is_read_by_arrow(
    s3_server: Server, reached: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refusals, cut answers and other versions: the same bytes, and the same errors."""
    data = os.urandom(100_000)
    s3_server.write("in/a", data)
    path = f"{s3_server.url}/in/a"
    expected = by_arrow(monkeypatch, path)
    monkeypatch.setattr(remote, "_FEW_READS", 0)
    for rule in (
        Rule("status", status=503, code="SlowDown"),
        Rule("status", status=301, code="PermanentRedirect"),
        Rule("cut_answer"),
        Rule("cut_answer", after_bytes=10),
    ):
        reached.set(rule)
        assert storage(path).read_stamped() == expected
        reached.set(rule)
        assert storage(path)._read_range(5, 9)[0] == data[5:9]
    reached.set()
    with pytest.raises(TooLargeError) as refused:
        storage(path).read_stamped(99_999)
    assert refused.value.size == 100_000
    with pytest.raises(FileNotFoundError):
        storage(f"{s3_server.url}/in/none").read_stamped()
    s3_server.write("in/a", data[1:])
    with pytest.raises(OSError, match="changed"):
        storage(path).read_bytes(stamp=expected[1])


def test_images_of_a_bucket(
    s3_server: Server, tmp_path: Path, headline: Headline
) -> None:
    """An image costs one request, but for the first reads of a process."""
    count = 100
    for number in range(count):
        folder = tmp_path / "in" / "ab"[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        colour = (number, 7, 128)
        Image.new("RGB", (8, 8), colour).save(folder / f"{number:03}.png")
    s3_server.write_tree("in", tmp_path / "in")
    convert(tmp_path / "in", tmp_path / "local", "--name", "set")
    with FaultProxy(s3_server.endpoint) as proxy:
        program = Program(s3_server.through(proxy.endpoint), tmp_path)
        source, output = f"{s3_server.url}/in", f"{s3_server.url}/out"
        program.run("convert", source, output, "--name", "set")
        methods = [it.method for it in proxy.requests if ".png" in it.target]
    heads = methods.count("HEAD")
    headline("H14", f"{count} images: {methods.count('GET')} GET, {heads} HEAD")
    assert methods.count("GET") == count
    assert heads <= remote._FEW_READS
    assert_same(s3_server, "out", tmp_path / "local")
