"""The plan: what it decides, what its notes say, and that it does nothing."""

import dataclasses
import os
import pathlib
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from beam_pipeline.planning import sizes
from beam_pipeline.planning.feature_checks import contract_settings, with_contract
from beam_pipeline.planning.plan import Plan, make_plan
from beam_pipeline.planning.request import default_name, output_name
from beam_pipeline.settings.spec import FeatureSpec, make_spec
from tests.support import image_sources
from tests.support.datasets import animals, write_dataset
from tests.support.plans import everything, planned, write_numbers
from tests.support.segments import IN_FILES, waiting
from transforms.core.placing.splitting import SplitSource
from transforms.core.schema import Feature, Kind
from transforms.errors import SpecError, TargetError
from transforms.storage.file_list import FileList
from transforms.storage.files import storage
from transforms.storage.local import LocalPath

Folder = pathlib.Path


def plan(source: Folder | str, output: Folder | str, **settings: Any) -> Plan:
    return make_plan(
        make_spec({"source": str(source), "output": str(output), **settings})
    )


def write_images(root: Folder, *paths: str) -> Folder:
    image_sources.write_images(root, paths)
    return root


@pytest.mark.parametrize("kind", ["csv", "images"])
def test_plan_writes_nothing(tmp_path: Folder, kind: str) -> None:
    """Neither beside the output nor in the source, fresh or overwriting."""
    source = (
        write_numbers(tmp_path / "in/rows.csv")
        if kind == "csv"
        else write_images(tmp_path / "in", "cat/1.png", "dog/2.png")
    )
    write_dataset(tmp_path / "old", {"train": animals(2)})
    before = everything(tmp_path)
    for output in ("new", "deep/er/new", "old"):
        planned = plan(source, tmp_path / output, overwrite=True)
        assert planned.digest
        assert planned.settings
        assert everything(tmp_path) == before


def test_records_are_sized_in_pieces(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that are encoded in pieces have the mean size that they have together."""
    lines = [f"{i},{'x' * (i % 40)},{i if i % 9 else ''}" for i in range(500)]
    (tmp_path / "in").mkdir()
    (tmp_path / "in/rows.csv").write_text("\n".join(["a,b,c", *lines, ""]))
    whole = plan(tmp_path / "in", tmp_path / "out").planned.record_bytes
    monkeypatch.setattr(sizes, "_SIZED_BYTES", 100)
    assert plan(tmp_path / "in", tmp_path / "out").planned.record_bytes == whole


@pytest.mark.parametrize("output", ["", "out", "a/b/out", "../in/out", "cat/x"])
def test_output_inside_the_source(tmp_path: Folder, output: str) -> None:
    """The next run would read what this one writes: refused, links resolved."""
    root = write_images(tmp_path / "in", "cat/1.png")
    (tmp_path / "link").symlink_to("in")
    for source in (root, tmp_path / "link"):
        with pytest.raises(TargetError, match="be outside the source"):
            plan(source, root / output if output else root)
    with pytest.raises(TargetError, match="be outside the source"):
        plan(root, tmp_path / "link" / output)
    plan(root, tmp_path / "in-out")


def test_target_is_looked_at_before_the_source(tmp_path: Folder) -> None:
    """An output that cannot be written is reported before any input is read."""
    (tmp_path / "out").write_text("of somebody")
    with pytest.raises(TargetError, match="file or a link"):
        plan(tmp_path / "nothing.csv", tmp_path / "out")


def test_a_dataset_at_the_target_is_reported_before_the_source_is_read(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The inputs are listed, to be compared, and not sampled."""
    write_dataset(tmp_path / "out", {"train": animals(1)})
    (tmp_path / "t.csv").write_text("a\n1\n")
    monkeypatch.setattr("beam_pipeline.planning.plan._plan_inputs", None)
    with pytest.raises(TargetError, match="--overwrite"):
        plan(tmp_path / "t.csv", tmp_path / "out")


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("photos", "photos"),
        ("photos/", "photos"),
        ("/a/b/rows.csv", "rows.csv"),
        ("data/*.csv", "data"),
        ("my photos (2)", "my_photos_2"),
        ("고양이", "고양이"),
        ("...", "sets"),
        ("🐈", "sets"),
        ("train", "sets"),
        ("a/Test/*.csv", "sets"),
        ("trains", "trains"),
        ("train-2", "train-2"),
        ("a\nb", "a_b"),
        ("rows.v2.csv", "rows.v2"),
        ("v1.0", "v1.0"),
        ("cafe\u0301", "caf\u00e9"),
    ],
)
def test_default_names(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch, source: str, name: str
) -> None:
    """The source's base name in NFC, in characters that a file name takes anywhere.

    Where there is none, or it is that of a split, it is the output's. That of a file
    has no suffix; a folder keeps its dots.
    """
    monkeypatch.chdir(tmp_path)
    write_numbers(tmp_path / "rows.v2.csv")
    (tmp_path / "v1.0").mkdir()
    assert default_name(source, storage(source).standing(), "out/sets") == name


@pytest.mark.parametrize(
    ("output", "name"),
    [
        ("out/pets", "pets"),
        ("out/pets/", "pets"),
        ("out/my pets", "my_pets"),
        ("out/pets/1.0.0", "pets"),
        ("s3://bucket/x/pets/1.0.0", "pets"),
        ("s3://bucket/x/1.0.0/", "x"),
        ("s3://bucket/1.0.0", "bucket"),
        ("gs://bucket/a/pets", "pets"),
        ("out/1.0", "1.0"),
        ("out/v1", "v1"),
        ("🐈", "dataset"),
    ],
)
def test_the_name_of_an_output(output: str, name: str) -> None:
    """Its folder's, or that of the folder of its versions; near and far alike."""
    assert output_name(output) == name
    assert default_name("train.csv", "file", output) == name


@pytest.mark.parametrize("name", ["a/b", "..", ".", "a\0b", "x" * 240])
def test_names_that_cannot_be(tmp_path: Folder, name: str) -> None:
    """A name that is no part of a file name, or leaves no room for the rest."""
    source = write_numbers(tmp_path / "rows.csv")
    with pytest.raises(SpecError, match="name"):
        plan(source, tmp_path / "out", name=name)


def test_long_split_name(tmp_path: Folder) -> None:
    """Shard names must fit with the longest split too."""
    source = write_numbers(tmp_path / "rows.csv")
    with pytest.raises(SpecError, match="255 bytes"):
        plan(source, tmp_path / "out", splits={"x" * 230: 1, "b": 1})


def test_splits_by_shares(tmp_path: Folder) -> None:
    """Every split gets its records, bytes and shards, by its share."""
    source = write_numbers(tmp_path / "rows.csv", 1000)
    planned = plan(source, tmp_path / "out", splits="train=0.8,test=0.2", shards=3)
    assert planned.sharding.rule.source is SplitSource.SHARES
    assert planned.sharding.shards == {"train": 3, "test": 3}
    assert planned.planned.records == {"train": 800, "test": 200}
    assert planned.planned.notes == ()
    (note,) = plan(source, tmp_path / "out", splits="train=8,test=2").planned.notes
    assert "what results is train 80.0 %, test 20.0 %" in note


def test_splits_of_folders(tmp_path: Folder) -> None:
    """Folders decide the splits; shares on top of them are refused."""
    root = write_images(
        tmp_path / "in", "train/a/1.png", "train/b/1.png", "val/a/2.png"
    )
    planned = plan(root, tmp_path / "out")
    assert planned.planned.records == {"train": 2, "val": 1}
    assert planned.planned.classes == {"label": ("a", "b")}
    assert planned.planned.expected_rows == 3
    with pytest.raises(SpecError, match="folders say the split"):
        plan(root, tmp_path / "out", splits="a=1")


def test_shard_size(tmp_path: Folder) -> None:
    """As many shards as the estimated bytes need, at least one."""
    source = write_numbers(tmp_path / "rows.csv", 1000)
    size = plan(source, tmp_path / "out").planned.record_bytes["train"]
    wanted = {"100GB": 1, str(size): 1, str(size - 1): 2, str(-(-size // 10)): 10}
    for given_size, shards in wanted.items():
        planned = plan(source, tmp_path / "out", shard_size=given_size)
        assert planned.sharding.shards == {"train": shards}


def test_settings_of_another_format(tmp_path: Folder) -> None:
    """A setting that the source cannot follow is refused, not passed over."""
    source = write_numbers(tmp_path / "rows.csv")
    root = write_images(tmp_path / "in", "a/1.png")
    of_images: list[dict[str, Any]]
    of_images = [{"preset": "tutorial"}, {"feature_names": {"image": "x"}}]
    for given_settings in of_images:
        with pytest.raises(SpecError, match="images"):
            plan(source, tmp_path / "out", **given_settings)
    of_tables: list[dict[str, Any]] = [
        {"split_column": "x"},
        {"label_column": "x"},
        {"delimiter": ";"},
        {"header": False},
        {"columns": ["a"]},
        {"encoding": "latin-1"},
        {"drop": ["filename"]},
        {"group_column": "who"},
    ]
    for given_settings in of_tables:
        with pytest.raises(SpecError, match=next(iter(given_settings))):
            plan(root, tmp_path / "out", **given_settings)


def test_settings_are_checked_before_the_target_is_refused(tmp_path: Folder) -> None:
    """No other output would make such a job right."""
    root = write_images(tmp_path / "in", "a/1.png")
    write_dataset(tmp_path / "out", {"train": animals(2)})
    with pytest.raises(SpecError, match="drop is for tables"):
        plan(root, tmp_path / "out", drop=["filename"])


def test_missing_columns_are_named(tmp_path: Folder) -> None:
    """A label or split column that is not there is a fault of the spec."""
    source = write_numbers(tmp_path / "rows.csv")
    with pytest.raises(SpecError, match=r"animl.*animal"):
        plan(source, tmp_path / "out", label_column="animl")
    with pytest.raises(SpecError, match=r"'part'"):
        plan(source, tmp_path / "out", split_column="part")


def test_digest_is_of_what_decides_bytes(tmp_path: Folder) -> None:
    """Workers, rates and places change no work folder; settings and inputs do."""
    source = write_numbers(tmp_path / "rows.csv")
    digest = plan(source, tmp_path / "out").digest
    for same in (
        {"workers": 5},
        {"max_reject_rate": 0.5},
        {"min_records": 1},
        {"overwrite": True},
    ):
        assert plan(source, tmp_path / "out", **same).digest == digest
    for other in ({"seed": 1}, {"shards": 2}, {"compression": "gzip"}, {"limit": 3}):
        assert plan(source, tmp_path / "out", **other).digest != digest
    os.utime(source, ns=(1, 1))
    assert plan(source, tmp_path / "out").digest != digest


def test_input_facts_are_of_no_place_or_order(tmp_path: Folder) -> None:
    """The same files elsewhere, listed in another order, are the same inputs."""
    for place in ("here", "there/deeper"):
        for name in ("b.csv", "a.csv", "c/d.csv"):
            write_numbers(tmp_path / place / name)
    here = plan(tmp_path / "here", tmp_path / "out").inputs
    there = plan(tmp_path / "there/deeper", tmp_path / "out").inputs
    assert here.facts() == there.facts()
    backwards = dataclasses.replace(here, entries=FileList.of([*here.entries][::-1]))
    assert backwards.facts() == here.facts()
    assert here.facts()["files"] == 3


def test_inline_and_workers(tmp_path: Folder) -> None:
    """Small jobs stay in one process and in memory by default."""
    source = write_numbers(tmp_path / "rows.csv")
    small = plan(source, tmp_path / "out")
    assert (small.inline, small.workers, small.tasks) == (True, 1, 1)
    with waiting(IN_FILES):
        told = plan(source, tmp_path / "out", workers=3)
    assert (told.inline, told.workers, told.tasks) == (False, 3, 3)
    assert told.settings == small.settings


def test_a_small_table_of_large_images_is_no_small_job(tmp_path: Folder) -> None:
    """What it names counts: here 74 MB, by a table of 400 bytes."""
    size = 640, 640
    Image.frombytes("RGB", size, os.urandom(640 * 640 * 3)).save(tmp_path / "1.png")
    source = tmp_path / "rows.csv"
    for rows, is_small in ((2, True), (60, False)):
        source.write_text("image\n" + "1.png\n" * rows)
        found = plan(source, tmp_path / "out")
        assert (found.is_small, found.tasks) == (is_small, int(is_small))


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [(pa.int16(), "int16"), (pa.bool_(), "bool"), (pa.timestamp("s"), "float32")],
)
def test_a_tensor_has_the_dtype_of_its_column(
    tmp_path: Folder, kind: pa.DataType, dtype: str
) -> None:
    """Of values that are no numbers it has the usual one; they are rejects."""
    column = pa.array([None, None], kind)
    pq.write_table(pa.table({"t": column}), tmp_path / "t.parquet")
    said = {"t": {"kind": "tensor", "shape": [1]}}
    found = plan(tmp_path / "t.parquet", tmp_path / "out", features=said)
    assert found.planned.schema.features[0].dtype == dtype


PHOTOS = "train/cat/1.png train/dog/2.png train/hat/3.png test/hat/4.png".split()


@pytest.fixture
def photos(tmp_path: Folder) -> Folder:
    return write_images(tmp_path / "in", *PHOTOS)


def test_the_classes_of_a_vocabulary_are_shown(photos: Folder) -> None:
    """Names outside it will be rejects, or share the last class."""
    found = planned(photos, photos.parent, vocabulary=["dog", "cat", "emu"])
    assert found.planned.classes == {"label": ("dog", "cat", "emu")}
    found = planned(photos, photos.parent, vocabulary=["cat"], unknown_label="oov")
    assert found.planned.classes == {"label": ("cat", "<unknown>")}


class TestPatterns:
    @pytest.mark.parametrize("pattern", ["hat", "hat/*", "hat/**", "hat*/"])
    def test_one_that_matches_no_file(self, photos: Folder, pattern: str) -> None:
        """The note says what it is compared with; only the last matches."""
        plan = planned(photos, photos.parent, exclude=[pattern])
        if pattern.endswith("*/"):
            assert plan.notes == ()
            return
        (note,) = plan.notes
        assert note.startswith(f"--exclude {pattern!r} matches no file: a pattern is")
        assert "'NAME/' for all files in folders" in note
        assert len(plan.inputs.entries) == 4

    @pytest.mark.parametrize("pattern", ["hat/", "*/hat/*", "h?t/"])
    def test_all_files_in_folders_of_a_name(self, photos: Folder, pattern: str) -> None:
        """At any depth, as a name with a slash behind it."""
        plan = planned(photos, photos.parent, exclude=[pattern])
        assert plan.notes == ()
        assert plan.planned.classes == {"label": ("cat", "dog")}
        kept = planned(photos, photos.parent, include=[pattern])
        assert {each.path for each in kept.inputs.entries} == {*PHOTOS[2:]}


@pytest.mark.parametrize("label", ["setting", "features"])
def test_a_file_that_changes_meanwhile_gives_one_plan(
    label: str, tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request and the schema say the same of a vocabulary that is replaced.

    So they do where several features name it.
    """
    names = tmp_path / "names.txt"
    names.write_text("a\nb\n")
    (tmp_path / "in.csv").write_text("x,y,z\na,b,1\nb,a,2\n")
    given = {"source": str(tmp_path / "in.csv"), "output": str(tmp_path / "out")}
    said = {"kind": "label", "vocabulary": str(names)}
    settings: dict[str, dict[str, Any]] = {
        "setting": {"label_column": "x", "vocabulary": str(names)},
        "features": {"features": {"x": said, "y": said}},
    }
    spec = make_spec({**given, **settings[label]})
    before = make_plan(spec)
    real = LocalPath.read_stamped

    def read_stamped(path: LocalPath, limit: int | None = None) -> tuple[bytes, int]:
        found = real(path, limit)
        if path.path == str(names):
            names.write_text("b\na\n")
        return found

    monkeypatch.setattr(LocalPath, "read_stamped", read_stamped)
    after = make_plan(spec)
    assert after.planned.schema == before.planned.schema
    assert after.request.settings == before.request.settings
    labels = after.planned.schema.of_kind(Kind.LABEL)
    assert {each.vocabulary for each in labels} == {("a", "b")}
    # The spec says what was given, and the file is another one by now.
    assert after.spec.vocabulary == spec.vocabulary
    assert after.spec.features == spec.features
    assert names.read_text() == "b\na\n"


@pytest.mark.parametrize(
    ("kind", "said", "expected"),
    [
        (Kind.INT64, {"min": 0, "max": 9}, {"at_least": 0, "at_most": 9}),
        (Kind.FLOAT, {"min": 0}, {"at_least": 0.0}),
        # As YAML reads 1e6, 1.5e6 and 5e-1.
        (Kind.INT64, {"max": "1e6"}, {"at_most": 1_000_000}),
        (Kind.INT64, {"max": "1.5e6"}, {"at_most": 1_500_000}),
        (Kind.FLOAT, {"min": "5e-1"}, {"at_least": 0.5}),
        (Kind.LABEL, {"allowed": [7, "cat"]}, {"allowed": ("7", "cat")}),
        (Kind.TEXT, {"pattern": "^[a-z]+$"}, {"matches": "^[a-z]+$"}),
        (Kind.TIMESTAMP, {"max": "1970-01-02"}, {"at_most": 86400}),
        (Kind.IMAGE, {}, {}),
    ],
)
def test_settings_become_fields(
    kind: Kind, said: dict[str, Any], expected: dict[str, Any]
) -> None:
    """Values are as rows have them, and a spec made of the feature says the same."""
    unit = "s" if kind is Kind.TIMESTAMP else ""
    feature = Feature("x", kind, unit=unit)
    found = with_contract(feature, FeatureSpec.model_validate({"kind": kind, **said}))
    assert found == Feature("x", kind, unit=unit, **expected)
    again = {k: v for k, v in contract_settings(found).items() if v is not None}
    assert with_contract(feature, FeatureSpec(**again)) == found


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Kind.IMAGE, {"min": 1}),
        (Kind.INT64, {"pattern": "a"}),
        (Kind.BOOL, {"allowed": [1]}),
        (Kind.INT64, {"min": 0.5}),
        (Kind.INT64, {"min": "many"}),
        (Kind.INT64, {"max": "9007199254740993"}),
        (Kind.FLOAT, {"max": "nan"}),
        (Kind.INT64, {"min": 2**63}),
        (Kind.INT64, {"min": 2, "max": 1}),
        (Kind.TEXT, {"allowed": []}),
        (Kind.TEXT, {"pattern": "(?=a)"}),
        (Kind.TEXT, {"pattern": "("}),
        (Kind.TIMESTAMP, {"min": "yesterday"}),
    ],
)
def test_what_no_value_could_keep_is_refused(kind: Kind, said: dict[str, Any]) -> None:
    """A spec that makes no sense ends before anything is read."""
    unit = "s" if kind is Kind.TIMESTAMP else ""
    with pytest.raises(SpecError):
        with_contract(Feature("x", kind, unit=unit), FeatureSpec(**said))
