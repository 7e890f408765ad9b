"""Facts of all features over chunks, against those of each column by itself."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transforms.core.schema import Feature, Kind, Schema
from transforms.core.statistics import Summaries, merge_all, summarize_feature

SCHEMA = Schema(
    (
        Feature("x", Kind.FLOAT),
        Feature("n", Kind.INT64, is_label=True),
        Feature("y", Kind.FLOAT, is_label=False),
        Feature("z", Kind.FLOAT, shape=(None,)),
    )
)
FLOATS = st.none() | st.floats(width=32) | st.sampled_from([0.0, -0.0])
ROWS = st.tuples(
    FLOATS,
    st.none() | st.integers(0, 3),
    FLOATS,
    st.none() | st.lists(st.floats(width=32), max_size=3),
)
TYPES = (pa.float32(), pa.int64(), pa.float32(), pa.list_(pa.float32()))


@given(st.lists(st.lists(ROWS, max_size=5), max_size=4))
def test_the_facts_are_those_of_each_column(
    chunks: list[list[tuple[object, ...]]],
) -> None:
    """For chunks of any length."""
    columns = [
        {
            name: pa.array([row[i] for row in chunk], TYPES[i], from_pandas=False)
            for i, name in enumerate(SCHEMA.names)
        }
        for chunk in chunks
    ]
    wanted = merge_all(
        [
            {
                feature.name: summarize_feature(feature, each)
                for feature in SCHEMA.features
            }
            for each in columns
        ]
    )
    summaries = Summaries(SCHEMA.features)
    for each in columns:
        summaries.add(each)
    found = summaries.facts
    assert [*found] == [*wanted]
    # As text, in which 0.0 and -0.0 differ.
    assert repr(dict(found)) == repr(wanted)


@pytest.mark.parametrize("names", [[], ["n"]])
def test_features_without_columns_have_no_facts(names: list[str]) -> None:
    """Nothing is said of what no chunk held."""
    schema = Schema(tuple(SCHEMA[name] for name in names))
    summaries = Summaries(schema.features)
    summaries.add({})
    assert summaries.facts == {}
