"""Answers of the TFRecord commands to sources that have not been converted yet.

`inspect`, `head`, `verify` and `repair` read TFRecord. What is of another format by its
name is named as that, with the commands that read it, and is not called damaged.
"""

import os
import shlex
from collections.abc import Iterator

from transforms import files
from transforms.core.manifest import MANIFEST_NAME
from transforms.core.tfrecord.compression import is_frame_header
from transforms.core.tfrecord.frame import HEADER_BYTES
from transforms.errors import UsageError, first_few
from transforms.formats.registry import FORMATS, claimed_by
from transforms.storage.paths import is_remote
from transforms.work.reject_files import is_rejects_name

__all__ = ["check_format", "what_else"]

# How many files of a folder are looked at.
_MOST_FILES = 10_000
_HEAD_BYTES = 4096
# How many datasets a message names.
_SHOWN = 3


def check_format(path: str) -> None:
    """Raises UsageError where a file is of another format by name and content."""
    if is_rejects_name(os.path.basename(path)):
        raise UsageError(
            f"There must be a dataset or a TFRecord file; {path!r} is a list of "
            f"rejects. Use 'beam-tfrecord rejects {shlex.quote(path)}'."
        )
    if not (found := _claimed([os.path.basename(path)], os.path.dirname(path))):
        return
    if not is_frame_header(_head(path)[:HEADER_BYTES]):
        source = path
        if found == "images":
            # A tree of images is converted as a whole.
            source = "FOLDER"
        raise UsageError(
            f"There must be a dataset or a TFRecord file; {path!r} is of another "
            f"format: {FORMATS[found].title}. {_commands(source)}"
        )


def what_else(path: str) -> str:
    """Returns what is in a folder, or is matched by a pattern, without TFRecord files.

    A sentence or two for a message: the datasets below, or the format of the files and
    the commands that read them; empty where it is nothing that is known.
    """
    if files.is_folder(path):
        names = list(_names_below(path))
    else:
        names = [os.path.basename(each) for each in files.expand(path)]
    datasets = sorted(
        os.path.join(path, os.path.dirname(name))
        for name in names
        if os.path.basename(name) == MANIFEST_NAME and os.path.dirname(name)
    )
    if datasets:
        shown = first_few([*map(repr, datasets)], _SHOWN)
        return f"Datasets are below it: {shown}."
    root = path if files.is_folder(path) else os.path.dirname(path)
    if not (found := _claimed(names, root)):
        return ""
    return f"What it holds is of another format: {FORMATS[found].title}. " + _commands(
        path
    )


def _commands(source: str) -> str:
    """Returns the sentence that names commands for a source."""
    source = shlex.quote(source)
    return (
        f"'beam-tfrecord schema {source}' shows its features, and 'beam-tfrecord "
        f"convert {source} OUTPUT' makes a dataset of it."
    )


def _claimed(names: list[str], root: str) -> str:
    """Returns the format that takes one of the files; empty for none, and TFRecord."""
    try:
        found = claimed_by(
            [(name, 0) for name in names],
            lambda name: _head(os.path.join(root, name)),
        )
    except UsageError:
        return ""
    return "" if found == "tfrecord" else found


def _head(path: str) -> bytes:
    try:
        with files.open_input(path) as stream:
            return stream.read(_HEAD_BYTES)
    except OSError:
        return b""


def _names_below(folder: str) -> Iterator[str]:
    """Yields paths relative to a folder, of no more files than tell what they are."""
    if is_remote(folder):
        yield from (e.path for e in files.list_tree(folder).first(_MOST_FILES))
        return
    seen = 0
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not files.is_hidden(name))
        for name in sorted(names):
            yield os.path.relpath(os.path.join(parent, name), folder)
            seen += 1
            if seen >= _MOST_FILES:
                return
