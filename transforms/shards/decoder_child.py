"""Child process for decoders that may crash, hang or exhaust memory.

    8 bytes of length | pickle of (file, policy, seconds)   -> prepare ->
                        8 bytes of length | pickle of (outcome, image or fault or text)

It reads from and writes to a socket, its standard input, and prints nothing. It cannot
be trusted to end itself: while it prepares an image, the kernel ends it for each of

    SIGPROF  the image has taken its processor time. Not the time by the clock, which
             would refuse other images on a busy machine than on an idle one.
    SIGIO    the parent is gone: nothing else can come through the socket meanwhile.

and refuses it memory beyond what the limits of the policy can need. Between images the
end of the socket is the end. Python has no part in this, so it does not matter whether
a decoder ever gives the interpreter's lock back.
"""

import enum
import fcntl
import importlib
import os
import pickle
import resource
import select
import signal
import socket
import struct
from collections.abc import Callable
from typing import Any

NO_MEMORY = 3
"""Exit code of a child that was refused memory."""

_HEADER = struct.Struct("<Q")
_RECEIVED_BYTES = 1 << 20
# Memory limit: for the interpreter and its libraries; for each pixel, of which decoders
# hold several copies, some as four floats; for each byte of the file.
_BASE_BYTES = 1 << 30
_PIXEL_BYTES = 64
_FILE_BYTES = 4


class Outcome(enum.StrEnum):
    """Messages of the child: ready, image done, or a bug in the program."""

    READY = "ready"
    DONE = "done"
    FAILED = "failed"


def send(channel: socket.socket, message: object) -> None:
    """Sends one message.

    Raises:
      OSError: the other side is gone, or the channel's timeout has passed.
    """
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    channel.sendall(_HEADER.pack(len(data)))
    channel.sendall(data)


def receive(channel: socket.socket) -> Any:
    """Returns the next message.

    Raises:
      EOFError: the other side is gone.
      OSError: so it is, or the channel's timeout has passed.
    """
    (size,) = _HEADER.unpack(_receive(channel, _HEADER.size))
    return pickle.loads(_receive(channel, size))


def _receive(channel: socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    view, done = memoryview(data), 0
    while done < size:
        count = channel.recv_into(view[done:], min(size - done, _RECEIVED_BYTES))
        if not count:
            raise EOFError
        done += count
    return data


def serve(module: str, name: str) -> None:
    """Answers until the parent is gone.

    Args:
      module, name: of the function that prepares an image; see
        `transforms.core.image.policy.Prepare`.
    """
    # The parent decides what Ctrl-C ends. A crash must leave no core file.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGPROF, signal.SIGIO):
        signal.signal(number, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    channel = socket.socket(fileno=os.dup(0))
    fcntl.fcntl(channel, fcntl.F_SETOWN, os.getpid())
    try:
        try:
            prepare = getattr(importlib.import_module(module), name)
        except Exception as error:  # noqa: BLE001 - raised again by the parent
            send(channel, (Outcome.FAILED, _said(error)))
            return
        send(channel, (Outcome.READY, ""))
        while True:
            send(channel, _answer(channel, prepare, *receive(channel)))
    except (EOFError, OSError):
        return  # the parent is gone


def _answer(
    channel: socket.socket,
    prepare: Callable[..., object],
    data: bytes,
    policy: Any,
    seconds: float,
) -> tuple[Outcome, object]:
    _limit_memory(
        _BASE_BYTES + _PIXEL_BYTES * policy.max_pixels + _FILE_BYTES * policy.max_bytes
    )
    flags = fcntl.fcntl(channel, fcntl.F_GETFL)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    fcntl.fcntl(channel, fcntl.F_SETFL, flags | os.O_ASYNC)
    try:
        if select.select([channel], [], [], 0)[0]:
            raise EOFError  # gone before it could be noticed by SIGIO
        return Outcome.DONE, prepare(data, policy)
    except MemoryError:
        # End at once: memory still in use would count against the next images.
        os._exit(NO_MEMORY)
    except EOFError:
        raise
    except Exception as error:  # noqa: BLE001 - raised again by the parent
        return Outcome.FAILED, _said(error)
    finally:
        fcntl.fcntl(channel, fcntl.F_SETFL, flags)
        signal.setitimer(signal.ITIMER_PROF, 0)


def _limit_memory(size: int) -> None:
    """Limits memory that is written to, not what is reserved: threads reserve much."""
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    if most != resource.RLIM_INFINITY:
        size = min(size, most)
    resource.setrlimit(resource.RLIMIT_DATA, (size, most))


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
