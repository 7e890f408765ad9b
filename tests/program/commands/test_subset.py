"""`subset`: a part of a dataset as a dataset of its own."""

import json
import os
import pathlib
import shutil
import tempfile
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_pipeline import open_dataset
from tests.support.datasets import animals, write_dataset
from tests.support.outputs import as_stated, contents, manifest_of
from tests.support.runs import Run, command, convert, done, failed
from transforms.reading.records import Records

Folder = pathlib.Path

ROWS = 400


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """A converted table with a key column, missing values and classes."""
    folder = tmp_path_factory.mktemp("people")
    lines = [
        f"{number},name{number},{number % 90 or ''},{('cat', 'dog', 'hat')[number % 3]}"
        for number in range(ROWS)
    ]
    (folder / "rows.csv").write_text("\n".join(["id,name,age,kind", *lines, ""]))
    convert(
        folder / "rows.csv",
        folder / "set",
        *("--splits", "train=0.8,test=0.2", "--key-column", "id"),
        *("--label-column", "kind", "--shards", "8"),
    )
    return folder / "set"


def subset(source: Folder, output: Folder, *options: object) -> Run:
    """Runs `subset`; the result must be sound."""
    run = done("subset", source, output, *options)
    done("verify", output)
    return run


def rows_of(folder: Folder) -> dict[str, list[dict[str, Any]]]:
    dataset = open_dataset(folder, labels="names")
    return {split: [*dataset[split]] for split in dataset}


def shared(one: Folder, other: Folder) -> set[str]:
    """Returns the names of files that both folders hold as one file."""
    names = {*os.listdir(one)} & {*os.listdir(other)}
    return {name for name in names if os.path.samefile(one / name, other / name)}


def test_erased_people_are_gone(people: Folder, tmp_path: Folder) -> None:
    """Only the shards that hold them are written again; their keys are nowhere."""
    keys = ["5", "17", str(ROWS - 1)]
    (tmp_path / "keys").write_text("\r\n".join([*keys, "", "987654321"]))
    out = tmp_path / "out"
    run = subset(people, out, "--drop-keys", tmp_path / "keys")
    before, after = rows_of(people), rows_of(out)
    gone = {int(key) for key in keys}
    assert after == {
        split: [row for row in rows if row["id"] not in gone]
        for split, rows in before.items()
    }
    touched = 16 - len(shared(people, out))
    assert 1 <= touched <= 3
    assert f"{touched} shard" in run.out
    assert "1 of the keys to drop are of no record" in run.out
    manifest = manifest_of(out)
    (said,) = manifest.settings["subsets"]
    assert said["dropped_keys"]["keys"] == 4
    assert said["dropped_keys"]["feature"] == "id"
    assert manifest.account.skipped == {"dropped_key": 3}
    assert manifest.account.balance == 0
    for data in contents(out).values():
        assert f"name{ROWS - 1}".encode() not in data
    assert b"987654321" not in (out / "manifest.json").read_bytes()


def test_keys_of_nobody_are_an_error(people: Folder, tmp_path: Folder) -> None:
    """What erases nobody writes nothing; of one split, the keys may be of another."""
    (tmp_path / "keys").write_text("id-5\nid-17\n")
    options = ("--drop-keys", tmp_path / "keys")
    refused = failed(4, "subset", people, tmp_path / "out", *options)
    assert "these 2 in its feature 'id'" in refused.err
    assert not (tmp_path / "out").exists()
    run = subset(people, tmp_path / "out", *options, "--split", "test")
    assert "2 of the keys to drop are of no record" in run.out


def test_people_are_erased_in_place(people: Folder, tmp_path: Folder) -> None:
    """The dataset may be its own output, with --overwrite."""
    place = tmp_path / "set"
    subset(people, place, "--where", "id >= 0")
    (tmp_path / "keys").write_text("name7\n")
    options = ("--drop-keys", tmp_path / "keys", "--key-feature", "name")
    refused = failed(2, "subset", place, place, *options)
    assert "--overwrite" in refused.err
    subset(place, place, *options, "--overwrite")
    assert sum(map(len, rows_of(place).values())) == ROWS - 1
    steps = manifest_of(place).settings["subsets"]
    assert [*map(sorted, steps)] == [["where"], ["dropped_keys"]]
    assert sorted(os.listdir(tmp_path)) == ["keys", "set"]


def test_keys_come_from_the_catalogue(
    people: Folder, tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it has them, shards without these people are not read."""
    listed = tmp_path / "listed"
    shutil.copytree(people, listed)
    done("index", listed, "--catalogue")
    (tmp_path / "keys").write_text("7\n")
    options = ("--drop-keys", tmp_path / "keys")
    subset(people, tmp_path / "plain", *options)
    with monkeypatch.context() as patch:
        patch.setattr(Records, "batches", None)
        subset(listed, tmp_path / "out", *options)
    one, other = (manifest_of(tmp_path / name) for name in ("plain", "out"))
    assert one.digest == other.digest


def test_images_are_erased_by_their_files(photos: Folder, tmp_path: Folder) -> None:
    """The catalogue knows the file that each record comes from; so does `diff`."""
    convert(photos, tmp_path / "set")
    paths = sorted(photos.rglob("*.*g"))[::30]
    names = [path.relative_to(photos).as_posix() for path in paths]
    (tmp_path / "files").write_text("\n".join(names))
    options = ("--drop-keys", tmp_path / "files", "--key-feature", "_origin")
    subset(tmp_path / "set", tmp_path / "out", *options)
    found = command("diff", tmp_path / "set", tmp_path / "out", "--json")
    told = json.loads(found.out)
    assert told["gone"] == len(names)
    assert told["known_by"] == ["_origin", "_row"]
    assert {each["key"] for each in told["examples"]["gone"]} <= {*names}
    assert told["added"] == told["changed"] == told["moved"] == 0


def test_split_class_and_condition(people: Folder, tmp_path: Folder) -> None:
    """They choose records, as they do for `head` and `export`."""
    out = tmp_path / "out"
    choice = ("--split", "train", "--label", "cat", "--where", "age > 50")
    subset(people, out, *choice)
    view = open_dataset(people, labels="names")["train"]
    wanted = [*view.where("age > 50 and kind == 'cat'")]
    assert rows_of(out) == {"train": wanted}
    manifest = manifest_of(out)
    assert manifest.splits[0].classes == {
        "kind": {"cat": len(wanted), "dog": 0, "hat": 0}
    }
    ages = [row["age"] for row in wanted]
    facts = {each.feature.name: each.statistics for each in manifest.features}
    assert (facts["age"].minimum, facts["age"].maximum) == (min(ages), max(ages))
    assert len(manifest.splits[0].shards) == 8


def test_a_number_to_predict_is_a_label(tmp_path: Folder) -> None:
    """`--label` takes it, and says so of what is no number."""
    lines = "".join(f"{number},{number % 3}\n" for number in range(30))
    (tmp_path / "rows.csv").write_text(f"id,survived\n{lines}")
    convert(tmp_path / "rows.csv", tmp_path / "set", "--label-column", "survived")
    subset(tmp_path / "set", tmp_path / "out", "--label", "1", "--where", "id > 20")
    rows = rows_of(tmp_path / "out")["train"]
    assert sorted(row["id"] for row in rows) == [22, 25, 28]
    run = failed(2, "subset", tmp_path / "set", tmp_path / "new", "--label", "yes")
    assert "--label must be a number, for 'survived', " in run.err


def test_a_subset_depends_on_input_and_arguments_alone(
    people: Folder, tmp_path: Folder
) -> None:
    """Twice the same: the same digest, and the same bytes of all files but one."""
    for name in ("one", "two"):
        subset(people, tmp_path / name, "--where", "age > 30")
    one, two = tmp_path / "one", tmp_path / "two"
    assert manifest_of(one).digest == manifest_of(two).digest
    assert contents(one) == contents(two)


def test_classes_that_lose_all_records_are_named(
    people: Folder, tmp_path: Folder
) -> None:
    """They keep their ids; those that had no record before are no news."""
    out = tmp_path / "out"
    run = subset(people, out, "--where", "kind != 'hat'")
    assert manifest_of(out).features[-1].classes == ("cat", "dog", "hat")
    (note,) = manifest_of(out).run["notes"]
    assert note.startswith("1 class of 'kind' without records: 'hat'. All ids stay")
    assert "convert the subset with --vocabulary FILE" in note
    assert "note: 1 class of 'kind' without records: 'hat'." in run.out
    again = subset(out, tmp_path / "again", "--where", "kind != 'dog'")
    assert "1 class of 'kind' without records: 'dog'." in again.out
    assert "note" not in subset(people, tmp_path / "all", "--where", "age > 1").out


@given(
    gone=st.sets(st.integers(0, 29), max_size=29),
    split=st.sampled_from(["", "train", "test"]),
    compression=st.sampled_from(["none", "gzip"]),
)
def test_a_subset_is_what_writing_its_rows_gives(
    gone: set[int], split: str, compression: str
) -> None:
    """Records, shards, counts and ranges are those of a dataset written anew."""
    shards = {"train": animals(7, 0, 9, 4), "test": animals(3, 7, start=20)}
    with tempfile.TemporaryDirectory() as place:
        root = Folder(place)
        write_dataset(root / "set", shards, compression=compression)
        options: list[object] = ["--split", split] if split else []
        if gone:
            (root / "keys").write_text("\n".join(map(str, gone)))
            options += ["--drop-keys", root / "keys", "--key-feature", "id"]
        kept = {
            name: [[row for row in rows if row["id"] not in gone] for rows in s]
            for name, s in shards.items()
            if split in ("", name)
        }
        run = command("subset", root / "set", root / "out", *options)
        if not any(rows for each in kept.values() for rows in each):
            assert run.code == 4
            assert "at least one record" in run.err
            return
        assert run.code == 0, run.err
        found = manifest_of(root / "out")
        names = found.features[-1].classes
        wanted = write_dataset(
            root / "new", kept, compression=compression, classes={"animal": names}
        )
        assert as_stated(found) == as_stated(wanted)
        assert command("verify", root / "out", "--quiet").code == 0


def test_zlib_shards_are_taken_as_they_are(tmp_path: Folder) -> None:
    """What has to be written again is refused, with what to do instead."""
    write_dataset(
        tmp_path / "set", {"train": animals(3), "test": animals(2)}, compression="zlib"
    )
    subset(tmp_path / "set", tmp_path / "out", "--split", "test")
    (shard,) = manifest_of(tmp_path / "out").splits[0].shards
    same = [(tmp_path / each / shard.file).read_bytes() for each in ("set", "out")]
    assert same[0] == same[1]
    run = failed(2, "subset", tmp_path / "set", tmp_path / "no", "--where", "id != 2")
    assert "--compression gzip" in run.err
    assert not (tmp_path / "no").exists()


def test_what_cannot_be_asked(people: Folder, tmp_path: Folder) -> None:
    """Each mistake says what to do, and leaves nothing behind."""
    keys = tmp_path / "keys"
    keys.write_text("5\n")
    empty = tmp_path / "empty"
    empty.write_text("\n\n")
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "mine.txt").write_text("kept")
    write_dataset(tmp_path / "set", {"train": animals(3)})
    out = tmp_path / "out"
    for source, target, options, code, words in (
        (people, out, ("--split", "trian"), 2, "no split 'trian'"),
        (people, out, ("--where", "id <"), 2, "condition"),
        (people, out, ("--where", "id < 0"), 4, "none is left: condition 400"),
        (people, out, ("--drop-keys", empty), 4, "one key a line"),
        (people, out, ("--drop-keys", tmp_path / "none"), 1, "none"),
        (people, out, ("--drop-keys", keys, "--key-feature", "x"), 2, "--key-feature"),
        (people, out, ("--key-feature", "id"), 2, "--drop-keys"),
        (people, foreign, (), 2, "mine.txt"),
        (people, people / "below", (), 2, "outside of the dataset"),
        (tmp_path / "set", out, ("--drop-keys", keys), 2, "--key-feature"),
    ):
        run = command("subset", source, target, *options)
        assert run.code == code, (options, run)
        assert words in run.err, (options, run.err)
        assert "Traceback" not in run.err
    assert sorted(os.listdir(tmp_path)) == ["empty", "foreign", "keys", "set"]
    assert os.listdir(foreign) == ["mine.txt"]


def test_a_damaged_shard_stops_it(tmp_path: Folder) -> None:
    """Whether it is read or only linked: nothing is left at the output."""
    write_dataset(tmp_path / "set", {"train": animals(5, 5)})
    path = sorted((tmp_path / "set").glob("*tfrecord*"))[1]
    data = path.read_bytes()
    for spoilt in (data[:-1], data[:-1] + bytes([data[-1] ^ 1])):
        path.write_bytes(spoilt)
        condition = "id < 7" if len(spoilt) == len(data) else "id < 100"
        run = failed(
            1, "subset", tmp_path / "set", tmp_path / "out", "--where", condition
        )
        assert path.name in run.err
        assert os.listdir(tmp_path) == ["set"]


def test_where_links_are_refused_bytes_are_copied(
    people: Folder, tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another file system gets copies, whose checksums are compared."""

    def refused(*_: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refused)
    out = tmp_path / "out"
    subset(people, out)
    assert not shared(people, out)
    assert manifest_of(out).splits == manifest_of(people).splits
    assert json.loads((out / "dataset_info.json").read_text())
