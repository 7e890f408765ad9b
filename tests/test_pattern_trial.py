"""A user's regular expression that would not end is an error of the spec."""

import json
import pathlib
import time

import pytest
from PIL import Image

from beam_pipeline.pattern_trial import try_pattern
from tests.test_convert import command
from transforms.errors import SpecError

Folder = pathlib.Path

ENDLESS = "(a+)+$"
NAME = "a" * 40 + "!"


@pytest.mark.parametrize(
    ("layout", "command_name"),
    [
        ("table", "convert"),
        ("tree", "convert"),
        ("column", "convert"),
        ("labels", "convert"),
        ("table", "plan"),
        ("column", "schema"),
    ],
)
def test_a_pattern_without_end(
    layout: str, command_name: str, tmp_path: Folder
) -> None:
    """It is refused when the job is planned, by its name and the text."""
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


def test_a_good_pattern_on_many_names() -> None:
    """The limit is not for all names together."""
    try_pattern("f", "^([^/]+)/", (f"folder/{i}.png" for i in range(300_000)))
    try_pattern("f", ENDLESS, ["aaa", None, "\udc80", "고양이"])
    try_pattern("f", ENDLESS, [])
    with pytest.raises(SpecError, match="nested repetitions"):
        try_pattern("f", ENDLESS, ["a"] * 5000 + [NAME])
