"""CIFAR-10, from the files of its authors to an epoch of PyTorch.

pip install . torch
curl -O https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz
tar xzf cifar-10-binary.tar.gz
python cifar_10.py
"""

from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, default_collate

import beam_tfrecord


def collate(rows: list[dict[str, Any]]) -> Any:
    """Makes a batch: feature name -> tensor; images from -1 to 1, channels first."""
    for row in rows:
        pixels = np.asarray(row["image"], np.float32) / 127.5 - 1
        row["image"] = pixels.transpose(2, 0, 1)
    return default_collate(rows)


def main() -> None:
    """Converts, trains for one epoch and tests."""
    report = beam_tfrecord.convert("cifar-10-batches-bin", "out/cifar", overwrite=True)
    print({name: each["records"] for name, each in report.splits.items()})

    torch.manual_seed(1)
    dataset = beam_tfrecord.open_dataset("out/cifar")
    classes = dataset.classes["label"]
    print("classes:", ", ".join(classes))
    columns = ["image", "label"]
    train, test = (
        DataLoader(
            dataset[split].select(columns),
            batch_size=32,
            shuffle=split == "train",
            collate_fn=collate,
            num_workers=2,
        )
        for split in ("train", "test")
    )
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 32, 5, stride=2),
        torch.nn.ReLU(),
        torch.nn.Conv2d(32, 64, 5, stride=2),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(64 * 5 * 5, len(classes)),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    for batch in train:
        loss = torch.nn.functional.cross_entropy(model(batch["image"]), batch["label"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss of the last batch: {loss.item():.2f}")

    with torch.no_grad():
        right = [
            model(batch["image"]).argmax(dim=1) == batch["label"] for batch in test
        ]
    print(f"{torch.cat(right).float().mean():.2f} of the test images are recognised")


if __name__ == "__main__":
    main()
