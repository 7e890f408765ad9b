"""A TFDS GeneratorBasedBuilder with Image and ClassLabel over a label folder."""

import argparse
import json
import os
import pathlib
import time
from collections.abc import Iterator
from typing import Any


def main() -> None:
    """Converts the photos; prints their number and the seconds as JSON."""
    import tensorflow_datasets as tfds

    parser = argparse.ArgumentParser()
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("output")
    parser.add_argument("--limit", type=int, default=0)
    arguments = parser.parse_args()
    tfds.disable_progress_bar()

    begun = time.perf_counter()
    paths = sorted(arguments.source.glob("train/*/*"))[: arguments.limit or None]

    class Photos(tfds.core.GeneratorBasedBuilder):
        """Photos in folders named after their labels."""

        VERSION = tfds.core.Version("1.0.0")

        def _info(self) -> tfds.core.DatasetInfo:
            labels = sorted({path.parent.name for path in paths})
            return tfds.core.DatasetInfo(
                builder=self,
                features=tfds.features.FeaturesDict(
                    {
                        "image": tfds.features.Image(),
                        "label": tfds.features.ClassLabel(names=labels),
                    }
                ),
            )

        def _split_generators(self, dl_manager: Any) -> dict[str, Any]:
            return {"train": self._generate_examples()}

        def _generate_examples(self) -> Iterator[tuple[str, dict[str, Any]]]:
            for path in paths:
                example = {"image": os.fspath(path), "label": path.parent.name}
                yield f"{path.parent.name}/{path.name}", example

    builder = Photos(data_dir=arguments.output)
    builder.download_and_prepare()
    work = time.perf_counter() - begun
    assert builder.info.splits["train"].num_examples == len(paths)
    print(json.dumps({"items": len(paths), "work_seconds": work}))


if __name__ == "__main__":
    main()
