"""Datasets as TFDS writes them."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import pytest


def write_with_tfds(
    folder: pathlib.Path,
    features: Mapping[str, Any],
    splits: Mapping[str, Sequence[Mapping[str, Any]]],
) -> None:
    """Writes a dataset "zoo", up to 4 records a shard."""
    core = pytest.importorskip("tensorflow_datasets").core
    identity = core.DatasetIdentity(
        name="zoo",
        config_name="",
        version=core.Version("1.0.0"),
        data_dir=str(folder),
        module_name="zoo",
    )
    info = core.DatasetInfo(builder=identity, features=features)
    writer = core.SequentialWriter(info, max_examples_per_shard=4)
    writer.initialize_splits([*splits])
    writer.add_examples(splits)
    writer.close_all()
