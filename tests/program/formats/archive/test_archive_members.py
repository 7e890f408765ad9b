"""Tests of `unit/formats/archive/test_archive_members.py` that start processes."""

import pathlib
import shutil
import subprocess

import pytest

from tests.support.archives import FILES, contents, faults, found_in, zip_of
from tests.support.sources import write_files
from transforms.core.reasons import Reason


@pytest.mark.parametrize("tool", ["zip", "tar", "tar -z", "tar -J", "tar -j", "tar -I"])
def test_archives_of_the_command_line_tools(tool: str, tmp_path: pathlib.Path) -> None:
    """What zip and tar write is read, with long names, folders and `./` before."""
    name = tool.partition(" ")[0]
    if shutil.which(name) is None or (tool == "tar -I" and not shutil.which("zstd")):
        pytest.skip(f"no {tool} here")
    files = {**FILES, f"deep/{'d' * 120}/{'n' * 150}.jpg": b"long"}
    write_files(tmp_path / "in", files)
    archive = tmp_path / "out.archive"
    options = {"tar -I": ["-I", "zstd -q"]}.get(tool, tool.split(" ")[1:])
    if name == "zip":
        archive = tmp_path / "out.zip"
        command = ["zip", "-q", "-r", str(archive), "."]
    else:
        command = ["tar", *options, "-cf", str(archive), "."]
    subprocess.run(command, cwd=tmp_path / "in", check=True)
    assert contents(archive.read_bytes()) == files


def test_fault_123_encrypted_member(tmp_path: pathlib.Path) -> None:
    """A member with a password is a fault, also as the zip tool writes it."""
    data = bytearray(zip_of({"a.jpg": b"secret", "b.jpg": b"plain"}))
    data[6] |= 1
    data[data.index(b"PK\x01\x02") + 8] |= 1
    assert faults(bytes(data)) == {"a.jpg": Reason.ENCRYPTED}
    if shutil.which("zip") is None:
        pytest.skip("no zip here")
    (tmp_path / "a.jpg").write_bytes(b"secret")
    command = ["zip", "-q", "-P", "password", "out.zip", "a.jpg"]
    subprocess.run(command, cwd=tmp_path, check=True)
    made = (tmp_path / "out.zip").read_bytes()
    assert faults(made) == {"a.jpg": Reason.ENCRYPTED}


def test_fault_123_sparse_member(tmp_path: pathlib.Path) -> None:
    """A sparse file's data are a map and pieces, not its content: a fault."""
    if shutil.which("tar") is None:
        pytest.skip("no tar here")
    with open(tmp_path / "a.bin", "wb") as file:
        file.truncate(10_000_000)
        file.seek(5_000_000)
        file.write(b"x")
    for made in ("gnu", "pax"):
        command = ["tar", "--sparse", f"--format={made}", "-cf", "out.tar", "a.bin"]
        subprocess.run(command, cwd=tmp_path, check=True)
        found = found_in((tmp_path / "out.tar").read_bytes())
        assert [i.data for i in found] == [None]
        assert found[0].member.reason is Reason.UNSUPPORTED_METHOD
