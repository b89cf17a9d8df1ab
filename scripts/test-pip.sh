#!/usr/bin/env bash
# Installs the wheel of build/wheel/ as pip's users do, into environments where no compiler is visible, and uses it there: with numpy
# only, also as the user nobody, in each Python from 3.9 to 3.14 that is in $PATH, with the newest torch, and with TorchRec: from the environments of scripts/torch2.py.
# usage: scripts/test-pip.sh [--torch VENV] [--torchrec VENV]     both: take that from another virtual environment of Debian's Python
set -euo pipefail
cd "$(dirname "$0")/.."

while [ $# -gt 0 ]; do
    case "$1" in
    --torch) export MILLRACE_WHEEL_TORCH=${2:?test-pip: --torch needs a virtual environment} && shift ;;
    --torchrec) export MILLRACE_WHEEL_TORCHREC=${2:?test-pip: --torchrec needs a virtual environment} && shift ;;
    -h | --help) sed -n '2,4s/^# //p' "$0"; exit 0 ;;
    *) echo "test-pip: unknown option '$1'; see --help" >&2; exit 2 ;;
    esac
    shift
done

wheels=(build/wheel/millrace-*.whl)
[ -f "${wheels[0]}" ] || { echo "test-pip: there is no wheel in build/wheel: make wheel builds one" >&2; exit 1; }
scripts/setup.sh wheel
scripts/torch2.py
# environment NAME: its directory, if it could be made.
environment() {
    local python
    python=$(scripts/torch2.py --path "$1") && echo "${python%/bin/python}"
}
: "${MILLRACE_WHEEL_TORCH:=$(environment torch2)}" "${MILLRACE_WHEEL_TORCHREC:=$(environment torchrec)}"
export MILLRACE_WHEEL_TORCH MILLRACE_WHEEL_TORCHREC
export MILLRACE_SOURCE=$PWD MILLRACE_WHEEL=${wheels[0]} MILLRACE_WHEEL_FULL=1
exec /usr/bin/python3 -m pytest -q -rs -p no:cacheprovider tests/install/test_wheel.py
