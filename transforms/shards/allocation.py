"""Tell the C library and Arrow when to keep freed memory, where they can be told."""

import ctypes
import functools

import pyarrow as pa

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
    library = _glibc()
    if library is None:
        return False
    settings = {
        _M_MMAP_THRESHOLD: _MAX_MAPPED_BYTES,
        _M_TRIM_THRESHOLD: _KEPT_BYTES,
        _M_TOP_PAD: _KEPT_BYTES,
    }
    return all(library.mallopt(name, value) for name, value in settings.items())


def return_freed_memory() -> None:
    """Returns what this process does not use to the system, which takes a millisecond.

    Arrow and glibc keep most of what is freed, and a forked worker starts with all of
    that.
    """
    pa.default_memory_pool().release_unused()
    library = _glibc()
    if library is not None:
        library.malloc_trim(0)


def _glibc() -> ctypes.CDLL | None:
    library = ctypes.CDLL(None)
    return library if hasattr(library, "gnu_get_libc_version") else None
