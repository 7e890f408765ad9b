"""TFRecord files of a few records, and children with little memory that read them."""

import dataclasses
import io
import os
import subprocess
import sys
import textwrap
import zlib

import google_crc32c
import pytest

from transforms.core.tfrecord.writer import FrameFacts, TFRecordWriter

# Ten small records of several lengths, two of them empty: 16 * 10 + 68 bytes.
RECORDS = [b"", b"a", b"bc" * 5, b"d" * 10, b"e" * 10, b"f" * 10, b"g" * 17, b"", b"hh"]
HOSTILE = [2**31, 2**32, 2**40, 2**47, 2**62, 2**63, 2**64 - 1]


def write(records: list[bytes], compression: str = "none") -> tuple[bytes, FrameFacts]:
    """Returns a file and its facts; zlib is what the program reads, but not writes."""
    sink = io.BytesIO()
    as_zlib = compression == "zlib"
    with TFRecordWriter(sink, compression="none" if as_zlib else compression) as writer:
        for record in records:
            writer.write(record)
    stored, facts = sink.getvalue(), writer.facts()
    if as_zlib:
        stored = zlib.compress(stored)
        size, crc = len(stored), google_crc32c.value(stored)
        facts = dataclasses.replace(facts, stored_bytes=size, crc32c=crc)
    return stored, facts


def flipped(stored: bytes, position: int, bit: int = 0) -> bytes:
    """Returns the bytes with one bit changed."""
    changed = bytearray(stored)
    changed[position] ^= 1 << bit
    return bytes(changed)


# The peak of `resource.getrusage` is no use here: a child starts with its parent's.
PEAK = """
    import sys
    from transforms.core.tfrecord.reader import TFRecordReader
    from transforms.errors import TFRecordError

    def peak_kib():
        with open("/proc/self/status") as status:
            return next(int(x.split()[1]) for x in status if x.startswith("VmHWM"))
"""


needs_proc = pytest.mark.skipif(
    not os.path.exists("/proc/self/status"), reason="memory is measured by /proc"
)


def run_child(code: str, *arguments: object) -> list[str]:
    """Runs code that follows PEAK; returns the words that it prints."""
    program = textwrap.dedent(PEAK) + textwrap.dedent(code)
    command = [sys.executable, "-c", program, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.split()
