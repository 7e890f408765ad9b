"""Texts that mean missing: in inference and conversion alike, at every door of text."""

import gzip
import pathlib

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import beam_pipeline
from tests.support.archive_sources import write
from tests.support.image_sources import image_bytes
from tests.support.outputs import manifest_of, rejects, rows
from tests.support.runs import convert, refused
from tests.support.sources import write_files
from transforms.core.schema import Kind
from transforms.errors import SpecError
from transforms.formats.raw_rows import with_nulls

Folder = pathlib.Path

VALUES = ["1.5", "-", "2.5", " ? ", "", "4"]
EXPECTED: list[object] = [1.5, None, 2.5, None, None, 4.0]


def read(directory: Folder, name: str = "x") -> list[object]:
    """Returns a feature of all records of a dataset that was not shuffled."""
    return [row.get(name) for row in rows(directory)]


def csv_text() -> bytes:
    """Returns a table in which every tenth value is missing in one way or another."""
    return ("n,x\n" + "".join(f"{n},{x}\n" for n, x in enumerate(VALUES))).encode()


def test_columns_of_text_lose_the_words() -> None:
    """Whole cells match, without spaces and tabs around them; other types stay."""
    columns = {
        "a": pa.array(["-", " -\t", "--", "a-b", "", None]),
        "b": pa.chunked_array([["?"], ["x", "-"]]),
        "c": pa.array([1, 2]),
        "d": pa.array([], pa.string()),
    }
    found = with_nulls(columns, ["-", " ? "])
    assert found["a"].to_pylist() == [None, None, "--", "a-b", "", None]
    assert found["b"].to_pylist() == [None, "x", None]
    assert found["c"] is columns["c"]
    assert found["d"].to_pylist() == []
    assert with_nulls(columns, [""])["a"].to_pylist()[4:] == [None, None]
    assert with_nulls(columns, []) is columns


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.zip", "t.jsonl", "t.parquet"])
def test_every_door_of_text(name: str, tmp_path: Folder) -> None:
    """The words neither make a column text nor cost a row, and leave their key out."""
    source = tmp_path / "s" / name
    source.parent.mkdir()
    if name == "t.zip":
        write(source, [("t.csv", csv_text())])
    elif name == "t.jsonl":
        values = [f'"{x}"' for x in VALUES]
        values[0] = "1.5"
        text = "".join(f'{{"n": {n}, "x": {x}}}\n' for n, x in enumerate(values))
        source.write_text(text)
    elif name == "t.parquet":
        pq.write_table(pa.table({"n": range(len(VALUES)), "x": VALUES}), source)
    else:
        source.write_bytes(gzip.compress(csv_text()) if "gz" in name else csv_text())
    out = tmp_path / "out"
    convert(source, out, "--null-values", "-,?,", "--no-shuffle")
    assert read(out) == EXPECTED
    facts = {f.feature.name: f for f in manifest_of(out).features}
    assert facts["x"].feature.kind is Kind.FLOAT
    assert not facts["x"].always_present
    assert not (out / "rejects.jsonl").exists()


def test_a_word_beyond_the_sample_is_missing_too(tmp_path: Folder) -> None:
    """Also where a block is read by a declared kind, and beside rejects."""
    lines = "".join(f"{n},{n / 4}\n" for n in range(5_000))
    source = write_files(
        tmp_path / "s", {"t.csv": f"n,x\n{lines}5000,-\n5001,oops\n".encode()}
    )
    (tmp_path / "job.yaml").write_text(
        "null_values: ['-']\nfeatures: {x: {kind: float, missing: fill, fill: -1}}\n"
    )
    out = tmp_path / "out"
    convert(source, out, "--spec", tmp_path / "job.yaml", "--no-shuffle")
    assert read(out)[-1] == -1
    (reject,) = rejects(out)
    assert (reject["row"], reject["reason"]) == (5_002, "not_a_number")


def test_texts_labels_keys_and_splits(tmp_path: Folder) -> None:
    """A word is no class, no text, no key and no split either."""
    text = "id,kind,split\na,cat,train\nb,?,test\n?,dog,train\nd,dog,?\n"
    source = write_files(tmp_path / "s", {"t.csv": text.encode()})
    flags = ("--null-values", "?", "--label-column", "kind", "--key-column", "id")
    more = ("--split-column", "split", "--max-reject-rate", "0.5")
    out = tmp_path / "out"
    convert(source, out, *flags, *more)
    found = manifest_of(out)
    label = next(f for f in found.features if f.feature.name == "kind")
    assert label.classes == ("cat",)
    reasons = {(r["row"], r["reason"]) for r in rejects(out)}
    assert reasons == {(3, "missing_value"), (4, "bad_split")}


def test_a_table_of_labels_heeds_the_words(tmp_path: Folder) -> None:
    """What the table says of an image may be missing as well."""
    source = write_files(
        tmp_path / "s", {f"{n}.png": image_bytes(n) for n in range(1, 4)}
    )
    (tmp_path / "l.csv").write_text("id,age\n1,5\n2,-\n3,7\n")
    flags = ("--labels", tmp_path / "l.csv", "--id-column", "id", "--no-shuffle")
    convert(source, tmp_path / "out", *flags, "--null-values", "-", "--drop", "id")
    assert read(tmp_path / "out", "age") == [5, None, 7]


def test_formats_without_texts_refuse_it(tmp_path: Folder) -> None:
    """Images have no cells; a word that is no text is refused by name."""
    photos = write_files(tmp_path / "s", {"cat/1.png": image_bytes(1)})
    message = refused(2, photos, tmp_path / "out", "--null-values", "-")
    assert "null_values is for tables" in message
    with pytest.raises(SpecError, match="true must be in quotes"):
        beam_pipeline.convert(
            photos,
            tmp_path / "out",
            null_values=[True],  # type: ignore[list-item]
        )
