"""The command `merge`: several datasets as one."""

from collections.abc import Sequence

from beam_pipeline.commands.copied import print_next, print_splits
from beam_pipeline.copies.merge import join_datasets
from beam_pipeline.datasets.dataset import Dataset, open_target
from beam_pipeline.reading.reading_plan import check_examples
from beam_pipeline.terminal import printing
from beam_pipeline.terminal.printing import print_prose, printable
from beam_pipeline.terminal.reading_progress import shown_reading
from beam_pipeline.terminal.words import count_text
from transforms.errors import UsageError
from transforms.formats.tfrecord_files.typed_rows import Shard
from transforms.storage.paths import plain


def run(paths: Sequence[str], *, overwrite: bool = False, quiet: bool = False) -> int:
    """Writes several datasets as one; returns 0.

    Args:
      paths: of two or more datasets, and last of the output.
      overwrite: replace a dataset at the output.
      quiet: print errors only.

    Errors are those of `join_datasets`.
    """
    if len(paths) < 3:
        raise UsageError(
            "Two or more datasets are merged, and the output is named last, as in "
            "'beam-tfrecord merge A B OUT'."
        )
    *sources, output = map(plain, paths)
    datasets = []
    for path in sources:
        found = open_target(path)
        if not isinstance(found, Dataset):
            check_examples([Shard(found.path)])
            raise UsageError(
                f"Datasets with manifests are merged; {path!r} is a single file."
            )
        datasets.append(found)
    total = sum(split.bytes for each in datasets for split in each.manifest.splits)
    with shown_reading(total, "reading", quiet=quiet) as bar:
        made = join_datasets(
            datasets,
            output,
            overwrite=overwrite,
            opened=bar.watched,
            read=bar.add,
            say=printing.say,
        )
    if not quiet:
        print_splits(made.manifest)
        print_prose(
            f"committed {printable(output)}: "
            f"{count_text(made.manifest.records, 'record')} of "
            f"{count_text(len(datasets), 'dataset')}; "
            f"{count_text(made.changed, 'shard')} written with other class ids, "
            f"{made.whole:,} taken unchanged (digest {made.manifest.digest[:12]})"
        )
        for note in made.manifest.run["notes"]:
            print_prose(f"note: {printable(note)}")
        print_next(output)
    return 0
