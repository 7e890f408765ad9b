"""Arrow batches of a CSV through tfx_bsl's C++ encoder and tf.io.TFRecordWriter."""

import argparse
import json
import time


def main() -> None:
    """Converts the rows; prints their number and the seconds as JSON."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.csv
    import tensorflow as tf
    from tfx_bsl.coders.example_coder import RecordBatchToExamplesEncoder

    parser = argparse.ArgumentParser()
    parser.add_argument("source")
    parser.add_argument("output")
    arguments = parser.parse_args()

    begun = time.perf_counter()
    types = {
        "feature0": pa.bool_(),
        "feature1": pa.int64(),
        "feature2": pa.binary(),
        "feature3": pa.float32(),
    }
    reader = pyarrow.csv.open_csv(
        arguments.source,
        read_options=pyarrow.csv.ReadOptions(block_size=4 << 20, use_threads=False),
        convert_options=pyarrow.csv.ConvertOptions(column_types=types),
    )
    encoder = RecordBatchToExamplesEncoder()
    rows = 0
    with tf.io.TFRecordWriter(arguments.output + "/rows.tfrecord") as writer:
        write = writer.write
        for batch in reader:
            offsets = pa.array(np.arange(batch.num_rows + 1, dtype=np.int32))
            columns = [
                pa.ListArray.from_arrays(
                    offsets,
                    column.cast(pa.int64()) if name == "feature0" else column,
                )
                for name, column in zip(batch.schema.names, batch.columns, strict=True)
            ]
            lists = pa.RecordBatch.from_arrays(columns, batch.schema.names)
            for record in encoder.encode(lists):
                write(record)
            rows += batch.num_rows
    work = time.perf_counter() - begun
    print(json.dumps({"items": rows, "work_seconds": work}))


if __name__ == "__main__":
    main()
