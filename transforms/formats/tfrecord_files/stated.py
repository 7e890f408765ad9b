"""What a dataset's metadata states, and a check that the files agree with it."""

import dataclasses
import os
from collections.abc import Mapping, Sequence

from transforms import files
from transforms.core.label_map import LABEL_MAP_NAME, parse_label_map
from transforms.core.schema import Feature
from transforms.errors import InputError, SpecError, TFRecordError
from transforms.formats.table import InputFile, SourceFile
from transforms.formats.tfrecord_files.dataset import Dataset, dataset_beside


def known_features(datasets: Sequence[Dataset]) -> dict[str, Feature]:
    """Returns the features that datasets state, by name.

    The classes of the first dataset keep their ids; new classes of the others follow,
    as `merge` has them.

    Raises:
      InputError: two datasets state one feature in two ways.
    """
    out: dict[str, Feature] = {}
    folders: dict[str, str] = {}
    for dataset in datasets:
        for feature in dataset.features:
            before = out.setdefault(feature.name, feature)
            folders.setdefault(feature.name, dataset.folder)
            if before.vocabulary != feature.vocabulary:
                names = (*(before.vocabulary or ()), *(feature.vocabulary or ()))
                joined = tuple(dict.fromkeys(names)) or None
                before = dataclasses.replace(before, vocabulary=joined)
                out[feature.name] = before
            if dataclasses.replace(feature, vocabulary=before.vocabulary) != before:
                first = folders[feature.name]
                raise InputError(
                    f"All datasets of a source must have the same features; "
                    f"{feature.name!r} is {before.in_words()} in {first!r} and "
                    f"{feature.in_words()} in {dataset.folder!r}. Convert one with "
                    f"another kind of this feature, or leave it out with --exclude."
                )
    return out


def stated(file: SourceFile) -> tuple[int, int | None] | None:
    """Returns the records and bytes that a file must have; None for unknown."""
    dataset = dataset_beside(file.path, file.origin)
    if dataset is None or not dataset.shards:
        return None
    return dataset.shards.get(os.path.basename(file.path))


def check_stated(
    path: str, size: int, rows: int, stated: tuple[int, int | None] | None
) -> None:
    """Raises TFRecordError where a file has other records or bytes than stated."""
    if stated is None or (rows == stated[0] and stated[1] in (None, size)):
        return
    raise TFRecordError(
        f"{path} must have {stated[0]:,} records, as stated beside it; found "
        f"{rows:,} in {size:,} bytes. Fetch or convert the dataset again.",
        path=path,
        record=rows,
        kind="truncated",
    )


def check_all_there(folder: str, dataset: Dataset) -> None:
    """Raises InputError where a shard that is stated is not in the folder."""
    for name in dataset.shards or ():
        if not files.exists(os.path.join(folder, name)):
            raise InputError(
                f"every shard that is stated beside a dataset must be there; {folder} "
                f"has no {name}. Fetch it, or convert the dataset again."
            )


def check_all_known(
    files: Sequence[InputFile], datasets: Mapping[str, Dataset]
) -> None:
    """Raises InputError where ids of classes mean something in some files only."""
    features = [each for dataset in datasets.values() for each in dataset.features]
    if not any(feature.vocabulary for feature in features):
        return
    for file in files:
        if os.path.dirname(file.origin) not in datasets:
            raise InputError(
                f"class names are beside some files of the source, but not beside "
                f"{file.origin}: what its ids mean is unknown. Convert it by itself."
            )


def stated_rows(
    files: Sequence[InputFile], datasets: Mapping[str, Dataset]
) -> int | None:
    """Returns how many records the files hold, where that is stated of all."""
    splits = stated_splits(files, datasets)
    return None if splits is None else sum(splits.values())


def stated_splits(
    files: Sequence[InputFile], datasets: Mapping[str, Dataset]
) -> dict[str, int] | None:
    """Returns split -> how many records its files hold, where that is stated of all."""
    splits: dict[str, int] = {}
    for file in files:
        folder, name = os.path.split(file.origin)
        dataset = datasets.get(folder)
        shards = None if dataset is None else dataset.shards
        if dataset is None or not shards or name not in shards:
            return None
        split = dataset.split_of(name)
        splits[split] = splits.get(split, 0) + shards[name][0]
    return splits


def label_maps_beside(inputs: Sequence[InputFile]) -> dict[int, str]:
    """Returns class id -> name of all label maps in the files' folders.

    Raises:
      InputError: one is damaged, or two say different things of an id.
    """
    out: dict[int, str] = {}
    for folder in dict.fromkeys(os.path.dirname(file.path) for file in inputs):
        path = os.path.join(folder, LABEL_MAP_NAME)
        try:
            found = parse_label_map(files.read_bytes(path))
        except FileNotFoundError:
            continue
        except (OSError, SpecError) as error:
            raise InputError(f"{path} must be readable: {error}") from error
        for number, name in found.items():
            if out.setdefault(number, name) != name:
                raise InputError(
                    f"All label maps of a source must mean the same by an id; {number} "
                    f"is {out[number]!r} in others and {name!r} in {path}. Convert the "
                    f"folders one by one."
                )
    return dict(sorted(out.items()))
