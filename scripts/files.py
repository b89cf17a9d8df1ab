#!/usr/bin/env python3
"""Prints the files of folders, each with its comment's first sentence: scripts/files.py ps/table ps/index

A source and its header are one entry, with what the header says."""
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KINDS = (".c", ".h", ".py", ".cc")


def comment(text: str) -> str:
    """The first paragraph of a comment with which the file begins; "": it begins with none."""
    text = re.sub(r"\A#!.*\n", "", text)
    match = re.match(r'\s*(?:/\*+(.*?)\*/|"""(.*?)""")', text, re.DOTALL)
    if match is None:
        return ""
    body = (match.group(1) or match.group(2) or "").replace("\n *\n", "\n\n").split("\n\n")[0]
    return " ".join(re.sub(r"^\s*\* ?", "", line).strip() for line in body.splitlines()).strip()


def sentence(text: str) -> str:
    """The first one."""
    return re.split(r"(?<=\.) (?=[A-Z(\"`])", text, maxsplit=1)[0].rstrip(".")


def says(path: Path) -> str:
    """What a file is; of a source without a comment, what its header says."""
    for candidate in (path.with_suffix(".h"), path) if path.suffix in (".c", ".cc") else (path,):
        if candidate.is_file():
            text = comment(candidate.read_text(encoding="utf-8"))
            if text:
                return sentence(text)
    return ""


def entries(folder: Path) -> list[tuple[str, str]]:
    """Of each file its name and what it is. A header with a source is that source's entry."""
    names = {path.name for path in folder.iterdir() if path.is_file() and path.suffix in KINDS}
    mine = sorted(name for name in names if not (name.endswith(".h") and name[:-1] + "c" in names))
    return [(name, says(folder / name)) for name in mine if name != "__init__.py"]


def main() -> int:
    folders = sys.argv[1:]
    if not folders:
        print("usage: scripts/files.py FOLDER ...", file=sys.stderr)
        return 2
    for folder in folders:
        if len(folders) > 1:
            print(f"{folder}:")
        for name, text in entries(ROOT / folder):
            print(f"{name}: {text}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
