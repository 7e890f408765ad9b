"""Bad input, from the command line: a reject with its reason, or one clear error.

Rows are those of a catalogue of faults that are known in this field. These need the
program: what is planned and later read, exit codes, names of the file system. Images
are in `tests/unit/core/image/`, trees in `tests/unit/formats/test_images_format.py`,
tables in `tests/unit/formats/csv/` and `tests/program/test_catalogue_tables.py`,
targets in `tests/unit/publishing/test_target.py`, values of settings in
`tests/unit/settings/test_spec.py`.
"""

import os
import pathlib
from collections.abc import Callable
from typing import Any

import pytest

from beam_pipeline.planning.plan import make_plan
from beam_pipeline.running.convert import convert_plan
from beam_pipeline.settings.spec import make_spec
from tests.support.image_sources import picture
from tests.support.outputs import account, names, rejects, rows
from tests.support.runs import convert, refused
from tests.support.sources import write_csv, write_files
from transforms.errors import InputError

# The stages' own code: what is tested here is not up to Beam.
pytestmark = pytest.mark.usefixtures("without_runner")

Folder = pathlib.Path
JPEG, PNG = picture("JPEG"), picture("PNG")


class TestImages:
    def test_an_unreadable_image_is_a_reject(
        self, tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A file that the system will not open is rejected, without a digest."""
        source = write_files(tmp_path / "tree", {"a/1.jpg": JPEG, "a/2.jpg": JPEG})
        opened = os.open

        def denied(path: Any, *arguments: Any, **named: Any) -> int:
            if str(path).endswith("2.jpg"):
                raise PermissionError(13, "Permission denied", path)
            return opened(path, *arguments, **named)

        monkeypatch.setattr(os, "open", denied)
        convert(source, tmp_path / "out", "--max-reject-rate", 0.5)
        (found,) = rejects(tmp_path / "out")
        assert (found["source"], found["reason"]) == ("a/2.jpg", "unreadable")
        assert found["sha256"] is None


class TestChangedDuringTheRun:
    """The stamp of the listing goes through the plan to the reader.

    Readers alone are tested below `tests/unit/`; the plan may lose the stamp.
    """

    def run(self, source: Folder, out: Folder, change: Callable[[], object]) -> None:
        """Plans a job, changes its source, and then runs the plan."""
        settings = {"source": str(source), "output": str(out), "max_reject_rate": 0.5}
        plan = make_plan(make_spec(settings))
        change()
        convert_plan(plan)

    def test_an_image_is_a_reject(self, tmp_path: Folder) -> None:
        """Another image under the name that was listed is no record (row 125)."""
        source = write_files(tmp_path / "tree", {"a/1.jpg": JPEG, "a/2.jpg": JPEG})
        path = source / "a" / "2.jpg"
        self.run(source, tmp_path / "out", lambda: path.write_bytes(PNG))
        (found,) = rejects(tmp_path / "out")
        assert (found["source"], found["reason"]) == ("a/2.jpg", "changed_during_run")

    def test_a_table_is_an_error(self, tmp_path: Folder) -> None:
        """Rows that were added are not ignored silently (row 67)."""
        source = write_csv(tmp_path / "t.csv", "n", range(100))
        data = source.read_bytes() + b"1000\n"
        with pytest.raises(InputError, match=r"t\.csv"):
            self.run(source, tmp_path / "out", lambda: source.write_bytes(data))
        assert not (tmp_path / "out").exists()


class TestTrees:
    def test_a_source_whose_own_name_is_not_utf8(self, tmp_path: Folder) -> None:
        """Bytes that are no text in the path of the source lose no image (row 124)."""
        source = tmp_path / os.fsdecode(b"bad\xff")
        write_files(source, {"a/1.jpg": JPEG})
        convert(source, tmp_path / "out")
        assert [row["filename"] for row in rows(tmp_path / "out")] == [b"a/1.jpg"]


class TestSources:
    @pytest.mark.parametrize(
        ("name", "word", "code"),
        [
            ("nothing", "nothing", 2),
            ("nothing/*.csv", "*.csv", 2),
            ("empty", "empty", 4),
            ("notes", "notes.txt", 4),
            ("notes/notes.txt", "notes.txt", 2),
            ("", "SOURCE", 2),
            ("object", "--format jsonl", 4),
            ("object/o.json", "--format jsonl", 4),
            ("notes/lists.json", "each row as an object", 4),
            ("notes/notes.xlsx", "beam_tfrecord.convert", 2),
        ],
    )
    def test_a_source_without_input_is_an_error(
        self,
        name: str,
        word: str,
        code: int,
        tmp_path: Folder,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """No such path is exit code 2, nothing to read there 4; both are shown."""
        (tmp_path / "empty").mkdir()
        notes = {"notes.txt": b"hello", "notes.xlsx": b"PK", "lists.json": b"[[1, 2]]"}
        write_files(tmp_path / "notes", notes)
        write_files(tmp_path / "object", {"o.json": b'{\n "rows": [{"a": 1}]\n}'})
        monkeypatch.chdir(tmp_path)
        message = refused(code, name, "out")
        assert word.lower() in message.lower()
        assert names(tmp_path) == ["empty", "notes", "object"]

    def test_an_empty_folder_of_images_may_be_allowed(self, tmp_path: Folder) -> None:
        """With --format and --min-records 0, no image is an empty dataset (row 29)."""
        (tmp_path / "empty").mkdir()
        options = ("--format", "images", "--min-records=0")
        convert(tmp_path / "empty", tmp_path / "out", *options)
        assert account(tmp_path / "out")["written"] == 0
