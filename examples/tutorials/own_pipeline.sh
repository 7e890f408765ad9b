# Runs examples/own_pipeline.py, and looks at what it has written.
set -eu
examples=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
python "$examples/own_pipeline.py" out/scored
beam-tfrecord inspect out/scored
