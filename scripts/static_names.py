#!/usr/bin/env python3
"""Checks that no static function or variable has a name of the C library, of zlib or of cmocka. Such a name
compiles until a header that declares it is included, or until a new version of the library has it.

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

# A definition at the beginning of a line, up to its arguments, its value or its end; or what follows the
# members of a struct.
STATIC = re.compile(r"^(?:static\s|\} )([^;={(]*)(.?)", re.MULTILINE)
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


def statics(text: str) -> Iterator[tuple[int, str]]:
    """The line and the name of each static."""
    text = ATTRIBUTE.sub("", text)
    for match in STATIC.finditer(text):
        if match[2] == "{":  # the tag of a struct
            continue
        for declarator in re.sub(r"\[[^]]*\]", "", match[1]).split(","):
            words = re.findall(r"\w+", declarator)
            if words:
                yield text.count("\n", 0, match.start()) + 1, words[-1]


def main() -> int:
    taken = library_names()
    status = 0
    for file in output("git", "ls-files", "*.c", "*.h").splitlines():
        for line, name in statics((ROOT / file).read_text(encoding="utf-8")):
            if name in taken:
                print(f"{file}:{line}: {name} is a name of a library")
                status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
