"""What the plan of a job says."""

import pytest

from beam_pipeline.commands.report import load_call


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
