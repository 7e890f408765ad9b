"""What a plan chooses: sizes of blocks, shards, and the files that it looks at."""

import pathlib

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_pipeline.planning.image_columns import image_shares, named_images
from beam_pipeline.planning.plan import plan_source
from beam_pipeline.planning.sizes import block_size, choose_shards, shards_of
from beam_pipeline.settings.spec import Spec, make_spec
from tests.support import voc
from tests.support.datasets import write_records
from tests.support.image_sources import write_images
from transforms.codec.examples import encode_example
from transforms.core.schema import Feature, Kind, Schema
from transforms.errors import SourceError, SpecError
from transforms.formats.table import TableSample
from transforms.storage.visibility import Witness

IMAGE_BYTES, SHARD_BYTES = 100_000, 150_000_000
LEAST, MOST, MOST_SEGMENTS = 4096, 1 << 17, 200_000


@pytest.mark.parametrize(
    ("images", "rows"),
    [(0, 4096), (1, 4096), (1_000_000, 4096), (3_000_000, 32_768), (10**7, 1 << 17)],
)
def test_blocks_of_images_grow_with_their_number(images: int, rows: int) -> None:
    """A million images have the blocks of a thousand; a billion the largest."""
    assert images_a_block(images) == rows
    assert images_a_block(10**9) == MOST


def test_a_folder_called_json_does_not_say_what_a_file_is(
    tmp_path: pathlib.Path,
) -> None:
    """A file of an unknown suffix is no JSON without rows."""
    path = tmp_path / "a.json.d" / "rows.orc"
    path.parent.mkdir()
    path.write_bytes(b"ORC")
    with pytest.raises(SourceError) as caught:
        plan_source(make_spec({"source": str(path), "output": str(tmp_path / "out")}))
    assert type(caught.value) is SourceError


@given(st.integers(0, 10**7))
def test_blocks_times_shards_is_bounded(images: int) -> None:
    """As many segments as are allowed, or blocks as large as may be."""
    rows = images_a_block(images)
    shards = images * IMAGE_BYTES / SHARD_BYTES
    assert images / rows * shards <= MOST_SEGMENTS + 1 or rows == MOST
    assert rows % LEAST == 0


def images_a_block(images: int) -> int:
    return block_size(
        images,
        images * IMAGE_BYTES,
        shard_bytes=SHARD_BYTES,
        most_segments=MOST_SEGMENTS,
        least=LEAST,
        most=MOST,
    )


MB = 1_000_000
TB = 1_000_000 * MB


def spec(**given: int) -> Spec:
    return make_spec({"source": "in", "output": "out", **given})


@given(st.integers(200 * MB + 1, 13 * TB))
def test_shards_are_of_100_to_200_mb(size: int) -> None:
    """Above 200 MB every shard gets 100 to 200 MB, up to 13 TB."""
    shards = choose_shards(size)
    assert 100 * MB <= size / shards <= 200 * MB


@pytest.mark.parametrize(
    ("size", "shards"),
    [
        (0, 1),
        (1, 1),
        (200 * MB, 1),
        (200 * MB + 1, 2),
        (299 * MB, 2),
        (400 * MB, 4),
        (450 * MB, 4),
        (1_000 * MB, 8),
        (10_000 * MB, 64),
        (144_000 * MB, 1024),
        (65_536 * 200 * MB, 65_536),
        (65_536 * 200 * MB + 1, 65_536),
        (100 * TB, 65_536),
    ],
)
def test_shard_counts(size: int, shards: int) -> None:
    """The count that most powers of two divide: pinned, since it decides names."""
    assert choose_shards(size) == shards


def test_given_sizes_have_the_same_bound() -> None:
    """A size of shards that makes too many is refused; one that does not is taken."""
    assert shards_of(spec(shard_size=150 * MB), 9 * TB) == 60_000
    assert shards_of(spec(shards=65_536), 9 * TB) == 65_536
    with pytest.raises(SpecError, match="at most 65,536 shards"):
        shards_of(spec(shard_size=150 * MB), 10 * TB)


Folder = pathlib.Path


def test_patterns_choose_what_is_recognised(tmp_path: Folder) -> None:
    """A TFRecord file that they leave out does not hide annotations beside it."""
    voc.example(tmp_path / "in")
    write_records(tmp_path / "in" / "test.tfrecord", [encode_example({"a": 1})])
    given = {"source": str(tmp_path / "in"), "output": "OUTPUT"}
    assert plan_source(make_spec(given))[0].format == "tfrecord"
    chosen = {**given, "include": ["*.xml", "*.jpg"]}
    assert plan_source(make_spec(chosen))[0].format == "voc"


def witnesses(source: Folder, **settings: object) -> tuple[Witness, ...]:
    given = {"source": str(source), "output": "OUTPUT", **settings}
    inputs, planned = plan_source(make_spec(given))
    return planned.witnesses(inputs.root, str(settings.get("images_root", "")))


def test_a_table(tmp_path: Folder) -> None:
    """The table itself, not another file beside it."""
    (tmp_path / "a.log").write_text("grows")
    table = tmp_path / "rows.csv"
    table.write_text("id\n1\n")
    first, _ = witnesses(table)
    assert first == Witness(str(tmp_path), str(table), 5)


def test_a_folder_of_images(tmp_path: Folder) -> None:
    """The first of its images."""
    drawn = write_images(tmp_path, ["cat/a.png", "dog/a.png"])
    first, _ = witnesses(tmp_path)
    image = tmp_path / "cat" / "a.png"
    assert first == Witness(str(tmp_path), str(image), len(drawn["cat/a.png"]))


@pytest.mark.parametrize("folder", ["", "photos"])
def test_images_that_a_table_names(tmp_path: Folder, folder: str) -> None:
    """One of them, where the rows say that it is."""
    (photo,) = write_images(tmp_path / folder, ["a.png"]).values()
    table = tmp_path / "rows.csv"
    table.write_text("image,kind\na.png,1\n")
    settings = {"images_root": str(tmp_path / folder)} if folder else {}
    _, images = witnesses(table, image_columns=["image"], **settings)
    image = tmp_path / folder / "a.png"
    assert images == Witness(str(tmp_path / folder), str(image), len(photo))


@pytest.mark.parametrize(
    ("column", "separator", "named"),
    [
        (pa.array([None, " a.jpg", "b.jpg", "c.jpg"]), "", ["a.jpg", "c.jpg"]),
        (pa.array([[], [None, "a.jpg"], ["b.jpg"]]), "", ["a.jpg", "b.jpg"]),
        (pa.array([None, "a.jpg;b.jpg"]), ";", ["a.jpg", "b.jpg"]),
        (pa.array([b"image"]), "", []),
        (pa.array([None, " "], pa.string()), "", []),
    ],
)
def test_named_images(column: pa.Array, separator: str, named: list[str]) -> None:
    """At most two here: the first that a row names, and evenly on from it."""
    shape = (None,) if separator else ()
    feature = Feature("image", Kind.IMAGE, shape=shape, separator=separator)
    sample = TableSample({"image": column}, len(column), complete=True)
    assert named_images(sample, Schema((feature,)), 2) == named


@pytest.mark.parametrize(
    ("cells", "share"),
    [
        (["a.png", "b.JPG"], 1.0),
        (["a.png", "sub/c.gif"], 1.0),
        ([["a.png"], ["b.JPG", "a.png"]], 1.0),
        (["a.png", None, "", "b.JPG"], 0.5),
        (["a.png", "gone.png"], 0.5),
        (["a.png", "notes.txt"], 0.5),
        (["gone.png"], None),
        (["notes.txt"], None),
        (["/a.png", "s3://b/a.png"], None),
    ],
)
def test_which_texts_name_files(
    tmp_path: pathlib.Path, cells: list[object], share: float | None
) -> None:
    """A column's content says what it is: the share of cells that are image files."""
    write_images(tmp_path, ["a.png", "b.JPG", "sub/c.gif"])
    (tmp_path / "notes.txt").write_text("x")
    shape = (None,) if isinstance(cells[0], list) else ()
    feature = Feature("x", Kind.TEXT, shape=shape)
    found = image_shares([feature], {"x": pa.array(cells)}, [str(tmp_path)])
    assert found == ({} if share is None else {"x": share})
