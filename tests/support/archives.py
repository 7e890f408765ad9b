"""Archives of a few files, and what the program finds in them."""

import bz2
import functools
import gzip
import io
import lzma
import tarfile
import warnings
import zipfile
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import zstandard

from transforms.core.reasons import Reason
from transforms.formats.archive.archives import Archive
from transforms.formats.archive.members import Item, Limits

FILES = {
    "train/cat/1.jpg": b"one" * 100,
    "train/cat/2.jpg": b"",
    "train/dog/고양이.jpg": bytes(range(256)) * 5,
    "notes.txt": b"x" * 512,
}


def zip_of(files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


def tar_of(files: dict[str, bytes], *, tar_format: int = tarfile.PAX_FORMAT) -> bytes:
    return tar_of_infos(
        [(info_of(name, len(data)), data) for name, data in files.items()],
        tar_format=tar_format,
    )


def info_of(name: str, size: int = 0, kind: bytes = tarfile.REGTYPE) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size, info.type = size, kind
    return info


def tar_of_infos(
    members: list[tuple[tarfile.TarInfo, bytes]],
    *,
    tar_format: int = tarfile.PAX_FORMAT,
    encoding: str = "utf-8",
) -> bytes:
    out = io.BytesIO()
    with tarfile.open(
        fileobj=out, mode="w", format=tar_format, encoding=encoding
    ) as archive:
        for info, data in members:
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(data)


def packed_tar(pack: Callable[[bytes], bytes], files: dict[str, bytes]) -> bytes:
    return pack(tar_of(files))


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gz": lambda data: gzip.compress(data, mtime=0),
    "zst": zstd,
    "bz2": bz2.compress,
    "xz": lzma.compress,
}


WRITERS: dict[str, Callable[[dict[str, bytes]], bytes]] = {
    "zip": zip_of,
    "zip-stored": lambda files: zip_of(files, zipfile.ZIP_STORED),
    "tar-pax": tar_of,
    "tar-gnu": lambda files: tar_of(files, tar_format=tarfile.GNU_FORMAT),
    "tar-ustar": lambda files: tar_of(files, tar_format=tarfile.USTAR_FORMAT),
    **{
        f"tar.{name}": functools.partial(packed_tar, pack)
        for name, pack in PACKERS.items()
    },
}


def read_in_turn(file: BinaryIO, **options: Any) -> Iterator[Item]:
    """Yields what becomes of the members that are not litter."""
    limits = options.pop("limits", None) or Limits(**options)
    for member, read in Archive(file, "a.zip", limits).members():
        if not member.is_hidden:
            yield read()


def found_in(data: bytes, **options: Any) -> list[Item]:
    return list(read_in_turn(io.BytesIO(data), **options))


def contents(data: bytes, **options: object) -> dict[str, bytes]:
    found = found_in(data, **options)
    assert not any(item.member.fault for item in found), found
    return {i.member.name: i.data for i in found if i.data is not None}


def faults(data: bytes, **options: object) -> dict[str, Reason]:
    found = found_in(data, **options)
    return {member.name: member.fault.reason for member, _ in found if member.fault}


def with_right_checksums(data: bytes) -> bytes:
    """Writes correct checksums into the changed headers of a tar."""
    out = bytearray(data)
    for place in range(0, len(out) - 511, 512):
        block = out[place : place + 512]
        if b"ustar" in block:
            total = sum(block[:148] + block[156:]) + 256
            out[place + 148 : place + 156] = b"%06o\0 " % total
    return bytes(out)
