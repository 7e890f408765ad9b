"""Open regular files only; a pipe or device might never end.

Reading a pipe waits for its writer, and a device or a socket may give bytes for ever. A
path of theirs is an error at once, wherever an input is opened. What the process was
given by its caller, such as `/dev/stdin`, may be a pipe where reading on suffices.
"""

import errno
import os
import re
import stat

__all__ = ["open_regular", "open_stream"]

_GIVEN = re.compile(r"/dev/stdin|(/dev|/proc/self)/fd/[0-9]+")


def open_regular(path: str, flags: int) -> int:
    """Returns a descriptor of a regular file; the `opener` of `open`.

    What was opened is looked at, so nothing can take its place in between.

    Raises:
      OSError: it cannot be opened, or is no regular file.
    """
    descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK)
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        raise OSError(errno.EINVAL, "not a regular file", path)
    return descriptor


def open_stream(path: str, flags: int) -> int:
    """Returns a descriptor as `open_regular` does, or of a pipe of this process.

    Raises:
      OSError: it cannot be opened, or is neither.
    """
    if _GIVEN.fullmatch(path):
        return os.open(path, flags | os.O_CLOEXEC)
    return open_regular(path, flags)
