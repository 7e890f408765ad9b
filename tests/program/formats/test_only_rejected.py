"""Rejects as a dataset: kept, shown, and converted alone once they are fixed."""

import hashlib
import io
import json
import pathlib
import zipfile
from collections.abc import Mapping
from typing import Any

import PIL.Image
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.outputs import (
    account,
    dataset,
    manifest,
    names,
    payloads,
    rejects,
    rows,
)
from tests.support.runs import command, convert, refused
from tests.support.sources import write_csv, write_files
from transforms.core.example import messages
from transforms.core.tfrecord import TFRecordReader

# The stages' own code: what is tested here is not up to Beam.
Folder = pathlib.Path

ALL = ("--max-reject-rate", "1", "--workers", "1")


def image(shade: int) -> bytes:
    out = io.BytesIO()
    PIL.Image.new("L", (4, 4), shade).save(out, "PNG")
    return out.getvalue()


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
    return [
        {
            name: next(iter(getattr(value, value.WhichOneof("kind")).value))
            for name, value in messages.Example.FromString(
                payload
            ).features.feature.items()
        }
        for payload in TFRecordReader(str(directory / "rejects.items"))
    ]


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
    def test_fixed_rows_are_a_dataset_of_their_own(
        self, tmp_path: Folder, spec: Folder
    ) -> None:
        """Both datasets together are that of the corrected table.

        They have the same records in the same splits and the same class ids, though the
        second has one class only.
        """
        options = ("--spec", spec, "--splits", "train=0.6,test=0.4", *ALL)
        source = table(tmp_path / "t.csv", BAD)
        convert(source, tmp_path / "a", *options)
        assert balanced(tmp_path / "a")["rejected"] == {
            "field_count": 1,
            "missing_value": 1,
            "not_a_number": 1,
            "not_an_integer": 1,
        }
        table(tmp_path / "t.csv", {2: "2,dog,heavier still"})
        run = convert(
            source, tmp_path / "b", *options, "--only-rejected", tmp_path / "a"
        )
        assert "only the 4 items that" in run.err
        assert balanced(tmp_path / "b") == {
            "read": 60,
            "written": 3,
            "rejected": {"not_a_number": 1},
            "skipped": {"not_rejected_before": 56},
        }
        table(tmp_path / "t.csv", {})
        fixed = ("--only-rejected", tmp_path / "b")
        convert(source, tmp_path / "c", *options, *fixed)
        assert balanced(tmp_path / "c")["written"] == 1
        convert(source, tmp_path / "whole", *options)
        for split in ("train", "test"):
            parts = [p for name in "abc" for p in payloads(tmp_path / name, split)]
            assert sorted(parts) == sorted(payloads(tmp_path / "whole", split))

    def test_what_fits_now_or_not_matters_only_where_it_was_rejected(
        self, tmp_path: Folder, spec: Folder
    ) -> None:
        """Rows that were fine are skipped, also where they are rejects by now."""
        source = table(tmp_path / "t.csv", {5: "x,cat,1.5"})
        convert(source, tmp_path / "a", "--spec", spec, *ALL)
        table(tmp_path / "t.csv", {6: "x,cat,1.5", 7: "7", 8: "8,cat,y"})
        only = ("--only-rejected", tmp_path / "a")
        convert(source, tmp_path / "b", "--spec", spec, *ALL, *only)
        assert balanced(tmp_path / "b") == {
            "read": 60,
            "written": 1,
            "rejected": {},
            "skipped": {"not_rejected_before": 59},
        }
        assert rows(tmp_path / "b")[0]["id"] == 5

    def test_many_rows_of_many_blocks(self, tmp_path: Folder, spec: Folder) -> None:
        """The dataset is the same whether rows wait in memory or in files.

        There are more rejects than are made at once, of two files, in any order of
        blocks.
        """
        bad = {row: f"x{row},cat,1.5" for row in range(1, 12_001) if row % 2}
        for name in ("p.csv", "q.csv"):
            table(tmp_path / "in" / name, bad, 12_000)
        digests = set()
        for number, segments in enumerate(("inline", "files")):
            out = tmp_path / f"a{number}"
            options = ("--segments", segments, "--name", "n", "--keep-rejected-bytes")
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
        table(tmp_path / "in" / "q.csv", {1: "x,cat,2"}, 12_000)
        only = ("--only-rejected", tmp_path / "a0")
        convert(tmp_path / "in", tmp_path / "b", "--spec", spec, *ALL, *only)
        assert balanced(tmp_path / "b") == {
            "read": 24_000,
            "written": 5_999,
            "rejected": {"not_an_integer": 6_001},
            "skipped": {"not_rejected_before": 12_000},
        }

    def test_many_rows_that_are_bad_only_now(
        self, tmp_path: Folder, spec: Folder
    ) -> None:
        """Of thousands of rejects of two kinds, those of earlier are the same rows."""
        path = tmp_path / "in" / "p.csv"
        bad = {row: f"x{row},cat,1.5" for row in range(1, 5_001, 2)}
        table(path, bad, 5_000)
        convert(tmp_path / "in", tmp_path / "a", "--spec", spec, *ALL)
        del bad[1]
        torn = {row: f"{row},cat,1.5,more" for row in range(2, 5_001, 2)}
        table(path, bad | torn, 5_000)
        only = ("--only-rejected", tmp_path / "a")
        convert(tmp_path / "in", tmp_path / "b", "--spec", spec, *ALL, *only)
        assert [r["row"] for r in rejects(tmp_path / "b")] == [*bad]
        assert balanced(tmp_path / "b") == {
            "read": 5_000,
            "written": 1,
            "rejected": {"not_an_integer": 2_499},
            "skipped": {"not_rejected_before": 2_500},
        }

    def test_the_rejects_of_a_failed_run(self, tmp_path: Folder, spec: Folder) -> None:
        """What was left beside the target serves as well, and goes with the commit."""
        source = table(tmp_path / "in/t.csv", BAD)
        out = tmp_path / "outs" / "a"
        out.parent.mkdir()
        keep = ("--keep-rejected-bytes", "--spec", spec)
        message = refused(3, source, out, *keep)
        assert f"beam-tfrecord rejects {out}" in message
        assert {"a.rejects.items", "a.rejects.jsonl"} <= set(names(out.parent))
        table(source, {})
        convert(source, tmp_path / "b", "--spec", spec, "--only-rejected", out)
        assert balanced(tmp_path / "b")["written"] == 4
        (out.parent / "a.rejects.jsonl2").write_text("of somebody else")
        convert(source, out, "--spec", spec)
        assert names(out.parent) == ["a", "a.rejects.jsonl2"]

    def test_what_was_rejected_decides_the_job(
        self, tmp_path: Folder, spec: Folder
    ) -> None:
        """Another list is another job; its place and form make no difference."""
        source = table(tmp_path / "t.csv", BAD)
        convert(source, tmp_path / "a", "--spec", spec, *ALL)
        left = tmp_path / "copy.jsonl"
        left.write_bytes((tmp_path / "a" / "rejects.jsonl").read_bytes())
        table(source, {})
        options = ("--spec", spec, *ALL, "--vocabulary", tmp_path / "names")
        (tmp_path / "names").write_text("cat\ndog\nnewt\n")
        digests = []
        for name, path in (("b", tmp_path / "a"), ("c", left)):
            convert(source, tmp_path / name, *options, "--only-rejected", path)
            digests.append(dataset(tmp_path / name)["digest"])
        assert digests[0] == digests[1]
        again = command(
            "convert", source, tmp_path / "c", *options, *("--only-rejected", left)
        )
        assert "up to date" in again.out
        first, *_ = left.read_text().splitlines(keepends=True)
        left.write_text(first)
        more = ("--only-rejected", left, "--overwrite")
        convert(source, tmp_path / "c", *options, *more)
        assert balanced(tmp_path / "c")["written"] == 1

    def test_nothing_was_rejected(self, tmp_path: Folder, spec: Folder) -> None:
        """There is nothing to do, which is said before anything is read."""
        source = table(tmp_path / "t.csv", {})
        convert(source, tmp_path / "a", "--spec", spec)
        only = ("--only-rejected", tmp_path / "a")
        message = refused(2, source, tmp_path / "b", *only)
        assert "has rejected nothing" in message
        assert not (tmp_path / "b").exists()

    def test_damaged_rejects_are_not_read(self, tmp_path: Folder, spec: Folder) -> None:
        """A list that lost its end would lose items silently."""
        source = table(tmp_path / "t.csv", BAD)
        convert(source, tmp_path / "a", "--spec", spec, *ALL)
        path = tmp_path / "a" / "rejects.jsonl"
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
        only = ("--only-rejected", tmp_path / "a")
        assert "CRC32C" in refused(1, source, tmp_path / "b", *only)
        assert "CRC32C" in command("rejects", tmp_path / "a").err

    @pytest.mark.parametrize(
        "cell",
        [
            b"9" * 10_000_000,
            b"\x00\x01\x1b[2J\x07",
            "\u202eevil\u2028".encode(),
        ],
        ids=["10 MB", "control characters", "direction marks"],
    )
    def test_hostile_cells(self, tmp_path: Folder, spec: Folder, cell: bytes) -> None:
        """H11: whatever a cell holds, its message has at most 1 KiB on one line.

        Its item is kept unchanged, and the terminal's state does not change.
        """
        text = table(tmp_path / "in" / "t.csv", {}).read_bytes()
        record = cell + b",cat,1.5"
        source = write_files(tmp_path / "in", {"t.csv": text + record + b"\n"})
        out = tmp_path / "a"
        convert(source, out, "--spec", spec, *ALL, "--keep-rejected-bytes")
        (found,) = rejects(out)
        assert len(found["message"].encode()) <= 1024
        assert found["sha256"] == hashlib.sha256(record).hexdigest()
        assert [item["bytes"] for item in kept(out)] == [record]
        shown = command("rejects", out)
        assert shown.code == 0
        assert all(c.isprintable() or c == "\n" for c in shown.out)
        assert len(shown.out) < 3_000

    def test_other_features_are_noted(self, tmp_path: Folder) -> None:
        """If the fixed table is parsed differently, a note says so in advance."""
        lines = [f"{row},{row}" for row in range(200)]
        source = write_csv(tmp_path / "t.csv", "a,b", ["x,1", *lines])
        convert(source, tmp_path / "a", *ALL)
        write_csv(source, "a,b", ["5,1.5", *lines])
        only = ("--only-rejected", tmp_path / "a")
        run = convert(source, tmp_path / "b", *ALL, *only)
        assert f"not the features of {tmp_path / 'a'}: b;" in run.err


class TestKinds:
    def test_json_lines(self, tmp_path: Folder) -> None:
        """Lines are kept unchanged, and fixed lines are found by their number."""
        lines = [f'{{"n": {row}}}' for row in range(30)]
        lines[3], lines[9] = '{"n": "x" }', "{broken"
        source = write_files(tmp_path, {"t.jsonl": "\n".join(lines).encode()})
        source = source / "t.jsonl"
        features = tmp_path / "s.yaml"
        features.write_text("features: {n: {kind: int64}}\n")
        options = ("--spec", features, *ALL)
        convert(source, tmp_path / "a", *options, "--keep-rejected-bytes")
        assert [item["bytes"].decode() for item in kept(tmp_path / "a")] == [
            lines[3],
            lines[9],
        ]
        source.write_text(
            source.read_text().replace('"x" ', "333").replace("broken", '"n": 999}')
        )
        only = ("--only-rejected", tmp_path / "a")
        convert(source, tmp_path / "b", *options, *only)
        assert sorted(row["n"] for row in rows(tmp_path / "b")) == [333, 999]
        assert balanced(tmp_path / "b")["skipped"] == {"not_rejected_before": 28}

    def test_parquet(self, tmp_path: Folder) -> None:
        """Rows of typed columns have no bytes of their own: they are kept as JSON."""
        source = tmp_path / "t.parquet"
        values: list[int | None] = [1, None, 3]
        features = tmp_path / "s.yaml"
        features.write_text("features: {n: {kind: int64, missing: reject}}\n")
        for name, extra in (("a", ()), ("b", ("--only-rejected", tmp_path / "a"))):
            pq.write_table(pa.table({"n": values}), source)
            options = ("--spec", features, *ALL, "--keep-rejected-bytes", *extra)
            convert(source, tmp_path / name, *options)
            values[1] = 2
        (item,) = kept(tmp_path / "a")
        assert json.loads(item["bytes"]) == {"n": None}
        assert item["sha256"].decode() == hashlib.sha256(item["bytes"]).hexdigest()
        assert rows(tmp_path / "b") == [{"n": 2}]
        assert balanced(tmp_path / "b")["skipped"] == {"not_rejected_before": 2}

    def test_images(self, tmp_path: Folder) -> None:
        """Files of a tree are identified by name; the fixed image has the same name."""
        good = {f"{label}/{n}.png": image(n) for label in "xy" for n in range(9)}
        bad = {"x/z.png": b"<html>", "y/z.png": image(7)[:20], "y/empty.png": b""}
        source = write_files(tmp_path / "tree", good | bad)
        convert(source, tmp_path / "a", *ALL, "--keep-rejected-bytes")
        items = kept(tmp_path / "a")
        assert {item["source"].decode(): item.get("bytes") for item in items} == bad
        assert all("row" not in item for item in items)
        write_files(source, {"y/z.png": image(77), "x/new.png": image(5)})
        only = ("--only-rejected", tmp_path / "a")
        fixed = convert(source, tmp_path / "b", *ALL, *only)
        assert balanced(tmp_path / "b") == {
            "read": 22,
            "written": 1,
            "rejected": {"empty_file": 1, "not_an_image": 1},
            "skipped": {"not_rejected_before": 19},
        }
        (row,) = rows(tmp_path / "b")
        assert (row["filename"], row["label"]) == (b"y/z.png", 1)
        # It is a part, so nothing is said of classes that it has no record of.
        assert "have no record" not in fixed.out
        (source / "y/empty.png").unlink()
        run = convert(source, tmp_path / "c", *ALL, *only)
        assert "note: 1 of the 3 items that were rejected before" in run.out
        assert balanced(tmp_path / "c")["read"] == 21

    def test_images_in_an_archive(self, tmp_path: Folder) -> None:
        """Members are identified by name, anywhere in the fixed archive."""
        members = {f"{label}/{n}.png": image(n) for label in "xy" for n in range(9)}
        bad = {"y/a.png": b"no image"}
        source = tmp_path / "tree.zip"

        def write(files: Mapping[str, bytes]) -> None:
            with zipfile.ZipFile(source, "w") as archive:
                for name, data in files.items():
                    archive.writestr(name, data)

        write(members | bad)
        convert(source, tmp_path / "a", *ALL, "--keep-rejected-bytes")
        assert [item["bytes"] for item in kept(tmp_path / "a")] == [b"no image"]
        write({"y/a.png": image(9)} | members)
        only = ("--only-rejected", tmp_path / "a")
        convert(source, tmp_path / "b", *ALL, *only)
        assert balanced(tmp_path / "b")["skipped"] == {"not_rejected_before": 18}
        (row,) = rows(tmp_path / "b")
        assert row["image"] == image(9)

    def test_boxes_are_accounted_for(self, tmp_path: Folder) -> None:
        """Boxes of skipped images are lost with them, bad ones as well."""
        annotations = [
            {"id": n, "image_id": n % 3, "category_id": 1, "bbox": [0, 0, 2, side]}
            for n, side in enumerate((2, 2, 2, 2, 2, -1))
        ]
        images = [
            {"id": n, "file_name": f"{n}.png", "height": 4, "width": 4}
            for n in range(3)
        ]
        coco = {
            "images": images,
            "annotations": annotations,
            "categories": [{"id": 1, "name": "thing"}],
        }
        source = write_files(
            tmp_path / "in",
            {
                "instances.json": json.dumps(coco).encode(),
                "0.png": image(0),
                "1.png": b"no image",
                "2.png": image(2),
            },
        )
        convert(source, tmp_path / "a", *ALL)
        assert balanced(tmp_path / "a")["rejected"] == {"not_an_image": 1}
        write_files(source, {"1.png": image(1)})
        only = ("--only-rejected", tmp_path / "a")
        convert(source, tmp_path / "b", *ALL, *only)
        found = balanced(tmp_path / "b")
        assert found["written"] == 1
        boxes = found["parts"]["boxes"]
        assert boxes == {"read": 6, "written": 2, "rejected": 0, "gone": 4}


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

    def test_files_that_are_left_out_are_no_rows(self, tmp_path: Folder) -> None:
        """The share is of the rows, and what was skipped comes apart."""
        for number in range(3):
            table(tmp_path / "in" / f"{number}.csv", {}, 10)
        table(tmp_path / "in" / "9.csv", {2: "2,dog"}, 10)
        only = ("--include", "9.csv", "--max-reject-rate", 1)
        convert(tmp_path / "in", tmp_path / "a", *only)
        head, *_ = command("rejects", tmp_path / "a").out.splitlines()
        counts = "1 item rejected of 10 read (10.0 %); 3 others skipped"
        assert head == f"{tmp_path / 'a'}  {counts}"

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

    def test_a_failed_run(self, tmp_path: Folder, spec: Folder) -> None:
        """Its output is named, though it is not there."""
        source = table(tmp_path / "t.csv", BAD)
        refused(3, source, tmp_path / "a", "--spec", spec)
        shown = command("rejects", tmp_path / "a").out
        assert "4 items rejected by a run that committed nothing" in shown

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
            (("a", "--reason", "other_suffix"), "that were skipped are not listed"),
            (("a", "--reason", "xyz"), "one of field_count, "),
            (("a", "--reason", "not_a_numbr"), "Did you mean 'not_a_number'?"),
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

    def test_the_manifest_names_what_is_kept(self, out: Folder) -> None:
        """Lines and items are files of the dataset, and `inspect` names them."""
        named = [each["file"] for each in manifest(out)["dataset"]["files"]]
        assert {"rejects.jsonl", "rejects.items"} <= set(named)
        assert "rejects.items" in command("inspect", out).out
        assert command("head", out / "rejects.items", "-n", 1).code == 0
        assert pathlib.Path(out, "rejects.items").stat().st_size > 0
