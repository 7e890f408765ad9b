"""What a plan says of given class names, and of patterns that match nothing."""

import pathlib
from typing import Any

import pytest
from PIL import Image

from beam_pipeline.planning.plan import Plan
from tests.support.plans import planned

Folder = pathlib.Path

PHOTOS = "train/cat/1.png train/dog/2.png train/hat/3.png test/hat/4.png".split()


@pytest.fixture
def photos(tmp_path: Folder) -> Folder:
    for path in PHOTOS:
        (tmp_path / "in" / path).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 3)).save(tmp_path / "in" / path)
    return tmp_path / "in"


def plan_of(photos: Folder, **settings: Any) -> Plan:
    return planned(photos, photos.parent, **settings)


class TestVocabulary:
    def test_its_classes_are_shown_and_others_counted(self, photos: Folder) -> None:
        """Records of a class that has no place will be rejects."""
        plan = plan_of(photos, vocabulary=["dog", "cat", "emu"])
        assert plan.planned.classes == {"label": ("dog", "cat", "emu")}
        (note,) = plan.notes
        assert note.startswith(
            "1 class of 'label' not in the vocabulary: 'hat'; the records are rejected."
        )

    def test_those_that_share_a_class(self, photos: Folder) -> None:
        """With `unknown_label` they are counted too."""
        plan = plan_of(photos, vocabulary=["cat"], unknown_label="oov")
        assert plan.planned.classes == {"label": ("cat", "<unknown>")}
        (note,) = plan.notes
        assert (
            "2 classes of 'label' not in the vocabulary: 'dog', 'hat'; the records"
            in note
        )
        assert note.endswith("the records get the class '<unknown>'")


class TestPatterns:
    @pytest.mark.parametrize("pattern", ["hat", "hat/*", "hat/**", "hat*/"])
    def test_one_that_matches_no_file(self, photos: Folder, pattern: str) -> None:
        """The note says what it is compared with; only the last matches."""
        plan = plan_of(photos, exclude=[pattern])
        if pattern.endswith("*/"):
            assert plan.notes == ()
            return
        (note,) = plan.notes
        assert note.startswith(f"--exclude {pattern!r} matches no file: a pattern is")
        assert "such as 'test/hat/4.png', or for the file name; 'NAME/' is for" in note
        assert len(plan.inputs.entries) == 4

    @pytest.mark.parametrize("pattern", ["hat/", "*/hat/*", "h?t/"])
    def test_all_files_in_folders_of_a_name(self, photos: Folder, pattern: str) -> None:
        """At any depth, as a name with a slash behind it."""
        plan = plan_of(photos, exclude=[pattern])
        assert plan.notes == ()
        assert plan.planned.classes == {"label": ("cat", "dog")}
        kept = plan_of(photos, include=[pattern])
        assert {each.path for each in kept.inputs.entries} == {*PHOTOS[2:]}
