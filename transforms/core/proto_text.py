r"""Quoted texts in the text form of protocol buffers.

Texts are UTF-8 in quotes; quotes, backslashes and control characters are escaped as in
C (`\'`, `\\`, `\n`, `\001`).

Source: https://protobuf.dev/reference/protobuf/textformat-spec/
"""

import re

_ESCAPES = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_ESCAPED = re.compile(r"[\x00-\x1f\x7f\\']")


def quoted(text: str) -> str:
    r"""Returns a text in quotes.

    >>> print(quoted("owner's"))
    'owner\'s'
    """
    escaped = _ESCAPED.sub(lambda m: _ESCAPES.get(m[0], f"\\{ord(m[0]):03o}"), text)
    return f"'{escaped}'"
