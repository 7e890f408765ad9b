# From TFRecord files of another program to a dataset, and to a part of it.
#
#   python -m beam_pipeline.sample .
#   sh tfrecord_to_subset.sh
set -eu

# What another program would have left: shards, and nothing that describes them.
beam-tfrecord convert photos made --overwrite --quiet
rm -rf theirs
mkdir theirs
cp made/*.tfrecord-* theirs

echo "1. what the files hold"
beam-tfrecord spec theirs

echo "2. a dataset, with splits and types; the bytes of the names are text"
cat >theirs.yaml <<'YAML'
features:
  filename: text
YAML
beam-tfrecord convert theirs out/theirs --spec theirs.yaml --key-column filename \
    --splits train=0.8,test=0.2 --overwrite

echo "3. the large ones of class 1"
beam-tfrecord subset out/theirs out/large --where "label == 1 and height > 100" \
    --overwrite
beam-tfrecord head out/large --split train -n 1

echo "4. without one that was asked to go"
echo train/square/0016.jpg >erased.txt
beam-tfrecord subset out/large out/less --drop-keys erased.txt --overwrite

echo "5. what differs (1 is the exit code of diff where anything does)"
code=0
beam-tfrecord diff out/large out/less || code=$?
echo "exit code $code"
