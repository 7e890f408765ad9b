"""Tests on real engines, which `scripts/cluster` starts: its modules are imported."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).parents[2] / "scripts"))
