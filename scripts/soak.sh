#!/usr/bin/env bash
# What takes too long for every change, and is run before a release: every test for release and under ASan and UBSan, with the long
# simulations, the mutants, kills under training, a node under random faults beside the plain model, and one on emulated PCI NICs
# (scripts/nic.sh). Ends as scripts/test.sh does, and adds a line to docs/soak-runs.tsv: when it was run, on which commit, and how it went.
# usage: scripts/soak.sh
set -euo pipefail
cd "$(dirname "$0")/.."

case "${1:-}" in
"") ;;
-h | --help) sed -n '2,5s/^# //p' "$0"; exit 0 ;;
*) echo "soak: unknown option '$1'; see --help" >&2; exit 2 ;;
esac

runs=docs/soak-runs.tsv
commit=$(git rev-parse --short=8 HEAD)
[ -z "$(git status --porcelain --untracked-files=no)" ] || commit+=+changes
last=$(tail -n +2 "$runs" | tail -n 1 | tr '\t' ' ')
echo "soak: last run: ${last:-none}"
result=passed
mkdir -p build
nics=0
scripts/nic.sh || nics=$?
case $nics in
0) nics="NICs passed" ;;
77) nics="NICs skipped" ;; # the line above says why
*) nics="NICs failed" result=failed ;;
esac
scripts/test.sh --soak | tee build/soak.out || result=failed
echo "soak: $nics"
printf '%s\t%s\t%s\t%s\t%s min\n' "$(date --utc +%F)" "$commit" "$result" "$(tail -n 1 build/soak.out), $nics" $((SECONDS / 60)) >>"$runs"
[ "$result" = passed ]
