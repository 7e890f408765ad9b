"""The table of troubles in docs/engines/elsewhere.md, against who says the messages."""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.support.pages import ROOT

PAGE = ROOT / "docs/engines/elsewhere.md"

# Messages of other programs, and the sources that have them.
OF_ENGINES = {
    "Could not upload job files": "Flink: ClientUtils.java, JobSubmitHandler.java",
    "Insufficient number of network buffers": "Flink: NetworkBufferPool.java",
    "unable to start sdk worker": "Prism: internal/environments.go",
    "Connection refused: localhost:50000": "Netty, in Flink: AbstractChannel.java",
}


def messages() -> list[str]:
    """Returns the messages of the first column."""
    text = PAGE.read_text(encoding="utf-8").partition("## Troubles")[2]
    cells = re.findall(r"^\| (`.*?) \|", text, re.MULTILINE)
    return [each for cell in cells for each in re.findall("`([^`]+)`", cell)]


def said() -> Iterator[str]:
    """Yields the texts in the program's sources; `...` is for what is filled in."""
    for package in ("beam_pipeline", "transforms"):
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.JoinedStr):
                    parts = [getattr(each, "value", None) for each in node.values]
                    yield "".join(p if isinstance(p, str) else "..." for p in parts)
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield node.value


@pytest.fixture(scope="module")
def texts() -> str:
    """All texts of the program."""
    return "\n".join(said())


@pytest.mark.parametrize("message", messages())
def test_somebody_says_each_message(message: str, texts: str) -> None:
    """A message of the table is the program's own, or known to be an engine's."""
    assert (message in OF_ENGINES) is not (message in texts)


def test_known_words_of_engines_are_in_the_table() -> None:
    """The list of other programs' messages has none that the table lacks."""
    assert OF_ENGINES.keys() <= {*messages()}
