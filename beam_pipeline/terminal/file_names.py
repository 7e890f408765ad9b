"""Make Python use UTF-8 for file names, whatever the locale.

Under a locale of another encoding, Latin-1 or EUC-KR, Python would read the bytes of a
name as other characters, and labels, origins and the order of rows come from names:
the dataset would be another one. Under LC_ALL=C Python already reads them as UTF-8.
"""

import locale
import os
import sys

from transforms.errors import UsageError

__all__ = ["check_file_names", "restart_in_utf8"]

_MODE = "PYTHONUTF8"


def restart_in_utf8() -> None:
    """Starts this very program again in Python's UTF-8 mode where names need it."""
    if _is_utf8() or os.environ.get(_MODE) == "1":
        # A second restart would change nothing: `check_file_names` says so.
        return
    # Python takes the encoding of file names at its start, and never changes it.
    os.environ[_MODE] = "1"
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def check_file_names() -> None:
    """Raises UsageError where Python does not read file names as UTF-8."""
    if not _is_utf8():
        raise UsageError(
            f"File names must be read as UTF-8, or labels and origins would be other "
            f"ones; Python reads them as {sys.getfilesystemencoding()} under the "
            f"locale {locale.setlocale(locale.LC_CTYPE)!r}. Set {_MODE}=1 before it "
            f"starts."
        )


def _is_utf8() -> bool:
    return sys.getfilesystemencoding().lower().replace("-", "") == "utf8"
