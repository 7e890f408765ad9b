"""What all tests share: the same generated cases in every run, unless asked otherwise.

With `BEAM_TFRECORD_STRESS` set, as `make stress` does, generated cases are new ones in
each run; without it a run in CI says the same as the run before it.
"""

import os

from hypothesis import settings

settings.register_profile("fixed", derandomize=True, deadline=None)
settings.register_profile("stress", derandomize=False, deadline=None)
settings.load_profile("stress" if os.environ.get("BEAM_TFRECORD_STRESS") else "fixed")
