"""Rejected items: kept, and shown."""

import hashlib
import json
import pathlib
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.image_sources import image_bytes
from tests.support.outputs import account, dataset, payloads, rejects, row_of
from tests.support.runs import command, convert, refused
from tests.support.segments import IN_FILES, IN_MEMORY
from tests.support.sources import write_csv, write_files
from transforms.core.tfrecord.reader import TFRecordReader

Folder = pathlib.Path

ALL = ("--max-reject-rate", "1", "--workers", "1")


def balanced(directory: Folder) -> dict[str, Any]:
    """Returns the account, after a look at its sum and at the lines of rejects."""
    found = account(directory)
    gone = sum(found["rejected"].values()) + sum(found["skipped"].values())
    assert found["read"] == found["written"] + gone
    assert found["written"] == len(payloads(directory))
    lines = rejects(directory) if (directory / "rejects.jsonl").exists() else []
    assert sum("part" not in line for line in lines) == sum(found["rejected"].values())
    assert command("verify", directory, "--quiet").code == 0
    return found


def kept(directory: Folder) -> list[dict[str, Any]]:
    """Returns the features of each kept item."""
    return [*map(row_of, TFRecordReader(str(directory / "rejects.items")))]


def table(path: Folder, bad: Mapping[int, str], count: int = 60) -> Folder:
    """Writes rows of an id, an animal and a weight; bad ones have other texts."""
    animals = ("cat", "dog", "newt")
    lines = [
        bad.get(row, f"{row},{animals[row % 3]},{row}.5") for row in range(1, count + 1)
    ]
    return write_csv(path, "id,animal,weight", lines)


BAD = {2: "2,dog,heavy", 17: "17,dog,1.5,more", 40: "four,dog,1.5", 59: "59,dog,"}
SPEC = (
    "features:\n  id: {kind: int64}\n  animal: {kind: label, label: true}\n"
    "  weight: {kind: float, missing: reject}\n"
)


@pytest.fixture
def spec(tmp_path: Folder) -> Folder:
    path = tmp_path / "spec.yaml"
    path.write_text(SPEC)
    return path


class TestTables:
    def test_many_rows_of_many_blocks(self, tmp_path: Folder, spec: Folder) -> None:
        """The dataset is the same whether rows wait in memory or in files.

        There are more rejects than are made at once, of two files, in any order of
        blocks.
        """
        bad = {row: f"x{row},cat,1.5" for row in range(1, 12_001) if row % 2}
        for name in ("p.csv", "q.csv"):
            table(tmp_path / "in" / name, bad, 12_000)
        digests = set()
        for number, where in enumerate((IN_MEMORY, IN_FILES)):
            out = tmp_path / f"a{number}"
            options = (where, "--name", "n", "--keep-rejected-bytes")
            convert(tmp_path / "in", out, "--spec", spec, *ALL, *options)
            digests.add(dataset(out)["digest"])
        assert len(digests) == 1
        assert balanced(tmp_path / "a0")["rejected"] == {"not_an_integer": 12_000}
        found = rejects(tmp_path / "a0")
        assert [(r["source"], r["row"]) for r in found] == [
            (name, row) for name in ("p.csv", "q.csv") for row in range(1, 12_001, 2)
        ]
        items = kept(tmp_path / "a0")
        assert [item["bytes"].decode() for item in items[:6_000]] == [*bad.values()]
        assert [item["sha256"].decode() for item in items] == [
            line["sha256"] for line in found
        ]

    def test_damaged_rejects_are_not_read(self, tmp_path: Folder, spec: Folder) -> None:
        """A list that lost its end would lose items silently."""
        source = table(tmp_path / "t.csv", BAD)
        convert(source, tmp_path / "a", "--spec", spec, *ALL)
        path = tmp_path / "a" / "rejects.jsonl"
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
        assert "CRC32C" in command("rejects", tmp_path / "a").err


class TestKinds:
    def test_parquet(self, tmp_path: Folder) -> None:
        """Rows of typed columns have no bytes of their own: they are kept as JSON."""
        source = tmp_path / "t.parquet"
        features = tmp_path / "s.yaml"
        features.write_text("features: {n: {kind: int64, missing: reject}}\n")
        pq.write_table(pa.table({"n": [1, None, 3]}), source)
        options = ("--spec", features, *ALL, "--keep-rejected-bytes")
        convert(source, tmp_path / "a", *options)
        (item,) = kept(tmp_path / "a")
        assert json.loads(item["bytes"]) == {"n": None}
        assert item["sha256"].decode() == hashlib.sha256(item["bytes"]).hexdigest()

    def test_images(self, tmp_path: Folder) -> None:
        """Files of a tree are kept by their names, and have no rows."""
        good = {f"{label}/{n}.png": image_bytes(n) for label in "xy" for n in range(9)}
        bad = {"x/z.png": b"<html>", "y/z.png": image_bytes(7)[:20], "y/empty.png": b""}
        source = write_files(tmp_path / "tree", good | bad)
        convert(source, tmp_path / "a", *ALL, "--keep-rejected-bytes")
        items = kept(tmp_path / "a")
        assert {item["source"].decode(): item.get("bytes") for item in items} == bad
        assert all("row" not in item for item in items)


class TestCommand:
    @pytest.fixture
    def out(self, tmp_path: Folder, spec: Folder) -> Folder:
        bad = BAD | {row: f"{row},cat,much" for row in range(20, 30)}
        source = table(tmp_path / "t.csv", bad)
        convert(source, tmp_path / "a", "--spec", spec, *ALL, "--keep-rejected-bytes")
        return tmp_path / "a"

    def test_reasons_with_counts_and_examples(self, out: Folder) -> None:
        """Reasons by their number; each with its share and its first example."""
        head, _, title, first, *_ = command("rejects", out).out.splitlines()
        assert head == f"{out}  14 items rejected of 60 read (23.3 %)"
        assert title.split() == ["reason", "count", "share", "example"]
        assert first.split()[:4] == ["not_a_number", "11", "78.6", "%"]
        assert "t.csv, row 2, line 3: column 'weight' holds 'heavy'" in first
        assert "rejects.items" in command("rejects", out).out

    def test_as_json(self, out: Folder) -> None:
        """The same as one object for scripts."""
        found = json.loads(command("rejects", out, "--json").out)
        assert (found["read"], found["rejected"]) == (60, 14)
        assert {item["reason"]: item["count"] for item in found["reasons"]} == account(
            out
        )["rejected"]
        assert found["reasons"][0]["example"] == rejects(out)[0]

    def test_those_of_one_reason(self, out: Folder) -> None:
        """Listed up to a limit, which says what it leaves out; 0 lists all."""
        listed = command("rejects", out, "--reason", "not_a_number", "--limit", "3")
        assert len(listed.out.splitlines()) == 4
        assert listed.out.splitlines()[-1].startswith("... 8 more")
        everything = command("rejects", out, "--reason", "not_a_number", "--limit", 0)
        assert len(everything.out.splitlines()) == 11
        as_json = command(
            "rejects", out, "--reason", "not_a_number", "--limit", 0, "--json"
        )
        assert [json.loads(line) for line in as_json.out.splitlines()] == [
            item for item in rejects(out) if item["reason"] == "not_a_number"
        ]
        none = command("rejects", out, "--reason", "unsafe_path")
        assert none.out == "nothing was rejected as unsafe_path\n"

    def test_a_failed_run_over_a_dataset(
        self, out: Folder, tmp_path: Folder, spec: Folder
    ) -> None:
        """Its error names those that it left; the dataset's come with a note."""
        source = table(tmp_path / "other.csv", {5: "5,cat"})
        strict = ("--max-reject-rate", 0, "--overwrite")
        said = refused(3, source, out, "--spec", spec, *strict)
        listed = f"{out}.rejects.jsonl"
        assert f"beam-tfrecord rejects {listed}. " in said
        assert "1 item rejected by a run that" in command("rejects", listed).out
        assert "field_count" in command("rejects", listed).out
        for more in ((), ("--reason", "not_a_number"), ("--reason", "field_count")):
            shown = command("rejects", out, *more).out
            assert shown.splitlines()[-1] == (
                f"note: these are the dataset's; a later run has failed, for its own: "
                f"beam-tfrecord rejects {listed}"
            )
        as_json = command("rejects", out, "--reason", "not_a_number", "--json").out
        assert all(json.loads(line) for line in as_json.splitlines())

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (("none",), "there is neither"),
            (("a", "--reason", "xyz"), "'field_count', "),
            (("a", "--limit", "-1"), "--limit"),
        ],
    )
    def test_wrong_usage(
        self, out: Folder, arguments: tuple[str, ...], said: str
    ) -> None:
        """Wrong usage is 2 and says what would be right."""
        name, *rest = arguments
        run = command("rejects", out.parent / name, *rest)
        assert (run.code, run.out) == (2, "")
        assert said in run.err
