#!/usr/bin/env bash
# Checks formatting, shell scripts, C and C++: clang-format, shellcheck, the order of folders, layouts, names of functions, cppcheck and
# clang-tidy; black, pyflakes and mypy for Python. Changes nothing but build/.
# usage: scripts/lint.sh [--fix]     --fix: let clang-format and black rewrite the files first
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/setup.sh lint
mapfile -t c_files < <(git ls-files '*.c' '*.h' '*.cc')
mapfile -t sources < <(git ls-files '*.c')
mapfile -t shell_files < <(git ls-files 'scripts/*.sh' 'tests/*.sh' .ci/run)
mapfile -t python_files < <(git ls-files '*.py')
black=(black --quiet --line-length 110 --skip-magic-trailing-comma)
if [ "${1:-}" = --fix ]; then
    clang-format -i "${c_files[@]}"
    "${black[@]}" "${python_files[@]}"
fi
status=0

echo "== clang-format"
clang-format --dry-run --Werror "${c_files[@]}" || status=1

# clang-format leaves comments as they are.
echo "== columns"
awk 'length > 110 { print FILENAME ":" FNR ": more than 110 columns"; wide = 1 } END { exit wide }' "${c_files[@]}" "${python_files[@]}" || status=1

echo "== shellcheck"
shellcheck -x "${shell_files[@]}" || status=1

# debhelper sets the modes of what it installs.
echo "== modes"
git ls-files --stage | sed -n 's/^100644 [^\t]*\t//p' | grep -v '^debian/' |
    xargs -d '\n' awk '/^#!/ { print FILENAME ": begins with #! and cannot be run: chmod +x"; bad = 1 } { nextfile } END { exit bad }' ||
    status=1

# Threads and signal handlers take atomics (docs/adr/0135-atomics-and-their-orders.md).
echo "== volatile"
if git grep -nw volatile -- 'dataplane/*.[ch]' 'ps/*.[ch]' 'trainer_client/*.[ch]' 'tools/*.[ch]' |
    grep -v '^dataplane/loop/perf_page\.[ch]:\|^ps/memory/huge_pages\.c:\|^[^:]*:[0-9]*: *__asm__ '; then
    status=1
fi

echo "== layers"
python3 scripts/layers.py || status=1

echo "== layouts"
python3 scripts/layouts.py || status=1

scripts/configure.sh build --buildtype=release
case "$("${CC:-cc}" -dumpversion)" in # as in scripts/test.sh
12) meson configure build -Dwerror=true ;;
esac

# The linker takes the first of two functions of one name in our archives, and says nothing.
echo "== names"
ninja -C build ps/millraced tools/millrace trainer_client/hub/millrace-hub trainer_client/examples/fm benchmarks >/dev/null || status=1
find build/dataplane build/ps build/trainer_client build/tools -name '*.c.o' -print0 |
    xargs -0 nm --defined-only --extern-only --print-file-name |
    awk '{ sub(/:.*/, "", $1); sub(/.*\//, "", $1); if ($NF != "main") print $NF, $1 }' | sort -u |
    awk '{ files[$1] = files[$1] " " $2; count[$1]++ }
        END { for (name in count) if (count[name] > 1) { print name " is defined in" files[name]; twice = 1 } exit twice }' ||
    status=1

echo "== interface of the library"
scripts/abi.sh || status=1

echo "== names of statics"
python3 scripts/static_names.py || status=1

# Debian 12's cmocka does not say so. assert_int_in_range() is there with any (meson.build).
echo "== names that cmocka 2 deprecates"
git grep -nwE 'assert_(not_)?in_(range|set)|check_expected|expect_(check|(not_)?(value|in_range|in_set))(_count)?' -- '*.[ch]' && status=1

echo "== cppcheck"
cppcheck --quiet --enable=warning,performance,portability --inline-suppr --std=c11 --error-exitcode=1 \
    --suppressions-list=scripts/cppcheck.suppressions -j "$(nproc)" -D__x86_64__ -D__GNUC__=12 \
    -I . -I dataplane/wire/format -I dataplane/rpc -I trainer_client "${sources[@]}" || status=1

echo "== clang-tidy"
# Each file once, however many programs compile it; what the build leaves out for want of a library cannot be read.
mkdir -p build/tidy
mapfile -t tidied < <(python3 - "${sources[@]}" <<'EOF'
import json, os, sys
once = {os.path.relpath(os.path.join(c["directory"], c["file"])): c for c in json.load(open("build/compile_commands.json"))}
json.dump(list(once.values()), open("build/tidy/compile_commands.json", "w"))
print(*(f for f in sys.argv[1:] if f in once), sep="\n")
EOF
)
if [ -d build/tests/bench/peers/grpc_server.p ]; then # gRPC is here, and what it generates after this
    ninja -C build tests/bench/peers/grpc_server >/dev/null || status=1
    mapfile -t -O ${#tidied[@]} tidied < <(git ls-files '*.cc')
fi
printf '%s\n' "${tidied[@]}" |
    xargs -P "$(nproc)" -n 1 clang-tidy --quiet -p build/tidy --warnings-as-errors='*' 2>/dev/null || status=1

echo "== black, pyflakes, mypy"
"${black[@]}" --check "${python_files[@]}" || { echo "lint: scripts/lint.sh --fix formats the Python files"; status=1; }
pyflakes3 trainer_client/python tests/python tests/bench scripts | grep -v "unable to detect undefined names\|'.errors.\*' imported" && status=1
# As strictly as mypy.ini says, in the syntax and with the library of the oldest Python, and with those of the newest.
for version in 3.9 3.13; do
    (cd trainer_client/python && mypy --config-file mypy.ini --python-version "$version" --cache-dir ../../build/mypy -p millrace) || status=1
done

[ $status -eq 0 ] && echo "lint: ok"
exit $status
