"""Shares of splits whose sum is not 1: said in plan, summary and report."""

import pathlib

import pytest

from tests.support.runs import command
from tests.support.sources import write_csv

# The stages' own code: what is tested here is not up to Beam.
Folder = pathlib.Path


@pytest.fixture
def source(tmp_path: Folder) -> Folder:
    return write_csv(tmp_path / "t.csv", "n", [f"{n}" for n in range(500)])


@pytest.mark.parametrize(
    ("shares", "said"),
    [
        ("train=0.8,test=0.02", "what results is train 97.6 %, test 2"),
        ("train=0.8,test=0.3", "what results is train 72.7 %, test 27"),
        ("train=8,test=2", "what results is train 80.0 %, test 20.0 %"),
        ("a=1e400,b=1e-9", "what results is a > 99.9 %, b < 0.1 %"),
        ("train=0.8,test=0.2", ""),
        ("train=1", ""),
        ("a=1/3,b=2/3", ""),
        ("a=0.333,b=0.333,c=0.333", ""),
        ("a=0.33,b=0.67", ""),
    ],
)
def test_the_plan_says_what_results(source: Folder, shares: str, said: str) -> None:
    """The resulting shares are named; rounded thirds are no mistake."""
    plan = command("plan", source, source.parent / "out", "--splits", shares).out
    assert said in plan
    assert ("add up to" in plan) is bool(said)
