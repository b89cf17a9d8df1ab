#!/usr/bin/env bash
# Builds the Debian packages from this tree into build/deb/ and has lintian check them.
# usage: scripts/deb.sh
set -euo pipefail
cd "$(dirname "$0")/.."

case "${1:-}" in
"") ;;
-h | --help) sed -n '2,3s/^# //p' "$0"; exit 0 ;;
*) echo "deb: unknown option '$1'; see --help" >&2; exit 2 ;;
esac

scripts/setup.sh deb

# dpkg-buildpackage writes beside the source tree: it gets a copy.
out=build/deb
rm -rf "$out"
mkdir -p "$out/millrace"
tar -c --exclude-vcs --exclude=./build --exclude='./build-*' --exclude=__pycache__ . | tar -x -C "$out/millrace"

echo "deb: building; $out/build.log tells how it goes"
# Tests are make test's.
if ! (cd "$out/millrace" && DEB_BUILD_OPTIONS="nocheck parallel=$(nproc) ${DEB_BUILD_OPTIONS:-}" \
    dpkg-buildpackage --unsigned-source --unsigned-changes --build=binary) >"$out/build.log" 2>&1; then
    tail -n 30 "$out/build.log" >&2
    echo "deb: dpkg-buildpackage failed; the lines above say why" >&2
    exit 1
fi
rm -rf "$out/millrace"

lintian_options=(--fail-on error --tag-display-limit 0)
[ "$(id -u)" -eq 0 ] && lintian_options+=(--allow-root)
lintian "${lintian_options[@]}" "$out"/*.changes

for package in "$out"/*.deb; do
    echo "$package"
done
