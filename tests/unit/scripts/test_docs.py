"""What the pages say once, and what they say of the sources."""
import functools
import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
SENTENCE_MIN = 60  # characters; shorter ones may be meant twice


def paragraphs(page: Path) -> list[str]:
    """Without tables and code, whose lines resemble each other."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    lines = [line for line in text.splitlines() if not line.startswith("|")]
    return [" ".join(block.split()) for block in "\n".join(lines).split("\n\n")]


def repeated(text: str) -> list[str]:
    sentences = [s for s in re.split(r"(?<=\.) ", text) if len(s) >= SENTENCE_MIN]
    return [
        s
        for i, s in enumerate(sentences)
        for other in sentences[:i]
        if len(set_of(s) & set_of(other)) > most(s)
    ]


@functools.cache
def set_of(sentence: str) -> set[str]:
    return set(re.findall(r"\w+", sentence))


def most(sentence: str) -> float:
    """How many words a sentence may share with one before it."""
    return 0.8 * len(set_of(sentence))


def roles() -> dict[str, set[str]]:
    """The operations of each role, as op.h has them."""
    found: dict[str, set[str]] = {}
    header = (ROOT / "dataplane/wire/format/op.h").read_text(encoding="utf-8")
    for name, role in re.findall(r"^    X\((\w+), \d+, \"\w+\", \w+, (\w+)\)", header, re.MULTILINE):
        found.setdefault(role, set()).add(name)
    return found


class Docs(unittest.TestCase):
    def test_no_paragraph_says_a_sentence_twice(self) -> None:
        found = [(page.name, s) for page in PAGES for text in paragraphs(page) for s in repeated(text)]
        self.assertEqual(found, [])

    def test_a_sentence_that_was_merged_twice_is_found(self) -> None:
        first = (
            "Ops that *operate* need operator: FREEZE, RESTORE, DROP, ALTER, MOVE_READ, MOVE, CAPTURE, CLOCK."
        )
        self.assertEqual(len(repeated(f"{first} {first.replace(', CLOCK', '')}")), 1)

    def test_roles_of_operations(self) -> None:
        page = (ROOT / "docs/protocol.md").read_text(encoding="utf-8")
        match = re.search(
            r"ops that only \*look\*: ([\w, \n]+)\. Ops that \*operate\* need operator: ([\w, \n]+)\.", page
        )
        assert match is not None
        named = [set(re.findall(r"\w+", names)) for names in match.groups()]
        self.assertEqual(named, [roles()["READ_ONLY"], roles()["OPERATOR"]])


if __name__ == "__main__":
    unittest.main()
