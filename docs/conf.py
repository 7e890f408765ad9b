"""Settings of the documentation; `make docs` builds it into `docs/_build`."""

import logging
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from beam_pipeline.version import __version__  # noqa: E402

# Without a handler, Beam's messages at import would be printed.
logging.getLogger().addHandler(logging.NullHandler())

project = "beam-tfrecord"
copyright = "the beam-tfrecord authors"
release = version = __version__

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
myst_enable_extensions = ["colon_fence", "deflist"]
# Links may name any heading down to the fourth level.
myst_heading_anchors = 4
# Smart quotes would change the dashes of options.
smartquotes = False

html_theme = "furo"
html_title = f"beam-tfrecord {version}"
html_static_path = ["_static"]
html_css_files = ["tables.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
