"""Conversions whose workers share only a store with the submitter, and their data."""

import dataclasses
import pathlib
import shutil

from tests.clusters.elsewhere.sites import Site
from tests.storage.conftest import Server
from tests.storage.program import Program
from tests.support.segments import IN_FILES

__all__ = ["CASES", "Case", "put_data"]

Folder = pathlib.Path

_KINDS = ("cat", "dog", "goat")
_ROWS = 200_000
_FEW = 5_000


@dataclasses.dataclass(frozen=True)
class Case:
    """A conversion, or two to one output.

    Attributes:
      source: in the bucket.
      flags: `{raw}` is the bucket's folder of sources, `{side}` a folder of the
        submitter, `{own}` and `{there}` are the run's own: of the submitter, and in
        the bucket.
      again: of the second run; None for none.
    """

    source: str
    flags: tuple[str, ...] = ()
    again: tuple[str, ...] | None = None

    def run(
        self, program: Program, site: Site, name: str, output: object, *engine: str
    ) -> None:
        """Runs it to its end.

        Args:
          program: of the submitter.
          site: where.
          name: of what is the run's own.
          output: the dataset.
          engine: the flags of an engine, last those of Beam.
        """
        own = site.side / "own" / name
        own.mkdir(parents=True)
        places = {
            "raw": f"{site.store.url}/raw",
            "side": site.side,
            "own": own,
            "there": f"{site.store.url}/own/{name}",
        }
        for flags in (self.flags, self.again):
            if flags is not None:
                filled = [each.format(**places) for each in flags]
                source = f"{site.store.url}/raw/{self.source}"
                program.run("convert", source, output, *filled, *engine)


_SHARES = ("--splits", "train=0.8,validation=0.1,test=0.1")
_LABELS = ("--id-column", "id")
_IDS = ("--key-column", "number")
_STRATA = (*_SHARES, "--stratify-column", "kind", "--split-lock")
CASES = {
    "rows": Case("rows.csv", (IN_FILES, *_SHARES, "--shards", "4")),
    "images": Case("photos"),
    "labels of the submitter": Case(
        "flat", ("--labels", "{side}/labels.csv", *_LABELS)
    ),
    "split ids of the submitter": Case(
        "rows.csv", ("--split-ids", "{side}/ids.csv", *_IDS)
    ),
    "strata, lock of the submitter": Case(
        "few.csv",
        (*_STRATA, "{own}/rows.lock"),
        (*_STRATA, "{own}/rows.lock", "--overwrite"),
    ),
    "labels in the store": Case("flat", ("--labels", "{raw}/labels.csv", *_LABELS)),
    "split ids in the store": Case("rows.csv", ("--split-ids", "{raw}/ids.csv", *_IDS)),
    "strata, lock in the store": Case("few.csv", (*_STRATA, "{there}/rows.lock")),
    "spec and vocabulary of the submitter": Case(
        "few.csv", ("--spec", "{side}/spec.yaml")
    ),
    "rejects": Case("bad.csv", ("--keep-rejected-bytes",)),
    "gzip": Case("few.csv", ("--compression", "gzip")),
    "another share": Case(
        "few.csv",
        ("--splits", "train=0.8,test=0.2"),
        ("--splits", "train=0.5,test=0.5", "--overwrite"),
    ),
    "table of images in the store": Case("table.csv", ("--image-columns", "image")),
}
"""By their titles; the first five are those that every engine runs."""


def put_data(store: Server, data: Folder, side: Folder) -> None:
    """Puts the sources into the bucket, and what the submitter has into its folder.

    Args:
      store: with an empty bucket.
      data: of `tests.clusters.conftest`.
      side: empty.
    """
    photos = data / "sample" / "photos"
    images = sorted(photos.rglob("*.jpg"))
    flat = side.parent / "flat"
    flat.mkdir()
    labels = ["id,kind"]
    table = ["image,kind"]
    for number, path in enumerate(images):
        shutil.copy(path, flat / f"{number:03}.jpg")
        labels.append(f"{number:03},{path.parent.name}")
        table.append(f"{store.url}/raw/flat/{number:03}.jpg,{path.parent.name}")
    ids = [
        "number,split",
        *(f"{n},{('train', 'test')[n % 7 == 0]}" for n in range(_ROWS)),
    ]
    few = ["number,kind,share", *(f"{n},{_KINDS[n % 3]},{n / 8}" for n in range(_FEW))]
    bad = ["a,b", *(f"{n},{n}{',more' * (n % 400 == 7)}" for n in range(1_000))]
    spec = f"label_column: kind\nvocabulary: {side}/vocabulary.txt\n"
    texts = {
        "labels.csv": labels,
        "table.csv": table,
        "ids.csv": ids,
        "few.csv": few,
        "bad.csv": bad,
    }
    for name, lines in texts.items():
        store.write(f"raw/{name}", ("\n".join(lines) + "\n").encode())
    for name in ("labels.csv", "ids.csv"):
        (side / name).write_bytes(store.read(f"raw/{name}"))
    (side / "vocabulary.txt").write_text("goat\ndog\ncat\n")
    (side / "spec.yaml").write_text(spec)
    store.write("raw/rows.csv", (data / "rows.csv").read_bytes())
    store.write_tree("raw/photos", photos)
    store.write_tree("raw/flat", flat)
