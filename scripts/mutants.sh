#!/usr/bin/env bash
# Shows that the simulator finds bugs: breaks the transport on purpose, one patch of tests/sim/mutants/ at a time, and runs
# seeds until one fails. First the transport as it is must pass all the seeds. Prints a table; exit status 1 when a mutant
# survives, or a patch no longer applies or builds.
# usage: scripts/mutants.sh [--seeds N] [--jobs N] [PATCH...]      default: 4000 seeds, all processors, all patches
set -euo pipefail
cd "$(dirname "$0")/.."

seeds=4000 jobs=$(nproc) patches=()
while [ $# -gt 0 ]; do
    case $1 in
    --seeds | --jobs)
        [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || { echo "mutants: $1 wants a number" >&2; exit 2; }
        if [ "$1" = --seeds ]; then seeds=$2; else jobs=$2; fi
        shift 2
        ;;
    -h | --help) sed -n '2,5s/^# //p' "$0"; exit 0 ;;
    -*) echo "mutants: unknown option '$1'; see --help" >&2; exit 2 ;;
    *) [ -f "$1" ] || { echo "mutants: no file '$1'" >&2; exit 2; }; patches+=("$1"); shift ;;
    esac
done
[ ${#patches[@]} -gt 0 ] || patches=(tests/sim/mutants/*.patch)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
read -ra flags <<<"-std=gnu17 -O1 -D_GNU_SOURCE $(pkg-config --cflags libsodium libxxhash)"
read -ra libs <<<"$(pkg-config --libs libsodium libxxhash) -lm"

# compile SOURCE...: object files next to them, in parallel.
# shellcheck disable=SC2016 # the inner shell expands it
compile() {
    (cd "$work" && printf '%s\n' "$@" |
        xargs -P "$jobs" -I{} sh -c '"$@" -c "$0" -o "${0%.c}.o"' {} "${CC:-cc}" "${flags[@]}" -I.)
}

link_sim() {
    (cd "$work" && "${CC:-cc}" -o sim tests/sim/*.o dataplane/wire/*.o "${libs[@]}")
}

run_sim() {
    "$work/sim" --seeds "$seeds" --jobs "$jobs" --seconds 10 --stop >"$work/out" 2>&1
}

mkdir -p "$work/dataplane/wire" "$work/tests/sim"
cp dataplane/wire/*.[ch] "$work/dataplane/wire/"
cp tests/sim/*.[ch] "$work/tests/sim/"
mapfile -t sources < <(cd "$work" && ls dataplane/wire/*.c tests/sim/*.c)
compile "${sources[@]}"
link_sim
if ! run_sim; then
    echo "mutants: the transport as it is fails:" >&2
    cat "$work/out" >&2
    exit 1
fi
tail -1 "$work/out"

survived=0
# report NAME OUTCOME WHY
report() {
    printf '%-34s %-16s %s\n' "$1" "$2" "$3"
}
report mutant "caught at seed" why
for patch in "${patches[@]}"; do
    name=$(basename "$patch" .patch)
    mapfile -t changed < <(sed -n 's|^+++ b/||p' "$patch")
    if ! patch -s -p1 -F2 --no-backup-if-mismatch -d "$work" <"$patch" >"$work/out" 2>&1; then
        report "$name" "DOES NOT APPLY" "$(head -1 "$work/out")"
        survived=$((survived + 1))
    elif ! { compile "${changed[@]}" && link_sim; } >"$work/out" 2>&1; then
        report "$name" "DOES NOT BUILD" "$(grep -m1 error "$work/out")"
        survived=$((survived + 1))
    elif run_sim; then
        report "$name" SURVIVED "$seeds seeds"
        survived=$((survived + 1))
    else
        first=$(sed -n 's/.*the first is \([0-9]*\)$/\1/p' "$work/out")
        why=$(sed -n "s/^sim: seed $first failed: \(.*\) (sim --first.*/\1/p" "$work/out" | head -1)
        report "$name" "$first" "$why"
    fi
    for file in "${changed[@]}"; do
        cp "$file" "$work/$file"
        rm -f "$work/$file.rej"
    done
    compile "${changed[@]}"
done
echo "mutants: $((${#patches[@]} - survived)) of ${#patches[@]} caught"
[ "$survived" -eq 0 ]
