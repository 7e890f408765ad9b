"""Files that are written in full before they get their names."""

import contextlib
from collections.abc import Iterator
from typing import Protocol, TypeVar

from transforms.storage.entries import Sink

__all__ = ["Draft", "discarded_on_error", "written"]

_Draft = TypeVar("_Draft", bound="Draft")


class Draft(Sink, Protocol):
    """A file that is being written and does not have its name yet.

    The steps are separate so that many files can be synced at the same time, and none
    be renamed before all are durable.

    Attributes:
      path: the final name.
    """

    path: str

    def sync(self) -> None:
        """Ends the file and makes its content durable; raises OSError.

        After a failure the file must be written again: the kernel may have dropped what
        it could not write, and a second sync would succeed.
        """

    def publish(self) -> None:
        """Gives a synced file its name, replacing what has it; raises OSError."""

    def discard(self) -> None:
        """Removes the file unless it has its name."""


@contextlib.contextmanager
def written(draft: _Draft) -> Iterator[_Draft]:
    """Gives a draft to write to; syncs and publishes it, or discards it on an error."""
    with discarded_on_error(draft):
        yield draft
        draft.sync()
        draft.publish()


@contextlib.contextmanager
def discarded_on_error(draft: _Draft) -> Iterator[_Draft]:
    """Gives a draft, and discards it where the block raises.

    A failed write or sync does not say of what: its error gets the path.
    """
    try:
        yield draft
    except BaseException as error:
        draft.discard()
        if isinstance(error, OSError) and error.errno and not error.filename:
            raise OSError(error.errno, error.strerror, draft.path) from error
        raise
