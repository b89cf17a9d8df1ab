"""What scripts/test_results.py makes of meson's logs: which tests run again, which are flaky, and what fails
a run."""
import contextlib
import io
import json
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "scripts"))
import test_results  # noqa: E402


class Results(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        self.path = Path(self.directory.name)
        (self.path / "meson-info").mkdir()
        (self.path / "meson-logs").mkdir()
        tests = [{"name": f"unit/{i}", "suite": ["millrace:unit"]} for i in range(3)]
        tests += [{"name": f"node/{i}", "suite": ["millrace:integration"]} for i in range(6)]
        (self.path / "meson-info" / "intro-tests.json").write_text(json.dumps(tests), encoding="utf-8")

    def run_script(self, *arguments):
        """The exit status and what it prints."""
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            status = test_results.main(list(map(str, arguments)))
        return status, printed.getvalue()

    def add(self, stage="release", **results):
        """Adds a log with node_0="FAIL" for the test node/0 and so on; returns what is to be run again."""
        log = self.path / "meson-logs" / "testlog.json"
        lines = []
        for name, result in results.items():
            code = {"OK": 0, "SKIP": 77, "FAIL": 1, "TIMEOUT": -9}[result]
            name = name.replace("_", "/")
            suite = "unit" if name.startswith("unit") else "integration+memory"
            test = {
                "name": f"millrace:{suite} / {name}",
                "result": result,
                "returncode": code,
                "duration": 1.5,
            }
            test["stdout"] = f"of {name}\n"
            lines.append(json.dumps(test) + "\n")
        log.write_text("".join(lines), encoding="utf-8")
        status, printed = self.run_script("add", self.path / "results", stage, self.path)
        self.assertEqual(status, 0)
        self.assertFalse(log.exists())
        return printed.split()

    def summary(self):
        return self.run_script("summary", self.path / "results")

    def test_a_good_run_passes(self):
        self.assertEqual(self.add(unit_0="OK", node_0="OK", node_1="SKIP"), [])
        status, text = self.summary()
        self.assertEqual((status, text.splitlines()[-1]), (0, "2 passed, 0 failed, 1 skipped"))
        self.assertIn("1.5 s  node/0 (release)", text)

    def test_a_failure_that_stays_fails_the_run(self):
        self.assertEqual(self.add(node_0="FAIL", node_1="OK"), ["node/0"])
        self.add(node_0="FAIL")
        status, text = self.summary()
        self.assertEqual((status, text.splitlines()[-1]), (1, "1 passed, 1 failed, 0 skipped"))
        self.assertIn("failed: node/0 (release; FAIL, exit status 1)\n    of node/0", text)

    def test_a_failure_that_passes_alone_is_flaky(self):
        self.assertEqual(self.add(node_0="TIMEOUT"), ["node/0"])
        self.add(node_0="OK")
        status, text = self.summary()
        self.assertEqual((status, text.splitlines()[-1]), (0, "1 passed, 0 failed, 0 skipped"))
        self.assertIn("flaky: node/0 (release; first TIMEOUT, then passed alone)\n    of node/0", text)

    def test_one_stage_does_not_excuse_another(self):
        self.add("release", node_0="FAIL")
        self.add("asan", node_0="OK")
        self.assertEqual(self.summary()[0], 1)

    def test_unit_tests_run_once(self):
        self.assertEqual(self.add(unit_0="FAIL", node_0="FAIL"), [])
        self.assertEqual(self.summary()[0], 1)

    def test_four_flaky_tests_fail_the_run(self):
        for stage, node in enumerate(("node_0", "node_1", "node_2")):
            self.assertEqual(self.add(str(stage), **{node: "FAIL"}), [node.replace("_", "/")])
            self.add(str(stage), **{node: "OK"})
        self.assertEqual(self.summary()[0], 0)
        self.assertEqual(self.add("last", node_3="FAIL"), [])
        self.add("last", node_3="OK")
        status, text = self.summary()
        self.assertEqual(status, 1)
        self.assertIn("4 tests are flaky, more than 3", text)

    def test_many_failures_are_not_run_again(self):
        self.assertEqual(self.add(node_0="FAIL", node_1="FAIL", node_2="FAIL", node_3="FAIL"), [])

    def test_no_test_is_a_failure(self):
        self.assertEqual(self.add(), [])
        status, text = self.summary()
        self.assertEqual((status, text.splitlines()[-1]), (1, "0 passed, 0 failed, 0 skipped"))


unittest.main()
