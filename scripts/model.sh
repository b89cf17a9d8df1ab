#!/usr/bin/env bash
# Checks what threads do without a lock (tests/model/) with GenMC, under the memory models RC11 and IMM: all executions of each
# program. Needs genmc 0.10 or newer in PATH, or its path in GENMC; Debian has no package of it.
# usage: scripts/model.sh [NAME...]     NAME: a program of tests/model/, such as ring; default: all
set -euo pipefail
cd "$(dirname "$0")/.."

genmc=${GENMC:-genmc}
command -v "$genmc" >/dev/null || {
    echo "model: there is no genmc in PATH; GENMC=path names another one" >&2
    exit 1
}
if [ $# -gt 0 ]; then
    names=("$@")
else
    mapfile -t names < <(cd tests/model && basename -s .c -- *.c)
fi
output=$(mktemp)
trap 'rm -f "$output"' EXIT
failed=0
for name in "${names[@]}"; do
    for model in rc11 imm; do
        if "$genmc" --$model --check-liveness --disable-estimation -- -std=gnu17 -O1 -w -D_GNU_SOURCE -DMODEL_CHECKER \
            -I. -Idataplane/rpc -Idataplane/wire/format -Itrainer_client "tests/model/$name.c" >"$output" 2>&1; then
            echo "ok   $name $model: $(sed -n 's/^Number of complete executions explored: //p' "$output") executions"
        else
            echo "FAIL $name $model"
            cat "$output"
            failed=$((failed + 1))
        fi
    done
done
[ $failed -eq 0 ]
