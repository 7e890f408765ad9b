"""The limit of rejects: what is tolerated, and what its error says."""

import dataclasses
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transforms.core.manifest import Account
from transforms.errors import MAX_MESSAGE_BYTES, RejectLimitError
from transforms.stages.limits import limit_message, tolerated


def account(written: int, **rejected: int) -> Account:
    return Account(written + sum(rejected.values()), written, rejected)


def of_boxes(read: int, rejected: int, **items: int) -> Account:
    parts = {"boxes": {"read": read, "written": read - rejected, "rejected": rejected}}
    return dataclasses.replace(account(20, **items), parts=parts)


@pytest.mark.parametrize(
    ("facts", "rate", "passes"),
    [
        (account(9, malformed=1), None, True),
        (account(8, malformed=1), None, False),
        (account(9, malformed=1), 0.01, False),
        (account(9, malformed=1), 0.0, False),
        (account(40, malformed=2), None, False),
        (account(198, malformed=2), None, True),
        (account(197, malformed=3), None, False),
        (account(0, malformed=7), 1.0, True),
        (account(0, malformed=0), 0.0, True),
        (of_boxes(4, 4), None, False),
        (of_boxes(9, 1), None, False),
        (of_boxes(10, 1), None, True),
        (of_boxes(10, 1), 0.05, False),
        (of_boxes(199, 2), None, False),
        (of_boxes(200, 2), None, True),
        (of_boxes(4, 4), 1.0, True),
        (of_boxes(0, 0), 0.0, True),
    ],
)
def test_tolerated(facts: Account, rate: float | None, passes: bool) -> None:
    """One of ten is tolerated by default alone; a rate that is given is exact.

    So it is with rejected boxes of all boxes read, whatever the items are.
    """
    assert tolerated(facts, rate) is passes


def test_rows_that_steps_drop_were_no_rejects() -> None:
    """The share is of all that was read: a filter behind the reading changes none."""
    facts = Account(200, 10, {"malformed": 2}, dropped_by_steps=188)
    assert tolerated(facts, None)
    nothing = dataclasses.replace(facts, written=0, dropped_by_steps=198)
    text = limit_message(nothing, {}, rate=None, listed="/out")
    assert "all 2 were rejected, and 198 dropped by your own steps" in text


def test_the_message_of_boxes_has_the_first_and_a_rate_for_all() -> None:
    """A forgiven item counts against a rate that is given: 1 of 21, beside 2 of 50."""
    facts = of_boxes(50, 2, malformed=1)
    examples = {"boxes": "bad_box: a.json, row 3: annotation 7: it has no area."}
    text = limit_message(facts, examples, rate=None, listed="/out")
    assert "of the boxes may be rejected; 2 of 50 were, as bad_box: a.json, row 3" in (
        text
    )
    (said,) = re.findall(r"--max-reject-rate (\S+)\.$", text)
    assert float(said) == 0.048
    assert tolerated(facts, float(said))
    both = limit_message(of_boxes(50, 2, malformed=5), {}, rate=None, listed="/out")
    assert "5 of 25 were, and 2 of 50 boxes: malformed: 5." in both


@given(st.integers(1, 10**12), st.integers(1, 10**12))
def test_the_rate_that_is_named_passes(written: int, rejected: int) -> None:
    """The printed rate tolerates the rejects and is hardly larger than necessary."""
    facts = account(written, malformed=rejected)
    text = limit_message(facts, {}, rate=0.0, listed="/out")
    (said,) = re.findall(r"--max-reject-rate (\S+)\.$", text)
    assert tolerated(facts, float(said))
    assert float(said) <= 1
    assert float(said) <= 1.11 * rejected / (written + rejected)


def test_the_message_names_the_most_frequent_reasons() -> None:
    """Three of them by their counts, each with its example, and how many others."""
    facts = account(900, bad_box=1, malformed=4, missing_value=30, out_of_range=20)
    examples = {
        "missing_value": "a.csv, row 3, line 4: column 'x' is empty.",
        "out_of_range": "a.csv, row 9, line 10: column 'n' holds '1e40'.",
    }
    text = limit_message(facts, examples, rate=None, listed="/my sets/out")
    assert text == (
        "At most 1.000% of the items may be rejected; 55 of 955 were: missing_value: "
        "30, as a.csv, row 3, line 4: column 'x' is empty; out_of_range: 20, as a.csv, "
        "row 9, line 10: column 'n' holds '1e40'; malformed: 4; 1 for other reasons. "
        "Nothing was committed. To list them: beam-tfrecord rejects '/my sets/out'. "
        "Correct the source, or give --max-reject-rate 0.058."
    )


@pytest.mark.parametrize("directory", ["/out", "/o" * 120, "/" + "바" * 300])
def test_the_message_is_short_and_keeps_the_way_out(directory: str) -> None:
    """Long examples are cut, so that the end stays within 1 KiB."""
    facts = account(900, malformed=40, missing_value=30, out_of_range=20)
    examples = dict.fromkeys(facts.rejected, "t.csv, row 1: " + "고양이" * 200)
    text = limit_message(facts, examples, rate=0.01, listed=directory)
    said = str(RejectLimitError(text))
    assert len(said.encode()) <= MAX_MESSAGE_BYTES
    assert said.startswith("At most 1.000% of the items may be rejected; 90 of 990")
    assert "malformed: 40" in said
    assert said.endswith("--max-reject-rate 0.091.")


@pytest.mark.parametrize(
    ("reason", "example", "question"),
    [
        (
            "not_an_integer",
            "column 'amount' holds '0.5'",
            "is 'amount' no longer int64?",
        ),
        ("missing_value", "column 'amount' is empty", "is 'amount' still what"),
        ("wrong_type", "column 'other' holds [1]", "is 'other' still what"),
        ("malformed", "it is no JSON", "is the source still what"),
    ],
)
def test_one_reason_for_every_reject_is_asked_about(
    reason: str, example: str, question: str
) -> None:
    """Nobody whose data has changed wants an empty dataset instead."""
    kinds = {"amount": "int64"}
    facts, examples = account(0, **{reason: 50}), {reason: f"a.csv, row 1: {example}"}
    text = limit_message(facts, examples, rate=None, listed="/out", kinds=kinds)
    assert f"for one reason: {question}" in text
    assert "--min-records 0" not in text
    two = limit_message(account(0, bad_split=1, **{reason: 9}), {}, rate=0, listed="/o")
    some = limit_message(account(1, **{reason: 9}), examples, rate=0, listed="/o")
    assert "one reason" not in two + some
    tolerated_all = limit_message(facts, examples, rate=1.0, listed="/out")
    assert tolerated_all.endswith("write an empty dataset with --min-records 0.")
