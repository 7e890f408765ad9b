"""Detection sources as the tests read them, and their rows as records."""

import dataclasses
import io
import json
import os
import pathlib
import pickle
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from PIL import Image

from beam_pipeline.planning.inputs import PlannedInputs
from beam_pipeline.planning.plan import plan_source
from beam_pipeline.settings.spec import make_spec
from transforms.core.example.encoder import ExampleEncoder
from transforms.core.model import Reading
from transforms.core.reasons import Rejection
from transforms.core.schema import Kind, Schema, record_fields
from transforms.formats.detection.objects import BOXES
from transforms.formats.file_runs import RunReader, RunSource, TableSource
from transforms.formats.input_files import InlineListing, InputFiles
from transforms.formats.source import Source
from transforms.formats.table import InputFile, TableFormat
from transforms.storage.files import storage

Folder = pathlib.Path
POLICIES = ["box", "image", "clip"]


def write_image(path: Folder, size: tuple[int, int] = (64, 48)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (len(path.name), 9, 99)).save(path)


def float32(*values: float) -> list[float]:
    """Returns numbers as float32 holds them."""
    return [float(value) for value in np.array(values, np.float32)]


def decoded(png: bytes) -> Any:
    """Returns the pixels of a mask."""
    with Image.open(io.BytesIO(png)) as opened:
        assert (opened.format, opened.mode) == ("PNG", "L")
        return np.asarray(opened)


def write_json(path: Folder, content: Any, **options: Any) -> Folder:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, **options), encoding="utf-8")
    return path


def inputs(root: Folder, suffix: str) -> list[InputFile]:
    found = [e for e in storage(str(root)).list_tree() if e.path.endswith(suffix)]
    out, position = [], 0
    for entry in found:
        path = os.path.join(root, entry.path)
        out.append(InputFile(entry.path, path, entry.size, position, stamp=entry.stamp))
        position += entry.size
    return out


def source_of(root: Folder, reader: TableFormat, suffix: str, **options: Any) -> Source:
    """Plans a folder's files with this suffix, as the program does."""
    listed = inputs(root, suffix)
    beside = [e for e in storage(str(root)).list_tree() if not e.path.endswith(suffix)]
    planned = reader.with_companions(beside, whole=True).plan(listed)
    listing = str(root.parent / f"{root.name}.listing")
    files = listed if planned.files is None else planned.files
    table = InputFiles.of(files, root=str(root)).listing.table()
    with pa.OSFile(listing, "wb") as sink, pa.ipc.new_file(sink, table.schema) as out:
        out.write_table(table)
    kind: Any = RunSource if isinstance(planned.reader, RunReader) else TableSource
    schema = Schema(planned.features)
    source: Source = kind(planned.reader, str(root), listing, schema, **options)
    return source


def readings(source: Source) -> Iterator[Reading]:
    for number in source.inputs():
        for block in source.blocks(number):
            for reading in source.read(block):
                check_account(reading)
                yield reading


def check_account(reading: Reading) -> None:
    """Nothing is lost: neither rows nor parts of rows."""
    batch = reading.batch
    whole = [r for r in reading.rejections if not r.part]
    skipped = sum(reading.skipped.values())
    assert batch.block.rows == len(batch.rows) + len(whole) + skipped
    assert batch.rows.num_rows == len(batch.numbers)
    batch.rows.validate(full=True)
    names = [n for n in batch.rows.schema.names if n.startswith("image/object/")]
    # Several key points are of one object.
    names = [n for n in names if "/keypoint/" not in n or n.endswith("/num")]
    lengths = {tuple(map(len, batch.rows[name].to_pylist())) for name in sorted(names)}
    assert len(lengths) <= 1, "lists run parallel"
    written = sum(next(iter(lengths))) if lengths else 0
    bad = sum(r.part == BOXES for r in reading.rejections)
    gone = reading.parts_gone.get(BOXES, 0)
    assert reading.parts.get(BOXES, 0) == written + bad + gone
    for rejection in reading.rejections:
        assert len(rejection.message.encode()) <= 1024
        assert json.loads(rejection.to_json())


@dataclasses.dataclass
class Read:
    """Everything that was read from a source.

    Attributes:
      rows: as plain Python, with "split" and "number" among them.
      rejections: in the order in which they came.
      skipped: by reason.
    """

    rows: list[dict[str, Any]]
    rejections: list[Rejection]
    skipped: dict[str, int]

    @property
    def by_name(self) -> Mapping[str, dict[str, Any]]:
        return {row["image/filename"]: row for row in self.rows}


def planned(root: Folder, **settings: Any) -> PlannedInputs:
    """Plans a source as the program does."""
    spec = make_spec({"source": str(root), "output": "/nonexistent/out", **settings})
    return plan_source(spec)[1]


def read_planned(root: Folder, **settings: Any) -> Read:
    """Plans a source as the program does, and reads all of it."""
    plan = planned(root, **settings)
    source = plan.make(InlineListing.of(plan.listing.table()))
    return read_all(pickle.loads(pickle.dumps(source)))


def read_all(source: Source) -> Read:
    out = Read([], [], {})
    for reading in readings(source):
        batch = reading.batch
        count = len(batch.numbers)
        splits = batch.splits.to_pylist() if batch.splits else [None] * count
        origins = [batch.block.origin] * count
        if batch.origins is not None:
            origins = batch.origins.to_pylist()
        for i, row in enumerate(batch.rows.to_pylist()):
            number = int(batch.numbers[i])
            out.rows.append(
                {**row, "split": splits[i], "number": number, "origin": origins[i]}
            )
        out.rejections += reading.rejections
        for reason, number in reading.skipped.items():
            out.skipped[reason] = out.skipped.get(reason, 0) + number
    return out


def records(source: Source, root: Folder) -> list[bytes]:
    """Returns the rows as serialised Examples, images loaded, nothing derived."""
    out: list[bytes] = []
    features = [f for f in source.schema.stored if not f.derived]
    fields = [field for feature in features for field in record_fields(feature)]
    encoder = ExampleEncoder(pa.schema(fields))
    for reading in readings(source):
        columns: list[pa.Array] = []
        for feature in features:
            column = reading.batch.rows[feature.name]
            if feature.kind is Kind.BOX:
                flat = column.flatten().flatten()
                columns += [
                    pa.ListArray.from_arrays(
                        column.offsets, flat.take(pa.array(np.arange(i, len(flat), 4)))
                    )
                    for i in range(4)
                ]
            elif feature.kind is Kind.IMAGE:
                data = [(root / path).read_bytes() for path in column.to_pylist()]
                columns.append(pa.array(data, pa.large_binary()))
            else:
                columns.append(column)
        batch = pa.record_batch(columns, pa.schema(fields))
        out += encoder.encode(batch).to_pylist()
    return out
