"""The settings of `convert`, as flags and in files, from end to end."""

import pathlib

import pytest
import yaml

from tests.support.outputs import (
    contents,
    dataset,
    manifest,
    rejects,
    rows,
)
from tests.support.runs import convert, refused
from tests.support.sources import write_files

# The stages' own code: what is tested here is not up to Beam.
pytestmark = pytest.mark.usefixtures("without_runner")

Folder = pathlib.Path


def test_a_manifest_is_a_spec(small: Folder, tmp_path: Folder) -> None:
    """The spec in a manifest makes the same bytes again."""
    flags = (
        "--splits a=0.7,b=0.3 --seed 5 --shards 2 --label-column word --no-shuffle "
        "--name other --compression gzip --limit 7 --include *.csv"
    )
    convert(small, tmp_path / "out", *flags.split())
    spec = manifest(tmp_path / "out")["run"]["spec"]
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(spec))
    for name, path in (
        ("whole", tmp_path / "out" / "manifest.json"),
        ("part", tmp_path / "job.yaml"),
    ):
        convert(small, tmp_path / name, "--spec", path)
        assert contents(tmp_path / name) == contents(tmp_path / "out")
        assert dataset(tmp_path / name) == dataset(tmp_path / "out")


class TestOptions:
    def test_quiet_prints_nothing(self, small: Folder, tmp_path: Folder) -> None:
        """--quiet leaves both streams empty."""
        run = convert(small, tmp_path / "out", "--quiet")
        assert (run.out, run.err) == ("", "")

    def test_a_feature_name_may_hold_an_equals_sign(
        self, photos: Folder, tmp_path: Folder
    ) -> None:
        """The first one ends the role, and the rest is the name."""
        convert(photos, tmp_path / "out", "--feature-name", "label=kind=class")
        assert "kind=class" in rows(tmp_path / "out")[0]

    def test_only_rejects_with_min_records_0(self, tmp_path: Folder) -> None:
        """All images bad, all tolerated: committed if an empty dataset is allowed."""
        source = write_files(tmp_path / "tree", {"a/x.jpg": b"", "a/y.jpg": b""})
        options = ("--max-reject-rate", 1)
        message = refused(3, source, tmp_path / "out", *options)
        assert "all 2 were rejected: empty_file: 2, as a/x.jpg: " in message
        assert "--min-records 0" in message
        convert(source, tmp_path / "out", *options, "--min-records=0")
        assert len(rejects(tmp_path / "out")) == 2
