"""A bad network, wrong settings, missing clients: an intact result or a clear end."""

import contextlib
import dataclasses
import json
import os
import re
import time
from pathlib import Path

import pytest

from tests.storage.conftest import PETS, Server
from tests.storage.fault_proxy import FaultProxy, Rule
from tests.storage.program import Program, assert_same, assert_whole, manifest_at
from tests.support.outputs import contents
from transforms.errors import StorageError, WorkerError
from transforms.storage.files import storage
from transforms.work.worker_check import (
    Reports,
    WorkerRules,
    check_worker,
)

# A run that cannot go on must end within this time, on a busy machine too.
_END_SECONDS = 75
_PUTS = ("PUT", "POST")
_UNUSED = "http://127.0.0.1:9"
# Python loads a module of this name, if there is one, before all others.
_WITHOUT_EXTRAS = """import sys

class _Missing:
    def find_spec(self, name, path=None, target=None):
        if name in ("boto3", "botocore", "google.cloud.storage"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, _Missing())
"""
_PASSING = {
    "refused": (
        Rule("status", status=503, code="SlowDown", every=11, times=None),
        Rule("status", status=500, skip=5, every=11, times=None),
    ),
    "cut": (
        Rule("cut_request", after_bytes=10, every=11, times=None),
        Rule("cut_answer", skip=4, every=11, times=None),
        Rule("cut_answer", after_bytes=10, skip=8, every=11, times=None),
    ),
    "slow": (Rule("stall", seconds=1.5, every=11, times=None),),
}


@pytest.mark.parametrize("faults", sorted(_PASSING))
def test_faults_that_pass(
    server: Server, pets: Path, local_pets: Path, tmp_path: Path, faults: str
) -> None:
    """From bucket to bucket: nothing is lost, nothing doubled, and nothing rejected."""
    server.write_tree("in", pets)
    with FaultProxy(server.endpoint) as proxy:
        program = Program(server.through(proxy.endpoint), tmp_path)
        proxy.set(*_PASSING[faults])
        program.run("convert", f"{server.url}/in", f"{server.url}/out", *PETS)
        assert proxy.count() > 11
    assert_same(server, "out", local_pets)


def test_the_first_bytes_of_a_file_are_refused(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is opened again; Arrow calls a file of Google's store closed after that."""
    server.write("a", b"0123456789" * 1000)
    with FaultProxy(server.endpoint) as proxy:
        for name, value in server.through(proxy.endpoint).environment.items():
            monkeypatch.setenv(name, value)
        for skip in range(3):
            proxy.set(Rule("status", status=503, code="SlowDown", skip=skip))
            assert storage(f"{server.url}/a").read_range(5, 9) == b"5678"


def test_faults_that_stay(
    server: Server, pets: Path, local_pets: Path, tmp_path: Path
) -> None:
    """The run ends with our message and exit code 1; the next one is as if none."""
    server.write_tree("in", pets)
    busy = Rule("status", status=503, code="SlowDown", times=None)
    begins = {
        "at-once": busy,
        "later": dataclasses.replace(busy, methods=_PUTS, contains="/pets-"),
        "at-the-end": dataclasses.replace(
            busy, methods=_PUTS, contains="manifest.json"
        ),
    }
    flags = ("--report-json", "report.json")
    with contextlib.ExitStack() as stack:
        runs = {}
        begin = time.monotonic()
        for name, rule in begins.items():
            proxy = stack.enter_context(FaultProxy(server.endpoint))
            proxy.set(rule)
            (tmp_path / name).mkdir()
            program = Program(server.through(proxy.endpoint), tmp_path / name)
            arguments = ("convert", f"{server.url}/in", f"{server.url}/{name}", *PETS)
            runs[name] = program, program.started(*arguments, *flags)
        for name, (program, process) in runs.items():
            done = program.ended(process)
            assert done.code == 1, (name, done)
            assert "run again" in done.err
            assert "Traceback" not in done.err
            report = json.loads((tmp_path / name / "report.json").read_text())
            assert report["status"] == "failed"
            assert server.keys(f"{name}/manifest") == []
        assert time.monotonic() - begin < _END_SECONDS
    program = Program(server, tmp_path)
    for name in ("later", "at-the-end"):
        program.run("convert", f"{server.url}/in", f"{server.url}/{name}", *PETS)
        assert_same(server, name, local_pets)


@pytest.mark.parametrize("stands", [False, True], ids=["fresh", "overwrite"])
def test_the_answer_to_the_commit_is_lost(
    server: Server, pets: Path, tmp_path: Path, stands: bool
) -> None:
    """The manifest is there, so the run has committed, and says so."""
    arguments = ["convert", pets, f"{server.url}/out", *PETS]
    if stands:
        Program(server, tmp_path).run(*arguments, "--seed", "1")
        arguments.append("--overwrite")
    with FaultProxy(server.endpoint) as proxy:
        program = Program(server.through(proxy.endpoint), tmp_path)
        proxy.set(
            Rule("cut_answer", methods=_PUTS, contains="out/manifest.json"),
            Rule("cut_answer", methods=_PUTS, contains="/uses/"),
        )
        assert "committed" in program.run(*arguments).out
        assert sum("out/manifest.json" in each.target for each in proxy.changes) == 2
    assert_whole(server, "out")


def test_large_files_go_up_in_parts(
    s3_server: Server, tmp_path: Path, measures: Path
) -> None:
    """A part that fails is put again; an upload that fails leaves no parts."""
    (tmp_path / "rows.csv").write_text(
        "a,b\n" + "".join(f"{n},{'x' * 1000}{n}\n" for n in range(40_000))
    )
    arguments = ("convert", "rows.csv", f"{s3_server.url}/out", "--shards", "1")
    with FaultProxy(s3_server.endpoint) as proxy:
        program = Program(s3_server.through(proxy.endpoint), tmp_path)
        fails = Rule("status", methods=("PUT",), contains="partNumber=2", times=None)
        proxy.set(fails)
        program.run(*arguments, code=1)
        assert s3_server.uploads() == []
        proxy.set(
            Rule("cut_request", after_bytes=2 << 20, methods=("PUT",), contains="part"),
            Rule("cut_answer", methods=("PUT",), contains="partNumber=3"),
        )
        program.run(*arguments)
        assert proxy.count("PUT", "partNumber=3") == 2
    assert_whole(s3_server, "out")


def test_wrong_settings(server: Server, pets: Path, tmp_path: Path) -> None:
    """What does not lead to a bucket ends the run before it works, and says why."""
    variables = ("AWS_ENDPOINT_URL", "STORAGE_EMULATOR_HOST")
    wrong: dict[str, dict[str, str]] = {
        "there is no such bucket": {},
        "[Cc]onnect": dict.fromkeys(variables, _UNUSED),
        "resolve": dict.fromkeys(variables, "http://nobody.invalid:80"),
    }
    if server.store == "s3":
        # The emulator of the other store knows no accounts.
        wrong["403|ACCESS_DENIED|SIGNATURE"] = {"AWS_SECRET_ACCESS_KEY": "other"}
    begin = time.monotonic()
    runs = {}
    for said, environment in wrong.items():
        program = Program(server, tmp_path, **environment)
        bucket = server.url if environment else f"{server.url}-missing"
        runs[said] = program, program.started("convert", pets, f"{bucket}/out")
    for said, (program, process) in runs.items():
        done = program.ended(process)
        assert done.code in (1, 2), done
        assert re.search(said, done.err), done
        assert "Traceback" not in done.err
        assert len(done.err.encode()) < 4096
    assert time.monotonic() - begin < _END_SECONDS


def test_secrets_are_nowhere(s3_server: Server, pets: Path, tmp_path: Path) -> None:
    """URI parameters reach every process, and no output, message or object."""
    s3_server.write_tree("in", pets)
    host = s3_server.endpoint.removeprefix("http://")
    secret = s3_server.secret_key
    asked = (
        f"?endpoint_override={host}&scheme=http&region=us-east-1"
        f"&access_key={s3_server.access_key}&secret_key={secret}"
    )
    program = Program(Server("gcs", _UNUSED, s3_server.bucket), tmp_path)
    target = f"{s3_server.url}/out"
    flags = (*PETS, "--workers", "2", "--report-json", "report.json")
    convert = ("convert", f"{s3_server.url}/in{asked}", f"{target}{asked}", *flags)
    said = [program.run(*convert), program.run(*convert)]
    said.append(program.run(*convert, "--seed", "1", code=2))
    said.append(program.run("verify", f"{target}{asked}"))
    prefixed = f"s3://{s3_server.access_key}:{secret}@{s3_server.bucket}/out"
    asked_without = asked.partition("&access")[0]
    said.append(program.run("inspect", f"{prefixed}{asked_without}", code=2))
    said.append(program.run("inspect", f"{target}/none{asked}", code=2))
    for each in said:
        assert secret not in each.out + each.err
    assert secret not in (tmp_path / "report.json").read_text()
    for key in s3_server.keys("out"):
        assert secret.encode() not in s3_server.read(key)
    assert manifest_at(s3_server, "out").records == 32


def test_without_the_extra(
    server: Server, pets: Path, local_pets: Path, tmp_path: Path
) -> None:
    """All can be read; a run that writes there ends before it begins, and says why."""
    server.write_tree("in", pets)
    server.write_tree("there", local_pets)
    (tmp_path / "sitecustomize.py").write_text(_WITHOUT_EXTRAS)
    program = Program(server, tmp_path, PYTHONPATH=str(tmp_path))
    program.run("convert", f"{server.url}/in", "here", *PETS)
    assert contents(tmp_path / "here") == contents(local_pets)
    assert "sound" in program.run("verify", f"{server.url}/there").out
    before = server.keys()
    for target in ("out", "there"):
        arguments = ("convert", pets, f"{server.url}/{target}", *PETS, "--overwrite")
        refused = program.run(*arguments, code=2)
        assert f"pip install 'beam-tfrecord[{server.store}]'" in refused.err
    assert server.keys() == before


def test_a_worker_that_the_store_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable is named that the submitter has and the worker has not."""

    def rules(bucket: str) -> WorkerRules:
        reports = Reports(f"s3://{bucket}/.out.beam-tfrecord/job/reports-run", "")
        variables = ("AWS_ACCESS_KEY_ID", "AWS_ENDPOINT_URL_S3")
        return WorkerRules({}, dict, reports, variables=variables)

    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", _UNUSED)
    with pytest.raises(WorkerError, match="give it AWS_ACCESS_KEY_ID,") as caught:
        check_worker(rules("no-such-bucket"))
    assert "AWS_ENDPOINT_URL_S3" not in str(caught.value)
    # Nobody answers there: that may pass.
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "tester")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    with pytest.raises(StorageError, match="'s3://other/"):
        check_worker(rules("other"))
