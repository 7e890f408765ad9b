"""Rows chosen on the command line: by a class and by a condition."""

import re

from beam_pipeline.reading.open_dataset import OpenDataset
from transforms.core.schema import Feature, Kind
from transforms.errors import SpecError, UsageError, nearest
from transforms.reading.condition_text import quoted

_WHOLE = re.compile(r"[+-]?[0-9]{1,19}")


def label_of(dataset: OpenDataset) -> Feature | None:
    """Returns the label to predict, or the only one; None for neither."""
    labels = [
        each
        for each in dataset.features.values()
        if each.kind is Kind.LABEL and not each.shape
    ]
    found = [each for each in labels if each.is_label] or labels
    return found[0] if len(found) == 1 else None


def number_to_predict(dataset: OpenDataset) -> Feature | None:
    """Returns the integer that is the class of each row, as an id of a landmark is."""
    numbers = (
        each
        for each in dataset.features.values()
        if each.is_label and each.kind is Kind.INT64 and not each.shape
    )
    return next(numbers, None)


def condition_of(dataset: OpenDataset, label: str, where: str) -> str:
    """Returns a condition as one text; empty for none.

    Args:
      dataset: that it is over.
      label: the name of a class, or the number to predict; empty for all.
      where: a condition; empty for none.

    Raises:
      UsageError: it is not clear of which feature the class is.
      SpecError: there is no such class.
    """
    if not label:
        return where
    feature = label_of(dataset)
    number = number_to_predict(dataset) if feature is None else None
    if number is not None:
        if not _WHOLE.fullmatch(label):
            raise SpecError(
                f"--label must be a number, for {number.name!r}, which is to be "
                f"predicted, holds numbers; found {label!r}."
            )
        return _and(where, f"{quoted(number.name)} == {int(label)}")
    if feature is None:
        names = [n for n, e in dataset.features.items() if e.kind is Kind.LABEL]
        found = f"several: {', '.join(names)}" if names else "none"
        raise UsageError(
            f"--label needs a dataset with one label; {dataset.path} has {found}. "
            f"Use --where, as in --where \"kind == 'cat'\"."
        )
    classes = dataset.classes[feature.name]
    if classes and label not in classes:
        raise SpecError(
            f"--label must name a class of {feature.name!r}; there is no "
            f"{label!r}{nearest(label, classes)}."
        )
    return _and(where, f"{quoted(feature.name)} == {label!r}")


def _and(where: str, by_label: str) -> str:
    return f"({where}) and {by_label}" if where else by_label
