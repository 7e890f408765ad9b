"""Public transforms refuse elements of a wrong type when the pipeline is built."""

import inspect
import pathlib
from collections.abc import Callable
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.typehints.decorators import TypeCheckError

import beam_tfrecord
from beam_tfrecord import (
    CommitDataset,
    CountShards,
    DecodeExamples,
    EncodeExamples,
    PlaceRows,
    ReadAllTFRecords,
    ReadBlocks,
    ReadTFRecords,
    SpecError,
    WriteDataset,
    WriteShards,
    WriteTFRecords,
)
from tests.support.tfrecord_pipelines import pipeline

# Of the transforms of stages only the types of elements matter here.
NONE: Any = None
TAKE_ELEMENTS: dict[str, Callable[[], beam.PTransform[Any, Any]]] = {
    "CommitDataset": lambda: CommitDataset(NONE, NONE, NONE),
    "CountShards": lambda: CountShards(NONE),
    "DecodeExamples": DecodeExamples,
    "EncodeExamples": EncodeExamples,
    "PlaceRows": lambda: PlaceRows(NONE),
    "ReadAllTFRecords": ReadAllTFRecords,
    "ReadBlocks": lambda: ReadBlocks(NONE, NONE),
    "WriteDataset": lambda: WriteDataset("out"),
    "WriteShards": lambda: WriteShards(NONE, NONE),
    "WriteTFRecords": lambda: WriteTFRecords("out"),
}
SOURCES = {"ListBlocks", "ReadDataset", "ReadRows", "ReadTFRecords"}


def test_all_public_transforms_are_here() -> None:
    """One that is new is tested too."""
    public = {name: getattr(beam_tfrecord, name) for name in beam_tfrecord.__all__}
    assert TAKE_ELEMENTS.keys() | SOURCES == {
        name
        for name, found in public.items()
        if inspect.isclass(found) and issubclass(found, beam.PTransform)
    }


@pytest.mark.parametrize("name", TAKE_ELEMENTS)
@pytest.mark.parametrize("elements", [[1.5], [[1, 2]]])
def test_wrong_elements_are_refused(name: str, elements: list[Any]) -> None:
    """Before a pipeline runs, by Beam or by a sentence of ours."""
    given = pipeline() | beam.Create(elements)
    transform = TAKE_ELEMENTS[name]()
    with pytest.raises((TypeCheckError, SpecError), match=r"type hint|must be a row"):
        _ = given | transform


def test_what_is_read_has_a_type(tmp_path: pathlib.Path) -> None:
    """So the next step of a user is checked against it."""
    records = pipeline() | ReadTFRecords(str(tmp_path / "x"), validate=False)
    with pytest.raises(TypeCheckError, match="requires PCollections of type"):
        _ = records | beam.Map(lambda size: size).with_input_types(int)


@pytest.mark.parametrize(
    ("ours", "peer", "lacks", "adds"),
    [
        (WriteTFRecords, beam.io.WriteToTFRecord, {"triggering_frequency"}, set()),
        (ReadTFRecords, beam.io.ReadFromTFRecord, set(), set()),
        (ReadAllTFRecords, beam.io.ReadAllFromTFRecord, set(), {"validate"}),
    ],
)
def test_parameters_are_those_of_beam(
    ours: Any, peer: Any, lacks: set[str], adds: set[str]
) -> None:
    """In the same order, but for those that the documentation names."""
    wanted = [
        name
        for name in inspect.signature(peer).parameters
        if name not in lacks | {"self"}
    ]
    found = [name for name in inspect.signature(ours).parameters if name not in adds]
    assert found == wanted
