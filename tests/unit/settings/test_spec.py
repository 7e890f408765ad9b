"""The job as data: every setting, every fault of one, and where they come from."""

import io
import json
import pathlib
from collections.abc import Callable
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_pipeline.commands import convert as convert_command
from beam_pipeline.commands import group
from beam_pipeline.settings.options import SETTINGS as DECLARED
from beam_pipeline.settings.spec import (
    FeatureSpec,
    Spec,
    load_spec,
    make_spec,
)
from beam_pipeline.settings.values import parse_size
from transforms.core.image.resize import Resize
from transforms.errors import MAX_MESSAGE_BYTES, SpecError

Folder = pathlib.Path


def make(**settings: Any) -> Spec:
    return make_spec({"source": "in", "output": "out", **settings})


def fault(**settings: Any) -> str:
    with pytest.raises(SpecError) as caught:
        make(**settings)
    message = str(caught.value)
    assert len(message.encode()) <= MAX_MESSAGE_BYTES
    return message


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("crop:224", Resize("crop", 224, 224)),
        ("exact:20x30:box", Resize("exact", 20, 30, filter="box")),
        ("longer:9:enlarge", Resize("longer", 9, enlarge=True)),
        ("pad:9x8:lanczos:enlarge", Resize("pad", 9, 8, "lanczos", enlarge=True)),
    ],
)
def test_a_resize_names_its_filter_and_whether_images_grow(
    given: str, expected: Resize
) -> None:
    """Behind the size, in this order."""
    assert make(resize=given).image_policy.resize == expected


def test_a_kind_alone_is_a_feature() -> None:
    """`day: timestamp` is short for `day: {kind: timestamp}`, to the same spec."""
    short = make(features={"day": "timestamp"})
    assert short == make(features={"day": {"kind": "timestamp"}})
    assert "'timestamp'" in fault(features={"day": "timestmp"})
    # A feature may be called like a type, whose name pydantic adds.
    for name in ("day", "str", "int", "float", "bool"):
        for wrong in (None, 5, ["timestamp"]):
            assert fault(features={name: wrong}).startswith(f"features.{name}: ")
    # As YAML reads yes and no; they were the texts 1 and 0.
    for settings in ({"allowed": [True]}, {"min": True}):
        assert fault(features={"day": settings}).count("found True") == 1


def test_names_that_are_no_setting() -> None:
    """The nearest name is suggested; what is like no setting gets no guess."""
    assert "did you mean 'labels'" in fault(lables="x")
    message = fault(zzzzqqqq=1)
    assert "'zzzzqqqq'" in message
    assert "did you mean" not in message
    assert "'key_column'" in fault(key="id")
    assert "key_column" not in fault(features={"x": {"key": 1}})


@pytest.mark.parametrize(
    "settings",
    [
        {"source": ["s3://AK:hush@b/x"]},
        {"output": {"s3://AK:hush@b/x": 1}},
        {"source": [["rows", ("gs://AK:it's \"hush@b/x",)]]},
        {"labels": [b"s3://AK:hush@b/x"]},
        {"shards": "s3://AK:hush@b/x"},
        {"features": {"a": {"vocabulary": [["s3://AK:hush@b/x"]]}}},
        {"splits": {"train": ["s3://AK:hush@b/x"]}},
    ],
)
def test_a_path_of_the_wrong_type_shows_no_secret(settings: dict[str, Any]) -> None:
    """A value that cannot be shown safely is hidden, but its type is shown."""
    message = fault(**settings)
    assert "://..." in message
    assert "hush" not in message


@pytest.mark.parametrize(
    "text", ["source: s3://AK:hush@b/x?a: b\n", 'shards: 1\nsource: "s3://AK:hush@b\n']
)
def test_a_malformed_file_shows_no_secret(tmp_path: Folder, text: str) -> None:
    """The message has the parser's position, and not the text there."""
    with pytest.raises(SpecError, match=r"line \d") as caught:
        load_spec(yaml(tmp_path, text))
    assert "hush" not in str(caught.value)


def test_every_fault_is_named() -> None:
    """Several faults are reported at once, each with its setting and value."""
    message = fault(shards="many", seed=-1, shardz=4, compression="bz2")
    assert "shards: " in message
    assert "'many'" in message
    assert "seed: " in message
    assert "'shardz'" in message
    assert "'bz2'" in message


def test_what_must_be_given() -> None:
    """Source and output have no default."""
    with pytest.raises(SpecError, match=r"'source'.*'output'"):
        make_spec({})


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("format", "parquett"),
        ("splits", ""),
        ("splits", "train"),
        ("splits", "train=0.8,"),
        ("splits", "=0.5"),
        ("splits", "train=x"),
        ("splits", "train=1/0"),
        ("splits", "train=0"),
        ("splits", "train=-1"),
        ("splits", "train=1,train=2"),
        ("splits", "train=1, train=2"),
        ("splits", ["train"]),
        ("splits", {"train": None}),
        ("splits", {"train": float("nan")}),
        ("include", "*.jpg"),
        ("limit", 0),
        ("shards", 0),
        ("shards", 65_537),
        ("shards", "4 MB"),
        ("shards", True),
        ("shard_size", "0"),
        ("shard_size", "5 XB"),
        ("shard_size", 0),
        ("shard_size", 0.0),
        ("shard_size", -1.0),
        ("seed", -1),
        ("shuffle", "perhaps"),
        ("workers", 0),
        ("workers", "some"),
        ("resize", "224"),
        ("resize", "24x32"),
        ("resize", "shorter:224:sharp"),
        ("resize", "shorter:224:enlarge:box"),
        ("runner", "flnk"),
        *(("part", name) for name in ("a/b", ".hidden", "a b", "*")),
        ("max_reject_rate", 1.01),
        ("max_reject_rate", -0.1),
        ("max_reject_rate", float("nan")),
    ],
)
def test_values_that_are_refused(setting: str, value: Any) -> None:
    """A wrong value names its setting."""
    assert fault(**{setting: value}).startswith((f"{setting}: ", f"{setting}."))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"splits": "a=1"}, {"split_column": "x"}),
        ({"shards": 2}, {"shard_size": "1MB"}),
    ],
)
def test_settings_that_exclude_each_other(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    """Two answers to one question are refused, naming both."""
    message = fault(**one, **other)
    assert all(name in message for name in (*one, *other))


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1", 1),
        (1000, 1000),
        ("150MB", 150_000_000),
        ("150 mb", 150_000_000),
        ("64MiB", 64 << 20),
        ("1.5kB", 1500),
        ("0.1GB", 100_000_000),
        ("2GiB", 2 << 30),
        ("3B", 3),
        ("1KiB", 1024),
        (" 7 ", 7),
    ],
)
def test_sizes(text: str | int, size: int) -> None:
    """Units of 1,000 and of 1,024, in any case, exact."""
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "MB", "-1", "1,5MB", "1e6", "0", "0.1B", "1TB", "1 M", "1MBMB", "nan"]
)
def test_no_sizes(text: str) -> None:
    """Whatever is no number and unit above 0."""
    with pytest.raises(ValueError, match="size"):
        parse_size(text)


@pytest.mark.parametrize(
    ("value", "held"),
    [
        ("a=1/3,b=2/3", {"a": "1/3", "b": "2/3"}),
        (" a = 0.8 , b = 0.2 ", {"a": "0.8", "b": "0.2"}),
        ({"a": 0.8, "b": 1}, {"a": "0.8", "b": "1"}),
        ({"a": "1e-3"}, {"a": "1e-3"}),
        ("b=1,a=1", {"b": "1", "a": "1"}),
    ],
)
def test_shares_stay_as_given(value: Any, held: dict[str, str]) -> None:
    """Shares are kept as text, exact, in the order given."""
    spec = make(splits=value)
    assert spec.splits == held
    assert list(spec.splits) == list(held)


def test_what_decides_bytes() -> None:
    """Where, how many processes and how strictly: nothing of that decides bytes."""
    assert {n for n, each in DECLARED.items() if not each.decides_bytes} == {
        "source",
        "output",
        "images_root",
        "mask_classes",
        "labels",
        "split_ids",
        "split_lock",
        "vocabulary",
        "workers",
        "runner",
        "shared_output",
        "index",
        "catalogue",
        "max_reject_rate",
        "part",
        "like",
        "allow",
        "min_records",
        "max_records",
        "overwrite",
        "fingerprint",
    }


@given(
    st.dictionaries(
        st.sampled_from(list(DECLARED)) | st.text(max_size=6),
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats()
        | st.text(max_size=8)
        | st.lists(st.text(max_size=3), max_size=2)
        | st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2),
        max_size=6,
    )
)
def test_any_mapping_is_a_spec_or_a_spec_error(settings: dict[str, Any]) -> None:
    """Nothing else ever comes out of what a file or a program gives."""
    try:
        spec = make_spec(settings)
    except SpecError:
        return
    assert make_spec(spec.to_json()) == spec


def yaml(tmp_path: Folder, text: str | bytes) -> str:
    path = tmp_path / "job.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


def test_yaml(tmp_path: Folder) -> None:
    """A mapping of settings, written as people write YAML."""
    settings = load_spec(
        yaml(
            tmp_path,
            "source: 사진\noutput: out\nsplits: {train: 0.8, test: 0.2}\n"
            "shard_size: 64MiB\nshuffle: no\ninclude: ['*.jpg']\nworkers: auto\n"
            "null_values: ['-', 999]\npart: 2026-11-03\n"
            "features: {age: {kind: float, shape: [null, 4]},\n"
            "  day: {min: 2020-01-01, fill: 2020-02-30 10:00:00, allowed: [7, 0.5]}}\n",
        )
    )
    spec = make_spec(settings)
    assert spec.source == "사진"
    assert spec.splits == {"train": "0.8", "test": "0.2"}
    assert spec.shard_size == 64 << 20
    assert spec.shuffle is False
    assert spec.null_values == ["-", "999"]
    assert (spec.part, spec.output) == ("2026-11-03", "out/part=2026-11-03")
    limits: dict[str, Any] = {"min": "2020-01-01", "fill": "2020-02-30 10:00:00"}
    limits["allowed"] = [7, 0.5]
    assert spec.features == {
        "age": FeatureSpec(kind="float", shape=[None, 4]),
        "day": FeatureSpec(**limits),
    }
    assert make_spec(json.loads(json.dumps(spec.to_json()))) == spec


@pytest.mark.parametrize(
    "text",
    [
        "",
        "5",
        "just words",
        "- a\n- b",
        "a: [1",
        "a: b: c",
        b"\xff\xfe\x00",
        b"name: \x80",
        "name: !!python/object/apply:os.system ['true']",
        '{"format": "beam-tfrecord/1"}',
        '{"format": "beam-tfrecord/1", "run": {}}',
        '{"format": "beam-tfrecord/1", "run": 3}',
        '{"format": "beam-tfrecord/1", "run": {"spec": [1]}}',
        "[" * 5_000,
        "? [a, b]\n: 1\n? {c: d}\n: 2",
    ],
)
def test_files_that_are_no_spec(tmp_path: Folder, text: str | bytes) -> None:
    """Broken YAML and other things are a SpecError that names the file."""
    with pytest.raises(SpecError, match=r"job\.yaml"):
        load_spec(yaml(tmp_path, text))


def test_a_setting_given_twice_is_refused(tmp_path: Folder) -> None:
    """A key that occurs twice in the YAML is refused: one would be lost silently."""
    with pytest.raises(SpecError, match="shards"):
        load_spec(yaml(tmp_path, "shards: 4\nseed: 1\nshards: 8\n"))


def test_spec_that_cannot_be_read(tmp_path: Folder) -> None:
    """A missing file and a folder are named."""
    for path in (tmp_path / "nothing.yaml", tmp_path):
        with pytest.raises(SpecError, match=path.name):
            load_spec(str(path))


def settings_of(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    """Returns the settings that a command line asks for."""
    taken: list[dict[str, Any]] = []

    def take(settings: Callable[[], dict[str, Any]], **_: Any) -> int:
        taken.append(settings())
        return 0

    monkeypatch.setattr(convert_command, "run", take)
    command = ["convert", *arguments]
    group.cli.main(command, standalone_mode=False, obj={"beam_flags": []})
    (settings,) = taken
    return settings


def test_flags_win_over_the_spec(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is said on the command line replaces the file's value; the rest stays."""
    path = yaml(tmp_path, "source: a\noutput: b\nshards: 4\nseed: 1\nshuffle: false\n")
    settings = settings_of(
        ["x", "--spec", path, "--seed", "2", "--shuffle"], monkeypatch
    )
    assert settings == {
        "source": "x",
        "output": "b",
        "shards": 4,
        "seed": 2,
        "shuffle": True,
    }


def test_the_one_argument_beside_a_source_in_the_spec_is_the_output(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a spec names the source and no output, the argument can only be that."""
    path = yaml(tmp_path, "source: a\n")
    assert settings_of(["x", "--spec", path], monkeypatch) == {
        "source": "a",
        "output": "x",
    }
    assert settings_of(["y", "x", "--spec", path], monkeypatch)["source"] == "y"
    path = yaml(tmp_path, "output: b\n")
    assert settings_of(["x", "--spec", path], monkeypatch) == {
        "source": "x",
        "output": "b",
    }


def test_a_spec_on_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    """`--spec -` reads the YAML from standard input, with the same checks."""
    for text in (b"shards: 4\n", b"- shards\n"):
        stdin = io.TextIOWrapper(io.BytesIO(text))
        monkeypatch.setattr("sys.stdin", stdin)
        if text.startswith(b"-"):
            with pytest.raises(SpecError, match="mapping"):
                settings_of(["a", "b", "--spec", "-"], monkeypatch)
        else:
            given = settings_of(["a", "b", "--spec", "-"], monkeypatch)
            assert given == {"source": "a", "output": "b", "shards": 4}


def test_every_setting_has_a_flag() -> None:
    """Every setting of the spec can be given on the command line, and nothing else."""
    for command in (group.convert, group.plan):
        flags = {
            parameter.name
            for parameter in command.params
            if isinstance(parameter, click.Parameter)
        }
        extra = {"spec", "report_json", "quiet", "help_all"}
        # What a spec says of its features is too much for flags.
        assert flags - extra == set(Spec.model_fields) - {"features"}


def test_flags_make_the_same_spec_as_yaml(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command line, YAML and Python build equal specs."""
    flags = (
        "in out --format images --name n --splits a=1/3,b=2/3 --include *.jpg "
        "--include *.png --exclude x/* --limit 9 --shard-size 64MiB --seed 3 "
        "--no-shuffle --compression gzip --preset tutorial --feature-name image=raw "
        "--feature-name depth= --image-check none --workers 2 "
        "--max-reject-rate 0.25 --min-records 0 --overwrite"
    ).split()
    text = """
source: in
output: out
format: images
name: n
splits: {a: 1/3, b: 2/3}
include: ['*.jpg', '*.png']
exclude: [x/*]
limit: 9
shard_size: 64MiB
seed: 3
shuffle: false
compression: gzip
preset: tutorial
feature_names: {image: raw, depth: ''}
image_check: none
workers: 2
max_reject_rate: 0.25
min_records: 0
overwrite: true
"""
    by_flags = make_spec(settings_of(flags, monkeypatch))
    assert by_flags == make_spec(load_spec(yaml(tmp_path, text)))
