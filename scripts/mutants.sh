#!/usr/bin/env bash
# Shows that the simulators, the tables' property test and the power failures of checkpoints find bugs: breaks the code on purpose, one
# patch of tests/sim/mutants/ (the transport), tests/sim/cuts/mutants/ (cuts), tests/sim_references/mutants/ (remote
# references), tests/property/mutants/ (tables) or tests/unit/ps/mutants/ (saves) at a time, and runs seeds until one fails. First the
# code as it is must pass them all. Prints a table; exit status 1 when a mutant survives, or a patch no longer applies or builds.
# With --sample N it breaks the source at N random places of its own choosing instead (scripts/mutation/run.py --help).
# usage: scripts/mutants.sh --sample N [--seed S] | [--seeds N] [--operations N] [--jobs N] [sim | cuts | sim_references | property | power | PATCH...]
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
    -h | --help) sed -n '2,9s/^# //p' "$0"; exit 0 ;;
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
read -ra flags <<<"-std=gnu17 -O1 -ffp-contract=off -D_GNU_SOURCE -DPS_SCRUB -DMR_MODULE_DIR=\"modules\" -DMR_VERSION=\"mutant\" $(pkg-config --cflags libsodium libxxhash jemalloc liburing jansson)"
read -ra libs <<<"$(pkg-config --libs libsodium libxxhash jemalloc liburing jansson) -linih -lcmocka -lm -pthread"

# compile SOURCE...: object files next to them, in parallel.
# shellcheck disable=SC2016 # the inner shell expands it
compile() {
    (cd "$work" && printf '%s\n' "$@" |
        xargs -P "$jobs" -I{} sh -c '"$@" -c "$0" -o "${0%.c}.o"' {} "${CC:-cc}" "${flags[@]}" -I. -iquote dataplane/wire/format -iquote tests/unit/ps)
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
    power) listed checkpoint_sources ;;
    cuts)
        (cd "$work" && find ps trainer_client dataplane/{optimizer,rpc} -name '*.c' ! -path ps/main.c ! -name socket_server.c)
        printf 'tests/sim/%s.c\n' seeds sim_random
        ;;
    sim_references)
        (cd "$work" && find dataplane/rpc -name id_map.c -o -name 'references*.c')
        printf 'tests/sim/%s.c\n' seeds sim_random
        ;;
    esac | sed 's/\.c$/.o/'
    case $1 in
    power) printf 'tests/unit/ps/%s.o\n' chain_fixture checkpoint_fixture fault_store power_disk power_store checkpoint/test_checkpoint_power ;;
    *) (cd "$work" && for source in "$(directory_of "$1")"/*.c; do echo "${source%.c}.o"; done) ;;
    esac
    (cd "$work" && find dataplane/wire -name '*.c' ! -name cli.c) | sed 's/\.c$/.o/'
}

# link SUITE
link() {
    local objects wraps=()
    mapfile -t objects < <(objects_of "$1")
    case $1 in
    property) wraps=('-Wl,--wrap=ps_table_row_remove') ;;
    cuts) mapfile -t wraps < <(sed -n "/^foreach name/,/\]/p" tests/sim/cuts/meson.build | grep -o "'[a-z0-9_]*'" |
        sed "s/'//g; s/^/-Wl,--wrap=/") ;;
    esac
    (cd "$work" && "${CC:-cc}" -o "$1" "${objects[@]}" "${libs[@]}" "${wraps[@]}")
}

# run SUITE: false when a seed fails; what it printed is in $work/out.
run() {
    case $1 in
    sim) "$work/sim" --seeds "$seeds" --jobs "$jobs" --seconds 10 --stop ;;
    cuts) "$work/cuts" --seeds $(((seeds + 9) / 10)) --jobs "$jobs" --stop ;;
    sim_references) "$work/$1" --seeds $((10 * seeds)) --jobs "$jobs" --seconds 10 --stop ;;
    property) timeout 300 "$work/property" --first 1 --operations "$operations" --jobs "$jobs" ;;
    power) timeout 300 "$work/power" ;;
    esac >"$work/out" 2>&1
}

# Which seed failed first, and why: two lines.
outcome() {
    case $1 in
    sim | cuts | sim_references)
        first=$(sed -n 's/.*the first is \([0-9]*\)$/\1/p' "$work/out")
        why=$(sed -n "s/^$1: seed $first failed: \(.*\) ($1 --first.*/\1/p" "$work/out" | head -1)
        ;;
    property)
        first=$(sed -n 's/^table_property: seed \([0-9]*\) .*/\1/p' "$work/out" | sort -n | head -1)
        why=$(sed -n "s/^table_property: seed $first \(failed at operation [0-9]* \)\?\(.*\) (table_property --first.*/\2/p" \
            "$work/out" | head -1)
        ;;
    power)
        first=$(sed -n 's/.*seed \([0-9]*\)$/\1/p' "$work/out" | head -1)
        why=$(grep -v '^\[\|^power fails' "$work/out" | head -1)
        ;;
    esac
}

# suite_of PATCH
suite_of() {
    local directory=${1%/mutants/*}
    case $directory in *tests/unit/ps) echo power ;; *) echo "${directory##*/}" ;; esac
}

suites=$(for patch in "${patches[@]}"; do suite_of "$patch"; done | sort -ru)
mkdir -p "$work"
find dataplane ps trainer_client tests/{sim,sim_references,property,unit/ps} -name '*.[ch]' -print0 -o -name '*.def' -print0 |
    tar -c --null --files-from - | tar -x -C "$work"
rm -rf "$work"/ps/modules "$work"/trainer_client/{hub,examples,python,torchrec} "$work"/dataplane/wire/base/cli.c
for suite in $suites; do
    mapfile -t sources < <(objects_of "$suite" | sed 's/\.o$/.c/')
    compile "${sources[@]}"
    link "$suite"
    if ! run "$suite"; then
        echo "mutants: $suite fails on the code as it is:" >&2
        cat "$work/out" >&2
        exit 1
    fi
    tail -1 "$work/out"
done

survived=0
# report NAME OUTCOME WHY
report() {
    printf '%-34s %-16s %s\n' "$1" "$2" "$3"
}
report mutant "caught at seed" why
for patch in "${patches[@]}"; do
    name=$(basename "$patch" .patch)
    suite=$(suite_of "$patch")
    mapfile -t changed < <(sed -n 's|^+++ b/||p' "$patch")
    mapfile -t rebuilt < <(printf '%s\n' "${changed[@]}" | grep '\.c$' || objects_of "$suite" | sed 's/\.o$/.c/')
    if ! patch -s -p1 -F2 --no-backup-if-mismatch -d "$work" <"$patch" >"$work/out" 2>&1; then
        report "$name" "DOES NOT APPLY" "$(head -1 "$work/out")"
        survived=$((survived + 1))
    elif ! { compile "${rebuilt[@]}" && link "$suite"; } >"$work/out" 2>&1; then
        report "$name" "DOES NOT BUILD" "$(grep -m1 error "$work/out")"
        survived=$((survived + 1))
    elif run "$suite"; then
        report "$name" SURVIVED "$(tail -1 "$work/out")"
        survived=$((survived + 1))
    else
        outcome "$suite"
        report "$name" "$first" "$why"
    fi
    for file in "${changed[@]}"; do
        cp "$file" "$work/$file"
        rm -f "$work/$file.rej"
    done
    compile "${rebuilt[@]}"
done
echo "mutants: $((${#patches[@]} - survived)) of ${#patches[@]} caught"
[ "$survived" -eq 0 ]
