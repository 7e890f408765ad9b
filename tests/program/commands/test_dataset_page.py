"""`report`: the page says what the manifest says, is safe, and loads nothing."""

import html
import json
import pathlib
import re
import shutil

import pytest

from tests.support.datasets import animals, write_dataset
from tests.support.runs import command, convert
from transforms.core.schema import Feature, Kind

Folder = pathlib.Path

# What makes a browser load something, or run it.
_LOADS = re.compile(
    r"<script|<link|<iframe|<object|<embed|\son[a-z]+=|javascript:|@import"
    r"|(?:src|srcset|poster|action)\s*=\s*(?![\"']?data:)|url\((?!['\"]?(?:data:|#))",
    re.IGNORECASE,
)


def page_of(dataset: Folder, *options: object) -> str:
    """Returns the page that `report` writes of a dataset."""
    path = dataset.with_name(f"{dataset.name}.report.html")
    run = command("report", dataset, *options)
    assert run.code == 0, run.err
    return path.read_text(encoding="utf-8")


def text_of(page: str) -> str:
    """Returns what a reader sees of a page, in one line."""
    plain = re.sub(r"<(style|title)>.*?</\1>", " ", page, flags=re.S)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", plain)).split())


def test_images(photos: Folder, tmp_path: Folder) -> None:
    """Counts, classes and pictures; beside the dataset, which stays as it is."""
    convert(photos, tmp_path / "set")
    before = {path.name: path.read_bytes() for path in (tmp_path / "set").iterdir()}
    page = page_of(tmp_path / "set")
    text = text_of(page)
    manifest = json.loads(before["manifest.json"])["dataset"]
    assert manifest["digest"][:12] in text
    for split in manifest["splits"]:
        assert f"{split['name']} {split['records']}" in text
        for counts in split["classes"].values():
            assert all(f"{count} " in text for count in counts.values())
    assert 60 <= page.count("data:image/webp;base64,") <= 3_000
    assert not _LOADS.search(page)
    assert len(page.encode()) < 5_000_000
    after = {path.name: path.read_bytes() for path in (tmp_path / "set").iterdir()}
    assert after == before


def test_the_same_page_twice(photos: Folder, tmp_path: Folder) -> None:
    """From a run of its own, too; `convert --report` writes it, in a new folder."""
    pages = []
    for workers in (1, 2):
        convert(photos, tmp_path / "new/set", "--report", "--workers", workers)
        pages.append((tmp_path / "new/set.report.html").read_bytes())
        shutil.rmtree(tmp_path / "new")
    assert pages[0] == pages[1]


def test_texts_are_escaped(tmp_path: Folder) -> None:
    """Names of classes, features and values are never markup."""
    evil = "<script>alert(1)</script>"
    features = (
        Feature("<b>n", Kind.INT64),
        Feature("word", Kind.TEXT),
        Feature("label", Kind.LABEL, is_label=True),
    )
    rows = [
        {"<b>n": n, "word": evil, "label": f"{evil}\" onload='x{n % 2}"}
        for n in range(9)
    ]
    write_dataset(tmp_path / "set", {"train": [rows[:6]], "test": [rows[6:]]}, features)
    page = page_of(tmp_path / "set")
    assert "<script" not in page
    assert "<b>n" not in page
    assert "alert(1)" in text_of(page)


@pytest.mark.parametrize("counts", [(1,), (0,), (3, 0, 2)])
def test_few_records(tmp_path: Folder, counts: tuple[int, ...]) -> None:
    """One record, none at all, and shards without any."""
    write_dataset(tmp_path / "set", {"train": animals(*counts), "test": []})
    text = text_of(page_of(tmp_path / "set", "--verify"))
    assert f"{sum(counts)} written" in text


def test_rejects_are_shown(tmp_path: Folder) -> None:
    """By reason, with an example."""
    lines = ["a,b", *(f"{n},{n}" for n in range(50)), "x,1"]
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    spec = ("--max-reject-rate", "0.5", "--spec", tmp_path / "spec.yaml")
    (tmp_path / "spec.yaml").write_text("features: {a: {kind: int64}}\n")
    convert(tmp_path / "rows.csv", tmp_path / "set", *spec)
    text = text_of(page_of(tmp_path / "set"))
    assert "not_an_integer" in text


def test_another_file_is_not_replaced(tmp_path: Folder) -> None:
    """Only a page of this program is."""
    write_dataset(tmp_path / "set", {"train": animals(3)})
    path = tmp_path / "mine.html"
    path.write_text("<p>mine</p>")
    run = command("report", tmp_path / "set", "-o", path)
    assert run.code == 2
    assert path.read_text() == "<p>mine</p>"
    path.unlink()
    for _ in range(2):
        assert command("report", tmp_path / "set", "-o", path, "--quiet").code == 0


def test_damage(tmp_path: Folder) -> None:
    """A damaged record ends it with an error; no page is left."""
    write_dataset(tmp_path / "set", {"train": animals(3)})
    (shard,) = (tmp_path / "set").glob("*.tfrecord-*")
    data = bytearray(shard.read_bytes())
    data[40] ^= 1
    shard.write_bytes(data)
    run = command("report", tmp_path / "set")
    assert run.code == 1
    assert shard.name in run.err
    assert not (tmp_path / "set.report.html").exists()
