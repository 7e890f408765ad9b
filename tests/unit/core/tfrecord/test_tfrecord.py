"""TFRecord files: literal bytes, every kind of damage, bounded memory."""

import contextlib
import gzip
import io
import itertools
import os
import pathlib
import threading
import tracemalloc
import zlib
from collections.abc import Callable, Iterator, Sequence

import google_crc32c
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.tfrecords import HOSTILE, RECORDS, flipped, write
from transforms.core.tfrecord import frame
from transforms.core.tfrecord.reader import TFRecordReader
from transforms.core.tfrecord.writer import FrameFacts, TFRecordWriter
from transforms.errors import MAX_MESSAGE_BYTES, SourceError, TFRecordError
from transforms.storage.drafts import written
from transforms.storage.files import storage

# One record, b"hello": length, its checksum, payload, its checksum.
HELLO = bytes.fromhex("0500000000000000" + "eab2043e" + "68656c6c6f" + "bb1f1c19")

RECORDS = [*RECORDS, b"\n\x08" * 4]
PLAIN = b"".join(map(frame.frame, RECORDS))
STARTS = [sum(len(r) + 16 for r in RECORDS[:k]) for k in range(len(RECORDS) + 1)]


def read(stored: bytes, **options: object) -> list[bytes]:
    return list(TFRecordReader(io.BytesIO(stored), **options))  # type: ignore[arg-type]


def damage(stored: bytes, **options: object) -> tuple[str, int, int, int]:
    """Returns kind, record and offset of the error, and how many records came."""
    seen: list[bytes] = []
    with pytest.raises(TFRecordError) as reading:
        seen.extend(TFRecordReader(io.BytesIO(stored), **options))  # type: ignore[arg-type]
    with pytest.raises(TFRecordError) as verifying:
        TFRecordReader(io.BytesIO(stored), **options).verify()  # type: ignore[arg-type]
    errors = [
        (error.kind, error.record, error.offset, str(error))
        for error in (reading.value, verifying.value)
    ]
    assert errors[0] == errors[1]
    kind, record, offset, message = errors[0]
    assert len(message.encode()) <= MAX_MESSAGE_BYTES
    assert "<stream>" in message
    return kind, record, offset, len(seen)


def test_one_record_byte_for_byte() -> None:
    """The frame as TensorFlow's record_writer.h describes it."""
    stored, facts = write([b"hello"])
    assert stored == HELLO
    assert facts == FrameFacts(
        records=1,
        stored_bytes=21,
        crc32c=google_crc32c.value(HELLO),
        payload_bytes=5,
    )


def test_every_cut_of_a_plain_file() -> None:
    """An error inside records names the record; a cut at a boundary is not found."""
    for cut in range(len(PLAIN)):
        if cut in STARTS:
            assert read(PLAIN[:cut], allow_empty=True) == RECORDS[: STARTS.index(cut)]
            continue
        record = sum(start < cut for start in STARTS) - 1
        expected = ("truncated", record, STARTS[record], record)
        assert damage(PLAIN[:cut]) == expected, cut


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
def test_every_cut_of_a_compressed_file(compression: str) -> None:
    """No cut is taken for the end, not even between records or in the trailer."""
    stored, _ = write(RECORDS, compression)
    kinds = {damage(stored[:cut])[0] for cut in range(2, len(stored))}
    # With one byte or none left, the compression cannot be recognised.
    kinds |= {damage(stored[:cut], compression=compression)[0] for cut in (0, 1)}
    assert kinds == {"truncated", "empty"}
    assert damage(b"")[0] == "empty"
    assert damage(stored[:1])[0] == "truncated"


def test_every_bit_flip_of_a_plain_file() -> None:
    """Each is an error at the record that holds the bit, after those before it."""
    for position in range(len(PLAIN)):
        record = sum(start <= position for start in STARTS) - 1
        for bit in range(8):
            kind, *where = damage(flipped(PLAIN, position, bit))
            assert where == [record, STARTS[record], record], (position, bit)
            in_header = position - STARTS[record] < frame.HEADER_BYTES
            assert kind == ("length-crc" if in_header else "data-crc")


def test_every_bit_flip_of_a_gzip_file() -> None:
    """Harmless flips give every record, and are few; all others are errors.

    Harmless are bit 0 of byte 3 (FTEXT), bytes 4-9 (time, extra flags, system): no
    checksum covers them and no content depends on them. In the deflate data, the
    bits that pad the last byte, and one here that swaps an unused code: another way
    to write the same content, as Python's own gzip confirms.
    """
    stored, _ = write(RECORDS, "gzip")
    harmless = {(3, 0)} | {(byte, bit) for byte in range(4, 10) for bit in range(8)}
    same_content = 0
    for position in range(len(stored)):
        for bit in range(8):
            changed = flipped(stored, position, bit)
            if (position, bit) in harmless:
                assert read(changed) == RECORDS
            elif 10 <= position < len(stored) - 8 and holds_same_content(changed):
                assert read(changed) == RECORDS
                same_content += 1
            else:
                damage(changed)
    assert same_content < 8


def holds_same_content(stored: bytes) -> bool:
    try:
        return gzip.decompress(stored) == PLAIN
    except (zlib.error, EOFError, OSError):
        return False


@pytest.mark.parametrize("compression", ["none", "gzip", "zlib"])
@pytest.mark.parametrize("length", HOSTILE)
def test_hostile_lengths_are_errors(length: int, compression: str) -> None:
    """A length is compared with the limit before memory is asked for."""
    stored, _ = write(RECORDS)
    stored += frame.header(length) + bytes(100)
    pack: dict[str, Callable[[bytes], bytes]] = {
        "none": bytes,
        "gzip": gzip.compress,
        "zlib": zlib.compress,
    }
    found = damage(pack[compression](stored))
    assert found == ("too-long", len(RECORDS), len(PLAIN), len(RECORDS))


def test_hostile_length_below_the_limit_is_compared_with_the_file() -> None:
    """A plain file's own size ends it."""
    assert damage(frame.header(1 << 29) + bytes(100)) == ("truncated", 0, 0, 0)


def test_empty_file_is_an_error_unless_allowed() -> None:
    """A file without records looks like one that lost them all."""
    for stored in (b"", gzip.compress(b""), zlib.compress(b"")):
        assert damage(stored) == ("empty", 0, 0, 0)
        assert read(stored, allow_empty=True) == []
        facts = TFRecordReader(io.BytesIO(stored), allow_empty=True).verify()
        assert (facts.records, facts.stored_bytes) == (0, len(stored))


def test_zeros_are_damage() -> None:
    """A hole in a sparse file is no run of empty records."""
    assert damage(bytes(1024)) == ("length-crc", 0, 0, 0)
    assert damage(PLAIN + bytes(5000)) == ("length-crc", 10, len(PLAIN), 10)


def test_damage_of_a_long_record_is_found() -> None:
    """Records beyond one step are checked as the short ones are."""
    stored, _ = write([b"x", b"y" * 3_000_000, b"z"])
    assert damage(flipped(stored, 2_000_000)) == ("data-crc", 1, 17, 1)
    assert damage(flipped(stored, 3_000_030)) == ("data-crc", 1, 17, 1)
    assert damage(stored[:2_000_000]) == ("truncated", 1, 17, 1)
    cut = write([b"x", b"y" * 3_000_000, b"z"], "gzip")[0][:2000]
    assert damage(cut)[:3] == ("truncated", 1, 17)


def test_first_of_several_damages_is_named() -> None:
    """Also when a later one would be found earlier in the order of checks."""
    stored, _ = write([b"%03d" % k for k in range(100)])
    twice = flipped(flipped(stored, 19 * 70), 19 * 40 + 13)
    assert damage(twice) == ("data-crc", 40, 19 * 40, 40)
    twice = flipped(flipped(stored, 19 * 30), 19 * 40 + 13)
    assert damage(twice) == ("length-crc", 30, 19 * 30, 30)


def test_good_records_before_compressed_damage_are_counted() -> None:
    """The error of the stream names the record that comes next."""
    stored, _ = write([os.urandom(1000)] * 5000, "zlib")
    kind, record, offset, seen = damage(stored[:-3])
    assert (kind, record, seen) == ("truncated", 5000, 5000)
    assert offset == 5000 * 1016


@pytest.mark.parametrize(
    ("stored", "hint"),
    [
        (PLAIN.replace(b"\n", b"\r\n"), "text-mode transfer"),
        (b"id,label\n1,cat\n2,dog\n", "Is it a TFRecord file at all"),
    ],
)
def test_hints_from_what_the_bytes_look_like(stored: bytes, hint: str) -> None:
    """Common accidents are recognised."""
    with pytest.raises(TFRecordError, match=hint):
        read(stored)


def test_explicit_compression_that_contradicts_the_content() -> None:
    """The error says what the content is and which option reads it."""
    with pytest.raises(TFRecordError, match="read it with compression gzip"):
        read(write(RECORDS, "gzip")[0], compression="none")
    with pytest.raises(TFRecordError, match="not compressed") as caught:
        read(PLAIN, compression="gzip")
    assert caught.value.kind == "compression"
    assert damage(write(RECORDS, "zlib")[0], compression="gzip")[0] == "compression"


def test_message_never_holds_the_payload() -> None:
    """50 MB of damaged record make a message of less than 1 KiB."""
    stored, _ = write([b"secret" * 1_000_000])
    with pytest.raises(TFRecordError) as caught:
        read(flipped(stored, 1000))
    assert "secret" not in str(caught.value)
    assert len(str(caught.value)) < MAX_MESSAGE_BYTES


payloads = st.one_of(st.binary(max_size=40), st.integers(0, 3).map(lambda n: b"x" * n))


@given(st.lists(payloads, min_size=1, max_size=200), st.sampled_from(["none", "gzip"]))
def test_what_is_written_is_read(records: list[bytes], compression: str) -> None:
    """Payloads and facts, from reader, verifier and batches."""
    stored, facts = write(records, compression)
    reader = TFRecordReader(io.BytesIO(stored))
    assert list(reader) == records
    assert TFRecordReader(io.BytesIO(stored)).verify() == facts
    assert (reader.records, reader.stored_bytes) == (len(records), len(stored))
    assert reader.crc32c == facts.crc32c == google_crc32c.value(stored)


LAYOUTS: dict[str, Callable[[], Iterator[int]]] = {
    "uniform": lambda: (84 for _ in range(40_000)),
    "empty": lambda: (0 for _ in range(100_000)),
    "few lengths": lambda: (80 + k * k % 7 for k in range(40_000)),
    "many lengths": lambda: (k * 7919 % 3000 for k in range(3000)),
    "short runs": lambda: (k // 9 % 5 for k in range(50_000)),
    "images": lambda: (20_000 + k * 7919 % 60_000 for k in range(100)),
    "mixed": lambda: ((9, 70_000, 9, 2_500_000)[k % 4] for k in range(20)),
    "at the step": lambda: ((1 << 20) - 33 + k for k in range(40)),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_batches_hold_every_record_at_its_offset(layout: str) -> None:
    """Whatever the lengths, across the ends of chunks."""
    noise = os.urandom(3_000_000)
    records = [noise[:size] for size in LAYOUTS[layout]()]
    stored = b"".join(map(frame.frame, records))
    found: list[bytes] = []
    offsets: list[int] = []
    for batch in TFRecordReader(io.BytesIO(stored)).batches():
        assert batch.first_record == len(found)
        assert len(batch) > 0
        found += batch.to_list()
        offsets += batch.offsets.tolist()
    assert found == records
    expected = [0]
    for record in records[:-1]:
        expected.append(expected[-1] + len(record) + 16)
    assert offsets == expected


class Trickle(io.RawIOBase):
    """A stream that gives a few bytes at a time, as sockets do."""

    def __init__(self, data: bytes) -> None:
        self._data = io.BytesIO(data)

    def read(self, size: int = -1) -> bytes:
        return self._data.read(min(size, 7))


def test_short_reads_are_not_the_end() -> None:
    """Only an empty read is."""
    for compression in ("none", "gzip", "zlib"):
        stored, _ = write(RECORDS, compression)
        assert list(TFRecordReader(Trickle(stored))) == RECORDS  # type: ignore[arg-type]


def test_pipe_is_read() -> None:
    """Nothing seeks or asks for a size where streaming suffices."""
    stored, _ = write([b"x" * 100] * 5000)
    end, begin = os.pipe()

    def fill() -> None:
        with open(begin, "wb") as file:
            file.write(stored)

    thread = threading.Thread(target=fill)
    thread.start()
    assert TFRecordReader(pathlib.Path(f"/dev/fd/{end}")).verify().records == 5000
    thread.join()
    os.close(end)


@pytest.mark.parametrize("name", ["", "missing", "loop"])
def test_unreadable_paths_are_source_errors(tmp_path: pathlib.Path, name: str) -> None:
    """A directory, a missing file and a loop of links name the path."""
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(SourceError, match=str(tmp_path)):
        TFRecordReader(tmp_path / name).verify()


def test_file_that_changes_while_it_is_read(tmp_path: pathlib.Path) -> None:
    """An appended record is noticed at the end."""
    path = tmp_path / "a"
    path.write_bytes(write([b"x" * 1000] * 3000)[0])
    batches = TFRecordReader(path).batches()
    next(batches)
    with path.open("ab") as file:
        file.write(HELLO)
    os.utime(path, (1, 1))
    with pytest.raises(SourceError, match="changed while it was read"):
        list(batches)


def test_reader_of_a_path_can_be_used_again(tmp_path: pathlib.Path) -> None:
    """Each iteration opens the file again and counts from zero."""
    path = tmp_path / "a"
    path.write_bytes(PLAIN)
    reader = TFRecordReader(path)
    assert list(reader) == list(reader) == RECORDS
    assert reader.records == len(RECORDS)


def test_framed_runs_are_written_as_they_are() -> None:
    """Between single records, in order, and counted."""
    sink = io.BytesIO()
    with TFRecordWriter(sink) as writer:
        writer.write(b"a")
        writer.write_framed(PLAIN, records=len(RECORDS))
        writer.write(b"b" * 100_000)
    assert read(sink.getvalue()) == [b"a", *RECORDS, b"b" * 100_000]
    assert TFRecordReader(io.BytesIO(sink.getvalue())).verify() == writer.facts()


class _Gathering(io.BytesIO):
    """A sink that takes many pieces by one call."""

    def write_all(self, pieces: Sequence[bytes | memoryview]) -> None:
        """Writes them."""
        self.writelines(pieces)


@pytest.mark.parametrize("sink", [io.BytesIO, _Gathering])
@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_pieces_give_the_bytes_of_the_joined_run(
    sink: type[io.BytesIO], compression: str
) -> None:
    """Whether or not the sink gathers them; size and checksum are those on disk."""
    joined, pieced = sink(), sink()
    crc32c = google_crc32c.value(PLAIN)
    with TFRecordWriter(joined, compression=compression) as whole:
        whole.write(b"a")
        for _ in range(2):
            whole.write_framed(PLAIN, records=len(RECORDS))
    with TFRecordWriter(pieced, compression=compression) as writer:
        writer.write(b"a")
        for cuts in ([0, 3, 3, 20, len(PLAIN)], [0, len(PLAIN)]):
            pieces = [memoryview(PLAIN)[a:b] for a, b in itertools.pairwise(cuts)]
            writer.write_pieces(pieces, records=len(RECORDS), crc32c=crc32c)
    assert pieced.getvalue() == joined.getvalue()
    assert writer.facts() == whole.facts()


def test_large_pieces_are_not_copied(tmp_path: pathlib.Path) -> None:
    """Memory does not hold an image of many megabytes twice."""
    data = frame.frame(bytes(50_000_000))
    pieces: list[bytes | memoryview] = [data[:20], memoryview(data)[20:]]
    draft = storage(str(tmp_path / "a.tfrecord")).draft(attempts=str(tmp_path))
    with written(draft) as sink, TFRecordWriter(sink) as writer:
        tracemalloc.start()
        try:
            writer.write_pieces(pieces, records=1, crc32c=google_crc32c.value(data))
            assert tracemalloc.get_traced_memory()[1] < 1_000_000
        finally:
            tracemalloc.stop()
    assert (tmp_path / "a.tfrecord").read_bytes() == data
    assert writer.facts() == FrameFacts(
        records=1,
        stored_bytes=len(data),
        crc32c=google_crc32c.value(data),
        payload_bytes=50_000_000,
    )


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_exception_while_writing_does_not_look_like_success(compression: str) -> None:
    """No facts, no trailer, no further writes."""
    sink = io.BytesIO()
    writer = TFRecordWriter(sink, compression=compression)
    writer.write(b"x" * 100_000)
    with pytest.raises(TypeError), writer:
        writer.write(None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not complete"):
        writer.facts()
    with pytest.raises(ValueError, match="closed"):
        writer.write(b"y")
    writer.close()
    with pytest.raises(ValueError, match="not complete"):
        writer.facts()
    if compression != "none":
        damage(sink.getvalue(), compression=compression)


def test_sink_that_takes_too_little_is_an_error() -> None:
    """An unbuffered file on a full disk may write a part and not raise."""

    class Full(io.BytesIO):
        def write(self, data: bytes) -> int:  # type: ignore[override]
            return super().write(data[:5])

    with (
        pytest.raises(OSError, match="took 5 of 21 bytes"),
        TFRecordWriter(Full()) as writer,
    ):
        writer.write(b"hello")


def test_lengths_beyond_4_gib_are_not_wrapped(tmp_path: pathlib.Path) -> None:
    """A sparse file of 4 GiB, one byte short, is refused without reading it."""
    path = tmp_path / "sparse"
    size = (1 << 32) + 5
    with path.open("wb") as file:
        file.write(HELLO + frame.header(size))
        file.truncate(len(HELLO) + size + frame.OVERHEAD_BYTES - 1)
    with pytest.raises(TFRecordError, match=r"limit is 1,073,741,824"):
        TFRecordReader(path).verify()


@given(st.binary(max_size=60), st.sampled_from(["auto", "none", "gzip", "zlib"]))
def test_arbitrary_bytes_end_in_a_typed_error(stored: bytes, compression: str) -> None:
    """Garbage is never read, and never raises anything else."""
    damage(stored, compression=compression)


@given(st.data())
def test_mutated_files_give_a_prefix_then_a_typed_error(data: st.DataObject) -> None:
    """A splice anywhere costs what follows it, and invents nothing."""
    start = data.draw(st.integers(0, len(PLAIN) - 1))
    stop = data.draw(st.integers(start, len(PLAIN)))
    stored = PLAIN[:start] + data.draw(st.binary(max_size=20)) + PLAIN[stop:]
    seen: list[bytes] = []
    with contextlib.suppress(TFRecordError):
        seen.extend(TFRecordReader(io.BytesIO(stored), allow_empty=True))
    # Without an error, whole records were cut out: only a manifest can show that.
    assert all(record in RECORDS for record in seen)
    before = sum(stop <= start for stop in STARTS[1:])
    assert seen[:before] == RECORDS[:before]


_PIECES = st.lists(
    st.tuples(st.binary(max_size=8), st.sampled_from([0, 1, 15, 16, 4096, 70_001]))
)


@given(parts=_PIECES)
def test_joined_crc_is_that_of_the_joined_bytes(parts: list[tuple[bytes, int]]) -> None:
    """Pieces of any sizes, empty ones and no piece included."""
    pieces = [start + bytes(zeros) for start, zeros in parts]
    crcs = np.array([google_crc32c.value(piece) for piece in pieces], np.uint32)
    sizes = np.array([len(piece) for piece in pieces], np.int64)
    assert frame.joined_crc(crcs, sizes) == google_crc32c.value(b"".join(pieces))


def test_sizes_beyond_32_bits() -> None:
    """Doubling a piece of zeros again and again gives the size of any file."""
    size, crc = 1, google_crc32c.value(b"\0")
    for _ in range(40):
        crcs, sizes = np.array([crc, crc], np.uint32), np.array([size, size])
        size, crc = 2 * size, frame.joined_crc(crcs, sizes)
        if size == 1 << 22:
            assert crc == google_crc32c.value(bytes(size))
    whole = np.array([crc], np.uint32), np.array([size])
    more = np.array([crc, 0], np.uint32), np.array([size, 0])
    assert frame.joined_crc(*whole) == frame.joined_crc(*more) == crc
