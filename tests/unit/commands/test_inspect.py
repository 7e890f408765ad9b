"""`inspect`: facts of the manifest."""

import pathlib
import shutil

import pytest

from beam_pipeline.commands import inspect
from beam_pipeline.datasets.dataset import open_target
from beam_pipeline.terminal import count_text, share_text, size_text
from tests.support.datasets import animals, write_dataset
from tests.support.kinds import EVERY_KIND, row_of_every_kind, write_kinds
from transforms.core.manifest import MANIFEST_NAME, Account
from transforms.errors import UsageError

Folder = pathlib.Path
GOLDEN = Folder(__file__).parents[2] / "data" / "golden"


def printed(path: Folder, capsys: pytest.CaptureFixture[str]) -> str:
    assert inspect.show(str(path)) == 0
    return capsys.readouterr().out


def test_dataset(tmp_path: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    """The whole text of a small one: no colour, no frames, no line over 80."""
    manifest = write_dataset(
        tmp_path / "out",
        {"train": animals(40, 50), "test": animals(2, start=50), "x": []},
        account=Account(97, 92, {"field_count": 2}, {"hidden": 3}),
    )
    out = printed(tmp_path / "out", capsys).replace(manifest.digest[:12], "<digest>")
    assert out == (GOLDEN / "inspect.txt").read_text()


def test_dataset_needs_no_record(
    tmp_path: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    """The manifest knows it all."""
    write_dataset(tmp_path / "out", {"train": animals(3)})
    before = printed(tmp_path / "out", capsys)
    (tmp_path / "out" / "animals-train.tfrecord-00000-of-00001").unlink()
    assert printed(tmp_path / "out", capsys) == before
    assert printed(tmp_path / "out" / MANIFEST_NAME, capsys) == before


def test_empty_dataset(tmp_path: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    """Without records there are no ranges or shares."""
    write_dataset(tmp_path / "out", {"train": [[]]})
    assert "0 records" in printed(tmp_path / "out", capsys)


def test_files_without_a_manifest(tmp_path: Folder) -> None:
    """A shard, a folder and a pattern are named, with the commands that read them."""
    write_dataset(tmp_path / "out", {"train": animals(3)})
    shard = tmp_path / "out" / "animals-train.tfrecord-00000-of-00001"
    (tmp_path / "bare").mkdir()
    shutil.copy(shard, tmp_path / "bare")
    for path in (shard, tmp_path / "bare", tmp_path / "bare" / "*"):
        with pytest.raises(UsageError, match="'verify'") as caught:
            inspect.show(str(path))
        assert str(path) in str(caught.value)


def test_no_dataset(tmp_path: Folder) -> None:
    """A directory without a manifest, with shards or without, and no path at all."""
    with pytest.raises(UsageError, match="convert"):
        open_target(str(tmp_path))
    for number in range(5):
        (tmp_path / f"x.tfrecord-{number}").touch()
    with pytest.raises(UsageError, match="TFRecord file"):
        open_target(str(tmp_path))
    with pytest.raises(UsageError, match=str(tmp_path / "none")):
        open_target(str(tmp_path / "none"))


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1_000, "1.0 kB"),
        (99_949, "99.9 kB"),
        (99_951, "100 kB"),
        (999_999, "1.0 MB"),
        (150_000_000, "150 MB"),
        (2 * 10**15, "2,000 TB"),
    ],
)
def test_sizes(size: int, expected: str) -> None:
    """Three digits or so, in powers of 1,000."""
    assert size_text(size) == expected


def test_shares_and_counts() -> None:
    """Neither all nor none is said of what is only nearly so."""
    assert share_text(999_999, 1_000_000) == "> 99.9 %"
    assert share_text(1, 1_000_000) == "< 0.1 %"
    assert (share_text(5, 5), share_text(0, 5)) == ("100 %", "0 %")
    assert count_text(1, "class", "classes") == "1 class"
    assert count_text(1_000, "shard") == "1,000 shards"


def test_dataset_of_every_kind(
    tmp_path: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    """Kinds with their shapes, ranges with how many, instants, the account of boxes."""
    parts = {"boxes": {"read": 7, "written": 2, "rejected": 4, "gone": 1}}
    account = Account(3, 2, {"bad_box": 1}, parts=parts)
    rows = [row_of_every_kind(), {"words": [], "tags": ["cat", "dog", "dog"]}]
    manifest = write_kinds(tmp_path / "out", rows, EVERY_KIND, account=account)
    out = printed(tmp_path / "out", capsys).replace(manifest.digest[:12], "<digest>")
    assert out == (GOLDEN / "inspect_kinds.txt").read_text()
