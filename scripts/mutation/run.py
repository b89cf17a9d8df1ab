#!/usr/bin/env python3
"""Breaks the source at random places, one at a time, and runs the tests concerned until one notices.

Prints a line for each fault, and at the end how many were caught, and the survivors. A survivor is read: either a test is
missing, or the broken code does the same, and tests/mutation/equivalent.tsv says why.
"""
from __future__ import annotations

import argparse
import fnmatch
import glob
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from faults import Fault, faults_of

ROOT = Path(__file__).resolve().parents[2]
EQUIVALENT = ROOT / "tests/mutation/equivalent.tsv"
RSS_BYTES_MAX = 4 << 30  # of a test that a fault made hungry
TIMEOUT_LEAST_S = 20
CHUNK_TESTS = 8  # built and run before the next ones are built


@dataclass(frozen=True)
class Area:
    sources: tuple[str, ...]
    tests: tuple[str, ...]  # the nearest ones first


AREAS = {
    "wire": Area(("dataplane/wire/*.c",), ("wire/*", "trainer_client/client", "trainer_client/calls")),
    "exactly-once": Area(
        ("ps/learnt*.c", "ps/partial.c", "ps/push*.c", "ps/clients.c", "trainer_client/re[mps]*.c", "trainer_client/push.c",
         "trainer_client/trail.c", "trainer_client/learnt.c"),
        ("ps/learnt*", "ps/partial", "ps/push*", "ps/clients", "trainer_client/*", "ps/ops_*", "ps/restore*", "ps/save*", "sim/cuts_*")),
    "checkpoint": Area(
        ("ps/checkpoint*.c", "ps/restore*.c", "ps/save*.c", "ps/manifest_file.c", "ps/block*.c", "ps/uring_writer.c", "ps/gone.c",
         "ps/staged.c"),
        ("ps/checkpoint*", "ps/restore*", "ps/save*", "ps/block*", "ps/uring_writer", "ps/gone", "ps/control*", "ps/table_delta", "sim/cuts_*")),
    "index": Area(("ps/index*.c",), ("ps/index*", "ps/table*", "ps/property*")),
    "rpc": Area(("dataplane/rpc/*.c",), ("rpc/*", "integration/rpc", "integration/rref", "integration/autograd", "integration/rpc_optimizer")),
}
SLOW = ("*mutants*",)  # tests that are no tests of the code itself


@dataclass
class Test:
    name: str
    command: list[str]
    environment: dict[str, str]
    directory: str
    targets: list[str]
    seconds: float = 0.0


@dataclass
class Outcome:
    fault: Fault
    caught_by: str = ""  # empty: survived
    how: str = ""


def fail(message: str) -> None:
    sys.exit(f"mutation: {message}")


class Workshop:
    """A copy of the tree with a build of its own, in which one fault at a time is tried."""

    def __init__(self, directory: Path) -> None:
        self.tree, self.build = directory / "tree", directory / "tree/build"
        shutil.rmtree(self.tree, ignore_errors=True)
        files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
        for name in filter(None, files.split("\0")):
            if (ROOT / name).is_file():
                (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.tree / name)
        strict = "-Werror=incompatible-pointer-types -Werror=int-conversion -Werror=implicit-function-declaration"
        self.run(["meson", "setup", "build", "-Doptimization=1", "-Ddebug=false", "-Dwerror=false", "-Dwarning_level=0",
                  f"-Dc_args={strict}"])
        self.objects = {}
        for entry in json.loads((self.build / "compile_commands.json").read_text()):
            source = os.path.relpath(os.path.join(entry["directory"], entry["file"]), self.tree)
            self.objects.setdefault(source, []).append(entry["output"])
        self.hashes: dict[str, str] = {}

    def run(self, command: list[str]) -> None:
        done = subprocess.run(command, cwd=self.tree, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            fail(f"{' '.join(command)} fails:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")

    def tests(self, patterns: tuple[str, ...]) -> list[Test]:
        def introspect(what: str) -> list[dict]:
            text = subprocess.run(["meson", "introspect", "build", what], cwd=self.tree, check=True, capture_output=True, text=True).stdout
            return json.loads(text)

        files = {target["id"]: [os.path.relpath(name, self.build) for name in target["filename"]] for target in introspect("--targets")}
        tests = {}
        for test in introspect("--tests"):
            name = test["name"]
            if any(fnmatch.fnmatch(name, p) for p in patterns) and not any(fnmatch.fnmatch(name, p) for p in SLOW):
                tests[name] = Test(name, test["cmd"], test["env"], test["workdir"] or str(self.build),
                                   [f for target in test["depends"] for f in files.get(target, [])])
        return list(tests.values())

    def ninja(self, targets: list[str]) -> bool:
        done = subprocess.run(["ninja", "-j1", *dict.fromkeys(targets)], cwd=self.build, capture_output=True, text=True, check=False)
        return done.returncode == 0

    def hash_objects(self, source: str) -> str:
        digest = hashlib.sha256()
        for name in self.objects[source]:
            digest.update((self.build / name).read_bytes())
        return digest.hexdigest()

    def stamp(self, test: Test) -> tuple[int, ...]:
        return tuple(os.stat(self.build / name).st_mtime_ns for name in test.targets if (self.build / name).exists())

    def try_fault(self, fault: Fault, tests: list[Test]) -> Outcome | None:
        """None: it does not build, or builds to the same."""
        path = self.tree / fault.path
        original = path.read_text(encoding="utf-8")
        if fault.path not in self.hashes:
            if not self.ninja(self.objects[fault.path]):
                fail(f"{fault.path} does not build")
            self.hashes[fault.path] = self.hash_objects(fault.path)
        try:
            path.write_text(fault.apply(original), encoding="utf-8")
            if not self.ninja(self.objects[fault.path]) or self.hash_objects(fault.path) == self.hashes[fault.path]:
                return None
            return self.try_tests(fault, tests)
        finally:
            path.write_text(original, encoding="utf-8")

    def try_tests(self, fault: Fault, tests: list[Test]) -> Outcome:
        for first in range(0, len(tests), CHUNK_TESTS):
            chunk = tests[first:first + CHUNK_TESTS]
            stamps = [self.stamp(test) for test in chunk]
            if not self.ninja([name for test in chunk for name in test.targets]):
                return Outcome(fault, "the linker", "does not link")
            for test, stamp in zip(chunk, stamps):
                if self.stamp(test) != stamp:  # else it does not hold the broken file
                    how = self.run_test(test, max(TIMEOUT_LEAST_S, 10 * test.seconds))
                    if how:
                        return Outcome(fault, test.name, how)
        return Outcome(fault)

    def run_test(self, test: Test, timeout_s: float) -> str:
        """Why it failed, or nothing."""
        environment = {**os.environ, **test.environment, "MALLOC_PERTURB_": "85"}
        with subprocess.Popen(test.command, cwd=test.directory, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, start_new_session=True) as process:
            end = time.monotonic() + timeout_s
            how = ""
            while process.poll() is None and not how:
                if time.monotonic() > end:
                    how = "time-out"
                elif rss_bytes(process.pid) > RSS_BYTES_MAX:
                    how = "memory"
                time.sleep(0.01)
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
        if how or process.returncode in (0, 77):
            return how
        return f"signal {-process.returncode}" if process.returncode < 0 else f"exit {process.returncode}"


def rss_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGESIZE")
    except (OSError, IndexError):
        return 0


def nearest_first(path: str, tests: list[Test]) -> list[Test]:
    """The test of the file's own name, then those that share most words with it, the quick ones first."""
    words = set(re.split(r"[_/]", Path(path).stem))

    def rank(test: Test) -> tuple[int, float]:
        name = test.name.split("/", 1)[1]
        return (-1000 if name == Path(path).stem else -len(words & set(re.split(r"[_/]", name))), test.seconds)

    return sorted(tests, key=rank)


def equivalents() -> set[str]:
    lines = EQUIVALENT.read_text(encoding="utf-8").splitlines() if EQUIVALENT.exists() else []
    return {line.split("\t")[0] for line in lines if line and not line.startswith("#")}


@dataclass
class Sample:
    """Draws faults, as many from each area."""
    areas: list[str]
    wanted: int
    seed: int
    only: str
    queues: dict[str, list[Fault]] = field(default_factory=dict)
    given: dict[str, int] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def fill(self) -> None:
        known = equivalents()
        chance = random.Random(self.seed)
        for area in self.areas:
            paths = sorted({path for pattern in AREAS[area].sources for path in glob.glob(pattern, root_dir=ROOT)})
            faults = [fault for path in paths if fnmatch.fnmatch(path, self.only)
                      for fault in faults_of(path, (ROOT / path).read_text(encoding="utf-8")) if fault.name not in known]
            chance.shuffle(faults)
            self.queues[area] = faults
            self.given[area] = 0

    def next(self) -> tuple[str, Fault] | None:
        with self.lock:
            if sum(self.given.values()) >= self.wanted:
                return None
            open_areas = [area for area in self.areas if self.queues[area]]
            if not open_areas:
                return None
            area = min(open_areas, key=lambda name: self.given[name])
            self.given[area] += 1
            return area, self.queues[area].pop()

    def give_back(self, area: str) -> None:
        """The fault was none: another is drawn in its place."""
        with self.lock:
            self.given[area] -= 1


def prepare(directory: Path, areas: list[str]) -> tuple[Workshop, dict[str, list[Test]]]:
    workshop = Workshop(directory)
    tests = {area: workshop.tests(AREAS[area].tests) for area in areas}
    if not workshop.ninja([name for area in areas for test in tests[area] for name in test.targets]):
        fail("the tree does not build")
    return workshop, tests


def time_tests(workshop: Workshop, tests: dict[str, list[Test]]) -> dict[str, float]:
    """The code as it is passes them all; how long each takes."""
    seconds: dict[str, float] = {}
    for test in (test for area in tests.values() for test in area):
        if test.name in seconds:
            continue
        began = time.monotonic()
        how = workshop.run_test(test, 600) and workshop.run_test(test, 600)
        if how:
            fail(f"{test.name} fails on the code as it is: {how}")
        seconds[test.name] = time.monotonic() - began
    return seconds


def report(number: int, outcome: Outcome) -> None:
    fault = outcome.fault
    result = f"{outcome.caught_by} ({outcome.how})" if outcome.caught_by else "SURVIVED"
    print(f"{number:4} {result:40} {fault.path}:{fault.line} {fault.kind}: {' '.join(fault.before.split())[:80]}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="mutation", description=__doc__)
    parser.add_argument("--sample", type=int, default=300, help="faults to try (default %(default)s)")
    parser.add_argument("--seed", type=int, default=None, help="draws the same ones again (default: the time)")
    parser.add_argument("--area", action="append", choices=sorted(AREAS), help="only these (default: all)")
    parser.add_argument("--only", default="*", metavar="GLOB", help="only files whose path matches")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="trees worked in at a time (default: all processors)")
    parser.add_argument("--least", type=float, default=85.0, metavar="PERCENT", help="exit status 1 when fewer are caught (default %(default)s)")
    parser.add_argument("--list", action="store_true", help="name the faults that the sample draws from, and try none")
    options = parser.parse_args()
    areas = options.area or list(AREAS)
    seed = options.seed if options.seed is not None else int(time.time())
    sample = Sample(areas, options.sample, seed, options.only)
    sample.fill()
    if options.list:
        for area in areas:
            print("\n".join(sorted(fault.name for fault in sample.queues[area])))
        return 0
    print(f"mutation: seed {seed}, {sum(map(len, sample.queues.values()))} faults to draw from", flush=True)
    outcomes: list[Outcome] = []
    lock = threading.Lock()
    shops = [prepare(ROOT / f"build/mutation/{n}", areas) for n in range(options.jobs)]
    seconds = time_tests(*shops[0])

    def work(workshop: Workshop, tests: dict[str, list[Test]]) -> None:
        for test in (test for area in tests.values() for test in area):
            test.seconds = seconds[test.name]
        while (drawn := sample.next()) is not None:
            area, fault = drawn
            outcome = workshop.try_fault(fault, nearest_first(fault.path, tests[area]))
            if outcome is None:
                sample.give_back(area)
                continue
            with lock:
                outcomes.append(outcome)
                report(len(outcomes), outcome)

    threads = [threading.Thread(target=work, args=shop) for shop in shops]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    survivors = [outcome.fault for outcome in outcomes if not outcome.caught_by]
    for fault in sorted(survivors, key=lambda f: f.name):
        print(f"survived: line {fault.line}\t{fault.name}")
    caught = len(outcomes) - len(survivors)
    share = 100 * caught / max(1, len(outcomes))
    print(f"mutation: {caught} of {len(outcomes)} caught, {share:.1f} %, seed {seed}")
    return 0 if share >= options.least else 1


if __name__ == "__main__":
    sys.exit(main())
