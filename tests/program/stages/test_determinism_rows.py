"""Rows give the same bytes from run to run, whatever tool wrote them."""

import os
import pathlib
from typing import Any

import numpy as np
import pytest

from tests.support.golden_datasets import pets
from tests.support.outputs import (
    contents,
    dataset,
    manifest,
    names,
    rows,
)
from tests.support.runs import convert, process, python
from tests.support.segments import IN_FILES, IN_MEMORY
from tests.support.sources import write_csv
from transforms.core.placing import hashes

Folder = pathlib.Path

pytestmark = pytest.mark.usefixtures("without_runner")


def test_fault_136_a_locale_of_another_encoding(tmp_path: Folder) -> None:
    """Where Python would read file names otherwise, the error says what to set."""
    pets(tmp_path / "pets")
    ascii_names = {**os.environ, "LC_ALL": "POSIX", "PYTHONUTF8": "0"}
    job = ("plan", tmp_path / "pets", tmp_path / "out")
    said = process(*job, env=ascii_names)
    assert said.returncode == 2
    assert "Set PYTHONUTF8=1" in said.stderr
    assert "Traceback" not in said.stderr
    seen = process(*job, env=ascii_names | {"PYTHONUTF8": "1"})
    assert seen.returncode == 0, seen.stderr
    assert "\\uace0\\uc591\\uc774" in seen.stdout or "고양이" in seen.stdout
    code = "import sys, beam_pipeline; beam_pipeline.convert(*sys.argv[1:])"
    refused = python("-c", code, tmp_path / "pets", tmp_path / "out", env=ascii_names)
    assert "File names must be read as UTF-8" in refused.stderr
    assert "Set PYTHONUTF8=1" in refused.stderr
    assert not (tmp_path / "out").exists()


def test_fault_139_equal_hashes_lose_no_row(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows whose hashes are equal all stay, in the order of the source."""

    def equal(origins: Any, numbers: Any, **_: Any) -> np.ndarray:
        return np.full(len(numbers), 7, np.uint64)

    monkeypatch.setattr(hashes, "hash_rows", equal)
    for folder, lines in (("a", range(300)), ("b", range(300, 500))):
        write_csv(tmp_path / "s" / f"{folder}.csv", "n", lines)
    for where in (IN_MEMORY, IN_FILES):
        out = tmp_path / where
        convert(tmp_path / "s", out, where, "--shards", 2)
        assert [row["n"] for row in rows(out)] == list(range(500))
    assert contents(tmp_path / IN_MEMORY) == contents(tmp_path / IN_FILES)


def test_fault_140_versions_of_codecs_are_recorded(tmp_path: Folder) -> None:
    """The manifest says which libraries encoded; that decides no digest."""
    pets(tmp_path / "pets")
    options = ("--image-format", "jpeg", "--max-reject-rate", 0.1)
    convert(tmp_path / "pets", tmp_path / "out", *options)
    versions = manifest(tmp_path / "out")["run"]["versions"]
    assert {"pillow", "libjpeg-turbo", "zlib", "pyarrow", "python"} <= set(versions)
    assert all(versions.values())
    assert "versions" not in str(dataset(tmp_path / "out"))
    assert "manifest.json" in names(tmp_path / "out")
