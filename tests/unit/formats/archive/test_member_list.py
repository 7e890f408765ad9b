"""Members as columns: the same members, in little memory, found at any place."""

import random
import struct
import tracemalloc
import zipfile

import pyarrow as pa
import pytest

from tests.support.archives import found_in, tar_of, zip_of
from transforms.core.model import Reason
from transforms.errors import DamageError, InputError
from transforms.formats.archive import member_list
from transforms.formats.archive.member_list import MemberList
from transforms.formats.archive.model import Member, bounded_image

# Four batches of columns, and a rest of objects.
COUNT = 4 * 4096 + 100


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
                fault=None if is_text else Reason.INVALID_ENCODING,
                message="" if is_text else f"no text: {number}",
            )
        )
    return out


def test_members_are_what_was_listed() -> None:
    """Front to back, at any place, in slices, and their names alone."""
    members = odd_members(COUNT)
    found = MemberList.of(iter(members))
    assert len(found) == COUNT
    assert [*found] == members
    assert [*found.names()] == [member.name for member in members]
    for place in (0, 4095, 4096, 3 * 4096 + 5, COUNT - 1, -1):
        assert found[place] == members[place]
    assert found[4000:9000] == members[4000:9000]
    assert found[COUNT:] == []
    with pytest.raises(IndexError):
        found[COUNT]


def test_selected_members() -> None:
    """They have places of their own, and are seen through a check."""
    members = odd_members(COUNT)
    found = MemberList.of(members).select(
        lambda member: member.name.endswith(".jpg"),
        lambda member: bounded_image(member, 1000),
    )
    expected = [
        bounded_image(member, 1000)
        for member in members
        if member.name.endswith(".jpg")
    ]
    assert [*found] == expected
    assert found[100:200] == expected[100:200]
    assert {member.fault for member in found} == {None, Reason.TOO_MANY_BYTES}


def test_a_name_that_came_before() -> None:
    """Batches away, in another case or normalisation; litter may have equal names."""
    members = odd_members(COUNT)
    again = ("É", "e\u0301".upper(), "é", ".DS_Store", ".DS_Store", "b\udcff1")
    for number, name in zip((5, 9000, 16000, 16001, 16002, 16003), again, strict=True):
        fault = Reason.UNSAFE_PATH if "\udcff" in name else None
        members[number] = members[number]._replace(name=name, fault=fault, message="")
    found = MemberList.of(members)
    changed = [number for number in range(COUNT) if found[number] != members[number]]
    assert changed == [9000, 16000]
    for number in changed:
        assert found[number].fault is Reason.DUPLICATE_NAME
        assert "is the name of member 6 too" in found[number].message


def test_equal_hashes_of_different_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hashes say where to look, and no more."""
    monkeypatch.setattr(member_list, "hash", lambda _: 1, raising=False)
    members = odd_members(50)
    assert [*MemberList.of(members)] == members


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
        ((20, 24), huge * 2, InputError),
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
    with pytest.raises(DamageError, match=r"member 1, 'folder/', and 'folder/a\.txt'"):
        found_in(bytes(data))
