"""Tests of `unit/storage/test_paths.py` that start processes."""

import pickle
import subprocess
import sys

from transforms.storage import paths


def test_access_goes_to_other_processes_and_shows_nothing() -> None:
    """Unpickled elsewhere, the parameters hold there; printed, they do not show."""
    paths.plain("s3://b/k?secret_key=hush")
    access = paths.Access()
    assert "hush" not in repr(access)
    code = (
        "import pickle, sys; from transforms.storage import paths; "
        "pickle.loads(bytes.fromhex(sys.argv[1])); "
        "print(paths.parameters_of('s3://b'))"
    )
    arguments = [sys.executable, "-c", code, pickle.dumps(access).hex()]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "{'secret_key': 'hush'}"
