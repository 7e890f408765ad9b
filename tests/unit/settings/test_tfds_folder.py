"""`tfds_dir`: the output and the name that it means."""

import pytest

from beam_pipeline.settings.spec import make_spec
from beam_pipeline.settings.tfds_folder import load_call
from transforms.errors import SpecError


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("in/photos", "photos"),
        ("in/photos/", "photos"),
        ("rows.csv.gz", "rows"),
        ("my-cats and dogs.zip", "my_cats_and_dogs"),
        ("logs/*.parquet", "logs"),
        ("gs://bucket/rows.parquet", "rows"),
    ],
)
def test_the_name_comes_from_the_source(source: str, name: str) -> None:
    """A word that TFDS takes, without suffixes."""
    spec = make_spec({"source": source, "tfds_dir": "data"})
    assert (spec.output, spec.name) == (f"data/{name}/1.0.0", name)


def test_a_given_name_is_used() -> None:
    """In a bucket too; the spec of the run then says the output itself."""
    spec = make_spec({"source": "x", "tfds_dir": "gs://b/data", "name": "cats"})
    assert spec.output == "gs://b/data/cats/1.0.0"
    assert "tfds_dir" not in spec.changed_json()
    assert make_spec(spec.to_json()) == spec


@pytest.mark.parametrize("name", ["my-cats", "1cat", "cat.v2", "고양이"])
def test_a_name_that_tfds_cannot_load_is_refused(name: str) -> None:
    """The message says what TFDS takes."""
    with pytest.raises(SpecError, match="begins with a letter from A to Z"):
        make_spec({"source": "x", "tfds_dir": "data", "name": name})


def test_it_excludes_an_output() -> None:
    """One of them says where the dataset will be."""
    with pytest.raises(SpecError, match="output and tfds_dir exclude each other"):
        make_spec({"source": "x", "tfds_dir": "data", "output": "out"})


@pytest.mark.parametrize(
    ("output", "call"),
    [
        ("data/cats/1.0.0", "tfds.load('cats', data_dir='data')"),
        ("/data/cats/2.1.0/", "tfds.load('cats', data_dir='/data')"),
        ("cats/1.0.0", "tfds.load('cats', data_dir='.')"),
        ("data/my-cats/1.0.0", "tfds.builder_from_directory('data/my-cats/1.0.0')"),
        ("out/cats", "tfds.builder_from_directory('out/cats')"),
    ],
)
def test_the_call_that_opens_an_output(output: str, call: str) -> None:
    """`tfds.load` where TFDS finds the folder by its name."""
    assert load_call(output) == call
