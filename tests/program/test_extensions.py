"""The lists of CONTRIBUTING.md are complete: a module and a line, and it works.

Each test copies the program, adds what such a list names, and runs it end to end.
"""

import json
import pathlib
import shutil
import subprocess
import sys
import zipfile

import pytest

ROOT = pathlib.Path(__file__).parents[2]
FORMAT = '''"""A format: a name and a number on each line, with a colon between."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np
import pyarrow as pa

from transforms.core.model import Block
from transforms.formats.table import (
    InputFile,
    Planned,
    RawRows,
    TableReader,
    TableSample,
)

__all__ = ["PairsReader"]


@dataclasses.dataclass(frozen=True, slots=True)
class PairsReader(TableReader):
    title: ClassVar[str] = "pairs"

    null_values: tuple[str, ...] = ()

    def plan(self, files: Sequence[InputFile]) -> Planned:
        found = [_columns(file) for file in files]
        columns = {
            name: pa.chunked_array([each[name] for each in found])
            for name in ("name", "number")
        }
        rows = len(columns["name"])
        return Planned(self, TableSample(columns, rows, total_rows=rows, complete=True))

    def blocks(
        self, file: InputFile, *, block_bytes: int, limit_rows: int | None
    ) -> Iterator[Block]:
        rows = len(_columns(file)["name"])
        if rows:
            yield file.whole(rows=min(rows, limit_rows or rows))

    def read(
        self, file: InputFile, block: Block, columns: Sequence[str]
    ) -> Iterator[RawRows]:
        found = {n: c[: block.rows] for n, c in _columns(file).items() if n in columns}
        yield RawRows(block, found, np.arange(block.rows))


def _columns(file: InputFile) -> dict[str, pa.Array]:
    with file.open() as stream:
        pairs = [line.split(":") for line in stream.read().decode().splitlines()]
    return {
        "name": pa.array([name for name, _ in pairs], pa.string()),
        "number": pa.array([int(number) for _, number in pairs], pa.int64()),
    }
'''
ENTRY = """    "pairs": Format(
        "pairs",
        "pairs.PairsReader",
        suffixes=(".pairs",),
        options=("null_values",),
        in_archives=True,
        stems=True,
    ),
"""
SIDECAR = '''"""A sidecar: the number of records of each shard, one line each."""

from collections.abc import Mapping

from transforms.core.manifest import Manifest
from transforms.sidecars.sidecar import Rendered, Sidecar

__all__ = ["SIDECAR"]


def _render(manifest: Manifest, _: Mapping[int, str]) -> Rendered:
    shards = [shard for split in manifest.splits for shard in split.shards]
    lines = [f"{shard.file} {shard.records}\\n" for shard in shards]
    note = f"counts.txt counts the records of {len(shards)} shards"
    return Rendered({"counts.txt": "".join(lines).encode()}, (note,))


SIDECAR = Sidecar(_render)
'''

ENGINE = '''"""An engine: Beam's simplest runner, in this process."""

import dataclasses
from collections.abc import Sequence

from beam_pipeline.engines.engine import AddStages, Engine, JobSettings, Place
from beam_pipeline.engines.hooks import RunHooks
from transforms.work.reports import Reports

__all__ = ["SIMPLE"]


@dataclasses.dataclass(frozen=True)
class _Simple(Engine):
    def place(self, settings: JobSettings, beam_flags: Sequence[str]) -> Place:
        return Place("", "")

    def run(
        self,
        add_stages: AddStages,
        place: Place,
        hooks: RunHooks,
        *,
        work_folder: str,
        reports: Reports,
    ) -> None:
        import apache_beam as beam
        from apache_beam.options.pipeline_options import PipelineOptions

        from beam_pipeline.engines.submission import run_watched

        options = PipelineOptions([*self.presets(place), *hooks.beam_flags])
        pipeline = beam.Pipeline(self.beam_name, options)
        add_stages(pipeline)
        run_watched(pipeline, lambda: None, hooks)
        hooks.say(f"{self.name} has run the job")


SIMPLE = _Simple(
    name="simple",
    runner="apache_beam.runners.direct.direct_runner:BundleBasedDirectRunner",
    presets=lambda place: ["--job_name=simple"],
)
'''


@pytest.fixture
def program(tmp_path: pathlib.Path) -> pathlib.Path:
    """Returns a folder with a copy of the program."""
    for package in ("transforms", "beam_pipeline"):
        without = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / package, tmp_path / package, ignore=without)
    return tmp_path


def add_line(module: pathlib.Path, before: str, line: str) -> None:
    """Adds text to a module, before other text that is in it once."""
    text = module.read_text(encoding="utf-8")
    assert text.count(before) == 1
    module.write_text(text.replace(before, line + before), encoding="utf-8")


def run(program: pathlib.Path, *arguments: str) -> str:
    """Runs a command of the copy; returns all that it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "beam_pipeline", *arguments],
        cwd=program,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_format_is_one_module_and_one_entry(program: pathlib.Path) -> None:
    """A new format is recognised, split by stems, read in archives and documented."""
    formats = program / "transforms" / "formats"
    (formats / "pairs.py").write_text(FORMAT, encoding="utf-8")
    add_line(formats / "registry.py", '    "numpy": Format(', ENTRY)
    source = program / "source"
    source.mkdir()
    (source / "train.pairs").write_text("a:1\nb:2\n-:3\n", encoding="utf-8")
    (source / "test.pairs").write_text("d:4\n", encoding="utf-8")
    run(program, "convert", "source", "out", "--null-values", "-")
    manifest = json.loads((program / "out" / "manifest.json").read_text())
    splits = {s["name"]: s["records"] for s in manifest["dataset"]["splits"]}
    assert splits == {"train": 3, "test": 1}
    with zipfile.ZipFile(program / "a.zip", "w") as archive:
        archive.write(source / "train.pairs", "x/train.pairs")
    run(program, "convert", "a.zip", "of-zip")
    assert "3 records" in run(program, "verify", "of-zip")
    said = " ".join(run(program, "convert", "--help").split())
    assert "arrow, avro, pairs, numpy" in said


def test_sidecar_is_one_module_and_one_line(program: pathlib.Path) -> None:
    """A new sidecar is published, noted, checked by `verify` and repaired."""
    sidecars = program / "transforms" / "sidecars"
    (sidecars / "counts.py").write_text(SIDECAR, encoding="utf-8")
    table = sidecars / "table.py"
    add_line(
        table,
        "from transforms.sidecars import tensorflow_metadata, tfds\n",
        "import transforms.sidecars.counts\n",
    )
    add_line(table, "label_map_file.SIDECAR,", "transforms.sidecars.counts.SIDECAR,")
    (program / "rows.csv").write_text("a,b\n1,x\n2,y\n3,z\n", encoding="utf-8")
    run(program, "convert", "rows.csv", "out", "--shards", "1", "--no-shuffle")
    (shard,) = (program / "out").glob("*.tfrecord*")
    assert (program / "out" / "counts.txt").read_text() == f"{shard.name} 3\n"
    manifest = json.loads((program / "out" / "manifest.json").read_text())
    assert "counts.txt" in [facts["file"] for facts in manifest["dataset"]["files"]]
    assert "counts.txt counts the records of 1 shards" in manifest["run"]["notes"]
    run(program, "verify", "out")
    # The last record is damaged: the sidecar counts those that are left.
    data = shard.read_bytes()
    shard.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    run(program, "repair", "out", "repaired")
    assert (program / "repaired" / "counts.txt").read_text() == f"{shard.name} 2\n"


def test_engine_is_one_module_and_one_line(program: pathlib.Path) -> None:
    """A new engine is known to `--runner` and runs a job from plan to commit."""
    engines = program / "beam_pipeline" / "engines"
    (engines / "simple.py").write_text(ENGINE, encoding="utf-8")
    table = engines / "table.py"
    line = "from beam_pipeline.engines.simple import SIMPLE\n"
    add_line(table, "from beam_pipeline.engines.spark import SPARK\n", line)
    text = table.read_text(encoding="utf-8")
    table.write_text(text.replace("(FLINK, SPARK", "(SIMPLE, FLINK, SPARK"))
    (program / "rows.csv").write_text("a,b\n1,x\n2,y\n3,z\n", encoding="utf-8")
    said = run(program, "convert", "rows.csv", "out", "--runner", "simple")
    assert "simple has run the job" in said
    assert "3 records" in run(program, "verify", "out")
    assert "local, simple, flink" in run(program, "convert", "--help")


def test_setting_is_one_entry(program: pathlib.Path) -> None:
    """A new setting is a flag, a key of specs and a keyword, and checked as all are."""
    settings = program / "beam_pipeline" / "settings" / "options.py"
    add_line(
        settings,
        "    verify: bool | None = _run(",
        '    greeting: Literal["hello", "bye"] = _run("bye", "Say this at the end.")\n',
    )
    running = program / "beam_pipeline" / "running" / "convert.py"
    add_line(running, "    return manifest\n", "    hooks.say(plan.spec.greeting)\n")
    (program / "rows.csv").write_text("a,b\n1,x\n2,y\n3,z\n", encoding="utf-8")
    (program / "job.yaml").write_text("greeting: hello\n", encoding="utf-8")
    help_text = run(program, "convert", "--help")
    assert "--greeting [hello|bye]" in help_text
    assert "Say this at the end." in help_text
    flags = ("rows.csv", "out", "--overwrite")
    assert "hello" in run(program, "convert", *flags, "--greeting", "hello")
    # It decides no bytes, so the dataset is up to date.
    assert "up to date" in run(program, "convert", *flags, "--greeting", "bye").lower()
    assert "hello" in run(program, "convert", *flags[:1], "out2", "--spec", "job.yaml")
    code = "import beam_pipeline; beam_pipeline.convert('rows.csv', 'o', greetng='bye')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=program,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "there is no setting 'greetng' (did you mean 'greeting'?)" in done.stderr
