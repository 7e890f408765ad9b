"""Open regular files only; a pipe or device might never end.

Reading a pipe waits for its writer, and a device or a socket may supply bytes forever.
Opening one as an input is therefore an error at once. Only descriptors that the caller
passed to this process, such as `/dev/stdin`, may be pipes, for readers that need no
seeking.
"""

import errno
import os
import re
import stat

_GIVEN = re.compile(r"/dev/stdin|(/dev|/proc/self)/fd/[0-9]+")


def open_regular(path: str, flags: int, folder: int | None = None) -> int:
    """Returns a descriptor of a regular file; the `opener` of `open`.

    Args:
      path: of the file.
      flags: as `os.open` takes them.
      folder: descriptor of the folder that a relative path starts from.

    The check looks at the open file, so no other can replace it in between.

    Raises:
      OSError: it cannot be opened, or is no regular file.
    """
    return open_with_status(path, flags, folder)[0]


def open_with_status(
    path: str, flags: int, folder: int | None = None
) -> tuple[int, os.stat_result]:
    """Returns a descriptor as `open_regular` does, and its status."""
    flags |= os.O_CLOEXEC | os.O_NONBLOCK
    descriptor = os.open(path, flags, dir_fd=folder)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        raise OSError(errno.EINVAL, "not a regular file", path)
    return descriptor, status


def open_stream(path: str, flags: int) -> int:
    """Returns a descriptor as `open_regular` does, or of a pipe of this process.

    Raises:
      OSError: it cannot be opened, or is neither.
    """
    if _GIVEN.fullmatch(path):
        return os.open(path, flags | os.O_CLOEXEC)
    return open_regular(path, flags)
