"""The simplest loop that frames images: read, checksum, write; no label, no check.

length: 8  crc: 4  |  tf.train.Example with one feature, `image`  |  crc: 4
"""

import argparse
import json
import os
import struct
import time

import google_crc32c


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _masked_crc(data: bytes) -> bytes:
    crc = google_crc32c.value(data)
    rotated = (crc >> 15 | crc << 17) & 0xFFFFFFFF
    return struct.pack("<I", (rotated + 0xA282EAD8) & 0xFFFFFFFF)


def _example(image: bytes) -> bytes:
    """Returns the Example: each message is a tag and a size before what it holds."""
    head, size = b"", len(image)
    for tag in (b"\x0a", b"\x0a", b"\x0a\x05image\x12", b"\x0a", b"\x0a"):
        head = tag + _varint(size + len(head)) + head
    return head + image


def main() -> None:
    """Converts the photos; prints their number and the seconds as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("source")
    parser.add_argument("output")
    arguments = parser.parse_args()

    begun = time.perf_counter()
    paths = sorted(
        os.path.join(folder, name)
        for folder, _, names in os.walk(arguments.source)
        for name in names
    )
    with open(arguments.output + "/images.tfrecords", "wb") as output:
        for path in paths:
            with open(path, "rb", buffering=0) as file:
                record = _example(file.read())
            length = struct.pack("<Q", len(record))
            output.write(length + _masked_crc(length))
            output.write(record)
            output.write(_masked_crc(record))
        output.flush()
        os.fsync(output.fileno())
    work = time.perf_counter() - begun
    print(json.dumps({"items": len(paths), "work_seconds": work}))


if __name__ == "__main__":
    main()
