"""What scripts/layouts.py takes for a change of a layout, and what not."""

import shutil
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts"))
import layouts  # noqa: E402


class Layouts(unittest.TestCase):
    def setUp(self):
        self.root = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.root)
        for path in layouts.LAYOUTS:
            (self.root / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / path, self.root / path)
        (self.root / "scripts").mkdir(exist_ok=True)
        layouts.renew(self.root)

    def changed(self, path: str, old: str, new: str) -> list[str]:
        file = self.root / path
        text = file.read_text()
        self.assertIn(old, text)
        file.write_text(text.replace(old, new, 1))
        found = layouts.check(self.root)
        file.write_text(text)
        self.assertEqual([], layouts.check(self.root))
        return found

    def test_the_list_is_that_of_the_tree(self):
        self.assertEqual([], layouts.check(ROOT))

    def test_each_file_has_declarations(self):
        for path, kind in layouts.LAYOUTS.items():
            self.assertGreater(len(layouts.declarations((ROOT / path).read_text(), kind)), 40, path)

    def test_changes_of_layouts(self):
        for path, old, new in (
            ("dataplane/wire/format/ops.def", "lookup_tables, 48", "lookup_tables, 49"),
            ("dataplane/wire/format/ops.def", "MR_BODY_END(RESTORED, 6)", "MR_BODY_END(RESTORED, 7)"),
            ("dataplane/wire/format/ops.def", "MR_WORD(RESTORED, STEP,", "MR_WORD(RESTORED, PHASE,"),
            (
                "dataplane/wire/format/ops.def",
                "u64[1] batch id, or u64[4] {batch id, plan}",
                "u64[2] batch id",
            ),
            ("dataplane/wire/format/op.h", "MR_PUSH_UNSEEN = 1u << 0", "MR_PUSH_UNSEEN = 1u << 3"),
            (
                "dataplane/wire/format/mr_feature.h",
                "MR_OPT_ASSIGN = 9",
                "MR_OPT_LION = 10,\n    MR_OPT_ASSIGN = 9",
            ),
            (
                "dataplane/wire/format/mr_feature.h",
                "uint8_t reserved[16]",
                "float momentum;\n    uint8_t reserved[12]",
            ),
            ("dataplane/wire/format/packet.h", "uint16_t arrived_core;", "uint32_t arrived_core;"),
            ("dataplane/rpc/base/values.h", "uint16_t depth;", "uint16_t depth, width;"),
            (
                "dataplane/optimizer/rule.c",
                "case MR_OPT_ADAGRAD:\n        return count",
                "case MR_OPT_ADAGRAD:\n        return 1",
            ),
            (
                "dataplane/optimizer/rule.c",
                "own_state_floats(o, count) + o->dense",
                "own_state_floats(o, count)",
            ),
            ("ps/checkpoint/checkpoint.h", "PS_RECORD_PUSH_STREAM = 9", "PS_RECORD_PUSH_STREAM = 10"),
            ("ps/checkpoint/checkpoint_manifest.c", '"clock_s"', '"clock_us"'),
            ("ps/checkpoint/checkpoint_manifest.c", "X(memory_bytes)", "X(memory_mib)"),
            ("ps/cluster/map_json.c", '"start_id"', '"start"'),
        ):
            with self.subTest(path=path, new=new):
                self.assertEqual([path], self.changed(path, old, new))

    def test_words_and_functions_are_none(self):
        for path, old, new in (
            (
                "dataplane/wire/format/ops.def",
                "that are to reach the step",
                "which have not reached the step",
            ),
            ("dataplane/wire/format/ops.def", "after its request is not believed", "is dropped"),
            ("dataplane/wire/format/ops.def", "A word never changes", "No word changes"),
            ("dataplane/wire/format/mr_feature.h", "/* Feature descriptors:", "/* Descriptors:"),
            (
                "dataplane/wire/format/packet.h",
                "enum mr_drop mr_packet_parse(",
                "int f(void);\nenum mr_drop mr_packet_parse(",
            ),
            ("ps/checkpoint/checkpoint_manifest.c", "is named twice", "comes twice"),
            ("ps/checkpoint/checkpoint.h", "PS_RECORD_ROWS = 1,", "PS_RECORD_ROWS   =   1,"),
        ):
            with self.subTest(path=path, new=new):
                self.assertEqual([], self.changed(path, old, new))

    def test_a_layout_that_is_not_listed(self):
        list_file = self.root / layouts.LIST
        list_file.write_text("".join(list_file.read_text().splitlines(keepends=True)[1:]))
        self.assertEqual(1, len(layouts.check(self.root)))


if __name__ == "__main__":
    unittest.main()
