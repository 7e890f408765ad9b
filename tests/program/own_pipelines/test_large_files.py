"""Tables of ids of `WriteDataset`, and files that are too large for the graph."""

import pathlib
from typing import Any

import pytest

from beam_pipeline.own_pipelines import held
from beam_pipeline.own_pipelines.write_dataset import WriteDataset
from tests.support.own_pipelines import digest_of, write_rows
from transforms.errors import InputError

Folder = pathlib.Path


@pytest.fixture
def nothing_inline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held, "_FILE_BYTES", 0)


@pytest.mark.usefixtures("nothing_inline")
def test_large_files_are_read_by_the_workers(tmp_path: Folder) -> None:
    """They give the bytes that those in the graph do; a changed one is refused."""
    table = tmp_path / "ids.csv"
    table.write_text("id,split\n" + "".join(f"{n},test\n" for n in range(10)))
    rows = [{"id": n, "pet": "dog" if n % 3 else "cat"} for n in range(10)]
    given: dict[str, Any] = {"key": "id", "label": "pet", "split_ids": str(table)}
    large, small, like = (tmp_path / name for name in ("large", "small", "like"))
    write_rows(rows, large, **given)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(held, "_FILE_BYTES", 1 << 17)
        write_rows(rows, small, **given)
    assert digest_of(large) == digest_of(small)
    write_rows([{"id": 3, "pet": "dog"}], like, like=large, splits={"train": 1})
    assert (like / "pet.labels.txt").read_text() == "cat\ndog\n"
    table.write_text("id,split\n1,train\n")
    before = WriteDataset(tmp_path / "more", **given)._given
    table.write_text("id,split\n2,train\n")
    # As in a process that starts now.
    held._made.cache_clear()
    assert before.ids is not None
    with pytest.raises(InputError, match=r"ids\.csv' has changed or is gone"):
        before.table()
