"""Tell the C library to keep freed memory, where it can be told."""

import ctypes
import functools

__all__ = ["keep_freed_memory"]

# Parameters of mallopt(3) in glibc's <malloc.h>.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
# A chunk of images that is being written, the next one and their joined records.
_KEPT_BYTES = 64 << 20
# The largest threshold that glibc takes on all of its platforms.
_MAX_MAPPED_BYTES = 32 << 20


@functools.cache
def keep_freed_memory() -> bool:
    """Keeps up to 64 MB of freed memory in this process, instead of returning it.

    Images come and go by hundreds. By default glibc gives their memory back each time
    and takes it again, and the kernel clears it again: that costs more than the reads.

    Returns:
      Whether the C library has taken the settings; only glibc does. Without them the
      program does the same, more slowly.
    """
    library = ctypes.CDLL(None)
    if not hasattr(library, "gnu_get_libc_version"):
        return False
    settings = {
        _M_MMAP_THRESHOLD: _MAX_MAPPED_BYTES,
        _M_TRIM_THRESHOLD: _KEPT_BYTES,
        _M_TOP_PAD: _KEPT_BYTES,
    }
    return all(library.mallopt(name, value) for name, value in settings.items())
