"""What the pages of a real Spark driver say of a job whose workers do not start."""

import dataclasses
import pathlib

import pytest

from beam_pipeline.api import convert
from beam_pipeline.engines import spark_jobs
from beam_pipeline.engines.cluster import Cluster
from beam_pipeline.engines.engine_words import EngineWords, ServerWords
from beam_pipeline.engines.presets import ENGINES, SPARK
from transforms.errors import BeamTFRecordError

Folder = pathlib.Path

# Beam leaves the output of the job server that it has started open.
pytestmark = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning",
    "ignore::ResourceWarning",
)


def test_what_became_of_tasks(
    spark: Cluster, tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason why tasks have failed is read there, while the job is tried again."""
    source, worker = tmp_path / "rows.csv", tmp_path / "worker"
    source.write_text("id,name\n1,a\n2,b\n")
    worker.write_text("#!/bin/sh\nexit 7\n")
    worker.chmod(0o755)
    said: list[tuple[str | None, EngineWords]] = []

    def words(master: str, name: str, server: ServerWords) -> EngineWords:
        # Alone what the pages say.
        server.lines.clear()
        found = spark_jobs.words_of_job(master, name, server)
        said.append((server.pages, found))
        return found

    monkeypatch.setattr(spark_jobs, "_FIRST_SECONDS", 0.0)
    monkeypatch.setitem(ENGINES, "spark", dataclasses.replace(SPARK, words=words))
    with pytest.raises(BeamTFRecordError):
        convert(
            source,
            tmp_path / "out",
            runner="spark",
            spark_master=spark.master,
            worker_command=str(worker),
            shared_output=True,
        )
    assert any(
        pages and "Process died with exit code 7" in found.error
        for pages, found in said
    )
    assert not (tmp_path / "out").exists()
