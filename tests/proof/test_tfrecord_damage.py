"""Damage to datasets and bytes: none is silent, none is more than a typed error."""

import gzip
import io
import pathlib
import random
import zlib

import pyarrow as pa
import pytest

from beam_pipeline.commands import verify
from beam_pipeline.datasets.dataset import Dataset, SingleFile, open_target
from tests.conftest import Headline
from tests.support.datasets import animals, write_dataset
from tests.support.fuzzing import at_most, corpus, mutated
from tests.support.stress import CASES, sizes
from transforms.core.example.decoder import decode_examples
from transforms.core.example.messages import message, parse_example
from transforms.core.manifest import MANIFEST_NAME
from transforms.core.tfrecord.compression import unpack
from transforms.core.tfrecord.frame import frame, header
from transforms.core.tfrecord.reader import TFRecordReader
from transforms.core.tfrecord.walk import Kept, Salvage
from transforms.errors import (
    MAX_MESSAGE_BYTES,
    BeamTFRecordError,
    DamageError,
    ExampleError,
    TFRecordError,
)

Folder = pathlib.Path


def is_noticed(dataset: Dataset) -> bool:
    """Whether `verify` finds damage, and says so in bounded messages."""
    report = verify.verify_dataset(dataset)
    for finding in report.findings:
        assert len(finding.message.encode()) <= MAX_MESSAGE_BYTES
    return not report.is_sound


@pytest.mark.parametrize("compression", sizes("gzip", "none", "zlib"))
def test_no_cut_and_no_bit_flip_of_a_shard_is_silent(
    compression: str, tmp_path: Folder, headline: Headline
) -> None:
    """Every one of them, in a dataset with its manifest."""
    manifest = write_dataset(
        tmp_path / "d", {"train": animals(10)}, compression=compression
    )
    path = tmp_path / "d" / manifest.splits[0].shards[0].file
    dataset = open_target(str(tmp_path / "d"))
    assert isinstance(dataset, Dataset)
    assert not is_noticed(dataset)
    data = path.read_bytes()
    silent = []
    for cut in range(len(data)):
        path.write_bytes(data[:cut])
        if not is_noticed(dataset):
            silent.append((cut, -1))
    flips = range(0, 8 * len(data))
    for at in flips:
        changed = bytearray(data)
        changed[at // 8] ^= 1 << at % 8
        path.write_bytes(changed)
        if not is_noticed(dataset):
            silent.append((at // 8, at % 8))
    assert not silent
    headline("H2", f"{compression}: {len(data):,} cuts, {len(flips):,} flips: 0 silent")


@pytest.mark.parametrize("most", sizes(100, 10**6))
def test_no_bit_flip_beside_the_shards_is_silent(
    most: int, tmp_path: Folder, headline: Headline
) -> None:
    """Nor of the manifest and of what TFDS reads."""
    write_dataset(tmp_path / "d", {"train": animals(3)})
    paths = sorted(p for p in (tmp_path / "d").iterdir() if ".tfrecord" not in p.name)
    places = [(p, at) for p in paths for at in range(8 * p.stat().st_size)]
    chosen = random.Random(1).sample(places, min(most, len(places)))
    for path, at in chosen:
        data = path.read_bytes()
        changed = bytearray(data)
        changed[at // 8] ^= 1 << at % 8
        path.write_bytes(changed)
        try:
            dataset = open_target(str(tmp_path / "d"))
            assert isinstance(dataset, Dataset)
            assert is_noticed(dataset), (path.name, at)
        except DamageError:
            assert path.name == MANIFEST_NAME
        path.write_bytes(data)
    headline("H2", f"files beside: {len(chosen):,} flips: 0 silent")


TOKENS = (
    *map(header, (0, 1, 1 << 20, 1 << 29, 2**31, 2**40, 2**63, 2**64 - 1)),
    *(frame(b""), frame(b"x" * 30), bytes(40), b"\x1f\x8b\x08", b"\x78\x9c", b"\r\n"),
)
FRAMED = b"".join(frame(b"%d" % n * n) for n in range(12))
SEEDS = (
    FRAMED,
    b"".join(frame(b"ab" * 20) for _ in range(20)),
    frame(FRAMED) + frame(b"x") + frame(b"pre" + FRAMED),
    gzip.compress(FRAMED, mtime=0),
    gzip.compress(FRAMED, mtime=0) + gzip.compress(frame(b"more"), mtime=0),
    zlib.compress(FRAMED),
)


def read_in_every_way(data: bytes) -> str:
    """Reads, verifies and salvages; returns the kind of damage, "" for none."""
    kind = ""
    seen: list[bytes] = []
    try:
        seen.extend(TFRecordReader(io.BytesIO(data)))
    except TFRecordError as error:
        kind = error.kind
        check_text(error)
    found = ""
    try:
        assert TFRecordReader(io.BytesIO(data)).verify().records == len(seen)
    except TFRecordError as error:
        found = error.kind
    assert found == kind
    content = data
    if data.startswith(b"\x1f\x8b"):
        sink = io.BytesIO()
        unpack(lambda start, stop: data[start:stop], len(data), sink.write)
        content = sink.getvalue()
    start = kept = 0
    for part in Salvage(lambda a, b: content[a:b], len(content)):
        assert part.start == start < part.stop <= len(content)
        start = part.stop
        if isinstance(part, Kept):
            stored = content[part.start : part.stop]
            assert TFRecordReader(io.BytesIO(stored)).verify().records == part.records
            kept += part.records
    assert start == len(content)
    if not kind and not data.startswith(b"\x78"):
        assert kept == len(seen)
    return kind


@pytest.mark.parametrize("cases", CASES, ids=str)
def test_fuzzed_framing_gives_records_or_a_typed_error(
    cases: range, headline: Headline
) -> None:
    """Reader, verifier, salvage: no crash, no hang, no other exception."""
    for case in cases:
        data = mutated(SEEDS[case % len(SEEDS)], random.Random(case), TOKENS)
        try:
            with at_most():
                read_in_every_way(data)
        except BaseException as error:
            error.add_note(f"case {case}: {data.hex()}")
            raise
    headline("H5", "framing: {} inputs, all read or refused", len(cases))


@pytest.mark.parametrize("path", corpus("tfrecord"), ids=lambda path: path.name)
def test_what_once_failed_is_read_or_refused(path: pathlib.Path) -> None:
    """Files and messages of the corpus, as framing and as an Example."""
    data = path.read_bytes()
    with at_most():
        read_in_every_way(data)
        decode_in_every_way(data)


EXAMPLE = message(b"")
for _name, _kind, _values in (
    ("글", "bytes_list", [b"", b"\xff\0", b"text" * 20]),
    ("f", "float_list", [0.0, -1.5, float("nan")]),
    ("i", "int64_list", [-1, 0, 300, 2**63 - 1]),
    ("one", "int64_list", [5]),
    ("empty", "float_list", []),
):
    getattr(EXAMPLE.features.feature[_name], _kind).value.extend(_values)
SERIALISED = EXAMPLE.SerializeToString(deterministic=True)
WIRE_TOKENS = (
    *(b"\x0a\x00", b"\x12\x02\x1a\x00", b"\x1b", b"\x1c", b"\x0b" * 200, b"\xff" * 11),
    *(b"\x0a\xff\xff\xff\xff\x0f", b"\x80" * 9 + b"\x01", b"\x80" * 10 + b"\x01"),
    *(b"\x0a\x01i", b"\x0a\x03one", b"\x08\x01", b"\x0d\0\0\x80\x3f", b"\x09" * 9),
    *(b"\xfa\xff\xff\xff\x0f\x00", b"\x0a\x01\xff", b"\x1a\x02\x0a\x00", b"\0"),
)


def decode_in_every_way(data: bytes) -> bool:
    """Decodes a payload; returns whether it is an Example."""
    values = None
    try:
        values = parse_example(data)
    except ExampleError as error:
        check_text(error)
    rows = decoded([data])
    assert (rows is None) == (values is None)
    # Beside another one, with whose types it may be at odds.
    beside = decoded([SERIALISED, data])
    assert beside is None or values is not None
    if rows is not None and values is not None:
        (row,) = rows.to_pylist()
        for name, found in values.items():
            assert repr(row[name]) in (repr(found), repr((found or [None])[0]))
    return values is not None


def decoded(payloads: list[bytes]) -> pa.RecordBatch | None:
    """Returns the rows of payloads; None where they are refused."""
    try:
        rows = decode_examples(payloads)
    except ExampleError as error:
        check_text(error)
        return None
    rows.validate(full=True)
    assert rows.num_rows == len(payloads)
    return rows


def check_text(error: BeamTFRecordError) -> None:
    """Fails where a message is too long."""
    assert len(str(error).encode()) <= MAX_MESSAGE_BYTES


@pytest.mark.parametrize("cases", CASES, ids=str)
def test_fuzzed_examples_give_values_or_a_typed_error(
    cases: range, headline: Headline
) -> None:
    """Parser and columnar decoder agree on what is an Example."""
    accepted = 0
    for case in cases:
        data = mutated(SERIALISED, random.Random(case), WIRE_TOKENS)
        try:
            with at_most():
                accepted += decode_in_every_way(data)
        except BaseException as error:
            error.add_note(f"case {case}: {data.hex()}")
            raise
    assert 0 < accepted < len(cases)
    headline("H5", "Examples: {} inputs, values or a typed error", len(cases))


@pytest.mark.parametrize("cases", CASES, ids=str)
def test_fuzzed_files_are_verified_or_refused(cases: range, tmp_path: Folder) -> None:
    """What `verify` prints of a file by itself is bounded too."""
    path = tmp_path / "a.tfrecord"
    for case in cases:
        path.write_bytes(mutated(SEEDS[case % len(SEEDS)], random.Random(case), TOKENS))
        try:
            report = verify.verify_single_file(SingleFile(str(path)))
        except BeamTFRecordError as error:
            check_text(error)
        else:
            assert all(
                len(each.message.encode()) <= MAX_MESSAGE_BYTES
                for each in report.findings
            )
