"""Plans the images of a store of any number of names, and measures the job.

    python -m tests.support.plan_of_store NAMES FOLDER

Writes FOLDER/measured.json: the seconds of each step, and the bytes of the listing and
of the pipeline as an engine gets it. The work folder is made in FOLDER, and removed.
"""

import json
import os
import pathlib
import sys
import time
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pyarrow.fs as pafs
import pytest

from beam_pipeline.graph import build, make_job
from beam_pipeline.planning.plan import make_plan
from beam_pipeline.running.convert import open_work_folder
from beam_pipeline.settings.spec import make_spec
from tests.support.flat_store import WRITTEN, FlatStore, install

_CLASSES = 1000
_IMAGE_BYTES = 100_000


class _LargeStore(FlatStore):
    """Images in 1,000 folders, which are made up when they are listed."""

    def __init__(self, names: int) -> None:
        super().__init__("bucket")
        self._names = names

    def get_file_info(self, asked: Any) -> Any:
        """Answers for `pafs.FileSystem`."""
        if isinstance(asked, pafs.FileSelector):
            return list(self._infos(asked.base_dir, asked.recursive))
        return pafs.FileInfo(asked, pafs.FileType.Directory)

    def _infos(self, base: str, recursive: bool) -> Iterator[pafs.FileInfo]:
        if not recursive:
            for number in range(_CLASSES):
                path = f"{base}/class-{number:03}"
                yield pafs.FileInfo(path, pafs.FileType.Directory)
            return
        for name in range(int(base[-3:]), self._names, _CLASSES):
            path = f"{base}/image-{name:08}.jpg"
            yield pafs.FileInfo(
                path, pafs.FileType.File, mtime=WRITTEN, size=_IMAGE_BYTES
            )


def _measure(names: int, folder: str) -> dict[str, float]:
    begun = time.perf_counter()
    given = {"source": "s3://bucket/in", "output": os.path.join(folder, "out")}
    with pytest.MonkeyPatch.context() as patch:
        install(_LargeStore(names), patch)
        plan = make_plan(make_spec(given))
    planned = time.perf_counter()
    with open_work_folder(plan, say=lambda _: None) as (store, _):
        listing = os.path.getsize(store.listing)
        pipeline = beam.Pipeline()
        build(pipeline, make_job(plan, store))
        job = pipeline.to_runner_api().SerializeToString()
        stored = time.perf_counter()
    (records,) = plan.planned.records.values()
    (shards,) = plan.sharding.shards.values()
    return {
        "records": records,
        "shards": shards,
        "plan seconds": planned - begun,
        "store seconds": stored - planned,
        "processor seconds": time.process_time(),
        "listing bytes": listing,
        "job bytes": len(job),
    }


if __name__ == "__main__":
    measured = json.dumps(_measure(int(sys.argv[1]), sys.argv[2]))
    pathlib.Path(sys.argv[2], "measured.json").write_text(measured)
