"""Archives: what is read of them, and what becomes of the rest.

The oracles are the writers: zipfile, tarfile, and the tools zip, tar, zstd and xz.
"""

import gzip
import io
import pathlib
import random
import stat
import struct
import tarfile
import tracemalloc
import unicodedata
import warnings
import zipfile

import pytest
import zstandard

from tests.conftest import Headline
from tests.support.archives import (
    FILES,
    PACKERS,
    WRITERS,
    contents,
    faults,
    found_in,
    info_of,
    read_in_turn,
    tar_of,
    tar_of_infos,
    with_right_checksums,
    zip_of,
    zstd,
)
from tests.support.fuzzing import at_most, mutated
from tests.support.stress import CASES
from transforms.core.reasons import Reason
from transforms.errors import BeamTFRecordError, DamageError, SourceError, SpecError
from transforms.formats.archive.archives import Archive
from transforms.formats.archive.members import (
    Limits,
)


@pytest.mark.parametrize("writer", WRITERS)
def test_content_is_that_of_the_writer(writer: str) -> None:
    """Every member comes with its bytes, in the writer's order."""
    data = WRITERS[writer](FILES)
    assert contents(data) == FILES
    assert list(contents(data)) == list(FILES)
    listed = list(Archive(io.BytesIO(data), "a").listing())
    assert {m.name: m.size for m in listed} == {n: len(d) for n, d in FILES.items()}


@pytest.mark.parametrize("writer", ["zip", "zip-stored", "tar-pax", "tar-gnu"])
def test_members_are_read_in_any_order(writer: str) -> None:
    """A listing is enough to read any member, whole or in pieces."""
    file = io.BytesIO(WRITERS[writer](FILES))
    archive = Archive(file, "a")
    assert archive.kind == writer.partition("-")[0]
    for member in reversed(list(archive.listing())):
        content = archive.read(member)
        assert content.data is not None
        assert content.data == FILES[member.name]
        assert b"".join(archive.stream(member)) == FILES[member.name]


def test_zip_from_a_pipe_and_with_zip64() -> None:
    """Sizes behind the data, 64-bit sizes and bytes before the archive are read."""

    class Pipe(io.RawIOBase):
        def __init__(self) -> None:
            self.data = bytearray()

        def writable(self) -> bool:
            return True

        def write(self, data: bytes) -> int:  # type: ignore[override]
            self.data += data
            return len(data)

    pipe = Pipe()
    with zipfile.ZipFile(pipe, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in FILES.items():
            with archive.open(name, "w", force_zip64=True) as member:
                member.write(data)
    assert contents(bytes(pipe.data)) == FILES
    assert contents(b"PK\x03\x04 an unpacker" + zip_of(FILES)) == FILES
    many = zip_of({f"{i}.txt": b"" for i in range(65_600)}, zipfile.ZIP_STORED)
    assert len(list(Archive(io.BytesIO(many), "a").listing())) == 65_600


def test_zstd_streams_of_many_shapes() -> None:
    """Frames with and without checksums, in a row, skippable, empty: all are one."""
    plain = tar_of({"a": random.Random(1).randbytes(300_000), "b": bytes(10**6)})
    half = len(plain) // 2
    stored = zstandard.ZstdCompressor(level=-5, write_content_size=False)
    data = (
        b"\x5a\x2a\x4d\x18\x03\x00\x00\x00abc"
        + stored.compress(plain[:half])
        + zstandard.ZstdCompressor(level=19).compress(plain[half:])
        + zstd(b"")
    )
    # Starts with a skippable frame, so an earlier frame must identify it.
    assert contents(zstd(b"") + data) == contents(plain)
    for cut in (1, 5, len(data) // 2):
        with pytest.raises(DamageError, match="the packed stream"):
            found_in(zstd(b"") + data[:-cut])


def test_folders_are_no_members_and_litter_is_skipped() -> None:
    """Folders do not count; hidden files and those of systems are skipped, counted."""
    files = {
        ".DS_Store": b"1",
        "__MACOSX/a/._1.jpg": b"2",
        "a/Thumbs.db": b"3",
        "a/.git/config": b"4",
        "./a//1.jpg": b"5",
        "a/folder/": b"",
    }
    for data in (zip_of(files), tar_of(files), gzip.compress(tar_of(files))):
        listed = Archive(io.BytesIO(data), "a").listing()
        assert [member.is_hidden for member in listed] == [True] * 4 + [False]
        assert contents(data) == {"a/1.jpg": b"5"}


@pytest.mark.parametrize("writer", ["zip", "tar-pax", "tar.gz"])
def test_what_is_not_asked_for_is_not_read(writer: str) -> None:
    """Members are passed over; the content of one is that of its own name."""
    data = WRITERS[writer]({**FILES, "inner.zip": b"PK", "../x": b""})
    members = Archive(io.BytesIO(data), "a").members()
    found = [read() for member, read in members if member.name.endswith(".txt")]
    assert [(i.member.name, i.data) for i in found if i.data is not None] == [
        ("notes.txt", FILES["notes.txt"])
    ]


UNSAFE = {
    "../up.jpg": b"1",
    "a/../../up.jpg": b"2",
    "/absolute.jpg": b"3",
    "C:/drive.jpg": b"4",
    "C:drive.jpg": b"5",
    "a\\b.jpg": b"6",
    "\\\\server\\share.jpg": b"7",
}


@pytest.mark.parametrize("writer", ["zip", "tar-pax", "tar-gnu", "tar.gz"])
def test_fault_115_names_that_lead_out(
    writer: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is a fault with its name; the good one beside is read; no file is made."""
    monkeypatch.chdir(tmp_path)
    found = found_in(WRITERS[writer]({**UNSAFE, "good..jpg": b"8"}))
    assert [i.data for i in found] == [None] * len(UNSAFE) + [b"8"]
    for item, name in zip(found, UNSAFE, strict=False):
        assert item.member.reason is Reason.UNSAFE_PATH
        assert item.member.raw_name == name.encode()
        assert "must be relative paths" in item.member.fault.message
    assert not list(tmp_path.iterdir())


def test_fault_115_zero_byte_in_a_name() -> None:
    """zipfile cuts such a name, so that a check of its ending sees another one."""
    data = zip_of({"evil.exe#.jpg": b"1"}).replace(b"evil.exe#", b"evil.exe\0")
    assert faults(data) == {"evil.exe\0.jpg": Reason.UNSAFE_PATH}


@pytest.mark.parametrize("packed", [False, True])
def test_fault_116_members_that_are_no_files_in_tar(packed: bool) -> None:
    """Links, devices and pipes are faults; the data after them are found."""
    kinds = [
        tarfile.SYMTYPE,
        tarfile.LNKTYPE,
        tarfile.CHRTYPE,
        tarfile.BLKTYPE,
        tarfile.FIFOTYPE,
    ]
    members = []
    for i, kind in enumerate(kinds):
        info = info_of(f"{i}.jpg", 0, kind)
        info.linkname = "/etc/passwd"
        members.append((info, b""))
    data = tar_of_infos([*members, (info_of("good", 4), b"data")])
    found = found_in(gzip.compress(data) if packed else data)
    assert [i.member.reason for i in found if i.data is None] == [
        Reason.NOT_A_FILE
    ] * len(kinds)
    assert found[-1].data is not None
    assert found[-1].data == b"data"


@pytest.mark.parametrize("tar_format", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_links_with_long_targets_in_tar(tar_format: int) -> None:
    """A link to a name of 200 bytes is a fault; the file after it is read."""
    link = info_of("link.jpg", 0, tarfile.SYMTYPE)
    link.linkname = "t" * 200
    members = [(link, b""), (info_of("good.jpg", 4), b"data")]
    data = tar_of_infos(members, tar_format=tar_format)
    assert faults(data) == {"link.jpg": Reason.NOT_A_FILE}
    content = found_in(data)[-1]
    assert content.data is not None
    assert content.data == b"data"


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR])
def test_fault_116_members_that_are_no_files_in_zip(kind: int) -> None:
    """A link's text is not an image's bytes: its attributes make it a fault."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        info = zipfile.ZipInfo("link.jpg")
        info.create_system = 3
        info.external_attr = (kind | 0o777) << 16
        archive.writestr(info, "/etc/passwd")
        archive.writestr("good.jpg", b"good")
    assert faults(out.getvalue()) == {"link.jpg": Reason.NOT_A_FILE}


def test_fault_117_bomb_in_a_zip_is_not_unpacked() -> None:
    """50 MB out of 50 kB: a fault, with next to no memory, and the rest is read."""
    data = zip_of({"bomb.bin": bytes(50_000_000), "good.txt": b"good"})
    assert len(data) < 55_000
    tracemalloc.start()
    found = found_in(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4_000_000
    assert found[0].member.reason is Reason.TOO_LARGE
    assert found[1].data is not None
    exact = found_in(data, limits=Limits(max_ratio=2000))
    assert exact[0].data is not None


@pytest.mark.parametrize("name", PACKERS)
def test_fault_117_bomb_in_a_packed_tar(name: str) -> None:
    """A stream that gives too much is an error, before it is unpacked."""
    data = PACKERS[name](tar_of({"bomb.bin": bytes(50_000_000)}))
    tracemalloc.start()
    with pytest.raises(SourceError, match="taken for a bomb"):
        found_in(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # The content up to the limit, once in pieces.
    assert peak < 40_000_000


def test_fault_117_a_bomb_that_states_a_false_size() -> None:
    """A member that states 10 bytes costs 10 bytes, whatever it holds."""
    data = bytearray(zip_of({"bomb.bin": bytes(20_000_000)}))
    entry = data.index(b"PK\x01\x02")
    struct.pack_into("<I", data, 22, 10)
    struct.pack_into("<I", data, entry + 24, 10)
    tracemalloc.start()
    (found,) = found_in(bytes(data))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.member.reason is Reason.DAMAGED_MEMBER
    assert "more than the stated 10 bytes" in found.member.fault.message
    assert peak < 3_000_000


@pytest.mark.parametrize("writer", ["zip", "tar-pax", "tar.gz"])
def test_fault_117_limits_of_size_total_and_count(writer: str) -> None:
    """A large member is a fault; too many bytes or members are errors."""
    files = {f"{i}.bin": random.Random(i).randbytes(1000 * i) for i in range(1, 9)}
    data = WRITERS[writer](files)
    small = Limits(max_member_bytes=6000)
    assert faults(data, limits=small) == {
        "7.bin": Reason.TOO_LARGE,
        "8.bin": Reason.TOO_LARGE,
    }
    with pytest.raises(SourceError, match="may hold 7 members"):
        found_in(data, limits=Limits(max_members=7))
    if writer != "tar-pax":
        with pytest.raises(SourceError, match="30,000 bytes"):
            found_in(data, limits=Limits(max_total_bytes=30_000))


def overlapping_zip(copies: int) -> bytes:
    """A kernel that several entries of the directory name, as in zip bombs."""
    data = zip_of({"a.bin": bytes(1000)})
    entry = data.index(b"PK\x01\x02")
    end = data.index(b"PK\x05\x06")
    directory = data[entry:end] * copies
    fields = struct.pack("<2H2I", copies, copies, len(directory), entry)
    return data[:entry] + directory + data[end : end + 8] + fields + b"\0\0"


def test_fault_117_entries_that_overlap() -> None:
    """Two entries over the same bytes are an error; zipfile of 3.11.7 reads both."""
    assert len(found_in(overlapping_zip(1))) == 1
    with pytest.raises(DamageError, match=r"must not overlap.*'a\.bin'"):
        found_in(overlapping_zip(2))


@pytest.mark.parametrize("inner", ["a.zip", "b.TAR.GZ", "c.tgz", "d.7z", "e.rar"])
def test_fault_117_archives_in_archives_are_not_entered(inner: str) -> None:
    """One level is read; an archive further in is a fault with its name."""
    for data in (zip_of({inner: zip_of(FILES)}), tar_of({inner: zip_of(FILES)})):
        assert faults(data) == {inner: Reason.NESTED_ARCHIVE}


def test_fault_118_wrong_checksum_in_a_zip() -> None:
    """A flipped byte of a stored member is found; the member after it is read."""
    data = zip_of({"a.jpg": b"content-a", "b.jpg": b"content-b"}, zipfile.ZIP_STORED)
    found = found_in(data.replace(b"content-a", b"cOntent-a"))
    assert found[0].member.reason is Reason.DAMAGED_MEMBER
    assert "CRC-32" in found[0].member.fault.message
    assert found[1].data is not None


@pytest.mark.parametrize("delta", [-1, 1])
@pytest.mark.parametrize("field", [20, 24])
def test_fault_118_declared_sizes_that_are_false(delta: int, field: int) -> None:
    """The packed or unpacked size off by one: a fault of that member."""
    data = bytearray(zip_of({"a.txt": b"0123456789" * 10, "b.txt": b"b" * 99}))
    entry = data.index(b"PK\x01\x02")
    for place in (entry + field, field - 2):
        (value,) = struct.unpack_from("<I", data, place)
        struct.pack_into("<I", data, place, value + delta)
    if (delta, field) == (1, 20):
        # The next member's bytes are claimed too.
        with pytest.raises(DamageError, match="must not overlap"):
            found_in(bytes(data))
        return
    assert faults(bytes(data)) == {"a.txt": Reason.DAMAGED_MEMBER}


def test_fault_118_header_and_directory_disagree() -> None:
    """A local header with another name, method or size than the directory's entry."""
    whole = zip_of({"a.txt": b"0123456789" * 10, "b.txt": b"b"})
    named = whole.replace(b"a.txt", b"c.txt", 1)
    assert faults(named) == {"a.txt": Reason.DAMAGED_MEMBER}
    for place in (8, 14, 18, 22):
        data = bytearray(whole)
        data[place] ^= 1
        assert faults(bytes(data)) == {"a.txt": Reason.DAMAGED_MEMBER}


@pytest.mark.parametrize("writer", ["zip", "zip-stored"])
def test_fault_118_truncated_zip(writer: str) -> None:
    """Cut anywhere, a zip is an error: no directory, no members."""
    data = WRITERS[writer](FILES)
    for cut in range(1, len(data), 7):
        with pytest.raises((DamageError, SourceError)):
            found_in(data[:-cut])
    with pytest.raises(DamageError, match="central directory"):
        found_in(data + b"trailing")


def collect(data: bytes) -> tuple[list[str], BeamTFRecordError | None]:
    names: list[str] = []
    try:
        # What came before an error stays.
        names.extend(each.member.name for each in read_in_turn(io.BytesIO(data)))
    except BeamTFRecordError as error:
        return names, error
    return names, None


@pytest.mark.parametrize("name", ["", *PACKERS])
def test_fault_119_damaged_tar_header(name: str) -> None:
    """The error names the previous member; tarfile lists those before it silently."""
    files = {f"{i}.jpg": bytes([i]) * 700 for i in range(5)}
    data = bytearray(tar_of(files))
    header = 3 * (512 + 1024)
    data[header + 3] ^= 1
    with tarfile.open(fileobj=io.BytesIO(bytes(data))) as archive:
        assert len(archive.getnames()) == 3
    packed = PACKERS[name](bytes(data)) if name else bytes(data)
    names, error = collect(packed)
    assert names == list(files)[:3]
    assert isinstance(error, DamageError)
    assert "damaged after member 3, '2.jpg': the checksum" in str(error)


@pytest.mark.parametrize("packed", [False, True])
def test_fault_119_tar_cut_anywhere(packed: bool) -> None:
    """Also where a member ends: without the blocks that end it, no tar is whole."""
    files = {f"{i}.jpg": bytes([i]) * 700 for i in range(3)}
    data = tar_of(files)
    stop = data.rstrip(b"\0").__len__()
    last = -(-stop // 512) * 512 + 512
    for size in [*range(513, last, 256), 1536, 3072, 4608, 4608 + 512, 4608 + 1023]:
        cut = data[:size]
        names, error = collect(gzip.compress(cut) if packed else cut)
        assert isinstance(error, DamageError), size
        assert "damaged" in str(error)
        # A header and 700 bytes; the rest of the last block is padding.
        assert len(names) == sum(size >= 1536 * k + 1212 for k in range(3)), size
    names, error = collect(data[: 4608 + 1024])
    assert (names, error) == (list(files), None)


@pytest.mark.parametrize("name", PACKERS)
def test_fault_119_packed_stream_cut_or_damaged(name: str) -> None:
    """A packed tar that ends early, or whose checksum is wrong, is an error."""
    rng = random.Random(7)
    data = PACKERS[name](tar_of({f"{i}.bin": rng.randbytes(9000) for i in range(9)}))
    for cut in (1, 2, 4, 9, 100, len(data) // 2):
        _, error = collect(data[:-cut])
        assert isinstance(error, DamageError), cut
        assert "the archive is damaged" in str(error)
    for place in range(40, len(data), len(data) // 20):
        flipped = bytearray(data)
        flipped[place] ^= 4
        _, error = collect(bytes(flipped))
        assert isinstance(error, DamageError), place
    names, error = collect(data + b"more")
    # Python's bz2 and lzma pass over what is no stream; the tar before it is whole.
    assert isinstance(error, DamageError) or (name in ("bz2", "xz") and len(names) == 9)


def test_fault_119_bytes_after_the_end_of_a_tar() -> None:
    """Two tars joined to one file are refused: the second would be lost silently."""
    data = tar_of({"a.jpg": b"a"})
    for joined in (data + tar_of({"b.jpg": b"b"}), gzip.compress(data) * 2):
        names, error = collect(joined)
        assert names == ["a.jpg"]
        assert isinstance(error, DamageError)
        assert "after member 1, 'a.jpg': other bytes follow" in str(error)


@pytest.mark.parametrize("second", ["a.jpg", "A.JPG", "./a.jpg"])
def test_fault_121_two_members_of_one_name(second: str) -> None:
    """The second is a fault that names the first; zip's read gives the last."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            archive.writestr("a.jpg", b"first")
            archive.writestr(second, b"second")
    tar = tar_of_infos(
        [(info_of("a.jpg", 5), b"first"), (info_of(second, 6), b"second")]
    )
    for data in (out.getvalue(), tar, gzip.compress(tar)):
        first, fault = found_in(data)
        assert first.data is not None
        assert first.data == b"first"
        assert fault.member.reason is Reason.DUPLICATE_NAME
        assert "member 1 too" in fault.member.fault.message


def test_fault_121_names_that_are_equal_in_nfc() -> None:
    """The same name composed and decomposed: the second is a fault."""
    names = [unicodedata.normalize(form, "고양이.jpg") for form in ("NFC", "NFD")]
    data = tar_of(dict.fromkeys(names, b""))
    found = found_in(data)
    assert [i.data is None for i in found] == [False, True]
    assert [i.member.raw_name for i in found] == [name.encode() for name in names]
    assert {i.member.origin for i in found} == {names[0]}


def cp949_zip() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("x" * 10, b"cat")
    return out.getvalue().replace(b"x" * 10, "고양이".encode("cp949") + b".jpg")


def test_fault_122_names_of_another_encoding() -> None:
    """Without the option there is a fault; with it the name and its raw bytes."""
    data = cp949_zip()
    (fault,) = found_in(data)
    assert fault.member.reason is Reason.INVALID_ENCODING
    assert "--zip-encoding" in fault.member.fault.message
    (found,) = found_in(data, name_encoding="cp949")
    assert found.data is not None
    assert found.member.name == "고양이.jpg"
    assert found.member.raw_name == "고양이".encode("cp949") + b".jpg"
    assert faults(data, name_encoding="ascii").popitem()[1] is Reason.INVALID_ENCODING
    # Names that are marked as UTF-8 are that, whatever the option says.
    assert contents(zip_of(FILES), name_encoding="cp949") == FILES
    with pytest.raises(SpecError, match="no-such"):
        found_in(data, name_encoding="no-such")


def test_fault_122_unmarked_utf8() -> None:
    """UTF-8 that is not marked is read."""
    data = bytearray(zip_of({"고양이.jpg": b"cat"}))
    entry = data.index(b"PK\x01\x02")
    data[7] &= ~8
    data[entry + 9] &= ~8
    assert contents(bytes(data)) == {"고양이.jpg": b"cat"}


def test_fault_122_names_of_another_encoding_in_tar() -> None:
    """The same of a tar that was written under another locale."""
    data = tar_of_infos(
        [(info_of("고양이.jpg", 3), b"cat")],
        tar_format=tarfile.GNU_FORMAT,
        encoding="cp949",
    )
    assert list(faults(data).values()) == [Reason.INVALID_ENCODING]
    assert contents(data, name_encoding="cp949") == {"고양이.jpg": b"cat"}


def test_fault_123_unsupported_method() -> None:
    """A method that is not read is a fault that names it."""
    data = zip_of({"a.jpg": b"content"}, zipfile.ZIP_LZMA)
    (fault,) = found_in(data)
    assert fault.member.reason is Reason.UNSUPPORTED_METHOD
    assert "lzma" in fault.member.fault.message


def test_fault_124_names_with_newlines_and_bytes_that_are_no_text() -> None:
    """A newline is part of a name; bytes that are no text come back as they were."""
    data = zip_of({"a\nb.jpg": b"1"})
    assert contents(data) == {"a\nb.jpg": b"1"}
    raw = b"\xb0\xfe.jpg"
    broken = zip_of({"xx.jpg": b"1"}).replace(b"xx.jpg", raw)
    (fault,) = found_in(broken)
    assert fault.member.name.encode("utf-8", "surrogateescape") == raw
    fault.member.fault.message.encode()


def test_large_numbers_and_long_names_in_tar() -> None:
    """Sizes beyond 8 GB, in GNU's and in pax's way; names of 4,000 bytes."""
    name = "d" * 99 + "/" + "n" * 3_900
    for made in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        assert contents(tar_of({name: b"x"}, tar_format=made)) == {name: b"x"}
        info = info_of("huge.bin", 9 << 30)
        header = info.tobuf(made, "utf-8")
        # Nothing follows the header: what comes before the damage is all there is.
        member, _ = next(iter(Archive(io.BytesIO(header), "x").members()))
        assert member.size == 9 << 30


def test_no_archive_at_all() -> None:
    """An empty file or another one is an error that says what it begins with."""
    with pytest.raises(SourceError, match="is empty"):
        found_in(b"")
    with pytest.raises(SourceError, match="3c 68 74 6d 6c"):
        found_in(b"<html>404</html>")
    assert found_in(zip_of({})) == []
    assert found_in(tar_of({})) == []
    assert Archive(io.BytesIO(PACKERS["xz"](b"")), "x").kind == "packed tar"


SMALL = Limits(
    max_member_bytes=1 << 20, max_total_bytes=8 << 20, ratio_free_bytes=1 << 20
)


@pytest.mark.parametrize("cases", CASES, ids=str)
def test_mutated_archives_are_read_or_refused(cases: range, headline: Headline) -> None:
    """Any bytes give members, faults or a typed error; soon, and in one kilobyte."""
    files = {"a/1.jpg": b"one" * 50, "a/고.jpg": b"", "n" * 120: bytes(range(225)) * 4}
    seeds = [write(files) for name, write in WRITERS.items() if name != "tar-ustar"]
    outcomes = {"read": 0, "refused": 0}
    for case in cases:
        data = mutated(seeds[case % len(seeds)], random.Random(case))
        if case % 2:
            data = with_right_checksums(data)
        with at_most():
            try:
                found = found_in(data, limits=SMALL)
            except (DamageError, SourceError):
                outcomes["refused"] += 1
                continue
        outcomes["read"] += 1
        for item in found:
            if item.member.fault:
                assert len(item.member.fault.message.encode()) <= 1024
            else:
                assert item.data is not None
                assert len(item.data) == item.member.size <= SMALL.max_member_bytes
    assert min(outcomes.values()) > len(cases) // 20, outcomes
    headline("H5", "{} damaged archives: no crash, hang or untyped error", len(cases))
