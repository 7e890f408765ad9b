"""Folders of images: which files, which layout, which labels and splits."""

import pathlib
import unicodedata
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_pipeline.planning.chosen_files import choose_files
from beam_pipeline.settings.spec import Spec, make_spec
from transforms.core.model import Block
from transforms.core.reasons import Skipped
from transforms.errors import SourceError, SpecError
from transforms.formats import images
from transforms.formats.file_names import is_image_name
from transforms.formats.file_runs import RunSource
from transforms.formats.images import ImageListReader, Listing
from transforms.formats.input_files import write_listing
from transforms.formats.tree_shape import SPLIT_WORDS
from transforms.storage.file_list import FileList
from transforms.storage.paths import FileEntry

Folder = pathlib.Path


def entries(*paths: str, size: int = 10) -> FileList:
    return FileList.of(FileEntry(p, size + i, 0) for i, p in enumerate(paths))


def arrange(*paths: str, limit: int | None = None) -> Listing:
    return images.list_images(entries(*paths), {}, root="photos", limit=limit)


def column(listing: Listing, name: str) -> list[Any]:
    return listing.rows.table()[name].to_pylist()


def spec_with(include: Sequence[str], exclude: Sequence[str]) -> Spec:
    given = {"source": "photos", "output": "out"}
    return make_spec({**given, "include": [*include], "exclude": [*exclude]})


def select(
    *paths: str, include: Sequence[str] = (), exclude: Sequence[str] = ()
) -> tuple[list[str], dict[str, int]]:
    spec = spec_with(include, exclude)
    kept, skipped, _ = choose_files(spec, entries(*paths), is_image_name)
    return [entry.path for entry in kept], skipped


def test_label_folders() -> None:
    """`label/file`: the folder says the class; there is no split."""
    listing = arrange("dog/1.jpg", "cat/1.jpg", "cat/0.png", "고양이/1.jpg")
    assert column(listing, "path") == [
        "cat/0.png",
        "cat/1.jpg",
        "dog/1.jpg",
        "고양이/1.jpg",
    ]
    assert column(listing, "label") == ["cat", "cat", "dog", "고양이"]
    assert column(listing, "split") == [None] * 4
    assert listing.labels == ("cat", "dog", "고양이")
    assert listing.splits == {}
    assert listing.bytes == 10 + 11 + 12 + 13


@pytest.mark.parametrize("word", sorted(SPLIT_WORDS))
@pytest.mark.parametrize("change", [str.lower, str.upper, str.title])
def test_split_words_in_any_case(word: str, change: Any) -> None:
    """A first level of common split names is the split, in its own spelling."""
    split = change(word)
    listing = arrange(f"{split}/cat/1.jpg", f"{split}/dog/2.jpg")
    assert list(listing.splits) == [split]
    assert column(listing, "split") == [split, split]
    assert column(listing, "label") == ["cat", "dog"]


def test_split_folders() -> None:
    """`split/label/file`: images and bytes are counted by split, labels over all."""
    listing = arrange(
        "Train/cat/1.jpg", "Train/dog/2.jpg", "TEST/cat/1.jpg", "val/owl/1.jpg"
    )
    assert listing.splits == {"TEST": (1, 12), "Train": (2, 21), "val": (1, 13)}
    assert listing.labels == ("cat", "dog", "owl")
    assert column(listing, "split") == ["TEST", "Train", "Train", "val"]
    assert column(listing, "position") == [0, 0, 10, 0]


def test_one_other_name_makes_the_first_level_labels() -> None:
    """Only if every name of the first level is a split's does it say the split."""
    listing = arrange("train/1.jpg", "plane/1.jpg", "test/2.jpg")
    assert listing.splits == {}
    assert listing.labels == ("plane", "test", "train")


@pytest.mark.parametrize(
    ("paths", "shown"),
    [
        (["1.jpg", "2.jpg"], "2 like 1.jpg, 2.jpg"),
        (["cat/1.jpg", "2.jpg"], "1 like 2.jpg; 1 like cat/1.jpg"),
        (["a/b/c/1.jpg"], "1 like a/b/c/1.jpg"),
        (["a/b/1.jpg"], "1 like a/b/1.jpg"),
        (["cat/1.jpg", "cat/sub/2.jpg"], "1 like cat/1.jpg; 1 like cat/sub/2.jpg"),
        (["train/1.jpg", "test/2.jpg"], "2 like test/2.jpg, train/1.jpg"),
        (["train/cat/1.jpg", "cat/1.jpg"], "1 like cat/1.jpg; 1 like train/cat"),
        (["train/cat/1.jpg", "train/2.jpg"], "1 like train/2.jpg; 1 like train/cat"),
        (["train/cat/1.jpg", "extra/cat/1.jpg"], "2 like extra/cat/1.jpg"),
        (["train/cat/1.jpg", "3.jpg"], "1 like 3.jpg; 1 like train/cat/1.jpg"),
    ],
)
def test_trees_without_a_rule(paths: list[str], shown: str) -> None:
    """Flat, mixed and deeper trees are refused, showing what was found."""
    with pytest.raises(SourceError) as caught:
        arrange(*paths)
    assert shown in str(caught.value)
    assert "'photos'" in str(caught.value)
    assert caught.value.exit_code == 4


@pytest.mark.parametrize(
    ("paths", "patterns", "wanted", "left_out"),
    [
        # An image's suffix decides in any case, and only at the end of the name.
        (
            "a/1.JPG a/2.Jpeg a/3.jpg.txt a/jpg a/.png a/4.WEBP a/5.",
            {},
            "a/1.JPG a/2.Jpeg a/4.WEBP",
            {Skipped.OTHER_SUFFIX: 4},
        ),
        # What is asked for by pattern is read whatever it is called.
        (
            "a/1.jpg a/2.dat b/3.dat",
            {"include": ["*.dat"]},
            "a/2.dat b/3.dat",
            {Skipped.NOT_INCLUDED: 1},
        ),
        # A pattern goes against the name and the whole path; `*` crosses folders.
        (
            "a/1.jpg a/b/2.jpg c/2.jpg c/3.JPG",
            {"include": ["a/*", "c/*.jpg"], "exclude": ["2.jpg"]},
            "a/1.jpg",
            {Skipped.NOT_INCLUDED: 1, Skipped.EXCLUDED: 2},
        ),
        # Patterns are the same on every system, and literal names match.
        ("a/1.jpg", {"exclude": ["*.JPG", "a"]}, "a/1.jpg", {}),
        ("a/1.jpg", {"exclude": ["a/1.jpg"]}, "", {Skipped.EXCLUDED: 1}),
    ],
    ids=["suffixes", "included", "excluded wins", "case", "literal"],
)
def test_files_are_chosen_by_suffix_and_pattern(
    paths: str, patterns: dict[str, list[str]], wanted: str, left_out: dict[str, int]
) -> None:
    """Those that are kept, and how many are skipped for which reason."""
    found = select(*paths.split(), **patterns)
    assert found == (wanted.split(), left_out)


@given(
    st.lists(
        st.tuples(
            st.sampled_from("a/1.jpg b/2.png c/3.txt d/.x.jpg e/5.JPG".split()),
            st.booleans(),
        ),
        max_size=12,
    ),
    st.lists(st.sampled_from(["*.jpg", "a/*", "*"]), max_size=2),
    st.lists(st.sampled_from(["*.png", "e/*", "nothing"]), max_size=2),
)
def test_every_file_is_accounted_for(
    found: list[tuple[str, bool]], include: list[str], exclude: list[str]
) -> None:
    """A file is kept or skipped for exactly one reason of the closed list."""
    listed = FileList.of(FileEntry(p, 1, 0, "hidden" if h else "") for p, h in found)
    kept, skipped, _ = choose_files(spec_with(include, exclude), listed, is_image_name)
    assert len(kept) + sum(skipped.values()) == len(listed)
    assert set(skipped) <= {str(reason) for reason in Skipped}
    assert not [entry for entry in kept if entry.skipped]


def test_limit_takes_the_first_in_source_order() -> None:
    """Files beyond the limit are skipped and counted; labels come from the others."""
    listing = images.list_images(
        entries("b/1.jpg", "c/1.jpg", "a/2.jpg", "a/1.jpg"),
        {"hidden": 2},
        root="photos",
        limit=3,
    )
    assert column(listing, "path") == ["a/1.jpg", "a/2.jpg", "b/1.jpg"]
    assert listing.labels == ("a", "b")
    assert listing.skipped == {"hidden": 2, "beyond_limit": 1}
    assert listing.bytes == 13 + 12 + 10


def test_source_order_is_by_normal_form() -> None:
    """A tree copied in NFD has its rows and classes in the order of the NFC names."""
    folders = ["고양이", "가", "나", "é", "f", "ㅎ"]
    names = ["z/é1.jpg", "z/f.jpg", *(f"{folder}/1.jpg" for folder in folders)]
    composed = arrange(*names)
    decomposed = arrange(*(unicodedata.normalize("NFD", name) for name in names))
    for found, expected in (
        (column(decomposed, "path"), column(composed, "path")),
        (decomposed.labels, composed.labels),
    ):
        assert [unicodedata.normalize("NFC", str(n)) for n in found] == [*expected]


@pytest.mark.parametrize(
    ("paths", "found"),
    [
        (["a/\u00e9.jpg", "a/z.jpg", "a/e\u0301.jpg"], "Unicode normalisation"),
        (["a/1.jpg", "a/\udcff.jpg"], r"UTF-8.*\\xff"),
        ([], "holds no file"),
    ],
    ids=["equal in NFC", "no UTF-8", "none"],
)
def test_trees_that_cannot_be(paths: list[str], found: str) -> None:
    """A file twice, a name that no record can hold, and no image at all."""
    with pytest.raises(SourceError, match=found):
        arrange(*paths)


@pytest.mark.parametrize(
    "names",
    [
        {"label": "label"},
        {},
        {"image": "a", "label": "a"},
        {"image": "image", "colour": "colour"},
    ],
)
def test_schemas_that_cannot_be(names: dict[str, str]) -> None:
    """An unknown role, one name twice, or no image."""
    with pytest.raises(SpecError, match="named by role"):
        images.image_schema(names)


def stored(tmp_path: Folder, listing: Listing, block_rows: int) -> RunSource:
    path = str(tmp_path / "listing.arrow")
    write_listing(listing.rows, path, attempts=str(tmp_path))
    schema = images.image_schema(images.FEATURE_NAMES)
    reader = ImageListReader(images.SPLIT_COLUMN if listing.splits else "")
    return RunSource(reader, "photos", path, schema, block_rows=block_rows)


@pytest.mark.parametrize("block_rows", [1, 3, 7, 100])
def test_blocks_are_the_listing(tmp_path: Folder, block_rows: int) -> None:
    """Blocks of any size give every image once, in source order, with its label."""
    paths = [f"{split}/a/{i}.jpg" for split in ("test", "train") for i in range(5)]
    listing = arrange(*paths)
    source = stored(tmp_path, listing, block_rows)
    assert list(source.inputs()) == [0]
    blocks = list(source.blocks(0))
    assert sum(block.rows for block in blocks) == 10
    found: list[dict[str, str]] = []
    splits: list[str] = []
    positions: list[int] = []
    for block in blocks:
        (reading,) = source.read(block)
        batch, rejections = reading.batch, reading.rejections
        assert rejections == []
        assert batch.numbers.tolist() == [0] * block.rows
        assert batch.origins.to_pylist() == batch.rows["filename"].to_pylist()
        found += batch.rows.to_pylist()
        splits += batch.splits.to_pylist()
        positions += batch.positions.tolist()
    assert found == [{"image": p, "label": "a", "filename": p} for p in paths]
    assert splits == column(listing, "split")
    assert positions == column(listing, "position")


def test_batches_without_splits(tmp_path: Folder) -> None:
    """A tree of labels leaves the split to the rule."""
    source = stored(tmp_path, arrange("a/1.jpg", "b/1.jpg"), 10)
    (reading,) = source.read(Block("", 0, 2, rows=2))
    batch = reading.batch
    assert batch.splits is None
    assert batch.rows["label"].to_pylist() == ["a", "b"]
