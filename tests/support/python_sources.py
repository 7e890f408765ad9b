"""Images in Python, as the API takes them."""

import pathlib
from typing import Any

import numpy as np

from tests.support.outputs import dataset

Folder = pathlib.Path
ANIMALS = ("cat", "dog", "chicken", "horse", "goat")


def features(directory: Folder) -> dict[str, dict[str, Any]]:
    return {facts["name"]: facts for facts in dataset(directory)["features"]}


def w1(count: int) -> dict[str, np.ndarray]:
    """The tutorial's columns: the last row is (False, 4, goat, 0.9876)."""
    random = np.random.default_rng(0)
    numbers = random.integers(0, 5, count)
    columns = {
        "feature0": random.integers(0, 2, count).astype(bool),
        "feature1": numbers,
        "feature2": np.array(ANIMALS)[numbers],
        "feature3": random.standard_normal(count),
    }
    for column, value in zip(columns.values(), (False, 4, "goat", 0.9876), strict=True):
        column[-1] = value
    return columns


def pixels(index: int) -> np.ndarray:
    return np.random.default_rng(index).integers(0, 255, (6, 7, 3)).astype(np.uint8)
