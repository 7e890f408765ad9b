# Flink with Beam's job server, for the containers of flink.yaml that are Java. The jar is
# in `lib/`, so that its classes are loaded once and workers stay between stages:
#
#   scripts/cluster flink up && scripts/cluster flink down
#   cp ~/.cache/beam-tfrecord/jars/beam-runners-flink-1.20-job-server-*.jar job-server.jar
#   docker build -f examples/kubernetes/flink.Dockerfile -t "$FLINK_IMAGE" .
FROM flink:1.20-java17

COPY job-server.jar /opt/flink/lib/
