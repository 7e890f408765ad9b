"""The commands `subset` and `merge`: a dataset that is made of others."""

from collections.abc import Sequence

from beam_pipeline.commands.progress import shown_reading
from beam_pipeline.copies.merge import join_datasets
from beam_pipeline.copies.publication import Made
from beam_pipeline.copies.subset import SubsetRequest, make_subset, read_keys
from beam_pipeline.datasets.dataset import Dataset, open_dataset_folder
from beam_pipeline.terminal import count_text, print_line, print_next, print_splits
from transforms.errors import UsageError
from transforms.storage.paths import plain


def subset(
    path: str,
    output: str,
    *,
    split: str = "",
    label: str = "",
    where: str = "",
    drop_keys: str = "",
    key_feature: str = "",
    overwrite: bool = False,
    quiet: bool = False,
) -> int:
    """Runs `subset`: writes records of a dataset as another dataset; returns 0.

    Args:
      path: of the dataset.
      output: where the subset goes.
      split, label, where: see `beam_pipeline.commands.head.show`.
      drop_keys: file of keys, one a line, whose records are left out.
      key_feature: that holds them; empty for the dataset's key column.
      overwrite: replace a dataset at the output.
      quiet: print errors only.

    Errors are those of `make_subset`; also OSError for a file that cannot be read.
    """
    dataset = open_dataset_folder(plain(path), "'subset'")
    if key_feature and not drop_keys:
        raise UsageError("--key-feature needs --drop-keys, the file with the keys.")
    keys, keys_sha256 = read_keys(drop_keys) if drop_keys else (frozenset(), "")
    request = SubsetRequest(split, label, where, keys, keys_sha256, key_feature)
    shards = [shard for facts in dataset.manifest.splits for shard in facts.shards]
    with shown_reading(sum(shard.bytes for shard in shards), quiet=quiet) as add:
        made = make_subset(
            dataset, plain(output), request, overwrite=overwrite, read=add
        )
    if not quiet:
        account = made.manifest.account
        skipped = sum(account.skipped.values())
        _print(output, made, f"{account.read:,}, {skipped:,} left out", "written")
    return 0


def merge(paths: Sequence[str], *, overwrite: bool = False, quiet: bool = False) -> int:
    """Runs `merge`: writes several datasets as one; returns 0.

    Args:
      paths: of two or more datasets, and last of the output.
      overwrite: replace a dataset at the output.
      quiet: print errors only.

    Errors are those of `join_datasets`.
    """
    *sources, output = map(plain, paths or [""])
    datasets: list[Dataset] = []
    optional: set[str] = set()
    for path in sources:
        target = open_dataset_folder(path, "'merge'")
        datasets += target.parts or (target,)
        optional |= target.optional
    if not datasets or (len(sources) < 2 and not target.parts):
        raise UsageError(
            "Two or more datasets are merged, or the parts of one, and the output is "
            "named last, as in 'beam-tfrecord merge A B OUT'."
        )
    total = sum(split.bytes for source in datasets for split in source.manifest.splits)
    with shown_reading(total, quiet=quiet) as add:
        made = join_datasets(
            datasets, output, overwrite=overwrite, optional=optional, read=add
        )
    if not quiet:
        of, done = count_text(len(datasets), "dataset"), "written with other class ids"
        _print(output, made, of, done)
    return 0


def _print(output: str, made: Made, of: str, done: str) -> None:
    """Prints the result.

    Args:
      output: where it is.
      made: what was published there.
      of: what its records were among.
      done: what became of shards that changed.
    """
    manifest = made.manifest
    print_splits(manifest.splits)
    print_line(
        f"committed {output}: {count_text(manifest.records, 'record')} of {of}; "
        f"{count_text(made.changed, 'shard')} {done}, {made.whole:,} taken unchanged "
        f"(digest {manifest.digest[:12]})"
    )
    for note in manifest.run["notes"]:
        print_line(f"note: {note}")
    print_next(output)
