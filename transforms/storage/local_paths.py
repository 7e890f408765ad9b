"""Find paths of one machine among those that rows hold."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import numpy_mask

# Others are relative, or have the scheme of a store.
_LOCAL = r"^\s*(/|(?i:file):)"


def first_local(paths: pa.Array) -> tuple[int, str] | None:
    """Returns the first absolute path of a machine, and its row; None for none.

    Args:
      paths: texts, or lists of texts, one a row. What holds others has no paths.

    Example:
      >>> first_local(pa.array([["s3://b/a.jpg"], ["b.jpg", "/data/c.jpg"]]))
      (1, '/data/c.jpg')
    """
    texts, rows = paths, np.arange(len(paths))
    if pa.types.is_list(paths.type) or pa.types.is_large_list(paths.type):
        texts, rows = paths.flatten(), pc.list_parent_indices(paths).to_numpy()
    if not (pa.types.is_string(texts.type) or pa.types.is_large_string(texts.type)):
        return None
    local = numpy_mask(pc.fill_null(pc.match_substring_regex(texts, _LOCAL), False))
    if not local.any():
        return None
    at = int(local.argmax())
    return int(rows[at]), texts[at].as_py().strip()
