"""The tutorial's image_example loop: decode each JPEG to learn its shape."""

import argparse
import json
import pathlib
import time


def main() -> None:
    """Converts the photos; prints their number and the seconds as JSON."""
    import tensorflow as tf

    parser = argparse.ArgumentParser()
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("output")
    parser.add_argument("--limit", type=int, default=0)
    arguments = parser.parse_args()

    def bytes_feature(value: bytes) -> tf.train.Feature:
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))

    def int64_feature(value: int) -> tf.train.Feature:
        return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))

    def image_example(image_string: bytes, label: int) -> tf.train.Example:
        shape = tf.io.decode_jpeg(image_string).shape
        feature = {
            "height": int64_feature(shape[0]),
            "width": int64_feature(shape[1]),
            "depth": int64_feature(shape[2]),
            "label": int64_feature(label),
            "image_raw": bytes_feature(image_string),
        }
        return tf.train.Example(features=tf.train.Features(feature=feature))

    begun = time.perf_counter()
    paths = sorted(arguments.source.glob("train/*/*"))[: arguments.limit or None]
    ids = {name: i for i, name in enumerate(sorted({p.parent.name for p in paths}))}
    with tf.io.TFRecordWriter(arguments.output + "/images.tfrecords") as writer:
        for path in paths:
            example = image_example(path.read_bytes(), ids[path.parent.name])
            writer.write(example.SerializeToString())
    work = time.perf_counter() - begun
    print(json.dumps({"items": len(paths), "work_seconds": work}))


if __name__ == "__main__":
    main()
