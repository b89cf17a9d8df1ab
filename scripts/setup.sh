#!/usr/bin/env bash
# Installs the Debian packages that building, testing and linting need. Does nothing when all are there.
# On a system without apt it says which packages to install by hand.
# usage: scripts/setup.sh [build|test|nic|cluster|lint|fuzz|bench|peers|deb|wheel|roots|cross|all]...    default: test
# cross: for arm64, in a root of which dpkg --print-foreign-architectures says arm64; not part of all
set -euo pipefail

readonly tried="Debian 12 and 13"
# A name with | is a list of alternatives: the first that is installed, else the first that the release has.
readonly java="openjdk-17-jre-headless|openjdk-21-jre-headless|default-jre-headless"
readonly java_compiler="openjdk-17-jdk-headless|openjdk-21-jdk-headless|default-jdk-headless"
build_packages=(gcc libc6-dev dpkg-dev meson ninja-build pkg-config
    dpdk libdpdk-dev dpdk-dev liburing-dev libjemalloc-dev libxxhash-dev libsodium-dev libjansson-dev libinih-dev
    libcurl4-openssl-dev libexpat1-dev libmicrohttpd-dev librdkafka-dev libssl-dev libsystemd-dev libzookeeper-mt-dev zlib1g-dev libzstd-dev libdnnl-dev python3-cffi python3-numpy)
cluster_packages=(zookeeper "$java")
test_packages=(libcmocka-dev mold groff-base mandoc iproute2 iputils-ping ethtool patch procps python3 python3-xxhash xz-utils
    python3-pytest python3-torch python3-venv libopenblas0-pthread python3-swift faketime maven "$java_compiler"
    nghttp2-proxy openssl prometheus tshark chromium-headless-shell python3-pil "${cluster_packages[@]}")
# The guest's kernel and busybox are unpacked, not installed (scripts/nic.sh).
nic_packages=(qemu-system-x86 cpio kmod iproute2 iputils-ping ethtool python3-numpy)
lint_packages=(abigail-tools black clang-format clang-tidy cppcheck libomp-dev shellcheck mypy pyflakes3)
fuzz_packages=(clang "libclang-rt-dev|libclang-rt-14-dev")
bench_packages=(fio python3-torch python3-numpy libopenblas0-pthread)
# redis-tools holds the server, too; the package redis-server would begin to serve this machine.
peers_packages=(g++ libgrpc++-dev libprotobuf-dev protobuf-compiler protobuf-compiler-grpc libabsl-dev libhiredis-dev redis-tools
    python3-torch python3-numpy python3-venv libopenblas0-pthread)
deb_packages=(build-essential debhelper debootstrap dh-python iproute2 lintian)
wheel_packages=(git python3-pytest python3-venv)
roots_packages=(debootstrap git)
# Of libraries only arm64's files for development: some packages have no place beside those of another architecture.
cross_packages=(crossbuild-essential-arm64 ccache "qemu-user-static|qemu-user" iproute2 iputils-ping ethtool procps xz-utils
    build-essential debhelper dh-python python3-venv "${cluster_packages[@]}")
for package in "${build_packages[@]}" libcmocka-dev; do
    case "$package" in
    gcc | libc6-dev | dpkg-dev | meson | ninja-build | pkg-config | python3*) cross_packages+=("$package") ;;
    dpdk | dpdk-dev) ;; # programs for operators, whose Python would be arm64's, too
    *) cross_packages+=("$package:arm64") ;;
    esac
done

usage() {
    sed -n '2,5s/^# //p' "$0"
}

wanted=()
[ $# -eq 0 ] && set -- test
for group in "$@"; do
    case "$group" in
    build) wanted+=("${build_packages[@]}") ;;
    test) wanted+=("${build_packages[@]}" "${test_packages[@]}") ;;
    nic) wanted+=("${build_packages[@]}" "${nic_packages[@]}") ;;
    cluster) wanted+=("${cluster_packages[@]}") ;;
    lint) wanted+=("${build_packages[@]}" "${test_packages[@]}" "${lint_packages[@]}") ;;
    fuzz) wanted+=("${build_packages[@]}" "${test_packages[@]}" "${fuzz_packages[@]}") ;;
    bench) wanted+=("${build_packages[@]}" "${test_packages[@]}" "${bench_packages[@]}") ;;
    peers) wanted+=("${build_packages[@]}" "${test_packages[@]}" "${peers_packages[@]}") ;;
    deb) wanted+=("${build_packages[@]}" "${deb_packages[@]}") ;;
    wheel) wanted+=("${build_packages[@]}" "${wheel_packages[@]}") ;;
    roots) wanted+=("${roots_packages[@]}") ;;
    cross) wanted+=("${cross_packages[@]}") ;;
    all)
        wanted+=("${build_packages[@]}" "${test_packages[@]}" "${lint_packages[@]}" "${fuzz_packages[@]}"
            "${bench_packages[@]}" "${peers_packages[@]}" "${deb_packages[@]}" "${wheel_packages[@]}" "${roots_packages[@]}")
        ;;
    -h | --help) usage; exit 0 ;;
    *) echo "setup: unknown group '$group': build, test, nic, cluster, lint, fuzz, bench, peers, deb, wheel, roots, cross or all" >&2; exit 2 ;;
    esac
done

# The build goes on: what it lacks it says itself.
if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    echo "setup: tried on $tried; here is no apt, so install what these Debian packages hold by hand: ${wanted[*]}" >&2
    exit 0
fi

# is_installed PACKAGE|PACKAGE...: one of them is enough.
is_installed() {
    local package
    for package in ${1//|/ }; do
        if dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed; then return 0; fi
    done
    return 1
}

missing=()
for package in "${wanted[@]}"; do
    is_installed "$package" || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

sudo=()
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "setup: missing packages: ${missing[*]}" >&2
        echo "setup: run this as root, or install sudo" >&2
        exit 1
    fi
    sudo=(sudo)
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
fail() {
    tail -n 20 "$log" >&2
    echo "setup: apt-get failed; the lines above say why" >&2
    exit 1
}
echo "setup: installing ${#missing[@]} Debian packages" >&2
# Package lists may be absent or stale on a fresh machine.
"${sudo[@]}" apt-get update >"$log" 2>&1 || fail
declare -A candidates
while read -r package; do
    candidates[$package]=1
done < <(tr '|' '\n' < <(printf '%s\n' "${missing[@]}") | LC_ALL=C xargs apt-cache policy |
    awk '/^[^ ]/ { sub(/:$/, ""); name = $0 } /^ *Candidate: [^(]/ { print name }')
chosen=() unknown=()
for alternatives in "${missing[@]}"; do
    found=
    for package in ${alternatives//|/ }; do
        [ -n "$found" ] || found=${candidates[$package]:+$package}
    done
    if [ -n "$found" ]; then chosen+=("$found"); else unknown+=("$alternatives"); fi
done
if [ ${#unknown[@]} -gt 0 ]; then
    system=$(sed -n 's/^PRETTY_NAME="\(.*\)"$/\1/p' /etc/os-release)
    echo "setup: tried on $tried; $system has no package for these, so install what they" \
        "hold by hand: ${unknown[*]}" >&2
fi
if [ ${#chosen[@]} -gt 0 ]; then
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${chosen[@]}" >"$log" 2>&1 || fail
fi
# Tests start a Prometheus of their own; Debian's would begin to serve this machine.
if [[ " ${chosen[*]} " == *" prometheus "* && -d /run/systemd/system ]]; then
    "${sudo[@]}" systemctl disable --quiet --now prometheus.service
fi
