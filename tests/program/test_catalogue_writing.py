"""Section A of the catalogue of faults, writing: the rows without a test elsewhere.

Kills, failing operations, two writers and foreign files: `test_kill_points`; resume and
changed inputs: `test_resume`; retries, signals and full disks: `test_retry`; targets:
`test_convert`; errors at close and in an open file: `unit/test_files`,
`test_kill_points`; changed inputs: `unit/planning/test_plan`; records over 2 GiB:
`unit/core/example/test_encoder`; damaged manifests: `unit/publishing/test_target`,
`unit/commands/test_verify`. Each test has the number of its row.
"""

import os
import pathlib
from typing import Any

import pytest

from beam_pipeline.graph import make_job
from beam_pipeline.planning.plan import make_plan
from beam_pipeline.running.convert import open_work_folder
from beam_pipeline.settings.spec import make_spec
from tests.support import direct_run
from tests.support.direct_run import run_directly
from tests.support.file_operations import watched
from tests.support.outputs import contents
from tests.support.runs import command, convert, failed
from transforms.errors import BeamTFRecordError
from transforms.storage import local
from transforms.storage.files import storage

Folder = pathlib.Path


def settings(source: Folder, out: Folder, **others: Any) -> dict[str, Any]:
    return {"source": str(source), "output": str(out), "name": "set", **others}


def test_row_6_synced_before_it_is_named(small: Folder, tmp_path: Folder) -> None:
    """Data, then name, then folder: in that order, for all that is published."""
    seen: list[tuple[str, str]] = []
    with watched(lambda what, path: seen.append((what, path))):
        run_directly(settings(small, tmp_path / "out", shards=3))
    steps = [what for what, _ in seen]
    named = [
        index
        for index, (what, path) in enumerate(seen)
        if what == "replace" and "/dataset/" in path.rpartition(" -> ")[2]
    ]
    # Three shards, the sidecars and the manifest.
    assert len(named) >= 6
    for index in named:
        # The file that is renamed: it is synced between its last write and this.
        before = steps[:index]
        last_write = len(before) - 1 - before[::-1].index("write")
        assert "fsync" in before[last_write:]
    assert "manifest.json" in seen[named[-1]][1]
    # The first such rename makes the work folder.
    published = next(
        index
        for index, (what, path) in enumerate(seen)
        if what == "rename" and path.endswith(f" -> {tmp_path / 'out'}")
    )
    assert "fsync" in steps[named[-1] : published]
    assert "fsync" in steps[published:]


def test_row_10_an_attempt_that_ends_late_is_never_seen(
    small: Folder, tmp_path: Folder
) -> None:
    """After the commit its file has nowhere to go: an error, and no file."""
    out = tmp_path / "out"
    plan = make_plan(make_spec(settings(small, out)))
    with open_work_folder(plan) as (store, _):
        late = storage(
            os.path.join(store.dataset, "set-train.tfrecord-00000-of-00001")
        ).create(attempts=store.attempts)
        file = late.__enter__()
        file.write(b"of a zombie")
        direct_run._run(make_job(plan, store))
        before = contents(out)
        with pytest.raises((OSError, BeamTFRecordError)):
            late.__exit__(None, None, None)
    assert contents(out) == before
    assert sorted(os.listdir(tmp_path)) == ["out", "source"]


def test_row_34_shards_are_read_again_before_the_commit(
    small: Folder, tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bit that flips between the write and the commit is found."""
    out = tmp_path / "out"

    publish = local._LocalDraft.publish

    def spoilt(draft: local._LocalDraft) -> None:
        publish(draft)
        path = pathlib.Path(draft.path)
        if ".tfrecord-" not in path.name:
            return
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 4
        path.write_bytes(data)

    monkeypatch.setattr(local._LocalDraft, "publish", spoilt)
    run = failed(1, "convert", small, out)
    assert "small-train.tfrecord-00000-of-00001" in run.err
    assert not out.exists()
    monkeypatch.setattr(local._LocalDraft, "publish", publish)
    convert(small, out)
    assert command("verify", out).code == 0
