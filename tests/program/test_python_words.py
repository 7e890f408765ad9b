"""Errors of `beam_pipeline.convert` name settings as Python writes them."""

import pathlib
import re
from importlib import metadata
from typing import Any

import pytest

import beam_pipeline
from beam_pipeline.settings.python_words import in_python
from tests.support.runs import command
from tests.support.sources import write_csv
from transforms.errors import (
    BeamTFRecordError,
    RejectLimitError,
    SpecError,
    TargetError,
)

# The stages' own code: what is tested here is not up to Beam.
pytestmark = pytest.mark.usefixtures("without_runner")

Folder = pathlib.Path


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("--overwrite to", "overwrite=True to"),
        ("or --no-header.", "or header=False."),
        ("--max-reject-rate.", "max_reject_rate=...."),
        ("--max-reject-rate 0.05 or", "max_reject_rate=0.05 or"),
        ("--foreign-images reject does", "foreign_images='reject' does"),
        ("(--zip-encoding cp949, say)", "(zip_encoding='cp949', say)"),
        ("--max-pixels allows", "max_pixels=... allows"),
        ("--include / --exclude.", "include=... / exclude=...."),
        ("--labels=a/b.csv --id-column=id", "labels='a/b.csv' id_column='id'"),
        ("--encoding 'x --trim'", "encoding='x --trim'"),
        ("file's --trim, 'x'", "file's trim=True, 'x'"),
        ('"it\'s --trim" --trim', '"it\'s --trim" trim=True'),
        ("--null-values '-,?'", "null_values='-,?'"),
        # Flags of others, and of commands that Python has not.
        ("--template_location --reason", "--template_location --reason"),
        ("--sparse, a--trim, ---trim", "--sparse, a--trim, ---trim"),
    ],
)
def test_options_become_keywords(said: str, expected: str) -> None:
    """Options are keywords, with a value where one follows; quoted texts stay."""
    assert in_python(said) == expected


@pytest.mark.parametrize("end", [" (or --trim)", ". Give --trim"])
def test_commands_to_copy_keep_their_options(end: str) -> None:
    """A command for the shell is unchanged; options behind it are keywords."""
    shown = "beam-tfrecord convert a.b --labels x.csv --limit 0"
    assert in_python(shown + end) == shown + end.replace("--trim", "trim=True")


def test_every_option_of_a_job_is_translated() -> None:
    """No option of `convert` that is a setting is left in a message."""
    flags = re.findall(r"--[a-z][a-z-]+", command("convert", "--help").out)
    others = {
        "--spec",
        "--report",
        "--report-json",
        "--quiet",
        "--help",
        "--feature-name",
    }
    for flag in set(flags) - others:
        assert "--" not in in_python(f"give {flag} here"), flag


def test_errors_of_the_program(tmp_path: Folder) -> None:
    """The same mistakes name keywords in Python and options on the command line."""
    source = write_csv(tmp_path / "t.csv", "n,m", [f"{n},1" for n in range(200)])
    latin = tmp_path / "latin.csv"
    latin.write_bytes("n\nmüll\n".encode("latin-1"))
    out = tmp_path / "out"
    beam_pipeline.convert(source, out)
    with pytest.raises(TargetError, match="overwrite=True"):
        beam_pipeline.convert(source, out, seed=1)
    assert "--overwrite " in command("convert", source, out, "--seed", "1").err
    with pytest.raises(BeamTFRecordError, match=r"encoding=\.\.\."):
        beam_pipeline.convert(latin, tmp_path / "latin")
    # Where all rows have one fault, no rate is proposed.
    source.write_text(f"{source.read_text()}true,1\n")
    with pytest.raises(RejectLimitError, match="max_reject_rate="):
        beam_pipeline.convert(source, tmp_path / "bad", features={"n": "bool"})


def test_errors_stay_short(tmp_path: Folder) -> None:
    """Keywords that are longer than their options leave a message within 1 KiB."""
    unknown: dict[str, Any] = {f"{'n' * 300}{i}": 1 for i in range(9)}
    with pytest.raises(SpecError) as caught:
        beam_pipeline.convert("a", tmp_path / "x", **unknown)
    assert len(str(caught.value).encode()) <= 1024
    assert isinstance(caught.value, BeamTFRecordError)


def test_version() -> None:
    """`beam_pipeline.__version__` is that of the installed distribution."""
    assert beam_pipeline.__version__ == metadata.version("beam-tfrecord")
