#!python
"""Runs the program of this file's name that the package millrace carries: pip's `millrace`, `millraced` and
`millrace-hub`. The package itself is only found, not imported, which would take longer than the program."""
import importlib.util
import os
import sys

name = os.path.basename(__file__)
package = importlib.util.find_spec("millrace")
if package is None or package.origin is None:
    sys.exit(
        f"{name}: {sys.executable} has no package millrace: python -m pip install --force-reinstall "
        "millrace"
    )
program = os.path.join(os.path.dirname(package.origin), "_bin", name)
try:
    os.execv(program, [program, *sys.argv[1:]])
except OSError as error:
    sys.exit(
        f"{name}: {program} cannot be run: {error.strerror}; python -m pip install --force-reinstall "
        "millrace"
    )
