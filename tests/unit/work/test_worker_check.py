"""The check of a worker before it touches data, and what it raises."""

import ast
import dataclasses
import os
import pathlib
import shutil
import time
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pytest

from beam_pipeline.version import deciding_versions
from tests.support.product_code import tree
from transforms.core.model import (
    Block,
    Reading,
)
from transforms.core.schema import Feature, Kind, Schema
from transforms.errors import CommitError, WorkerError
from transforms.formats.csv.sample import CsvReader
from transforms.formats.file_runs import TableSource
from transforms.formats.raw_rows import RawRows
from transforms.storage import visibility
from transforms.storage.visibility import Witness, Worker
from transforms.work import worker_check
from transforms.work.worker_check import (
    Reports,
    WorkerRules,
    check_worker,
)

Folder = pathlib.Path

VERSIONS = {"beam-tfrecord": "1.2.3", "pyarrow": "20.0.0", "libwebp": "1.4.0"}


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test is a process of its own, as far as the check knows."""
    monkeypatch.setattr(visibility, "_known", None)
    monkeypatch.setattr(worker_check, "_checked", set())


def rules(reports: Reports, found: Mapping[str, str] = VERSIONS) -> WorkerRules:
    return WorkerRules(VERSIONS, lambda: found, reports)


def test_local_runs_know_no_worker() -> None:
    """Without rules nothing is checked, and no error names a worker."""
    check_worker(None)
    assert visibility.here() is None
    # As of a pipeline that runs in the process of its submitter.
    check_worker(WorkerRules(VERSIONS, lambda: VERSIONS, named=False))
    assert visibility.here() is None


def test_a_checked_worker_reports(reports: Reports) -> None:
    """From the check on, the process is known, and reports that it is at work."""
    check_worker(rules(reports))
    worker = visibility.here()
    assert worker is not None
    assert worker.process == str(os.getpid())
    names = {*os.listdir(reports.folder)}
    assert names == {f"{worker.host}-{worker.process}.worker", "submitter"}


def test_a_worker_renews_its_report(
    reports: Reports, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a thread of its own, until the run ends; then nothing comes back."""
    monkeypatch.setattr(worker_check, "RENEWED_SECONDS", 0.02)
    reports.sign_on(Worker("a/host of 'mine'", "12"))
    name = "a_host_of__mine_-12.worker"
    assert {*os.listdir(reports.folder)} == {name, "submitter"}
    path = os.path.join(reports.folder, name)
    os.utime(path, (0, 0))
    for _ in range(500):
        if os.stat(path).st_mtime:
            break
        time.sleep(0.01)
    assert os.stat(path).st_mtime
    reports.end()
    time.sleep(0.1)
    assert not os.path.exists(reports.folder)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (
            {**VERSIONS, "beam-tfrecord": "0.0.9"},
            r"has beam-tfrecord 0\.0\.9 and not 1\.2\.3\. Install .*"
            r"pip install 'beam-tfrecord==1\.2\.3' 'pyarrow==20\.0\.0'; nothing",
        ),
        (
            {**VERSIONS, "pyarrow": "21.0.0", "libwebp": "1.5.0"},
            r"libwebp 1\.5\.0 and not 1\.4\.0, pyarrow 21\.0\.0 and not 20\.0\.0\. .*"
            r"'beam-tfrecord==1\.2\.3' 'pyarrow==20\.0\.0'; nothing",
        ),
        ({"beam-tfrecord": "1.2.3", "pyarrow": "20.0.0"}, "libwebp none and not 1.4.0"),
        ({**VERSIONS, "libavif": "1.0"}, "libavif 1.0 and not none"),
    ],
)
def test_other_versions(reports: Reports, found: dict[str, str], said: str) -> None:
    """Refused at the first bundle, each time it is tried; what to install is said."""
    for _ in range(2):
        with pytest.raises(WorkerError, match=said) as caught:
            check_worker(rules(reports, found))
        assert f"(process {os.getpid()})" in str(caught.value)


def test_versions_that_decide_nothing_are_free() -> None:
    """A job of plain rows works with any codec of images, and any zlib."""
    rows = deciding_versions(images=False, compressed=False)
    assert rows.keys() == {"beam-tfrecord", "pyarrow"}
    compressed = deciding_versions(images=False, compressed=True)
    assert compressed.keys() == {*rows, "zlib"}
    assert deciding_versions().keys() > {*compressed, "pillow"}


def test_a_run_that_has_ended_takes_no_worker(reports: Reports) -> None:
    """A task that an engine starts late does not begin, and leaves nothing."""
    reports.end()
    with pytest.raises(CommitError, match="has ended"):
        check_worker(rules(reports))
    assert not os.path.exists(reports.folder)


@pytest.mark.parametrize("there", ["", "not/here"])
def test_a_work_folder_of_another_machine(tmp_path: Folder, there: str) -> None:
    """Not visible is another thing than ended, also where a folder has its name."""
    (tmp_path / there).mkdir(parents=True, exist_ok=True)
    job = tmp_path / "not" / "here" / ".out.beam-tfrecord" / "job"
    asked = rules(Reports(str(job / "reports-r"), ""))
    with pytest.raises(WorkerError, match=r"'.*/not/here/.*/job' is not visible"):
        check_worker(dataclasses.replace(asked, witnesses=(Witness(str(job)),)))


def is_naming(statement: ast.stmt) -> bool:
    """Whether a statement only names parts of what the function is given."""
    if not isinstance(statement, ast.Assign):
        return False
    kinds = (ast.Name, ast.Attribute, ast.Tuple, ast.expr_context)
    return all(isinstance(node, kinds) for node in ast.walk(statement.value))


def begins_with_check(function: ast.FunctionDef) -> bool:
    """Whether nothing but a docstring, and names for what is given, precede it."""
    begin = [
        each
        for each in function.body
        if not (isinstance(each, ast.Expr) or is_naming(each))
    ]
    checks = [
        each
        for each in function.body
        if isinstance(each, ast.Expr)
        and isinstance(each.value, ast.Call)
        and ast.unparse(each.value.func).endswith("check_worker")
    ]
    first = function.body.index(checks[0]) if checks else len(function.body)
    return bool(checks) and all(function.body.index(each) > first for each in begin)


def checks_first(stage: ast.ClassDef) -> bool:
    """Whether a DoFn or CombineFn checks before it does anything.

    A plan that is a side input comes with the first element, before which there is
    nothing to do.
    """
    own = {each.name: each for each in stage.body if isinstance(each, ast.FunctionDef)}
    if "setup" in own:
        if begins_with_check(own["setup"]):
            return True
        if any(isinstance(node, ast.Call) for node in ast.walk(own["setup"])):
            return False
    return "process" in own and begins_with_check(own["process"])


@pytest.mark.parametrize(
    ("stage", "works"),
    [
        (
            "read",
            {"_input_numbers", "_blocks_of_input", "_ReadRows", "_look_up", "_admit"},
        ),
        ("place", {"CutByShard", "count_shards"}),
        ("splits", {"_HashClasses", "_cut", "_check_leaks_of_job"}),
        ("write", {"_WriteFile", "_write_catalogue_part"}),
        ("commit", {"_split_facts_and_commit"}),
    ],
)
def test_every_stage_checks_its_worker_first(stage: str, works: set[str]) -> None:
    """An engine may give any of them to a process that has seen no other."""
    found = set()
    for node in tree(f"transforms.stages.{stage}").body:
        if isinstance(node, ast.ClassDef):
            bases = {ast.unparse(base) for base in node.bases}
            if checks_first(node):
                found.add(node.name)
            elif node.name != "_StoreRows":  # `SharedRun.begin` checks
                assert not bases & {"beam.DoFn", "beam.CombineFn"}, node.name
        elif isinstance(node, ast.FunctionDef) and begins_with_check(node):
            found.add(node.name)
    assert found == works


def test_a_path_that_the_worker_does_not_see(
    reports: Reports, tmp_path: Folder
) -> None:
    """What --shared-output, or an address of this machine, claims is looked at."""
    source = tmp_path / "source"
    (source / "cats").mkdir(parents=True)
    (source / "cats" / "a.jpg").write_bytes(b"1234")
    witness = Witness.of(str(source), "cats/a.jpg")
    seen = dataclasses.replace(rules(reports), witnesses=(witness,))
    check_worker(seen)

    def refused() -> str:
        worker_check._checked.clear()
        with pytest.raises(WorkerError) as caught:
            check_worker(seen)
        return str(caught.value)

    # Another disk, on which a folder has the name.
    (source / "cats" / "a.jpg").write_bytes(b"12345")
    said = refused()
    assert f"{str(source)!r} is not visible to the worker on host" in said
    assert f"has no {str(source / 'cats' / 'a.jpg')!r} of 4 bytes" in said
    shutil.rmtree(source)
    assert "what is there" not in refused()


def test_a_folder_of_which_no_file_is_known(tmp_path: Folder) -> None:
    """Then it must be there, whatever is in it."""
    source = tmp_path / "source"
    source.mkdir()
    witness = Witness.of(str(source), "gone.jpg")
    assert witness == Witness.of(str(source)) == Witness(str(source))
    witness.check()
    source.rmdir()
    with pytest.raises(WorkerError, match="is not visible"):
        witness.check()


def test_an_image_on_the_submitters_disk(reports: Reports, tmp_path: Folder) -> None:
    """The row that names it is in the error; no reject, though the file is there."""
    check_worker(dataclasses.replace(rules(reports), elsewhere=True))
    image = tmp_path / "a.jpg"
    image.touch()
    schema = Schema((Feature("image", Kind.IMAGE),))
    source = TableSource(CsvReader(), "s3://b/in", "", schema)

    def read(*paths: str) -> Reading:
        columns = {"image": pa.array(paths)}
        numbers = np.arange(10, 10 + len(paths))
        block = Block("rows.csv", 0, 1, rows=len(paths))
        return source.reading(RawRows(block, columns, numbers))

    assert len(read("b.jpg", "s3://b/c.jpg").batch.rows) == 2
    with pytest.raises(WorkerError, match=r"a\.jpg', named in row 12 of rows\.csv, is"):
        read("b.jpg", str(image))
