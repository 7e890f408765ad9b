"""An HTTP proxy between programs and a storage server, which makes the network bad.

    with FaultProxy(server_endpoint) as proxy:
        proxy.set(Rule("status", status=503, code="SlowDown", every=5), latency=0.02)
        ...  # a program that was given proxy.endpoint
        assert proxy.count("PUT", "shard-00000") == 2

It is a process of its own (`python -m tests.storage.fault_proxy SERVER`): clients that
keep Python's lock while they wait for an answer would wait for ever on a thread of
theirs. Commands and answers are lines of JSON on its standard input and output.
Requests are passed on byte for byte, `Host` too: S3's signatures cover it.
"""

import asyncio
import contextlib
import dataclasses
import json
import re
import subprocess
import sys
import threading
import urllib.parse
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

__all__ = ["FaultProxy", "Request", "Rule"]

_HEAD_BYTES = 1 << 16
_PIECE_BYTES = 1 << 16
_HEAD_END = b"\r\n\r\n"
_NAMING_BYTES = 4096
_NAME = re.compile(rb'"name": *"([^"]*)"')
_ROOT = Path(__file__).parents[2]


@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    """The head of one request.

    Attributes:
      method: GET, PUT and so on; COPY for a PUT that names another object of S3.
      target: path and query, without escapes; of an upload that says its name in the
        body, as Google's do, the name after them.
    """

    method: str
    target: str


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """What happens to some requests.

    Attributes:
      kind: "status": the server never sees the request, this status is answered.
        "cut_request": the server gets this many bytes of the body, then both
        connections are cut. "cut_answer": the server does what it is asked, and the
        answer is cut after this much of its body, or before its head. "stall": nothing
        happens for this long, or until `FaultProxy.set` is called; then the
        request is passed on.
      status: of "status". Google's clients read it alone,
      code: S3's the code in the body as well.
      after_bytes: of the cuts; None of an answer: before its head.
      seconds: of "stall".
      methods: those it is for; none for all.
      contains: what the target of the request holds.
      skip: number of matching requests that pass before the first fault.
      every: each so manieth is struck.
      times: number of requests with the fault; None for all.
    """

    kind: Literal["status", "cut_request", "cut_answer", "stall"]
    status: int = 500
    code: str = "InternalError"
    after_bytes: int | None = None
    seconds: float = 0.0
    methods: tuple[str, ...] = ()
    contains: str = ""
    skip: int = 0
    every: int = 1
    times: int | None = 1

    def fits(self, request: Request) -> bool:
        """Whether the request is one that the rule counts."""
        right = not self.methods or request.method in self.methods
        return right and self.contains in request.target

    def strikes(self, number: int) -> bool:
        """Whether it strikes the request that fits as the n-th, from 0."""
        turn, rest = divmod(number - self.skip, self.every)
        return turn >= 0 and rest == 0 and (self.times is None or turn < self.times)


class FaultProxy:
    """The proxy; it serves between `__enter__` and `__exit__`.

    Attributes:
      endpoint: the URL at which programs reach the server through it.
    """

    def __init__(self, upstream: str) -> None:
        self._upstream = upstream
        self.endpoint = ""
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.storage.fault_proxy", self._upstream],
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.endpoint = self._answer()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # The end of its input ends it.
        assert self._process is not None
        self._process.communicate()

    def set(self, *rules: Rule, latency: float = 0.0) -> None:
        """Replaces the rules; forgets the requests that have arrived; ends stalls.

        Args:
          rules: the first that strikes a request counts.
          latency: seconds added to each request.
        """
        listed = [dataclasses.asdict(rule) for rule in rules]
        self._ask({"rules": listed, "latency": latency})

    @property
    def requests(self) -> list[Request]:
        """Those that have arrived since `set`, in their order."""
        return [Request(*each) for each in self._ask({})]

    def count(self, method: str = "", contains: str = "") -> int:
        """Returns how many requests had this method and this in their target."""
        return sum(
            method in ("", request.method) and contains in request.target
            for request in self.requests
        )

    @property
    def changes(self) -> list[Request]:
        """The requests that were to write or remove something, sorted."""
        found = [
            each
            for each in self.requests
            if each.method in ("PUT", "POST", "DELETE", "PATCH")
        ]
        return sorted(found, key=lambda each: (each.method, each.target))

    def _ask(self, wanted: dict[str, Any]) -> Any:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(wanted) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self._process is not None
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())


class _CutError(Exception):
    """The connection is to end here, as by a fault of the network."""


class _Proxy:
    """The program itself."""

    def __init__(self, upstream: str) -> None:
        parsed = urllib.parse.urlsplit(upstream)
        self._upstream = (parsed.hostname or "", parsed.port or 80)
        self._latency = 0.0
        self._rules: list[Rule] = []
        self._fitted: list[int] = []
        self._requests: list[Request] = []
        self._freed = asyncio.Event()
        self._idle: list[_Connection] = []

    async def serve(self) -> None:
        """Serves until its input ends."""
        server = await asyncio.start_server(
            self._connected, "127.0.0.1", 0, limit=_HEAD_BYTES
        )
        port = server.sockets[0].getsockname()[1]
        _say(f"http://127.0.0.1:{port}")
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._listen, args=(loop, ended), daemon=True).start()
        await ended.wait()

    def _listen(self, loop: asyncio.AbstractEventLoop, ended: asyncio.Event) -> None:
        for line in sys.stdin:
            loop.call_soon_threadsafe(self._told, json.loads(line))
        loop.call_soon_threadsafe(ended.set)

    def _told(self, wanted: dict[str, Any]) -> None:
        if "rules" in wanted:
            self._rules = [
                Rule(**{**each, "methods": tuple(each["methods"])})
                for each in wanted["rules"]
            ]
            self._fitted = [0] * len(self._rules)
            self._latency = wanted["latency"]
            self._requests = []
            self._freed.set()
            self._freed = asyncio.Event()
        _say([[each.method, each.target] for each in self._requests])

    def _rule_for(self, request: Request) -> Rule | None:
        found = None
        for place, rule in enumerate(self._rules):
            if rule.fits(request):
                if found is None and rule.strikes(self._fitted[place]):
                    found = rule
                self._fitted[place] += 1
        return found

    async def _connected(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        client = _Connection(reader, writer)
        try:
            while head := await client.read_head():
                await self._pass_on(head, client)
        except (_CutError, OSError, EOFError):
            pass
        except asyncio.CancelledError:
            # The end of the proxy; asyncio of Python 3.11 would report it as an error.
            pass
        finally:
            client.cut()

    async def _to_server(self) -> "_Connection":
        """Returns a connection that no other thread uses."""
        while self._idle:
            if not (server := self._idle.pop()).has_ended:
                return server
            server.cut()
        return _Connection(*await asyncio.open_connection(*self._upstream))

    async def _pass_on(self, head: bytes, client: "_Connection") -> None:
        headers = _headers(head)
        taken = await _beginning(client, headers) if b"/upload/" in head else b""
        request = _request(head, taken)
        self._requests.append(request)
        rule = self._rule_for(request)
        kind = rule.kind if rule else ""
        limit = rule.after_bytes if rule else None
        if self._latency:
            await asyncio.sleep(self._latency)
        if rule and kind == "stall":
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._freed.wait(), rule.seconds)
        if headers.get("expect", "").lower() == "100-continue":
            # Answered here, so that one answer belongs to each request.
            await client.write(b"HTTP/1.1 100 Continue" + _HEAD_END)
            head = re.sub(rb"\r\nexpect:[^\r]*", b"", head, flags=re.IGNORECASE)
        if rule and kind == "status":
            await _body(client, headers, None, None, taken=taken)
            await client.write(_answer(rule))
            raise _CutError
        server = await self._to_server()
        try:
            await server.write(head)
            cut = (limit or 0) if kind == "cut_request" else None
            await _body(client, headers, server, cut, taken=taken)
            if cut is not None:
                raise _CutError
            ends = await self._answered(request, rule, client, server)
            # A server may leave the end of such a body unread, and take it for the
            # beginning of the next request.
            ends = ends or "transfer-encoding" in headers
        except BaseException:
            server.cut()
            raise
        if ends:
            # The client gets no answer: a real store would have kept the connection.
            server.cut()
        else:
            self._idle.append(server)

    async def _answered(
        self,
        request: Request,
        rule: Rule | None,
        client: "_Connection",
        server: "_Connection",
    ) -> bool:
        """Passes an answer on; returns whether it is the last one of the server."""
        head = await server.read_head()
        if not head:
            raise _CutError
        status = int(head.split(b" ", 2)[1])
        headers = _headers(head)
        cuts = rule is not None and rule.kind == "cut_answer"
        limit = rule.after_bytes or 0 if rule is not None and cuts else None
        ends = headers.get("connection", "").lower() == "close"
        if ends:
            head = re.sub(rb"\r\nconnection:[^\r]*", b"", head, flags=re.IGNORECASE)
        has_body = request.method != "HEAD" and status not in (204, 304)
        if has_body and not cuts:
            size = int(headers.get("content-length", _PIECE_BYTES))
            if size < _PIECE_BYTES:
                # In one piece with its head: most answers are as small as that.
                head += await server.reader.readexactly(size)
                has_body = False
        if not cuts or (rule is not None and rule.after_bytes is not None):
            await client.write(head)
        if has_body:
            await _body(server, headers, client, limit, until_closed=True)
        if cuts:
            raise _CutError
        return ends


def _say(what: Any) -> None:
    print(json.dumps(what), flush=True)


class _Connection:
    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.reader = reader
        self._writer = writer

    async def read_head(self) -> bytes:
        """Returns the head before a body; nothing if the other side has closed."""
        try:
            return await self.reader.readuntil(_HEAD_END)
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return b""

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    @property
    def has_ended(self) -> bool:
        return self.reader.at_eof() or self._writer.is_closing()

    def cut(self) -> None:
        self._writer.close()


def _request(head: bytes, taken: bytes) -> Request:
    method, target, _ = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ", 2)
    if named := _NAME.search(taken):
        target += f" {named[1].decode()}"
    if "x-amz-copy-source" in _headers(head):
        method = "COPY"
    return Request(method, urllib.parse.unquote(target))


async def _beginning(client: "_Connection", headers: dict[str, str]) -> bytes:
    """Reads enough of a body to have an upload's name."""
    taken = b""
    wanted = min(int(headers.get("content-length", 0)), _NAMING_BYTES)
    while len(taken) < wanted and not _NAME.search(taken):
        if not (piece := await client.reader.read(wanted - len(taken))):
            # The client was killed.
            raise _CutError
        taken += piece
    return taken


def _headers(head: bytes) -> dict[str, str]:
    lines = head.decode("latin-1").split("\r\n")[1:]
    pairs = (line.partition(":") for line in lines if line)
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


def _answer(rule: Rule) -> bytes:
    message = "injected by a test"
    body = (
        f'<?xml version="1.0" encoding="UTF-8"?><Error><Code>{rule.code}</Code>'
        f"<Message>{message}</Message></Error>"
    ).encode()
    kind = "application/xml"
    if rule.code == "":
        error = {"error": {"code": rule.status, "message": message}}
        body, kind = json.dumps(error).encode(), "application/json"
    head = (
        f"HTTP/1.1 {rule.status} Fault\r\nContent-Type: {kind}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close"
    )
    return head.encode() + _HEAD_END + body


async def _body(
    source: _Connection,
    headers: dict[str, str],
    sink: _Connection | None,
    limit: int | None,
    *,
    taken: bytes = b"",
    until_closed: bool = False,
) -> None:
    """Passes a body on, at most `limit` bytes of it; None for the sink drops it.

    Args:
      source, headers, sink, limit: see above.
      taken: what of it was read already.
      until_closed: whether it may end with the connection.
    """
    left = limit if limit is not None else float("inf")

    async def give(data: bytes) -> None:
        nonlocal left
        data = data[: int(min(left, len(data)))]
        left -= len(data)
        if sink is not None and data:
            await sink.write(data)

    reader = source.reader
    if headers.get("transfer-encoding", "").lower() == "chunked":
        while left > 0:
            line = await reader.readuntil(b"\r\n")
            size = int(line.split(b";")[0], 16)
            if size == 0:
                await give(line + await _trailer(reader))
                return
            await give(line + await reader.readexactly(size + 2))
    elif "content-length" in headers:
        rest = int(headers["content-length"]) - len(taken)
        await give(taken)
        while rest > 0 and left > 0:
            data = await reader.read(min(rest, _PIECE_BYTES))
            if not data:
                raise EOFError
            rest -= len(data)
            await give(data)
    elif until_closed:
        while left > 0 and (data := await reader.read(_PIECE_BYTES)):
            await give(data)
        raise _CutError


async def _trailer(reader: asyncio.StreamReader) -> bytes:
    """Returns what follows the last chunk, up to its empty line."""
    out = b""
    while True:
        line = await reader.readuntil(b"\r\n")
        out += line
        if line == b"\r\n":
            return out


if __name__ == "__main__":
    asyncio.run(_Proxy(sys.argv[1]).serve())
