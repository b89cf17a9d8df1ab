#!/usr/bin/env bash
# Installs the wheel of build/wheel/ as pip's users do, into environments where no compiler is visible, and uses it there: with numpy
# only, also as the user nobody, in each Python from 3.9 to 3.13 that is in $PATH, with the newest torch of PyPI, and with TorchRec.
# usage: scripts/test-pip.sh [--torch VENV] [--torchrec VENV]     both: take that from a virtual environment of Debian's Python
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
export MILLRACE_SOURCE=$PWD MILLRACE_WHEEL=${wheels[0]} MILLRACE_WHEEL_FULL=1
exec /usr/bin/python3 -m pytest -q -rs -p no:cacheprovider tests/install/test_wheel.py
