"""The command `verify`: check every checksum and every statement of the manifest.

Imports nothing slow, and prints plainly: a million small records are checked in less
time than it takes to import what draws tables.
"""

import contextlib
import dataclasses
import functools
import json
import os
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

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
from beam_pipeline.terminal import count_text, print_line, print_text, size_text
from transforms.core.files import parse_shard_name, part_folder, part_name
from transforms.core.manifest import (
    DERIVED_FOLDERS,
    MANIFEST_NAME,
    PARTS_NAME,
    FileFacts,
    Manifest,
    ShardFacts,
)
from transforms.core.tfrecord.reader import PayloadBatch, TFRecordReader
from transforms.errors import DamageError, SourceError, TFRecordError, UsageError
from transforms.storage.files import storage

# Sidecars may be large, so they are read in pieces.
_STEP_BYTES = 1 << 20
# Of several parts.
_KEYS_AT_ONCE = 1 << 16


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


_remark = functools.partial(Finding, is_damage=False)


@dataclasses.dataclass(slots=True)
class Findings:
    """What was checked, and what was found.

    Attributes:
      findings: in the order of the files.
      files: how many were looked at.
      records, bytes: of the TFRecord files that are sound; bytes as stored.
    """

    findings: list[Finding] = dataclasses.field(default_factory=list)
    files: int = 0
    records: int = 0
    bytes: int = 0

    @property
    def is_sound(self) -> bool:
        """Whether nothing is damaged; some findings are no damage."""
        return not any(finding.is_damage for finding in self.findings)

    def add(self, other: "Findings", folder: str = "") -> None:
        """Adds what was checked in a folder, whose name then precedes those in it."""
        for finding in other.findings:
            file = os.path.join(folder, finding.file)
            self.findings.append(dataclasses.replace(finding, file=file))
        self.files += other.files
        self.records += other.records
        self.bytes += other.bytes


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
        for finding in report.findings:
            style = ("damage ", "red") if finding.is_damage else ("warning", "yellow")
            print_line(*style, f"  {finding.file}: {finding.message}")
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
    beside = [
        finding for facts in manifest.beside if (finding := _checked(dataset, facts))
    ]
    report = Findings(files=len(manifest.beside))
    sound = {f.file for f in manifest.derived} - {finding.file for finding in beside}
    faults = []
    with shown_reading(sum(split.bytes for split in manifest.splits)) as add:
        for split in manifest.splits:
            check = DerivedCheck(dataset, split, sound)
            for shard in split.shards:
                see, faults_of_shard = check.next_shard()
                finding = _checked(dataset, shard, see)
                add(shard.bytes)
                report.add(_of_shard(shard, finding))
                faults += [] if finding else faults_of_shard()
            faults += check.wrong_length()
    again = f"Make it again: beam-tfrecord index {dataset.directory}"
    report.findings += [
        *beside,
        *(Finding(name, "content", f"{what} {again}") for name, what in faults),
        *_unnamed(dataset.directory, manifest),
    ]
    return report


def _verify_parts(dataset: Dataset) -> Findings:
    """Checks each part by itself, what is beside them, and for keys in several."""
    report, names = Findings(), {PARTS_NAME}
    for part in dataset.parts:
        name = os.path.basename(part.directory)
        names.add(name)
        report.add(verify_dataset(part), name)
    is_sound = report.is_sound
    entries = {name.rstrip("/") for name in storage(dataset.directory).names_in()}
    what = "is no part: it was put there by others."
    others = [name for name in sorted(entries - names) if not name.startswith(".")]
    report.findings += (_remark(name, "unnamed", what) for name in others)
    # Damaged parts are not read once more.
    if is_sound and (what := _shared_keys(dataset)):
        report.findings.append(_remark(PARTS_NAME, "keys", what))
    return report


def _shared_keys(dataset: Dataset) -> str:
    """Returns a sentence on keys that rows of several parts have; empty for none.

    Takes 8 bytes of memory for each key.
    """
    # Loaded where there are parts.
    import numpy as np
    import pyarrow as pa

    from beam_pipeline.datasets.open_dataset import open_dataset
    from transforms.core.arrays import decoded
    from transforms.core.placing.content import content_hashes

    column = dataset.manifest.settings.get("key_column")
    features = [facts.feature for facts in dataset.manifest.features]
    single = [f for f in features if column and not (f.internal or f.shape)]
    name = next((f.name for f in single if f.source_column == column), "")
    if not name:
        return ""

    def hashed(part: Dataset) -> Iterator[tuple[pa.Array, Any]]:
        opened = open_dataset(part.directory, labels="names", times="int")
        for split in opened:
            for batch in opened[split].select([name]).batches(_KEYS_AT_ONCE):
                keys = decoded(batch.column(name))
                rows = pa.record_batch([keys.cast(pa.string())], [name])
                yield keys, content_hashes(rows, [name])

    empty = np.empty(0, np.uint64)
    hashes = [
        np.unique(np.concatenate([empty, *(some for _, some in hashed(part))]))
        for part in dataset.parts
    ]
    values, counts = np.unique(np.concatenate(hashes), return_counts=True)
    again = values[counts > 1]
    if not len(again):
        return ""
    both = zip(dataset.parts, hashes, strict=True)
    one, other = [part for part, own in both if np.isin(again[0], own)][:2]
    example = next(
        str(keys[int(at[0])].as_py())
        for keys, some in hashed(one)
        if len(at := np.flatnonzero(some == again[0]))
    )
    count = count_text(len(again), "key")
    parts = " and ".join(repr(part_name(part.directory)) for part in (one, other))
    return (
        f"{count} of {name!r} in several parts, as {example!r:.80} in {parts}: if a "
        f"key has one row, a day was converted twice."
    )


def verify_single_file(file: SingleFile) -> Findings:
    """Checks one TFRecord file, against the manifest beside it if that names it.

    Raises:
      UsageError: it cannot be opened.
    """
    report = Findings(files=1)
    try:
        if file.facts is not None and file.dataset is not None:
            compression = file.dataset.manifest.compression
            damage = _damage(file.path, file.facts, compression)
            return _of_shard(file.facts, damage)
        with storage(file.path).open_unbuffered() as source:
            reader = TFRecordReader(source, allow_empty=file.may_be_empty)
            read = reader.verify()
    except (TFRecordError, SourceError) as error:
        report.findings.append(_framing_finding(file.path, file.path, error))
    except OSError as error:
        raise UsageError(
            f"The file must be readable; {file.path!r} is not: "
            f"{error.strerror or error}."
        ) from error
    else:
        report.findings += _remarks(file.path, reader)
        report.records, report.bytes = read.records, read.stored_bytes
    return report


def verify_bare_files(bare: BareFiles) -> Findings:
    """Checks TFRecord files that no manifest names, and their numbers as shards."""
    report = Findings()
    for file in bare.files:
        try:
            report.add(verify_single_file(file))
        except UsageError as error:
            finding = Finding(file.path, "unreadable", str(error))
            report.add(Findings([finding], 1))
    # A glob may be meant to name some shards only.
    for name, what in missing_shards(bare.paths):
        finding = Finding(name, "shards", what, is_damage=bare.is_folder)
        report.findings.append(finding)
    return report


def _of_shard(facts: ShardFacts, finding: Finding | None) -> Findings:
    """Returns what was found in a shard of a dataset."""
    if finding is not None:
        return Findings([finding], 1)
    return Findings([], 1, facts.records, facts.bytes)


def _remarks(path: str, reader: TFRecordReader) -> Iterator[Finding]:
    """Yields what deserves a look in a file that is sound."""
    suffix = os.path.splitext(path)[1].lower()
    stated = {".gz": "gzip", ".zlib": "zlib"}.get(suffix, "none")
    if stated != reader.compression:
        yield _remark(
            *(path, "stored"),
            f"its compression is {reader.compression}, its name says {stated}: a "
            f"reader that goes by the name, or TensorFlow without the right "
            f"compression_type, fails.",
        )
    if reader.padding_bytes:
        yield _remark(
            *(path, "stored"),
            f"{count_text(reader.padding_bytes, 'zero byte')} follow the end of the "
            f"gzip stream: TensorFlow and Beam report an error there. 'repair' "
            f"removes them.",
        )
    if not reader.records:
        lost = "holds no record, as some shards do; or its content was lost."
        yield _remark(path, "empty", lost)


# Is shown each batch of the records of a shard.
_See = Callable[[PayloadBatch], None]


def _checked(
    dataset: Dataset, facts: FileFacts, see: _See | None = None
) -> Finding | None:
    """Returns what is wrong with a file of a dataset, which may be missing."""
    path, compression = dataset.path(facts.file), dataset.manifest.compression
    try:
        return _damage(path, facts, compression, see)
    except FileNotFoundError:
        lost = ""
        if isinstance(facts, ShardFacts):
            lost = f": {count_text(facts.records, 'record')} of the dataset"
        return Finding(facts.file, "missing", f"is missing{lost}.")
    except OSError as error:
        return Finding(facts.file, "unreadable", f"cannot be read: {error.strerror}.")


def _damage(
    path: str, facts: FileFacts, compression: str, see: _See | None = None
) -> Finding | None:
    """Returns how a file that can be opened differs from what the manifest states."""
    try:
        with storage(path).open_unbuffered() as source:
            measured = _measured(source, facts, compression, see)
    except (TFRecordError, SourceError) as error:
        return _framing_finding(facts.file, path, error)
    if measured == facts:
        return None
    message = f"holds {_in_words(measured)}; the manifest states {_in_words(facts)}."
    return Finding(facts.file, "content", f"{message} It was changed.")


def _in_words(facts: FileFacts) -> str:
    """Returns size, CRC32C and, of a shard, the records of a file in words."""
    text = f"{count_text(facts.bytes, 'byte')} with CRC32C {facts.crc32c:08x}"
    if isinstance(facts, ShardFacts):
        text = f"{count_text(facts.records, 'record')} in {text}"
    return text


def _measured(
    source: BinaryIO, facts: FileFacts, compression: str, see: _See | None
) -> FileFacts:
    """Returns the facts of a file as it is, of a shard those of its records, too."""
    if isinstance(facts, ShardFacts):
        is_empty = facts.records == 0
        reader = TFRecordReader(source, compression=compression, allow_empty=is_empty)
        read = reader.verify(see)
        numbers = (read.stored_bytes, read.crc32c, read.records, read.payload_bytes)
        return ShardFacts(facts.file, *numbers)
    size = crc = 0
    while data := source.read(_STEP_BYTES):
        size, crc = size + len(data), google_crc32c.extend(crc, data)
    return dataclasses.replace(facts, bytes=size, crc32c=crc)


def _framing_finding(
    name: str, path: str, error: TFRecordError | SourceError
) -> Finding:
    """Returns the finding for a file that cannot be read to its end, with the place."""
    message = str(error).removeprefix(f"{path}: ")
    if not isinstance(error, TFRecordError):
        return Finding(name, "unreadable", message)
    record, offset = (n if n >= 0 else None for n in (error.record, error.offset))
    return Finding(name, error.kind, message, record, offset)


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
            yield _remark(name, "unnamed", message)
        else:
            message = (
                "looks like a shard of this dataset, but the manifest does not name "
                "it. A reader that goes by a pattern reads it too. Remove it."
            )
            yield Finding(name, "foreign", message)


def _without_manifest(path: str, error: DamageError) -> Findings:
    """Checks the files of a dataset whose manifest, or what parts share, is wrong."""
    directory = path if storage(path).is_folder() else os.path.dirname(path) or "."
    is_folder = directory == path
    # Here, because it loads Arrow.
    from transforms.publishing.parts import part_names

    if names := part_names(directory) if is_folder else []:
        parts = Findings()
        for name in names:
            folder = part_folder(directory, name)
            parts.add(_verify(folder)[0], os.path.basename(folder))
        if parts.is_sound:
            # They contradict what they share.
            parts.findings.append(Finding(PARTS_NAME, "manifest", str(error)))
            parts.files += 1
        return parts
    report = Findings([Finding(MANIFEST_NAME, "manifest", str(error))], 1)
    with contextlib.suppress(UsageError):
        if (bare := find_bare_files(directory)) is not None:
            report.add(verify_bare_files(bare))
    return report


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
            print_line(
                "Without a manifest: records missing at the end of a file, doubled or "
                "in another order would not show."
            )
        return
    foreign = {f.file for f in report.findings if f.kind == "foreign"}
    damaged = {f.file for f in report.findings if f.is_damage} - foreign
    more = f", and {count_text(len(foreign), 'foreign shard')}" if foreign else ""
    print_line(
        f"{path}: damaged: {len(damaged):,} of {files}{more}. The sound shards hold "
        f"{content}."
    )
