"""What the pages say once, and what they say of the sources."""
import functools
import re
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts"))
import ops  # noqa: E402

PAGES = sorted((ROOT / "docs").rglob("*.md"))
SIZES = {
    "char": 1,
    "uint8_t": 1,
    "uint16_t": 2,
    "uint32_t": 4,
    "uint64_t": 8,
    "float": 4,
    "mr_peer_version": 24,
    "MR_UUID_BYTES": 16,
    "MR_COOKIE_BYTES": 16,
    "MR_PROOF_BYTES": 32,
    "MR_NAME_BYTES": 64,
    "MR_RANK_MAX": 4,
    "MR_OPTIMIZER_ARGS": 6,
}
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


def protocol() -> str:
    return (ROOT / "docs/protocol.md").read_text(encoding="utf-8")


def section(page: str, number: str) -> str:
    """From its heading to the next one of its rank."""
    match = re.search(rf"^## {number}\. .*?(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    assert match is not None
    return match.group(0)


def declared(header: str, pattern: str) -> list[tuple[str, ...]]:
    """What lines X(...) of a header declare."""
    text = (ROOT / "dataplane/wire/format" / header).read_text(encoding="utf-8")
    return re.findall(pattern, text, re.MULTILINE)


def offsets(header: str, name: str) -> dict[str, int]:
    """Of the fields of a struct that has no gaps."""
    text = (ROOT / "dataplane/wire/format" / header).read_text(encoding="utf-8")
    body = re.search(rf"^struct {name} \{{\n(.*?)^\}};", text, re.MULTILINE | re.DOTALL)
    assert body is not None
    fields = re.findall(r"^    (?:struct )?(\w+) ([\w, \[\]]+);", body.group(1), re.MULTILINE)
    found, at = {}, 0
    for kind, names in fields:
        for field, count in re.findall(r"(\w+)(?:\[(\w+)\])?(?:, |$)", names):
            bytes_each = SIZES[kind]
            assert at % min(bytes_each, 8) == 0, f"{name}.{field} is not aligned"
            found[field] = at
            at += bytes_each * (SIZES[count] if count in SIZES else int(count or 1))
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

    def test_tables_of_operations_are_those_of_the_list(self) -> None:
        source = (ROOT / ops.LIST).read_text(encoding="utf-8")
        listed, bodies = ops.read(source)
        self.assertGreater(len(listed), 40)
        self.assertEqual(sum(len(body.words) for body in bodies.values()), source.count("\nMR_WORD"))
        self.assertEqual(ops.problems(listed, bodies), [])
        self.assertEqual(ops.renewed(protocol(), source), protocol())

    def test_a_change_of_the_list_is_found(self) -> None:
        source = (ROOT / ops.LIST).read_text(encoding="utf-8")
        for old, new in (
            ('MR_WORD(RESTORED, STEP, "")', 'MR_WORD(RESTORED, STEP, "reached")'),
            ("restore, 14, false, OPERATOR", "restore, 14, true, OPERATOR"),
            ("restore, 14, false, OPERATOR", "restore, 14, false, TRAINER"),
            ("MR_BODY_END(RESTORED, 6)", "MR_BODY_END(RESTORED, 7)"),
        ):
            self.assertIn(old, source)
            self.assertNotEqual(ops.renewed(protocol(), source.replace(old, new)), protocol())
        lost = source.replace("@RESTORED", "u64[6]")
        self.assertEqual(ops.problems(*ops.read(lost)), [f"{ops.LIST}: no operation has the body RESTORED"])
        unknown = source.replace("@HUB", "@NONE")
        self.assertIn(f"{ops.LIST}: no body is called NONE", ops.problems(*ops.read(unknown)))

    def test_capabilities_have_their_bits(self) -> None:
        bits = declared("capability.h", r"^    X\(\w+, (\d+), \"(\w+)\"")
        rows = re.findall(r"^\| (\d+) \| `(\w+)` \|", section(protocol(), "3"), re.MULTILINE)
        self.assertGreater(len(bits), 3)
        self.assertEqual(rows, bits)

    def test_offsets_of_fields(self) -> None:
        for struct, heading in (("mr_hello", "HELLO"), ("mr_accept", "ACCEPT")):
            table = re.search(rf"^\| offset \| {heading},.*?\n\n", protocol(), re.MULTILINE | re.DOTALL)
            assert table is not None
            named = re.findall(r"^\| (\d+) \| `(\w+)`", table.group(0), re.MULTILINE)
            wanted = offsets("packet.h", struct)
            if struct == "mr_accept":  # of the long one
                wanted["version"] = wanted["proof"] + SIZES["MR_PROOF_BYTES"]
            self.assertEqual({name: int(at) for at, name in named}, {name: wanted[name] for _, name in named})
        feature = re.search(r"`mr_feature`, 240 bytes.*?zeros 224", protocol(), re.DOTALL)
        assert feature is not None
        named = re.findall(r"(\w+) (\d+)[ ,(]", feature.group(0).split(": ", 1)[1].replace("\n", " "))
        fields = offsets("mr_feature.h", "mr_feature")
        self.assertEqual(
            {name: int(at) for name, at in named if name in fields},
            {name: at for name, at in fields.items() if name != "reserved"},
        )


if __name__ == "__main__":
    unittest.main()
