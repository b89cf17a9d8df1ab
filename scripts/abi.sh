#!/usr/bin/env bash
# Compares the interface of libmillrace with that of the newest version in tests/upgrade/versions of the same SONAME, by abidiff.
# Where none of this SONAME is listed, there is nothing to keep, and where the repository's history is cut off, nothing to
# compare with: then it says so.
# usage: scripts/abi.sh [TREE]     TREE: of the library to compare, in place of this one
set -euo pipefail
cd "$(dirname "$0")/.."

minor() { sed -n "s/^  version: '\([0-9]*\.[0-9]*\)\..*/\1/p"; }

soname=$(minor <meson.build)
commit=
while read -r _ listed _; do
    if [ "$(git show "$listed:meson.build" 2>/dev/null | minor)" = "$soname" ]; then commit=$listed; fi
done < <(grep -v '^#' tests/upgrade/versions)
if [ -z "$commit" ]; then
    echo "abi: nothing compared: tests/upgrade/versions has no version $soname whose commit is in this repository"
    exit 0
fi
command -v abidiff >/dev/null || { echo "abi: abidiff is missing: scripts/setup.sh lint installs it" >&2; exit 1; }
tree=$(realpath "${1:-.}")

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
# headers TREE: a folder with copies of those that are installed: what others define is no part of the interface.
headers() {
    mkdir -p "$1/build-abi/public"
    cp "$1"/trainer_client/millrace*.h "$1"/dataplane/rpc/millrace_rpc.h "$1"/dataplane/wire/format/mr_*.h "$1/build-abi/public"
    echo "$1/build-abi/public"
}

before=$(library "$listed")
after=$(library "$tree")
# Without the first option it reads all types of the library, for minutes.
abidiff --exported-interfaces-only --drop-private-types --no-added-syms --headers-dir1 "$(headers "$listed")" \
    --headers-dir2 "$(headers "$tree")" "$before" "$after" || {
    echo "abi: programs of $commit would misread this library: raise the minor version (docs/adr/0128-soname-by-minor-version.md)"
    exit 1
}
echo "abi: as in $commit"
