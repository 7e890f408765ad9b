"""What users of `WriteDataset` do wrong: errors of ours, in sentences and Python words.

Beam adds the step to a message ("[while running ...]"), and builds errors that it
cannot build again as RuntimeErrors: the types must survive that.
"""

import json
import pathlib
import re
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.transforms.periodicsequence import PeriodicImpulse
from apache_beam.transforms.window import FixedWindows

from beam_pipeline.own_pipelines.write_dataset import WriteDataset
from tests.support.own_pipelines import write_rows
from transforms.errors import (
    MAX_MESSAGE_BYTES,
    BeamTFRecordError,
    EncodingError,
    InputError,
    RejectLimitError,
    SpecError,
    StorageError,
    TargetError,
)

Folder = pathlib.Path
ROWS = [{"id": n, "v": n / 2, "kind": "ab"[n % 2]} for n in range(20)]

FAULTS: dict[str, tuple[list[Any], dict[str, Any], type[BeamTFRecordError], str]] = {
    "no row": ([1], {}, EncodingError, "no row, but int: 1"),
    "two kinds": ([{"a": 1}, {"a": "x"}], {}, EncodingError, "Every value of 'a' must"),
    "key twice": (ROWS[:3] * 2, {"key": "id"}, InputError, "a key of its own"),
    "no label": (ROWS, {"label": "knd"}, SpecError, "the nearest name is 'kind'"),
    "nothing": ([], {}, InputError, "--min-records 0"),
    "rejects": (
        [{"v": 1e300}, {"v": -1e300}, *ROWS],
        {},
        RejectLimitError,
        "--max-reject-rate",
    ),
}


def assert_readable(error: BaseException) -> None:
    """Checks a message as a user sees it: sentences, not too long, then the step."""
    said, step, _ = str(error).partition(" [while running 'WriteDataset/")
    assert step
    assert said.endswith("."), said
    # A message may begin with the name of a parameter.
    assert said[0].isupper() or said.startswith("label must")
    assert len(said.encode()) <= MAX_MESSAGE_BYTES


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_of_rows_are_errors_of_ours(fault: str, tmp_path: Folder) -> None:
    """The type says what kind of fault it is, and nothing is published."""
    rows, settings, kind, words = FAULTS[fault]
    with pytest.raises(kind) as caught:
        write_rows(rows, tmp_path / "out", **settings)
    assert words in str(caught.value)
    assert_readable(caught.value)
    assert not (tmp_path / "out").exists()


def test_rejects_name_rows_by_their_keys(tmp_path: Folder) -> None:
    """Rows of a pipeline have no numbers: neither a value nor an image is in row 1."""
    rows = [{"id": f"key {n}", "v": n, "picture": "none.png"} for n in range(3)]
    rows[0]["v"] = 1e300
    output = tmp_path / "out"
    with pytest.raises(RejectLimitError) as caught:
        write_rows(
            rows, output, key="id", features={"picture": "image"}, images_root="."
        )
    assert "as key 1: image 'none.png'" in str(caught.value).replace("key 2", "key 1")
    log = output.with_name("out.rejects.jsonl").read_text()
    found = [json.loads(line) for line in log.splitlines()]
    assert {(each["source"], each["row"]) for each in found} == {
        ("key 0", None),
        ("key 1", None),
        ("key 2", None),
    }


@pytest.mark.parametrize("place", ["file", "/proc/none/out"])
def test_an_output_that_cannot_be(place: str, tmp_path: Folder) -> None:
    """What the operating system refuses is an error of ours, too, with the path."""
    (tmp_path / "file").write_text("text")
    with pytest.raises((TargetError, StorageError)) as caught:
        write_rows(ROWS, tmp_path / place)
    assert_readable(caught.value)
    assert re.search(r"Choose another output|choose another output", str(caught.value))


@pytest.mark.parametrize(
    ("made", "what_to_do"),
    [
        (
            beam.Create(ROWS) | beam.WindowInto(FixedWindows(5)),
            r"put beam\.WindowInto",
        ),
        (
            PeriodicImpulse(fire_interval=1) | beam.Map(lambda _: ROWS[0]),
            "Read a bounded part of it",
        ),
    ],
)
def test_windows_and_rows_without_end_are_refused(
    made: Any, what_to_do: str, tmp_path: Folder
) -> None:
    """At construction, with what to do."""
    pipeline = beam.Pipeline(runner="FnApiRunner")
    with pytest.raises(SpecError, match=what_to_do):
        pipeline | "Make" >> made | WriteDataset(tmp_path / "out")
