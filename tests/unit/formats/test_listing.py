"""Listings in files: read once by a worker, and again after a change."""

import pathlib

import pyarrow as pa
import pytest

from transforms.formats import listing
from transforms.formats.listing import opened, write_listing
from transforms.storage.local import LocalPath
from transforms.storage.row_spool import BATCH_ROWS, RowSpool

ROWS = 2 * BATCH_ROWS + 5


def written(path: pathlib.Path, first: int) -> str:
    """Writes a listing of numbers from `first` on."""
    table = pa.table({"number": pa.array(range(first, first + ROWS))})
    write_listing(RowSpool.of(table), str(path), attempts=str(path.parent))
    return str(path)


@pytest.mark.parametrize("held", [True, False])
def test_rows_of_a_listing(
    held: bool, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any rows, and all of them in pieces, whether it is held in memory or not."""
    if not held:
        monkeypatch.setattr(listing, "_HELD_BYTES", 0)
    path = written(tmp_path / "listing", 0)
    with opened(path) as found:
        assert found.count == ROWS
        for start, stop in ((0, 3), (BATCH_ROWS - 1, BATCH_ROWS + 1), (7, ROWS)):
            rows = found.rows(start, stop)["number"].to_pylist()
            assert rows == list(range(start, stop))
        pieces = [n for piece in found.pieces() for n in piece["number"].to_pylist()]
        assert pieces == list(range(ROWS))


def test_a_listing_is_read_once(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each further use costs a look at the file; another content is read again."""
    path = written(tmp_path / "listing", 0)
    reads = []
    real = LocalPath.read_bytes

    def read_bytes(path: LocalPath) -> bytes:
        reads.append(path.path)
        return real(path)

    monkeypatch.setattr(LocalPath, "read_bytes", read_bytes)
    for _ in range(3):
        with opened(path) as found:
            assert found.rows(0, 1)["number"].to_pylist() == [0]
    assert reads == [path]
    written(tmp_path / "listing", 1)
    with opened(path) as found:
        assert found.rows(0, 1)["number"].to_pylist() == [1]
    assert reads == [path, path]
