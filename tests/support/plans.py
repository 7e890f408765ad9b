"""Plans of small tables, and the files that planning leaves as they are."""

import pathlib

from beam_pipeline.planning.plan import Plan, make_plan
from beam_pipeline.settings.spec import make_spec
from tests.support.segments import waiting
from tests.support.sources import write_csv

Folder = pathlib.Path


def planned(
    table: Folder, folder: Folder, where: str = "", /, **settings: object
) -> Plan:
    """Plans a job; `where` says where its rows wait, as in `tests.support.segments`."""
    given = {"source": str(table), "output": str(folder / "out"), **settings}
    with waiting(where):
        return make_plan(make_spec(given))


def everything(folder: Folder) -> dict[str, tuple[int, int, int]]:
    return {
        str(path): (path.lstat().st_ino, path.lstat().st_mtime_ns, path.lstat().st_size)
        for path in [folder, *folder.rglob("*")]
    }


def write_numbers(path: Folder, rows: int = 100) -> Folder:
    lines = [f"{i},{i / 4},{'cat' if i % 2 else 'dog'}" for i in range(rows)]
    return write_csv(path, "id,weight,animal", lines)
