"""Trees in object stores, listed folder by folder."""

from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.flat_store import FlatStore, install
from transforms.storage.files import storage
from transforms.storage.paths import is_hidden

NAMES = st.sampled_from(["a", "b", "", ".git", "é", "x.jpg", "__MACOSX"])


class Store(FlatStore):
    """A few objects, of 1, 2, 3 ... bytes."""

    def __init__(self, keys: Sequence[str]) -> None:
        super().__init__("bucket")
        self.sizes = {key: size for size, key in enumerate(sorted(keys), start=1)}

    def keys(self, prefix: str) -> Iterable[tuple[str, int]]:
        return ((k, n) for k, n in self.sizes.items() if k.startswith(prefix))


def listed(store: Store, root: str) -> list[tuple[str, int, str]]:
    with pytest.MonkeyPatch.context() as patch:
        install(store, patch)
        found = storage(f"s3://{root}").list_tree()
        return [(entry.path, entry.size, entry.skipped) for entry in found]


@given(st.lists(st.lists(NAMES, min_size=1, max_size=5).map("/".join)))
def test_every_object_is_listed(keys: list[str]) -> None:
    """All objects are listed, hidden folders once, whatever the names of folders."""
    # For Arrow, what ends so is the folder itself.
    store = Store([k for k in keys if k and not (k[0] == "/" or k[-1] == "/")])
    wanted = {}
    for key, size in store.sizes.items():
        parts = key.split("/")
        hidden = [n for n, part in enumerate(parts) if is_hidden(part)]
        if hidden:
            wanted["/".join(parts[: hidden[0] + 1])] = (0, "hidden")
        else:
            wanted[key] = (size, "")
    assert listed(store, "bucket") == [
        (path, *wanted[path]) for path in sorted(wanted, key=str.encode)
    ]


def test_folders_are_listed_side_by_side() -> None:
    """The first levels are listed by themselves; then each folder with all below it."""
    folders = [f"in/{split}/{n:03}" for split in "ab" for n in range(50)]
    keys = [f"{folder}/{name}.jpg" for folder in folders for name in "01"]
    store = Store([*keys, "in/c.txt", "other/x"])
    assert [path for path, _, _ in listed(store, "bucket/in")] == sorted(
        key.removeprefix("in/") for key in [*keys, "in/c.txt"]
    )
    level = [folder for folder, recursive in store.listed if not recursive]
    below = [folder for folder, recursive in store.listed if recursive]
    assert sorted(level) == ["bucket/in", "bucket/in/a", "bucket/in/b"]
    assert sorted(below) == [f"bucket/{folder}" for folder in folders]


def test_missing_folder_holds_nothing() -> None:
    """A prefix without objects is an empty tree."""
    assert listed(Store(["a/b"]), "bucket/other") == []
