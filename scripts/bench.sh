#!/usr/bin/env bash
# Builds and runs the benchmarks; options go to tests/bench/run.py (see --help there). Needs root.
set -euo pipefail
cd "$(dirname "$0")/.."

for option in "$@"; do
    case "$option" in
    -h | --help | --list) exec python3 tests/bench/run.py "$option" ;; # nothing has to be built for that
    esac
done
echo "bench: $(date +%T) building; this takes a few minutes the first time" >&2
scripts/setup.sh bench
scripts/configure.sh build --buildtype=release
quiet=()
[ -t 1 ] || quiet=(--quiet) # a terminal shows how far it is
ninja -C build "${quiet[@]}" all benchmarks
sudo=()
[ "$(id -u)" -eq 0 ] || sudo=(sudo)
exec "${sudo[@]}" python3 tests/bench/run.py "$@"
