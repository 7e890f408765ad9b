"""Stock Beam: ReadFromText, an Example per row, WriteToTFRecord; one worker."""

import argparse
import json
import time


def main() -> None:
    """Converts the rows; prints their number and the seconds as JSON."""
    import apache_beam as beam
    import tensorflow as tf
    from apache_beam.runners.portability.fn_api_runner import FnApiRunner

    parser = argparse.ArgumentParser()
    parser.add_argument("source")
    parser.add_argument("output")
    parser.add_argument("--rows", type=int, required=True)
    arguments = parser.parse_args()
    feature_of, features_of = tf.train.Feature, tf.train.Features
    int64_list, float_list = tf.train.Int64List, tf.train.FloatList
    bytes_list, example_of = tf.train.BytesList, tf.train.Example

    def to_example(line: str) -> bytes:
        # The data holds no quotes, so this is right, and faster than the csv module.
        flag, number, animal, value = line.split(",")
        feature = {
            "feature0": feature_of(int64_list=int64_list(value=[flag == "True"])),
            "feature1": feature_of(int64_list=int64_list(value=[int(number)])),
            "feature2": feature_of(bytes_list=bytes_list(value=[animal.encode()])),
            "feature3": feature_of(float_list=float_list(value=[float(value)])),
        }
        return example_of(features=features_of(feature=feature)).SerializeToString()

    begun = time.perf_counter()
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        (
            pipeline
            | "Read" >> beam.io.ReadFromText(arguments.source, skip_header_lines=1)
            | "Encode" >> beam.Map(to_example)
            | "Write" >> beam.io.WriteToTFRecord(arguments.output + "/rows.tfrecord")
        )
    work = time.perf_counter() - begun
    print(json.dumps({"items": arguments.rows, "work_seconds": work}))


if __name__ == "__main__":
    main()
