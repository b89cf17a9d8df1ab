#!/usr/bin/env bash
# Builds for arm64 with Debian's cross compiler, and runs what was built in emulation (qemu-aarch64): unit tests, integration tests
# on sockets, nodes and trainers of arm64 and x86-64 beside each other, and the demo on one node and on three. For an x86-64 machine:
# on an Arm machine make test runs all of it, and more.
# usage: scripts/arm64.sh [--build] [--guest] [--tests "NAME..."] [RELEASE]...
#   RELEASE           Debian's, 12 and 13 by default: each in a root of its own (scripts/on-debian.sh)
#   --build           builds, and runs nothing
#   --guest           runs the tests of DPDK's ports and of io_uring, which that emulation lacks, in a guest of qemu-system-aarch64
#   --tests "NAME..." runs these tests and nothing else; without --guest a NAME may be architectures or demo
#
# The kernel starts arm64 programs through an entry in binfmt_misc, as tests start programs that start others. It is there for as long
# as the script runs. Needs root.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly binfmt=/proc/sys/fs/binfmt_misc
readonly build=build/arm64
export QEMU_CPU=neoverse-n1 # what servers have had since 2019, without what is slow to emulate
say() { echo "arm64: $*" >&2; }
die() {
    say "$*"
    exit 1
}

build_only=0 in_guest=0 tests='' inside='' releases=()
while [ $# -gt 0 ]; do
    case "$1" in
    -h | --help) sed -n '2,13s/^# \{0,1\}//p' "$0"; exit 0 ;;
    --build) build_only=1 ;;
    --guest) in_guest=1 ;;
    --tests) tests=${2:?arm64: --tests needs names} && shift ;;
    --inside) inside=${2:?} && shift ;;
    -*) say "unknown option '$1'; see --help"; exit 2 ;;
    *) releases+=("$1") ;;
    esac
    shift
done
[ ${#releases[@]} -gt 0 ] || releases=(12 13)
[ "$(uname -m)" = x86_64 ] || die "this is for x86-64; here, make test tests what make builds"
[ "$(id -u)" -eq 0 ] || die "needs root for mounts and binfmt_misc: run it as root, or through sudo"

# ---- in the root ----

build_inside() {
    local targets
    dpkg --print-foreign-architectures | grep -qx arm64 || dpkg --add-architecture arm64
    scripts/setup.sh cross
    export PATH=/usr/lib/ccache:$PATH
    scripts/configure.sh $build --buildtype=release --cross-file scripts/aarch64-linux-gnu.ini -Dtests=enabled -Dlayers=enabled \
        -Dpeers=disabled
    ninja -C $build build.ninja >/dev/null # as the sources are now
    mapfile -t targets < <(python3 scripts/arm64_tests.py targets $build)
    say "building with $(aarch64-linux-gnu-gcc --version | head -n 1)"
    ninja -C $build "${targets[@]}" >$build.log 2>&1 || { tail -n 30 $build.log >&2; die "the build failed"; }
}

# Nodes of tests take the port's driver from MILLRACE_DRIVER: emulation has sockets, and none of DPDK's ways to a port.
test_inside() {
    local names report=report
    if [ -n "$tests" ]; then
        read -ra names <<<"$tests"
        report=results
    else
        mapfile -t names < <(python3 scripts/arm64_tests.py names $build)
    fi
    rm -f $build/meson-logs/testlog*.json
    MILLRACE_DRIVER=socket meson test -C $build --no-rebuild --num-processes "$(nproc)" --timeout-multiplier 20 "${names[@]}" \
        >$build.tests.log 2>&1 || true # the report says
    python3 scripts/arm64_tests.py $report $build
}

# demo_inside NODES
demo_inside() {
    local output
    if ! output=$(NODES=$1 MILLRACE_BUILD=$build MILLRACE_DRIVER=socket MILLRACE_DEMO_SECONDS=1800 scripts/demo.sh 2>&1); then
        echo "$output"
        die "the demo on $1 node(s) failed"
    fi
    grep '^demo: ok' <<<"$output"
}

case "$inside" in
"") ;;
build) build_inside; exit ;;
tests) test_inside; exit ;;
demo-*) demo_inside "${inside#demo-}"; exit ;;
esac

# ---- outside ----
entry=''
unregister() {
    [ -z "$entry" ] || echo -1 >"$binfmt/$entry"
    entry=''
}
trap unregister EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# register EMULATOR. With the letter F the kernel opens it now, so that programs find it in any root and namespace; with P they see
# the name by which they were called.
register() {
    local name
    [ -e $binfmt/register ] || mount -t binfmt_misc binfmt_misc $binfmt || die "the kernel has no binfmt_misc"
    for name in "$binfmt"/millrace-arm64-*; do # of scripts that were killed
        if [ -e "$name" ] && [ ! -e "/proc/${name##*-}" ]; then echo -1 >"$name"; fi
    done
    unregister
    name=millrace-arm64-$$
    printf '%s' ":$name:M::"'\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00:\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:'"$1:FP" \
        >$binfmt/register
    entry=$name
}

# Programs of this machine's build/, and those of the copy in the root, whose libraries emulation finds there.
# shellcheck disable=SC2317 # part calls it
test_architectures() {
    scripts/setup.sh build cluster
    scripts/configure.sh build --buildtype=release -Dtests=enabled
    ninja -C build ps/millraced tools/millrace tests/integration/step_trainer >build/architectures.log 2>&1 ||
        die "the build for x86-64 failed; build/architectures.log has all it said"
    QEMU_LD_PREFIX=$root python3 tests/integration/architectures/test_architectures.py "$copy/$build" build
}

# A root of arm64's own, with the libraries of the one for which it was built, and a kernel. Needs the emulator to be registered.
# shellcheck disable=SC2317 # part calls it
test_guest() {
    local guest paths kernel
    command -v qemu-system-aarch64 >/dev/null || apt-get install -y qemu-system-arm cpio
    mapfile -t paths < <(scripts/on-debian.sh --arch arm64 --paths "$release")
    guest=${paths[0]}
    # shellcheck disable=SC2016 # the root's shell expands it
    scripts/on-debian.sh --arch arm64 "$release" sh -ec 'apt-get install -y --no-install-recommends iproute2 ethtool procps kmod iputils-ping python3-minimal
        kernel=$(apt-cache depends --important linux-image-arm64 | sed -n "s/^ *Depends: \(linux-image-[0-9].*\)/\1/p" | head -n 1)
        mkdir -p /kernel /millrace && cd /kernel
        [ -e complete ] || { apt-get download "$kernel" busybox-static && for deb in *.deb; do dpkg-deb -x "$deb" .; done && touch complete; }'
    cp -a "$root/usr/lib/aarch64-linux-gnu/." "$guest/usr/lib/aarch64-linux-gnu/"
    chroot "$guest" ldconfig
    cp tests/guest/guest_init.sh "$guest/guest_init.sh"
    kernel=$guest/kernel
    depmod -b "$kernel" "$(ls "$kernel/lib/modules")"
    mkdir -p build/guest
    # shellcheck disable=SC2086 # names
    python3 tests/guest/test_arm64.py "$kernel" "$kernel/bin/busybox" "$guest" "$copy" build/guest $tests
}

# part NAME COMMAND...: to be run unless others are wanted; its time, and whether it failed.
part() {
    local name=$1 started=$SECONDS result=passed
    shift
    ("$@") || result=FAILED
    say "Debian $release: $name $result in $((SECONDS - started)) s"
    [ $result = passed ] || { status=1 && failed+=("$name"); }
}

status=0 failed=()
for release in "${releases[@]}"; do
    on=(scripts/on-debian.sh --root arm64 "$release" env "QEMU_CPU=$QEMU_CPU" scripts/arm64.sh)
    part build "${on[@]}" --inside build
    [ ${#failed[@]} -eq 0 ] || exit 1
    [ $build_only -eq 0 ] || continue
    mapfile -t paths < <(scripts/on-debian.sh --root arm64 --paths "$release")
    root=${paths[0]} copy=${paths[1]}
    for emulator in "$root/usr/bin/qemu-aarch64-static" "$root/usr/bin/qemu-aarch64"; do
        [ -x "$emulator" ] && break
    done
    register "$emulator"
    if [ $in_guest -eq 1 ]; then
        part "guest" test_guest
        continue
    fi
    chosen=() parts=()
    for name in $tests; do
        case "$name" in
        architectures | demo) parts+=("$name") ;;
        *) chosen+=("$name") ;;
        esac
    done
    [ -n "$tests" ] || parts=(architectures demo)
    if [ -z "$tests" ] || [ ${#chosen[@]} -gt 0 ]; then
        part tests "${on[@]}" ${tests:+--tests "${chosen[*]}"} --inside tests
    fi
    for name in "${parts[@]}"; do
        case "$name" in
        architectures) part "both architectures" test_architectures ;;
        demo)
            part "demo on one node" "${on[@]}" --inside demo-1
            part "demo on three nodes" "${on[@]}" --inside demo-3
            ;;
        esac
    done
done
[ $build_only -eq 1 ] || echo "arm64 on Debian ${releases[*]}: $([ $status -eq 0 ] && echo 'all passed' || echo "FAILED: ${failed[*]}"), $((SECONDS / 60)) min"
exit $status
