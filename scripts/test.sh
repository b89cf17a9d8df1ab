#!/usr/bin/env bash
# Installs what the tests need, builds, and runs them: unit tests, fuzzers and the integration tests of suite "memory" under ASan and
# UBSan; threads under TSan; the other integration and Python tests, simulators and what depends on the optimizer as built for release.
# Ends with what failed tests printed, the slowest tests, and one line: N passed, N failed, N skipped.
# usage: scripts/test.sh [--quick | --soak]
#          --quick: the release build only, with its unit tests
#          --soak: every test, long simulations, mutants and kills among them, for release and under ASan and UBSan
#        scripts/test.sh --stress N [--base REV] [TEST...]
#          --stress N: each TEST of the release build N times beside a real-time process that takes the CPUs away for 50 to 400 ms at a
#          time; without TEST, those whose own files have changed since REV (default: HEAD)
set -euo pipefail
cd "$(dirname "$0")/.."

mode=default stress=0 base=HEAD tests=()
usage() { sed -n '2,11s/^# //p' scripts/test.sh; }
while [ $# -gt 0 ]; do
    case $1 in
    --quick | --soak) mode=${1#--} ;;
    --stress)
        [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || { echo "test: --stress wants a number of runs" >&2; exit 2; }
        mode=stress stress=$2
        shift
        ;;
    --base)
        git rev-parse --quiet --verify "${2:-}^{commit}" >/dev/null || { echo "test: --base wants a commit, not '${2:-}'" >&2; exit 2; }
        base=$2
        shift
        ;;
    -h | --help) usage; exit 0 ;;
    -*) echo "test: unknown option '$1'; see --help" >&2; exit 2 ;;
    *) tests+=("$1") ;;
    esac
    shift
done
[ ${#tests[@]} -eq 0 ] || [ "$mode" = stress ] || { echo "test: names of tests go with --stress; see --help" >&2; exit 2; }

quiet=()
[ -t 1 ] || quiet=(--quiet) # a terminal shows how far ninja is
results=$(mktemp)
trap 'rm -f "$results"' EXIT
status=0

# stage TITLE: says where it is, and how long it took to get here.
stage() {
    echo "== after $((SECONDS / 60)) min $((SECONDS % 60)) s: $1"
}

# build DIR SUITE...: what the tests of some suites need; everything without a suite.
build() {
    local dir=$1
    shift
    ninja -C "$dir" build.ninja # as the sources are now
    if [ $# -eq 0 ]; then
        ninja -C "$dir" "${quiet[@]}"
    else
        python3 scripts/suite_targets.py "$dir" "$@" | xargs ninja -C "$dir" "${quiet[@]}"
    fi
}

# run STAGE DIR [meson test options]: runs tests, and once more alone those that may have failed by chance. A third of a test's time is
# waiting, so two of them share a processor, with time limits that allow for it.
run() {
    local name=$1 dir=$2 names again=()
    shift 2
    rm -f "$dir"/meson-logs/testlog*.json
    meson test -C "$dir" --no-rebuild --print-errorlogs --num-processes $((2 * $(nproc))) --timeout-multiplier 4 "$@" || true
    [ -n "$(find "$dir/meson-logs" -name 'testlog*.json' -size +0)" ] || { echo "test: meson ran no test in $dir" >&2; status=1; return; }
    names=$(python3 scripts/test_results.py add "$results" "$name" "$dir")
    [ -n "$names" ] || return 0
    mapfile -t again <<<"$names"
    stage "once more, alone: ${again[*]}"
    meson test -C "$dir" --no-rebuild --num-processes 1 --timeout-multiplier 4 "${again[@]}" || true
    python3 scripts/test_results.py add "$results" "$name" "$dir" >/dev/null
}

# run_suites STAGE DIR SUITE...: builds what the tests of some suites need, and runs these but for those of the suites in $without.
without=(soak)
run_suites() {
    local name=$1 dir=$2 options=()
    shift 2
    build "$dir" "$@"
    options=("${@/#/--suite=}")
    stage "$name: tests"
    run "$name" "$dir" "${options[@]}" "${without[@]/#/--no-suite=}"
}

run_stress() {
    local hog names
    build build
    if [ ${#tests[@]} -eq 0 ]; then
        names=$(python3 scripts/changed_tests.py build "$base")
        [ -n "$names" ] || { echo "test: no test has changed since $base: name the tests" >&2; exit 2; }
        mapfile -t tests <<<"$names"
    fi
    build/tests/stress/cpu_hog 86400 &
    hog=$!
    meson test -C build --no-rebuild --print-errorlogs --repeat "$stress" --num-processes "$(nproc)" --timeout-multiplier 20 "${tests[@]}" ||
        status=1
    kill "$hog" 2>/dev/null || { echo "test: cpu_hog ended early: nothing took the CPUs away" >&2; status=1; }
}

case $mode in
default) echo "test: installs what is missing, then builds and runs the tests; some 20 minutes on 2 cores" ;;
quick) echo "test: installs what is missing, builds for release and runs its tests; some 12 minutes on 2 cores" ;;
soak) echo "test: installs what is missing, then builds and runs every test, twice; some two hours on 2 cores" ;;
stress) echo "test: installs what is missing, builds for release, and runs tests $stress times on CPUs that are taken away" ;;
esac
scripts/setup.sh test
case $mode in
soak) environments=$(scripts/torch2.py torch2 torchrec graphlearn) ;;
*) environments=$(scripts/torch2.py) ;;
esac

stage "release: build"
# Warnings stop this build with the compilers that give none: Debian 12's.
case "$("${CC:-cc}" -dumpversion)" in
12) werror=true ;;
*) werror=false ;;
esac
# mold links the hundreds of programs in a quarter of the time of Debian's own linker.
linker=()
if command -v mold >/dev/null; then linker=(-Dc_link_args=-fuse-ld=mold); fi
scripts/configure.sh --update build --buildtype=release -Dwerror=$werror "${linker[@]}"
case $mode in
stress)
    run_stress
    exit $status
    ;;
quick) run_suites release build unit fuzz sim integration python ;;
default)
    without=(soak memory) # which come with sanitizers
    run_suites release build optimized sim integration python
    without=(soak)
    ;;
soak)
    build build
    export MILLRACE_KILLS=50 MILLRACE_SWEEP=all
    python3 scripts/suite_targets.py build soak | xargs ninja -C build "${quiet[@]}"
    run release build
    ;;
esac

# Sanitized code compiles in half the time with -O1, and stack traces need lines only (-g1). The release build has the warnings:
# with sanitizers some are false.
sanitized=(-Doptimization=1 -Ddebug=true "-Dc_args=-g1 -w" -Db_lundef=false -Dpeers=disabled "${linker[@]}")
export ASAN_OPTIONS=detect_leaks=1:abort_on_error=0 UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
if [ "$mode" != quick ]; then
    stage "address and undefined-behaviour sanitizers: build"
    scripts/configure.sh --update build/asan "${sanitized[@]}" -Db_sanitize=address,undefined
    if [ "$mode" = soak ]; then
        build build/asan
        run asan build/asan
    else
        run_suites asan build/asan unit fuzz memory
    fi
    stage "thread sanitizer: build"
    scripts/configure.sh --update build/tsan "${sanitized[@]}" -Db_sanitize=thread
    run_suites tsan build/tsan threads
fi

stage "the end"
echo "$environments"
python3 scripts/test_results.py summary "$results" || status=1
exit $status
