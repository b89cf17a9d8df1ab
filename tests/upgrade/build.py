#!/usr/bin/env python3
"""Builds the versions that tests/upgrade/versions lists, each once, outside of the tree.

usage: build.py [NAME]...     all of the list without a name; prints where each is

They are kept in $MILLRACE_UPGRADE_CACHE, or /var/cache/millrace-upgrade: about 200 MB and some minutes each.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CACHE = Path(os.environ.get("MILLRACE_UPGRADE_CACHE", "/var/cache/millrace-upgrade"))
# As far as a version has them: none of these is run.
LEFT_OUT = {"tests": ("disabled", "false"), "layers": ("disabled",), "peers": ("disabled",)}


class Version(NamedTuple):
    name: str
    commit: str
    format: int  # of checkpoints
    lacks: str

    @property
    def tree(self) -> Path:
        return CACHE / self.commit


def versions() -> list[Version]:
    found = []
    for line in (HERE / "versions").read_text().splitlines():
        if line and not line.startswith("#"):
            name, commit, form, lacks = line.split(maxsplit=3)
            found.append(Version(name, commit, int(form), lacks))
    return found


def options(tree: Path) -> list[str]:
    text = (tree / "meson_options.txt").read_text()
    chosen = []
    for name, values in LEFT_OUT.items():
        line = next((line for line in text.splitlines() if line.startswith(f"option('{name}'")), "")
        if line:
            chosen.append(f"-D{name}={values[-1] if 'boolean' in line else values[0]}")
    return chosen


def is_known(version: Version) -> bool:
    found = subprocess.run(["git", "cat-file", "-e", version.commit], cwd=ROOT, capture_output=True)
    return found.returncode == 0 or (version.tree / "built").exists()


def build(version: Version) -> None:
    """Does nothing if it was built before; a build that was interrupted goes on."""
    done = version.tree / "built"
    if done.exists():
        return
    if not (version.tree / "meson.build").exists():
        version.tree.mkdir(parents=True, exist_ok=True)
        archive = subprocess.run(
            ["git", "archive", version.commit], cwd=ROOT, capture_output=True, check=True
        )
        subprocess.run(["tar", "-x", "-C", version.tree], input=archive.stdout, check=True)
    log = version.tree / "build.log"
    with log.open("w") as out:
        commands = [["ninja", "-C", "build"]]
        if not (version.tree / "build/build.ninja").exists():
            commands.insert(
                0,
                ["meson", "setup", "build", "--buildtype=release", "-Dwerror=false", *options(version.tree)],
            )
        for command in commands:
            if subprocess.run(command, cwd=version.tree, stdout=out, stderr=out).returncode != 0:
                sys.exit(f"build.py: {version.name} ({version.commit}) cannot be built: see {log}")
    done.touch()


def main() -> None:
    for version in versions():
        if len(sys.argv) == 1 or version.name in sys.argv[1:]:
            build(version)
            print(f"{version.name:12} {version.tree}")


if __name__ == "__main__":
    main()
