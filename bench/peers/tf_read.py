"""tf.data.TFRecordDataset iterated from Python: one by one, or in batches."""

import argparse
import json
import time


def main() -> None:
    """Reads the records; prints their number and the seconds as JSON."""
    import tensorflow as tf

    parser = argparse.ArgumentParser()
    parser.add_argument("files", nargs="+")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--limit", type=int, default=0)
    arguments = parser.parse_args()

    begun = time.perf_counter()
    dataset = tf.data.TFRecordDataset(sorted(arguments.files))
    if arguments.limit:
        dataset = dataset.take(arguments.limit)
    records = 0
    if arguments.batch == 1:
        for _ in dataset:
            records += 1
    else:
        for batch in dataset.batch(arguments.batch):
            records += batch.shape[0]
    work = time.perf_counter() - begun
    print(json.dumps({"items": records, "work_seconds": work}))


if __name__ == "__main__":
    main()
