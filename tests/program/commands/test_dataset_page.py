"""`report`: the page of a dataset."""

import html.parser
import io
import pathlib
import re

import pytest
from PIL import Image

from tests.support.datasets import ANIMALS, Row, Splits, animals, write_dataset
from tests.support.kinds import write_kinds
from tests.support.outputs import dataset as facts_of
from tests.support.outputs import flip
from tests.support.runs import command, convert, done, failed
from tests.support.sources import write_csv
from transforms.core.schema import Feature, Kind

Folder = pathlib.Path

# Elements that HTML does not close.
_VOID = {"meta", "img", "br"}


class Page(html.parser.HTMLParser):
    """A page: its elements, its text, and that every element is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in _VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        """All text, with single spaces."""
        return " ".join(" ".join(self.texts).split())

    def all(self, tag: str) -> list[dict[str, str | None]]:
        """The attributes of each element of a kind."""
        return [attributes for name, attributes in self.elements if name == tag]


def page_of(target: Folder) -> tuple[Page, str]:
    """Runs `report`; returns the page, checked for what holds for all of them."""
    done("report", target)
    text = target.with_name(f"{target.name}.report.html").read_text()
    page = Page(text)
    assert not {"script", "link", "iframe", "object"} & {t for t, _ in page.elements}
    for _, attributes in page.elements:
        assert not any(name.startswith("on") for name in attributes)
        for name in ("src", "href", "xlink:href", "action"):
            value = attributes.get(name) or "#"
            assert value.startswith(("#", "data:image/webp;base64,"))
    style = text.partition("<style>")[2].partition("</style>")[0]
    assert "url(" not in style
    assert "@import" not in style
    return page, text


@pytest.fixture(scope="module")
def images(photos: Folder, tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """The images of the sample, converted."""
    output = tmp_path_factory.mktemp("page") / "photos"
    convert(photos, output)
    return output


def test_it_says_what_the_manifest_says(images: Folder) -> None:
    """Records, digest, splits, and the count of each class in each split."""
    page, _ = page_of(images)
    facts = facts_of(images)
    assert facts["digest"] in page.text
    read = facts["account"]["read"]
    assert f"{read} read = {read} written + 0 rejected + 0 skipped adds up" in page.text
    for split in facts["splits"]:
        assert f"{split['name']} {split['records']}" in page.text
    label = next(iter(facts["splits"][0]["classes"]))
    for name in {name for s in facts["splits"] for name in s["classes"][label]}:
        counts = [split["classes"][label].get(name, 0) for split in facts["splits"]]
        shown = r" [\d.]+ % ".join(map(str, counts))
        assert re.search(rf"\b{name} {shown}", page.text), name


def test_classes_that_a_split_lacks(tmp_path: Folder) -> None:
    """They are named, and how unequal the others are in each split."""
    kinds = {"train": "aaaaaabbc", "test": "aab"}
    splits: Splits = {
        split: [[{"n": n, "kind": kind} for n, kind in enumerate(some)]]
        for split, some in kinds.items()
    }
    features = (Feature("n", Kind.INT64), Feature("kind", Kind.LABEL, is_label=True))
    write_dataset(tmp_path / "set", splits, features)
    page, _ = page_of(tmp_path / "set")
    assert "missing in test c class" in page.text
    assert "missing in train" not in page.text
    assert "train largest : smallest = 6.0" in page.text
    assert "test largest : smallest = 2.0" in page.text


def test_it_is_beside_the_dataset(images: Folder) -> None:
    """The dataset is as it was, and sound."""
    before = sorted(path.name for path in images.iterdir())
    page_of(images)
    assert sorted(path.name for path in images.iterdir()) == before
    assert command("verify", images).code == 0


def test_hostile_names(tmp_path: Folder) -> None:
    """HTML in names of classes, columns and values is text on the page."""
    script = "<script>alert(1)</script>"
    image = "<img src=x onerror=alert(2)>"
    rows = (f'{n},"{(script, image)[n % 2]}","\'""&amp;{n % 3}"' for n in range(40))
    source = write_csv(tmp_path / "rows.csv", f'"{image}",kind,"a""\'b"', rows)
    convert(source, tmp_path / "out", "--label-column", "kind")
    page, text = page_of(tmp_path / "out")
    assert script in page.text
    assert image in page.text
    assert script not in text
    assert image not in text


def test_damaged_and_equal_images(tmp_path: Folder) -> None:
    """Rejects by reason with an example; images of both splits side by side."""
    for split in ("train", "test"):
        for kind, colour in (("a", "red"), ("b", "blue")):
            folder = tmp_path / "in" / split / kind
            folder.mkdir(parents=True)
            Image.new("RGB", (8, 8), colour).save(folder / "0.png")
            Image.new("RGB", (8, 9 + len(split)), colour).save(folder / "1.png")
        (tmp_path / "in" / split / "a" / "bad.png").write_bytes(b"\x89PNG\r\n\x1a\nx")
    convert(tmp_path / "in", tmp_path / "out", "--max-reject-rate", "0.5")
    page, _ = page_of(tmp_path / "out")
    assert "damaged_image 2" in page.text
    assert "bad.png" in page.text
    assert "2 images among the 8 records read" in page.text
    assert len(page.all("img")) == 8 + 4


def test_images_that_cannot_be_decoded(tmp_path: Folder) -> None:
    """Their places say so; the others are shown."""
    out = io.BytesIO()
    Image.new("RGB", (64, 64), "red").save(out, "PNG")
    files = (out.getvalue(), out.getvalue()[:60], b"no image")
    rows: list[Row] = [{"image": data, "label": "a"} for data in files]
    features = (Feature("image", Kind.IMAGE), Feature("label", Kind.LABEL))
    write_dataset(tmp_path / "set", {"train": [rows]}, features)
    page, _ = page_of(tmp_path / "set")
    assert len(page.all("img")) == 1
    assert page.text.count("cannot be decoded") == 2


@pytest.mark.parametrize("compression", ["none", "gzip", "zlib"])
def test_tables(tmp_path: Folder, compression: str) -> None:
    """Every kind of value, missing ones and bytes that are no text, in any shards."""
    splits: Splits = {
        "train": animals(30, 20),
        "test": animals(9, start=90),
        "none": [[]],
    }
    write_dataset(tmp_path / "set", splits, compression=compression)
    page, _ = page_of(tmp_path / "set")
    for name in ("id", "weight", "tame", "note", "raw", "animal"):
        assert name in page.text
    assert not page.all("img")


def test_classes_of_boxes_that_are_bytes(tmp_path: Folder) -> None:
    """They have no table: a class is text or a number."""
    features = (
        Feature("image/object/bbox", Kind.BOX),
        Feature("image/object/class/text", Kind.BYTES, shape=(None,)),
    )
    row: Row = {features[0].name: [[0.1, 0.1, 0.5, 0.5]], features[1].name: [b"cat"]}
    write_kinds(tmp_path / "set", [row], features)
    page, _ = page_of(tmp_path / "set")
    assert "cat" not in page.text


class TestPlace:
    def test_to_standard_output(
        self, images: Folder, tmp_path: Folder, capfd: pytest.CaptureFixture[str]
    ) -> None:
        """There is the page, of the same bytes, and nothing else."""
        page = tmp_path / "page.html"
        assert command("report", images, "-o", page).code == 0
        capfd.readouterr()
        # The page goes to the descriptor, any other line to `sys.stdout`.
        run = command("report", images, "-o", "-")
        assert (run.code, run.out) == (0, "")
        assert capfd.readouterr().out == page.read_text(encoding="utf-8")

    def test_not_in_the_dataset(self, images: Folder) -> None:
        """Its folder holds what the manifest names."""
        failed(2, "report", images, "-o", images / "page.html")
        assert not (images / "page.html").exists()

    def test_no_dataset(self, images: Folder, tmp_path: Folder) -> None:
        """A folder without a manifest, or a single shard, is refused."""
        shard = next(images.glob("*.tfrecord*"))
        for target in (tmp_path, shard, tmp_path / "missing"):
            run = failed(2, "report", target, "-o", tmp_path / "x.html")
            assert run.err.startswith("error: ")
            assert not (tmp_path / "x.html").exists()

    @pytest.mark.parametrize("has_numbers", [True, False])
    def test_damage(self, has_numbers: bool, tmp_path: Folder) -> None:
        """A damaged shard is an error that names it, also where nothing is counted."""
        raw: list[list[Row]] = [[{"raw": b"\xff" * 40}]]
        features = ANIMALS if has_numbers else [Feature("raw", Kind.BYTES)]
        shards = animals(30) if has_numbers else raw
        write_dataset(tmp_path / "set", {"train": shards}, features)
        shard = next((tmp_path / "set").glob("*.tfrecord*"))
        flip(shard, 40)
        run = failed(1, "report", tmp_path / "set")
        assert shard.name in run.err
        assert "Traceback" not in run.err
        assert not (tmp_path / "set.report.html").exists()


def test_what_is_no_report_is_kept(images: Folder, tmp_path: Folder) -> None:
    """What has the name that nobody gave is not replaced."""
    page = images.with_name("photos.report.html")
    page.write_text("mine")
    assert command("report", images).code == 2
    assert page.read_text() == "mine"
    page.unlink()
