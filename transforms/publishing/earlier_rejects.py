"""Rejects that an earlier run wrote: find them and read them."""

import collections
import dataclasses
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

import google_crc32c

from transforms.core.manifest import MANIFEST_NAME, FileFacts, Manifest
from transforms.core.reasons import reject_in_words
from transforms.errors import DamageError, UsageError
from transforms.publishing import target
from transforms.storage.files import storage
from transforms.work.rejects import is_rejects_name

_MOST_ROWS = 1 << 63


@dataclasses.dataclass(frozen=True, slots=True)
class RejectGroup:
    """The rejects of one reason.

    Attributes:
      reason: its code.
      part: what of an item was rejected ("boxes"); empty for whole items.
      count: how many.
      example: the first of them, as plain JSON.
    """

    reason: str
    part: str
    count: int
    example: Mapping[str, Any]

    @property
    def example_text(self) -> str:
        """The example in words."""
        return rejection_text(self.example)


def rejection_text(item: Mapping[str, Any]) -> str:
    """Returns a rejection in words."""
    row, line = item.get("row"), item.get("line")
    return reject_in_words(item["source"], row, line, item["message"])


@dataclasses.dataclass(frozen=True, slots=True)
class EarlierRejects:
    """Files with lines of rejects.

    Attributes:
      files: path -> what the manifest says of it; None where no manifest names it.
      manifest: of the dataset that they belong to; None for a run that failed.
    """

    files: Mapping[str, FileFacts | None]
    manifest: Manifest | None

    def rejections(self) -> Iterator[Mapping[str, Any]]:
        """Yields each rejection as plain JSON, in the order of (source, row).

        Raises:
          DamageError: a file is not what its manifest says, or holds something else.
        """
        for path, facts in self.files.items():
            size = crc = 0
            with storage(path).open_input() as file:
                for line in file:
                    size += len(line)
                    crc = google_crc32c.extend(crc, line)
                    try:
                        rejection = json.loads(line)
                    except (ValueError, RecursionError):
                        rejection = None
                    if not _is_rejection(rejection):
                        raise _no_rejection(path, line)
                    yield rejection
            if facts is not None and (facts.bytes, facts.crc32c) != (size, crc):
                raise DamageError(
                    f"The rejects must be as the manifest names them; {path!r} has "
                    f"{size:,} bytes with the CRC32C {crc:08x}, not {facts.bytes:,} "
                    f"with {facts.crc32c:08x}. Convert again."
                )

    def groups(self) -> list[RejectGroup]:
        """Returns the rejects by reason, the most frequent first.

        Errors are those of `rejections`.
        """
        counts: collections.Counter[tuple[str, str]] = collections.Counter()
        examples: dict[tuple[str, str], Mapping[str, Any]] = {}
        for item in self.rejections():
            key = item["reason"], str(item.get("part") or "")
            counts[key] += 1
            examples.setdefault(key, item)
        ranked = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
        return [RejectGroup(*key, count, examples[key]) for key, count in ranked]


def _is_rejection(found: Any) -> bool:
    """Whether a line's JSON is a reject: texts, and a row from 1 or none."""
    if not isinstance(found, dict):
        return False
    texts = (found.get(name) for name in ("source", "reason", "message"))
    row = found.get("row")
    is_row = type(row) is int and 0 < row < _MOST_ROWS
    return all(isinstance(text, str) for text in texts) and (row is None or is_row)


def _no_rejection(path: str, lines: bytes) -> DamageError:
    """Returns the error about a file of rejects with an invalid line."""
    return DamageError(
        f"The rejects must be lines of JSON with source, row, reason and message, as "
        f"'convert' writes them; {path!r} holds others, near {lines[:60]!r}. Name a "
        f"dataset, or the file that a failed run has left."
    )


def find_rejects(path: str) -> EarlierRejects:
    """Returns the rejects of a dataset, of a failed run, or of one file.

    Args:
      path: a dataset; an output that was not committed, whose rejects are beside it;
        or a file of lines.

    Raises:
      UsageError: there is nothing of the kind.
      DamageError: the manifest of the dataset is damaged.
    """
    if os.path.basename(path) == MANIFEST_NAME:
        path = os.path.dirname(path) or "."
    if storage(path).is_file():
        return EarlierRejects({path: None}, None)
    try:
        manifest = target.read_manifest(path)
    except (FileNotFoundError, NotADirectoryError):
        left = target.rejects_path(path)
        if storage(left).is_file():
            return EarlierRejects({left: None}, None)
        raise UsageError(
            f"There must be a dataset at {path!r}, or the rejects that a failed run "
            f"has left in {left!r}; there is neither. Name the output of an earlier "
            f"'convert', a part of it (FOLDER/part=NAME), or the file itself."
        ) from None
    except OSError as error:
        raise UsageError(
            f"The manifest of {path!r} must be readable: {error.strerror}."
        ) from error
    named = [facts for facts in manifest.files if is_rejects_name(facts.file)]
    return EarlierRejects({manifest.path(path, f.file): f for f in named}, manifest)
