# What Dataflow's workers run in: Beam's own image, and this program with what it needs.
# From the root of the project:
#
#   docker build -f examples/dataflow/worker.Dockerfile -t "$WORKER_IMAGE" .
#
# The version of Beam must be that of who submits; so must that of Python.
ARG BEAM=2.77.0
FROM apache/beam_python3.11_sdk:${BEAM}
ARG BEAM

WORKDIR /opt/beam-tfrecord
COPY setup.py pyproject.toml MANIFEST.in README.md CHANGELOG.md CONTRIBUTING.md LICENSE ./
COPY beam_pipeline beam_pipeline
COPY beam_tfrecord beam_tfrecord
COPY transforms transforms
RUN pip install --no-cache-dir "apache-beam[gcp]==${BEAM}" '.[dataflow,heif]' \
    && python -c 'import beam_pipeline.graph, google.cloud.storage'
# The entry point stays Beam's /opt/apache/beam/boot.
