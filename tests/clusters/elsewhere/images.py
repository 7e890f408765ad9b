"""Images of the examples as folders: the program's, Flink's and Spark's.

What an image's base and its libraries are is linked from here; what its Dockerfile does
is done.
"""

import importlib.metadata
import os
import pathlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence

from packaging.requirements import Requirement

from tests.clusters.elsewhere.containers import IMAGE, KUBERNETES, image
from tests.clusters.elsewhere.machines import Machine
from tests.support.wheels import build_wheel

__all__ = ["AT", "PATH", "engine_image", "given", "link", "program_image"]

Folder = pathlib.Path

AT = "/opt/image"
"""Where the program's environment is in its image."""
PATH = f"{AT}/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
_PYTHON = Folder(sys.base_prefix)


def given(folder: Folder) -> dict[str, Folder]:
    """Returns what a machine sees that runs the image of a folder."""
    return {AT: folder, str(_PYTHON): _PYTHON}


def program_image(
    folder: Folder, wheels: Folder, hidden: Sequence[Folder], extras: str = ""
) -> None:
    """Makes the image of examples/image/Dockerfile in a folder.

    Its base has Python, pip and the libraries that the wheel asks for, in the versions
    of here, as files that are linked; pip finds them there and fetches nothing.

    Args:
      folder: to be made.
      wheels: an empty folder, for the wheel.
      hidden: what the image's machine must not see.
      extras: other ones than the Dockerfile's, in brackets.
    """
    make = [sys.executable, "-m", "venv", "--without-pip", str(folder)]
    subprocess.run(make, check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    said = image(IMAGE)
    own = "".join(re.findall(r"\[[a-z0-9,]+\]", said.runs[0]))
    wanted = extras or own
    names = {*_required(f"beam-tfrecord{wanted}")} - {"beam-tfrecord"}
    for name in (*names, "pip"):
        _link_distribution(name, packages)
    pip = folder / "bin" / "pip"
    pip.write_text(f'#!/bin/sh\nexec {AT}/bin/python -m pip "$@"\n')
    pip.chmod(0o755)
    if not list(wheels.glob("*.whl")):
        sources = wheels.with_name("wheel-sources")
        shutil.copy(build_wheel(sources), wheels)
        shutil.rmtree(sources)
    ((source, target),) = said.copied
    assert source == "dist/"
    pins = [f"{name}=={importlib.metadata.version(name)}\n" for name in sorted(names)]
    (wheels / "constraints.txt").write_text("".join(pins))
    builder = Machine(
        "builder",
        hidden=hidden,
        given={str(_PYTHON): _PYTHON, target.rstrip("/"): wheels},
        kept={AT: folder},
    )
    try:
        for run in said.runs:
            command = ["sh", "-euc", run.replace(own, wanted)]
            done = builder.run(command, {"PATH": PATH, "PIP_NO_INDEX": "1"})
            assert done.returncode == 0, done.stdout + done.stderr
    finally:
        builder.end()


def engine_image(folder: Folder, home: Folder, jar: Folder) -> None:
    """Makes the image of examples/kubernetes/flink.Dockerfile in a folder."""
    shutil.copytree(home, folder, symlinks=True, copy_function=link)
    text = (KUBERNETES / "flink.Dockerfile").read_text()
    ((name, target),) = re.findall(r"^COPY (\S+) /opt/flink/(\S+)$", text, re.M)
    link(str(jar), str(folder / target / name))


def link(source: str, target: str) -> None:
    """Links a file; copies it where that is on another disk."""
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, target, follow_symlinks=False)


def _required(text: str) -> Iterator[str]:
    """Yields a requirement's package and all that it requires, as installed here."""
    seen: set[tuple[str, str]] = set()
    waiting = [Requirement(text)]
    while waiting:
        wanted = waiting.pop()
        for extra in ("", *wanted.extras):
            if (key := (wanted.name.lower(), extra)) in seen:
                continue
            seen.add(key)
            yield wanted.name
            for each in importlib.metadata.requires(wanted.name) or ():
                further = Requirement(each)
                if further.marker is None or further.marker.evaluate({"extra": extra}):
                    waiting.append(further)


def _link_distribution(name: str, packages: Folder) -> None:
    for file in importlib.metadata.files(name) or ():
        source = Folder(str(file.locate()))
        if ".." in file.parts or not source.is_file():
            continue
        target = packages / file
        target.parent.mkdir(parents=True, exist_ok=True)
        link(str(source), str(target))
