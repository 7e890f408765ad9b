"""The split lookups of a job, from its settings."""

import pathlib
from typing import Any

import numpy as np
import pytest

from beam_pipeline.planning.plan import prepare
from beam_pipeline.planning.splits import (
    SplitPlan,
    plan_splits,
    rule_of,
    share_notes,
)
from beam_pipeline.settings.spec import make_spec
from tests.support.plans import everything
from tests.support.sources import write_csv
from transforms.core.placing.splitting import Assignments, SplitSource
from transforms.core.schema import Feature, Kind, Schema
from transforms.errors import SpecError, UsageError
from transforms.work.split_tables import (
    assignments_table,
    open_assignments,
    write_table,
)
from transforms.work.store import Store

Folder = pathlib.Path
SCHEMA = Schema(
    (
        Feature("id", Kind.TEXT),
        Feature("weight", Kind.FLOAT),
        Feature("animal", Kind.LABEL, column="kind of animal"),
        Feature("tags", Kind.LABEL, shape=(None,)),
    )
)


def planned(folder: Folder, **settings: Any) -> SplitPlan:
    given = {"source": str(folder / "in"), "output": str(folder / "out"), **settings}
    spec = make_spec(given)
    return plan_splits(spec, SCHEMA, rule_of(spec))


@pytest.mark.parametrize(
    ("shares", "said"),
    [
        ("train=0.8,test=0.02", ["what results is train 97.6 %, test 2.4 %"]),
        ("train=0.8,test=0.3", ["what results is train 72.7 %, test 27.3 %"]),
        ("a=1e400,b=1e-9", ["what results is a > 99.9 %, b < 0.1 %"]),
        ("train=0.8,test=0.2", []),
        ("train=1", []),
        ("a=1/3,b=2/3", []),
        ("a=0.333,b=0.333,c=0.333", []),
        ("a=0.33,b=0.67", []),
    ],
)
def test_shares_whose_sum_is_not_1(shares: str, said: list[str]) -> None:
    """The resulting shares are named; rounded thirds are no mistake."""
    spec = make_spec({"source": "in", "output": "out", "splits": shares})
    notes = share_notes(spec)
    assert [note.partition(": ")[2] for note in notes] == said
    assert all("do not add up to 1" in note for note in notes)


def test_plain_splits_look_nothing_up(tmp_path: Folder) -> None:
    """Shares alone need no table, no lock and no fingerprints."""
    found = planned(tmp_path, splits="train=0.8,test=0.2")
    store = Store(str(tmp_path))
    assert found.rule.source is SplitSource.SHARES
    assert (found.identity, found.keyed, found.with_fingerprints) == (
        "row",
        False,
        False,
    )
    assert found.tables_in(store) == ("", "")


@pytest.mark.parametrize("column", ["animal", "kind of animal"])
def test_classes_to_stratify_by(tmp_path: Folder, column: str) -> None:
    """A feature by its own name, or by its column's."""
    found = planned(tmp_path, splits="a=1,b=1", stratify_column=column)
    assert found.rule.source is SplitSource.STRATIFIED
    assert found.rule.stratify_by == "animal"
    assert found.rule.names == ("a", "b")


@pytest.mark.parametrize("column", ["weight", "tags", "nothing"])
def test_what_is_no_class(tmp_path: Folder, column: str) -> None:
    """Floats, lists and columns that are not there are refused when planning."""
    with pytest.raises(SpecError, match=f"stratify_column .*'{column}'"):
        planned(tmp_path, splits="a=1,b=1", stratify_column=column)


def test_a_table_of_ids(tmp_path: Folder) -> None:
    """Its splits are the rule's, and workers find it in the work folder."""
    path = tmp_path / "ids.csv"
    path.write_text("id,split\na,test\nb,train\n")
    found = planned(tmp_path, split_ids=str(path), key_column="id")
    assert found.rule.source is SplitSource.TABLE
    assert found.rule.names == ("train", "test")
    store = Store(str(tmp_path / "work"))
    store.make()
    found.store_tables(store)
    assert len(open_assignments(found.tables_in(store)[0])) == 2


def locked(path: Folder, *, identity: str, names: tuple[str, ...]) -> str:
    lock = Assignments.of(
        np.arange(len(names), dtype=np.uint64),
        np.arange(len(names)),
        names=names,
        identity=identity,
    )
    write_table(assignments_table(lock), str(path), attempts=str(path.parent))
    return str(path)


def test_an_earlier_lock(tmp_path: Folder) -> None:
    """A lock is read when it is there, and its bytes are part of the job."""
    settings = {"splits": "a=1,b=1", "split_lock": str(tmp_path / "lock")}
    fresh = planned(tmp_path, **settings)
    assert fresh.lock is None
    assert (fresh.lock_path, fresh.with_fingerprints) == (settings["split_lock"], True)
    locked(tmp_path / "lock", identity="row", names=("a", "b"))
    again = planned(tmp_path, **settings)
    assert again.lock is not None
    assert again.lock_digest != fresh.lock_digest
    store = Store(str(tmp_path / "work"))
    store.make()
    again.store_tables(store)
    assert open_assignments(again.tables_in(store)[1]).units.tolist() == [0, 1]


def test_locks_that_cannot_be_used(tmp_path: Folder) -> None:
    """Another identity, and splits that are unknown."""
    keyed = locked(tmp_path / "k", identity="key column 'id'", names=("a",))
    with pytest.raises(SpecError, match="as this run does"):
        planned(tmp_path, splits="a=1,b=1", split_lock=keyed)
    planned(tmp_path, splits="a=1,b=1", split_lock=keyed, key_column="id")
    with pytest.raises(SpecError, match=r"found \['a'\]"):
        planned(tmp_path, splits="b=1", split_lock=keyed, key_column="id")


@pytest.mark.parametrize(
    "place", ["in/t.csv", "in/lock", "out/lock", ".out.beam-tfrecord/lock", "no/lock"]
)
def test_a_lock_is_no_part_of_source_or_output(tmp_path: Folder, place: str) -> None:
    """It would be written over what the job reads or makes."""
    write_csv(tmp_path / "in" / "t.csv", "id,weight", ["1,2"])
    given = {"source": str(tmp_path / "in"), "output": str(tmp_path / "out")}
    before = everything(tmp_path)
    lock = str(tmp_path / place)
    with pytest.raises(UsageError, match=r"split_lock .*outside the source") as caught:
        prepare(make_spec({**given, "splits": "a=1,b=1", "split_lock": lock}))
    assert repr(lock) in str(caught.value)
    assert everything(tmp_path) == before
