#!/usr/bin/env bash
# Builds, and measures Millrace beside PyTorch RPC, gRPC and Redis; options go to tests/bench/peers/peers.py (see --help there).
# Needs root. Writes build/bench/peers.json, .md and .svg.
# --torch2 (first): also install PyTorch 2 from PyPI into build/bench/torch2 (3 GB), to stand beside Debian's; it is used when it is there.
set -euo pipefail
cd "$(dirname "$0")/.."

torch2=no
[ "${1:-}" = --torch2 ] && torch2=yes && shift
echo "bench-peers: $(date +%T) building; this takes a few minutes the first time" >&2
scripts/setup.sh peers
[ -f build/build.ninja ] || meson setup build --buildtype=release >/dev/null
# Peers whose libraries came after the build directory was made are found by configuring again.
for program in grpc_server redis_client; do
    [ -x "build/tests/bench/peers/$program" ] || { meson setup --reconfigure build >/dev/null && break; }
done
ninja -C build --quiet
if [ "$torch2" = yes ] && [ ! -x build/bench/torch2/bin/python ]; then
    echo "bench-peers: $(date +%T) installing PyTorch 2 from PyPI into build/bench/torch2" >&2
    # Made aside first: an interrupted or failed installation must not be taken for one that works.
    rm -rf build/bench/torch2.part && mkdir -p build/bench
    if /usr/bin/python3 -m venv build/bench/torch2.part >&2 &&
        build/bench/torch2.part/bin/python -m pip install --quiet --no-cache-dir 'torch==2.15.0' numpy >&2; then
        mv build/bench/torch2.part build/bench/torch2
    else
        echo "bench-peers: PyTorch 2 left out: pip could not install it; the lines above say why" >&2
    fi
fi
sudo=()
[ "$(id -u)" -eq 0 ] || sudo=(sudo)
exec "${sudo[@]}" /usr/bin/python3 tests/bench/peers/peers.py "$@"
