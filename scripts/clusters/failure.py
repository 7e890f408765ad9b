"""What the user is told, without a traceback."""


class Failure(Exception):  # noqa: N818 - it is no error of the program
    """Says what must hold, what was found, and what to do."""
