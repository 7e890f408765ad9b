"""Labelled data to sharded TFRecord datasets: every public name, in one module.

    import beam_tfrecord

    report = beam_tfrecord.convert("photos", "out/photos", splits={"train": 1})

`beam_tfrecord.convert` and its kin are those of `beam_pipeline`, the stages, Examples
and errors those of `transforms`. Each is imported when it is first asked for.
"""

from typing import TYPE_CHECKING

import beam_pipeline
import transforms
from transforms.lazy_names import lazy_names

__all__: list[str] = []
__all__ += beam_pipeline.__all__
__all__ += transforms.__all__

if TYPE_CHECKING:
    from beam_pipeline import *
    from transforms import *
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {"beam_pipeline": beam_pipeline.__all__, "transforms": transforms.__all__},
    )
