"""A pool of decoder processes, any of which may die without harm.

    prepare -> an idle child, or a new one -> image or fault
                  |
                  +- it ended, or had to be -> had it served others before?
                       yes -> once more, in a new one      no -> the image's fault

What an image does to a child that has done nothing else depends on the image alone. A
child that has served others may have been broken by one of them, so that whichever
came next would be blamed: in another order of work, another one.

A child is a new interpreter: a process with the threads of gRPC must not fork. Its
start takes a few tenths of a second, and happens when the first such image comes.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time

from transforms.core.image.foreign import name_format
from transforms.core.image.policy import (
    ImagePolicy,
    Prepare,
    PreparedImage,
    prepare_image,
)
from transforms.core.interpreter import python_command
from transforms.core.model import Reason
from transforms.core.reasons import Fault
from transforms.errors import BeamTFRecordError
from transforms.shards import decoder_child

# For one image, of processor time: some four times what decoding 64 megapixels of any
# format and encoding them as PNG takes.
_MOST_SECONDS = 120
# A limit by the clock as well, for decoders that hang without working: this multiple of
# the limit of processor time, because a busy machine stretches that.
_CLOCK_FACTOR = 5
_START_SECONDS = 60
# How long a child may take to end once its socket is closed.
_END_SECONDS = 5
# The child searches for modules where this process does.
_START = (
    "import sys; module, name, *sys.path = sys.argv[1:]; "
    "from transforms.shards.decoder_child import serve; serve(module, name)"
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
        self._guarded = False
        self._lock = threading.Lock()
        self._idle: list[_Child] = []
        self._busy: set[_Child] = set()

    def prepare(self, data: bytes, policy: ImagePolicy) -> PreparedImage | Fault:
        """Prepares an image, or returns the fault that ended a child.

        Raises:
          BeamTFRecordError: no child could be started, the function has raised, or
            `end` was called.
        """
        child = self._take()
        while True:
            is_fresh = child.is_fresh
            try:
                outcome, result = child.ask(data, policy, self._seconds)
            except _EndedError as ended:
                self._drop(child)
                if child.is_stopped:
                    raise BeamTFRecordError(
                        "The run was stopped while an image was being decoded."
                    ) from None
                if is_fresh:
                    return ended.fault
                child = self._start()
                continue
            except BaseException:
                self._drop(child)
                raise
            self._give_back(child)
            if outcome is not decoder_child.Outcome.DONE:
                raise BeamTFRecordError(
                    f"An image of {len(data):,} bytes must be prepared or refused, but "
                    f"the program failed on it: {result}. --foreign-images reject "
                    f"leaves out all of its kind."
                )
            return result

    def end_idle(self) -> None:
        """Ends idle children."""
        with self._lock:
            idle, self._idle = self._idle, []
        for child in idle:
            child.end()

    def end(self) -> None:
        """Ends all children; a thread that waits for one gets an error at once."""
        with self._lock:
            for child in self._busy:
                child.stop()
        self.end_idle()

    def forget(self) -> None:
        """Drops all children: after a fork they belong to the parent process."""
        for child in (*self._idle, *self._busy):
            child.release()
        # Another thread of the parent may have held the lock at the fork.
        self._lock = threading.Lock()
        self._idle, self._busy = [], set()

    def _take(self) -> "_Child":
        with self._lock:
            if self._idle:
                child = self._idle.pop()
                self._busy.add(child)
                return child
        return self._start()

    def _start(self) -> "_Child":
        with self._lock:
            if not self._guarded:
                os.register_at_fork(after_in_child=self.forget)
                self._guarded = True
        child = _Child(self._function)
        with self._lock:
            self._busy.add(child)
        return child

    def _give_back(self, child: "_Child") -> None:
        with self._lock:
            self._busy.discard(child)
            if not child.is_stopped:
                self._idle.append(child)
                return
        child.end()

    def _drop(self, child: "_Child") -> None:
        with self._lock:
            self._busy.discard(child)
        child.end()


class _EndedError(Exception):
    """A child ended, or had to be ended, before it answered."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


class _Child:
    """One process.

    Attributes:
      is_fresh: whether it has not been asked anything yet.
      is_stopped: whether it was stopped in the middle of its work.
    """

    def __init__(self, function: Prepare) -> None:
        self.is_fresh = True
        self.is_stopped = False
        self._channel, theirs = socket.socketpair()
        command = [
            *(*python_command(), "-W", "ignore", "-c", _START),
            *(function.__module__, function.__name__),
            *(path for path in sys.path if isinstance(path, str)),
        ]
        try:
            with theirs:
                self._process = subprocess.Popen(
                    command,
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
        except (OSError, ValueError) as error:
            self._channel.close()
            raise _not_started(str(error)) from error
        self._channel.settimeout(_START_SECONDS)
        try:
            outcome, said = decoder_child.receive(self._channel)
        except (EOFError, OSError) as error:
            self.end()
            raise _not_started(f"it ended with {_how(self._process)}") from error
        if outcome is not decoder_child.Outcome.READY:
            self.end()
            raise _not_started(said)

    def ask(
        self, data: bytes, policy: ImagePolicy, seconds: float
    ) -> tuple[decoder_child.Outcome, PreparedImage | Fault]:
        """Lets the child prepare an image.

        Raises:
          _EndedError: it ended without an answer, or its time by the clock was over.
        """
        self.is_fresh = False
        end = time.monotonic() + _CLOCK_FACTOR * seconds
        try:
            self._channel.settimeout(_CLOCK_FACTOR * seconds)
            decoder_child.send(self._channel, (data, policy, seconds))
            self._channel.settimeout(max(end - time.monotonic(), 0.001))
            answer = decoder_child.receive(self._channel)
        except TimeoutError:
            raise _EndedError(_too_slow(data, seconds, by_clock=True)) from None
        except (EOFError, OSError):
            self.end()
        else:
            outcome, found = answer
            return outcome, found
        code = self._process.returncode
        if code == -signal.SIGPROF:
            raise _EndedError(_too_slow(data, seconds, by_clock=False))
        raise _EndedError(
            Fault(
                Reason.DECODER_CRASH,
                f"{name_format(data)}: the decoder needs more memory than an image "
                f"within the limits may"
                if code == decoder_child.NO_MEMORY
                else f"{name_format(data)}: the decoder crashed with "
                f"{_how(self._process)}; convert the image to JPEG or PNG",
            )
        )

    def stop(self) -> None:
        """Ends it in the middle of its work; `ask` notices."""
        self.is_stopped = True
        self._process.kill()

    def end(self) -> None:
        """Ends the child unless it has ended by itself, and waits for its end."""
        self._channel.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def release(self) -> None:
        """Closes this process's end of the socket; the child lives on."""
        with contextlib.suppress(OSError):
            self._channel.close()


def _not_started(why: str) -> BeamTFRecordError:
    command = python_command()[0] or "Python"
    return BeamTFRecordError(
        f"Images that TensorFlow cannot read are decoded by processes of their own, "
        f"but {command} could not be started for it: {why}. Convert "
        f"such images to JPEG or PNG, or leave them out with --foreign-images reject."
    )


def _too_slow(data: bytes, limit: float, *, by_clock: bool) -> Fault:
    seconds = limit * (_CLOCK_FACTOR if by_clock else 1)
    kind = "seconds" if by_clock else "seconds of processor time"
    return Fault(
        Reason.TOO_SLOW,
        f"{name_format(data)}: it was not decoded within {seconds:g} {kind}",
    )


def _how(process: "subprocess.Popen[bytes]") -> str:
    code = process.returncode
    with contextlib.suppress(ValueError):
        if code < 0:
            return signal.Signals(-code).name
    return f"exit code {code}"


SHARED = DecoderPool()
"""The children of this process."""
