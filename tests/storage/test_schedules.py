"""Several writers on one target, step by step in any order, on real servers."""

import pytest

from beam_pipeline.commands.clean import leftovers, remove
from tests.storage.conftest import Server
from tests.support.schedules import Writers, check_dataset, in_turns, names_of
from transforms.core.manifest import MANIFEST_NAME
from transforms.publishing.bucket import BucketTarget
from transforms.storage.files import storage

_SCHEDULES = 60


def test_any_schedule(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """One manifest, all that it names is whole, and nothing else after a `clean`."""
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    committed = 0
    for seed in range(_SCHEDULES):
        target = f"out-{seed}"
        there = BucketTarget(f"{server.url}/{target}")
        writers = Writers(there.directory, seed)
        with in_turns():
            writers.run()
        there.settle()
        for left in leftovers(there):
            assert remove(there, left, older_than=0.0), seed
        expected = []
        committed += "committed" in writers.outcomes
        if f"{target}/{MANIFEST_NAME}" in server.keys(f"{target}/"):
            manifest = check_dataset(
                lambda name: server.read(f"{target}/{name}"),  # noqa: B023
                pointers=True,
            )
            expected = [f"{target}/{name}" for name in names_of(manifest)]
        # One that has published may have been killed before it could say so.
        assert expected or "committed" not in writers.outcomes, seed
        assert server.keys(f"{target}/") == expected, seed
        assert server.keys(f".{target}.beam-tfrecord") == [], seed
        # The emulator looks at all that a bucket holds to list a part of it.
        storage(there.directory).remove_tree()
    assert committed > _SCHEDULES / 2
