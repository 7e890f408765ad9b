"""`python -m beam_pipeline`, and this file itself, as schedulers run a pipeline."""

import os
import sys

if not __package__:
    # Run as a file: import the packages beside it, not the modules in its folder.
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

from beam_pipeline.cli import program

program()
