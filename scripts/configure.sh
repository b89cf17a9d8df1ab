#!/usr/bin/env bash
# Makes a build directory with meson where there is none, or where meson was interrupted. Prints only what went wrong.
# usage: scripts/configure.sh [--update] DIR [MESON-OPTION...]
#          --update: changes the options of a directory that is there
set -euo pipefail

update=0
[ "${1:-}" = --update ] && update=1 && shift
readonly dir=${1:?configure: the build directory is missing}
shift

if [ -f "$dir/build.ninja" ]; then
    [ $update -eq 0 ] || meson configure "$dir" "$@" >/dev/null
    exit 0
fi
mkdir -p "$dir"
rm -rf "$dir/meson-private" # with its state, meson would take a directory without build.ninja for configured
readonly log=$dir/configure.log
meson setup "$dir" "$@" >"$log" 2>&1 || {
    tail -n 20 "$log" >&2
    echo "configure: meson failed; $log has all it said" >&2
    exit 1
}
