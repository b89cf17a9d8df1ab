#!/usr/bin/env bash
# Trains torch's MNIST network on a server, by trainers that call its forward; see docs/mnist.md.
# usage: scripts/demo-mnist.sh [TRAINERS]     1 to 16, default 2; together they go over the training set twice
#
# KILL=1: the server is a node, which saves once a second; it is killed in the middle and started again, and the
# trainers go on where it has saved.
#
# Ends with "mnist: ok accuracy=... images_per_s=... trainers=...", or a line that says what failed and exit code 1.
# MILLRACE_BUILD names a build directory to take the program from, instead of building into build/. MILLRACE_MNIST names a
# directory that holds MNIST's four files, instead of fetching them through npm into build/data/mnist.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly epochs=2 accuracy_needed=0.98 seconds_max=600
say() { echo "demo-mnist: $*" >&2; }
fail() {
    say "FAILED: $*"
    exit 1
}

case "${1:-2}" in
-h | --help)
    sed -n '2,10s/^# \{0,1\}//p' scripts/demo-mnist.sh
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
    if ! { scripts/configure.sh build --buildtype=release &&
        ninja -C build trainer_client/examples/mnist ps/modules/model/layers.so ps/millraced; } >"$log" 2>&1; then
        tail -n 20 "$log" >&2
        rm -f "$log"
        fail "the build failed; the lines above say why"
    fi
    rm -f "$log"
fi
readonly mnist=$build/trainer_client/examples/mnist millraced=$build/ps/millraced
readonly kill=${KILL:-}
[ -x "$mnist" ] || fail "$mnist is not there: build first, or unset MILLRACE_BUILD"

data=${MILLRACE_MNIST:-build/data/mnist}
[ -n "${MILLRACE_MNIST:-}" ] || scripts/fetch-mnist.sh "$data" || fail "no training data"

work=$(mktemp -d "${TMPDIR:-/tmp}/millrace-mnist.XXXXXX")
declare -A rank_of # by process id, of those that run
helpers=()
clean_up() {
    local code=$?
    trap - EXIT INT TERM
    { # the shell says of each job that it was killed
        for pid in "${!rank_of[@]}" "${helpers[@]}"; do kill -KILL "$pid" || true; done
        wait || true
    } 2>/dev/null
    rm -rf "$work"
    exit "$code"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# A port that nobody has now.
port=$((20000 + RANDOM % 10000))
while ss -Hlun "sport = :$port" | grep -q .; do port=$((port + 1)); done

start_node() {
    "$millraced" --config "$work/node.conf" >"$work/node.out" 2>>"$work/node.log" &
    node=$!
    rank_of[$node]=0
    until grep -qs '^millraced: ready' "$work/node.out"; do
        kill -0 "$node" 2>/dev/null || fail "the node did not start: $(tail -n 1 "$work/node.log")"
        sleep 0.1
    done
}

# The first second in which trainer 1 is through half of its batches and the node has saved.
kill_node_in_the_middle() {
    local half=$((epochs * 60000 / 32 / trainers / 2 / 5 * 5))
    until grep -q "training batch $half " "$work/1.out" && compgen -G "$work/ckpt/ckpt-*" >/dev/null; do
        kill -0 "$node" 2>/dev/null || fail "the node ended: $(tail -n 1 "$work/node.log")"
        kill -0 "$timer" 2>/dev/null || fail "not done after $seconds_max seconds"
        sleep 0.1
    done
    say "killing the node, and starting it again"
    unset "rank_of[$node]"
    kill -KILL "$node"
    wait "$node" 2>/dev/null || true
    start_node
}

start() { # RANK [options]
    "$mnist" --world-size $((trainers + 1)) --rank "$1" --master-addr 127.0.0.1 --master-port "$port" --data "$data" \
        --epochs "$epochs" "${@:2}" \
        >"$work/$1.out" 2>"$work/$1.log" &
    rank_of[$!]=$1
}

if [ -n "$kill" ]; then
    say "one node that will be killed, $trainers trainers"
    cat >"$work/node.conf" <<END
[node]
name = millrace-mnist
[port]
driver = socket
ipv4 = 127.0.0.1/8
udp_port = $port
[cores]
poll_mode = adaptive
[memory]
packets_mib = 128
limit_mib = 256
[checkpoint]
directory = $work/ckpt
every_s = 1
keep = 2
[rpc]
world_size = $((trainers + 1))
name = parameter_server
rank = 0
module = $(realpath "$build")/ps/modules/model/layers.so parts $(nproc)
END
    start_node
    start 1 --node --accuracy "$accuracy_needed"
    for rank in $(seq 2 "$trainers"); do start "$rank" --node; done
else
    say "one server, $trainers trainers"
    start 0 --accuracy "$accuracy_needed"
    for rank in $(seq "$trainers"); do start "$rank"; done
fi
tail -q -f -n +1 "$work"/[1-9]*.out >&2 2>/dev/null &
helpers+=($!)
sleep "$seconds_max" &
readonly timer=$!
helpers+=("$timer")

[ -z "$kill" ] || kill_node_in_the_middle

# Who fails first tells why: the others only miss it. The node stays until it is stopped.
[ -n "$kill" ] && nodes=1 reporter=1 || nodes=0 reporter=0
while [ ${#rank_of[@]} -gt "$nodes" ]; do
    code=0
    wait -n -p ended "${!rank_of[@]}" "$timer" || code=$?
    [ "$ended" != "$timer" ] || fail "not done after $seconds_max seconds"
    rank=${rank_of[$ended]}
    unset "rank_of[$ended]"
    [ -z "$kill" ] || [ "$rank" -ne 0 ] || fail "the node ended: $(tail -n 1 "$work/node.log")"
    [ "$code" -eq 0 ] || fail "rank $rank ended with exit code $code: $(tail -n 1 "$work/$rank.log")"
done
grep '^mnist: ok ' "$work/$reporter.out" || fail "the server printed no result"
