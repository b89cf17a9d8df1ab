#!/usr/bin/env python3
"""Prints what ninja must build for the tests of some suites: programs, and what they depend on.

usage: suite_targets.py BUILD SUITE...
"""
import json
import os
import subprocess
import sys


def suite_targets(build, suites):
    """File names relative to the build directory."""
    info = subprocess.run(
        ["meson", "introspect", "--tests", "--targets", build], capture_output=True, text=True, check=True
    )
    known = json.loads(info.stdout)
    files = {target["id"]: target["filename"] for target in known["targets"]}
    tests = (t for t in known["tests"] if suites.intersection(suite.split(":")[-1] for suite in t["suite"]))
    names = {name for test in tests for depend in test["depends"] for name in files[depend]}
    return sorted(os.path.relpath(name, os.path.realpath(build)) for name in names)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    print(*suite_targets(sys.argv[1], set(sys.argv[2:])), sep="\n")
