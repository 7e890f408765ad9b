"""The README and the pages of the documentation, and how their blocks are run.

The word after the language of a fenced block says how it is run:

    sh                 commands of the program, which must succeed; `> FILE` may follow
    console            commands after `$ `, each followed by what it prints
    python             a program
    python WORD        a program that needs the package WORD: tensorflow, torch
    text output        what the program before it prints
    yaml NAME          a file of this name
    sh WORD            commands for an engine, or for workers elsewhere, which
                       tests/clusters runs
    text, mermaid      nothing that runs

All blocks of a page run in order, in a folder that has the sources of `page_sources`.
"""

import dataclasses
import importlib.util
import os
import pathlib
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator

from tests.support import runs

ROOT = pathlib.Path(__file__).resolve().parents[2]
_DOCS = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (ROOT / "docs").rglob("*.md")
    if "_build" not in path.parts
)
PAGES = ["README.md", *_DOCS]
ENGINES = ("flink", "spark", "prism")
ELSEWHERE = "elsewhere"
# What `docs/code_parts.py` writes into a page shows names and signatures.
_FROM_CODE = re.compile(r"^<!-- from the code: .*?^<!-- end -->$", re.M | re.S)
_BLOCK = re.compile(r"^```(?P<kind>[^\n]*)\n(?P<text>.*?)^```$", re.M | re.S)
_PACKAGES = ("tensorflow", "torch")
_SECONDS = 300
# What differs from run to run in what the program prints.
_TIMES = re.compile(r"\(\d+\.\d s, [\d,]+ records/s, ")


@dataclasses.dataclass(frozen=True)
class Block:
    """A fenced block: its language, the word after it, its text and its line."""

    language: str
    word: str
    text: str
    line: int

    @property
    def package(self) -> str:
        """The package that a program needs beside this one; empty for none."""
        return self.word if self.word in _PACKAGES else ""


def blocks_of(page: str) -> list[Block]:
    """Returns the blocks of a page in order; directives of Sphinx are none."""
    text = (ROOT / page).read_text(encoding="utf-8")
    text = _FROM_CODE.sub(lambda part: "\n" * part[0].count("\n"), text)
    found = []
    for match in _BLOCK.finditer(text):
        language, _, word = match["kind"].partition(" ")
        line = text.count("\n", 0, match.start()) + 1
        if not language.startswith("{"):
            found.append(Block(language, word.strip(), match["text"], line))
    return found


def packages_of(page: str) -> set[str]:
    """Returns the packages that the programs of a page need."""
    return {block.package for block in blocks_of(page)} - {""}


def run_page(page: str, folder: pathlib.Path) -> None:
    """Runs every block of a page in a folder.

    Raises:
      AssertionError: a command or program fails, or prints something else than the page
        says; names the page and the line.
    """
    printed = ""
    for block in blocks_of(page):
        where = f"{page}:{block.line}"
        match block.language, block.word:
            case ("sh", ""):
                for line in _lines(block.text):
                    _run(line, folder, where)
            case ("console", ""):
                for command, expected in _dialogue(block.text, where):
                    printed = _run(command, folder, where)
                    assert _without_times(printed) == _without_times(expected), where
            case ("python", word) if not word or block.package:
                if not word or importlib.util.find_spec(word):
                    program = [sys.executable, "-c", block.text]
                    printed = _execute(program, folder, where)
            case ("text", "output"):
                assert _without_times(printed) == _without_times(block.text), where
            case ("yaml", name) if name:
                (folder / name).write_text(block.text, encoding="utf-8")
            case ("sh", word) if word in (*ENGINES, ELSEWHERE):
                pass
            case ("text" | "mermaid", ""):
                pass
            case _:
                raise AssertionError(f"{where}: nothing runs such a block")


def _lines(text: str) -> Iterator[str]:
    r"""Yields commands, each on one line, or on several that end with `\`."""
    yield from filter(None, text.replace("\\\n", " ").splitlines())


def _dialogue(text: str, where: str) -> Iterator[tuple[str, str]]:
    """Yields each command with what it prints."""
    before, *parts = re.split(r"^\$ ", text, flags=re.M)
    assert not before, f"{where}: a dialogue starts with '$ '"
    for part in parts:
        command, _, printed = part.partition("\n")
        yield command, printed


def _without_times(printed: str) -> str:
    lines = (line.rstrip() for line in _TIMES.sub("(", printed).strip().splitlines())
    return "\n".join(lines)


def _run(line: str, folder: pathlib.Path, where: str) -> str:
    program, *arguments = shlex.split(line)
    assert program == "beam-tfrecord", f"{where}: {line}"
    target = None
    if arguments[-2:-1] == [">"]:
        *arguments, _, target = arguments
    done = runs.process(*arguments, cwd=folder, env=_environment(), timeout=_SECONDS)
    printed = _printed(done, where)
    if target:
        (folder / target).write_text(printed, encoding="utf-8")
    return printed


def _execute(command: list[str], folder: pathlib.Path, where: str) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env=_environment(),
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    return _printed(done, where)


def _environment() -> dict[str, str]:
    return {**os.environ, "COLUMNS": "100"}


def _printed(done: "subprocess.CompletedProcess[str]", where: str) -> str:
    """Returns what a run that must have succeeded has printed."""
    assert not done.returncode, f"{where}: {done.args}\n{done.stdout}\n{done.stderr}"
    return done.stdout
