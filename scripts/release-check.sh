#!/usr/bin/env bash
# Runs what a release needs and CI does not, one part after the other, and prints what passed on which system, with times.
# usage: scripts/release-check.sh [--only PART]...      PART: a name of the list below; all of them without
#   build-sid   builds everything, with the tests, on Debian sid
#   demo-13     scripts/demo.sh on Debian 13
#   deb         builds the Debian packages, and installs, uses and removes them in a fresh root (make deb-test)
#   wheel       builds the wheel, and installs it as pip's users do (make test-pip, which takes TORCH and TORCHREC)
#   test-13     scripts/test.sh --quick on Debian 13
#   arm64       cross-builds for arm64, and tests in emulation (make arm64)
#   arm64-guest  tests DPDK's ports and io_uring in a guest with a kernel of arm64 (scripts/arm64.sh --guest)
#   soak        make soak
#
# A part that fails does not end the others. The output of each is in build/release-check/PART.log. Needs root.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly parts=(build-sid demo-13 deb wheel test-13 arm64 arm64-guest soak)
readonly logs=build/release-check

say() { echo "release-check: $*" >&2; }
usage() { sed -n '2,13s/^# \{0,1\}//p' scripts/release-check.sh; }

# run_part PART: each is one command, as bash ignores errors in what stands in a condition.
run_part() {
    case "$1" in
    build-sid)
        scripts/on-debian.sh sid sh -ec 'scripts/setup.sh test
            scripts/configure.sh build --buildtype=release -Dtests=enabled
            ninja -C build'
        ;;
    demo-13) scripts/on-debian.sh 13 scripts/demo.sh ;;
    deb) make --no-print-directory deb-test ;;
    wheel) make --no-print-directory test-pip ;;
    test-13) scripts/on-debian.sh 13 scripts/test.sh --quick ;;
    arm64) make --no-print-directory arm64 ;;
    arm64-guest) scripts/arm64.sh --guest 12 ;;
    soak) make --no-print-directory soak ;;
    esac
}

# where PART: the system that it runs on.
where() {
    local here
    here=$(sed -n 's/^PRETTY_NAME="\(.*\)"$/\1/p' /etc/os-release)
    case "$1" in
    *-sid) echo "Debian sid" ;;
    *-13) echo "Debian 13" ;;
    arm64*) echo "arm64, emulated" ;;
    *) echo "$here" ;;
    esac
}

chosen=()
while [ $# -gt 0 ]; do
    case "$1" in
    -h | --help) usage; exit 0 ;;
    --only)
        if [ $# -lt 2 ] || [[ " ${parts[*]} " != *" $2 "* ]]; then
            say "--only needs one of: ${parts[*]}"
            exit 2
        fi
        chosen+=("$2")
        shift
        ;;
    *) say "unknown option '$1'; see --help"; exit 2 ;;
    esac
    shift
done
[ ${#chosen[@]} -gt 0 ] || chosen=("${parts[@]}")
if [ "$(id -u)" -ne 0 ]; then
    say "needs root for namespaces and mounts: run it as root, or through sudo"
    exit 1
fi

table=()
status=0
# add_row PART RESULT SECONDS
add_row() {
    local last=
    [ ! -s "$logs/$1.log" ] || last=$(tail -n 1 "$logs/$1.log" | cut -c 1-100)
    table+=("$(printf '%-12s %-32s %-8s %3d min %02d s  %s' "$1" "$(where "$1")" "$2" $(($3 / 60)) $(($3 % 60)) "$last")")
}
print_table() {
    echo
    printf '%-12s %-32s %-8s %12s  %s\n' part on result time "last line"
    [ ${#table[@]} -eq 0 ] || printf '%s\n' "${table[@]}"
}
trap 'print_table; exit 130' INT TERM

mkdir -p "$logs"
for part in "${chosen[@]}"; do
    say "$part, on $(where "$part"); its output is in $logs/$part.log"
    started=$SECONDS result=passed
    run_part "$part" >"$logs/$part.log" 2>&1 </dev/null || result=FAILED
    [ $result = passed ] || status=1
    add_row "$part" $result $((SECONDS - started))
    say "$part: $result"
done
print_table
exit $status
