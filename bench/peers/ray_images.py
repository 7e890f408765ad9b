"""Ray Data: `read_binary_files`, class ids from the paths, then `write_tfrecords`.

The files are stored as they are and nothing looks into them: `read_images` would decode
each one, and store pixels.
"""

import argparse
import json
import pathlib
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


def main() -> None:
    """Converts the photos; prints their number and the seconds as JSON."""
    import ray

    parser = argparse.ArgumentParser()
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("output")
    parser.add_argument("--limit", type=int, default=0)
    arguments = parser.parse_args()

    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    begun = time.perf_counter()
    paths = sorted(arguments.source.glob("train/*/*"))[: arguments.limit or None]
    ids = {name: i for i, name in enumerate(sorted({p.parent.name for p in paths}))}

    def labelled(rows: "pa.Table") -> "pa.Table":
        import pyarrow as pa

        names = (path.split("/")[-2] for path in rows["path"].to_pylist())
        labels = pa.array([ids[name] for name in names], pa.int64())
        return pa.table({"image": rows["bytes"], "label": labels})

    files = ray.data.read_binary_files(list(map(str, paths)), include_paths=True)
    rows = files.map_batches(labelled, batch_format="pyarrow")
    rows.write_tfrecords(arguments.output)
    work = time.perf_counter() - begun
    ray.shutdown()
    print(json.dumps({"items": len(paths), "work_seconds": work}))


if __name__ == "__main__":
    main()
