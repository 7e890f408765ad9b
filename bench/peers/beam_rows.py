"""Beam's own way with dicts: an Example per row, WriteToTFRecord; one worker."""

import json
import pathlib
import sys
import time
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import apache_beam as beam
import own_rows


def main() -> None:
    """Writes the rows; prints their number and the seconds as JSON."""
    begun = time.perf_counter()
    import tensorflow as tf

    # Left out of the time: a leaner import of the messages would do.
    prepare = time.perf_counter() - begun
    feature_of, features_of = tf.train.Feature, tf.train.Features
    int64_list, float_list = tf.train.Int64List, tf.train.FloatList
    bytes_list, example_of = tf.train.BytesList, tf.train.Example
    classes = {name: number for number, name in enumerate(sorted(own_rows.LABELS))}

    def to_example(row: dict[str, Any]) -> bytes:
        feature = {
            "id": feature_of(int64_list=int64_list(value=[row["id"]])),
            "score": feature_of(float_list=float_list(value=[row["score"]])),
            "name": feature_of(bytes_list=bytes_list(value=[row["name"].encode()])),
            "fresh": feature_of(int64_list=int64_list(value=[row["fresh"]])),
            "label": feature_of(int64_list=int64_list(value=[classes[row["label"]]])),
        }
        example = example_of(features=features_of(feature=feature))
        payload: bytes = example.SerializeToString()
        return payload

    given = own_rows.arguments()
    write = "Encode" >> beam.Map(to_example) | "Write" >> beam.io.WriteToTFRecord(
        str(given.output / "rows.tfrecord")
    )
    seconds = own_rows.run(given, write)
    facts = {"items": given.rows, "prepare_seconds": prepare, "work_seconds": seconds}
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
