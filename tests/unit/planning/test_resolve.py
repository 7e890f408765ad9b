"""Files that settings name: which a plan reads once."""

import pathlib
from typing import Any

import pytest

from beam_pipeline.planning.plan import make_plan
from beam_pipeline.settings.spec import make_spec
from transforms.core.schema import Kind
from transforms.storage.local import LocalPath

Folder = pathlib.Path


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
