#!/usr/bin/env bash
# Trains a model on real data through a parameter server, with a crash in the middle, and checks that nothing was lost.
# usage: scripts/demo.sh [FILE]
#   FILE    samples of your own, libsvm or Criteo TSV, by its name or its looks. Without: flights, AUC of at least 0.855
#
#     namespace "server"                       namespace "trainers"
#     millraced, DPDK on mrserver0  <= veth => mrclient0: hub, two trainers, evaluation
#     10.77.0.1                                10.77.0.2, hub on 10.77.0.3
#
# STORE=hdfs or s3 starts a real HDFS or S3 server, which checkpoints are copied to, and in the crash the server loses its
# disk, too.
#
# NODES=3 trains over a cluster of three nodes with a real ZooKeeper server, each in a namespace of its own on one bridge.
# One of the nodes is killed, and goes on from the cluster's checkpoint. With LOSE=1 it stays dead, and the others take
# over what it had; with REPLICATION=2, too, they go on from copies.
#
# TIMELINE=FILE writes a timeline of the training, which https://ui.perfetto.dev opens, and says what trainers wait for.
# What a server did before it was killed is not in it.
#
# RECORD=FILE.mrp records what the servers count all the while, and makes the report FILE.html of it (millrace perf).
#
# MILLRACE_BUILD names a build directory to take the programs from, instead of building into build/. MILLRACE_DRIVER
# names the port's driver: af_xdp, af_packet, tap (with one node) or socket, instead of the first of them that opens.
# MILLRACE_DEMO_SECONDS is how long all after the build may take, on a machine that is slow or emulated.
set -euo pipefail
data_argument=
case "${1:-}" in
"" | -*) ;;
*) data_argument=$(realpath -m -- "$1") ;;
esac
timeline=
[ -z "${TIMELINE:-}" ] || timeline=$(realpath -m -- "$TIMELINE")
recording=
[ -z "${RECORD:-}" ] || recording=$(realpath -m -- "$RECORD")
readonly timeline recording
cd "$(dirname "$0")/.."

readonly client_address=10.77.0.2
readonly hub_ip=10.77.0.3 hub_address=10.77.0.3:7800
readonly zookeeper_ip=10.77.0.4 zookeeper_jar=/usr/share/java/zookeeper.jar
readonly auc_needed=0.855        # on the flights data: what a good model of these slots reaches is 0.858
readonly node_count=${NODES:-1}
seconds_max=90                   # for everything after the build
[ "$node_count" = 1 ] || seconds_max=180
[ -z "${STORE:-}" ] || seconds_max=400           # Maven may have to fetch Hadoop
[ -z "$data_argument" ] || seconds_max=86400 # your own data may be larger; what makes no progress still gives up
readonly seconds_max=${MILLRACE_DEMO_SECONDS:-$seconds_max}
driver=${MILLRACE_DRIVER:-auto}
readonly store_kind=${STORE:-} loses=${LOSE:-} replication=${REPLICATION:-1}
readonly batches_wanted=400 # in all epochs, at least: so many steps a model needs, and a crash has time to come in between
batch_samples=512 epochs=2 learning_rate=0.05 # of the flights data, and of as many samples of your own

say() { echo "demo: $*" >&2; }
fail() {
    say "FAILED: $*"
    exit 1
}

case "${1:-}" in
-h | --help)
    sed -n '2,23s/^# \{0,1\}//p' scripts/demo.sh
    exit 0
    ;;
-*) fail "unknown option '$1'; see --help" ;;
esac
case "$store_kind" in
"" | hdfs | s3) ;;
*) fail "STORE is '$store_kind': hdfs or s3" ;;
esac
[[ "$node_count" =~ ^[1-9]$ ]] || fail "NODES is '$node_count': 1 to 9"
[ "$node_count" -eq 1 ] || [ -z "$store_kind" ] || fail "STORE is for one node: leave out STORE or NODES"
[ "$node_count" -eq 1 ] || [ "$driver" != tap ] || fail "MILLRACE_DRIVER=tap is for one node: af_xdp, af_packet or socket"
[[ "$loses" =~ ^1?$ ]] || fail "LOSE is '$loses': 1, or nothing"
[ -z "$loses" ] || [ "$node_count" -gt 1 ] || fail "LOSE=1 is for several nodes: set NODES"
[[ "$replication" =~ ^[12]$ ]] || fail "REPLICATION is '$replication': 1 or 2"
[ "$replication" -eq 1 ] || [ -n "$loses" ] || fail "REPLICATION=2 is for LOSE=1: set it"
[ $# -le 1 ] || fail "one file at most; see --help"
if [ -n "$data_argument" ] && { [ ! -f "$data_argument" ] || [ ! -r "$data_argument" ]; }; then
    fail "cannot read '$data_argument'"
fi

# ---- root: namespaces and the network port need it; the build does not ----
if [ "$(id -u)" -ne 0 ] && ! command -v sudo >/dev/null; then
    fail "needs root for namespaces and the network port: run it as root, or install sudo"
fi

# ---- build ----
groups=()
[ -n "${MILLRACE_BUILD:-}" ] || groups+=(build test)
[ "$node_count" -eq 1 ] || groups+=(cluster)
[ ${#groups[@]} -eq 0 ] || scripts/setup.sh "${groups[@]}"
build=${MILLRACE_BUILD:-build}
if [ -z "${MILLRACE_BUILD:-}" ]; then
    say "building into build/"
    log=$(mktemp)
    if ! { scripts/configure.sh build --buildtype=release &&
        ninja -C build ps/millraced trainer_client/hub/millrace-hub trainer_client/examples/fm tools/millrace; } >"$log" 2>&1; then
        tail -n 20 "$log" >&2
        rm -f "$log"
        fail "the build failed; the lines above say why"
    fi
    rm -f "$log"
fi
readonly millraced=$build/ps/millraced hub=$build/trainer_client/hub/millrace-hub fm=$build/trainer_client/examples/fm millrace=$build/tools/millrace
for program in "$millraced" "$hub" "$fm" ${store_kind:+"$millrace"} ${timeline:+"$millrace"} ${recording:+"$millrace"}; do
    [ -x "$program" ] || fail "$program is not there: build first, or unset MILLRACE_BUILD"
done
if [ "$(id -u)" -ne 0 ]; then
    say "needs root for namespaces and the network port: asking through sudo"
    exec sudo env STORE="$store_kind" TIMELINE="$timeline" RECORD="$recording" NODES="$node_count" LOSE="$loses" REPLICATION="$replication" MILLRACE_BUILD="$build" MILLRACE_DRIVER="$driver" \
        MILLRACE_DEMO_SECONDS="${MILLRACE_DEMO_SECONDS:-}" scripts/demo.sh ${data_argument:+"$data_argument"}
fi

# ---- everything made below is taken down here ----
SECONDS=0
work=$(mktemp -d "${TMPDIR:-/tmp}/millrace-demo.XXXXXX")
readonly work namespaces=millrace-demo-$$ client_ns=millrace-demo-$$-c zookeeper_ns=millrace-demo-$$-z
pids=()
node_pids=()    # by the node's number, from 1
store_options=() # of the server

clean_up() {
    local code=$? pid
    trap - EXIT INT TERM
    set +e
    if [ $code -ne 0 ]; then
        for log in server server2 server3 zookeeper store hub trainer2 evaluate record recorder; do
            [ -s "$work/$log.log" ] && sed "s/^/demo: $log: /" "$work/$log.log" | tail -n 12 >&2
        done
    fi
    { # the shell says of each job that it was killed
        for pid in "${pids[@]}" "${node_pids[@]}"; do kill -KILL "$pid"; done
        wait
    } 2>/dev/null
    ip netns list | awk -v of="$namespaces-" 'index($1, of) == 1 { print $1 }' | xargs -rn 1 ip netns del
    rm -rf "$work"
    exit $code
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

check_time() { [ "$SECONDS" -lt "$seconds_max" ] || fail "not done after $seconds_max seconds"; }
alive() { kill -0 "$1" 2>/dev/null; }

# ---- data ----
prepare_data() {
    if [ -n "$data_argument" ]; then
        data=$data_argument
        format=$(guess_format "$data")
        choose_plan "$(wc -l <"$data")"
        return
    fi
    data=$work/flights-3m.csv
    format=flights
    xz -dc trainer_client/examples/data/flights-3m.csv.xz >"$data"
}

# choose_plan LINES: smaller batches and more epochs for less data. A fifth of it is held out.
choose_plan() {
    local samples=$(($1 * 4 / 5)) batches
    while [ "$batch_samples" -gt 8 ] && [ $((samples / batch_samples)) -lt 150 ]; do
        batch_samples=$((batch_samples / 2))
    done
    batches=$((samples / batch_samples + 1))
    epochs=$(((batches_wanted + batches - 1) / batches))
    epochs=$((epochs < 2 ? 2 : epochs > 4 ? 4 : epochs)) # more would only learn the samples by heart
    [ "$batch_samples" -ge 64 ] || learning_rate=0.02    # gradients of few samples are noisy
}

# By its name, else by its first lines: Criteo has 39 tabs a line, libsvm index:value pairs.
guess_format() {
    case "$1" in
    *.libsvm | *.svm | *.svmlight) echo libsvm ;;
    *.tsv) echo criteo ;;
    *)
        if [ "$(head -n 1 "$1" | tr -cd '\t' | wc -c)" -eq 39 ]; then
            echo criteo
        elif head -n 5 "$1" | grep -qE '^[-+0-9.]+[[:space:]]+[0-9]+:'; then
            echo libsvm
        else
            fail "'$1' looks neither like libsvm (label index:value ...) nor like Criteo TSV (label, 13 integers, 26 categories)"
        fi
        ;;
    esac
}

# ---- network: the trainers' end is mrclient0, a cable to the one node, or a bridge to all and ZooKeeper ----
node_ns() { echo "$namespaces-$1"; }
node_address() { if [ "$node_count" -eq 1 ]; then echo 10.77.0.1; else echo "10.77.0.$((10 + $1))"; fi; }

make_network() {
    local number
    ip netns add "$client_ns"
    ip -n "$client_ns" link set lo up
    ip -n "$client_ns" addr add "$hub_ip/32" dev lo # trainers reach the hub also while there is no cable
    for ((number = 1; number <= node_count; number++)); do
        ip netns add "$(node_ns "$number")"
        ip -n "$(node_ns "$number")" link set lo up
    done
    if [ "$node_count" -gt 1 ]; then
        make_bridge
    elif [ "$driver" != tap ]; then
        lay_cable "$(node_ns 1)" mrserver0 mrclient0
        [ "$driver" != socket ] || ip -n "$(node_ns 1)" addr add "$(node_address 1)/24" dev mrserver0
        address_client
    fi
}

# lay_cable NAMESPACE END CLIENT_END: from the namespace to the trainers'.
lay_cable() {
    ip -n "$1" link add "$2" mtu 1500 type veth peer name "$3" mtu 1500 netns "$client_ns"
    ip -n "$1" link set "$2" up
    ip -n "$client_ns" link set "$3" up
    leave_nothing_to_hardware "$client_ns" "$3"
}

# DPDK reads frames as they cross the cable: no checksum or segmentation may be left to hardware that is not there.
leave_nothing_to_hardware() { ip netns exec "$1" ethtool -K "$2" tx off gso off >/dev/null; }

address_client() {
    ip -n "$client_ns" link set mrclient0 up
    ip -n "$client_ns" addr add "$client_address/24" dev mrclient0
    leave_nothing_to_hardware "$client_ns" mrclient0
}

# A node has two cables: its port, and the kernel's way to ZooKeeper.
make_bridge() {
    local number ns
    ip -n "$client_ns" link add mrclient0 type bridge
    address_client
    ip netns add "$zookeeper_ns"
    plug "$zookeeper_ns" mrkernel0 mrzookeeper0
    ip -n "$zookeeper_ns" addr add "$zookeeper_ip/24" dev mrkernel0
    for ((number = 1; number <= node_count; number++)); do
        ns=$(node_ns "$number")
        plug "$ns" mrserver0 "mrport$number"
        ip -n "$ns" link set mrserver0 arp off # the kernel has no say there
        plug "$ns" mrkernel0 "mrkernel$number"
        ip -n "$ns" addr add "10.77.0.$((50 + number))/24" dev mrkernel0
    done
    [ "$driver" != socket ] || use_sockets
}

use_sockets() {
    local number
    driver=socket
    for ((number = 1; number <= node_count; number++)); do
        ip -n "$(node_ns "$number")" addr add "$(node_address "$number")/24" dev mrkernel0
    done
}

plug() {
    lay_cable "$@"
    ip -n "$client_ns" link set "$3" master mrclient0
    leave_nothing_to_hardware "$1" "$2"
}

# ---- the nodes ----
# launch_node NUMBER [options]: false when it ends before it serves.
launch_node() {
    local number=$1 log=server device=mrserver0
    shift
    [ "$number" -eq 1 ] || log=server$number
    [ "$driver" != socket ] || [ "$node_count" -eq 1 ] || device=mrkernel0
    : >"$work/$log.out"
    # DPDK's run-time files go into the demo's own folder: a killed server does not remove them.
    RUNTIME_DIRECTORY=$work ip netns exec "$(node_ns "$number")" "$millraced" --config configs/demo.conf \
        --set port.driver="$driver" --set port.device="$device" --set port.ipv4="$(node_address "$number")/24" --set node.key_file="$work/key" \
        --set node.name="demo-$$-$number" --set checkpoint.directory="$work/checkpoints" "${store_options[@]}" ${timeline:+--set node.trace="$work/trace-$log.json"} "$@" \
        >"$work/$log.out" 2>>"$work/$log.log" &
    node_pids[number]=$!
    while ! grep -q '^millraced: ready' "$work/$log.out"; do
        alive "${node_pids[number]}" || return 1
        check_time
        sleep 0.02
    done
    port=$(sed -n 's/.* port=\([^ ]*\).*/\1/p' "$work/$log.out")
    memory=$(sed -n 's/.* memory=\([^ ]*\).*/\1/p' "$work/$log.out")
}

# start_node NUMBER [options]
start_node() {
    if [ "$node_count" -gt 1 ]; then
        set -- "$@" --set cluster.name=demo --set cluster.node="node-$1" --set cluster.nodes="$node_count" \
            --set cluster.zookeeper="$zookeeper_ip:2181" --set cluster.session_ms=3000 \
            --set cluster.credentials_file="$work/zookeeper.password" --set memory.packets_mib=128 --set memory.limit_mib=768 \
            --set cluster.take_over_s="${loses:-0}" --set cluster.replication="$replication"
    fi
    if ! launch_node "$@"; then
        [ "$driver" = auto ] || fail "the server did not start"
        if [ "$node_count" -eq 1 ]; then
            say "neither af_xdp nor af_packet opens here; trying tap"
            driver=tap
            ip -n "$(node_ns 1)" link del mrserver0
        else
            say "neither af_xdp nor af_packet opens here; trying sockets"
            use_sockets
        fi
        launch_node "$@" || fail "the server did not start"
    fi
    # The server makes a new tap interface at each start; its kernel end is the trainers' end of the cable.
    if [ "$driver" = tap ]; then
        ip -n "$(node_ns 1)" link set mrserver0 netns "$client_ns" name mrclient0
        address_client
    fi
}

# ---- ZooKeeper, for a cluster ----
start_zookeeper() {
    mkdir "$work/zookeeper"
    cat >"$work/zookeeper.cfg" <<END
tickTime=200
dataDir=$work/zookeeper
clientPort=2181
clientPortAddress=$zookeeper_ip
admin.enableServer=false
END
    (umask 077 && echo millrace:demo >"$work/zookeeper.password")
    ip netns exec "$zookeeper_ns" java -Xmx64m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp "$zookeeper_jar" \
        org.apache.zookeeper.server.ZooKeeperServerMain "$work/zookeeper.cfg" >"$work/zookeeper.log" 2>&1 &
    pids+=($!)
    until ip netns exec "$client_ns" bash -c "exec 3<>/dev/tcp/$zookeeper_ip/2181" 2>/dev/null; do
        alive "${pids[-1]}" || fail "ZooKeeper does not start"
        check_time
        sleep 0.1
    done
    say "ZooKeeper serves at $zookeeper_ip:2181"
}

# ---- the store ----
start_store() {
    mkdir "$work/store"
    mkfifo "$work/store/in"
    export AWS_ACCESS_KEY_ID=test:tester AWS_SECRET_ACCESS_KEY=testing
    /usr/bin/python3 tests/python/stores/serve.py "$store_kind" "$work/store" "$(node_ns 1)" \
        <>"$work/store/in" >"$work/store.out" 2>"$work/store.log" &
    pids+=($!)
    say "starting $store_kind"
    until [ -s "$work/store.out" ]; do
        alive "${pids[-1]}" || fail "$store_kind cannot be had: $(tail -n 1 "$work/store.log")"
        check_time
        sleep 0.1
    done
    store_options=(--set checkpoint.remote="$(cat "$work/store.out")")
}

# The value of a counter of core 0.
counter() {
    ip netns exec "$client_ns" "$millrace" ctl stats --server "$servers" --key-file "$work/key" --core 0 |
        awk -v name="$1" '$3 == name { print $4 }'
}

# What trainers know to be on the server's disk, they do not send again: it must be in the store when that disk is lost.
wait_for_store() {
    until [ "$(counter checkpoint.running_id)" = 0 ] && [ "$(counter checkpoint.saves_queued)" = 0 ] &&
        [ "$(counter remote.state)" = 1 ] &&
        [ -d "$work/checkpoints/ckpt-$(counter remote.last_id)" ]; do
        check_time
        sleep 0.1
    done
}

# ---- hub and trainers ----
plan=()
start_hub() {
    ip netns exec "$client_ns" "$hub" --listen "$hub_address" --server "$servers" --key-file "$work/key" --allow "$(dirname "$(realpath "$data")")" \
        ${timeline:+--trace "$work/trace-hub.json"} 2>"$work/hub.log" &
    hub_pid=$!
    pids+=("$hub_pid")
}

start_recording() {
    ip netns exec "$client_ns" "$millrace" perf record --server "$servers" --key-file "$work/key" --on-slow 5ms \
        --output "$recording" 2>"$work/recorder.log" &
    recorder_pid=$!
    pids+=("$recorder_pid")
}

# start_trainer NUMBER [options]: the first one shows its progress here.
start_trainer() {
    local number=$1
    shift
    if [ "$number" -eq 1 ]; then
        exec 3>&2
    else
        exec 3>"$work/trainer$number.log"
        set -- --quiet "$@"
    fi
    ip netns exec "$client_ns" "$fm" train "${plan[@]}" --replay on --ledger ${timeline:+--trace "$work/trace-trainer$number.json"} "$@" >"$work/trainer$number.json" 2>&3 3>&- &
    exec 3>&-
    trainer_pids+=($!)
    pids+=($!)
}

# run_fm NAME SUBCOMMAND [options]: its output goes to NAME.json.
run_fm() {
    local name=$1
    shift
    ip netns exec "$client_ns" "$fm" "$1" "${plan[@]}" "${@:2}" >"$work/$name.json" 2>"$work/$name.log" ||
        fail "fm $1: $(tail -n 1 "$work/$name.log")"
}

# field NAME KEY: a value from NAME.json.
field() { sed -n "s/.*\"$2\": \([^,}]*\).*/\1/p" "$work/$1.json"; }

# Complete ones, of the node or of the cluster.
checkpoints() { find "$work/checkpoints" -maxdepth 1 \( -name 'ckpt-*' -o -name 'CLUSTER-*' \) 2>/dev/null | wc -l; }

# A node of a cluster is ready before it has loaded its part.
wait_for_part() {
    until grep -q 'restored checkpoint' "$work/server$victim.log"; do
        alive "${node_pids[victim]}" || fail "$victim_name ended before it had its part of the cluster's checkpoint"
        check_time
        sleep 0.02
    done
}

# All other nodes have what the victim had.
wait_for_others() {
    local number log from="from checkpoint"
    [ "$replication" -eq 1 ] || from="from the copy"
    for ((number = 1; number <= node_count; number++)); do
        [ "$number" -ne "$victim" ] || continue
        log=server$number
        [ "$number" -ne 1 ] || log=server
        until grep -q "go on here $from" "$work/$log.log"; do
            nodes_alive || fail "a node ended before it had taken over its share"
            check_time
            sleep 0.02
        done
    done
}

nodes_alive() {
    local pid
    for pid in "${node_pids[@]}"; do alive "$pid" || return 1; done
}

# true_that EXPRESSION: awk's arithmetic.
true_that() { awk "BEGIN { exit !($1) }"; }

wait_for_pause() {
    local pid
    for pid in "${trainer_pids[@]}"; do
        until grep -q '^State:[[:space:]]*T' "/proc/$pid/status"; do
            alive "$pid" || fail "a trainer ended before it had trained its quarter of the batches"
            check_time
            sleep 0.02
        done
    done
}

train_through_a_crash() {
    local batches killed_at
    run_fm plan plan --give-up 60
    batches=$(field plan batches)
    say "$(field plan samples) samples to train on, $(field plan keys) keys, $batches batches of $batch_samples, $epochs epochs"
    [ "$batches" -ge 12 ] || fail "too few samples for a crash in the middle: $batches batches, at least 12 are needed"
    [ -n "$data_argument" ] || [ "$(field plan keys)" -eq 162867 ] || fail "the flights data has 162867 keys"

    # Two trainers share the batches. Each saves after a sixth of them, and pauses after a quarter: half are applied.
    start_trainer 1 --save-every $((batches / 6)) --pause-after $((batches / 4))
    start_trainer 2 --save-every $((batches / 6)) --pause-after $((batches / 4))
    wait_for_pause
    while [ "$(checkpoints)" -eq 0 ]; do
        nodes_alive || fail "the server ended before its checkpoint was complete"
        check_time
        sleep 0.01
    done
    [ -z "$store_kind" ] || wait_for_store
    kill -KILL "${node_pids[victim]}"
    wait "${node_pids[victim]}" 2>/dev/null || true
    kill -CONT "${trainer_pids[@]}"
    run_fm killed wait --until-applied 0
    killed_at=$(field killed applied)
    [ "$(field killed at_end)" = false ] || fail "training ended before the server could be killed"
    say "$victim_name killed after $killed_at of $batches batches, $(checkpoints) checkpoint taken during training"
    if [ -n "$store_kind" ]; then
        rm -rf "$work/checkpoints"
        say "the server's disk is lost, too"
    fi
    if [ -n "$loses" ]; then
        unset "node_pids[victim]"
        wait_for_others
        suffix=" nodes=$((node_count - 1))"
        [ "$replication" -eq 2 ] || say "$victim_name stays dead: the others have taken over its part of the cluster's checkpoint; trainers continue"
        [ "$replication" -eq 1 ] || say "$victim_name stays dead: the others go on from their copies of what it had; trainers continue"
    else
        start_node "$victim" --restore latest
        [ "$node_count" -eq 1 ] || wait_for_part
        say "$victim_name restored from its ${of_cluster}checkpoint${store_kind:+ in $store_kind}; trainers continue"
    fi

    local number=0
    for pid in "${trainer_pids[@]}"; do
        number=$((number + 1))
        wait "$pid" || fail "trainer $number ended with an error"
    done
}

# stop PID...: SIGTERM, on which programs write their traces.
stop() {
    local pid
    kill -TERM "$@"
    for pid in "$@"; do wait "$pid" || fail "a program ended with an error"; done
}

write_timeline() {
    stop "$hub_pid"
    stop "${node_pids[@]}"
    "$millrace" timeline --output "$timeline" "$work"/trace-*.json >&2
    say "the timeline is in $timeline"
}

write_report() {
    stop "$recorder_pid"
    "$millrace" perf report "$recording" >&2
    say "the recording is $recording, its report ${recording%.mrp}.html"
}

check_and_report() {
    local auc logloss lost twice rate base replayed
    run_fm wait wait
    run_fm record record
    run_fm evaluate evaluate
    lost=$(field record pushes_lost) twice=$(field record pushes_twice)
    auc=$(field evaluate auc) logloss=$(field evaluate logloss)
    rate=$(awk "BEGIN { print $(field trainer1 samples_per_s) + $(field trainer2 samples_per_s) }")
    alive "$hub_pid" || fail "the hub ended"
    nodes_alive || fail "a server ended"

    replayed=$(($(field trainer1 pushes_replayed) + $(field trainer2 pushes_replayed)))
    say "$replayed pushes were replayed, $(field wait handed_again) batches were handed out again; the server's record holds $(field record applied) of $(field record batches)"
    [ "$(field wait handed_again)" -gt 0 ] || fail "no batch was handed out again: the crash tested nothing"
    [ "$lost $twice" = "0 0" ] || fail "pushes_lost=$lost pushes_twice=$twice"
    if [ -z "$data_argument" ]; then
        true_that "$auc >= $auc_needed" || fail "auc=$auc is below $auc_needed (logloss=$logloss)"
    else
        # Other data has another difficulty: the model must beat the best constant, the share of positives.
        base=$(awk -v p="$(field evaluate positive_share)" 'BEGIN { print -p * log(p) - (1 - p) * log(1 - p) }')
        true_that "$auc > 0.5 && $logloss < $base" ||
            fail "auc=$auc logloss=$logloss: no better than always predicting the share of positives ($base)"
        say "the bar for your own data: log loss below $base, that of always predicting the share of positives"
    fi
    check_time
    echo "demo: ok auc=$auc logloss=$logloss samples_per_s=$rate pushes_lost=$lost pushes_twice=$twice port=$port$suffix"
}

prepare_data
(umask 077 && od -An -v -N32 -tx1 /dev/urandom | tr -d ' \n' >"$work/key")
make_network
[ -z "$store_kind" ] || start_store
servers=$(node_address 1) victim=1 victim_name=server of_cluster='' suffix=''
if [ "$node_count" -gt 1 ]; then
    victim=2 victim_name="node 2" of_cluster="part of the cluster's " suffix=" nodes=$node_count"
    mkdir "$work/checkpoints" # which all nodes see
    start_zookeeper
fi
for ((number = 1; number <= node_count; number++)); do
    start_node "$number" --restore none
    [ "$number" -eq 1 ] || servers+=,$(node_address "$number")
done
say "server up: port $port, memory: $memory$suffix"
start_hub
[ -z "$recording" ] || start_recording
plan=(--hub "$hub_address" --server "$servers" --key-file "$work/key" --data "$data" --format "$format"
    --batch "$batch_samples" --epochs "$epochs" --learning-rate "$learning_rate")
trainer_pids=()
train_through_a_crash
check_and_report
[ -z "$recording" ] || write_report
[ -z "$timeline" ] || write_timeline
