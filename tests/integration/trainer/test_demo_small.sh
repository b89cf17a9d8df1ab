#!/usr/bin/env bash
# The demo on little data of one's own: it chooses batches and epochs so that a model comes of it, and ends well.
# usage: [NODES=n [LOSE=1]] test_demo_small.sh SOURCE BUILD LINES..
set -euo pipefail
source=$1 build=$2
shift 2
[ "$(id -u)" -eq 0 ] || exit 77
[ "${NODES:-1}" -eq 1 ] || [ -r /usr/share/java/zookeeper.jar ] || exit 77
data=$(mktemp "${TMPDIR:-/tmp}/criteo-like.XXXXXX.tsv")
trap 'rm -f "$data"' EXIT
for lines in "$@"; do
    /usr/bin/python3 "$source/tests/integration/trainer/criteo_like.py" "$lines" >"$data"
    MILLRACE_BUILD=$build "$source/scripts/demo.sh" "$data"
done
