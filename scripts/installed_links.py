#!/usr/bin/env python3
"""Makes the links of installed pages lead to installed files: those to the examples, which lie elsewhere than
in the repository. A link to a source that is not installed becomes its path. Run by `meson install`.

usage: installed_links.py FOLDER      FOLDER: relative to the prefix
"""
import os
import re
import sys
from pathlib import Path

# Folders of the repository that are installed beside the pages.
PLACES = {
    "trainer_client/examples": "examples",
    "trainer_client/python/examples": "examples/python",
    "configs": "examples",
    "docs": "",
}
LINK = re.compile(r"\[([^\]\n]+)\]\(((?!\w+:)[^)#\s]+)(#[^)\s]*)?\)")


def place_of(path: str) -> str | None:
    """Where a file of the repository is among the installed ones; None: it is in none of the folders."""
    for source, place in PLACES.items():
        if path == source or path.startswith(source + "/"):
            return os.path.normpath(os.path.join(place, path[len(source) :].lstrip("/")))
    return None


def installed(page: Path, root: Path, text: str) -> str:
    """The text of a page below `root`, with links that are right there."""
    folder = page.parent.relative_to(root)

    def link(match: re.Match[str]) -> str:
        name, target, anchor = match[1], match[2], match[3] or ""
        source = os.path.normpath(Path("docs") / folder / target)
        place = place_of(source)
        if place is not None and (root / place).exists():
            return f"[{name}]({os.path.relpath(place, folder)}{anchor})"
        return f"`{source}`" if name.strip("`/") in source else f"{name} (`{source}`)"

    return LINK.sub(link, text)


def main() -> None:
    root = Path(os.environ["MESON_INSTALL_DESTDIR_PREFIX"]) / sys.argv[1]
    for page in sorted(root.rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        page.write_text(installed(page, root, text), encoding="utf-8")


if __name__ == "__main__":
    main()
