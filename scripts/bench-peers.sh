#!/usr/bin/env bash
# Builds, and measures Millrace beside PyTorch RPC, TorchRec, gRPC and Redis; options go to tests/bench/peers/peers.py (see --help there).
# Needs root. Writes build/bench/peers.json, .md and .svg.
# --torch2 (first): also install PyTorch 2 and TorchRec from PyPI into build/bench/torch2 (3 GB); they are used when they are there.
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
ninja -C build --quiet all benchmarks
if [ "$torch2" = yes ] && [ ! -x build/bench/torch2/bin/python ]; then
    echo "bench-peers: $(date +%T) installing PyTorch 2 from PyPI into build/bench/torch2" >&2
    # Made aside first: an interrupted or failed installation must not be taken for one that works.
    rm -rf build/bench/torch2.part && mkdir -p build/bench
    # The torch that this FBGEMM is made for. What torchrec depends on by itself is FBGEMM for GPUs, in the same place.
    if /usr/bin/python3 -m venv build/bench/torch2.part >&2 && pip=(build/bench/torch2.part/bin/python -m pip install --quiet --no-cache-dir) &&
        "${pip[@]}" 'torch==2.14.1' numpy >&2; then
        "${pip[@]}" 'fbgemm-gpu-cpu==1.9.0' 'torchmetrics==1.0.3' tensordict pyre-extensions tqdm >&2 &&
            "${pip[@]}" --no-deps 'torchrec==1.9.2' >&2 ||
            echo "bench-peers: TorchRec left out: pip could not install it; the lines above say why" >&2
        mv build/bench/torch2.part build/bench/torch2
    else
        echo "bench-peers: PyTorch 2 left out: pip could not install it; the lines above say why" >&2
    fi
fi
sudo=()
[ "$(id -u)" -eq 0 ] || sudo=(sudo)
exec "${sudo[@]}" /usr/bin/python3 tests/bench/peers/peers.py "$@"
