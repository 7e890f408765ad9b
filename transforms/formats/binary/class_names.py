"""Class names from a text file: one per line, the first has id 0."""

from collections.abc import Mapping, Sequence

from transforms import files
from transforms.errors import InputError

__all__ = ["Names", "read_names", "same_names"]

# Of a field -> the names of its classes, by id.
Names = Mapping[str, tuple[str, ...]]

_MAX_BYTES = 64 << 20


def same_names(found: Sequence[tuple[str, Names]]) -> Names:
    """Returns the names of classes that all folders share.

    Args:
      found: folders, and the names in each.

    Raises:
      InputError: they differ, be it in their order.
    """
    for folder, names in found[1:]:
        if names != found[0][1]:
            raise InputError(
                f"Class names must be the same, in the same order, beside all files of "
                f"a source; those in {found[0][0]!r} and {folder!r} differ. Convert "
                f"the folders one by one."
            )
    return found[0][1] if found else {}


def read_names(path: str) -> tuple[str, ...]:
    """Returns the names of classes in a file, by id; blank lines may end it.

    Raises:
      InputError: it cannot be read, is no UTF-8 text, holds no name, a blank line
        between names or a name twice.
    """

    def refuse(found: str) -> InputError:
        return InputError(
            f"A file of class names must be UTF-8 text with one name a line, the "
            f"first for id 0, each once; {path!r} is not: {found}."
        )

    try:
        if files.size_of(path) > _MAX_BYTES:
            raise refuse(f"it has more than {_MAX_BYTES} bytes")
        text = files.read_bytes(path).decode("utf-8-sig")
    except OSError as error:
        raise refuse(str(error.strerror or error)) from error
    except UnicodeDecodeError as error:
        raise refuse(f"byte {error.start} is not UTF-8") from error
    lines = [line.strip() for line in text.rstrip().split("\n")]
    if "" in lines:
        raise refuse(f"line {lines.index('') + 1} is blank")
    if len(set(lines)) < len(lines):
        twice = next(line for i, line in enumerate(lines) if line in lines[:i])
        raise refuse(f"{twice!r} stands there twice")
    return tuple(lines)
