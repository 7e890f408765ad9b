"""Rows chosen on the command line: by a class and by a condition."""

from beam_pipeline.reading.open_dataset import OpenDataset
from transforms.core.schema import Feature, Kind
from transforms.errors import SpecError, UsageError, nearest
from transforms.reading.condition_text import quoted

__all__ = ["condition_of", "label_of"]


def label_of(dataset: OpenDataset) -> Feature | None:
    """Returns the label to predict, or the only one; None for neither."""
    labels = [
        each
        for each in dataset.features.values()
        if each.kind is Kind.LABEL and not each.shape
    ]
    found = [each for each in labels if each.is_label] or labels
    return found[0] if len(found) == 1 else None


def condition_of(dataset: OpenDataset, label: str, where: str) -> str:
    """Returns a condition as one text; empty for none.

    Args:
      dataset: that it is over.
      label: the name of a class; empty for all.
      where: a condition; empty for none.

    Raises:
      UsageError: it is not clear of which feature the class is.
      SpecError: there is no such class.
    """
    if not label:
        return where
    feature = label_of(dataset)
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
    by_class = f"{quoted(feature.name)} == {label!r}"
    return f"({where}) and {by_class}" if where else by_class
