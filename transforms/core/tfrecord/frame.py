"""The TFRecord frame: lengths, masked checksums, names of damage.

    offset  bytes
    0       8      length of the payload, uint64 little-endian      } header
    8       4      masked CRC32C of those 8 bytes, uint32 LE        }
    12      n      payload
    12 + n  4      masked CRC32C of the payload, uint32 LE            footer

The mask is `rotate_right(crc, 15) + 0xa282ead8 mod 2**32`. Source: TensorFlow,
`tensorflow/core/lib/io/record_writer.h` and `lib/hash/crc32c.h`.
"""

import struct

import google_crc32c

__all__ = [
    "DAMAGE_KINDS",
    "DEFAULT_MAX_RECORD_BYTES",
    "FOOTER_BYTES",
    "HEADER_BYTES",
    "MASK_DELTA",
    "OVERHEAD_BYTES",
    "footer",
    "frame",
    "header",
    "mask",
    "masked_crc32c",
]

HEADER_BYTES = 12
FOOTER_BYTES = 4
OVERHEAD_BYTES = HEADER_BYTES + FOOTER_BYTES
MASK_DELTA = 0xA282EAD8
# A length above this is taken for damage before any memory is asked for.
DEFAULT_MAX_RECORD_BYTES = 1 << 30

DAMAGE_KINDS = {
    "length-crc": "the checksum of the length does not match",
    "data-crc": "the checksum of the payload does not match",
    "too-long": "the length is above the limit for a record",
    "truncated": "the file ends inside a record",
    "compression": "the compressed stream is damaged",
    "trailing": "bytes after the end of the compressed stream",
    "empty": "the file holds no record",
}


def mask(crc: int) -> int:
    """Returns the masked form in which TFRecord stores a CRC32C."""
    return (((crc >> 15) | (crc << 17)) + MASK_DELTA) & 0xFFFFFFFF


def masked_crc32c(data: bytes) -> int:
    """Returns the masked CRC32C of `data`."""
    return mask(google_crc32c.value(data))


def header(length: int) -> bytes:
    """Returns the 12 header bytes of a payload of `length` bytes."""
    prefix = struct.pack("<Q", length)
    return prefix + struct.pack("<I", masked_crc32c(prefix))


def footer(data: bytes) -> bytes:
    """Returns the 4 footer bytes of a payload."""
    return struct.pack("<I", masked_crc32c(data))


def frame(data: bytes) -> bytes:
    """Returns one framed record."""
    return header(len(data)) + data + footer(data)
