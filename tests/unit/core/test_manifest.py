"""The manifest: to JSON and back, and other contents of a file with its name."""

import copy
import dataclasses
import json
import math
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transforms.core.manifest import (
    FORMAT,
    Account,
    DerivedFile,
    FeatureFacts,
    FileFacts,
    Manifest,
    ShardFacts,
    SplitFacts,
)
from transforms.core.schema import Feature, Kind
from transforms.core.statistics import Statistics
from transforms.errors import DamageError

MANIFEST = Manifest(
    name="동물",
    compression="gzip",
    features=(
        FeatureFacts(Feature("id", Kind.INT64), Statistics(5, -(2**63), 2**63 - 1)),
        FeatureFacts(Feature("w", Kind.FLOAT), Statistics(4, -math.inf, 0.5)),
        FeatureFacts(Feature("none", Kind.TEXT), Statistics()),
        FeatureFacts(
            Feature("label", Kind.LABEL, column="animal", is_label=True),
            Statistics(5, 0, 1),
            ("cat", "고양이"),
        ),
        FeatureFacts(
            Feature("height", Kind.INT64, derived="height"), Statistics(5, 1, 2)
        ),
    ),
    splits=(
        SplitFacts(
            "train",
            (
                ShardFacts("a-0", 100, 0xDEADBEEF, 3, 50),
                ShardFacts("a-1", 40, 0, 1, 20),
            ),
            {"label": {"cat": 3, "고양이": 1}},
        ),
        SplitFacts("test", (ShardFacts("t-0", 30, 7, 1, 10),), {"label": {"cat": 1}}),
    ),
    files=(FileFacts("features.json", 12, 0xFFFFFFFF),),
    account=Account(9, 5, {"field_count": 1}, {"hidden": 3}),
    inputs={"files": 4, "bytes": 99, "sha256": "ab" * 32},
    settings={"seed": 3, "splits": {"train": "0.8", "test": "0.2"}},
    run={"workers": 2, "spec": {"source": "in"}, "job": "x"},
    derived=(DerivedFile("schema.pbtxt", 7, 0xBEEF, "beam-tfrecord", "0.2.0"),),
)


def as_json() -> dict[str, Any]:
    return json.loads(MANIFEST.to_bytes())


def read(data: Any) -> Manifest:
    return Manifest.from_bytes(json.dumps(data).encode(), "some/manifest.json")


def places(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yields the path of every value in plain JSON, the inner ones too."""
    if path:
        yield path
    if isinstance(data, dict):
        for key, value in data.items():
            yield from places(value, (*path, key))
    elif isinstance(data, list):
        for index, value in enumerate(data):
            yield from places(value, (*path, index))


def value_at(data: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        data = data[key]
    return data


JUNK = [None, 5, -1.5, "x", [], [1], {}, {"a": 1}, True]
DATASET_PLACES = [path for path in places(as_json()) if path[0] == "dataset"]


def changed(path: tuple[Any, ...], *value: Any) -> dict[str, Any]:
    """Returns the manifest with a value at a place, or without what is there."""
    data = as_json()
    del value_at(data, path[:-1])[path[-1]]
    if value and isinstance(inner := value_at(data, path[:-1]), list):
        inner.insert(path[-1], copy.deepcopy(value[0]))
    elif value:
        value_at(data, path[:-1])[path[-1]] = copy.deepcopy(value[0])
    return data


def mutations() -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Yields the manifest with another value at each place, one more, or none."""
    for path in [*DATASET_PLACES, ("format",)]:
        before = value_at(as_json(), path)
        others = [value for value in JUNK if value != before]
        if isinstance(before, dict):
            others.append({**before, "more": 1})
        elif isinstance(before, str):
            others.append(f"{before}0")
        elif isinstance(before, int | float) and not isinstance(before, bool):
            others.append(before + 1)
        yield from ((path, changed(path, value)) for value in others)
        yield path, changed(path)
    yield ("run",), changed(("run",))
    for path in places(as_json()):
        if path[0] == "derived" and len(path) == 3:
            yield path, changed(path)


def test_round_trip() -> None:
    """Everything comes back; class counts are with their splits."""
    back = Manifest.from_bytes(MANIFEST.to_bytes())
    assert back == MANIFEST
    assert back.to_bytes() == MANIFEST.to_bytes()
    assert back.digest == MANIFEST.digest


def test_sums_and_names() -> None:
    """Records and bytes are sums over shards; every file is named."""
    assert MANIFEST.records == 5
    assert [(s.records, s.bytes, s.payload_bytes) for s in MANIFEST.splits] == [
        (4, 140, 70),
        (1, 30, 10),
    ]
    assert MANIFEST.file_names == (
        "a-0",
        "a-1",
        "t-0",
        "features.json",
        "schema.pbtxt",
        "manifest.json",
    )
    assert MANIFEST.account.balance == 0
    assert Account(10, 5, {"a": 1}, {"b": 2}).balance == 2
    # What is lost of the parts is no item lost.
    account = Account(1, 1, parts={"boxes": {"read": 9, "written": 6, "gone": 1}})
    assert (account.balance, account.part_balances) == (0, {"boxes": 2})


def test_steps_are_in_the_account_where_there_were_any() -> None:
    """Other manifests have the keys that they always had, and so their digest."""
    plain = Account(10, 7, {"a": 3})
    assert plain.to_json().keys() == {"read", "written", "rejected", "skipped"}
    dropped = Account(10, 4, {"a": 3}, dropped_by_steps=3)
    assert dropped.balance == 0
    assert dropped.to_json() == {
        **plain.to_json(),
        "written": 4,
        "dropped_by_steps": 3,
    }
    assert Account(10, 9, {"a": 3}, added_by_steps=2).balance == 0
    manifest = dataclasses.replace(MANIFEST, account=dropped)
    assert Manifest.from_bytes(manifest.to_bytes()) == manifest


def test_text_is_for_people_and_tools() -> None:
    """UTF-8 unescaped, checksums of 8 hex digits, infinities as text, one newline."""
    text = MANIFEST.to_bytes().decode()
    assert "고양이" in text
    assert '"crc32c": "deadbeef"' in text
    assert '"crc32c": "00000000"' in text
    assert '"min": "-inf"' in text
    assert text.endswith("}\n")
    assert json.loads(text)["format"] == FORMAT == "beam-tfrecord/1"


def test_digest_is_of_the_dataset_part() -> None:
    """What differs from run to run does not change it; anything else does.

    Nor do derived files, which another version can make again.
    """
    other_run = dataclasses.replace(MANIFEST, run={"workers": 8}, derived=())
    assert other_run.digest == MANIFEST.digest
    assert "derived" not in json.loads(other_run.to_bytes())
    changes: list[dict[str, Any]] = [
        {"name": "x"},
        {"compression": "none"},
        {"settings": {}},
    ]
    for change in changes:
        assert dataclasses.replace(MANIFEST, **change).digest != MANIFEST.digest


def test_digest_is_pinned() -> None:
    """The canonical JSON that is hashed stays the same from version to version."""
    small = Manifest("n", "none", (), (), (), Account(0, 0), {}, {})
    canonical = (
        '{"account":{"read":0,"rejected":{},"skipped":{},"written":0},'
        '"compression":"none","features":[],"files":[],"inputs":{},"name":"n",'
        '"settings":{},"splits":[]}'
    )
    encoded = json.dumps(json.loads(canonical), sort_keys=True, separators=(",", ":"))
    assert encoded == canonical
    assert (
        small.digest
        == "dbf649a7f1c17a6d82d153c7e31f95b4e718d377afa8ad13cd1e2f3346e10dc1"
    )


def test_another_value_anywhere_is_damage() -> None:
    """Changed, added or missing: a DamageError, and no other error."""
    other = []
    for path, data in mutations():
        try:
            read(data)
            other.append((path, "believed"))
        except DamageError:
            continue
        except Exception as error:  # noqa: BLE001 - what it is, is the finding
            other.append((path, repr(error)))
    assert not other


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"null", b"[]", b"5", b'"x"', b"{}", b"{", b"\xff\xfe", bytes(100)),
        MANIFEST.to_bytes()[:-2],
        MANIFEST.to_bytes()[: len(MANIFEST.to_bytes()) // 2],
        MANIFEST.to_bytes() + b"x",
        MANIFEST.to_bytes() * 2,
        b'{"format": ' + b"9" * 5_000 + b"}",
        b"[" * 200_000,
    ],
)
def test_other_text_is_damage(data: bytes) -> None:
    """Any other content under the name is damage, and the path is named."""
    with pytest.raises(DamageError, match=r"some/manifest\.json") as caught:
        Manifest.from_bytes(data, "some/manifest.json")
    assert "Error: " not in str(caught.value)


@given(st.binary(max_size=60), st.data())
def test_overwritten_bytes_are_damage(junk: bytes, data: st.DataObject) -> None:
    """Any bytes in the place of others give the same manifest or a DamageError."""
    text = MANIFEST.to_bytes()
    at = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(at, min(at + 60, len(text))))
    try:
        found = Manifest.from_bytes(text[:at] + junk + text[end:])
    except DamageError:
        return
    assert found.dataset_json() == MANIFEST.dataset_json()


@pytest.mark.parametrize("name", ["/etc/passwd", "../x", "a/b", "", ".", "..", "a\0b"])
def test_files_are_in_the_directory_itself(name: str) -> None:
    """A file name that would lead elsewhere is damage: names are deleted by name."""
    facts = FileFacts(name, 1, 0)
    evil = dataclasses.replace(MANIFEST, files=(facts,))
    with pytest.raises(DamageError):
        Manifest.from_bytes(evil.to_bytes())


def test_what_is_new_is_left_out_where_it_is_not_there() -> None:
    """Manifests from before there were parts, lists and the like keep their digest."""
    data = as_json()["dataset"]
    assert "parts" not in data["account"]
    for feature in data["features"]:
        assert not feature.keys() & {"fewest", "most", "always_present"}


def test_lists_parts_and_presence_come_back() -> None:
    """With their own words in the JSON, and in a manifest that is read again."""
    facts = FeatureFacts(
        Feature("x", Kind.FLOAT, shape=(None, 2)),
        Statistics(3, 0.5, 1.0, {}, 0, 6),
        always_present=True,
    )
    parts = {"boxes": {"read": 9, "written": 6, "rejected": 2, "gone": 1}}
    account = dataclasses.replace(MANIFEST.account, parts=parts)
    manifest = dataclasses.replace(MANIFEST, features=(facts,), account=account)
    back = Manifest.from_bytes(manifest.to_bytes())
    assert back == manifest
    assert facts.to_json() == {
        "name": "x",
        "kind": "float",
        "shape": [None, 2],
        "present": 3,
        "min": 0.5,
        "max": 1.0,
        "fewest": 0,
        "most": 6,
        "always_present": True,
    }
    data = json.loads(manifest.to_bytes())["dataset"]["account"]
    assert data["parts"] == parts
