"""Errors that are shown to the user without a traceback."""


class Failure(Exception):  # noqa: N818 - it is no error of the program
    """Says what must hold, what was found, and what to do."""


class ClientFailure(Failure):
    """A registry's client failed.

    Attributes:
      output: all that it has printed.
    """

    def __init__(self, message: str, output: str) -> None:
        super().__init__(message)
        self.output = output
