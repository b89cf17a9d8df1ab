#!/usr/bin/env bash
# Compares the interface of libmillrace with that of the newest version in tests/upgrade/versions of the same SONAME, by abidiff.
# Says nothing where there is none, no abidiff or no history: then there is nothing to keep.
# usage: scripts/abi.sh
set -euo pipefail
cd "$(dirname "$0")/.."

minor() { sed -n "s/^  version: '\([0-9]*\.[0-9]*\)\..*/\1/p"; }

soname=$(minor <meson.build)
commit=
while read -r _ listed _; do
    if [ "$(git show "$listed:meson.build" 2>/dev/null | minor)" = "$soname" ]; then commit=$listed; fi
done < <(grep -v '^#' tests/upgrade/versions)
if [ -z "$commit" ] || ! command -v abidiff >/dev/null; then exit 0; fi

# library TREE: builds it with what abidiff reads, and prints its path.
library() {
    scripts/configure.sh "$1/build-abi" "$1" --buildtype=debugoptimized -Dwerror=false -Dtests=disabled
    ninja -C "$1/build-abi" "trainer_client/libmillrace.so.$(sed -n "s/^  version: '\(.*\)',$/\1/p" "$1/meson.build")" >/dev/null
    ls "$1"/build-abi/trainer_client/libmillrace.so.*.*.*[0-9]
}

listed=${MILLRACE_UPGRADE_CACHE:-/var/cache/millrace-upgrade}/abi-$commit
if [ ! -f "$listed/meson.build" ]; then
    mkdir -p "$listed"
    git archive "$commit" | tar -x -C "$listed"
fi
abidiff --no-added-syms --headers-dir1 "$listed/trainer_client" --headers-dir2 trainer_client "$(library "$listed")" "$(library "$PWD")" || {
    echo "abi: programs of $commit would misread this library: raise the minor version (docs/adr/0128-soname-by-minor-version.md)"
    exit 1
}
