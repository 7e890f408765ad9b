"""Findings of `verify` and how they are printed. Imports nothing slow."""

import dataclasses

from beam_pipeline.terminal.console import print_head


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it should be.

    Attributes:
      file: its name in the dataset, or the path that was asked for.
      kind: a word of `frame.DAMAGE_KINDS` for the framing, else "missing",
        "unreadable", "content" (not what the manifest states), "foreign"
        (a shard that the manifest does not name), "unnamed" (any other such file),
        "misleading" (does not say where the others are), "shards" (a numbered set
        is not whole), "stored" (readable, but not as its name says or not by every
        reader) or "manifest".
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
class Report:
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


def print_findings(report: Report) -> None:
    """Prints a line for each finding; on a terminal in colour and wrapped."""
    for finding in report.findings:
        word, style = ("damage ", "red") if finding.is_damage else ("warning", "yellow")
        print_head(word, f"  {finding.file}: {finding.message}", style)
