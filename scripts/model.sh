#!/usr/bin/env bash
# Checks what threads do without a lock (tests/model/) with GenMC, under the memory models RC11 and IMM: all executions of each
# program. Needs genmc 0.10 or newer in PATH, or its path in GENMC (Debian has no package of it), and clang and opt of the LLVM
# that it was built with, LLVM=14 by default.
# usage: scripts/model.sh [NAME...]     NAME: a program of tests/model/, such as ring; default: those that GenMC reads, in minutes
set -euo pipefail
cd "$(dirname "$0")/.."

genmc=$(command -v "${GENMC:-genmc}") || {
    echo "model: there is no genmc in PATH; GENMC=path names another one" >&2
    exit 1
}
llvm=${LLVM:-14}
headers=${GENMC_HEADERS:-$(dirname "$genmc")/../include/genmc/include}
[ -d "$headers" ] || headers=$(dirname "$genmc")/include # where it was built
# Of the others it cannot read a structure, or does not end in minutes.
names=("$@")
[ $# -gt 0 ] || names=(log_burst move_load neighbours ring ring_empty rpc_late rpc_work waiter)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
flags=(-std=gnu17 -O1 -w -D_GNU_SOURCE -DMODEL_CHECKER -I. -Idataplane/rpc -Idataplane/wire/format -Itrainer_client)

# check NAME MODEL
check() {
    local options=("--$2" --check-liveness --disable-estimation --disable-ipr)
    if [[ $1 != rpc_* ]]; then
        "$genmc" "${options[@]}" -- "${flags[@]}" "tests/model/$1.c"
        return
    fi
    # GenMC reads every function, and some that the program does not call it cannot read.
    "clang-$llvm" -c -emit-llvm -g -Xclang -disable-llvm-passes -D__CONFIG_GENMC_INODE_DATA_SIZE=64 -I"$headers" \
        "${flags[@]}" "tests/model/$1.c" -o "$work/all.bc"
    "opt-$llvm" -internalize -internalize-public-api-list=main -globaldce "$work/all.bc" -o "$work/used.bc"
    "$genmc" "${options[@]}" --input-from-bitcode-file "$work/used.bc"
}

failed=0
for name in "${names[@]}"; do
    for model in rc11 imm; do
        if check "$name" "$model" >"$work/output" 2>&1; then
            echo "ok   $name $model: $(sed -n 's/^Number of complete executions explored: //p' "$work/output") executions"
        else
            echo "FAIL $name $model"
            cat "$work/output"
            failed=$((failed + 1))
        fi
    done
done
[ $failed -eq 0 ]
