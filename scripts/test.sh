#!/usr/bin/env bash
# Installs what the tests need, builds, and runs every test: as built for release, then under ASan and UBSan, then the
# threaded ones under TSan. Ends with what failed tests printed last, and one line: N passed, N failed, N skipped.
# usage: scripts/test.sh [--quick]      --quick: the release build's tests only
set -euo pipefail
cd "$(dirname "$0")/.."

quick=0
case "${1:-}" in
"") ;;
--quick) quick=1 ;;
-h | --help) sed -n '2,4s/^# //p' "$0"; exit 0 ;;
*) echo "test: unknown option '$1'; see --help" >&2; exit 2 ;;
esac

stages=$((quick ? 1 : 3))
if [ "$quick" -eq 1 ]; then
    echo "test: installs what is missing, builds for release and runs every test; some 12 minutes on 2 cores"
else
    echo "test: installs what is missing, then builds and runs every test for release, again under ASan and UBSan, and the" \
        "threaded ones under TSan; some 40 minutes on 2 cores"
fi
scripts/setup.sh test

passed=0 failed=0 skipped=0
failures=$(mktemp)
trap 'rm -f "$failures"' EXIT

# configure DIR [meson options]: makes the build directory, or updates its options.
configure() {
    local dir=$1
    shift
    if [ -f "$dir/build.ninja" ]; then
        meson configure "$dir" "$@" >/dev/null
    else
        meson setup "$dir" "$@" >"$dir.setup.log" 2>&1 || { cat "$dir.setup.log" >&2; return 1; }
        rm -f "$dir.setup.log"
    fi
}

# stage N TITLE: says where it is, and how long it took to get here.
stage() {
    echo "== $1 of $stages, after $((SECONDS / 60)) min: $2"
}

# targets_of DIR SUITE: what the tests of a suite need to be built.
targets_of() {
    meson introspect --tests --targets "$1" | python3 -c '
import json, os, sys
known = json.load(sys.stdin)
files = {t["id"]: t["filename"] for t in known["targets"]}
tests = [t for t in known["tests"] if any(s.split(":")[-1] == sys.argv[2] for s in t["suite"])]
print(*sorted({os.path.relpath(f, sys.argv[1]) for t in tests for d in t["depends"] for f in files[d]}), sep="\n")
' "$(realpath "$1")" "$2"
}

# run DIR [meson test options]: runs tests and adds up their outcomes. A third of a test's time is waiting, so two of them share a
# processor, with time limits that allow for it.
run() {
    local dir=$1 name ok=0
    shift
    meson test -C "$dir" --no-rebuild --print-errorlogs --num-processes $((2 * $(nproc))) --timeout-multiplier 4 "$@" || ok=1
    for name in "$dir"/meson-logs/testlog*.json; do
        [ -f "$name" ] || continue
        read -r p f s < <(python3 scripts/count_tests.py "$name" "$failures")
        passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
        rm -f "$name"
    done
    return $ok
}

status=0
mkdir -p build
stage 1 "release"
configure build --buildtype=release
ninja -C build
run build || status=1

if [ "$quick" -eq 0 ]; then
    # Sanitized code compiles in half the time with -O1, and stack traces need lines only (-g1). The release build has the warnings:
    # with sanitizers some are false.
    sanitized=(-Doptimization=1 -Ddebug=true "-Dc_args=-g1 -w" -Db_lundef=false -Dpeers=disabled)
    export ASAN_OPTIONS=detect_leaks=1:abort_on_error=0 UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
    stage 2 "address and undefined-behaviour sanitizers"
    configure build/asan "${sanitized[@]}" -Db_sanitize=address,undefined
    ninja -C build/asan
    run build/asan || status=1

    stage 3 "thread sanitizer"
    configure build/tsan "${sanitized[@]}" -Db_sanitize=thread
    ninja -C build/tsan build.ninja # as the sources are now
    targets_of build/tsan threads | xargs ninja -C build/tsan
    run build/tsan --suite threads || status=1
fi

cat "$failures"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$passed" -gt 0 ] || { echo "test: no test ran" >&2; status=1; }
exit $status
