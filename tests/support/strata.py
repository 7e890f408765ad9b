"""Strata of random batches, collected in pieces."""

import collections
from collections.abc import Sequence

import numpy as np

from tests.support.placing import batch_of
from transforms.core.model import Batch
from transforms.core.placing.placement import (
    LOCK,
    SPLIT,
    SplitRule,
    SplitSource,
    UInt64s,
    unit_hashes,
)
from transforms.core.placing.splitting import Assignments
from transforms.core.placing.strata import (
    Strata,
    cut_classes,
    share_out,
    sum_counts,
)
from transforms.stages.stratify import hash_classes

NAMES = ("train", "val", "test")


def rule_of(*shares: str) -> SplitRule:
    return SplitRule(
        SplitSource.STRATIFIED, NAMES[: len(shares)], shares, stratify_by="label"
    )


def cut_class(hashes: UInt64s, wanted: Sequence[int]) -> UInt64s:
    return cut_classes(hashes, np.array([wanted], np.int64))[0]


def strata_of(
    batches: Sequence[Batch], rule: SplitRule, lock: Assignments | None = None
) -> Strata:
    """Strata by plain loops over rows: the oracle of the stage."""
    counts = sum_counts(
        (hash_classes(b, rule, lock)[0] for b in batches), len(rule.names)
    )
    names, rows = share_out(counts, rule.proportions())
    wanted = dict(zip(names.to_pylist(), rows.tolist(), strict=True))
    hashes: dict[str | None, list[int]] = collections.defaultdict(list)
    for batch in batches:
        new = np.ones(batch.rows.num_rows, bool)
        if lock is not None:
            new = lock.find(unit_hashes(batch, purpose=LOCK)) < 0
        found = unit_hashes(batch, purpose=SPLIT, seed=rule.seed).tolist()
        labels = batch.rows["label"].to_pylist()
        for label, value, is_new in zip(labels, found, new, strict=True):
            hashes[label] += [value] if is_new else []
    bounds = [
        cut_class(np.array(sorted(hashes[label]), np.uint64), wanted[label])
        for label in names.to_pylist()
    ]
    return Strata(names, np.array(bounds))


def random_batches(seed: int, count: int = 4) -> list[Batch]:
    generator = np.random.default_rng(seed)
    out = []
    for number in range(count):
        size = int(generator.integers(1, 200))
        labels = generator.choice(
            np.array(["cat", "dog", "고양이", None]), size, p=[0.5, 0.3, 0.1, 0.1]
        )
        out.append(
            batch_of(range(size), labels=labels.tolist(), origin=f"{number}.csv")
        )
    return out
