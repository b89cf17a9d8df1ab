#!/usr/bin/env bash
# A node on PCI NICs, as QEMU emulates them, in a guest that is made of Debian's kernel and this machine's files: e1000e, e1000, vmxnet3,
# virtio-net, and igb where QEMU has it (8 and later). On each, with one core and with two: who has the device, rows, checksums,
# steering, link changes, a save, a kill and a restore, unbinding. Half an hour on 2 cores, as there need not be KVM. Needs root.
# usage: scripts/nic.sh [MODEL...]      default: all; exit status 77: QEMU or a kernel cannot be had here
set -euo pipefail
cd "$(dirname "$0")/.."

case "${1:-}" in
-h | --help) sed -n '2,5s/^# //p' "$0"; exit 0 ;;
esac
skip() {
    echo "nic: skipped: $*" >&2
    exit 77
}
[ "$(id -u)" -eq 0 ] || skip "needs root, for taps in a network namespace and for all files in the guest"
[ "$(uname -m)" = x86_64 ] || skip "the emulated NICs are those of x86-64; this machine is $(uname -m)"
scripts/setup.sh nic || skip "packages cannot be installed; the lines above say which"
command -v qemu-system-x86_64 >/dev/null || skip "there is no qemu-system-x86_64: install QEMU (Debian: qemu-system-x86)"

# fetch PACKAGE: unpacks it into build/nic/PACKAGE unless it is there. Not installed: the guest has a kernel of its own.
fetch() {
    local package=$1 into=build/nic/$1
    [ ! -e "$into/complete" ] || return 0
    rm -rf "$into"
    mkdir -p "$into/deb"
    (cd "$into/deb" && apt-get download "$package") >"$into/apt.log" 2>&1 || { tail -n 3 "$into/apt.log" >&2; return 1; }
    dpkg-deb -x "$into"/deb/*.deb "$into"
    rm -r "$into/deb"
    touch "$into/complete"
}
mkdir -p build/nic
kernel=$(apt-cache depends --important linux-image-amd64 2>/dev/null | sed -n 's/^ *Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1)
[ -n "$kernel" ] || skip "apt knows no linux-image-amd64: is this Debian, and are its package lists there (apt-get update)?"
for package in "$kernel" busybox-static; do
    fetch "$package" || skip "the package $package cannot be downloaded"
done
[ -e "build/nic/$kernel/lib" ] || ln -s usr/lib "build/nic/$kernel/lib" # Debian 13
depmod -b "build/nic/$kernel" "$(basename "build/nic/$kernel"/lib/modules/*)"

scripts/configure.sh build --buildtype=release
targets='ps/millraced|trainer_client/libmillrace\.so\.[0-9.]*|trainer_client/python/millrace/.*\.pyi?'
mapfile -t targets < <(ninja -C build build.ninja >/dev/null && ninja -C build -t targets all | sed -nE "s,^($targets): .*,\1,p")
ninja -C build --quiet "${targets[@]}"
build=$PWD/build
export PYTHONPATH=$build/trainer_client/python PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
export MILLRACE_LIBRARY=$build/trainer_client/libmillrace.so MILLRACED=$build/ps/millraced
busybox=$(find "$build/nic/busybox-static" -name busybox -type f -perm -u+x | head -n 1)
exec unshare --net -- /usr/bin/python3 tests/nic/test_nic.py "$build/nic/$kernel" "$busybox" "$build/nic/run" "$@"
