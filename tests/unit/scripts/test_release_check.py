"""scripts/release-check.sh runs its parts to the end, whatever fails, and says what passed; beside a make and
an on-debian.sh that do nothing."""
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
FAKE = """#!/bin/sh
echo "does $*"
case "$*" in *"$FAKE_FAILS"*) echo "breaks"; exit 1 ;; esac
"""


def write_program(path, text):
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


class ReleaseCheck(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.tree = pathlib.Path(place.name)
        (self.tree / "scripts").mkdir()
        shutil.copy(ROOT / "scripts/release-check.sh", self.tree / "scripts")
        write_program(self.tree / "scripts/on-debian.sh", FAKE)
        write_program(self.tree / "scripts/arm64.sh", FAKE)
        write_program(self.tree / "bin/make", FAKE)
        write_program(self.tree / "bin/id", "#!/bin/sh\necho 0\n")

    def check(self, *arguments, fails="nothing fails"):
        path = f"{self.tree / 'bin'}:{os.environ['PATH']}"
        return subprocess.run(
            [self.tree / "scripts/release-check.sh", *arguments],
            env={**os.environ, "PATH": path, "FAKE_FAILS": fails},
            capture_output=True,
            text=True,
            check=False,
        )

    def rows(self, done):
        return [re.split(r"  +", line) for line in done.stdout.strip().splitlines()[1:]]

    def test_runs_every_part_of_its_usage(self):
        named = re.findall(r"^  ([a-z0-9-]+)  ", self.check("--help").stdout, re.MULTILINE)
        done = self.check()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([row[0].split()[0] for row in self.rows(done)], named)
        self.assertEqual({row[2].split()[0] for row in self.rows(done)} | {"passed"}, {"passed"})

    def test_what_fails_does_not_end_the_others(self):
        done = self.check(fails="demo.sh")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, r"\ndemo-13 +Debian 13 +FAILED .* breaks\n")
        self.assertEqual(len(re.findall(" passed ", done.stdout)), len(self.rows(done)) - 1)
        log = (self.tree / "build/release-check/demo-13.log").read_text(encoding="utf-8")
        self.assertEqual(log, "does 13 scripts/demo.sh\nbreaks\n")

    def test_only_what_is_named(self):
        done = self.check("--only", "soak", "--only", "build-sid")
        self.assertEqual([row[0] for row in self.rows(done)], ["soak", "build-sid"])
        self.assertRegex(done.stdout, r"\nsoak .* does --no-print-directory soak\n")
        done = self.check("--only", "nothing")
        self.assertEqual(done.returncode, 2)
        self.assertIn("build-sid", done.stderr)

    def test_each_target_of_make_is_there(self):
        makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
        script = (ROOT / "scripts/release-check.sh").read_text(encoding="utf-8")
        targets = re.findall(r"make --no-print-directory ([a-z0-9-]+) ;;", script)
        self.assertGreater(len(targets), 3)
        for target in targets:
            with self.subTest(target=target):
                self.assertRegex(makefile, rf"(?m)^{target}:")


unittest.main()
