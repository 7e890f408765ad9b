"""Images above `--max-image-bytes`: rejected by their size, and never read."""

import pathlib
import sys
import zipfile
from collections.abc import Callable

import pytest

from tests.support.archive_sources import write
from tests.support.image_sources import encoded, noise, tree
from tests.support.memory import LIMIT, converted
from tests.support.outputs import first_values, rejects
from tests.support.runs import convert
from tests.support.stress import sizes
from transforms.core.image.policy import ImagePolicy
from transforms.core.reasons import Fault, Reason
from transforms.shards.image_loading import load_image
from transforms.storage import paths
from transforms.storage.files import storage
from transforms.storage.protocol import TooLargeError

Folder = pathlib.Path

SMALL = encoded(noise(5, 6), "PNG")
LARGE = encoded(noise(50, 60), "PNG")
LIMITED = ("--max-image-bytes", "1KB", "--max-reject-rate", 0.5)


def images(folder: Folder) -> Folder:
    return tree(folder, few_png=SMALL, many_png=LARGE)


def listed(folder: Folder) -> Folder:
    """A table that names the images."""
    images(folder)
    table = folder / "table.csv"
    table.write_text("filename,label\nlabel/few.png,a\nlabel/many.png,b\n")
    return table


TREE = {"label/few.png": SMALL, "label/many.png": LARGE}
SAMPLES = {"0.png": SMALL, "0.cls": b"1", "1.png": LARGE, "1.cls": b"0"}


def archived(name: str, members: dict[str, bytes]) -> Callable[[Folder], Folder]:
    """Returns what writes an archive of the images."""
    return lambda folder: write(folder / name, members.items())


@pytest.mark.parametrize(
    "source",
    [
        images,
        listed,
        *(archived(f"in.{kind}", TREE) for kind in ("zip", "tar", "tar.gz")),
        *(archived(f"in.{kind}", SAMPLES) for kind in ("tar", "tar.gz")),
    ],
)
def test_what_is_known_to_be_too_large_is_not_read(
    source: Callable[[Folder], Folder], tmp_path: Folder
) -> None:
    """Whatever the image is in, its size decides: there is no digest of its bytes."""
    convert(source(tmp_path / "in"), tmp_path / "out", *LIMITED)
    (found,) = rejects(tmp_path / "out")
    assert found["reason"] == "too_many_bytes"
    assert f"{len(LARGE):,} bytes are more than 1,000" in found["message"]
    assert found["sha256"] is None
    (record,) = first_values(tmp_path / "out")
    assert SMALL in record.values()


def test_a_size_at_the_limit_is_read(tmp_path: Folder) -> None:
    """As many bytes as the limit are read, one more are not."""
    path = tmp_path / "x"
    path.write_bytes(bytes(100))
    assert len(storage(str(path)).read_stamped(100)[0]) == 100
    with pytest.raises(TooLargeError) as caught:
        storage(str(path)).read_stamped(99)
    error = caught.value
    assert (
        paths.stamp(error.size, error.modified_ns)
        == storage(str(path)).read_stamped()[1]
    )


def test_a_file_that_grew_has_changed(tmp_path: Folder) -> None:
    """A file that was within the limit when it was listed has changed since."""
    images(tmp_path / "in")
    policy = ImagePolicy(max_bytes=1000)
    path = "label/many.png"
    root = str(tmp_path / "in")
    now = storage(f"{root}/{path}").stat_entry(root).stamp
    for stamp, reason in (
        (now, Reason.TOO_MANY_BYTES),
        (0, Reason.TOO_MANY_BYTES),
        (now + 1, Reason.CHANGED_DURING_RUN),
    ):
        loaded = load_image(path, stamp, root, policy)
        assert loaded is not None
        assert isinstance(loaded.result, Fault)
        assert (loaded.data, loaded.result.reason) == (b"", reason)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("kind", sizes("tree", "zip"))
def test_memory_of_a_file_of_gigabytes(kind: str, tmp_path: Folder) -> None:
    """The default limit rejects a sparse file of 3 GB without reading it."""
    source = tree(tmp_path / "in", good_png=SMALL)
    huge = source / "label" / "huge.jpg"
    huge.write_bytes(encoded(noise(5, 6)))
    size = 3 << 30 if kind == "tree" else 900 << 20
    with huge.open("r+b") as file:
        file.truncate(size)
    if kind == "zip":
        with zipfile.ZipFile(tmp_path / "in.zip", "w", zipfile.ZIP_STORED) as archive:
            archive.write(huge, "label/huge.jpg")
            archive.write(source / "label/good.png", "label/good.png")
        source = tmp_path / "in.zip"
    peak = converted(source, tmp_path, "--max-reject-rate", "0.5")
    assert peak.code == 0, peak.errors
    assert peak.tree < LIMIT
    (found,) = rejects(tmp_path / "out")
    assert (found["reason"], found["sha256"]) == ("too_many_bytes", None)
