"""The same files and the same job give the same bytes, whatever else differs."""

import os
import pathlib
import random
import shutil

import pytest

from tests.support.golden_datasets import (
    GOLDEN_MEASURES,
    GOLDEN_PETS,
    MEASURES_OPTIONS,
    PETS_OPTIONS,
    digests,
    measures,
    pets,
)
from tests.support.outputs import contents, dataset, payloads, row_of, rows, split_sizes
from tests.support.runs import convert
from tests.support.sources import write_csv

Folder = pathlib.Path

pytestmark = pytest.mark.usefixtures("without_runner")


def same(one: Folder, other: Folder) -> bool:
    """Whether two datasets are equal in every file, and in the manifest's facts."""
    assert contents(one) == contents(other)
    assert dataset(one) == dataset(other)
    return True


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    folder = tmp_path_factory.mktemp("source")
    pets(folder / "pets")
    measures(folder / "measures.csv")
    return folder


@pytest.fixture(scope="module")
def reference(source: Folder, tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """Both datasets, made in this process with one worker."""
    folder = tmp_path_factory.mktemp("reference")
    convert(source / "pets", folder / "pets", *PETS_OPTIONS)
    convert(source / "measures.csv", folder / "measures", *MEASURES_OPTIONS)
    return folder


@pytest.fixture(params=["pets", "measures"])
def job(request: pytest.FixtureRequest) -> tuple[str, str, tuple[object, ...]]:
    """The name of a source, of its dataset, and its options."""
    if request.param == "pets":
        return "pets", "pets", PETS_OPTIONS
    return "measures.csv", "measures", MEASURES_OPTIONS


Job = tuple[str, str, tuple[object, ...]]


class TestGolden:
    def test_images(self, reference: Folder) -> None:
        """The bytes of an image dataset are these and have always been."""
        assert digests(reference / "pets") == GOLDEN_PETS

    def test_table(self, reference: Folder) -> None:
        """The bytes of a CSV dataset are these and have always been."""
        assert digests(reference / "measures") == GOLDEN_MEASURES

    def test_their_records_are_the_source(
        self, source: Folder, reference: Folder
    ) -> None:
        """What is pinned is right: every image, and every good row, is there."""
        images = {row["filename"].decode(): row for row in rows(reference / "pets")}
        assert len(images) == 30
        for name, row in images.items():
            assert row["image"] == (source / "pets" / name).read_bytes()
            assert row["width"] == 3 + int(pathlib.Path(name).stem)
            assert row["label"] == ["cat", "고양이"].index(name.split("/")[1])
        table = rows(reference / "measures")
        assert len(table) == 1000
        assert sum("i" in row for row in table) == 900
        assert sorted(row["i"] for row in table if "i" in row) == [
            number * 7919 - 3_000_000 for number in range(1000) if number % 10
        ]


class TestSameBytes:
    def test_another_place_and_other_times(
        self, job: Job, source: Folder, reference: Folder, tmp_path: Folder
    ) -> None:
        """The source may be copied elsewhere, by another order and at another time."""
        name, made, settings = job
        copy = tmp_path / "elsewhere" / "deep"
        paths = [p for p in sorted(source.rglob("*")) if p.is_file()]
        random.Random(5).shuffle(paths)
        for number, path in enumerate(paths):
            to = copy / path.relative_to(source)
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, to)
            os.utime(to, (number, 10**9 + number))
        convert(copy / name, tmp_path / "out", *settings)
        assert same(tmp_path / "out", reference / made)


class TestSeed:
    def test_another_seed_moves_no_row_between_splits(self, tmp_path: Folder) -> None:
        """--seed changes order and shards; who is in which split stays."""
        path = write_csv(tmp_path / "s" / "t.csv", "n", range(2000))
        options = ("--splits", "train=0.8,dev=0.1,test=0.1", "--shards", 3)
        found = []
        for seed in (0, 1, 2**40):
            out = tmp_path / str(seed)
            convert(path, out, *options, "--seed", seed)
            found.append(
                {name: [r["n"] for r in rows(out, name)] for name in split_sizes(out)}
            )
        for other in found[1:]:
            for name, numbers in found[0].items():
                assert set(other[name]) == set(numbers)
                assert other[name] != numbers

    def test_a_row_that_is_added_moves_no_other_between_splits(
        self, tmp_path: Folder
    ) -> None:
        """A file that grows at its end keeps its rows where they were."""
        options = ("--splits", "train=0.5,test=0.5")
        held = []
        for count in (500, 600):
            path = write_csv(tmp_path / str(count) / "t.csv", "n", range(count))
            convert(path, tmp_path / f"out-{count}", *options)
            test = {row["n"] for row in rows(tmp_path / f"out-{count}", "test")}
            held.append({number for number in test if number < 500})
        assert held[0] == held[1]

    def test_equal_tables_share_splits_and_are_ordered_apart(
        self, tmp_path: Folder
    ) -> None:
        """Rows of equal content share a split; their order goes by file and row."""
        for name in ("a.csv", "b.csv"):
            write_csv(tmp_path / "s" / name, "n", range(300))
        convert(tmp_path / "s", tmp_path / "out", "--splits", "x=0.5,y=0.5")
        sizes = split_sizes(tmp_path / "out")
        assert sum(sizes.values()) == 600
        numbers = [row_of(payload)["n"] for payload in payloads(tmp_path / "out", "x")]
        assert len(set(numbers)) * 2 == len(numbers) == sizes["x"]
        firsts = list(dict.fromkeys(numbers))
        lasts = list(dict.fromkeys(numbers[::-1]))[::-1]
        assert firsts != lasts


class TestPromise:
    def test_the_manifest_separates_what_may_differ(
        self, source: Folder, reference: Folder
    ) -> None:
        """Place, time and workers are in its `run` part and nowhere else."""
        out = reference / "pets"
        text = (out / "manifest.json").read_text(encoding="utf-8")
        inside = text[: text.index('"run"')]
        for place in (reference, source):
            assert str(place) not in inside
            assert all(str(place).encode() not in x for x in contents(out).values())
