"""`head`: the first records as a person wants to see them."""

import hashlib
import json
import pathlib
import re

import pytest

from beam_pipeline import terminal
from beam_pipeline.commands import head
from tests.support.datasets import animals, example, write_dataset, write_records
from tests.support.kinds import EVERY_KIND, row_of_every_kind, write_kinds
from tests.support.sequences import sequence
from transforms.core.example import messages
from transforms.core.schema import Feature, Kind
from transforms.errors import TFRecordError

Folder = pathlib.Path
GOLDEN = Folder(__file__).parents[2] / "data" / "golden"


def printed(path: Folder, capsys: pytest.CaptureFixture[str], count: int = 3) -> str:
    assert head.show(str(path), count) == 0
    return capsys.readouterr().out


def shown(out: str) -> list[dict[str, str]]:
    """Returns the values of each record, as they are printed, by their names."""
    records = re.split(r"^record \d+\n", out, flags=re.MULTILINE)[1:]
    return [
        dict(line.split(None, 1) for line in record.splitlines() if line[:2] == "  ")
        for record in records
    ]


def numbers(text: str) -> list[float]:
    """Returns the numbers in a printed value."""
    digits = re.findall(r"-?\d+(?:,\d{3})*(?:\.\d+)?", text)
    return [float(number.replace(",", "")) for number in digits]


def test_records_of_every_split(
    tmp_path: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the manifest's order of features, with class names; absent ones named."""
    write_dataset(
        tmp_path / "out", {"train": animals(2, 2), "test": animals(1, start=8), "x": []}
    )
    assert printed(tmp_path / "out", capsys, 3) == (GOLDEN / "head.txt").read_text()


@pytest.mark.parametrize("compression", ["none", "gzip", "zlib"])
def test_single_file(
    tmp_path: Folder, capsys: pytest.CaptureFixture[str], compression: str
) -> None:
    """Without a manifest the values themselves say what they are."""
    row = {"text": "한 줄", "bytes": b"\x00\x01\x02\x03\x04", "float": 0.1, "int": -5}
    write_records(tmp_path / "x", [example(row)] * 5, compression)
    out = printed(tmp_path / "x", capsys, 1)
    assert out.splitlines()[0] == f"{tmp_path}/x"
    (values,) = shown(out)
    assert list(values) == ["bytes", "float", "int", "text"]
    assert values["bytes"].endswith(" 00 01 02 03>")
    assert numbers(values["bytes"])[0] == 5
    assert (values["float"], values["int"], values["text"]) == ("0.1", "-5", '"한 줄"')


def test_long_values_are_shortened(
    tmp_path: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    """Text, bytes and lists, each with its full size."""
    message = messages.Example()
    features = message.features.feature
    features["list"].int64_list.value.extend(range(1000))
    features["text"].bytes_list.value.append("가".encode() * 1000)
    features["bytes"].bytes_list.value.append(bytes(100_000))
    features["none"].SetInParent()
    write_records(tmp_path / "x", [message.SerializeToString()])
    out = printed(tmp_path / "x", capsys)
    (values,) = shown(out)
    assert numbers(values["list"]) == [*range(8), 992]
    assert '가..." (3,000 bytes)' in values["text"]
    assert "100,000 bytes" in values["bytes"]
    assert values["none"] == "[]"
    assert max(map(len, out.splitlines())) < 300


def test_a_record_that_is_no_example(
    tmp_path: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is said so, and the others are shown."""
    good = example({"a": 1})
    write_records(tmp_path / "x", [good, b"\xff\xff", good, b""])
    out = printed(tmp_path / "x", capsys, 4)
    records = re.split(r"^record \d\n", out, flags=re.MULTILINE)[1:]
    assert "tf.train.Example" in records[1]
    assert [text.split() for text in records[::2]] == [["a", "1"]] * 2
    assert "(no features)" in records[3]


@pytest.mark.parametrize("number", [7, -1])
def test_class_id_without_a_name(
    number: int, tmp_path: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    """A shard that does not fit its manifest does not end in a traceback."""
    folder = tmp_path / "out"
    write_dataset(folder, {"a": [[{"x": "dog"}]]}, [Feature("x", Kind.LABEL)])
    write_records(
        folder / "animals-a.tfrecord-00000-of-00001",
        [example({"x": number, "more": 1})],
    )
    out = printed(folder, capsys)
    (values,) = shown(out)
    assert values["x"].startswith(f"{number} (no ")
    assert values["more"] == "1"


def test_damage_ends_it_after_the_good_records(
    tmp_path: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error names file, record and offset."""
    path = tmp_path / "x"
    write_records(path, [example({"a": 1})] * 2)
    second = path.stat().st_size // 2
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(TFRecordError) as caught:
        head.show(str(path), 5)
    error = caught.value
    assert (error.path, error.record, error.offset) == (str(path), 1, second)
    assert capsys.readouterr().out.count("record 0\n  a  1") == 1


def test_no_records(tmp_path: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    """An empty dataset says so; a count of 0 prints nothing."""
    write_dataset(tmp_path / "out", {"train": [[]]})
    assert printed(tmp_path / "out", capsys) == "no records\n"
    assert printed(tmp_path / "out", capsys, 0) == ""


def test_records_of_every_kind(
    tmp_path: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    """Lists as stored, tensors by size, instants as text; all absent."""
    write_kinds(tmp_path / "out", [row_of_every_kind(), {}], EVERY_KIND)
    assert printed(tmp_path / "out", capsys) == (GOLDEN / "head_kinds.txt").read_text()


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        (0, "s", "1970-01-01T00:00:00Z"),
        (-1, "ms", "1969-12-31T23:59:59.999Z"),
        (1, "us", "1970-01-01T00:00:00.000001Z"),
        (2**63 - 1, "ns", "2262-04-11T23:47:16.854775807Z"),
        (2**63 - 1, "s", "292277026596-12-04T15:30:07Z"),
        (-(2**63), "s", ""),
    ],
)
def test_instants_as_text(value: int, unit: str, expected: str) -> None:
    """ISO 8601 in UTC over the whole range of int64."""
    assert terminal.instant_text(value, unit) == expected


def test_json_of_values_that_json_lacks(
    tmp_path: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    """Floats beyond JSON are words, bytes an object; all are lists in a bare file."""
    message = messages.Example()
    features = message.features.feature
    features["float"].float_list.value.extend([0.1, float("nan"), float("-inf")])
    features["int"].int64_list.value.append(-(2**63))
    features["text"].bytes_list.value.append("한\u202e".encode())
    features["bytes"].bytes_list.value.append(b"\xff\x00")
    features["none"].SetInParent()
    write_records(tmp_path / "x", [message.SerializeToString(), b"\xff"])
    assert head.show(str(tmp_path / "x"), as_json=True) == 0
    out = capsys.readouterr().out
    assert "\u202e" not in out
    good, bad = map(json.loads, out.splitlines())
    assert good["features"] == {
        "float": [0.1, "NaN", "-Infinity"],
        "int": [-(2**63)],
        "text": [
            {"bytes": 6, "sha256": hashlib.sha256("한\u202e".encode()).hexdigest()}
        ],
        "bytes": [{"bytes": 2, "sha256": hashlib.sha256(b"\xff\x00").hexdigest()}],
        "none": [],
    }
    assert bad["features"] is None
    assert bad["error"]


def test_a_single_step_is_a_list(
    tmp_path: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    """A list of steps keeps both brackets, whatever the number of its steps."""
    steps = {"x": [[5]], "y": [[1], [2, 3]]}
    write_records(tmp_path / "s", [sequence({}, steps)])
    (values,) = shown(printed(tmp_path / "s", capsys))
    assert {k: json.loads(v) for k, v in values.items()} == {
        f"lists/{name}": of_name for name, of_name in steps.items()
    }
