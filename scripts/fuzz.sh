#!/usr/bin/env bash
# Runs every fuzzer under libFuzzer, starting from the committed corpus. New inputs go to build/fuzz/corpus.
# usage: scripts/fuzz.sh [SECONDS]      seconds per fuzzer, default 60
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-60}
[[ $seconds =~ ^[0-9]+$ ]] || { echo "fuzz: '$seconds' is not a number of seconds" >&2; exit 2; }
scripts/setup.sh lint fuzz

CC=clang scripts/configure.sh build/fuzz --buildtype=debugoptimized -Dfuzz_engine=true -Db_sanitize=address,undefined -Db_lundef=false
ninja -C build/fuzz fuzzers
for fuzzer in build/fuzz/tests/fuzz/fuzz_*; do
    if [ ! -f "$fuzzer" ] || [ ! -x "$fuzzer" ]; then continue; fi
    name=${fuzzer##*/fuzz_}
    mkdir -p "build/fuzz/corpus/$name" "build/fuzz/findings"
    echo "== $name, $seconds s"
    "$fuzzer" -max_total_time="$seconds" -print_final_stats=1 -verbosity=0 \
        -artifact_prefix=build/fuzz/findings/"$name"- "build/fuzz/corpus/$name" "tests/fuzz/corpus/$name"
done
