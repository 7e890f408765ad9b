"""The terminal: rich's console, with errors that are errors."""

import rich.console

__all__ = ["Console"]


class Console(rich.console.Console):
    """A console that raises BrokenPipeError; rich would exit with 1, as if damaged."""

    def on_broken_pipe(self) -> None:
        """Called by rich while it handles the error."""
        raise
