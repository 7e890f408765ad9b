"""What opens a dataset in a bucket, before and after an overwrite."""

import json
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest

from tests.opens_in.conftest import Datasets
from tests.opens_in.environments import python_of
from tests.support.runs import command

pytest.importorskip("boto3")
pytest.importorskip("google.cloud.storage")

from tests.storage.conftest import Server, running, with_bucket
from tests.storage.program import Program, manifest_at

Folder = pathlib.Path

_DALI = """
import json, sys, zlib
import nvidia.dali.tfrecord as tfrec
from nvidia.dali import fn, pipeline_def

shards, indexes = json.loads(sys.argv[1])

@pipeline_def(batch_size=1, num_threads=1, device_id=None)
def images():
    features = {"image": tfrec.FixedLenFeature([], tfrec.string, "")}
    return fn.readers.tfrecord(
        path=shards, index_path=indexes, features=features, name="reader"
    )["image"]

pipeline = images()
pipeline.build()
size = pipeline.epoch_size("reader")
found = [pipeline.run()[0].as_array()[0].tobytes() for _ in range(size)]
print(json.dumps(sorted(map(zlib.crc32, found))))
"""
_TFDS = """
import json, sys, zlib
import tensorflow_datasets as tfds

builder = tfds.builder_from_directory(sys.argv[1])
decoders = {"image": tfds.decode.SkipDecoding()}
rows = tfds.as_numpy(builder.as_dataset(split="train", decoders=decoders))
print(json.dumps(sorted(zlib.crc32(row["image"]) for row in rows)))
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """An S3 server with two datasets of the same images; `later` replaced another."""
    for state in running("s3", tmp_path_factory.mktemp("s3")):
        yield with_bucket(state, "buckets")


@pytest.fixture(scope="module", params=["first", "later"])
def dataset(
    request: pytest.FixtureRequest,
    server: Server,
    datasets: Datasets,
    tmp_path_factory: pytest.TempPathFactory,
) -> str:
    """The path of a dataset in the bucket."""
    program = Program(server, tmp_path_factory.mktemp("run"))
    name = f"{request.param}/1.0.0"
    source = pathlib.Path(datasets.photos).parents[2] / "photos"
    arguments = (source, f"{server.url}/{name}", "--name", request.param)
    program.run("convert", *arguments, "--shards", 2)
    if request.param == "later":
        program.run("convert", *arguments, "--shards", 3, "--overwrite")
    (split,) = manifest_at(server, name).splits
    assert len(split.shards) == (3 if request.param == "later" else 2)
    return name


def _images(datasets: Datasets) -> list[int]:
    return sorted(row["image"] for row in datasets.photo_rows.values())


def test_dali_reads_shards_and_indexes(
    server: Server,
    dataset: str,
    datasets: Datasets,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In S3, from the folder that the manifest names; and the program that we print."""
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    manifest = manifest_at(server, dataset)
    names = [shard.file for split in manifest.splits for shard in split.shards]
    folder = manifest.path(f"{server.url}/{dataset}", "").rstrip("/")
    paths = (
        [f"{folder}/{name}" for name in names],
        [f"{folder}/index/{name}.idx" for name in names],
    )
    variables = {**server.environment, "AWS_EC2_METADATA_DISABLED": "true"}
    done = python_of("torch", "-c", _DALI, json.dumps(paths), variables=variables)
    assert done.returncode == 0, done.stderr[-2000:]
    assert _read(done.stdout) == _images(datasets)
    program = command("code", f"{server.url}/{dataset}", "--as", "dali").out
    done = python_of("torch", "-c", program, variables=variables)
    assert "24 records" in done.stdout, done.stderr[-2000:]


def test_tfds_reads_a_copy(
    server: Server, dataset: str, datasets: Datasets, tmp_path: Folder
) -> None:
    """TensorFlow has no S3; the files at the top of a copy say where the shards are."""
    url = f"{server.url}/{dataset}"
    done = python_of("tensorflow", "-c", _TFDS, url, variables=server.environment)
    assert "File system scheme 's3' not implemented" in done.stderr
    for key in server.keys(f"{dataset}/"):
        path = tmp_path / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(server.read(key))
    done = python_of("tensorflow", "-c", _TFDS, str(tmp_path / dataset))
    assert done.returncode == 0, done.stderr[-2000:]
    assert _read(done.stdout) == _images(datasets)


def _read(said: str) -> Any:
    return json.loads(said.splitlines()[-1])
