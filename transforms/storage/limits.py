"""Refuse files larger than a limit before reading them."""

import errno
import os

__all__ = ["TooLargeError"]


class TooLargeError(OSError):
    """A file has more bytes than were asked for.

    Attributes:
      size: of the file, in bytes.
      modified_ns: when it was last written.
    """

    def __init__(self, path: str, size: int, modified_ns: int) -> None:
        super().__init__(errno.EFBIG, os.strerror(errno.EFBIG), path)
        self.size = size
        self.modified_ns = modified_ns
