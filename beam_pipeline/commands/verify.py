"""The command `verify`: check every checksum and every statement of the manifest.

Imports nothing slow, and prints plainly: a million small records are checked in less
time than it takes to import what draws tables.
"""

import contextlib
import dataclasses
import json
import os
from collections.abc import Callable, Iterator
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
from beam_pipeline.terminal.console import print_head
from beam_pipeline.terminal.printing import print_prose, print_text, printable
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
    "Without a manifest: records missing at the end of a file, doubled or in another\n"
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
        print_head(word, f"  {finding.file}: {finding.message}", style)


def show(path: str, quiet: bool = False, *, as_json: bool = False) -> int:
    """Verifies and prints what is at a path; returns 0 when it is sound, else 1.

    With `as_json` it prints what `Findings` holds, and whether it is sound.

    Raises:
      UsageError: there is neither a dataset nor a TFRecord file.
    """
    report, verdict = _verify(path)
    if as_json:
        facts = {"sound": report.is_sound, **dataclasses.asdict(report)}
        print_text(json.dumps(facts, indent=1))
        return 0 if report.is_sound else 1
    print_findings(report)
    if not quiet:
        print_prose(verdict)
    return 0 if report.is_sound else 1


def _verify(path: str) -> tuple[Findings, str]:
    """Returns the findings at a path, and the verdict in a sentence."""
    try:
        target = open_files(path)
    except DamageError as error:
        report = _without_manifest(path, error)
        return report, _verdict(path, report, has_manifest=False)
    if isinstance(target, Dataset):
        report = verify_dataset(target)
        return report, _verdict(path, report, "all checksums, counts and sizes match")
    if isinstance(target, BareFiles):
        report = verify_bare_files(target)
        return report, _verdict(path, report, has_manifest=False)
    report = verify_single_file(target)
    if target.facts is None:
        return report, _verdict(path, report, has_manifest=False)
    return report, _verdict(path, report, "as the manifest beside it states")


def verify_dataset(dataset: Dataset) -> Findings:
    """Checks every file that the manifest names, and looks for files it does not."""
    if dataset.parts:
        return _verify_parts(dataset)
    manifest = dataset.manifest
    shards = [shard for split in manifest.splits for shard in split.shards]
    findings: list[Finding] = []
    beside = [
        finding
        for facts in manifest.beside
        if (finding := _check_sidecar(dataset.path(facts.file), facts))
    ]
    sound = {f.file for f in manifest.derived} - {finding.file for finding in beside}
    faults = []
    records = size = 0
    with shown_reading(sum(shard.bytes for shard in shards)) as add:
        for split in manifest.splits:
            check = DerivedCheck(dataset, split, sound)
            for shard in split.shards:
                path = dataset.path(shard.file)
                see, faults_of_shard = check.next_shard()
                finding = _check_shard(path, shard, manifest.compression, see)
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
    reports = [verify_dataset(part) for part in dataset.parts]
    folders = [os.path.basename(part.directory) for part in dataset.parts]
    findings = [
        dataclasses.replace(finding, file=f"{folder}/{finding.file}")
        for folder, report in zip(folders, reports, strict=True)
        for finding in report.findings
    ]
    names = {n.rstrip("/") for n in storage(dataset.directory).names_in()}
    for name in sorted(names - {*folders, PARTS_NAME}):
        if not name.startswith("."):
            what = "is no part: it was put there by others."
            findings.append(Finding(name, "unnamed", what, is_damage=False))
    if not any(finding.is_damage for finding in findings):
        # Loaded where there are parts; damaged ones are not read once more.
        from beam_pipeline.commands.part_keys import shared_keys

        if what := shared_keys(dataset):
            findings.append(Finding(PARTS_NAME, "keys", what, is_damage=False))
    return Findings(
        tuple(findings),
        sum(report.files for report in reports),
        sum(report.records for report in reports),
        sum(report.bytes for report in reports),
    )


def verify_single_file(file: SingleFile) -> Findings:
    """Checks one TFRecord file, against the manifest beside it if that names it.

    Raises:
      UsageError: it cannot be opened.
    """
    try:
        with shown_reading(storage(file.path).size_of()) as add:
            if file.facts is not None and file.dataset is not None:
                compression = file.dataset.manifest.compression
                finding = _check_shard(file.path, file.facts, compression)
                if finding is not None:
                    return Findings((finding,), 1, 0, 0)
                return Findings((), 1, file.facts.records, file.facts.bytes)
            with storage(file.path).open_unbuffered() as source:
                reader = TFRecordReader(
                    cast(BinaryIO, source), allow_empty=file.may_be_empty
                )
                position = 0

                def see(_: PayloadBatch) -> None:
                    nonlocal position
                    # A pipe has no position.
                    with contextlib.suppress(OSError):
                        add(source.tell() - position)
                        position = source.tell()

                facts = reader.verify(see)
    except (TFRecordError, SourceError) as error:
        return Findings((_framing_finding(file.path, error),), 1, 0, 0)
    except OSError as error:
        raise UsageError(
            f"The file must be readable; {file.path!r} is not: "
            f"{error.strerror or error}."
        ) from error
    remarks = tuple(_remarks(file.path, reader))
    return Findings(remarks, 1, facts.records, facts.stored_bytes)


def verify_bare_files(bare: BareFiles) -> Findings:
    """Checks TFRecord files that no manifest names, and their numbers as shards."""
    findings: list[Finding] = []
    records = size = 0
    for file in bare.files:
        try:
            report = verify_single_file(file)
        except UsageError as error:
            findings.append(Finding(file.path, "unreadable", str(error)))
            continue
        findings += report.findings
        records += report.records
        size += report.bytes
    # A glob may be meant to name some shards only.
    for name, what in missing_shards(bare.paths):
        findings.append(Finding(name, "shards", what, is_damage=bare.is_folder))
    return Findings(tuple(findings), len(bare.paths), records, size)


def _remarks(path: str, reader: TFRecordReader) -> list[Finding]:
    """Returns what deserves a look in a file that is sound."""
    texts = []
    suffix = os.path.splitext(path)[1].lower()
    stated = {".gz": "gzip", ".zlib": "zlib"}.get(suffix, "none")
    if stated != reader.compression:
        text = (
            f"its compression is {reader.compression}, its name says {stated}: a "
            f"reader that goes by the name, or TensorFlow without the right "
            f"compression_type, fails."
        )
        texts.append(("stored", text))
    if reader.padding_bytes:
        text = (
            f"{count_text(reader.padding_bytes, 'zero byte')} follow the end of the "
            f"gzip stream: TensorFlow and Beam report an error there. 'repair' "
            f"removes them."
        )
        texts.append(("stored", text))
    if not reader.records:
        text = "holds no record, as some shards do; or its content was lost."
        texts.append(("empty", text))
    return [Finding(path, kind, text, is_damage=False) for kind, text in texts]


def _check_shard(
    path: str,
    facts: ShardFacts,
    compression: str,
    see: Callable[[PayloadBatch], None] | None = None,
) -> Finding | None:
    """Returns what is wrong with a shard.

    Args:
      path: where it should be.
      facts: what the manifest says.
      compression: of the dataset.
      see: called with each batch of sound records.
    """
    try:
        with storage(path).open_unbuffered() as source:
            reader = TFRecordReader(
                cast(BinaryIO, source),
                compression=compression,
                allow_empty=facts.records == 0,
            )
            read = reader.verify(see)
    except FileNotFoundError:
        message = f"is missing: {count_text(facts.records, 'record')} of the dataset."
        return Finding(facts.file, "missing", message)
    except (TFRecordError, SourceError) as error:
        return _framing_finding(path, error, facts)
    except OSError as error:
        return Finding(facts.file, "unreadable", f"cannot be read: {error.strerror}.")
    if (read.stored_bytes, read.crc32c) == (facts.bytes, facts.crc32c) and (
        read.records,
        read.payload_bytes,
    ) == (facts.records, facts.payload_bytes):
        return None
    message = (
        f"holds {count_text(read.records, 'record')} in "
        f"{count_text(read.stored_bytes, 'byte')} with CRC32C {read.crc32c:08x}; the "
        f"manifest states {facts.records:,} in {facts.bytes:,} with "
        f"{facts.crc32c:08x}. Its records are sound, but not those of the dataset."
    )
    return Finding(facts.file, "content", message)


def _framing_finding(
    path: str, error: TFRecordError | SourceError, facts: ShardFacts | None = None
) -> Finding:
    message = str(error).removeprefix(f"{path}: ")
    name = path if facts is None else facts.file
    if not isinstance(error, TFRecordError):
        return Finding(name, "unreadable", message)
    record, offset = (n if n >= 0 else None for n in (error.record, error.offset))
    return Finding(name, error.kind, message, record, offset)


def _check_sidecar(path: str, facts: FileFacts) -> Finding | None:
    size = crc = 0
    try:
        with storage(path).open_unbuffered() as file:
            while data := file.read(_STEP_BYTES):
                size += len(data)
                crc = google_crc32c.extend(crc, data)
    except FileNotFoundError:
        return Finding(facts.file, "missing", "is missing.")
    except OSError as error:
        return Finding(facts.file, "unreadable", f"cannot be read: {error.strerror}.")
    if (size, crc) == (facts.bytes, facts.crc32c):
        return None
    return Finding(
        facts.file,
        "content",
        f"has {size:,} bytes with CRC32C {crc:08x}; the manifest states "
        f"{facts.bytes:,} with {facts.crc32c:08x}. It was changed.",
    )


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
    report = Findings((), 0, 0, 0)
    with contextlib.suppress(UsageError):
        if (bare := find_bare_files(directory)) is not None:
            report = verify_bare_files(bare)
    findings = [
        dataclasses.replace(finding, file=os.path.basename(finding.file))
        for finding in report.findings
    ]
    damage = Finding(MANIFEST_NAME, "manifest", str(error))
    return dataclasses.replace(
        report, findings=(damage, *findings), files=report.files + 1
    )


def _verdict(
    path: str,
    report: Findings,
    checked: str = "all checksums match",
    *,
    has_manifest: bool = True,
) -> str:
    """Returns the verdict: what was checked of sound files, and what is damaged."""
    content = f"{count_text(report.records, 'record')}, {size_text(report.bytes)}"
    files = count_text(report.files, "file")
    if report.is_sound:
        verdict = f"{printable(path)}: sound: {content} in {files}; {checked}."
        return verdict if has_manifest else f"{verdict}\n{_NO_MANIFEST}"
    foreign = {f.file for f in report.findings if f.kind == "foreign"}
    damaged = {f.file for f in report.findings if f.is_damage} - foreign
    verdict = f"{printable(path)}: damaged: {len(damaged):,} of {files}"
    if foreign:
        verdict += f", and {count_text(len(foreign), 'foreign shard')}"
    return f"{verdict}. The sound shards hold {content}."
