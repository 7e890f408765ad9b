"""A table of the Python and NumPy values that each kind accepts and refuses."""

import pathlib

from tests.unit.core.rows.python_values import table

WANTED = pathlib.Path(__file__).with_name("python_values.txt")


def test_each_kind_with_each_value_is_as_in_the_table() -> None:
    """Each pair is stored as the table says, or refused in its words."""
    found = "\n".join(table())
    assert found.splitlines() == WANTED.read_text("utf-8").splitlines()
