"""Beam is imported beside the planning: it takes most of a second."""

import contextlib
import importlib
import logging
import threading
from collections.abc import Callable, Iterator

__all__ = ["beam_loading"]


@contextlib.contextmanager
def beam_loading() -> Iterator[Callable[[], None]]:
    """Begins to import what runs a job; yields what waits for the end of that.

    Planning waits for files and for Arrow, and leaves the interpreter free meanwhile. A
    plan that fails does not wait for Beam.
    """
    # A handler of its own keeps the root logger from printing what Beam warns about.
    logging.getLogger().addHandler(logging.NullHandler())
    thread = threading.Thread(
        target=importlib.import_module, args=("beam_pipeline.conversion",), daemon=True
    )
    thread.start()
    yield thread.join
