#!/usr/bin/env bash
# Builds, and measures Millrace beside PyTorch RPC, gRPC and Redis; options go to tests/bench/peers/peers.py (see --help there).
# Needs root. Writes build/bench/peers.json, .md and .svg.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/setup.sh peers
[ -f build/build.ninja ] || meson setup build --buildtype=release >/dev/null
# Peers whose libraries came after the build directory was made are found by configuring again.
for program in grpc_server redis_client; do
    [ -x "build/tests/bench/peers/$program" ] || { meson setup --reconfigure build >/dev/null && break; }
done
ninja -C build --quiet
sudo=()
[ "$(id -u)" -eq 0 ] || sudo=(sudo)
exec "${sudo[@]}" /usr/bin/python3 tests/bench/peers/peers.py "$@"
