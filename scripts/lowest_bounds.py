"""Prints the requirements of setup.py, each at its lower bound, a line each.

python scripts/lowest_bounds.py               what the program needs
python scripts/lowest_bounds.py NAME..        these of the extra `test`
"""

import pathlib
import runpy
import sys
from typing import Any

import setuptools

SETUP = pathlib.Path(__file__).resolve().parent.parent / "setup.py"


def main() -> None:
    """Prints them."""
    given: dict[str, Any] = {}
    setuptools.setup = given.update
    runpy.run_path(str(SETUP))
    chosen = list(given["install_requires"])
    if len(sys.argv) > 1:
        test = given["extras_require"]["test"]
        chosen = [text for text in test if text.partition(">=")[0] in sys.argv[1:]]
    for text in chosen:
        name, found, bound = text.partition(">=")
        if not found:
            sys.exit(f"{text!r} has no lower bound")
        print(f"{name}=={bound.partition(',')[0]}")


if __name__ == "__main__":
    main()
