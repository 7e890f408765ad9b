"""Files that settings name: how often a plan reads them."""

import collections
import pathlib

import pytest

from beam_pipeline.planning.plan import make_plan, plan_source
from beam_pipeline.planning.vocabularies import resolve
from beam_pipeline.settings.spec import make_spec
from transforms.core.schema import Kind
from transforms.storage.local import LocalPath

Folder = pathlib.Path
Reads = collections.Counter[str]


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    """Counts how often each file is read whole, by its name."""
    found: Reads = collections.Counter()
    real = LocalPath.read_stamped

    def read_stamped(path: LocalPath, limit: int | None = None) -> tuple[bytes, int]:
        found[pathlib.Path(path.path).name] += 1
        return real(path, limit)

    monkeypatch.setattr(LocalPath, "read_stamped", read_stamped)
    return found


def test_a_vocabulary_is_read_once(tmp_path: Folder, reads: Reads) -> None:
    """However many features name it, and in the spec as well."""
    (tmp_path / "names.txt").write_text("a\nb\n")
    (tmp_path / "in.csv").write_text("x,y,z\na,b,1\nb,a,2\n")
    names = str(tmp_path / "names.txt")
    said = {"kind": "label", "vocabulary": names}
    given = {"source": str(tmp_path / "in.csv"), "output": str(tmp_path / "out")}
    spec = make_spec({**given, "features": {"x": said, "y": said}})
    plan = make_plan(spec)
    assert reads["names.txt"] == 1
    labels = plan.planned.schema.of_kind(Kind.LABEL)
    assert [label.vocabulary for label in labels] == [("a", "b")] * 2
    # The spec says what was given.
    assert plan.spec.features["x"].vocabulary == names
    plan_source(make_spec({**given, "label_column": "x", "vocabulary": names}))
    assert reads["names.txt"] == 2


def test_a_file_that_changes_meanwhile_gives_one_plan(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request and the schema say the same of a vocabulary that is replaced."""
    names = tmp_path / "names.txt"
    names.write_text("a\nb\n")
    (tmp_path / "in.csv").write_text("x,z\na,1\nb,2\n")
    spec = make_spec(
        {
            "source": str(tmp_path / "in.csv"),
            "output": str(tmp_path / "out"),
            "label_column": "x",
            "vocabulary": str(names),
        }
    )
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
    assert resolve(spec).vocabulary == ["b", "a"]
