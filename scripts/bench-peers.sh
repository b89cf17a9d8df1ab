#!/usr/bin/env bash
# Builds, and measures Millrace beside PyTorch RPC, TorchRec, gRPC and Redis; options go to tests/bench/peers/peers.py (see --help there).
# Needs root. Writes build/bench/peers.json, .md and .svg.
# --torch2 (first): also PyTorch 2 and TorchRec, which scripts/torch2.py installs from PyPI; they are used when build/bench/torch2 is there.
set -euo pipefail
cd "$(dirname "$0")/.."

torch2=no
[ "${1:-}" = --torch2 ] && torch2=yes && shift
echo "bench-peers: $(date +%T) building; this takes a few minutes the first time" >&2
scripts/setup.sh peers
scripts/configure.sh build --buildtype=release
# Peers whose libraries came after the build directory was made are found by configuring again.
for program in grpc_server redis_client; do
    [ -x "build/tests/bench/peers/$program" ] || { meson setup --reconfigure build >/dev/null && break; }
done
ninja -C build --quiet all benchmarks
if [ "$torch2" = yes ]; then
    scripts/torch2.py torchrec >&2
    if python=$(scripts/torch2.py --path torchrec); then
        mkdir -p build/bench
        [ -L build/bench/torch2 ] || rm -rf build/bench/torch2
        ln -sfn "${python%/bin/python}" build/bench/torch2
    fi
fi
sudo=()
[ "$(id -u)" -eq 0 ] || sudo=(sudo)
exec "${sudo[@]}" /usr/bin/python3 tests/bench/peers/peers.py "$@"
