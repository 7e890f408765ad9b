"""Refuse files larger than a limit before reading them."""

import errno
import os

__all__ = ["TooLargeError"]


class TooLargeError(OSError):
    """A file is larger than the limit.

    Attributes:
      size: of the file, in bytes.
      modified_ns: when it was last written.
    """

    def __init__(self, path: str, size: int, modified_ns: int) -> None:
        super().__init__(errno.EFBIG, os.strerror(errno.EFBIG), path)
        self.size = size
        self.modified_ns = modified_ns
