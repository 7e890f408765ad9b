"""PyTorch's DataLoader over a view as it is, with its default collate."""

import json
import math
import pathlib
from typing import Any

import pytest

import beam_tfrecord
from tests.opens_in.environments import python_of

Folder = pathlib.Path

ROWS = 100


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What the loader gives of rows with missing values, a fixed shape and a time."""
    folder = tmp_path_factory.mktemp("loaders")
    lines = ["id,age,weight,note,vector,seen"]
    for n in range(ROWS):
        age = "" if n % 3 == 0 else str(n)
        weight = "" if n % 4 == 0 else f"{n / 8}"
        note = "" if n % 5 == 0 else f"note {n}"
        seen = f"2024-01-02T03:04:05.{n:03}Z"
        lines.append(f"{n},{age},{weight},{note},{n} 0.5 -1,{seen}")
    (folder / "t.csv").write_text("\n".join(lines) + "\n")
    out = folder / "out"
    beam_tfrecord.convert(
        folder / "t.csv",
        out,
        shards=3,
        features={
            "vector": {"kind": "float", "shape": [3], "separator": " "},
            "seen": {"kind": "timestamp", "unit": "ms"},
            "note": "text",
        },
    )
    done = python_of("torch", "-m", "tests.opens_in.readers.torch_collate", str(out))
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_batches_have_types_and_shapes(found: Any) -> None:
    """Floats keep 32 bits, and a fixed shape is that of each batch."""
    assert found["tensors"] == {
        "id": ["torch.int64", [32]],
        "age": ["torch.int64", [32]],
        "weight": ["torch.float32", [32]],
        "vector": ["torch.float32", [32, 3]],
        "seen": ["torch.int64", [32]],
    }


def test_batches_have_the_values(found: Any) -> None:
    """Missing ones are those of the schema."""
    assert len(found["rows"]) == ROWS
    for number, row in found["rows"].items():
        n = int(number)
        assert row["age"] == (n if n % 3 else -1)
        assert row["weight"] == n / 8 if n % 4 else math.isnan(row["weight"])
        assert row["note"] == (f"note {n}" if n % 5 else "")
        assert row["vector"] == [n, 0.5, -1]
        assert row["seen"] == 1_704_164_645_000 + n


def test_no_record_comes_twice(found: Any) -> None:
    """In each epoch of two workers that stay, and over the parts of a random split."""
    every = [*range(ROWS)]
    orders = found["epochs"]
    assert [sorted(order) for order in orders] == [every] * 3
    assert orders[0] != orders[1] != orders[2]
    one, other = found["parts"]
    assert (len(one), len(other)) == (70, 30)
    assert sorted([*one, *other]) == every
