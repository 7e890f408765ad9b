"""File names must be read as UTF-8, whatever the locale.

Under a locale of another encoding, Latin-1 or EUC-KR, Python would read the bytes of a
name as other characters, and labels, origins and the order of rows come from names:
the dataset would be another one. Under LC_ALL=C Python already reads them as UTF-8.
"""

import locale
import sys

from transforms.errors import UsageError


def check_file_names() -> None:
    """Raises UsageError where Python does not read file names as UTF-8."""
    encoding = sys.getfilesystemencoding()
    if encoding.lower().replace("-", "") != "utf8":
        raise UsageError(
            f"File names must be read as UTF-8, or labels and origins would be other "
            f"ones; Python reads them as {encoding} under the locale "
            f"{locale.setlocale(locale.LC_CTYPE)!r}. Set PYTHONUTF8=1 before it starts."
        )
