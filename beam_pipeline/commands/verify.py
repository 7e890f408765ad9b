"""The command `verify`: check every checksum and every statement of the manifest.

Imports nothing slow, and prints plainly: a million small records are checked in less
time than it takes to import what draws tables.
"""

import contextlib
import dataclasses
import functools
import json
import os
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO, cast

import google_crc32c

from beam_pipeline.commands.progress import shown_reading
from beam_pipeline.datasets.dataset import (
    BareFiles,
    Dataset,
    SingleFile,
    find_bare_files,
    missing_shards,
    open_files,
)
from beam_pipeline.datasets.derived_files import DerivedCheck
from beam_pipeline.terminal.console import print_line
from beam_pipeline.terminal.printing import print_text
from beam_pipeline.terminal.words import count_text, size_text
from transforms.core.files import parse_shard_name
from transforms.core.manifest import (
    DERIVED_FOLDERS,
    MANIFEST_NAME,
    PARTS_NAME,
    FileFacts,
    Manifest,
    ShardFacts,
)
from transforms.core.tfrecord import PayloadBatch, TFRecordReader
from transforms.errors import DamageError, SourceError, TFRecordError, UsageError
from transforms.storage.files import storage

# Sidecars may be large, so they are read in pieces.
_STEP_BYTES = 1 << 20
_NO_MANIFEST = (
    "Without a manifest: records missing at the end of a file, doubled or in another "
    "order would not show."
)


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it should be.

    Attributes:
      file: its name in the dataset, or the path that was asked for.
      kind: a word of `frame.DAMAGE_KINDS` for the framing, else "missing",
        "unreadable", "content" (not what the manifest states), "foreign"
        (a shard that the manifest does not name), "unnamed" (any other such file),
        "shards" (a numbered set is not whole), "stored" (readable, but not as its name
        says or not by every reader), "keys" (in several parts) or "manifest".
      message: what was found and what it means, without the file's name.
      record: 0-based index of the damaged record; None where there is none.
      offset: of its header, in bytes of the uncompressed stream.
      is_damage: False for what only deserves a look.
    """

    file: str
    kind: str
    message: str
    record: int | None = None
    offset: int | None = None
    is_damage: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class Findings:
    """What was checked, and what was found.

    Attributes:
      findings: in the order of the files.
      files: how many were looked at.
      records, bytes: of the TFRecord files that are sound; bytes as stored.
    """

    findings: tuple[Finding, ...]
    files: int
    records: int
    bytes: int

    @property
    def is_sound(self) -> bool:
        """Whether nothing is damaged; there may be findings that are none."""
        return not any(finding.is_damage for finding in self.findings)


def print_findings(report: Findings) -> None:
    """Prints a line for each finding; on a terminal in colour and wrapped."""
    for finding in report.findings:
        word, style = ("damage ", "red") if finding.is_damage else ("warning", "yellow")
        print_line(word, style, f"  {finding.file}: {finding.message}")


def show(path: str, quiet: bool = False, *, as_json: bool = False) -> int:
    """Verifies and prints what is at a path; returns 0 when it is sound, else 1.

    With `as_json` it prints what `Findings` holds, and whether it is sound.

    Raises:
      UsageError: there is neither a dataset nor a TFRecord file.
    """
    report, checked = _verify(path)
    if as_json:
        facts = {"sound": report.is_sound, **dataclasses.asdict(report)}
        print_text(json.dumps(facts, indent=1))
    else:
        print_findings(report)
        if not quiet:
            _print_verdict(path, report, checked)
    return 0 if report.is_sound else 1


def _verify(path: str) -> tuple[Findings, str]:
    """Returns the findings at a path, and what a manifest was compared with."""
    try:
        target = open_files(path)
    except DamageError as error:
        return _without_manifest(path, error), ""
    if isinstance(target, Dataset):
        return verify_dataset(target), "all checksums, counts and sizes match"
    if isinstance(target, BareFiles):
        return verify_bare_files(target), ""
    checked = "as the manifest beside it states" if target.facts else ""
    return verify_single_file(target), checked


def verify_dataset(dataset: Dataset) -> Findings:
    """Checks every file that the manifest names, and looks for files it does not."""
    if dataset.parts:
        return _verify_parts(dataset)
    manifest = dataset.manifest
    shards = [shard for split in manifest.splits for shard in split.shards]
    findings: list[Finding] = []
    checks = (_check_sidecar(dataset.path(f.file), f) for f in manifest.beside)
    beside = [finding for finding in checks if finding]
    sound = {f.file for f in manifest.derived} - {finding.file for finding in beside}
    faults = []
    records = size = 0
    with shown_reading(sum(shard.bytes for shard in shards)) as add:
        for split in manifest.splits:
            check = DerivedCheck(dataset, split, sound)
            for shard in split.shards:
                path = dataset.path(shard.file)
                see, faults_of_shard = check.next_shard()
                stated = shard, manifest.compression, see
                differs = functools.partial(_shard_differs, *stated)
                finding = _checked(path, shard, differs)
                add(shard.bytes)
                if finding is not None:
                    findings.append(finding)
                    continue
                records += shard.records
                size += shard.bytes
                faults += faults_of_shard()
            faults += check.wrong_length()
    again = f"Make it again: beam-tfrecord index {dataset.directory}"
    findings += beside
    findings += [Finding(name, "content", f"{what} {again}") for name, what in faults]
    findings += _unnamed(dataset.directory, manifest)
    return Findings(tuple(findings), len(shards) + len(manifest.beside), records, size)


def _verify_parts(dataset: Dataset) -> Findings:
    """Checks each part by itself, what is beside them, and for keys in several."""
    reports = [
        _renamed(
            verify_dataset(part),
            functools.partial(os.path.join, os.path.basename(part.directory)),
        )
        for part in dataset.parts
    ]
    names = {n.rstrip("/") for n in storage(dataset.directory).names_in()}
    names -= {os.path.basename(part.directory) for part in dataset.parts}
    what = "is no part: it was put there by others."
    more = [
        Finding(name, "unnamed", what, is_damage=False)
        for name in sorted(names - {PARTS_NAME})
        if not name.startswith(".")
    ]
    if all(report.is_sound for report in reports):
        # Loaded where there are parts; damaged ones are not read once more.
        from beam_pipeline.commands.part_keys import shared_keys

        if what := shared_keys(dataset):
            more.append(Finding(PARTS_NAME, "keys", what, is_damage=False))
    return _joined(reports, more)


def _renamed(report: Findings, name_of: Callable[[str], str]) -> Findings:
    """Returns a report in which files have other names."""
    findings = (dataclasses.replace(f, file=name_of(f.file)) for f in report.findings)
    return dataclasses.replace(report, findings=tuple(findings))


def verify_single_file(file: SingleFile) -> Findings:
    """Checks one TFRecord file, against the manifest beside it if that names it.

    Raises:
      UsageError: it cannot be opened.
    """
    facts = file.facts
    try:
        with (
            shown_reading(storage(file.path).size_of()) as add,
            storage(file.path).open_unbuffered() as source,
        ):
            stream = cast(BinaryIO, source)
            if facts is not None and file.dataset is not None:
                compression = file.dataset.manifest.compression
                if message := _shard_differs(facts, compression, None, stream):
                    return Findings((Finding(facts.file, "content", message),), 1, 0, 0)
                return Findings((), 1, facts.records, facts.bytes)
            position = 0

            def see(_: PayloadBatch) -> None:
                nonlocal position
                # A pipe has no position.
                with contextlib.suppress(OSError):
                    add(source.tell() - position)
                    position = source.tell()

            reader = TFRecordReader(stream, allow_empty=file.may_be_empty)
            read = reader.verify(see)
            remarks = tuple(_remarks(file.path, reader))
    except (TFRecordError, SourceError) as error:
        name = file.path if facts is None else facts.file
        return Findings((_framing_finding(name, file.path, error),), 1, 0, 0)
    except OSError as error:
        raise UsageError(
            f"The file must be readable; {file.path!r} is not: "
            f"{error.strerror or error}."
        ) from error
    return Findings(remarks, 1, read.records, read.stored_bytes)


def verify_bare_files(bare: BareFiles) -> Findings:
    """Checks TFRecord files that no manifest names, and their numbers as shards."""
    reports = []
    for file in bare.files:
        try:
            reports.append(verify_single_file(file))
        except UsageError as error:
            finding = Finding(file.path, "unreadable", str(error))
            reports.append(Findings((finding,), 1, 0, 0))
    # A glob may be meant to name some shards only.
    more = [
        Finding(name, "shards", what, is_damage=bare.is_folder)
        for name, what in missing_shards(bare.paths)
    ]
    return _joined(reports, more)


def _joined(reports: Sequence[Findings], more: Sequence[Finding]) -> Findings:
    """Returns several reports as one, with more findings after theirs."""
    findings = [finding for report in reports for finding in report.findings]
    counts = [(report.files, report.records, report.bytes) for report in reports]
    return Findings((*findings, *more), *map(sum, zip((0, 0, 0), *counts, strict=True)))


def _remarks(path: str, reader: TFRecordReader) -> Iterator[Finding]:
    """Yields what deserves a look in a file that is sound."""
    remark = functools.partial(Finding, path, is_damage=False)
    suffix = os.path.splitext(path)[1].lower()
    stated = {".gz": "gzip", ".zlib": "zlib"}.get(suffix, "none")
    if stated != reader.compression:
        yield remark(
            "stored",
            f"its compression is {reader.compression}, its name says {stated}: a "
            f"reader that goes by the name, or TensorFlow without the right "
            f"compression_type, fails.",
        )
    if reader.padding_bytes:
        yield remark(
            "stored",
            f"{count_text(reader.padding_bytes, 'zero byte')} follow the end of the "
            f"gzip stream: TensorFlow and Beam report an error there. 'repair' "
            f"removes them.",
        )
    if not reader.records:
        lost = "holds no record, as some shards do; or its content was lost."
        yield remark("empty", lost)


def _checked(
    path: str, facts: FileFacts, differs: Callable[[BinaryIO], str]
) -> Finding | None:
    """Returns what is wrong with a file of a dataset.

    Args:
      path: where it should be.
      facts: what the manifest states.
      differs: returns in words how the open file differs from that; empty for sound.
    """
    try:
        with storage(path).open_unbuffered() as source:
            message = differs(cast(BinaryIO, source))
    except FileNotFoundError:
        lost = ""
        if isinstance(facts, ShardFacts):
            lost = f": {count_text(facts.records, 'record')} of the dataset"
        return Finding(facts.file, "missing", f"is missing{lost}.")
    except (TFRecordError, SourceError) as error:
        return _framing_finding(facts.file, path, error)
    except OSError as error:
        return Finding(facts.file, "unreadable", f"cannot be read: {error.strerror}.")
    return Finding(facts.file, "content", message) if message else None


def _shard_differs(
    facts: ShardFacts,
    compression: str,
    see: Callable[[PayloadBatch], None] | None,
    source: BinaryIO,
) -> str:
    """Returns how sound records differ from what the manifest states of a shard.

    Args:
      facts: what the manifest states.
      compression: of the dataset.
      see: called with each batch of records.
      source: the shard.
    """
    is_empty = facts.records == 0
    reader = TFRecordReader(source, compression=compression, allow_empty=is_empty)
    read = reader.verify(see)
    numbers = (read.stored_bytes, read.crc32c, read.records, read.payload_bytes)
    if facts == ShardFacts(facts.file, *numbers):
        return ""
    return (
        f"holds {count_text(read.records, 'record')} in "
        f"{count_text(read.stored_bytes, 'byte')} with CRC32C {read.crc32c:08x}; the "
        f"manifest states {facts.records:,} in {facts.bytes:,} with "
        f"{facts.crc32c:08x}. Its records are sound, but not those of the dataset."
    )


def _framing_finding(
    name: str, path: str, error: TFRecordError | SourceError
) -> Finding:
    message = str(error).removeprefix(f"{path}: ")
    if not isinstance(error, TFRecordError):
        return Finding(name, "unreadable", message)
    record, offset = (n if n >= 0 else None for n in (error.record, error.offset))
    return Finding(name, error.kind, message, record, offset)


def _check_sidecar(path: str, facts: FileFacts) -> Finding | None:
    def differs(file: BinaryIO) -> str:
        size = crc = 0
        while data := file.read(_STEP_BYTES):
            size, crc = size + len(data), google_crc32c.extend(crc, data)
        if (size, crc) == (facts.bytes, facts.crc32c):
            return ""
        return (
            f"has {size:,} bytes with CRC32C {crc:08x}; the manifest states "
            f"{facts.bytes:,} with {facts.crc32c:08x}. It was changed."
        )

    return _checked(path, facts, differs)


def _unnamed(directory: str, manifest: Manifest) -> Iterator[Finding]:
    """Yields a finding for every entry of the directory without a name in it."""
    folder = manifest.folder
    named = {MANIFEST_NAME, folder, *manifest.root_names}
    strangers = sorted(set(storage(directory).names_with(DERIVED_FOLDERS)) - named)
    if folder:
        data_folder = manifest.path(directory, "").rstrip("/")
        below = set(storage(data_folder).names_with(DERIVED_FOLDERS))
        strangers += (f"{folder}/{n}" for n in sorted(below - set(manifest.file_names)))
    for name in strangers:
        if parse_shard_name(os.path.basename(name), manifest.name) is None:
            message = "is not named by the manifest: it was put there by others."
            yield Finding(name, "unnamed", message, is_damage=False)
        else:
            message = (
                "looks like a shard of this dataset, but the manifest does not name "
                "it. A reader that goes by a pattern reads it too. Remove it."
            )
            yield Finding(name, "foreign", message)


def _without_manifest(path: str, error: DamageError) -> Findings:
    """Checks the files of a dataset whose manifest is damaged."""
    directory = path if storage(path).is_folder() else os.path.dirname(path) or "."
    reports = [Findings((Finding(MANIFEST_NAME, "manifest", str(error)),), 1, 0, 0)]
    with contextlib.suppress(UsageError):
        if (bare := find_bare_files(directory)) is not None:
            reports.append(_renamed(verify_bare_files(bare), os.path.basename))
    return _joined(reports, ())


def _print_verdict(path: str, report: Findings, checked: str) -> None:
    """Prints what was checked of sound files, and what is damaged.

    Args:
      path: that was asked for.
      report: what was found there.
      checked: what a manifest was compared with; empty without one.
    """
    content = f"{count_text(report.records, 'record')}, {size_text(report.bytes)}"
    files = count_text(report.files, "file")
    if report.is_sound:
        checks = checked or "all checksums match"
        print_line(f"{path}: sound: {content} in {files}; {checks}.")
        if not checked:
            print_line(_NO_MANIFEST)
        return
    foreign = {f.file for f in report.findings if f.kind == "foreign"}
    damaged = {f.file for f in report.findings if f.is_damage} - foreign
    more = f", and {count_text(len(foreign), 'foreign shard')}" if foreign else ""
    print_line(
        f"{path}: damaged: {len(damaged):,} of {files}{more}. The sound shards hold "
        f"{content}."
    )
