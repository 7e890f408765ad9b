"""Finds a user's own `transforms.py` in the place of the package `transforms`.

Python looks beside the script, or in the current folder, before it looks where packages
are installed. Without this check the first import fails with "'transforms' is not a
package", which names neither the file nor a remedy.
"""

import contextlib
import importlib.util
import os
import sys

_PACKAGE = "transforms"
# Both packages are in one folder, in a checkout and where they are installed.
_FOLDER = os.path.join(os.path.dirname(os.path.dirname(__file__)), _PACKAGE)
# Of a path in a message, so that the remedy behind it is never cut off.
_PATH_CHARS = 500


def check_packages() -> None:
    """Raises where Python would import another `transforms` than ours.

    Raises:
      ImportError: it finds another file or folder first; the message names it.
      SystemExit: the same on the command line, after the message, with exit code 2.
    """
    path = _found()
    if path is None:
        return
    message = (
        f"{path[:_PATH_CHARS]!r} hides the package {_PACKAGE!r} of beam-tfrecord: "
        f"rename it, or start Python where its folder is not on sys.path."
    )
    if not _is_command():
        raise ImportError(message, name=_PACKAGE, path=path)
    with contextlib.suppress(OSError):
        os.write(2, f"error: {message}\n".encode())
    raise SystemExit(2)


def _found() -> str | None:
    """Returns the path that Python imports instead of ours; None if it imports ours."""
    loaded = sys.modules.get(_PACKAGE)
    spec = importlib.util.find_spec(_PACKAGE) if loaded is None else loaded.__spec__
    if spec is None:
        return None
    folders = list(spec.submodule_search_locations or ())
    if any(os.path.realpath(folder) == os.path.realpath(_FOLDER) for folder in folders):
        return None
    return folders[0] if folders else spec.origin


def _is_command() -> bool:
    """Whether the program was started, not a script that imports it."""
    program = os.path.basename(sys.argv[0]) if sys.argv else ""
    if program == "-m":
        # Python is still looking for the module that it was given.
        return any(word.split(".")[0] == "beam_pipeline" for word in sys.orig_argv)
    return program == "beam-tfrecord"
