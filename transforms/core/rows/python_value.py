"""An Arrow value as a Python value, for messages and examples."""

from typing import Any

import pyarrow as pa

__all__ = ["python_value"]


def python_value(value: pa.Scalar) -> Any:
    """Returns the value; as text where Python has no such value."""
    try:
        return value.as_py()
    except (OverflowError, ValueError, KeyError):
        # Python's times end with the year 9999, and know no zones but the named ones.
        return f"{getattr(value, 'value', 'a value')} of type {value.type}"
