#!/usr/bin/env python3
"""Makes the Python package's view of libmillrace from the installed headers themselves, so that the two
cannot differ.

usage: make_abi.py OUTPUT CC HEADER... -- INCLUDE_DIRECTORY...
"""
import os
import re
import subprocess
import sys
import tempfile

import cffi

KNOWN_TO_CFFI = ("stdbool.h", "stddef.h", "stdint.h")  # whose types it has itself
INLINE = re.compile(r"static inline[^;{]*\{[^{}]*\}")
MACRO = re.compile(r"^#define (MR_\w+)[ \t]+(\S.*)$", re.M)
NUMBER = re.compile(r"\b(0x[0-9a-fA-F]+|\d+)[uUlL]*\b")


def preprocess(cc, headers, directories, *flags):
    with tempfile.TemporaryDirectory() as empty:
        for name in KNOWN_TO_CFFI:
            open(os.path.join(empty, name), "w", encoding="utf-8").close()
        source = "".join(f'#include "{os.path.abspath(header)}"\n' for header in headers)
        command = [
            *cc.split(),
            "-E",
            "-P",
            "-nostdinc",
            "-I",
            empty,
            *(f"-I{d}" for d in directories),
            "-D__attribute__(x)=",
            "-DUINT64_C(x)=x",
            "-xc",
            *flags,
            "-",
        ]
        return subprocess.run(command, input=source, check=True, capture_output=True, text=True).stdout


def constants(macros):
    """Those that are a number, or a shifted one."""
    for name, value in MACRO.findall(macros):
        value = NUMBER.sub(r"\1", value.replace("UINT64_C", "")).replace("(", "").replace(")", "").strip()
        shifted = re.fullmatch(r"(\w+)(?: << (\d+))?", value)
        if shifted and NUMBER.fullmatch(shifted[1]):
            yield name, int(shifted[1], 0) << int(shifted[2] or 0)


def main():
    output, cc, *rest = sys.argv[1:]
    headers, directories = rest[: rest.index("--")], rest[rest.index("--") + 1 :]
    declarations = INLINE.sub("", preprocess(cc, headers, directories))
    macros = preprocess(cc, headers, directories, "-dM")
    numbers = "".join(f"#define {name} {value}\n" for name, value in constants(macros))
    ffi = cffi.FFI()
    ffi.cdef(numbers + declarations + "void free(void *pointer);")
    ffi.set_source("millrace._abi", None)
    ffi.emit_python_code(output)


if __name__ == "__main__":
    main()
