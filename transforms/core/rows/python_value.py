"""An Arrow value as a Python value, for messages and examples."""

from typing import Any

import pyarrow as pa


def python_value(value: pa.Scalar, *, items: int | None = None) -> Any:
    """Returns the value; as text where Python has no such value.

    Args:
      value: any value.
      items: how many items of a list are wanted, the first ones; None for all.
    """
    try:
        is_list = isinstance(value, pa.ListScalar) and not isinstance(
            value, pa.MapScalar
        )
        if is_list and value.is_valid:
            return value.values[:items].to_pylist()
        return value.as_py()
    except (OverflowError, ValueError, KeyError):
        # Python's times end with the year 9999, and know no zones but the named ones.
        return f"{getattr(value, 'value', 'a value')} of type {value.type}"
