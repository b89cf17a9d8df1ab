#!/usr/bin/env bash
# Trains torch's MNIST network on a server, by trainers that call its forward; see docs/mnist.md.
# usage: scripts/demo-mnist.sh [TRAINERS]     1 to 16, default 2; together they go over the training set once
#
# Ends with "mnist: ok accuracy=... images_per_s=... trainers=...", or a line that says what failed and exit code 1.
# MILLRACE_BUILD names a build directory to take the program from, instead of building into build/. MILLRACE_MNIST names a
# directory that holds MNIST's four files, instead of fetching them through npm into build/data/mnist.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly accuracy_needed=0.98 seconds_max=600
say() { echo "demo-mnist: $*" >&2; }
fail() {
    say "FAILED: $*"
    exit 1
}

case "${1:-2}" in
-h | --help)
    sed -n '2,7s/^# \{0,1\}//p' scripts/demo-mnist.sh
    exit 0
    ;;
[1-9] | 1[0-6]) trainers=${1:-2} ;;
*) fail "'$1' is no number of trainers, 1 to 16; see --help" ;;
esac
[ $# -le 1 ] || fail "one number of trainers at most; see --help"

build=${MILLRACE_BUILD:-build}
if [ -z "${MILLRACE_BUILD:-}" ]; then
    scripts/setup.sh build test
    say "building into build/"
    log=$(mktemp)
    if ! { { [ -f build/build.ninja ] || meson setup build --buildtype=release; } &&
        ninja -C build trainer_client/examples/mnist ps/modules/model/layers.so; } >"$log" 2>&1; then
        tail -n 20 "$log" >&2
        rm -f "$log"
        fail "the build failed; the lines above say why"
    fi
    rm -f "$log"
fi
readonly mnist=$build/trainer_client/examples/mnist
[ -x "$mnist" ] || fail "$mnist is not there: build first, or unset MILLRACE_BUILD"

data=${MILLRACE_MNIST:-build/data/mnist}
[ -n "${MILLRACE_MNIST:-}" ] || scripts/fetch-mnist.sh "$data" || fail "no training data"

work=$(mktemp -d "${TMPDIR:-/tmp}/millrace-mnist.XXXXXX")
declare -A rank_of # by process id, of those that run
helpers=()
clean_up() {
    local code=$?
    trap - EXIT INT TERM
    for pid in "${!rank_of[@]}" "${helpers[@]}"; do kill -KILL "$pid" 2>/dev/null || true; done
    wait 2>/dev/null || true
    rm -rf "$work"
    exit "$code"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# A port that nobody has now.
port=$((20000 + RANDOM % 10000))
while ss -Hlun "sport = :$port" | grep -q .; do port=$((port + 1)); done

start() { # RANK [options]
    "$mnist" --world-size $((trainers + 1)) --rank "$1" --master-addr 127.0.0.1 --master-port "$port" --data "$data" "${@:2}" \
        >"$work/$1.out" 2>"$work/$1.log" &
    rank_of[$!]=$1
}

say "one server, $trainers trainers"
start 0 --accuracy "$accuracy_needed"
for rank in $(seq "$trainers"); do start "$rank"; done
tail -q -f -n +1 "$work"/[1-9]*.out >&2 2>/dev/null &
helpers+=($!)
sleep "$seconds_max" &
readonly timer=$!
helpers+=("$timer")

# Who fails first tells why: the others only miss it.
while [ ${#rank_of[@]} -gt 0 ]; do
    code=0
    wait -n -p ended "${!rank_of[@]}" "$timer" || code=$?
    [ "$ended" != "$timer" ] || fail "not done after $seconds_max seconds"
    rank=${rank_of[$ended]}
    unset "rank_of[$ended]"
    [ "$code" -eq 0 ] || fail "rank $rank ended with exit code $code: $(tail -n 1 "$work/$rank.log")"
done
grep '^mnist: ok ' "$work/0.out" || fail "the server printed no result"
