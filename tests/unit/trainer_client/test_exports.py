#!/usr/bin/env python3
"""The shared library offers what the installed headers declare, and nothing else.

usage: test_exports.py NM LIBRARY HEADER...
"""
import re
import subprocess
import sys


def declared(path):
    with open(path, encoding="utf-8") as file:
        text = re.sub(r"/\*.*?\*/|//[^\n]*|^\s*#(?:[^\n\\]|\\.|\\\n)*", " ", file.read(), flags=re.S | re.M)
    text = re.sub(r'extern\s+"C"\s*\{', " ", text)
    names = set()
    depth, statement = 0, ""
    for character in text:
        if character == "{":
            depth += 1
        elif character == "}":
            depth -= 1
            if depth == 0 and "static inline" in statement:
                statement = ""
        elif depth == 0 and character == ";":
            function = re.search(r"\b(mr_\w+)\s*\(", statement)
            if function and "typedef" not in statement and "static" not in statement:
                names.add(function.group(1))
            statement = ""
        elif depth == 0:
            statement += character
    return names


def exported(nm, library):
    lines = subprocess.run(
        [nm, "-D", "--defined-only", library], check=True, capture_output=True, text=True
    ).stdout
    names = {line.split()[2].split("@")[0] for line in lines.splitlines() if len(line.split()) == 3}
    return names - {"__bss_start", "_edata", "_end"}  # which gold adds


def main():
    nm, library, *headers = sys.argv[1:]
    offered = exported(nm, library)
    promised = set().union(*(declared(header) for header in headers))
    for name in sorted(promised - offered):
        print(f"{name}: declared, and not in the library: mark it MR_API")
    for name in sorted(offered - promised):
        print(f"{name}: in the library, and in no installed header")
    if len(promised) < 100:
        print(f"only {len(promised)} functions were found in the headers")
        sys.exit(1)
    sys.exit(promised != offered)


if __name__ == "__main__":
    main()
