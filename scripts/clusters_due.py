"""Says whether the tests on real engines and stores must run again.

    python scripts/clusters_due.py          says why they do; exit code 1 if they do not
    python scripts/clusters_due.py passed   notes that they have passed with this code

`.ci/clusters-passed` names the last commit that passed them and holds the digest of the
files that they test. The digest decides. It needs neither git nor the history of that
commit, so that a shallow clone and a copy without `.git` get the same answer. The tests
are due where the note is missing or holds another digest.
"""

import hashlib
import pathlib
import subprocess
import sys
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parent.parent
NOTE = ".ci/clusters-passed"
# What runs on engines or talks to stores, and the tests of it.
TESTED = (
    "beam_pipeline/beam_internals",
    "beam_pipeline/engines",
    "beam_pipeline/job.py",
    "beam_pipeline/running",
    "docs/engines/elsewhere.md",
    "examples/image",
    "examples/kubernetes",
    "scripts",
    "setup.py",
    "tests/clusters",
    "tests/storage",
    "transforms/files.py",
    "transforms/publishing",
    "transforms/stages",
    "transforms/storage",
)


def main() -> int:
    """Runs the command; returns the exit code."""
    if sys.argv[1:] == ["passed"]:
        text = f"{commit(ROOT)} {digest(ROOT)}\n"
        (ROOT / NOTE).write_text(text, encoding="utf-8")
        return 0
    why = reason(ROOT)
    print(why or "Engines and stores have passed with this code; not run again.")
    return 0 if why else 1


def reason(root: pathlib.Path) -> str:
    """Returns why the tests are due, "" if they are not."""
    try:
        passed, _, noted = (root / NOTE).read_text(encoding="utf-8").partition(" ")
    except OSError:
        return f"{NOTE} is missing: engines and stores have not passed yet."
    if noted.strip() == digest(root):
        return ""
    return f"What runs on engines and stores has changed since {passed[:12]}."


def digest(root: pathlib.Path) -> str:
    """Returns a hash of the names and bytes of all files that the tests are about."""
    total = hashlib.sha256()
    for path in sorted(_files(root)):
        name = path.relative_to(root).as_posix()
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        total.update(f"{content} {name}\n".encode())
    return total.hexdigest()


def commit(root: pathlib.Path) -> str:
    """Returns the commit that is checked out, "unknown" where git cannot say."""
    try:
        done = subprocess.run(
            ["git", "-C", str(root), "rev-parse", "HEAD"],
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()


def _files(root: pathlib.Path) -> Iterator[pathlib.Path]:
    for name in TESTED:
        path = root / name
        if path.is_file():
            yield path
        for found in path.rglob("*"):
            # Files that Python or a build leaves behind are not code.
            if found.is_file() and "__pycache__" not in found.parts:
                yield found


if __name__ == "__main__":
    sys.exit(main())
