"""tests/bench/run.py chooses parts and rows by name, and says how long they take; table.py merges them."""
import argparse
import json
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "tests/bench"))
import quiet  # noqa: E402
import run  # noqa: E402
import table  # noqa: E402


def row(name, value=10.0, **more):
    made = {
        "name": name,
        "value": value,
        "unit": "us",
        "limit": 5.0,
        "ratio": 2.0,
        "better": "lower",
        "target": 1.3,
        "target_of": "ratio",
        "met": False,
        "noisy_ratio": None,
        "noise_factor": None,
    }
    return {**made, **more}


def results(*rows, limits=None, notes=None):
    return {"machine": "cpu; port", "rows": list(rows), "limits": limits or {}, "notes": notes or {}}


class Names(unittest.TestCase):
    def test_every_part_has_rows_a_time_and_a_method(self):
        self.assertEqual(set(run.PARTS), set(run.ROWS) | set(run.PATTERNS))
        for part in run.PARTS:
            self.assertTrue(callable(getattr(run.Bench, f"{part}_round")))

    def test_no_row_is_in_two_parts(self):
        names = [name for rows in run.ROWS.values() for name in rows]
        self.assertEqual(len(names), len(set(names)))

    def test_a_part_a_row_and_a_pattern_choose_parts(self):
        self.assertEqual(run.parts_with("socket"), ["socket"])
        self.assertEqual(run.parts_with("empty_call_1"), ["veth"])
        self.assertEqual(run.parts_with("*push_8mb"), ["veth", "socket", "mtu"])
        self.assertEqual(run.parts_with("table_sgd_lookup_50000k"), ["table_large"])
        self.assertEqual(run.parts_with("nonsense"), [])

    def test_only_what_is_named_is_wanted(self):
        self.assertTrue(run.is_wanted("empty_call_1", []))
        self.assertTrue(run.is_wanted("empty_call_1", ["socket", "veth"]))
        self.assertTrue(run.is_wanted("table_sgd_lookup_1000k", ["table"]))
        self.assertTrue(run.is_wanted("socket_pull_8mb", ["*pull*"]))
        self.assertFalse(run.is_wanted("empty_call_64", ["empty_call_1", "socket"]))

    def test_of_a_long_part_only_the_programs_of_what_is_named_run(self):
        bench = argparse.Namespace(only=["big_*"])
        self.assertTrue(run.Bench.wants(bench, "big_*"))
        self.assertFalse(run.Bench.wants(bench, "table_insert_growing"))
        self.assertTrue(run.Bench.wants(argparse.Namespace(only=["table_large"]), "zipf_core_share"))
        self.assertTrue(run.Bench.wants(argparse.Namespace(only=[]), "zipf_core_share"))

    def test_merged_rows_are_put_into_the_order_of_the_parts(self):
        names = ["big_fill", "socket_pull_8mb", "table_sgd_push_1000k", "pull_8mb", "empty_call_1"]
        in_order = ["empty_call_1", "pull_8mb", "socket_pull_8mb", "table_sgd_push_1000k", "big_fill"]
        self.assertEqual(sorted(names, key=run.place), in_order)


class Steps(unittest.TestCase):
    def progress(self, **more):
        arguments = argparse.Namespace(**{"parts": {"veth", "demo"}, "rounds": 2, "noise": False, **more})
        said = []
        with mock.patch.object(run, "say", said.append):
            parts = list(run.Progress(arguments))
        return parts, said

    def test_parts_repeat_each_round_and_the_demo_comes_once_at_the_end(self):
        parts, said = self.progress()
        self.assertEqual(parts, ["veth", "veth", "demo"])
        self.assertEqual(len(said), 4)
        self.assertIn("3 steps (veth, demo), about 2 minutes", said[0])
        self.assertIn("1 of 3: veth, round 1 of 2", said[1])
        self.assertIn("3 of 3: demo;", said[3])

    def test_noise_takes_twice_as_long(self):
        self.assertIn("about 5 minutes", self.progress(noise=True)[1][0])

    def test_what_is_left_follows_the_time_that_steps_took(self):
        arguments = argparse.Namespace(parts={"veth"}, rounds=3, noise=False)
        clock = iter([0.0, 0.0, 2.0 * run.PARTS["veth"], 4.0 * run.PARTS["veth"]])
        said = []
        with mock.patch.object(run, "say", said.append), mock.patch(
            "run.time.monotonic", lambda: next(clock)
        ):
            list(run.Progress(arguments))
        self.assertIn(f"about {run.minutes(2 * 2.0 * run.PARTS['veth'])} left", said[2])


class Tables(unittest.TestCase):
    def merged(self, before, after):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as saved:
            json.dump(before, saved)
            saved.flush()
            return table.merge(table.load(saved.name), after)

    def test_later_rows_take_the_place_of_earlier_ones(self):
        before = results(row("a"), row("b"), limits={"empty_call_1": {"socket": 9.0}}, notes={"torch": "1"})
        merged = self.merged(
            before, results(row("b", 7.0), row("c"), limits={"empty_call_1": {"af_xdp": 6.0}})
        )
        self.assertEqual([(r["name"], r["value"]) for r in merged["rows"]], [("a", 10), ("b", 7), ("c", 10)])
        self.assertEqual(merged["limits"], {"empty_call_1": {"socket": 9.0, "af_xdp": 6.0}})
        self.assertEqual(merged["notes"], {"torch": "1"})

    def test_there_may_be_nothing_to_merge(self):
        self.assertIsNone(table.load("/nonexistent/results.json"))

    def test_missed_rows_say_no_and_rows_without_a_target_nothing(self):
        text = table.markdown(results(row("a"), row("b", met=True), row("c", target=None, met=None)))
        self.assertIn("| `a` | 10.00 us | 5.00 | 2.00 | <= 1.30 x limit | no | - | - | - |", text)
        self.assertIn("| `b` | 10.00 us | 5.00 | 2.00 | <= 1.30 x limit | yes | - | - | - |", text)
        self.assertIn("| `c` | 10.00 us | 5.00 | 2.00 | - |  | - | - | - |", text)

    def test_a_limit_that_spreads_is_marked_and_other_programs_are_shown(self):
        rows = [row("a", limit_spread=0.21, steal=0.004, others=0.1), row("b", limit_spread=0.2)]
        text = table.markdown(results(*rows))
        self.assertIn("| no | 21 % ! | 0 % | 10 % |", text)
        self.assertIn("| no | 20 % | - | - |", text)

    def test_limits_of_port_and_sockets_stand_side_by_side(self):
        limits = {"pull_13312x16": {"af_xdp": 851.968, "socket": 170.3936}}
        text = table.text(results(limits=limits))
        self.assertRegex(text, r"what the port alone can do +af_xdp +sockets, super-packets")
        self.assertRegex(text, r"852 kB of rows pulled +1,000 MB/s +5,000 MB/s")

    def test_mtus_stand_in_lines(self):
        rows = [
            row("mtu_1280_socket_pull_8mb", 7.0, met=None),
            row("mtu_1280_socket_bulk_1pct_loss"),
            row("mtu_9000_socket_bulk_1pct_loss", met=True),
        ]
        text = table.markdown(results(*rows))
        self.assertIn("| `1280, socket` | 7.00 us, 2.00 |", text)
        self.assertIn("| `1280, socket` | 10.00 us, 2.00 (missed) |", text)
        self.assertIn("| `9000, socket` | 10.00 us, 2.00 |", text)
        self.assertNotIn("mtu_1280", text)

    def test_noise_has_a_table_of_its_own(self):
        noisy = row("a", noisy_ratio=3.2, noise_factor=1.6)
        self.assertIn("| `a` | 2.00 | 3.20 | 1.60 | <= 1.5 x quiet | no |", table.markdown(results(noisy)))
        self.assertNotIn("quiet", table.markdown(results(row("a"))))


class QuietMachine(unittest.TestCase):
    def test_the_spread_is_of_the_median(self):
        self.assertIsNone(quiet.spread([3.0]))
        self.assertAlmostEqual(quiet.spread([12.0, 10.0, 9.0]), 0.3)

    def test_what_others_take_is_what_own_programs_do_not(self):
        shares = []
        for own in (0.0, 3.0):
            busy, used, clock = iter([(5.0, 1.0), (9.0, 1.5)]), iter([2.0, 2.0 + own]), iter([10.0, 12.0])
            with mock.patch.object(quiet, "cpu_seconds", lambda busy=busy: next(busy)), mock.patch.object(
                quiet, "own_seconds", lambda used=used: next(used)
            ), mock.patch.object(
                quiet.os, "times", lambda clock=clock: argparse.Namespace(elapsed=next(clock))
            ), mock.patch.object(
                quiet.os, "cpu_count", lambda: 4
            ):
                with quiet.Quiet() as machine:
                    pass
            self.assertAlmostEqual(machine.steal, 0.5 / 8)
            shares.append(machine.others)
        self.assertEqual(shares, [4.0 / 8, 1.0 / 8])


class SessionFirst(unittest.TestCase):
    """A file stands for the kernel's, which holds one line and takes a number."""

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.group = pathlib.Path(directory.name) / "autogroup"
        patch = mock.patch.object(run, "AUTOGROUP", str(self.group))
        patch.start()
        self.addCleanup(patch.stop)

    def test_priority_returns_to_what_it_was(self):
        self.group.write_text("/autogroup-7719 nice 3\n", encoding="ascii")
        with self.assertRaises(RuntimeError), run.session_first():
            self.assertEqual(self.group.read_text(encoding="ascii"), "-20")
            raise RuntimeError
        self.assertEqual(self.group.read_text(encoding="ascii"), "3")

    def test_kernels_and_sessions_without_a_group_are_left_alone(self):
        with run.session_first():
            self.assertFalse(self.group.exists())
        self.group.write_text("", encoding="ascii")
        with run.session_first():
            self.assertEqual(self.group.read_text(encoding="ascii"), "")

    def test_quick_rounds_leave_it_alone(self):
        self.group.write_text("/autogroup-7719 nice 0\n", encoding="ascii")
        with mock.patch.object(run, "FIRST", []), run.session_first():
            self.assertIn("nice 0", self.group.read_text(encoding="ascii"))


if __name__ == "__main__":
    unittest.main()
