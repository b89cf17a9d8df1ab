#!/usr/bin/env bash
# Makes the pictures of docs/observe.md: runs the demo with a recording, and photographs its report.
# usage: scripts/screenshots.sh      needs chromium-headless-shell and python3-pil (scripts/setup.sh test)
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
RECORD=$work/demo.mrp scripts/demo.sh
# The page names no folder of this machine.
(cd "$work" && "${MILLRACE_BUILD:-$OLDPWD/build}/tools/millrace" perf report demo.mrp >/dev/null)

# picture NAME WIDTH HEIGHT: the top of the page, in few colours.
picture() {
    chromium-headless-shell --no-sandbox --disable-gpu --hide-scrollbars --window-size="$2,$3" \
        --screenshot="$work/$1.png" "file://$work/demo.html" 2>/dev/null
    /usr/bin/python3 -c 'import sys; from PIL import Image; Image.open(sys.argv[1]).convert("RGB").quantize(64).save(sys.argv[2], optimize=True)' \
        "$work/$1.png" "docs/$1.png"
}
picture report 1280 1420
picture report-narrow 400 900
