"""Values nested too deep, or in themselves: rejects or typed errors, everywhere."""

import json
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import beam_pipeline
from beam_pipeline.settings.spec import load_spec
from tests.support.archive_sources import write
from tests.support.outputs import dataset, rejects, rows
from tests.support.runs import convert, refused
from tests.support.table_reading import read_all
from transforms.core.arrays import type_nesting
from transforms.core.json_text import MAX_NESTING, json_nesting, parse_json
from transforms.core.reasons import Reason
from transforms.errors import SourceError, SpecError
from transforms.formats.json_lines.reader import JsonLinesReader

Folder = pathlib.Path

DEEPER = (MAX_NESTING + 1, 500, 5_000)


def lists(levels: int) -> str:
    """Returns JSON: 1 inside this many lists."""
    return "[" * levels + "1" + "]" * levels


def objects(levels: int) -> str:
    """Returns JSON: 1 inside this many objects."""
    return '{"k": ' * levels + "1" + "}" * levels


def nested(levels: int, wrap: Callable[[Any], Any] = lambda value: [value]) -> Any:
    """Returns 1 inside this many lists, or results of `wrap`."""
    value: Any = 1
    for _ in range(levels):
        value = wrap(value)
    return value


def in_object(value: Any) -> dict[str, Any]:
    """Returns an object that holds a value."""
    return {"k": value}


def depth(value: Any) -> int:
    """Returns how many levels of lists and objects a value has."""
    if isinstance(value, dict):
        return 1 + max(map(depth, value.values()), default=0)
    return 1 + max(map(depth, value), default=0) if isinstance(value, list) else 0


texts = st.text(alphabet='ab[]{}"\\\n', max_size=8)


@example(['\\"[', {"]\\\\": ["[" * 9]}])
@given(
    st.recursive(
        texts,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner),
        max_leaves=30,
    )
)
def test_levels_are_counted_outside_texts(value: Any) -> None:
    """Brackets, quotes and backslashes in texts count for nothing."""
    assert json_nesting(json.dumps(value).encode()) == depth(value)


def test_levels_are_counted_across_pieces() -> None:
    """Texts, escapes and levels go on from one piece of a long text to the next."""
    for size in range((1 << 20) - 6, (1 << 20) + 6):
        value = ["x" * size + '\\"[[', [["y" * size + "\\"], "]", ["\\" * 5, [[]]]]]
        assert json_nesting(json.dumps(value).encode()) == 5


def test_deep_json_is_refused_in_every_encoding() -> None:
    """The limit holds in UTF-16 too, where brackets are other bytes."""
    fits = json.dumps({"孛": nested(MAX_NESTING - 1)}, ensure_ascii=False)
    deep = json.dumps({"孛": nested(MAX_NESTING)}, ensure_ascii=False)
    for encoding in ("utf-8", "utf-8-sig", "utf-16", "utf-32"):
        assert depth(parse_json(fits.encode(encoding))) == MAX_NESTING
        with pytest.raises(ValueError, match="more than 62 levels"):
            parse_json(deep.encode(encoding))


def test_levels_of_types() -> None:
    """Lists, structs and maps count, the ways of storing values do not."""
    assert type_nesting(pa.dictionary(pa.int8(), pa.string())) == 0
    assert type_nesting(pa.list_(pa.struct([("a", pa.list_view(pa.int8()))]))) == 3
    assert type_nesting(pa.fixed_shape_tensor(pa.int8(), [2, 2])) == 1


@pytest.mark.parametrize("levels", DEEPER)
@pytest.mark.parametrize("made", [lists, objects])
@pytest.mark.parametrize("key", ["a", "unknown"])
def test_deep_lines_are_rejects(
    tmp_path: Folder, levels: int, made: Callable[[int], str], key: str
) -> None:
    """A line that is too deep at any place is a reject, whatever its neighbours."""
    lines = ['{"a": 1}'] * 30
    lines[7] = f'{{"a": 1, "{key}{key}": {made(levels)}}}'
    for bad in ([], ["{"]):
        text = "\n".join(lines + bad) + "\n"
        (tmp_path / "a.jsonl").write_text(text)
        for block_bytes in (1, 100, 1 << 20):
            read = read_all(
                JsonLinesReader(), tmp_path, ["a.jsonl"], block_bytes=block_bytes
            )
            assert read.rejections[0].row == 8
            assert read.rejections[0].reason is Reason.MALFORMED
            assert "more than 62 levels" in read.rejections[0].message
            assert len(read.rejections) == 1 + len(bad)
            assert read.columns["a"] == [1] * 29


def test_the_deepest_line_that_fits_is_read(tmp_path: Folder) -> None:
    """Objects of 62 levels are a column, with Arrow's parser and without."""
    line = f'{{"a": {objects(MAX_NESTING)}}}\n'
    for more in ("", "{\n"):
        (tmp_path / "a.jsonl").write_text(line * 3 + more)
        read = read_all(JsonLinesReader(), tmp_path, ["a.jsonl"])
        assert read.columns == {"a/" + "/".join("k" * MAX_NESTING): [1, 1, 1]}


def test_a_key_that_is_no_text_is_a_reject(tmp_path: Folder) -> None:
    """Half a surrogate pair in a key is no text, at whatever depth it is."""
    lines = ['{"a": 1}'] * 30
    lines[3] = r'{"a": 1, "\udfaa": 0}'
    lines[4] = r'{"a": 1, "b": [{"c": {"\ud83d": 0}}]}'
    lines[5] = r'{"a": 1, "b": "\ud83d\ude00", "\ud83d\ude00": 0}'
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    read = read_all(JsonLinesReader(), tmp_path, ["a.jsonl"])
    assert [(each.row, each.reason) for each in read.rejections] == [
        (4, Reason.INVALID_ENCODING),
        (5, Reason.INVALID_ENCODING),
    ]
    assert r"'\udfaa'" in read.rejections[0].message
    assert len(read.columns["\U0001f600"]) == 28


def column_of(levels: int, struct: bool) -> pa.Array:
    """Returns nulls of a type with this many levels."""
    kind = pa.int64()
    for _ in range(levels):
        kind = pa.struct([("k", kind)]) if struct else pa.list_(kind)
    return pa.nulls(3, kind)


itself: dict[str, Any] = {}
itself["self"] = itself
both: list[Any] = []
both += [both, both]
parent: dict[str, Any] = {}
parent["children"] = [{"parent": parent} for _ in range(300)]


@pytest.mark.parametrize(
    ("rows", "named"),
    [
        ([{"a": None}, {"a": nested(63)}], "'a' .* in row 2, .* 62 levels"),
        ([{"a": nested(80)}], "'a' .* in row 1, .* 62 levels"),
        ([{"a": nested(63, in_object)}], "'a' .* in row 1, .* 62 levels"),
        ([{"a": nested(3_000)}], "'a' .* in row 1, .* 62 levels"),
        ([{"a": nested(3_000, in_object)}], "'a' .* in row 1, .* 62 levels"),
        ([{"a": 1}, {"a": nested(3_000)}], "'a' .* in row 2, "),
        ([{"a": [{"k" * 99: nested(70, in_object)}]}], "in row 1, .* 62 levels"),
        ([{"a": 1, "b": itself}], "'b' .* in row 1, .* holds itself"),
        ([itself], "'self' .* in row 1, .* holds itself"),
        ([(1, None), (2, both)], "'feature1' .* in row 2, .* holds itself"),
        ([parent], "'children' .* in row 1, .* holds itself"),
        ([{"a": 1}, {"a": 2, "\udc80": 1}], r"in row 2, the name '\\udc80'"),
        ([{"a": {"b": 1}}, {"a": {"\udc80": 1}}], r"in row 2, .* '\\udc80'"),
        ({"a": [None, nested(70)]}, "'a' .* in row 2, .* 62 levels"),
        ({"\udc80": [1, 2]}, r"the name '\\udc80'"),
        (pa.table({"b": [1] * 3, "a": column_of(80, struct=False)}), "'a' .* 62"),
        (pa.table({"b": [1] * 3, "a": column_of(400, struct=True)}), "'a' .* 62"),
    ],
)
def test_python_values_without_a_column_are_named(
    tmp_path: Folder, rows: Any, named: str
) -> None:
    """Deep, circular and unnamable values are a SourceError with feature and row."""
    with pytest.raises(SourceError, match=named) as caught:
        beam_pipeline.convert(rows, tmp_path / "out")
    assert len(str(caught.value).encode()) <= 1024
    assert not (tmp_path / "out").exists()


def test_shared_and_deep_python_values_are_stored(tmp_path: Folder) -> None:
    """One list in many places is not a cycle; 62 levels are accepted."""
    shared = [1, 2]
    deep = nested(MAX_NESTING - 5, in_object)
    row = {"a": {"b": {"c": {"d": {"e": deep, "f": shared, "g": shared}}}}}
    beam_pipeline.convert([row, row], tmp_path / "out")
    features = dataset(tmp_path / "out")["features"]
    assert len(features) == 3


@pytest.mark.parametrize("struct", [True, False])
def test_deep_columns_of_files_are_named(tmp_path: Folder, struct: bool) -> None:
    """Parquet and Arrow IPC hold columns that are too deep for what follows."""
    for levels in (63, 80, 120):
        table = pa.table({"b": [1, 2, 3], "a": column_of(levels, struct)})
        path = tmp_path / f"{levels}.parquet"
        pq.write_table(table, path)
        found = refused(4, path, tmp_path / "out")
        assert "'a' are nested deeper" in found
    table = pa.table({"b": [1, 2, 3], "a": column_of(63, struct)})
    with pa.ipc.new_file(tmp_path / "a.arrow", table.schema) as writer:
        writer.write(table)
    found = refused(4, tmp_path / "a.arrow", tmp_path / "out")
    assert "'a' are nested deeper" in found


def test_bad_json_members_are_rejects(tmp_path: Folder) -> None:
    """Deep values and texts that are none cost their sample, not the run."""
    bad = {
        3: (f'{{"y": {lists(500)}}}', "malformed"),
        4: (f'{{"y": {objects(70)}}}', "malformed"),
        5: (r'{"y": 1, "\udfaa": 1}', "invalid_encoding"),
        6: (r'{"y": 1, "t": "\udfaa"}', "invalid_encoding"),
        7: (r'{"y": 1, "t": ["\udfaa"]}', "invalid_encoding"),
    }
    members: dict[str, bytes] = {}
    for index in range(20):
        text = bad[index][0] if index in bad else '{"y": 1, "t": "\u00e9"}'
        members |= {f"{index:03}.cls": b"1", f"{index:03}.json": text.encode()}
    path = write(tmp_path / "a.tar", members.items())
    options = ("--format", "webdataset", "--max-reject-rate", "0.5")
    convert(path, tmp_path / "out", *options)
    found = {each["row"] - 1: each["reason"] for each in rejects(tmp_path / "out")}
    assert found == {index: reason for index, (_, reason) in bad.items()}


@pytest.mark.parametrize(
    "text",
    [
        f"shards: {lists(70)}",
        f"shards: {lists(500)}",
        f"shards: {lists(10_000)}",
        f"features: {objects(500)}",
        "features: &a {x: *a}",
        "".join(
            f"a{i}: &a{i} [*a{i - 1}]\n" if i else "a0: &a0 [1]\n" for i in range(400)
        ),
    ],
    ids=["70", "500", "10000", "objects", "itself", "aliases"],
)
def test_deep_settings_are_named(tmp_path: Folder, text: str) -> None:
    """A spec or layout that is too deep says so, not how its parser failed."""
    path = tmp_path / "spec.yaml"
    path.write_text(text)
    with pytest.raises(SpecError, match=r"spec\.yaml.* more than 62 levels"):
        load_spec(str(path))


def test_deep_lists_in_cells_are_rejects(tmp_path: Folder) -> None:
    """JSON in the cell of a CSV file has the same limit as a line of its own."""
    cells = ["[1, 2]"] * 30
    cells[3], cells[4] = lists(70), lists(5_000)
    text = "".join(f'{i},"{cell}"\n' for i, cell in enumerate(cells))
    (tmp_path / "a.csv").write_text("i,l\n" + text)
    (tmp_path / "spec.yaml").write_text(
        "features: {l: {kind: int64, shape: [null]}}\nmax_reject_rate: 0.5\n"
    )
    spec = ("--spec", tmp_path / "spec.yaml")
    convert(tmp_path / "a.csv", tmp_path / "out", *spec)
    found = {each["row"]: each["reason"] for each in rejects(tmp_path / "out")}
    assert found == {4: "malformed", 5: "malformed"}


def test_arrays_of_many_dimensions_are_tensors(tmp_path: Folder) -> None:
    """A NumPy array is one level, however many dimensions it has."""
    beam_pipeline.convert([{"a": np.zeros((1,) * 32)}], tmp_path / "out")


def test_lists_too_deep_for_a_feature_are_left_out_or_tensors(tmp_path: Folder) -> None:
    """The error says both; without a word the run is refused."""
    source = tmp_path / "a.jsonl"
    source.write_text('{"n": 1, "x": [[[1, 2], [3, 4]]]}\n' * 2)
    message = refused(4, source, tmp_path / "out")
    assert "--drop 'x'" in message
    assert "kind: tensor" in message
    convert(source, tmp_path / "dropped", "--drop", "x")
    assert rows(tmp_path / "dropped") == [{"n": 1}] * 2
    spec = tmp_path / "spec.yaml"
    spec.write_text("features: {x: {kind: tensor, shape: [1, 2, 2], dtype: uint8}}")
    convert(source, tmp_path / "tensors", "--spec", spec)
    assert [row["x"] for row in rows(tmp_path / "tensors")] == [b"\1\2\3\4"] * 2
