"""Validate the parameters of `WriteTFRecords` and `ReadTFRecords`.

Every check raises a SpecError that names the parameter and shows what was found.
"""

import os
import re
from typing import Any

from apache_beam import coders
from apache_beam.io.filesystem import CompressionTypes

from transforms.core.tfrecord.compression import Compression
from transforms.errors import SpecError
from transforms.storage.paths import is_remote, shown

# What readers of TFRecord files know.
COMPRESSIONS = {
    CompressionTypes.UNCOMPRESSED: Compression.NONE,
    CompressionTypes.GZIP: Compression.GZIP,
    CompressionTypes.DEFLATE: Compression.ZLIB,
}
# By these Beam would choose a compression that no reader of TFRecord files knows, or
# that of zlib streams, which are read only.
_FOREIGN_SUFFIXES = (".bz2", ".zst", ".zstd", ".xz", ".lzma", ".deflate", ".zlib")


def check_path(name: str, value: object) -> None:
    """Wants text that can be a path, of a file system or a bucket."""
    if not isinstance(value, str) or not value:
        raise SpecError(f"{name} must be a text that names files; found {value!r}.")
    _check_characters(name, value)


def check_local_path(name: str, value: object) -> None:
    """Wants text that can be a path on a mounted file system."""
    check_path(name, value)
    if is_remote(str(value)):
        raise SpecError(
            f"{name} must be a path on a file system that every worker has mounted; "
            f"found {shown(value)}. Mount the store, or write the files elsewhere and "
            f"copy them."
        )


def check_name_part(name: str, value: object) -> None:
    """Requires text that can be part of a file name."""
    if not isinstance(value, str) or "/" in value:
        raise SpecError(f"{name} must be a text without '/'; found {value!r}.")
    _check_characters(name, value)


def _check_characters(name: str, value: str) -> None:
    try:
        fine = "\0" not in value and bool(value.encode() or True)
    except UnicodeEncodeError:
        fine = False
    if not fine:
        raise SpecError(f"{name} must be Unicode text without NUL; found {value!r}.")


def check_template(template: str) -> None:
    """Wants the file's number in every name, and nothing that changes by the run."""
    if template and "S" not in template:
        raise SpecError(
            f"shard_name_template must hold S, for the number of the file, or be "
            f"''; found {template!r}."
        )
    if match := re.search("[UVW]", template):
        raise SpecError(
            f"shard_name_template may not hold {match[0]}: names depend on "
            f"nothing but number and count of the file; found {template!r}."
        )


def check_num_shards(shards: object) -> None:
    """Wants an integer from 0."""
    if isinstance(shards, bool) or not isinstance(shards, int) or shards < 0:
        raise SpecError(f"num_shards must be an integer from 0; found {shards!r}.")


def check_coder(coder: object) -> None:
    """Wants an instance, not a class, of a coder."""
    if not isinstance(coder, coders.Coder):
        raise SpecError(
            f"coder must be a beam.coders.Coder, such as beam.coders.BytesCoder(); "
            f"found {coder!r}."
        )


def check_compression(compression_type: object) -> None:
    """Wants AUTO or a compression that readers of TFRecord files know."""
    if compression_type not in (CompressionTypes.AUTO, *COMPRESSIONS):
        raise SpecError(
            f"compression_type must be AUTO, UNCOMPRESSED, GZIP or DEFLATE of "
            f"CompressionTypes, for readers of TFRecord files know no other; found "
            f"{compression_type!r}."
        )


def compression_of(compression_type: str, name: str) -> Compression:
    """Returns what files are written in; AUTO goes by the end of the file's name."""
    check_compression(compression_type)
    if compression_type == CompressionTypes.DEFLATE:
        raise SpecError(
            "compression_type DEFLATE, a zlib stream, is read, not written. Take GZIP."
        )
    if compression_type != CompressionTypes.AUTO:
        return COMPRESSIONS[compression_type]
    name = name.lower()
    if name.endswith(_FOREIGN_SUFFIXES):
        raise SpecError(
            f"Files that end in {os.path.splitext(name)[1]} would need a compression "
            f"that is not written. End them in .gz, or set compression_type."
        )
    return Compression.GZIP if name.endswith(".gz") else Compression.NONE


def type_of(coder: coders.Coder) -> Any:
    """Returns the type of the coder's values, as far as it says."""
    try:
        return coder.to_type_hint()
    except NotImplementedError:
        return Any
