"""`min`, `max`, `allowed` and `pattern` of a spec as a feature has them."""

from typing import Any

import pytest

from beam_pipeline.planning.feature_checks import contract_settings, with_contract
from beam_pipeline.settings.spec import FeatureSpec
from transforms.core.schema import Feature, Kind
from transforms.errors import SpecError


@pytest.mark.parametrize(
    ("kind", "said", "expected"),
    [
        (Kind.INT64, {"min": 0, "max": 9}, {"at_least": 0, "at_most": 9}),
        (Kind.FLOAT, {"min": 0}, {"at_least": 0.0}),
        (Kind.LABEL, {"allowed": [7, "cat"]}, {"allowed": ("7", "cat")}),
        (Kind.TEXT, {"pattern": "^[a-z]+$"}, {"matches": "^[a-z]+$"}),
        (Kind.TIMESTAMP, {"max": "1970-01-02"}, {"at_most": 86400}),
        (Kind.IMAGE, {}, {}),
    ],
)
def test_settings_become_fields(
    kind: Kind, said: dict[str, Any], expected: dict[str, Any]
) -> None:
    """Values are as rows have them, and a spec made of the feature says the same."""
    unit = "s" if kind is Kind.TIMESTAMP else ""
    feature = Feature("x", kind, unit=unit)
    found = with_contract(feature, FeatureSpec.model_validate({"kind": kind, **said}))
    assert found == Feature("x", kind, unit=unit, **expected)
    again = {k: v for k, v in contract_settings(found).items() if v is not None}
    assert with_contract(feature, FeatureSpec(**again)) == found


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Kind.IMAGE, {"min": 1}),
        (Kind.INT64, {"pattern": "a"}),
        (Kind.BOOL, {"allowed": [1]}),
        (Kind.INT64, {"min": 0.5}),
        (Kind.INT64, {"min": "many"}),
        (Kind.INT64, {"min": 2**63}),
        (Kind.INT64, {"min": 2, "max": 1}),
        (Kind.TEXT, {"allowed": []}),
        (Kind.TEXT, {"pattern": "(?=a)"}),
        (Kind.TEXT, {"pattern": "("}),
        (Kind.TIMESTAMP, {"min": "yesterday"}),
    ],
)
def test_what_no_value_could_keep_is_refused(kind: Kind, said: dict[str, Any]) -> None:
    """A spec that makes no sense ends before anything is read."""
    unit = "s" if kind is Kind.TIMESTAMP else ""
    with pytest.raises(SpecError):
        with_contract(Feature("x", kind, unit=unit), FeatureSpec(**said))
