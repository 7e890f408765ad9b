"""Which values a feature's contract refuses: limits, allowed values, a pattern.

A contract is what a job says of values beside their kind: `at_least`, `at_most`,
`allowed` and `matches` of a `Feature`. A missing value breaks none of them, and
`missing: reject` is there for those. Of lists each item must fit.
"""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import numpy_mask, rows_with
from transforms.core.reasons import Reason
from transforms.core.rows.column import Faults, fault
from transforms.core.schema import Feature


def contract_faults(values: pa.Array, feature: Feature) -> Iterator[Faults]:
    """Yields the faults of rows whose values break the contract of their feature.

    Args:
      values: typed, n of them; null for missing.
      feature: whose values they are.
    """
    if not feature.has_contract:
        return
    lists = []
    items = values
    while pa.types.is_list(items.type):
        lists.append(items)
        items = items.flatten()
    for reason, fits in _rules(items, feature):
        if pc.all(fits, min_count=0).as_py():
            continue
        bad = numpy_mask(pc.invert(fits.fill_null(True)))
        for level in reversed(lists):
            bad = rows_with(level, bad)
        faults = fault(bad, reason)
        if faults is not None:
            yield faults


def _rules(
    items: pa.Array, feature: Feature
) -> Iterator[tuple[Reason, pa.BooleanArray]]:
    """Yields for each rule which values keep it; null for missing ones."""
    if feature.at_least is not None:
        # A comparison with NaN is false, so that NaN keeps no limit.
        least = pa.scalar(feature.at_least, items.type)
        yield Reason.BELOW_MIN, pc.greater_equal(items, least)
    if feature.at_most is not None:
        most = pa.scalar(feature.at_most, items.type)
        yield Reason.ABOVE_MAX, pc.less_equal(items, most)
    if feature.allowed is not None:
        allowed = pa.array(feature.allowed, items.type)
        is_allowed = pc.or_(pc.is_in(items, value_set=allowed), items.is_null())
        yield Reason.NOT_ALLOWED, is_allowed
    if feature.matches:
        yield Reason.NO_MATCH, pc.match_substring_regex(items, feature.matches)
