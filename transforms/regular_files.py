"""Opening what is a file, and nothing that might never end.

Reading a pipe waits for its writer, and a device or a socket may give bytes for ever. A
path of theirs is an error at once, wherever an input is opened.
"""

import errno
import os
import stat

__all__ = ["open_regular"]


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
