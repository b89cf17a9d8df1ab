#!/usr/bin/env python3
"""Prints the names of the tests whose own files (of a test's program or script, below tests/) have changed
since a commit.

usage: changed_tests.py BUILD COMMIT
"""
import json
import os
import subprocess
import sys


def changed_files(commit):
    """Absolute paths below tests/ that differ from a commit in the work tree, with those that git does not
    track yet."""
    top = subprocess.run(["git", "rev-parse", "--show-toplevel"], capture_output=True, text=True, check=True)
    files = set()
    for command in (
        ["git", "diff", "--name-only", commit],
        ["git", "ls-files", "--others", "--exclude-standard"],
    ):
        names = subprocess.run(command, capture_output=True, text=True, check=True, cwd=top.stdout.strip())
        files.update(os.path.join(top.stdout.strip(), name) for name in names.stdout.splitlines())
    return {name for name in files if os.path.relpath(name, top.stdout.strip()).startswith("tests/")}


def tests_of(build, files):
    """The tests whose program is built from one of the files, or that have one of them as an argument."""
    info = subprocess.run(
        ["meson", "introspect", "--tests", "--targets", build], capture_output=True, text=True, check=True
    )
    known = json.loads(info.stdout)
    programs = set()
    for target in known["targets"]:
        sources = (
            os.path.normpath(s) for group in target["target_sources"] for s in group.get("sources", [])
        )
        if files.intersection(sources):
            programs.update(target["filename"])
    return [t["name"] for t in known["tests"] if (programs | files).intersection(t["cmd"])]


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    print(*tests_of(sys.argv[1], changed_files(sys.argv[2])), sep="\n")
