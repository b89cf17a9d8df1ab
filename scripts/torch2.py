#!/usr/bin/env python3
"""Makes the Python environments that the tests with torch 2 run in, from PyPI, unless they are there.

usage: torch2.py [--python PYTHON] [--path NAME | NAME...]

NAME: torch2 (the newest torch, numpy and pandas), torchrec (TorchRec, and the torch that its FBGEMM is made
for) or graphlearn (GraphLearn-torch and its torch); without one, the first two. Prints one line that says
what tests run with; the reason why one cannot be made goes to standard error. The exit status is 0 all the
same: tests without their environment are skipped.
--path: makes none; prints the environment's Python, and exits with 1 if it is not there.

An environment is PYTHON's (/usr/bin/python3) and lies in ${XDG_CACHE_HOME:-~/.cache}/millrace/, by a hash of
what it is made of. torch's wheel needs NVIDIA's libraries, 2.5 GB, to be loaded. They are replaced by empty
ones here, in which each function returns an error: torch.cuda.is_available() is False.
"""
from __future__ import annotations

import argparse
import concurrent.futures
import fcntl
import hashlib
import inspect
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

NAMES = ("torch2", "torchrec", "graphlearn")
USUAL = NAMES[:2]  #: the third is for make soak
SHOWN = {
    "torch2": ("torch", "numpy", "pandas"),
    "torchrec": ("torchrec", "torch"),
    "graphlearn": ("graphlearn-torch", "torch"),
}
IMPORTS = {
    "torch2": "torch, numpy, pandas, pytest, cffi",
    "torchrec": "torch, torchrec, pytest, cffi",
    "graphlearn": "torch, torch_geometric, pytest, cffi",
}
REQUIREMENTS = Path(__file__).resolve().parent.parent / "tests/python"
NO_DEVICE = 100  #: cudaErrorNoDevice
NVIDIA = "(__)?(cu|nccl|nv)"
SETTLE_S = 20  #: pip's retries of a registry that does not answer


class Failure(Exception):
    """Why an environment cannot be made."""


def requirements(name: str) -> str:
    """Pinned packages, all of them: pip is to add none."""
    return (REQUIREMENTS / f"{name}.txt").read_text(encoding="utf-8")


def version(name: str, package: str) -> str:
    """The one that the environment has."""
    return re.findall(f"^{package}==(.+)$", requirements(name), re.M)[0]


def directory(name: str, python: str) -> Path:
    """Where the environment is, or will be."""
    its = subprocess.run(
        [python, "-c", "import sys, sysconfig; print(sys.version, sysconfig.get_platform(), sys.prefix)"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    made_of = [requirements(name), inspect.getsource(install), inspect.getsource(replace_nvidia), its]
    digest = hashlib.sha256("\0".join(made_of).encode()).hexdigest()[:12]
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(cache) / "millrace" / f"{name}-{digest}"


def run(*command: object, **more: object) -> str:
    """Its standard output. Failure: it failed; its last line says why."""
    try:
        done = subprocess.run(
            list(map(str, command)), capture_output=True, text=True, check=False, **more  # type: ignore
        )
    except OSError as error:
        raise Failure(str(error)) from error
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines() or [f"exit status {done.returncode}"]
        raise Failure(f"{os.path.basename(str(command[0]))}: {lines[-1]}")
    return done.stdout


def replace_nvidia(libraries: Path) -> None:
    """Puts libraries of NVIDIA's names beside torch's. Their functions are in one library that all the others
    need, since a symbol's version is looked for in the library of its name only."""
    own = sorted(libraries.glob("lib*.so"))
    dynamic = run("readelf", "-d", *own)
    missing = {name for name in re.findall(r"NEEDED.*\[(.*)\]", dynamic) if re.match(f"lib{NVIDIA}", name)}
    missing = {name for name in missing if not (libraries / name).exists()}
    if not missing:
        return
    undefined = set(re.findall(r"^ +U ([^@\s]+)", run("nm", "-D", *own), re.M))
    defined = set(re.findall(r"^[0-9a-f]+ \w ([^@\s]+)", run("nm", "-D", *own), re.M))
    functions = sorted(name for name in undefined - defined if re.match(NVIDIA, name))
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch) / "none.c"
        lines = [f"int mr_no_device(void) {{ return {NO_DEVICE}; }}"]
        lines += [f'int {name}(void) __attribute__((alias("mr_no_device")));' for name in functions]
        source.write_text("\n".join(lines), encoding="utf-8")
        shared = ["cc", "-w", "-shared", "-nostdlib", "-fno-builtin", "-fPIC"]
        none = libraries / "libmr-no-device.so"
        run(*shared, "-o", none, f"-Wl,-soname,{none.name}", source)
        source.write_text("", encoding="utf-8")
        for name in missing:
            needs = ["-Wl,--no-as-needed", "-Wl,-rpath,$ORIGIN", none]
            run(*shared, "-o", libraries / name, f"-Wl,-soname,{name}", source, *needs)


def install(name: str, python: str, place: Path) -> None:
    """Makes the environment in a directory that is not there."""
    run(python, "-m", "venv", place)
    pip = [place / "bin/python", "-m", "pip", "--disable-pip-version-check", "--no-cache-dir", "--quiet"]
    run(
        *pip,
        *("install", "--no-deps", "--only-binary", ":all:", "--timeout", SETTLE_S, "--retries", 2),
        *("-r", REQUIREMENTS / f"{name}.txt"),
    )
    [libraries] = place.glob("lib/python*/site-packages/torch/lib")
    replace_nvidia(libraries)
    run(place / "bin/python", "-c", f"import {IMPORTS[name]}")


def make(name: str, python: str) -> None:
    """Makes the environment unless it is there. Of several that do so at once, one makes it. A half-made one
    is never used: it gets its name when it is whole."""
    place = directory(name, python)
    if place.is_dir():
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{place}.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if place.is_dir():
            return
        print(f"torch2: making {place} from PyPI; this takes a minute or two", file=sys.stderr)
        part = Path(f"{place}.part")
        shutil.rmtree(part, ignore_errors=True)
        try:
            install(name, python, part)
            part.rename(place)
        finally:
            shutil.rmtree(part, ignore_errors=True)


def attempt(name: str, python: str) -> str:
    """Makes it, and says what its tests run with."""
    try:
        make(name, python)
    except (Failure, OSError) as error:
        print(f"torch2: {name}: {error}", file=sys.stderr)
        return f"{name} could not be made from PyPI, its tests are left out"
    return ", ".join(f"{package} {version(name, package)}" for package in SHOWN[name])


def main() -> int:
    """As above."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, usage=argparse.SUPPRESS
    )
    parser.add_argument("--python", default="/usr/bin/python3", help=argparse.SUPPRESS)
    parser.add_argument("--path", choices=NAMES, help=argparse.SUPPRESS)
    parser.add_argument("names", nargs="*", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    for name in set(arguments.names) - set(NAMES):
        parser.error(f"unknown environment '{name}': {', '.join(NAMES)}")
    if arguments.path:
        place = directory(arguments.path, arguments.python)
        if place.is_dir():
            print(place / "bin/python")
        return 0 if place.is_dir() else 1
    with concurrent.futures.ThreadPoolExecutor() as both:
        said = list(both.map(lambda name: attempt(name, arguments.python), arguments.names or USUAL))
    print("Python tests with torch 2: " + "; ".join(said))
    return 0


if __name__ == "__main__":
    sys.exit(main())
