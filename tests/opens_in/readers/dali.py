"""NVIDIA DALI: `fn.readers.tfrecord` with the text index, on the CPU."""

import glob
from collections.abc import Iterator
from typing import Any

import nvidia.dali.tfrecord as tfrec
from nvidia.dali import fn, pipeline_def

from tests.opens_in.report import report

_FEATURES = {
    "image": tfrec.FixedLenFeature([], tfrec.string, ""),
    "label": tfrec.FixedLenFeature([], tfrec.int64, -1),
    "filename": tfrec.FixedLenFeature([], tfrec.string, ""),
    "height": tfrec.FixedLenFeature([], tfrec.int64, -1),
    "id": tfrec.FixedLenFeature([], tfrec.int64, -1),
    "age": tfrec.FixedLenFeature([], tfrec.int64, -1),
    "weight": tfrec.FixedLenFeature([], tfrec.float32, -1.0),
    "animal": tfrec.FixedLenFeature([], tfrec.int64, -1),
}


def rows(folder: str, names: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    shards = sorted(glob.glob(f"{folder}/*-train.tfrecord-*"))
    # A text that is missing stops DALI, so it is not asked for.
    asked = [name for name in names if name != "note"]

    @pipeline_def(batch_size=1, num_threads=1, device_id=None)  # type: ignore[untyped-decorator]
    def one() -> Any:
        row = fn.readers.tfrecord(
            path=shards,
            index_path=[f"{folder}/index/{_name(shard)}.idx" for shard in shards],
            features={name: _FEATURES[name] for name in asked},
            name="reader",
        )
        return tuple(row[name] for name in asked)

    pipeline = one()
    pipeline.build()
    for _ in range(pipeline.epoch_size("reader")):
        values = [tensors.as_array()[0] for tensors in pipeline.run()]
        yield dict.fromkeys(names) | dict(zip(asked, values, strict=True))


def _name(path: str) -> str:
    return path.rpartition("/")[2]


report(rows, "nvidia-dali-cuda120")
