"""The registry of formats: each entry agrees with the code that it names."""

import dataclasses
from typing import Any, cast

import pytest

from beam_pipeline.settings.spec import Spec
from transforms.formats.registry import (
    FORMAT_OPTIONS,
    FORMATS,
    TABLE_FORMATS,
    claimed_by,
    table_format,
)


@pytest.mark.parametrize("name", [name for name in FORMATS if FORMATS[name].reader])
def test_options_of_an_entry_are_those_of_its_reader(name: str) -> None:
    """An entry names exactly the settings that its reader has a field for."""
    known = FORMATS[name]
    fields = {f.name for f in dataclasses.fields(cast(Any, known.reader_class()))}
    options = set(known.options)
    if name == "archive":
        options -= {
            option for each in TABLE_FORMATS.values() for option in each.options
        }
    assert options == fields & FORMAT_OPTIONS
    assert set(known.options) <= set(Spec.model_fields)


@pytest.mark.parametrize("name", [name for name in FORMATS if FORMATS[name].suffixes])
def test_files_are_recognised_by_every_suffix(name: str) -> None:
    """Every suffix is recognised in any case; compressed if the entry says so."""
    known = FORMATS[name]
    for suffix in known.suffixes:
        assert known.takes(f"a/b{suffix}")
        assert known.takes(f"a/b{suffix.upper()}")
        assert not known.takes(f"a/b{suffix}.txt")
        assert not known.takes(f"a/b{suffix[1:]}")
        for packed in (f"{suffix}.gz", f"{suffix}.zst"):
            taken = known.compressed or packed in known.suffixes
            assert known.takes(f"b{packed}") == taken


@pytest.mark.parametrize(
    "name",
    [
        "a.tfrecord",
        "a.tfrecords",
        "a.tfrec",
        "a.record",
        "a-00000-of-00002",
        "a.tfrecord.gz",
    ],
)
def test_names_of_tfrecord_files(name: str) -> None:
    """As TFDS, Kaggle and the Object Detection API call them."""
    assert [key for key, known in FORMATS.items() if known.pattern.search(name)] == [
        "tfrecord"
    ]


def test_every_suffix_is_claimed_by_a_format() -> None:
    """A source of one file with a suffix of a table is of that table's format."""
    for name, known in TABLE_FORMATS.items():
        for suffix in known.suffixes:
            assert claimed_by([(f"rows{suffix}", 9)]) == name


def test_members_of_archives_are_tables_by_their_suffix() -> None:
    """The suffixes of the entries decide; a suffix alone is a hidden file."""
    assert table_format("a/b.CSV.gz") == "csv"
    assert table_format("b.ndjson") == "jsonl"
    assert table_format("b.pq") == "parquet"
    assert table_format("b.feather") == "arrow"
    assert table_format("b.npz") == ""
    assert table_format("a/.csv") == ""
    assert table_format(".csv") == ""


@pytest.mark.parametrize(
    ("paths", "claim"),
    [
        (["a/1.wav", "a/2.FLAC"], "files"),
        (["a/1.wav", "a/2.jpg"], "images"),
        (["a/1.wav", "a.csv"], "files"),
        (["a/1.h5"], ""),
        (["a/.wav"], ""),
    ],
)
def test_audio_is_recognised_where_there_is_no_image(
    paths: list[str], claim: str
) -> None:
    """Files of other kinds need `--format files`."""
    assert claimed_by([(path, 9) for path in paths]) == claim
