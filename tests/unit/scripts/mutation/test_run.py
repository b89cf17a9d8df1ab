#!/usr/bin/env python3
"""The runner of faults: which tests it runs first, what an earlier run's output tells it, what a busy machine
is forgiven."""
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "scripts/mutation"))
from faults import Fault, faults_of  # noqa: E402 (found by the line above)
from run import (
    AREAS,
    ROOT,
    Order,
    Outcome,
    Sample,
    Test,
    equivalents,
    processor_share,
    results_of,
    survivors_of,
)  # noqa: E402


def fault(path="ps/index/index_grow.c"):
    return Fault(path, "f", "call dropped", 1, 0, 4, "g();", ";", 0)


def timed(name, seconds):
    return Test(name, [], {}, ".", [], seconds=seconds)


class Orders(unittest.TestCase):
    def sorted(self, order, path, *tests):
        return [test.name for test in order.sorted(path, list(tests))]

    def test_near_ones_first_unless_they_are_slow(self):
        names = self.sorted(
            Order(),
            "ps/index/index_grow.c",
            timed("ps/table", 0.1),
            timed("ps/index", 1.0),
            timed("ps/property_index", 60.0),
            timed("ps/index_grow", 2.0),
        )
        self.assertEqual(names, ["ps/index_grow", "ps/index", "ps/table", "ps/property_index"])

    def test_one_that_caught_others_of_the_file_goes_before_the_rest(self):
        order = Order()
        tests = timed("ps/a", 1.0), timed("ps/b", 1.0)
        self.assertEqual(self.sorted(order, "ps/x.c", *tests), ["ps/a", "ps/b"])
        order.note(Outcome(fault("ps/x.c"), "ps/b", "exit 1"))
        self.assertEqual(self.sorted(order, "ps/x.c", *tests), ["ps/b", "ps/a"])
        self.assertEqual(self.sorted(order, "ps/y.c", *tests), ["ps/a", "ps/b"])


class Samples(unittest.TestCase):
    def drawn(self, seed, count=4 * len(AREAS)):
        sample = Sample(list(AREAS), count, seed, "*")
        sample.fill()
        return [sample.next() for _ in range(count)], sample

    def test_a_seed_draws_the_same_ones_and_as_many_of_each_area(self):
        first, sample = self.drawn(5)
        self.assertEqual(first, self.drawn(5)[0])
        self.assertNotEqual(first, self.drawn(6)[0])
        for area in AREAS:
            self.assertEqual(sum(name == area for name, _ in first), 4)
        self.assertIsNone(sample.next())

    def test_those_that_are_listed_as_equivalent_are_faults_of_these_sources(self):
        for path in {name.split(":")[0] for name in equivalents()}:
            names = {found.name for found in faults_of(path, (ROOT / path).read_text(encoding="utf-8"))}
            self.assertLessEqual({name for name in equivalents() if name.startswith(f"{path}:")}, names)

    def test_one_that_was_none_is_drawn_again_from_its_area(self):
        _, sample = self.drawn(5)
        sample.give_back("rpc")
        area, _ = sample.next()
        self.assertEqual(area, "rpc")


class Outputs(unittest.TestCase):
    def test_survivors_are_those_that_nothing_caught_further_below(self):
        with tempfile.NamedTemporaryFile("w", suffix=".out") as output:
            output.write(
                "mutation: seed 1, 3 faults to draw from\n"
                "   1 SURVIVED                                 line 7\tps/a.c:f:call dropped:g(); -> "
                "nothing\n"
                "   2 ps/a (exit 1)                            line 8\tps/a.c:f:off by one:< -> <=\n"
                "   3 SURVIVED                                 line 9\tps/b.c:f:off by one:< -> <=\n"
                "mutation: 2 survived so far: with sanitizers\n"
                "   3 ps/b (exit 1)                            line 9\tps/b.c:f:off by one:< -> <=\n"
            )
            output.flush()
            self.assertEqual(
                list(results_of(output.name).values()), ["SURVIVED", "ps/a (exit 1)", "ps/b (exit 1)"]
            )
            self.assertEqual(survivors_of(output.name), {"ps/a.c:f:call dropped:g(); -> nothing"})


class Busy(unittest.TestCase):
    def share(self, running, cores=2):
        with mock.patch("run.CORES", cores), mock.patch.object(
            Path, "read_text", return_value=f"9.00 9.00 9.00 {running}/300 1\n"
        ):
            return processor_share()

    def test_time_counts_as_far_as_there_are_processors(self):
        self.assertEqual(self.share(1), 1.0)
        self.assertEqual(self.share(3), 1.0)
        self.assertEqual(self.share(9), 0.25)


if __name__ == "__main__":
    unittest.main()
