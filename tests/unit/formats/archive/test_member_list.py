"""Members and rows as columns: the same, in little memory, found at any place."""

import itertools
import random
import struct
import tracemalloc
import zipfile

import pyarrow as pa
import pytest

from tests.support.archives import found_in, tar_of, zip_of
from transforms.core.reasons import Fault, Reason
from transforms.errors import DamageError, InputError
from transforms.formats.archive.members import Limits, Member, MemberList, checked
from transforms.formats.archive.row_archives import RowList
from transforms.formats.archive.webdataset import WebDataset, key_and_column

# Four batches of columns, and a rest of objects.
COUNT = 4 * 4096 + 100


def member_of(number: int, name: str, reason: Reason | None = None) -> Member:
    """A member of ten bytes."""
    raw = name.encode("utf-8", "surrogateescape")
    fault = Fault(reason, "") if reason else None
    return Member(number, raw, name, 10, number << 10, fault=fault)


def odd_members(count: int) -> list[Member]:
    """Members of all kinds: odd names, faults, large numbers."""
    rng = random.Random(7)
    names = ("./{}.jpg", "ä/{}", "e\u0301{}", "b\udcff{}", ".hidden/{}", "A/{}.TXT")
    out = []
    for number in range(count):
        name = rng.choice(names).format(number)
        is_text = "\udcff" not in name
        out.append(
            Member(
                number=number,
                raw_name=name.encode("utf-8", "surrogateescape"),
                name=name.removeprefix("./"),
                size=rng.choice((0, 7, 1 << 62)),
                offset=number << 20,
                data_offset=rng.choice((-1, 512)),
                packed=rng.randrange(1 << 40),
                method=rng.choice((0, 8, 93)),
                flags=rng.randrange(1 << 16),
                crc32=rng.randrange(1 << 32),
                fault=None
                if is_text
                else Fault(Reason.INVALID_ENCODING, f"no text: {number}"),
            )
        )
    return out


def test_members_are_what_was_listed() -> None:
    """Front to back, in slices, and those that are selected."""
    members = odd_members(COUNT)
    found = MemberList.of(iter(members))
    assert len(found) == COUNT
    assert [*found] == members
    for part in (slice(4000, 9000), slice(COUNT, None), slice(3, None, 5000)):
        assert found[part] == members[part]
    chosen = found.select(lambda member: member.name.endswith(".jpg"))
    expected = [member for member in members if member.name.endswith(".jpg")]
    assert [*chosen] == expected
    assert chosen[100:200] == expected[100:200]


def test_a_name_that_came_before() -> None:
    """In another case or normalisation; litter may have equal names."""
    again = ("é", "É", "e\u0301".upper(), ".DS_Store", ".DS_Store", "\udcff", "\udcff")
    members = [
        member_of(number, name, Reason.UNSAFE_PATH if "\udcff" in name else None)
        for number, name in enumerate(again)
    ]
    found = [*checked(members, Limits(), "a.tar")]
    changed = [one for one, other in zip(found, members, strict=True) if one != other]
    assert [member.number for member in changed] == [1, 2]
    for member in changed:
        assert member.reason is Reason.DUPLICATE_NAME
        assert "member 1 too" in member.fault.message


def test_an_image_that_is_too_large() -> None:
    """It has a fault; another member of the size has none."""
    members = [member_of(0, "a.jpg"), member_of(1, "a.bin")]
    found = [*checked(members, Limits(max_image_bytes=9), "a.tar")]
    assert [member.reason for member in found] == [Reason.TOO_MANY_BYTES, None]


def test_memory_of_many_members() -> None:
    """Of those that are listed it is some 30 bytes each; objects take 500."""

    def listed(count: int) -> int:
        before = pa.total_allocated_bytes()
        tracemalloc.start()
        found = MemberList.of(
            Member(i, b"some/folder/%07d.jpg" % i, f"some/folder/{i:07}.jpg", i, i << 9)
            for i in range(count)
        )
        kept = tracemalloc.get_traced_memory()[0] + pa.total_allocated_bytes() - before
        tracemalloc.stop()
        assert len(found) == count
        return kept

    assert listed(60_000) - listed(20_000) < 40_000 * 40


def test_numbers_that_no_archive_has() -> None:
    """Sizes and places of 64 bits end in a typed error, and so does a tar's of 80."""
    huge = struct.pack("<Q", 2**64 - 1)
    files = {f"{i}.txt": b"x" for i in range(5000)}
    data = zip_of(files, zipfile.ZIP_STORED)
    place = data.rindex(b"PK\x01\x02")
    name_end = place + 46 + len("4999.txt")
    for fields, values, error in (
        ((24,), huge, InputError),
        ((20, 24), huge * 2, DamageError),
        ((42,), huge, DamageError),
    ):
        entry = bytearray(data[place:name_end])
        for field in fields:
            entry[field : field + 4] = b"\xff" * 4
        extra = struct.pack("<2H", 1, len(values)) + values
        entry[30:32] = struct.pack("<H", len(extra))
        end = bytearray(data[name_end:])
        stated = struct.unpack_from("<I", end, 12)[0]
        struct.pack_into("<I", end, 12, stated + len(extra))
        with pytest.raises(error):
            found_in(data[:place] + bytes(entry) + extra + bytes(end))
    tar = bytearray(tar_of({"a": b"x"}))
    tar[124:136] = b"\x80" + bytes(1) + b"\x7f" + b"\xff" * 9
    tar[148:156] = b" " * 8
    tar[148:156] = b"%06o\0 " % sum(tar[:512])
    with pytest.raises(DamageError, match="states"):
        found_in(bytes(tar))


def test_a_directory_that_overlaps_in_a_zip() -> None:
    """It is no member, and is named in the error all the same."""
    data = bytearray(zip_of({"folder/": b"", "folder/a.txt": b"1", "b.txt": b"2"}))
    first = data.index(b"PK\x01\x02")
    second = data.index(b"PK\x01\x02", first + 4)
    # Both begin where the directory does.
    data[second + 42 : second + 46] = data[first + 42 : first + 46]
    with pytest.raises(DamageError, match="member 1, 'folder/'"):
        found_in(bytes(data))


def shard_members() -> list[Member]:
    """Samples of one to three members, litter and names without a suffix between."""
    rng = random.Random(3)
    names: list[str] = []
    for number in range(5000):
        ends = ("jpg", "cls", "left.txt")[: rng.randint(1, 3)]
        names += [f"a/{number:05}.{end}" for end in ends]
        if number % 97 == 0:
            names += [".DS_Store", "readme"]
    # Two keys that came before.
    names += ["a/00007.json", "a/04096.json"]
    return [member_of(number, name) for number, name in enumerate(names)]


def test_samples_are_runs_of_equal_keys() -> None:
    """All of them and some, with their numbers and members; keys that come again."""
    members = shard_members()
    found = RowList(MemberList.of(members), WebDataset)
    belong = [m for m in members if WebDataset.skip_reason(m) is None]
    groups = itertools.groupby(belong, lambda m: key_and_column(m.name)[0])
    expected = [(key, [*group]) for key, group in groups]
    whole = [*found]
    assert [(sample.key, sample.members) for sample in whole] == expected
    assert [sample.number for sample in whole] == [*range(len(found))]
    repeated = [sample.number for sample in whole if sample.is_repeated]
    assert repeated == [len(found) - 2, len(found) - 1]
    for start, stop in ((0, 0), (3, 9), (4000, len(found))):
        assert [*found.between(start, stop)] == whole[start:stop]
    for none in ([], [member_of(0, "readme")]):
        assert [*RowList(MemberList.of(none), WebDataset)] == []
