"""Damaged files beside the data: manifests, specs, tables of labels, lists of names."""

import functools
import pathlib
import random
from collections import Counter
from collections.abc import Callable

import pytest

from beam_pipeline.planning.features import class_names
from beam_pipeline.settings.spec import load_spec, make_spec
from tests.conftest import Headline
from tests.support.datasets import animals, write_dataset
from tests.support.drawn_images import picture, saved
from tests.support.fuzzing import (
    Outcome,
    at_most,
    mutated,
    nothing_unraised,
    outcome_of,
    planned_source,
    read_planned,
)
from tests.support.stress import CASES
from transforms.core.manifest import Manifest
from transforms.errors import MAX_MESSAGE_BYTES, BeamTFRecordError, SpecError
from transforms.work.split_tables import open_assignments, read_split_ids

Folder = pathlib.Path

SPEC = """\
source: rows.csv
output: out/rows
label_column: feature2
splits: {train: 0.8, test: 0.2}
shards: 2
max_reject_rate: 1e-2
compression: gzip
include: ["*.csv", '가/*']
resize: shorter:24
features:
  years: {column: age, kind: int64, fill: -1}
  tags: {kind: label, separator: "|", vocabulary: [a, b]}
  version: {constant: 2}
  patient: {path: '([^/]+)_\\d+\\.png$'}
  t: {kind: tensor, shape: [null, 3], dtype: float32, encoding: proto}
"""
IN_YAML = tuple(
    word.encode()
    for word in (
        *(
            ": ",
            "- ",
            "[",
            "]",
            "{",
            "}",
            "&a ",
            "*a",
            "!!python/object:os.system ",
            "|",
        ),
        *("~", "null", ".nan", ".inf", "-1", "0", "1e400", "yes", "0x10", "2024-01-01"),
        *("\t", "\n", "---\n", "? ", "<<: ", "#", "'", '"', "%", "9" * 40, "\ufeff"),
    )
)
IN_JSON = tuple(
    b'{ } [ ] , : " null true -1 1e999 99999999999999999999 0.5 NaN \\ud800 []'.split()
)
LABELS = "id,label,weight\n1,cat,0.5\n2,개,1\ntrain/a/3,dog,2\n"
IDS = "id,split\n" + "".join(f"k{i},{'train' if i % 3 else 'test'}\n" for i in range(9))


def counted(
    data: bytes,
    cases: range,
    read: Callable[[bytes], object],
    tokens: tuple[bytes, ...] = (),
) -> Counter[str]:
    """Returns how many damaged files were read, and how many refused."""
    outcomes: Counter[str] = Counter()
    for case in cases:
        damaged = mutated(data, random.Random(case), tokens)
        try:
            with at_most(), nothing_unraised():
                refused = message_of(functools.partial(read, damaged))
        except BaseException as error:
            error.add_note(f"case {case}: {damaged!r}")
            raise
        assert len(refused.encode()) <= MAX_MESSAGE_BYTES
        outcomes["refused" if refused else "read"] += 1
    return outcomes


def message_of(read: Callable[[], object]) -> str:
    """Returns the message of the typed error that it ends with, or nothing."""
    try:
        read()
    except BeamTFRecordError as error:
        return str(error)
    return ""


def from_file(path: Folder, read: Callable[[str], object], data: bytes) -> None:
    path.write_bytes(data)
    read(str(path))


@pytest.mark.parametrize("cases", CASES, ids=str)
def test_damaged_manifests(cases: range, tmp_path: Folder, headline: Headline) -> None:
    """A manifest in which anything but `run` has changed is refused as damaged."""
    made = write_dataset(tmp_path / "d", {"train": animals(3, 2), "test": animals(1)})
    data = made.to_bytes()

    def read(damaged: bytes) -> None:
        found = Manifest.from_bytes(damaged)
        assert found.digest == made.digest
        assert (found.splits, found.features) == (made.splits, made.features)

    outcomes = counted(data, cases, read, IN_JSON)
    assert outcomes["refused"] > len(cases) // 2, outcomes
    headline("H5", "{} damaged manifests: all refused or the same", len(cases))


@pytest.mark.parametrize("cases", CASES, ids=str)
def test_damaged_specs(cases: range, tmp_path: Folder, headline: Headline) -> None:
    """A spec is a job or a typed error; no YAML runs code or expands without end."""

    def read(path: str) -> None:
        make_spec(load_spec(path))

    outcomes = counted(
        SPEC.encode(),
        cases,
        functools.partial(from_file, tmp_path / "s.yaml", read),
        IN_YAML,
    )
    assert min(outcomes["read"], outcomes["refused"]) > len(cases) // 20, outcomes
    headline("H5", "{} damaged specs: no crash or untyped error", len(cases))


@pytest.mark.parametrize("setting", ["features", "include", "splits"])
def test_aliases_do_not_expand_without_end(setting: str, tmp_path: Folder) -> None:
    """Nine lines of YAML that expand to a billion values are refused at once."""
    lines = ["source: x", "output: y", f"{setting}:", f"- &a0 [{'x, ' * 10}]"]
    lines += [f"- &a{i} [{f'*a{i - 1}, ' * 10}]" for i in range(1, 9)]
    path = tmp_path / "s.yaml"
    path.write_text("\n".join(lines))
    with at_most(), pytest.raises(SpecError, match="aliases expand to too many values"):
        make_spec(load_spec(str(path)))


@pytest.mark.parametrize("cases", CASES, ids=str)
def test_damaged_lists_of_names(
    cases: range, tmp_path: Folder, headline: Headline
) -> None:
    """Vocabularies, tables of ids and locks are read or refused."""
    tokens = (b"\n", b"\r", b"\0", b",", b'"', b"\xff", b"\xef\xbb\xbf", b"train")
    kinds: dict[str, tuple[bytes, Callable[[str], object]]] = {
        "names.txt": ("cat\n개\n dog \n".encode(), class_names),
        "ids.csv": (IDS.encode(), functools.partial(read_split_ids, identity="key")),
        "rows.lock": (b"ARROW1\0\0" + bytes(300), open_assignments),
    }
    for name, (data, read) in kinds.items():
        outcomes = counted(
            data, cases, functools.partial(from_file, tmp_path / name, read), tokens
        )
        assert outcomes["refused"] > len(cases) // 20, (name, outcomes)
    headline("H5", "{} damaged lists of names, ids, locks", 3 * len(cases))


@pytest.mark.parametrize("cases", CASES, ids=str)
def test_damaged_tables_of_labels(
    cases: range, tmp_path: Folder, headline: Headline
) -> None:
    """Every image is written or rejected, whatever the table beside them says."""
    tree = tmp_path / "tree"
    for name in ("1", "2", "train/a/3"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / f"{name}.png").write_bytes(saved(picture(height=5, width=4), "PNG"))
    path = tmp_path / "labels.csv"
    tokens = (b"\n", b"\r", b"\0", b",", b'"', b"\xff", b"\xef\xbb\xbf", b"1,cat,2\n")

    def read() -> Outcome:
        settings = {"labels": str(path), "id_column": "id", "label_column": "label"}
        return read_planned(planned_source(tree, **settings), tree)

    outcomes: Counter[str] = Counter()
    for case in cases:
        path.write_bytes(mutated(LABELS.encode(), random.Random(case), tokens))
        outcome = outcome_of(read)
        outcomes[outcome.kind] += 1
        images = [r for r in outcome.rows if r[0].endswith(".png")]
        assert outcome.error or len(images) + outcome.rejected >= 3
    assert min(outcomes.values()) > len(cases) // 50, outcomes
    headline("H5", "{} damaged tables of labels: no image lost", len(cases))
