"""Archives written, planned and read as sources, without a runner."""

import csv
import functools
import io
import pathlib
from collections.abc import Iterable
from typing import Any

from PIL import Image

from beam_pipeline.planning.inputs import PlannedInputs, find_inputs
from beam_pipeline.planning.tables import plan_tables
from beam_pipeline.settings.spec import make_spec
from tests.support.archives import PACKERS, tar_of, zip_of
from tests.support.drawn_images import saved
from transforms.core.model import Block, Reading
from transforms.formats.input_files import write_listing
from transforms.formats.source import Source
from transforms.storage.files import storage

Folder = pathlib.Path


@functools.cache
def png(number: int) -> bytes:
    """A small image of its own colour."""
    colour = (number * 40 % 256, number * 7 % 256, 9)
    return saved(Image.new("RGB", (4 + number % 3, 3), colour), "PNG")


ARCHIVES = ["a.zip", "a.tar", "a.tar.gz", "a.tar.xz"]
PETS = [
    ("cat/1.png", png(1)),
    ("cat/2.png", png(2)),
    ("dog/고양이.png", png(3)),
    ("README.txt", b"about"),
    ("cat/.DS_Store", b"litter"),
]


def write(path: Folder, members: Iterable[tuple[str, bytes]]) -> Folder:
    """Writes an archive of the kind that its name says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    make = zip_of if path.suffix == ".zip" else tar_of
    pack = PACKERS.get(path.suffix.removeprefix("."), bytes)
    path.write_bytes(pack(make(dict(members))))
    return path


def plan(source: Folder | str, tmp: Folder, **settings: Any) -> PlannedInputs:
    given = {"source": str(source), "output": str(tmp / "out"), **settings}
    spec = make_spec(given)
    return plan_tables(spec, find_inputs(spec, storage(spec.source).standing()))


def source_of(planned: PlannedInputs, tmp: Folder) -> Source:
    listing = str(tmp / "listing.arrow")
    write_listing(planned.listing, listing, attempts=str(tmp))
    return planned.make(listing)


def readings(planned: PlannedInputs, tmp: Folder) -> list[tuple[Block, Reading]]:
    source = source_of(planned, tmp)
    blocks = [b for number in source.inputs() for b in source.blocks(number)]
    found = [(block, item) for block in blocks for item in source.read(block)]
    places = [(item.batch.block.origin, item.batch.block.start) for _, item in found]
    assert len(set(places)) == len(places)
    return found


def rows_of(planned: PlannedInputs, tmp: Folder) -> list[dict[str, Any]]:
    """Every row with its origin, number and split."""
    out = []
    for _, reading in readings(planned, tmp):
        batch = reading.batch
        rows = batch.rows.to_pylist()
        assert len(rows) == len(batch.numbers)
        for i, row in enumerate(rows):
            origin = batch.block.origin
            row["__origin"] = (
                origin if batch.origins is None else batch.origins[i].as_py()
            )
            row["__row"] = int(batch.numbers[i])
            if batch.splits is not None:
                row["__split"] = batch.splits[i].as_py()
            out.append(row)
    return out


def rejected(planned: PlannedInputs, tmp: Folder) -> dict[str, str]:
    found = readings(planned, tmp)
    return {r.source: str(r.reason) for _, item in found for r in item.rejections}


def skipped(planned: PlannedInputs, tmp: Folder) -> dict[str, int]:
    total: dict[str, int] = {}
    for _, item in readings(planned, tmp):
        for reason, count in item.skipped.items():
            total[reason] = total.get(reason, 0) + count
    return total


def csv_of(first: int, count: int) -> bytes:
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(["id", "name", "weight"])
    for i in range(first, first + count):
        writer.writerow([i, f'a "quoted"\nname, {i}', i / 4])
    return out.getvalue().encode()
