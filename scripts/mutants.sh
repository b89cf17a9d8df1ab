#!/usr/bin/env bash
# Shows that the simulators, the tables' property test and the power failures of checkpoints find bugs: breaks the code on purpose, one
# patch of tests/sim/mutants/ (the transport), tests/sim/cuts/mutants/ (cuts), tests/sim_references/mutants/ (remote
# references), tests/property/mutants/ (tables) or tests/unit/ps/mutants/ (saves) at a time, and runs seeds until one fails. The code
# as it is must pass each seed that failed. The second line of a patch may name a seed that caught it ("seed: N"); that one is tried before
# all others. Prints a table; exit status 1 when a mutant survives, or a patch no longer applies or builds.
# With --sample N it breaks the source at N random places of its own choosing instead (scripts/mutation/run.py --help).
# usage: scripts/mutants.sh --sample N [--seed S] | [--seeds N] [--operations N] [--jobs N] [sim | cuts | sim_references | property | power | PATCH]...
#   defaults: 4000 seeds of the simulator (of cuts a tenth, of references ten times as many), 1500000 operations on tables, all processors, all patches
set -euo pipefail
cd "$(dirname "$0")/.."

[ "${1:-}" != --sample ] || exec python3 scripts/mutation/run.py "$@"

seeds=4000 operations=1500000 jobs=$(nproc) patches=()
while [ $# -gt 0 ]; do
    case $1 in
    --seeds | --operations | --jobs)
        [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || { echo "mutants: $1 wants a number" >&2; exit 2; }
        case $1 in --seeds) seeds=$2 ;; --operations) operations=$2 ;; *) jobs=$2 ;; esac
        shift 2
        ;;
    -h | --help) sed -n '2,10s/^# //p' "$0"; exit 0 ;;
    -*) echo "mutants: unknown option '$1'; see --help" >&2; exit 2 ;;
    sim | sim_references | property) patches+=(tests/"$1"/mutants/*.patch); shift ;;
    cuts) patches+=(tests/sim/cuts/mutants/*.patch); shift ;;
    power) patches+=(tests/unit/ps/mutants/*.patch); shift ;;
    *) [ -f "$1" ] || { echo "mutants: no file '$1'" >&2; exit 2; }; patches+=("$1"); shift ;;
    esac
done
[ ${#patches[@]} -gt 0 ] || patches=(tests/{sim,sim/cuts,sim_references,property,unit/ps}/mutants/*.patch)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/mutants" "$work/results"
packages=(libsodium libxxhash jemalloc liburing jansson libcurl expat libcrypto libmicrohttpd)
read -ra flags <<<"-std=gnu17 -O1 -ffp-contract=off -D_GNU_SOURCE -DTHREADED -DPS_SCRUB -DMR_MODULE_DIR=\"modules\" -DMR_VERSION=\"mutant\" $(pkg-config --cflags "${packages[@]}")"
read -ra libs <<<"$(pkg-config --libs "${packages[@]}") -lzookeeper_mt -linih -lcmocka -lm -pthread"

# compile DIRECTORY OBJECT...: makes objects in DIRECTORY (below $work), from its own sources where it has them, else from the tree's.
# shellcheck disable=SC2016 # the inner shell expands it
compile() {
    local directory=$1
    shift
    (cd "$work" && printf '%s\n' "$@" | xargs -P "$jobs" -I{} sh -c '
        object=$0 directory=$1 source=${0%.o}.c
        shift
        mkdir -p "$directory/${object%/*}"
        [ ! -f "$directory/$source" ] || source=$directory/$source
        "$@" -MMD -c "$source" -o "$directory/$object"' {} "$directory" "${CC:-cc}" "${flags[@]}" \
        -iquote "$directory/dataplane/wire/format" -iquote dataplane/wire/format -iquote trainer_client -iquote tests/unit/ps -I"$directory" -I.)
}

directory_of() {
    case $1 in power) echo tests/unit/ps ;; cuts) echo tests/sim/cuts ;; *) echo "tests/$1" ;; esac
}

# The sources that meson.build lists under a name.
listed() {
    sed -n "/^$1 +\?=/,/)/p" ps/meson.build | grep -o "[a-z0-9_/]*\.c" | sed 's|^|ps/|'
}

# The objects of a suite's program: the transport, and what lies below the node or of checkpoints alone, and the test itself.
objects_of() {
    case $1 in
    property)
        listed ps_sources
        listed row_lib
        (cd "$work" && printf '%s\n' dataplane/optimizer/*.c)
        ;;
    power)
        listed checkpoint_sources
        listed io_lib
        ;;
    cuts)
        (cd "$work" && find ps trainer_client dataplane/{capture,metrics,net,optimizer,rpc,udp} dataplane/loop/{fault,phases}.c \
            -name '*.c' ! -path ps/main.c ! -name socket_server.c)
        echo tests/unit/ps/no_port.c
        printf 'tests/sim/%s.c\n' seeds sim_random
        ;;
    sim_references)
        (cd "$work" && find dataplane/rpc -name id_map.c -o -name 'rref_count.c')
        printf 'tests/sim/%s.c\n' seeds sim_random
        ;;
    esac | sed 's/\.c$/.o/'
    case $1 in
    power) printf 'tests/%s.o\n' test test_main; printf 'tests/unit/%s.o\n' temporary_directory ps/{chain_fixture,checkpoint_fixture,fault_store,power_disk,power_store,checkpoint/test_checkpoint_power,log/test_log_segments} ;;
    *) (cd "$work" && for source in "$(directory_of "$1")"/*.c; do echo "${source%.c}.o"; done) ;;
    esac
    (cd "$work" && find dataplane/wire -name '*.c' ! -name cli.c) | sed 's/\.c$/.o/'
}

# link SUITE DIRECTORY: makes the suite's program in DIRECTORY, from its own objects where it has them, else from the tree's. Those of
# tests are all in it, and of the others what these need.
link() {
    local directory=$2 object tests=() others=() wraps=()
    while read -r object; do
        [ ! -f "$work/$directory/$object" ] || object=$directory/$object
        case ${object#"$directory"/} in tests/*) tests+=("$object") ;; *) others+=("$object") ;; esac
    done < <(objects_of "$1")
    case $1 in
    property) wraps=('-Wl,--wrap=ps_table_row_remove') ;;
    cuts) mapfile -t wraps < <(sed -n "/^foreach name/,/\]/p" tests/sim/cuts/meson.build | grep -o "'[a-z0-9_]*'" |
        sed "s/'//g; s/^/-Wl,--wrap=/") ;;
    esac
    (cd "$work" && rm -f "$directory/$1.a" && ar rcsT "$directory/$1.a" "${others[@]}" &&
        "${CC:-cc}" -o "$directory/$1" "${tests[@]}" "$directory/$1.a" "${libs[@]}" "${wraps[@]}")
}

# run SUITE DIRECTORY [SEED]: runs all seeds until one fails, or only SEED; false when one failed. Its output is in DIRECTORY/out.
run() {
    local program=$work/$2/$1 first=${3:-1} most=${3:+1}
    case $1 in
    sim) "$program" --first "$first" --seeds "${most:-$seeds}" --jobs 1 --seconds 10 --stop ;;
    cuts) "$program" --first "$first" --seeds "${most:-$(((seeds + 9) / 10))}" --jobs 1 --stop ;;
    sim_references) "$program" --first "$first" --seeds "${most:-$((10 * seeds))}" --jobs 1 --seconds 10 --stop ;;
    property)
        if [ -n "$most" ]; then most="--worlds $most"; else most="--operations $operations"; fi
        # shellcheck disable=SC2086 # an option and its value
        timeout 600 "$program" --first "$first" $most --jobs 1
        ;;
    power) MILLRACE_POWER_SEEDS=${3:+$((first + 1))} timeout 600 "$program" ;;
    esac >"$work/$2/out" 2>&1
}

# outcome SUITE OUTPUT: sets which seed failed first, and why.
outcome() {
    case $1 in
    sim | cuts | sim_references)
        first=$(sed -n 's/.*the first is \([0-9]*\)$/\1/p' "$2")
        why=$(sed -n "s/^$1: seed $first failed: \(.*\) ($1 --first.*/\1/p" "$2" | head -1)
        ;;
    property)
        first=$(sed -n 's/^table_property: seed \([0-9]*\) .*/\1/p' "$2" | sort -n | head -1)
        why=$(sed -n "s/^table_property: seed $first \(failed at operation [0-9]* \)\?\(.*\) (table_property --first.*/\2/p" "$2" |
            head -1)
        ;;
    power)
        first=$(sed -n 's/.*seed \([0-9]*\)$/\1/p' "$2" | head -1)
        why=$(grep -v '^\[\|^power fails' "$2" | head -1)
        ;;
    esac
}

# suite_of PATCH
suite_of() {
    local directory=${1%/mutants/*}
    case $directory in *tests/unit/ps) echo power ;; *) echo "${directory##*/}" ;; esac
}

# seed_of PATCH: a seed that caught it once; nothing where it names none.
seed_of() {
    sed -n '2s/^seed: //p' "$1"
}

# survives PATCH SUITE DIRECTORY: runs the seed that the patch names, and if that passes, too, all others.
survives() {
    local seed
    seed=$(seed_of "$1")
    { [ -z "$seed" ] || run "$2" "$3" "$seed"; } && run "$2" "$3"
}

# apply PATCH DIRECTORY: copies the files that it changes to DIRECTORY and changes them there.
apply() {
    local file
    while read -r file; do
        mkdir -p "$work/$2/${file%/*}"
        cp "$file" "$work/$2/$file"
    done < <(sed -n 's|^+++ b/||p' "$1")
    patch -s -p1 -F2 --no-backup-if-mismatch -d "$work/$2" <"$1"
}

# build SUITE PATCH DIRECTORY: makes the suite's program in DIRECTORY, compiling only what the patch changes.
build() {
    local changed objects
    changed=$(sed -n 's|^+++ b/||p' "$2")
    mapfile -t objects < <(objects_of "$1" | sed 's/o$/d/' | (cd "$work" && xargs grep -lF -- "$changed") | sed 's/d$/o/')
    compile "$3" "${objects[@]}" && link "$1" "$3"
}

# try PATCH: breaks the code and runs the suite; the outcome is a line in results/: caught or not, suite, seed, why.
try() {
    local suite name directory first=- why
    suite=$(suite_of "$1") name=$(basename "$1" .patch)
    directory=mutants/$suite-$name
    mkdir "$work/$directory"
    local out=$work/$directory/out caught=no
    if ! apply "$1" "$directory" >"$out" 2>&1; then
        first="DOES NOT APPLY" why=$(head -1 "$out")
    elif ! build "$suite" "$1" "$directory" >"$out" 2>&1; then
        first="DOES NOT BUILD" why=$(grep -m1 error "$out" || true)
    elif survives "$1" "$suite" "$directory"; then
        first=SURVIVED why=$(tail -1 "$out")
    else
        outcome "$suite" "$out"
        if [ -n "$first" ]; then caught=yes; else first="NO SEED" why=$(tail -1 "$out"); fi
    fi
    printf '%s\t%s\t%s\t%s\n' "$caught" "$suite" "$first" "$why" >"$work/results/$suite-$name"
    rm -rf "${work:?}/$directory"
}

# in_parallel FUNCTION ARGUMENT...: calls it with each argument, as many at a time as there are jobs.
in_parallel() {
    local function=$1 argument running=0
    shift
    for argument; do
        if [ "$running" -eq "$jobs" ]; then wait -n; else running=$((running + 1)); fi
        "$function" "$argument" &
    done
    wait
}

mapfile -t suites < <(for patch in "${patches[@]}"; do suite_of "$patch"; done | sort -u)
find dataplane ps trainer_client tests/*.[ch] tests/{sim,sim_references,property,unit} -name '*.[ch]' -print0 -o -name '*.def' -print0 |
    tar -c --null --files-from - | tar -x -C "$work"
rm -rf "$work"/ps/modules "$work"/trainer_client/{hub,examples,python,torchrec} "$work"/dataplane/wire/base/cli.c
mapfile -t objects < <(for suite in "${suites[@]}"; do objects_of "$suite"; done | sort -u)
compile . "${objects[@]}"
in_parallel try "${patches[@]}"

survived=0
# report NAME OUTCOME WHY
report() {
    printf '%-34s %-16s %s\n' "$1" "$2" "$3"
}
report mutant "caught at seed" why
for patch in "${patches[@]}"; do
    name=$(basename "$patch" .patch)
    IFS=$'\t' read -r caught _ first why <"$work/results/$(suite_of "$patch")-$name"
    report "$name" "$first" "$why"
    [ "$caught" = yes ] || survived=$((survived + 1))
done

# A seed that fails on the code as it is catches nothing. Power failures run all seeds up to the one given, so the largest will do.
for suite in "${suites[@]}"; do
    link "$suite" .
    while read -r seed; do
        if ! run "$suite" . "$seed"; then
            echo "mutants: $suite fails on the code as it is, at seed $seed:" >&2
            cat "$work/out" >&2
            exit 1
        fi
    done < <(awk -F '\t' -v suite="$suite" '$1 == "yes" && $2 == suite { print $3 }' "$work"/results/* | sort -nu |
        if [ "$suite" = power ]; then tail -n 1; else cat; fi)
done
echo "mutants: $((${#patches[@]} - survived)) of ${#patches[@]} caught"
[ "$survived" -eq 0 ]
