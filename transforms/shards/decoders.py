"""Decode images in child processes, any of which may die without harm.

    prepare -> an idle child, or a new one -> image or fault
                  |
                  +- it ended, or had to be -> had it served others before?
                       yes -> once more, in a new one      no -> the image's fault

What an image does to a child that has done nothing else depends on the image alone. A
child that has served others may have been broken by one of them, so that whichever
came next would be blamed: in another order of work, another one.

A child is a new interpreter, as a process with the threads of gRPC must not fork; it
does not import the program's `__main__`. Its standard input is a socket for both ways.
It cannot be trusted to end itself, nor to let Python run at all: while it prepares an
image, the kernel ends it for each of

    SIGPROF  the image has taken its processor time. Not the time by the clock, which
             would refuse other images on a busy machine than on an idle one.
    SIGALRM  the decoder hangs without working: it has taken several times that by the
             clock.
    SIGIO    the parent is gone: nothing else can come through the socket meanwhile.

and refuses it memory beyond what the limits of the policy can need.
"""

import contextlib
import fcntl
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
from multiprocessing.connection import Connection
from typing import Any

from transforms.core.image.formats import name_format
from transforms.core.image.policy import (
    ImagePolicy,
    Prepare,
    PreparedImage,
    prepare_image,
)
from transforms.core.reasons import Fault, Reason
from transforms.errors import BeamTFRecordError
from transforms.storage.visibility import python_command

# For one image, of processor time: some four times what decoding 64 megapixels of any
# format and encoding them as PNG takes.
_MOST_SECONDS = 120
# By the clock, this multiple of it, because a busy machine stretches it.
_CLOCK_FACTOR = 5
_START_SECONDS = 60
# Memory limit: for the interpreter and its libraries; for each pixel, of which decoders
# hold several copies, some as four floats; for each byte of the file.
_BASE_BYTES, _PIXEL_BYTES, _FILE_BYTES = 1 << 30, 64, 4
# Exit code of a child that was refused memory.
_NO_MEMORY = 3
# The child searches for modules where this process does.
_START = (
    "import sys; sys.path[:] = sys.argv[1:]; "
    "from transforms.shards.decoders import _serve; _serve()"
)


class DecoderPool:
    """Child processes that prepare images, one for each thread that asks.

    They end with this process, however that ends. Safe in threads.
    """

    def __init__(
        self, function: Prepare = prepare_image, seconds: float = _MOST_SECONDS
    ) -> None:
        """Makes a pool without children.

        Args:
          function: what they do, a function of a module that they can import.
          seconds: how much processor time one image may take.
        """
        self._function = function
        self._seconds = seconds
        # Threads change them in single steps, which need no lock.
        self._children: set[_Child] = set()
        self._idle: list[_Child] = []
        os.register_at_fork(after_in_child=self._forget)

    def prepare(self, data: bytes, policy: ImagePolicy) -> PreparedImage | Fault:
        """Prepares an image, or returns the fault that ended a child.

        Raises:
          BeamTFRecordError: no child could be started, the function has raised, or
            `end` was called.
        """
        with contextlib.suppress(IndexError):
            answer = self._ask(self._idle.pop(), data, policy)
            if answer is not None:
                return answer
        fresh = _Child()
        self._children.add(fresh)
        return self._ask(fresh, data, policy) or fresh.fault(data, self._seconds)

    def _ask(
        self, child: "_Child", data: bytes, policy: ImagePolicy
    ) -> PreparedImage | Fault | None:
        """Has a child prepare an image; None where the child ended before it answered.

        It is idle again, or it is ended. Errors are those of `prepare`.
        """
        answer: PreparedImage | Fault | str | None = None
        try:
            with contextlib.suppress(EOFError, OSError):
                child.channel.send((self._function, data, policy, self._seconds))
                answer = child.channel.recv()
        finally:
            is_stopped = child not in self._children
            if answer is None or is_stopped:
                self._children.discard(child)
                child.end()
            else:
                self._idle.append(child)
        if isinstance(answer, str):
            raise BeamTFRecordError(
                f"An image of {len(data):,} bytes must be prepared or refused, but the "
                f"program failed on it: {answer}. --foreign-images reject leaves out "
                f"all of its kind."
            )
        if answer is None and is_stopped:
            raise BeamTFRecordError(
                "The run was stopped while an image was being decoded."
            )
        return answer

    def end_idle(self) -> None:
        """Ends idle children."""
        idle, self._idle = self._idle, []
        for child in idle:
            self._children.discard(child)
            child.end()

    def end(self) -> None:
        """Ends all children; a thread that waits for one gets an error at once."""
        self.end_idle()
        busy, self._children = self._children, set()
        for child in busy:
            child.process.kill()

    def _forget(self) -> None:
        """Drops all children: after a fork they belong to the parent process."""
        for child in self._children:
            child.channel.close()
        self._children, self._idle = set(), []


class _Child:
    """One process, and the channel to it."""

    def __init__(self) -> None:
        self.channel, theirs = multiprocessing.Pipe()
        command = [
            *(*python_command(), "-W", "ignore", "-c", _START),
            *(path for path in sys.path if isinstance(path, str)),
        ]
        try:
            with theirs:
                self.process = subprocess.Popen(
                    command,
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
        except (OSError, ValueError) as error:
            self.channel.close()
            raise _not_started(str(error)) from error
        is_ready = False
        with contextlib.suppress(EOFError, OSError):
            is_ready = self.channel.poll(_START_SECONDS) and self.channel.recv()
        if not is_ready:
            limit = f"after at most {_START_SECONDS} seconds"
            raise _not_started(f"it was not ready {limit} ({self.end()})")

    def fault(self, data: bytes, seconds: float) -> Fault:
        """Returns the fault of an image that has ended the child."""
        name, code = name_format(data), self.process.returncode
        if code in (-signal.SIGPROF, -signal.SIGALRM):
            limit = f"within {seconds:g} seconds of processor time"
            return Fault(Reason.TOO_SLOW, f"{name}: it was not decoded {limit}")
        why = "needs more memory than an image within the limits may"
        if code != _NO_MEMORY:
            why = f"crashed with {self.end()}; convert the image to JPEG or PNG"
        return Fault(Reason.DECODER_CRASH, f"{name}: the decoder {why}")

    def end(self) -> str:
        """Ends the child unless it has ended by itself; returns how it has."""
        self.channel.close()
        self.process.kill()
        code = self.process.wait()
        with contextlib.suppress(ValueError):
            if code < 0:
                return signal.Signals(-code).name
        return f"exit code {code}"


def _not_started(why: str) -> BeamTFRecordError:
    """Returns the error about a child process for images that has not started."""
    command = python_command()[0] or "Python"
    return BeamTFRecordError(
        f"Images that TensorFlow cannot read are decoded by processes of their own, "
        f"but {command} could not be started for it: {why}. Convert "
        f"such images to JPEG or PNG, or leave them out with --foreign-images reject."
    )


def _serve() -> None:
    """Runs a child: says that it is ready, and answers until the parent is gone."""
    # The parent decides what Ctrl-C ends. A crash must leave no core file.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGPROF, signal.SIGALRM, signal.SIGIO):
        signal.signal(number, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    channel = Connection(os.dup(0))
    fcntl.fcntl(channel, fcntl.F_SETOWN, os.getpid())
    with contextlib.suppress(EOFError, OSError):  # the parent is gone
        channel.send(True)
        while True:
            channel.send(_decode_within_limits(channel, *channel.recv()))


def _decode_within_limits(
    channel: Connection, prepare: Prepare, data: bytes, policy: Any, seconds: float
) -> PreparedImage | Fault | str:
    """Returns an image, its fault, or an error as text, within memory and `seconds`."""
    # Of memory that is written to, not what is reserved: threads reserve much.
    size = _BASE_BYTES + _PIXEL_BYTES * policy.max_pixels
    size += _FILE_BYTES * policy.max_bytes
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    with contextlib.suppress(ValueError):  # the machine allows less
        resource.setrlimit(resource.RLIMIT_DATA, (size, most))
    flags = fcntl.fcntl(channel, fcntl.F_GETFL)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, _CLOCK_FACTOR * seconds)
    fcntl.fcntl(channel, fcntl.F_SETFL, flags | os.O_ASYNC)
    if channel.poll():
        raise EOFError  # gone before it could be noticed by SIGIO
    try:
        return prepare(data, policy)
    except MemoryError:
        # End at once: memory still in use would count against the next images.
        os._exit(_NO_MEMORY)
    except Exception as error:  # noqa: BLE001 - raised again by the parent
        return f"{type(error).__name__}: {error}"
    finally:
        fcntl.fcntl(channel, fcntl.F_SETFL, flags)
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)


SHARED = DecoderPool()
"""The children of this process."""
