"""Python environments for tests, made once and kept in the user's cache."""

import subprocess
import sys
from collections.abc import Sequence

from clusters.notes import cache_folder

from tests.clusters.runs import ROOT

__all__ = ["environment"]


def environment(name: str, *wanted: str, pins: Sequence[str] = ()) -> str:
    """Returns the interpreter of an environment; makes it where it is another.

    Args:
      name: of the environment.
      wanted: what pip is to install.
      pins: versions of whatever that brings along.
    """
    version = "{}.{}".format(*sys.version_info)
    folder = cache_folder() / "environments" / f"{name}-{version}"
    stamp, python = folder / "installed", folder / "bin" / "python"
    content = "\n".join([str(ROOT), *wanted, *pins, ""])
    if not stamp.is_file() or stamp.read_text() != content:
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        constraints = folder / "constraints"
        constraints.write_text("\n".join(pins))
        install = [
            str(python),
            "-m",
            "pip",
            "install",
            "--quiet",
            "-c",
            str(constraints),
        ]
        subprocess.run([*install, *wanted], check=True)
        stamp.write_text(content)
    return str(python)
