"""`convert` from the command line to the committed directory."""

import os
import pathlib
import subprocess
import sys

import pytest

from tests.support.runs import command, convert, done, refused

Folder = pathlib.Path


class TestOutputDirectory:
    @pytest.mark.parametrize("output", [".", "./", "..", "../../out", "../in"])
    def test_the_current_folder_is_not_replaced(
        self,
        output: str,
        small: Folder,
        tmp_path: Folder,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """An output that is the shell's folder, or above it, is refused before work."""
        (tmp_path / "out" / "in").mkdir(parents=True)
        monkeypatch.chdir(tmp_path / "out" / "in")
        assert "current folder" in refused(2, small, output)
        found = {path.name for path in tmp_path.rglob("*")}
        assert found == {"source", "small.csv", "out", "in"}

    def test_an_output_that_is_not_utf8_shows_no_traceback(
        self, small: Folder, tmp_path: Folder
    ) -> None:
        """A target named in bytes works, or is an error of one line (row 24)."""
        out = os.fsencode(tmp_path) + b"/outs/bad\xff"
        run = subprocess.run(
            [sys.executable, "-m", "beam_pipeline", "convert", str(small), out],
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert run.returncode in (0, 2), run.stderr
        assert b"Traceback" not in run.stderr
        (tmp_path / "outs").mkdir(exist_ok=True)
        left = os.listdir(os.path.dirname(out))
        assert left == ([b"bad\xff"] if run.returncode == 0 else [])


class TestPlan:
    def test_plan_refuses_what_convert_refuses(
        self, small: Folder, tmp_path: Folder
    ) -> None:
        """A plan that could not be carried out ends with 2 as well."""
        convert(small, tmp_path / "out")
        assert command("plan", small, tmp_path / "out", "--seed", 1).code == 2
        run = done("plan", small, tmp_path / "out")
        assert run.out.startswith("up to date")
        assert command("plan", tmp_path / "nothing.csv", tmp_path / "o").code == 2
