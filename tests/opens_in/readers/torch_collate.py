"""PyTorch: batches of the default collate, and epochs of workers that stay.

    python -m tests.opens_in.readers.torch_collate FOLDER

Prints each tensor's type and shape in the first batch, and the ids of three epochs and
of the parts of a random split.
"""

import json
import sys
from typing import Any

import torch
from torch.utils.data import DataLoader, random_split

from beam_tfrecord import open_dataset


def main() -> None:
    """Reads the dataset of `test_loaders`."""
    view = open_dataset(sys.argv[1], missing="schema", times="int")["train"]
    loader = DataLoader(
        view, batch_size=32, shuffle=True, num_workers=2, persistent_workers=True
    )
    epochs = [
        [row for batch in loader for row in batch["id"].tolist()] for _ in range(3)
    ]
    rows: dict[int, Any] = {}
    first: dict[str, Any] = {}
    for batch in DataLoader(view, batch_size=32, num_workers=2):
        first = first or {
            name: [str(values.dtype), [*values.shape]]
            for name, values in batch.items()
            if isinstance(values, torch.Tensor)
        }
        for place, number in enumerate(batch["id"].tolist()):
            rows[number] = {
                name: values[place].tolist()
                if isinstance(values, torch.Tensor)
                else values[place]
                for name, values in batch.items()
            }
    split = random_split(view, [0.7, 0.3], torch.Generator().manual_seed(1))
    parts = [[row["id"] for row in part] for part in split]
    found = {"tensors": first, "rows": rows, "epochs": epochs, "parts": parts}
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
