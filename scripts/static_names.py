#!/usr/bin/env python3
"""Checks the names of static functions and variables. None is a name of the C library, of zlib or of cmocka:
it would compile until a header that declares it is included, or until a new version of the library has it.
No function is named by a bare verb: in a profile or a stack trace the name says what it works on.

usage: scripts/static_names.py     prints each such static
"""
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIBRARIES = ("libc.so.6", "libm.so.6", "libz.so")
# cmocka's are macros. These are what cmocka 2 has; Debian 12 has version 1.
CMOCKA = {"assert", "fail", "function_called", "mock", "skip", "stop"}
VERBS = set(
    "add answer apply ask begin call check choose claim clear close copy count create destroy done drop end "
    "fill find finish give go grow handle init join keep load look make move next note parse pick print pull "
    "push put read run save say send set show split start step stop take tell visit wait wake walk "
    "write".split()
)

# Tests whose statics are still named by verbs alone. The list only gets shorter.
NOT_YET = (
    "tests/integration/cluster/test_cluster_",
    "tests/sim/cluster/",
    "tests/unit/ps/cluster/test_cluster_map.c",
    "tests/unit/ps/cluster/test_map_json.c",
    "tests/unit/ps/cluster/test_member.c",
    "tests/unit/ps/node_cluster/test_node_cluster.c",
    "tests/unit/ps/ops/test_ops_owner.c",
    "tests/unit/trainer_client/fake_",
    "tests/unit/trainer_client/replay/test_take_over.c",
)

# A definition at the beginning of a line, up to its arguments, its value or its end; or what follows the
# members of a struct; or a test, by TEST() of tests/test.h.
STATIC = re.compile(r"^(?:(?:static\s|\} )([^;={(]*)|TEST\((\w+))(.?)", re.MULTILINE)
ATTRIBUTE = re.compile(r"(?:__attribute__\(\(|_Alignas\().*?\)+(?=\s)")


def output(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def library_names() -> set[str]:
    names = set(CMOCKA)
    for library in LIBRARIES:
        path = output("cc", f"-print-file-name={library}").strip()
        for line in output("nm", "--dynamic", "--defined-only", path).splitlines():
            name, at, version = line.split()[-1].partition("@")
            if not at or version.startswith("@"):  # else only old programs link with it
                names.add(name)
    return names


def statics(text: str) -> Iterator[tuple[int, str, bool]]:
    """The line and the name of each static, and whether it is a function."""
    text = ATTRIBUTE.sub("", text)
    for match in STATIC.finditer(text):
        if match[3] == "{":  # the tag of a struct
            continue
        for declarator in re.sub(r"\[[^]]*\]", "", match[1] or match[2] or "").split(","):
            words = re.findall(r"\w+", declarator)
            if words:
                is_function = match[3] == "(" or match[2] is not None
                yield text.count("\n", 0, match.start()) + 1, words[-1], is_function


def main() -> int:
    taken = library_names()
    status = 0
    for file in output("git", "ls-files", "*.c", "*.h").splitlines():
        for line, name, is_function in statics((ROOT / file).read_text(encoding="utf-8")):
            if name in taken:
                print(f"{file}:{line}: {name} is a name of a library")
                status = 1
            elif is_function and name in VERBS and not file.startswith(NOT_YET):
                print(f"{file}:{line}: {name} is a verb alone: give it the noun of its file")
                status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
