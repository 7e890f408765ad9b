#!/bin/sh
# Converts every night, from cron:
#
#   17 2 * * *  /opt/beam-tfrecord/examples/cron.sh /data/photos /data/sets/photos
#
#   cron.sh SOURCE OUTPUT [OPTION..]    options are those of `beam-tfrecord convert`
#
# Needs no lock: of two runs on one target one commits and the other fails, and a run
# that was killed is taken up by the next. Says nothing when all is well, so that cron
# sends no mail. The exit code is that of `convert`:
#
#   0  committed, or up to date       2  wrong usage: it will fail every night
#   1  failed, the old dataset stands 3  too many rejects, the old dataset stands
#
# BEAM_TFRECORD    the program [beam-tfrecord]
# LOGS             folder of NAME.log, which grows, and NAME.json, the last report
#                  [~/.local/state/beam-tfrecord]
set -u

if [ $# -lt 2 ]; then
    echo "usage: cron.sh SOURCE OUTPUT [OPTION..]" >&2
    exit 2
fi
source=$1
output=${2%/}
shift 2
logs=${LOGS:-$HOME/.local/state/beam-tfrecord}
name=$(basename -- "$output")
log=$logs/$name.log
report=$logs/$name.json
mkdir -p -- "$logs" || exit 1

printf '%s convert %s %s\n' "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$source" "$output" \
    >>"$log"
# The last report stays whole until there is a new one.
${BEAM_TFRECORD:-beam-tfrecord} convert "$source" "$output" --overwrite \
    --report-json "$report.new" "$@" >>"$log" 2>&1
code=$?
if [ -s "$report.new" ]; then
    mv -f -- "$report.new" "$report"
else
    rm -f -- "$report.new"
fi
case $code in
0) ;;
3) echo "$output: too many rejects; see 'beam-tfrecord rejects $output' and $log" >&2 ;;
2) echo "$output: wrong usage, mend the crontab; see $log" >&2 ;;
*) echo "$output: failed with $code, the next run goes on; see $log" >&2 ;;
esac
exit "$code"
