"""The messages that docs/faq.md explains are those of the program."""

import ast
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
_PAGE = (ROOT / "docs" / "faq.md").read_text(encoding="utf-8")
QUOTED = re.findall(r"^### `(.+)`$", _PAGE, re.M)
# In a message of the code, a value that is filled in.
_VALUE = "\N{BULLET}"


def messages() -> set[str]:
    """Returns all texts in the code, with a bullet for each value."""
    found = set()
    for package in ("beam_pipeline", "transforms"):
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.JoinedStr):
                    parts = (getattr(part, "value", _VALUE) for part in node.values)
                    found.add(
                        "".join(p if isinstance(p, str) else _VALUE for p in parts)
                    )
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.add(node.value)
    return found


@pytest.fixture(scope="module")
def said() -> set[str]:
    return messages()


@pytest.mark.parametrize("quoted", QUOTED)
def test_a_quoted_message_is_in_the_code(quoted: str, said: set[str]) -> None:
    """What is between the dots of a heading is one message, in the same order."""
    pattern = "[^.]*?".join(map(re.escape, quoted.split("...")))
    assert any(re.search(pattern, text) for text in said), quoted


def test_the_page_quotes_messages() -> None:
    """No heading of a message is written in another form."""
    assert len(QUOTED) == len(re.findall("^### ", _PAGE, re.M)) > 20
