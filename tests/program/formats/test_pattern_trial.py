"""A user's regular expression that would not end is an error of the spec."""

import json
import pathlib
import time

import pytest
from PIL import Image

from tests.support.runs import command
from transforms.core.example.parse import read_examples
from transforms.errors import SpecError
from transforms.formats import pattern_trial
from transforms.formats.pattern_trial import try_pattern

Folder = pathlib.Path

ENDLESS = "(a+)+$"
NAME = "a" * 40 + "!"


@pytest.mark.parametrize(
    ("layout", "command_name"),
    [
        ("table", "convert"),
        pytest.param("tree", "convert", marks=pytest.mark.stress),
        pytest.param("column", "convert", marks=pytest.mark.stress),
        pytest.param("labels", "convert", marks=pytest.mark.stress),
        pytest.param("table", "plan", marks=pytest.mark.stress),
        pytest.param("column", "schema", marks=pytest.mark.stress),
    ],
)
def test_a_pattern_without_end(
    layout: str,
    command_name: str,
    tmp_path: Folder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is refused when the job is planned, by its name and the text."""
    monkeypatch.setattr(pattern_trial, "_SECONDS", 1)
    source = tmp_path / "in"
    source.mkdir()
    feature: dict[str, str] = {"kind": "text", "path": ENDLESS}
    settings: dict[str, object] = {}
    if layout in ("tree", "labels"):
        for folder in ("x", "y"):
            (source / folder).mkdir()
            Image.new("RGB", (4, 4)).save(source / folder / f"{NAME}.png")
    if layout == "table":
        (source / f"{NAME}.csv").write_text("x,y\n1,2\n")
    elif layout == "column":
        feature["column"] = "x"
        (source / "t.csv").write_text(f"x,y\n{NAME},2\n")
    elif layout == "labels":
        feature["column"] = "x"
        rows = [f"{folder}/{NAME}.png,{NAME}" for folder in ("x", "y")]
        (tmp_path / "labels.csv").write_text("\n".join(["id,x", *rows, ""]))
        settings = {"labels": str(tmp_path / "labels.csv"), "id_column": "id"}
    spec = tmp_path / "job.yaml"
    spec.write_text(json.dumps({"features": {"f": feature}, **settings}))
    arguments = ["--spec", spec]
    if command_name != "schema":
        arguments.insert(0, tmp_path / "out")
    began = time.process_time()
    run = command(command_name, source, *arguments)
    assert run.code == 2, run.err
    assert "'f'" in run.err
    assert ENDLESS in run.err
    assert "aaaa" in run.err
    assert time.process_time() - began < 10
    assert not (tmp_path / "out").exists()


@pytest.mark.stress
def test_a_good_pattern_on_many_names() -> None:
    """The limit is not for all names together."""
    try_pattern("f", "^([^/]+)/", (f"folder/{i}.png" for i in range(300_000)))
    try_pattern("f", ENDLESS, ["aaa", None, "\udc80", "고양이"])
    try_pattern("f", ENDLESS, [])
    with pytest.raises(SpecError, match="nested repetitions"):
        try_pattern("f", ENDLESS, ["a"] * 5000 + [NAME])


def test_a_pattern_that_takes_its_time_for_each_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Names may take longer together than the limit of a group of them."""
    monkeypatch.setattr(pattern_trial, "_SECONDS", 1)
    monkeypatch.setattr(pattern_trial, "_TEXTS", 1)
    # Some 0.05 seconds each.
    try_pattern("f", ENDLESS, (f"{'a' * 19}!{number}" for number in range(40)))


@pytest.mark.stress
def test_a_value_that_no_sample_held(tmp_path: Folder) -> None:
    """The worker that meets it ends the run; it does not wait."""
    table = tmp_path / "t.csv"
    rows = [f"a{i},{i}" for i in range(600_000)]
    rows[311_111] = f"{NAME},1"
    table.write_text("\n".join(["x,y", *rows, ""]))
    feature = {"kind": "text", "column": "x", "path": ENDLESS}
    spec = tmp_path / "job.yaml"
    spec.write_text(json.dumps({"features": {"f": feature}}))
    run = command("convert", table, tmp_path / "out", "--spec", spec)
    assert run.code == 2, run.err
    assert ENDLESS in run.err
    assert not (tmp_path / "out").exists()


def test_values_of_a_good_pattern(tmp_path: Folder) -> None:
    """The trial changes no value."""
    table = tmp_path / "t.csv"
    table.write_text("x,y\n" + "".join(f"{i}-{i * 7},{i}\n" for i in range(500)))
    feature = {"kind": "int64", "column": "x", "path": r"-(\d+)$"}
    spec = tmp_path / "job.yaml"
    spec.write_text(json.dumps({"features": {"f": feature}}))
    run = command("convert", table, tmp_path / "out", "--spec", spec)
    assert run.code == 0, run.err
    found = [record["f"] for record in read_examples(tmp_path / "out")]
    assert sorted(int(each[0]) for each in found) == [i * 7 for i in range(500)]
