#!/bin/sh
# Converts every night, from cron:
#
#   17 2 * * *  /opt/beam-tfrecord/examples/cron.sh /data/photos /data/sets/photos
#
#   cron.sh SOURCE OUTPUT [OPTION..]    options are those of `beam-tfrecord convert`
#
# No lock is needed: while one run writes to a target, another one is refused with 5. The
# next run continues one that was killed. A successful run prints nothing, so that cron
# sends no mail; a failed one prints the program's error. A HUP, INT or TERM to this
# script stops `convert`, too; after a KILL `convert` goes on, and commits. The exit code
# is that of `convert`. With any code but 0 the old dataset remains:
#
#   0  committed, or up to date
#   1  failed: the next run continues
#   2  wrong command line, spec or output, or no such source: correct the crontab
#   3  too many rejects
#   4  the source is there, but its content does not fit
#   5  another run writes to the target, or has just done so: the next run may succeed
#   129, 130, 143, 137  ended by HUP, INT, TERM or KILL: the next run continues
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

touch -- "$log" || exit 1
start=$(wc -c <"$log")
printf '%s convert %s %s\n' "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$source" "$output" \
    >>"$log"
stop=
run=
trap 'stop=1; [ -z "$run" ] || kill "$run" 2>/dev/null' HUP INT TERM
# Keeps the last report whole until there is a new one.
${BEAM_TFRECORD:-beam-tfrecord} convert "$source" "$output" --overwrite \
    --report-json "$report.new" "$@" >>"$log" 2>&1 &
run=$!
[ -z "$stop" ] || kill "$run"
# A signal ends `wait`, not yet the run.
while :; do
    wait "$run"
    code=$?
    kill -0 "$run" 2>/dev/null || break
done
if [ -s "$report.new" ]; then
    mv -f -- "$report.new" "$report"
else
    rm -f -- "$report.new"
    # A signal leaves none, and the last one speaks of another run.
    [ "$code" -le 128 ] || rm -f -- "$report"
fi
case $code in
0) exit 0 ;;
2) echo "$output: wrong command, or no such source; see $log" ;;
3) echo "$output: too many rejects; the error says how to list them; see $log" ;;
4) echo "$output: the source does not fit; see $log" ;;
5) echo "$output: another run is at work there; see $log" ;;
*) echo "$output: failed with $code, the next run goes on; see $log" ;;
esac >&2
# Prints this run's part of the log from its error on, or its last line.
said=$(tail -c "+$((start + 1))" "$log")
error=$(printf '%s\n' "$said" | sed -n '/^error: /,$p' | head -n 20)
printf '%s\n' "${error:-$(printf '%s\n' "$said" | tail -n 1)}" >&2
exit "$code"
