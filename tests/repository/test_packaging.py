"""The contents of a wheel, and its types as type checkers see them."""

import ast
import os
import pathlib
import subprocess
import sys
import venv
import zipfile

import pytest

import beam_tfrecord
from tests.support.wheels import build_wheel

Folder = pathlib.Path
ROOT = pathlib.Path(__file__).parents[2]
PACKAGES = ("beam_pipeline", "beam_tfrecord", "transforms")


# What users do with each public name; lines that end in `wrong` must be found.
PROGRAM = """
import beam_tfrecord as b

version: str = b.__version__
report: b.Report = b.convert("photos", "out/photos", splits={"train": 0.9, "test": 0.1})
b.convert("rows.csv", "out/rows", shards=4, compression="gzip", overwrite=True)
records: int = report.records
by_reason: dict[str, int] = report.rejected
plan = b.make_plan(b.make_spec({"source": "rows.csv", "output": "out/rows"}))
name: str = b.convert_plan(plan, beam_flags=["--runner=FnApiRunner"]).name

def doubled(batch: b.Batch) -> int:
    return 2 * len(batch.numbers)

schema = b.Schema((b.Feature("height", b.Kind.FLOAT),))
rows = b.rows_of([{"height": 1.5}, {"height": None}], schema)
examples: list[bytes] = b.encode_examples(rows)
rows = b.decode_examples(examples)
written = b.WriteTFRecords("out/numbers", file_name_suffix=".tfrecord", num_shards=2)
shards: int = written.num_shards
pattern: str = b.ReadTFRecords("out/*.tfrecord", validate=False).file_pattern
record: bytes = b.encode_example({"height": 1.5})
row: dict[str, object] = b.decode_example(record)
steps = [b.EncodeExamples(), b.DecodeExamples(), b.ReadAllTFRecords(with_filename=True)]
writing = b.WriteDataset("out/flowers", label="kind", splits={"train": 1}, num_shards=2)
reading = b.ReadDataset("out/flowers", split="train", columns=["kind"], batches=True)
source = b.ReadRows("rows.csv", batches=True)
count: int = len(b.open_dataset("out/flowers", labels="names")["train"][::2])
b.convert("photos", "data/flowers/1.0.0", name="flowers")
read: type[b.RowsRead] = b.RowsRead
committed: type[b.Committed] = b.Committed
stages = [b.ListBlocks, b.ReadBlocks, b.PlaceRows, b.CountShards, b.WriteShards]
last: type[b.CommitDataset] = b.CommitDataset
try:
    b.convert("photos", "out/photos")
except b.TFRecordError as error:
    offset: int = error.offset
except (b.BusyError, b.RaceError) as error:
    later: int = error.exit_code
except (b.InputError, b.SourceError, b.SpecError, b.TargetError, b.UsageError) as error:
    code: int = error.exit_code
except (b.ExampleError, b.DamageError, b.EncodingError, b.RejectLimitError):
    pass
except b.RecordCountError:
    pass
except (b.StorageError, b.WorkerError, b.ConservationError, b.CommitError):
    raise
except b.BeamTFRecordError:
    pass

b.read_exampels  # wrong
b.convert("photos")  # wrong
b.open_dataset("out/flowers", labels="name")  # wrong
b.convert("photos", 1)  # wrong
b.convert("photos", "out/photos", shrads=4)  # wrong
b.convert("photos", "out/photos", shards="many")  # wrong
b.convert("photos", "out/photos", overwrite=1)  # wrong
b.convert("photos", "out/photos", shards="4")  # wrong
b.convert("photos", "out/photos", compression="gzp")  # wrong
report.record  # wrong
b.WriteTFRecords("out/numbers", num_shards="2")  # wrong
b.encode_examples(rows).rows  # wrong
b.UniformRowLength("2")  # wrong
b.WriteDataset("out/flowers", num_shards="2")  # wrong
b.WriteDataset("out/flowers", shrads=2)  # wrong
b.encode_example([1])  # wrong
"""


@pytest.fixture(scope="module")
def wheel_file(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """Returns a wheel that is built offline from a copy of the sources."""
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def wheel(wheel_file: Folder) -> list[str]:
    """Returns the names in the wheel."""
    with zipfile.ZipFile(wheel_file) as archive:
        return archive.namelist()


@pytest.fixture(scope="module")
def installed(wheel_file: Folder, tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """Returns the Python of an environment that has the wheel, and no sources."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder)
    (packages,) = folder.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel_file) as archive:
        archive.extractall(packages)
    # What the wheel requires, from here; a .pth file of those is not read again.
    here = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "here.pth").write_text("\n".join(here), encoding="utf-8")
    return folder / "bin" / "python"


def test_a_wheel_holds_the_modules_and_their_data(wheel: list[str]) -> None:
    """Every module of the three packages, and no tests."""
    modules = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
    }
    assert modules <= set(wheel)
    tops = {name.partition("/")[0] for name in wheel}
    assert {top for top in tops if not top.endswith(".dist-info")} == set(PACKAGES)


def test_the_program_uses_every_public_name() -> None:
    """The program that is checked below leaves no name out."""
    tree = ast.parse(PROGRAM)
    attributes = {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
    names = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    assert set(beam_tfrecord.__all__) <= attributes | names


def test_programs_that_use_the_wheel_pass_mypy_strict(
    installed: Folder, tmp_path: Folder
) -> None:
    """Public names have types where they are installed: right uses pass, wrong fail."""
    pytest.importorskip("mypy")
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    mypy = [sys.executable, "-m", "mypy", "--strict", "--config-file="]
    # What numpy and others say is checked once.
    mypy += [f"--cache-dir={ROOT / '.mypy_cache' / 'wheel'}", "--no-error-summary"]
    done = subprocess.run(
        [*mypy, f"--python-executable={installed}", "program.py"],
        cwd=tmp_path,
        env={k: v for k, v in os.environ.items() if k != "MYPYPATH"},
        capture_output=True,
        text=True,
        check=False,
    )
    faults = {int(line.split(":")[1]) for line in done.stdout.splitlines()}
    lines = enumerate(PROGRAM.splitlines(), 1)
    wrong = {number for number, line in lines if line.endswith("# wrong")}
    assert faults == wrong, done.stdout + done.stderr
