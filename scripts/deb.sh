#!/usr/bin/env bash
# Builds the Debian packages from this tree into build/deb/ and has lintian check them.
# usage: scripts/deb.sh [--arm64]      --arm64: those with programs and libraries, for arm64 into build/deb-arm64/, with the cross
#                                      compiler of Debian 12 in a root of its own; without lintian. Needs root
set -euo pipefail
cd "$(dirname "$0")/.."

options=(--build=binary) out=build/deb
case "${1:-}" in
"") ;;
--arm64)
    out=build/deb-arm64
    scripts/on-debian.sh --root arm64 12 scripts/deb.sh --arm64-inside
    rm -rf "$out"
    mkdir -p "$out"
    cp "$(scripts/on-debian.sh --root arm64 --paths 12 | tail -n 1)/$out"/*.deb "$out/"
    ls "$out"/*.deb
    exit 0
    ;;
--arm64-inside)
    options=(--build=any --host-arch arm64)
    out=build/deb-arm64
    dpkg --print-foreign-architectures | grep -qx arm64 || dpkg --add-architecture arm64
    ;;
-h | --help) sed -n '2,4s/^# //p' "$0"; exit 0 ;;
*) echo "deb: unknown option '$1'; see --help" >&2; exit 2 ;;
esac

if [ $out = build/deb ]; then scripts/setup.sh deb; else scripts/setup.sh cross; fi

# dpkg-buildpackage writes beside the source tree: it gets a copy.
rm -rf "$out"
mkdir -p "$out/millrace"
tar -c --exclude-vcs --exclude=./build --exclude='./build-*' --exclude=__pycache__ . | tar -x -C "$out/millrace"

echo "deb: building; $out/build.log tells how it goes"
# Tests are make test's.
if ! (cd "$out/millrace" && DEB_BUILD_OPTIONS="nocheck parallel=$(nproc) ${DEB_BUILD_OPTIONS:-}" \
    dpkg-buildpackage --unsigned-source --unsigned-changes "${options[@]}") >"$out/build.log" 2>&1; then
    tail -n 30 "$out/build.log" >&2
    echo "deb: dpkg-buildpackage failed; the lines above say why" >&2
    exit 1
fi
rm -rf "$out/millrace"

[ $out = build/deb ] || exit 0
lintian_options=(--fail-on error --tag-display-limit 0)
[ "$(id -u)" -eq 0 ] && lintian_options+=(--allow-root)
lintian "${lintian_options[@]}" "$out"/*.changes

for package in "$out"/*.deb; do
    echo "$package"
done
