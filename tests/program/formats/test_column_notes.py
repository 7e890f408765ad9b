"""Columns that are nearly of a kind, or named like images: notes and evidence."""

import pathlib

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beam_pipeline.commands.spec import render
from beam_pipeline.planning.plan import plan_source
from beam_pipeline.settings.spec import make_spec
from tests.support.image_sources import image_bytes
from tests.support.outputs import notes_of, rows
from tests.support.runs import command, convert
from tests.support.sources import write_files
from transforms.core.infer.columns import infer_batches, infer_columns
from transforms.core.infer.evidence import NearKind
from transforms.core.schema import Kind
from transforms.publishing import target

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


# Images that a table names.


@pytest.mark.parametrize("name", ["x", "a.b/x", "x?y"])
def test_a_manifest_is_known_by_its_columns(name: str, tmp_path: Folder) -> None:
    """tfrecorder's URIs need no suffix: their column says what they are."""
    text = f"split,image_uri,label\nTRAIN,{name},a\nTRAIN,{name},b\n"
    files = {"m.csv": text.encode(), name: image_bytes(1)}
    source = write_files(tmp_path / "s", files) / "m.csv"
    convert(source, tmp_path / "out")
    assert [row["image"] for row in rows(tmp_path / "out")] == [image_bytes(1)] * 2
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
    from transforms.formats.source import _without_access

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


def test_a_struct_of_bytes_and_path_has_one_note(tmp_path: Folder) -> None:
    """It becomes two features, but is one column."""
    values = [{"bytes": b"no", "path": "a.jpg"}, {"bytes": b"x", "path": None}]
    pq.write_table(pa.table({"image": values}), tmp_path / "t.parquet")
    convert(tmp_path / "t.parquet", tmp_path / "out")
    assert len(notes_of(tmp_path / "out")) == 1


def test_a_column_named_like_images_is_noted(tmp_path: Folder) -> None:
    """Its values do not look like images' names: the way to say it is named."""
    columns = {"image_path": ["one", "two"], "label": ["a", "b"], "path": ["x", "y"]}
    source = table(tmp_path, columns)
    for name in ("one", "two"):
        (source.parent / name).write_bytes(image_bytes(1))
    convert(source, tmp_path / "out")
    first, second = notes_of(tmp_path / "out")
    assert first.startswith("column 'image_path' is text")
    assert first.endswith("say --image-columns image_path")
    assert "column 'path'" in second
    convert(source, tmp_path / "read", "--image-columns", "image_path")
    assert [row["image"] for row in rows(tmp_path / "read")] == [image_bytes(1)] * 2
    assert notes_of(tmp_path / "read") == []
    convert(source, tmp_path / "dropped", "--drop", "image_path,path")
    assert notes_of(tmp_path / "dropped") == []
