"""What commands print of a dataset that was made of others."""

import shlex

from beam_pipeline.terminal.printing import print_text, printable
from beam_pipeline.terminal.words import size_text
from transforms.core.manifest import Manifest


def print_next(output: str) -> None:
    """Prints commands that show a dataset, as `convert` does."""
    place = printable(shlex.quote(output))
    print_text(f"next: beam-tfrecord inspect {place}")
    program = f"beam-tfrecord schema {place} --as tensorflow  # or keras, torch, ..."
    print_text(f"      {program}")


def print_splits(manifest: Manifest) -> None:
    """Prints a table of the splits."""
    rows = [("split", "records", "shards", "size")]
    rows += [
        (s.name, f"{s.records:,}", f"{len(s.shards):,}", size_text(s.bytes))
        for s in manifest.splits
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        first, *others = map(printable, row)
        cells = (text.rjust(n) for text, n in zip(others, widths[1:], strict=True))
        print_text("  ".join((first.ljust(widths[0]), *cells)))
