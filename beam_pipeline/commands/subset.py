"""The command `subset`: a part of a dataset as a dataset of its own."""

from beam_pipeline.commands.copied import print_next, print_splits
from beam_pipeline.copies.chosen_rows import Request, read_keys, read_relabelling
from beam_pipeline.copies.subset import Made, make_subset
from beam_pipeline.datasets.dataset import Dataset, open_target
from beam_pipeline.terminal import printing
from beam_pipeline.terminal.printing import print_prose, printable
from beam_pipeline.terminal.reading_progress import shown_reading
from beam_pipeline.terminal.words import count_text
from transforms.errors import UsageError
from transforms.storage.paths import plain


def run(
    path: str,
    output: str,
    *,
    split: str = "",
    label: str = "",
    where: str = "",
    drop_keys: str = "",
    key_feature: str = "",
    relabel: str = "",
    relabel_feature: str = "",
    overwrite: bool = False,
    quiet: bool = False,
) -> int:
    """Writes the chosen records of a dataset as another dataset; returns 0.

    Args:
      path: of the dataset.
      output: where the subset goes.
      split, label, where: see `beam_pipeline.commands.head.Choice`.
      drop_keys: file of keys, one a line, whose records are left out.
      key_feature: that holds them; empty for the dataset's key column.
      relabel: CSV file of old and new class names.
      relabel_feature: whose classes these are; empty for the label.
      overwrite: replace a dataset at the output.
      quiet: print errors only.

    Errors are those of `make_subset`; also OSError for a file that cannot be read.
    """
    dataset = open_target(plain(path))
    if not isinstance(dataset, Dataset):
        raise UsageError(
            f"A subset is made of a dataset with a manifest; {path!r} is a single file."
        )
    if key_feature and not drop_keys:
        raise UsageError("--key-feature needs --drop-keys, the file with the keys.")
    if relabel_feature and not relabel:
        raise UsageError("--relabel-feature needs --relabel, the file with the names.")
    request = Request(
        *(split, label, where),
        dropped=read_keys(drop_keys, key_feature) if drop_keys else None,
        relabel=read_relabelling(relabel) if relabel else {},
        relabel_feature=relabel_feature,
    )
    shards = [shard for each in dataset.manifest.splits for shard in each.shards]
    with shown_reading(sum(shard.bytes for shard in shards), quiet=quiet) as bar:
        made = make_subset(
            dataset,
            plain(output),
            request,
            overwrite=overwrite,
            opened=bar.watched,
            say=printing.say,
        )
    if not quiet:
        _print(output, made)
    return 0


def _print(output: str, made: Made) -> None:
    manifest = made.manifest
    print_splits(manifest)
    skipped = sum(manifest.account.skipped.values())
    print_prose(
        f"committed {printable(output)}: {count_text(manifest.records, 'record')} of "
        f"{manifest.account.read:,}, {skipped:,} left out; "
        f"{count_text(made.changed, 'shard')} written, {made.whole:,} taken "
        f"unchanged (digest {manifest.digest[:12]})"
    )
    for note in manifest.run["notes"]:
        print_prose(f"note: {printable(note)}")
    print_next(output)
