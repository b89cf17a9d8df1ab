#!/usr/bin/env bash
# Checks the documentation: every relative link leads to a file, and every `docs/...`, `scripts/...` path named exists.
set -euo pipefail
cd "$(dirname "$0")/.."

status=0
while IFS=: read -r file target; do
    target=${target%%#*}
    [ -n "$target" ] || continue
    if [ ! -e "$(dirname "$file")/$target" ]; then
        echo "$file: link to '$target', which does not exist" >&2
        status=1
    fi
done < <(git ls-files '*.md' | xargs grep -oE '\]\([^)#:]+(#[^)]*)?\)' -H | sed -E 's/\]\(([^)]*)\)/\1/')

while IFS=: read -r file target; do
    if [ ! -e "$target" ]; then
        echo "$file: names '$target', which does not exist" >&2
        status=1
    fi
done < <(git ls-files '*.md' | xargs grep -HoP '\x60(docs|scripts|configs|tests|ps|dataplane|tools|trainer_client)/[A-Za-z0-9_./-]+(?=\x60)' |
    tr -d '\140')

scripts/ops.py || status=1

[ $status -eq 0 ] && echo "docs: ok"
exit $status
