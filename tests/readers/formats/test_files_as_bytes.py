"""Tests of `program/formats/test_files_as_bytes.py` with TensorFlow."""

import pathlib

import pytest

from tests.program.formats.test_files_as_bytes import FILES
from tests.support.outputs import payloads
from tests.support.runs import convert
from tests.support.sources import write_files


def test_tensorflow_decodes_the_audio(tmp_path: pathlib.Path) -> None:
    """`file` goes into `tf.audio.decode_wav` as it is."""
    tf = pytest.importorskip("tensorflow")
    write_files(tmp_path / "in", FILES)
    convert(tmp_path / "in", tmp_path / "out")
    seen = {}
    for record in payloads(tmp_path / "out", "train"):
        row = tf.io.parse_single_example(
            record,
            {
                "file": tf.io.FixedLenFeature([], tf.string),
                "filename": tf.io.FixedLenFeature([], tf.string),
            },
        )
        samples, rate = tf.audio.decode_wav(row["file"])
        assert (samples.shape, int(rate)) == ((100, 1), 8000)
        seen[row["filename"].numpy().decode()] = round(float(samples[0, 0]) * 32768)
    assert seen == {
        f"train/{label}/{n}.wav": n for label in ("cat", "dog") for n in range(4)
    }
