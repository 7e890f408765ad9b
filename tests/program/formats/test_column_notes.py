"""Columns that are nearly of a kind, or named like images: notes and evidence."""

import decimal
import pathlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beam_pipeline.commands.schema import render
from beam_pipeline.planning.features.column_notes import column_notes
from beam_pipeline.planning.plan import plan_source
from beam_pipeline.settings.spec import make_spec
from tests.support.image_sources import png
from tests.support.outputs import contents, rejects, rows
from tests.support.runs import command, convert
from tests.support.sources import write_files
from transforms.core.infer.columns import infer_batches, infer_columns
from transforms.core.infer.evidence import NearKind
from transforms.core.schema import Kind, Schema
from transforms.publishing import target

# The stages' own code: what is tested here is not up to Beam.
Folder = pathlib.Path


def near(cells: list[str | None]) -> NearKind | None:
    """Returns what a column nearly is, by its sample and by all batches alike."""
    column = pa.array(cells, pa.string())
    sampled = infer_columns({"x": column}).evidence[0].near
    batches = [{"x": column.slice(i, 30)} for i in range(0, len(column), 30)]
    found = infer_batches(iter(batches)).evidence[0].near
    if sampled is not None:
        assert found is not None
        assert (found.kind, found.stops) == (sampled.kind, sampled.stops)
    return sampled


def notes_of(directory: Folder) -> list[str]:
    """Returns the notes in the manifest of a dataset."""
    return list(target.read_manifest(str(directory)).run["notes"])


def table(tmp_path: Folder, columns: dict[str, list[str]]) -> Folder:
    """Writes columns unchanged as a CSV file."""
    lines = [",".join(columns), *map(",".join, zip(*columns.values(), strict=True))]
    text = "".join(f"{line}\n" for line in lines)
    return write_files(tmp_path / "s", {"t.csv": text.encode()}) / "t.csv"


def mixed(count: int, word: str, every: int) -> list[str]:
    """Returns numbers with a word in every n-th cell."""
    return [word if n % every == 1 else f"{n / 4}" for n in range(count)]


@pytest.mark.parametrize(
    ("cells", "kind", "share", "stops"),
    [
        (mixed(100, "-", 10), Kind.FLOAT, 0.9, (("-", 10),)),
        (["?", " ?", *"123456"], Kind.INT64, 0.75, (("?", 2),)),
        ([*["-"] * 4, *"12345678"], Kind.INT64, 2 / 3, (("-", 4),)),
        (["", *map(str, range(300))], Kind.INT64, 300 / 301, (("", 1),)),
        (["?", "true", "False", None, "NA"], Kind.BOOL, 2 / 3, (("?", 1),)),
        ([*["true"] * 40, *["unknown"] * 2], Kind.BOOL, 40 / 42, (("unknown", 2),)),
    ],
)
def test_what_a_column_nearly_is(
    cells: list[str | None],
    kind: Kind,
    share: float,
    stops: tuple[tuple[str, int], ...],
) -> None:
    """The kind of most cells, their share, and every text that stops it."""
    found = near(cells)
    assert found is not None
    assert (found.kind, found.stops, found.alone) == (kind, stops, True)
    assert found.share == pytest.approx(share)


@pytest.mark.parametrize(
    "cells",
    [
        [str(n) for n in range(50)],
        ["red", "blue"] * 20,
        ["007", *map(str, range(200))],
        [f"{n}{'abcdefg'[n % 7] if n % 3 else ''}" for n in range(100)],
        [*["-"] * 6, "1", "2", "3"],
        [None, "NA", "null"],
    ],
)
def test_columns_that_are_near_nothing(cells: list[str | None]) -> None:
    """Of one kind throughout, or far from any; leading zeros are text on purpose."""
    assert near(cells) is None


def test_many_texts_stop_a_kind() -> None:
    """The most frequent ones are named, and that there are more."""
    rng = np.random.default_rng(1)
    cells: list[str | None] = [str(n) for n in rng.integers(0, 10**6, 5_000)]
    cells[::25] = [f"~{n}" for n in range(200)]
    cells[1::100] = ["-"] * 50
    found = near(cells)
    assert found is not None
    assert not found.alone
    assert found.stops[0] == ("-", 50)
    assert found.share == pytest.approx(0.95)


def test_a_note_names_share_texts_and_the_way_out(tmp_path: Folder) -> None:
    """It is in the summary, the manifest and the plan, but not with the option."""
    columns = {
        "id": [str(n) for n in range(100)],
        "value": mixed(100, "-", 10),
        "flag": [("?", "true", "false")[min(n % 20, 2)] for n in range(100)],
        "word": [f"w{n}" for n in range(100)],
    }
    source = table(tmp_path, columns)
    out = tmp_path / "out"
    text = command("plan", source, out).out
    convert(source, out)
    first, second = notes_of(out)
    assert first == (
        "column 'value' is text: 90.0 % of its cells are numbers, and the others hold "
        "'-'. If these mean missing, say --null-values -"
    )
    assert "column 'flag' is text: 95.0 % of its cells are true or false" in second
    assert "--null-values '?'" in second
    assert f"note    {first}" in text
    convert(source, tmp_path / "again", "--null-values", "-,?")
    assert notes_of(tmp_path / "again") == []
    kinds = target.read_manifest(str(tmp_path / "again")).features
    found = {facts.feature.name: facts.feature.kind for facts in kinds}
    assert (found["value"], found["flag"]) == (Kind.FLOAT, Kind.BOOL)


def test_a_declared_kind_needs_no_note(tmp_path: Folder) -> None:
    """A column that is declared as text gets no note."""
    source = table(tmp_path, {"value": mixed(100, "-", 10), "n": ["1", "2"] * 50})
    (tmp_path / "job.yaml").write_text("features: {v: {column: value, kind: text}}\n")
    convert(source, tmp_path / "out", "--spec", tmp_path / "job.yaml")
    assert notes_of(tmp_path / "out") == []


def test_quoted_empty_cells_are_named(tmp_path: Folder) -> None:
    """5 % of them make numbers a text, 0.5 % are rejects: '' is the way out of both."""
    many = ['""' if n % 20 == 1 else f'"{n}"' for n in range(1_000)]
    few = ['""' if n % 200 == 1 else f'"{n}"' for n in range(1_000)]
    once = ["oops" if n == 7 else str(n) for n in range(1_000)]
    source = table(tmp_path, {"many": many, "few": few, "once": once})
    out = tmp_path / "out"
    convert(source, out)
    first, second = notes_of(out)
    assert "column 'many' is text: 95.0 % of its cells are numbers" in first
    assert "column 'few' is int64: 5 of 1,000 sampled cells are no numbers" in second
    assert first.endswith("say --null-values ''")
    assert second.endswith("say --null-values ''")
    convert(source, tmp_path / "again", "--null-values", "", "--drop", "once")
    assert notes_of(tmp_path / "again") == []
    assert len(rows(tmp_path / "again")) == 1_000


def test_a_wide_table_has_few_notes(tmp_path: Folder) -> None:
    """Eight are shown in full, the others counted."""
    columns = {f"c{n}": mixed(20, "-", 10) for n in range(500)}
    convert(table(tmp_path, columns), tmp_path / "out")
    notes = notes_of(tmp_path / "out")
    assert len(notes) == 9
    assert notes[-1] == "492 more columns like these: see schema"


def test_texts_that_the_flag_cannot_take(tmp_path: Folder) -> None:
    """A comma or a line end in a word is said in a spec."""
    cells = pa.array([*map(str, range(30)), "a,b"])
    inference = infer_columns({"x": cells})
    spec = make_spec({"source": "s", "output": "o"})
    facts = {"x": inference.evidence[0]}
    (note,) = column_notes(Schema(inference.features), facts, spec)
    assert note.endswith("'a,b'. If these mean missing, say null_values in a --spec")


def schema_of(source: Folder) -> str:
    """Returns what `schema` prints of a source."""
    spec = make_spec({"source": str(source), "output": "o"})
    return render(spec, plan_source(spec)[1], is_tree=False)


def test_hints_beside_the_features(tmp_path: Folder) -> None:
    """The comment says what a text nearly is, and what else it could be."""
    columns = {
        "value": mixed(100, "-", 10),
        "day": [f"2024-05-{n % 28 + 1:02}" for n in range(100)],
        "answer": ["yes", "no"] * 50,
        "word": [f"w{n}" for n in range(100)],
    }
    lines = {
        line.split(":")[0].strip(): line
        for line in schema_of(table(tmp_path, columns)).splitlines()
        if "# 100 %" in line
    }
    assert lines["value"].endswith(
        "90.0 % of its cells are numbers, the others hold '-'"
    )
    assert lines["day"].endswith("or kind: timestamp, if these are dates")
    assert lines["answer"].endswith("2 distinct: or kind: label")
    assert lines["word"].endswith("as w0, w1, w2")


def test_decimals_are_reported_as_text(tmp_path: Folder) -> None:
    """Exact as text: the note and the comment say so, and what float would do."""
    prices = pa.array([decimal.Decimal("1.50"), decimal.Decimal("2.25")])
    (tmp_path / "s").mkdir()
    source = tmp_path / "s/t.parquet"
    pq.write_table(pa.table({"price": prices}), source)
    convert(source, tmp_path / "out")
    (note,) = notes_of(tmp_path / "out")
    said = "decimal128(3, 2) is exact as text; kind: float would round it to 24 bits"
    assert note == f"column 'price' is text: {said}"
    assert said in schema_of(source)


# Images that a table names.


@pytest.mark.parametrize("name", ["x", "a.b/x", "x?y"])
def test_a_manifest_is_known_by_its_columns(name: str, tmp_path: Folder) -> None:
    """tfrecorder's URIs need no suffix: their column says what they are."""
    text = f"split,image_uri,label\nTRAIN,{name},a\nTRAIN,{name},b\n"
    files = {"m.csv": text.encode(), name: png(1)}
    source = write_files(tmp_path / "s", files) / "m.csv"
    convert(source, tmp_path / "out")
    assert [row["image"] for row in rows(tmp_path / "out")] == [png(1)] * 2
    assert notes_of(tmp_path / "out") == []


@pytest.mark.parametrize(
    "uri", ["https://h/x.jpg?w=1", "s3://b/x.jpg?endpoint_override=127.0.0.1:9"]
)
def test_uris_with_parameters_are_images(uri: str, tmp_path: Folder) -> None:
    """They are never a table of texts; what cannot be read is a reject that says so."""
    text = f"split,image_uri,label\nTRAIN,{uri},a\n"
    source = write_files(tmp_path / "s", {"m.csv": text.encode()}) / "m.csv"
    spec = make_spec({"source": str(source), "output": "o"})
    schema = plan_source(spec)[1].schema
    assert [f.source_column for f in schema.of_kind(Kind.IMAGE)] == ["image_uri"]


def test_a_path_with_parameters_ends_like_an_image(tmp_path: Folder) -> None:
    """Columns of images are known by the suffix before a store's parameters."""
    uri = "s3://b/x.jpg?endpoint_override=h:9&scheme=http"
    source = table(tmp_path, {"image_path": [uri] * 3, "n": ["1", "2", "3"]})
    spec = make_spec({"source": str(source), "output": "o"})
    schema = plan_source(spec)[1].schema
    assert [f.source_column for f in schema.of_kind(Kind.IMAGE)] == ["image_path"]


def test_secrets_in_uris_are_shown_nowhere(tmp_path: Folder) -> None:
    """Neither the plan nor the schema, the rows, the rejects or the notes have them."""
    uris = [
        "s3://b/x.jpg?access_key=TOPAK&secret_key=TOPSK&endpoint_override=127.0.0.1:9",
        "s3://TOPAK:TOPSK@c/a/x.jpg?endpoint_override=127.0.0.1:9",
    ]
    columns = {"image_path": uris, "label": ["a", "b"]}
    source = table(tmp_path, columns)
    spec = make_spec({"source": str(source), "output": str(tmp_path / "out")})
    planned = plan_source(spec)[1]
    assert "TOP" not in render(spec, planned, is_tree=False)
    plan = command("plan", source, tmp_path / "out")
    assert "s3://b/x.jpg" in plan.out
    assert "TOP" not in plan.out + plan.err


def test_the_name_of_an_image_does_not_say_how_it_is_reached(tmp_path: Folder) -> None:
    """What is stored beside an image is its path; the image keeps the whole URI."""
    from transforms.formats.table_source import _without_access

    uri = "s3://TOPAK:TOPSK@b/x.jpg?region=eu"
    source = table(tmp_path, {"image_path": [uri, "y.jpg"], "label": ["a", "b"]})
    spec = make_spec({"source": str(source), "output": "o"})
    planned = plan_source(spec)[1]
    schema = planned.schema
    batch = pa.record_batch(
        [pa.array([uri, "y.jpg"], f.type) for f in schema.row_schema],
        schema=schema.row_schema,
    )
    found = _without_access(batch, schema)
    assert found["filename"].to_pylist() == ["s3://b/x.jpg", "y.jpg"]
    assert found["image"].to_pylist() == [uri, "y.jpg"]


def test_a_column_named_like_images_is_noted(tmp_path: Folder) -> None:
    """Its values do not look like images' names: the way to say it is named."""
    columns = {"image_path": ["one", "two"], "label": ["a", "b"], "path": ["x", "y"]}
    source = table(tmp_path, columns)
    for name in ("one", "two"):
        (source.parent / name).write_bytes(png(1))
    convert(source, tmp_path / "out")
    first, second = notes_of(tmp_path / "out")
    assert first.startswith("column 'image_path' is named like one of images")
    assert first.endswith("say --image-columns image_path")
    assert "column 'path'" in second
    convert(source, tmp_path / "read", "--image-columns", "image_path")
    assert [row["image"] for row in rows(tmp_path / "read")] == [png(1)] * 2
    assert notes_of(tmp_path / "read") == []
    convert(source, tmp_path / "dropped", "--drop", "image_path,path")
    assert notes_of(tmp_path / "dropped") == []


def test_file_names_beside_images_are_no_images(tmp_path: Folder) -> None:
    """A table that holds its images may say what their files were called."""
    (tmp_path / "s").mkdir()
    columns = {"image": [png(1), png(2)], "filename": ["one", "two"]}
    pq.write_table(pa.table(columns), tmp_path / "s/t.parquet")
    convert(tmp_path / "s", tmp_path / "out")
    assert notes_of(tmp_path / "out") == []
    convert(tmp_path / "out", tmp_path / "again")
    assert notes_of(tmp_path / "again") == []


def test_secrets_in_uris_are_in_no_reject(tmp_path: Folder) -> None:
    """A URI that cannot be read is named without what it says of its place."""
    uri = "s3://TOPAK:TOPSK@b/x.jpg?wrong=TOPSK"
    text = f"split,image_uri,label\nTRAIN,{uri},a\n"
    source = write_files(tmp_path / "s", {"m.csv": text.encode()}) / "m.csv"
    flags = ("--max-reject-rate", "1", "--allow-empty")
    convert(source, tmp_path / "out", *flags)
    (reject,) = rejects(tmp_path / "out")
    assert reject["reason"] == "unreadable"
    assert reject["message"].startswith("image 's3://b/x.jpg': ")
    for data in contents(tmp_path / "out").values():
        assert b"TOP" not in data
