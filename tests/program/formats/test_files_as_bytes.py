"""Folders of files that are no images: stored as bytes, with label, split and name."""

import pathlib
from typing import Any

from beam_tfrecord import open_dataset
from tests.support.outputs import account, features, split_sizes
from tests.support.runs import command, convert, refused
from tests.support.sources import write_files

Folder = pathlib.Path
TOLERANT = ("--max-reject-rate", "1")


FILES = {
    f"{split}/{label}/{number}.wav": b"RIFF, sound %d" % (number + shift)
    for split, shift in (("train", 0), ("test", 50))
    for label in ("cat", "dog")
    for number in range(4)
}


def rows_of(out: Folder) -> dict[str, dict[str, Any]]:
    """Returns all rows by their file names."""
    found = open_dataset(out, labels="names")
    return {row["filename"]: row for split in found for row in found[split]}


def test_audio_in_class_folders(tmp_path: Folder) -> None:
    """The bytes of each file, its class and split; an empty one is a reject."""
    more = {"train/dog/empty.wav": b"", "train/dog/notes.txt": b"no audio"}
    write_files(tmp_path / "in", FILES | more)
    out = tmp_path / "out"
    convert(tmp_path / "in", out, *TOLERANT)
    assert rows_of(out) == {
        path: {"file": data, "label": path.split("/")[1], "filename": path}
        for path, data in FILES.items()
    }
    assert split_sizes(out) == {"train": 8, "test": 8}
    found = account(out)
    assert found["rejected"] == {"empty_file": 1}
    assert found["skipped"] == {"other_suffix": 1}
    kinds = {name: facts["kind"] for name, facts in features(out).items()}
    assert kinds == {"file": "bytes", "label": "label", "filename": "text"}
    # The settings that `schema` prints make the same dataset.
    spec = tmp_path / "spec.yaml"
    spec.write_text(command("schema", tmp_path / "in").out)
    convert(tmp_path / "in", tmp_path / "again", "--spec", spec, *TOLERANT)
    assert rows_of(tmp_path / "again") == rows_of(out)


def test_any_files_by_their_pattern(tmp_path: Folder) -> None:
    """With --format files and --include; names of features as they are given."""
    files = {f"{label}/{n}.h5": bytes([n]) * 9 for label in "ab" for n in range(5)}
    write_files(tmp_path / "in", files | {"a/x.csv": b"1"})
    refused(4, tmp_path / "in", tmp_path / "out", "--format", "files")
    names = ("--feature-name", "file=data", "--feature-name", "filename=")
    found = ("--format", "files", "--include", "*.h5")
    convert(tmp_path / "in", tmp_path / "out", *found, *names)
    rows = list(open_dataset(tmp_path / "out", labels="names")["train"])
    assert sorted((row["label"], row["data"]) for row in rows) == sorted(
        (path[0], data) for path, data in files.items()
    )
    assert all(set(row) == {"label", "data"} for row in rows)


def test_settings_of_images_are_refused(tmp_path: Folder) -> None:
    """No file is changed, and no setting is dropped in silence."""
    write_files(tmp_path / "in", FILES)
    for option in (("--resize", "exact:2x2"), ("--preset", "imagenet")):
        refused(2, tmp_path / "in", tmp_path / "out", *option)
    run = command("convert", tmp_path / "in", tmp_path / "out", "--max-image-bytes", 9)
    assert run.code == 3, run
