"""Arrow streams whose errors are messages of ours, without a traceback.

A consumer of an Arrow C stream sees an exception as text alone. pyarrow puts the
traceback into it:

    Unknown error: MESSAGE. Detail: Python exception: Traceback ...

The layout of a stream is that of https://arrow.apache.org/docs/format/CStreamInterface.html
"""

import collections
import ctypes
from collections.abc import Callable

import pyarrow as pa

__all__ = ["stream_of"]

_BEFORE, _AFTER = b"Unknown error: ", b". Detail: Python exception: "
# Texts are valid until the next call of their stream.
_texts: collections.deque[ctypes.Array[ctypes.c_char]] = collections.deque(maxlen=256)
_Text = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)


# pyarrow's function, the same for all of its streams.
_plain: collections.deque[Callable[[int], int | None]] = collections.deque(maxlen=1)


class _Stream(ctypes.Structure):
    """`struct ArrowArrayStream`."""

    _fields_ = (
        ("get_schema", ctypes.c_void_p),
        ("get_next", ctypes.c_void_p),
        ("get_last_error", ctypes.c_void_p),
        ("release", ctypes.c_void_p),
        ("private_data", ctypes.c_void_p),
    )


_pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def stream_of(reader: pa.RecordBatchReader, requested_schema: object) -> object:
    """Returns a capsule with the stream of a reader.

    Args:
      reader: of batches that Python code makes.
      requested_schema: see `pyarrow.RecordBatchReader.__arrow_c_stream__`.
    """
    capsule: object = reader.__arrow_c_stream__(requested_schema)
    stream = _Stream.from_address(_pointer_of(capsule, b"arrow_array_stream"))
    _plain.append(_Text(stream.get_last_error))
    stream.get_last_error = ctypes.cast(_own, ctypes.c_void_p).value
    return capsule


def _last_error(stream: int) -> int | None:
    """Returns the address of the error's text; None for no error."""
    address = _plain[0](stream)
    if not address:
        return None
    text = ctypes.string_at(address)
    message, mark, _ = text.partition(_AFTER)
    if not mark or not text.startswith(_BEFORE):
        return address
    _texts.append(ctypes.create_string_buffer(message.removeprefix(_BEFORE)))
    return ctypes.addressof(_texts[-1])


_own = _Text(_last_error)
