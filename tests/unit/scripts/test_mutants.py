"""Each patch below tests/ that breaks the code on purpose still applies to it, as scripts/mutants.sh applies
it."""
import subprocess
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PATCHES = sorted(ROOT.glob("tests/**/mutants/*.patch"))


class Mutants(unittest.TestCase):
    def test_there_are_some(self):
        self.assertGreater(len(PATCHES), 100)

    def test_each_applies(self):
        for patch in PATCHES:
            with self.subTest(patch=patch.relative_to(ROOT)), open(patch, encoding="utf-8") as text:
                command = ["patch", "-p1", "-F2", "--dry-run", "--force"]
                done = subprocess.run(
                    command, cwd=ROOT, stdin=text, capture_output=True, text=True, check=False
                )
                self.assertEqual(done.returncode, 0, done.stdout)


unittest.main()
