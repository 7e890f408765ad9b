"""The tutorial loop: an Example per row and tf.io.TFRecordWriter, rows in memory."""

import argparse
import json
import time


def main() -> None:
    """Converts the rows; prints their number and the seconds as JSON."""
    import numpy as np
    import tensorflow as tf

    parser = argparse.ArgumentParser()
    parser.add_argument("output")
    parser.add_argument("--rows", type=int, required=True)
    arguments = parser.parse_args()

    begun = time.perf_counter()
    rng = np.random.default_rng(0)
    numbers = rng.integers(0, 5, arguments.rows)
    animals = np.array([b"cat", b"dog", b"chicken", b"horse", b"goat"], object)
    # Python scalars, because protobuf converts them faster than NumPy scalars.
    feature0 = rng.integers(0, 2, arguments.rows).astype(bool).tolist()
    feature1 = numbers.tolist()
    feature2 = animals[numbers].tolist()
    feature3 = rng.standard_normal(arguments.rows).tolist()
    prepare = time.perf_counter() - begun

    # The tutorial's helpers, without the test for eager tensors in `_bytes_feature`
    # that makes a tensor on every call.
    def bytes_feature(value: bytes) -> tf.train.Feature:
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))

    def float_feature(value: float) -> tf.train.Feature:
        return tf.train.Feature(float_list=tf.train.FloatList(value=[value]))

    def int64_feature(value: int) -> tf.train.Feature:
        return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))

    def serialize_example(f0: bool, f1: int, f2: bytes, f3: float) -> bytes:
        feature = {
            "feature0": int64_feature(f0),
            "feature1": int64_feature(f1),
            "feature2": bytes_feature(f2),
            "feature3": float_feature(f3),
        }
        example = tf.train.Example(features=tf.train.Features(feature=feature))
        return example.SerializeToString()

    begun = time.perf_counter()
    with tf.io.TFRecordWriter(arguments.output + "/rows.tfrecord") as writer:
        for row in zip(feature0, feature1, feature2, feature3, strict=True):
            writer.write(serialize_example(*row))
    work = time.perf_counter() - begun
    facts = {"items": arguments.rows, "work_seconds": work, "prepare_seconds": prepare}
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
