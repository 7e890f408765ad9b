#!/usr/bin/env bash
# Sets everything up in .venv beside this file and runs the program there.
#
#   ./run_local.sh              converts a small sample into out/ and shows the result
#   ./run_local.sh quick [WHAT] runs the linter, the type checker and the unit tests, all
#                               or those of WHAT: formats/csv, core/boxes
#   ./run_local.sh test [ARG..] runs the whole test suite; arguments go to pytest
#   ./run_local.sh test-clusters [ARG..] runs the tests on real engines and stores
#   ./run_local.sh stress [ARG..] runs it with generated cases in large numbers, and
#                               every kill, schedule and layout; some hours
#   ./run_local.sh test-lowest [ARG..] converts the sample and runs the tests named in
#                               tests/lowest.txt, with the oldest libraries of setup.py
#   ./run_local.sh smoke        runs one job each on Prism, on Flink and on an S3 server
#   ./run_local.sh check        runs the linter and the type checker, builds the docs, and
#                               runs the tests of the repository itself
#   ./run_local.sh docs         builds the documentation into docs/_build
#   ./run_local.sh setup [EXTRA] only installs the project, with an extra: test, dev or
#                               clusters
#   ./run_local.sh ARG...       runs `beam-tfrecord ARG...`
#
# Needs Python 3.11 or newer; PYTHON=/path/to/python chooses one.
set -euo pipefail

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
venv="$root/.venv"
export PIP_DISABLE_PIP_VERSION_CHECK=1
# Images of containers set it. Each of the processes that the program and its tests start
# would compile what it imports: the suite took 8 % longer with it.
unset PYTHONDONTWRITEBYTECODE

say() { printf '%s\n' "$*" >&2; }
die() { say "error: $*"; exit 1; }

# Prints a Python of 3.11 or newer that can make environments. 3.11 to 3.13 come
# first: the readers that the tests compare with are not built for later ones.
find_python() {
    local seen='' without_venv='' candidate version newest
    for newest in 13 99; do
        seen=''
        for candidate in "${PYTHON:-}" python3 python3.13 python3.12 python3.11 python; do
            [ -n "$candidate" ] || continue
            version=$("$candidate" -c 'import platform as p; print(p.python_version())' \
                2>/dev/null) || continue
            seen="${seen:+$seen, }$candidate ($version)"
            "$candidate" -c "import sys
sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, $newest))" || continue
            if ! "$candidate" -c 'import ensurepip, venv' 2>/dev/null; then
                without_venv=$candidate
                continue
            fi
            printf '%s\n' "$candidate"
            return
        done
    done
    if [ -n "$without_venv" ]; then
        die "$without_venv cannot make environments: its module venv or ensurepip is" \
            "missing. On Debian and Ubuntu: apt install python3-venv"
    fi
    die "Python 3.11 or newer is needed; found: ${seen:-none}. Install one, or name" \
        "it: PYTHON=/path/to/python3.11 ./run_local.sh"
}

# Whether the stamp $1 says that the environment is as setup.py now wants it.
is_current() {
    [ -x "$venv/bin/python" ] && [ -f "$1" ] && [ "$(cat "$1")" = "$want" ]
}

# install [EXTRA]: installs once, and again only when setup.py has changed or the
# project has been moved.
install() {
    local extra=${1-} want python
    local run_stamp="$venv/.beam-tfrecord" stamp="$venv/.beam-tfrecord${1:+-$1}"
    want=$(cd "$root" && printf '%s\n' "$root" && cksum setup.py)
    if is_current "$stamp"; then
        return
    fi
    # An environment that was moved or half made is replaced.
    if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1 ||
        { [ -f "$run_stamp" ] && [ "$(head -n 1 "$run_stamp")" != "$root" ]; }; then
        python=$(find_python)
        say "Making the environment .venv with $("$python" --version) ..."
        "$python" -m venv --clear "$venv"
    fi
    say "Installing the project${extra:+ and its extra [$extra]} into .venv" \
        "(once; this can take minutes) ..."
    "$venv/bin/python" -m pip install --quiet --editable "$root${extra:+[$extra]}" ||
        die "pip could not install the project; its message stands above"
    # pip compiles what it installs, but not what stays where it is.
    (cd "$root" && "$venv/bin/python" -m compileall -q \
        beam_pipeline beam_tfrecord transforms)
    printf '%s\n' "$want" >"$stamp"
    printf '%s\n' "$want" >"$run_stamp"
    if [ "$extra" = dev ]; then # which holds the extras test and docs
        printf '%s\n' "$want" >"$venv/.beam-tfrecord-test"
        printf '%s\n' "$want" >"$venv/.beam-tfrecord-docs"
    fi
}

show() {
    printf '\n$ beam-tfrecord'
    printf ' %s' "$@"
    printf '\n'
    "$venv/bin/beam-tfrecord" "$@"
}

# Every warning is an error: a broken link, a page that no contents list names, ...
docs() {
    cd "$root"
    "$venv/bin/python" -m sphinx -W --keep-going --quiet -b html docs docs/_build
}

sample() {
    cd "$root"
    "$venv/bin/python" -m beam_pipeline.sample out/sample
    show convert out/sample/photos out/photos --overwrite
    show convert out/sample/rows.csv out/rows \
        --splits train=0.8,validation=0.1,test=0.1 --overwrite
    show inspect out/photos
    show head out/rows -n 2
    show verify out/photos
}

lint() {
    local status=0
    "$venv/bin/python" -m ruff format --check "$@" || status=1
    "$venv/bin/python" -m ruff check "$@" || status=1
    return "$status"
}

# types [PATH..]: without one, all that pyproject.toml lists.
types() {
    "$venv/bin/python" -m mypy "$@"
}

# quick_paths WHAT: prints the code and the unit tests of a folder or module, a line each.
quick_paths() {
    local path
    for path in {beam_pipeline,transforms,tests/unit}/"$1"{,.py} \
        "tests/unit/$(dirname "$1")/test_$(basename "$1").py"; do
        if [ -e "$path" ]; then
            printf '%s\n' "$path"
        fi
    done
}

# As many processes as cores. tests/conftest.py says which tests stay together. Folders
# come in their order, the last of which, tests/unit, has the short files: so no process
# waits long for another at the end.
tests_side_by_side() {
    "$venv/bin/python" -m pytest --numprocesses=auto --dist=loadgroup \
        --no-loadscope-reorder "$@"
}

case "${1-}" in
'')
    install
    sample
    ;;
quick)
    shift
    install dev
    cd "$root"
    what=${1-}
    status=0
    if [ -z "$what" ]; then
        lint . || status=1
        types || status=1
        # Generated cases take a third of the time, and find what is rare.
        tests_side_by_side --quiet -m 'not stress and not hypothesis' tests/unit || status=1
        exit "$status"
    fi
    shift
    mapfile -t paths < <(quick_paths "$what")
    mapfile -t tests < <(quick_paths "$what" | grep '^tests/')
    if [ "${#tests[@]}" -eq 0 ]; then
        die "tests/unit has no '$what'; name a folder or a module as the code has" \
            "them, such as formats/csv or core/boxes"
    fi
    mapfile -t code < <(quick_paths "$what" | grep -v '^tests/')
    lint "${paths[@]}" || status=1
    if [ "${#code[@]}" -gt 0 ]; then
        types "${code[@]}" || status=1
    fi
    tests_side_by_side --quiet "${tests[@]}" "$@" || status=1
    exit "$status"
    ;;
test)
    shift
    install test
    cd "$root"
    tests_side_by_side "$@"
    ;;
test-clusters)
    shift
    install clusters
    cd "$root"
    if [ "$#" -gt 0 ]; then
        exec "$venv/bin/python" -m pytest tests/clusters tests/storage "$@"
    fi
    status=0
    # The stores' tests wait where the engines compute, so they run at the same time.
    # A background process of a script ignores Ctrl-C, except under `set -m`; there it
    # needs the trap to receive it. So it stops its servers before it ends.
    log=$(mktemp)
    set -m
    "$venv/bin/python" -m pytest --numprocesses=2 --dist=worksteal tests/storage \
        --ignore=tests/storage/test_latency.py >"$log" 2>&1 &
    storage=$!
    set +m
    trap 'kill -INT "$storage" 2>/dev/null || true
        wait "$storage" || true
        rm -f "$log"
        exit 130' INT TERM
    # One process runs all tests of the engines, so that one Flink and one Spark serve
    # them; it is not this one, so that a test that hangs can be ended.
    "$venv/bin/python" -m pytest --numprocesses=1 --override-ini=faulthandler_timeout=900 \
        tests/clusters || status=1
    wait "$storage" || status=1
    trap - INT TERM
    cat "$log"
    rm "$log"
    # What measures time has the machine for itself.
    "$venv/bin/python" -m pytest --numprocesses=1 tests/storage/test_latency.py || status=1
    exit "$status"
    ;;
smoke)
    install clusters
    cd "$root"
    # What the engines are made of is downloaded and built by the first run.
    exec "$venv/bin/python" -m pytest --override-ini=faulthandler_timeout=900 \
        'tests/clusters/test_jobs.py::test_rows_are_the_same[prism]' \
        'tests/clusters/test_jobs.py::test_rows_are_the_same[flink]' \
        'tests/storage/test_conversions.py::test_tables[s3]'
    ;;
stress)
    shift
    install test
    cd "$root"
    # The first seed of its cases.
    export BEAM_TFRECORD_STRESS=${BEAM_TFRECORD_STRESS:-$(date +%s)}
    say "BEAM_TFRECORD_STRESS=$BEAM_TFRECORD_STRESS"
    # Here single tests are long, and share little: whichever process is free takes one.
    exec "$venv/bin/python" -m pytest --numprocesses=auto --dist=worksteal -m '' \
        --override-ini=faulthandler_timeout=0 "$@"
    ;;
test-lowest)
    shift
    cd "$root"
    # Wheels of the oldest versions are there for the oldest Python alone.
    oldest=${PYTHON:-python3.11}
    "$oldest" -c 'import sys, ensurepip; sys.exit(sys.version_info[:2] != (3, 11))' \
        2>/dev/null || die "Python 3.11 is needed; name it: PYTHON=/path/to/python3.11"
    venv="$root/.venv-lowest"
    "$oldest" -m venv --clear "$venv"
    "$venv/bin/python" -m pip install --quiet 'setuptools>=70.1'
    "$venv/bin/python" scripts/lowest_bounds.py >"$venv/bounds"
    "$venv/bin/python" scripts/lowest_bounds.py pytest hypothesis >>"$venv/bounds"
    say "Installing the oldest libraries into .venv-lowest:" $(cat "$venv/bounds")
    "$venv/bin/python" -m pip install --quiet --requirement "$venv/bounds" ||
        die "pip could not install them together; its message is above"
    "$venv/bin/python" -m pip install --quiet --no-deps --editable "$root"
    "$venv/bin/python" -m pip check
    sample
    # No TensorFlow here: what compares with it, and long runs, are left to `test`.
    mapfile -t chosen <tests/lowest.txt
    exec "$venv/bin/python" -m pytest "${@:-${chosen[@]}}"
    ;;
check)
    install dev
    cd "$root"
    status=0
    lint . || status=1
    types || status=1
    docs || status=1
    tests_side_by_side --quiet tests/repository || status=1
    exit "$status"
    ;;
docs)
    install docs
    docs
    say "Built docs/_build/index.html"
    ;;
setup)
    case "${2-}" in
    '' | test | dev | clusters) install "${2-}" ;;
    *) die "an extra is test, dev or clusters, not '$2'" ;;
    esac
    ;;
*)
    install
    exec "$venv/bin/beam-tfrecord" "$@"
    ;;
esac
