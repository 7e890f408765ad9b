"""Samples of a WebDataset, made from columns of members as they are looked at."""

import itertools
import random
import tracemalloc
from collections.abc import Iterator

import pytest

from transforms.core.model import Reason
from transforms.formats.archive import webdataset_samples
from transforms.formats.archive.member_list import MemberList
from transforms.formats.archive.model import Member
from transforms.formats.archive.webdataset_samples import SampleList, skip_reason

# In batches of columns, and a rest of objects.
SAMPLES = 5000


def member(number: int, name: str, fault: Reason | None = None) -> Member:
    """A member of ten bytes."""
    return Member(number, name.encode(), name, 10, number << 10, fault=fault)


def shard_members() -> list[Member]:
    """Samples of one to three members, litter and names without a suffix between."""
    rng = random.Random(3)
    names: list[str] = []
    for number in range(SAMPLES):
        names += [f"a/{number:05}.{end}" for end in ("jpg", "cls", "left.txt")][
            : rng.randint(1, 3)
        ]
        if number % 97 == 0:
            names += [".DS_Store", "readme"]
    # Two that came before, in two batches.
    names += ["a/00007.json", "a/04096.json"]
    members = [member(number, name) for number, name in enumerate(names)]
    members[0] = member(0, "../0.jpg", Reason.UNSAFE_PATH)
    return members


def by_key(members: list[Member]) -> list[tuple[str, list[Member]]]:
    """The samples, by the standard library."""
    belong = (m for m in members if skip_reason(m) is None)

    def key(member: Member) -> str:
        folder, _, base = member.name.rpartition("/")
        return f"{folder}/{base.split('.')[0]}"

    return [(key, [*group]) for key, group in itertools.groupby(belong, key)]


def test_samples_are_runs_of_equal_keys() -> None:
    """All of them, one, and slices, with their numbers, members and faults."""
    members = shard_members()
    found = SampleList(MemberList.of(members))
    expected = by_key(members)
    whole = [*found]
    assert [(sample.key, sample.members) for sample in whole] == expected
    assert [sample.number for sample in whole] == [*range(len(found))]
    faulty = [sample.number for sample in whole if sample.fault is not None]
    assert faulty == [len(found) - 2, len(found) - 1]
    assert {whole[number].fault.reason for number in faulty if whole[number].fault} == {
        Reason.DUPLICATE_NAME
    }
    for place in (0, 7, 4095, len(found) - 1, -1):
        assert found[place] == whole[place]
    for part in (
        slice(0, 0),
        slice(9, 3),
        slice(3, 9),
        slice(4000, None),
        slice(-5, None),
        slice(0, 900, 100),
        slice(None, None, -700),
    ):
        assert found[part] == whole[part]
    with pytest.raises(IndexError):
        found[len(found)]


def test_keys_whose_hashes_are_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys are compared where hashes are equal."""
    monkeypatch.setattr(webdataset_samples, "hash", lambda _: 1, raising=False)
    found = SampleList(
        MemberList.of(member(i, name) for i, name in enumerate(("a.x", "b.x", "a.y")))
    )
    assert [sample.fault is not None for sample in found] == [False, False, True]


def test_what_a_reader_finds_stays_with_the_reader() -> None:
    """Each access makes a new sample, so a fault found while reading is not kept."""
    found = SampleList(MemberList.of([member(0, "a.jpg")]))
    found[0].members.clear()
    assert found[0].members == [member(0, "a.jpg")]


def test_no_sample_at_all() -> None:
    """An archive without members has none, nor has one of other files."""
    for members in ([], [member(0, "readme")]):
        found = SampleList(MemberList.of(members))
        assert len(found) == 0
        assert [*found] == found[:10] == []


def test_memory_of_many_samples() -> None:
    """A member takes about 30 bytes. As objects they took 900."""

    def members(count: int) -> Iterator[Member]:
        for number in range(count):
            key, end = divmod(number, 2)
            yield member(number, f"some/folder/{key:07}.{'jc'[end]}")

    def kept(count: int) -> int:
        tracemalloc.start()
        found = SampleList(MemberList.of(members(count)))
        size = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert len(found) == count // 2
        return size

    kept(10)
    assert kept(30_000) - kept(10_000) < 40 * 20_000
