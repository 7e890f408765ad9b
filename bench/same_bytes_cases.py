"""The cases of `same_bytes.py`: what is run, and the exit code that must follow.

Sources are those of `same_bytes_sources.py`, or real data where there is some. Each
step runs in a folder of the case alone, so outputs are relative.
"""

import dataclasses
from collections.abc import Mapping, Sequence

__all__ = ["PYTHON", "Case", "cases"]

# The first word of a step that is a function of `same_bytes_programs.py`.
PYTHON = "python"

_OK = 0
_ERROR = 1
_USAGE = 2
_REJECTS = 3
_SOURCE = 4


@dataclasses.dataclass(frozen=True)
class Case:
    """Steps that run one after the other.

    Attributes:
      steps: the words of each: a command with its arguments, or PYTHON and a program.
      code: the exit code of the last step; those before it end with 0.
      library: the library that it needs beside those that the program requires.
    """

    steps: Sequence[Sequence[str]]
    code: int = _OK
    library: str = ""


def _converts(
    source: str, options: str = "", *, code: int = _OK, library: str = ""
) -> Case:
    """Returns the case of one conversion."""
    steps = [("convert", source, "set", *options.split(), "--quiet")]
    return Case(steps, code, library)


def _changes(source: str, *commands: str, code: int = _OK) -> Case:
    """Returns the case of a conversion and of commands on its dataset."""
    first = ("convert", source, "set", "--quiet")
    return Case([first, *(command.split() for command in commands)], code)


def cases(made: str, data: str) -> Mapping[str, Case]:
    """Returns the cases by name.

    Args:
      made: the folder of the sources that are made.
      data: the folder of real data; empty for none.
    """
    return {
        **_tables(made),
        **_images(made),
        **_other_formats(made),
        **_commands(made),
        **_failures(made),
        **_python(),
        **(_real(data) if data else {}),
    }


def _tables(made: str) -> dict[str, Case]:
    rows, small = f"{made}/rows.csv", f"{made}/small.csv"
    return {
        "rows": _converts(rows, "--shards 3"),
        "rows-2-workers": _converts(rows, "--shards 3 --workers 2"),
        "rows-keyed": _converts(rows, "--key-column id --splits a=0.7,b=0.3"),
        "rows-grouped": _converts(rows, "--group-column word --splits a=0.7,b=0.3"),
        "rows-by-column": _converts(rows, "--split-column flag"),
        "rows-in-order": _converts(rows, "--no-shuffle --shards 2"),
        "rows-seed": _converts(rows, "--seed 5 --limit 5000"),
        "rows-shard-size": _converts(rows, "--shard-size 1MB"),
        "gzip-output": _converts(small, "--compression gzip --shards 2"),
        "gzip-csv": _converts(f"{made}/small.csv.gz"),
        "gzip-json-lines": _converts(f"{made}/rows.jsonl.gz"),
        "number-classes": _converts(small, "--label-column class"),
        "word-classes": _converts(small, "--label-column word --splits a=0.9,b=0.1"),
        "table-stratified": _converts(
            small, "--label-column word --stratify-column word --splits a=0.8,b=0.2"
        ),
        "locks": _converts(
            small,
            "--label-column word --key-column id "
            "--split-lock splits.lock --splits a=0.9,b=0.1",
        ),
        "no-sidecars": _converts(small, "--no-index --no-catalogue"),
        "bad-cells": _converts(
            f"{made}/bad.csv",
            f"--spec {made}/bad.yaml --max-reject-rate 0.5 --keep-rejected-bytes",
        ),
        "ragged-rows": _converts(f"{made}/ragged.csv", "--max-reject-rate 0.5"),
        "quoted": _converts(f"{made}/quoted.csv"),
        "wide": _converts(f"{made}/wide.csv"),
        "300-files": _converts(f"{made}/many"),
        "files-by-split": _converts(f"{made}/by-split"),
    }


def _images(made: str) -> dict[str, Case]:
    photos, damaged = f"{made}/photos", f"{made}/damaged"
    return {
        "photos": _converts(photos),
        "photos-4-shards-2-workers": _converts(photos, "--shards 4 --workers 2"),
        "photos-resized": _converts(photos, "--resize shorter:24"),
        "photos-cropped": _converts(photos, "--resize crop:20x20 --image-format png"),
        "photos-stratified": _converts(
            f"{photos}/train", "--splits a=0.8,b=0.2 --stratify-column label"
        ),
        "photos-tutorial-names": _converts(photos, "--preset tutorial"),
        "photos-imagenet-names": _converts(photos, "--preset imagenet"),
        "photos-vocabulary": _converts(photos, f"--vocabulary {made}/classes.txt"),
        "photos-label-table": _converts(
            f"{photos}/train",
            f"--labels {made}/photo-labels.csv --id-column id --label-column kind",
        ),
        "photos-unlabelled": _converts(photos, "--unlabelled --no-index"),
        "number-folders": _converts(f"{made}/numbered"),
        "kinds-of-images": _converts(f"{made}/mixed"),
        "kinds-of-images-resized": _converts(f"{made}/mixed", "--resize shorter:24"),
        "kinds-of-images-exif": _converts(f"{made}/mixed", "--exif apply"),
        "kinds-of-images-rgb": _converts(f"{made}/mixed", "--channels 3"),
        "damaged-images": _converts(damaged, "--max-reject-rate 0.5"),
        "zip": _converts(f"{made}/photos.zip"),
        "tar-gz": _converts(f"{made}/photos.tar.gz"),
        "webdataset": _converts(f"{made}/samples"),
        "coco": _converts(f"{made}/coco"),
        "coco-resized": _converts(f"{made}/coco", "--resize shorter:24 --shards 2"),
        "coco-bad-boxes": _converts(f"{made}/coco-bad", "--max-reject-rate 0.3"),
        "coco-clipped": _converts(f"{made}/coco-bad", "--bad-box clip"),
        "voc": _converts(f"{made}/voc"),
        "voc-number-classes": _converts(f"{made}/voc-numbers", "--first-pixel 1"),
        "voc-turned": _converts(f"{made}/voc-turned", "--exif apply"),
        "automl": _converts(f"{made}/automl"),
        "automl-boxes": _converts(f"{made}/automl-boxes"),
        "images-by-content": _converts(f"{made}/images-by-content/rows.csv"),
        "metadata": _converts(f"{made}/metadata", "--label-column label"),
    }


def _other_formats(made: str) -> dict[str, Case]:
    return {
        "json-lines": _converts(f"{made}/rows.jsonl"),
        "parquet": _converts(f"{made}/rows.parquet"),
        "parquet-columns": _converts(
            f"{made}/rows.parquet", "--drop tags,box --label-column name --shards 2"
        ),
        "parquet-sounds": _converts(f"{made}/sounds.parquet"),
        "arrow": _converts(f"{made}/rows.arrow"),
        "avro": _converts(f"{made}/rows.avro", library="fastavro"),
        "npy": _converts(f"{made}/matrix.npy"),
        "npz": _converts(f"{made}/arrays.npz", "--label-column y"),
        "npz-columns": _converts(f"{made}/arrays.npz", "--columns x,y"),
        "cifar": _converts(f"{made}/cifar"),
        "cifar-png": _converts(f"{made}/cifar", "--image-format png"),
        "idx": _converts(f"{made}/digits"),
        "tfrecord": _converts(f"{made}/tfrecord"),
        "tfrecord-sharded": _converts(
            f"{made}/tfrecord", "--shards 4 --compression gzip --drop values"
        ),
        "gzip-tfrecord": _converts(f"{made}/tfrecord-gz", "--splits a=0.8,b=0.2"),
    }


def _commands(made: str) -> dict[str, Case]:
    photos, small = f"{made}/photos", f"{made}/small.csv"
    return {
        "dataset": _converts(
            f"{made}/datasets/0", "--splits a=0.9,b=0.1 --resize shorter:20"
        ),
        "datasets": _converts(f"{made}/datasets", "--drop height,width"),
        "subset": _changes(photos, "subset set part --label horse"),
        "merge": _changes(
            photos,
            f"convert {made}/numbered other --quiet",
            "merge set other joined",
        ),
        "export-images": _changes(photos, "export set files"),
        "export-table": _changes(small, "export set files --format parquet"),
        "index": Case([("index", f"{made}/tfrecord", "-o", "index")]),
        "repair": Case([("repair", f"{made}/tfrecord-damaged", "sound")]),
        "replaced": _changes(small, f"convert {photos} set --overwrite --quiet"),
        "up-to-date": _changes(small, f"convert {small} set --quiet"),
    }


def _failures(made: str) -> dict[str, Case]:
    small = f"{made}/small.csv"
    return {
        "too-many-rejects": _converts(
            f"{made}/bad.csv", f"--spec {made}/bad.yaml", code=_REJECTS
        ),
        "too-many-damaged-images": _converts(f"{made}/damaged", code=_REJECTS),
        "too-many-bad-boxes": _converts(f"{made}/coco-bad", code=_REJECTS),
        "no-source": _converts(f"{made}/nothing.csv", code=_USAGE),
        "target-taken": _changes(
            small, f"convert {made}/quoted.csv set --quiet", code=_USAGE
        ),
        "unknown-column": _converts(small, "--label-column colour", code=_USAGE),
        "unknown-setting": _converts(small, f"--spec {made}/unknown.yaml", code=_USAGE),
        "unclosed-quote": _converts(f"{made}/unclosed.csv", code=_SOURCE),
        "cut-parquet": _converts(f"{made}/cut.parquet", code=_SOURCE),
        "damaged-tfrecord": _converts(f"{made}/tfrecord-damaged", code=_SOURCE),
        "cut-tfrecord": _converts(f"{made}/tfrecord-cut", code=_SOURCE),
        "repair-onto-source": _changes(small, "repair set set", code=_USAGE),
        "merge-with-itself": _changes(small, "merge set set both", code=_USAGE),
    }


def _python() -> dict[str, Case]:
    fine = (
        *("rows", "generator", "arrays", "frame", "write-dataset", "write-batches"),
        *("read-rows", "write-tfrecords", "examples"),
    )
    return {
        **{f"python-{name}": Case([(PYTHON, name)]) for name in fine},
        "python-too-many-rejects": Case([(PYTHON, "too-many-rejects")], _ERROR),
    }


def _real(data: str) -> dict[str, Case]:
    clothing, tables = f"{data}/clothing", f"{data}/tabular"
    return {
        "clothing": _converts(clothing),
        "clothing-4-shards-2-workers": _converts(clothing, "--shards 4 --workers 2"),
        "clothing-resized": _converts(clothing, "--resize shorter:64"),
        "clothing-stratified": _converts(
            f"{clothing}/test", "--splits train=0.8,test=0.2 --stratify-column label"
        ),
        "landmarks": _converts(
            f"{data}/landmarks/train",
            f"--labels {data}/landmarks/train.csv --id-column id "
            "--label-column landmark_id",
        ),
        "cifar-10": _converts(f"{data}/cifar-10-batches-bin"),
        "diamonds": _converts(f"{tables}/diamonds.csv", "--label-column cut"),
        "diamonds-splits": _converts(
            f"{tables}/diamonds.csv", "--splits train=0.9,test=0.1 --shards 5"
        ),
        "titanic": _converts(f"{tables}/titanic.csv"),
        "penguins": _converts(f"{tables}/penguins.csv"),
        "taxis": _converts(f"{tables}/taxis.csv"),
    }
