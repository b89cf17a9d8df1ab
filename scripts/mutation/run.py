#!/usr/bin/env python3
"""Breaks the source at random places, one at a time, and runs the tests concerned until one notices.

Prints a line for each fault, and at the end how many were caught, and the survivors. A survivor is read:
either a test is missing, or the broken code does the same, and tests/mutation/equivalent.tsv says why.
"""
from __future__ import annotations

import argparse
import filecmp
import fnmatch
import glob
import hashlib
import json
import math
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from faults import Fault, faults_of

ROOT = Path(__file__).resolve().parents[2]
EQUIVALENT = ROOT / "tests/mutation/equivalent.tsv"
RSS_BYTES_MAX = 4 << 30  # of a test that a fault made hungry
FILE_BYTES_MAX = 16 << 30
TIMEOUT_LEAST_S = 4
TIMEOUT_FACTOR = 6  # of what the test takes on the code as it is
FIRST_TESTS = 2  # built and run before the next ones are built
CHUNK_TESTS = 8
# Warnings that are wrong at the optimisation we build with, and those at how a fault is written, not at what
# it does.
EXEMPT = ("maybe-uninitialized", "format-truncation", "parentheses", "empty-body")
SANITIZERS = [
    "-Db_sanitize=address,undefined",
    "-Db_lundef=false",
]  # and where they look: as scripts/test.sh has it
SANITIZER_ENVIRONMENT = {
    "ASAN_OPTIONS": "detect_leaks=1:abort_on_error=0",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
}
CORES = os.cpu_count() or 1


@dataclass(frozen=True)
class Area:
    sources: tuple[str, ...]
    tests: tuple[str, ...]  # the nearest ones first


AREAS = {
    "wire": Area(
        ("dataplane/wire/**/*.c",),
        (
            "wire/*",
            "fuzz/message",
            "fuzz/packet",
            "fuzz/session",
            "trainer_client/client",
            "trainer_client/calls",
        ),
    ),
    "exactly-once": Area(
        (
            "ps/**/applied_batches*.c",
            "ps/**/partial.c",
            "ps/**/push*.c",
            "ps/**/clients.c",
            "trainer_client/**/re[mps]*.c",
            "trainer_client/**/push.c",
            "trainer_client/**/gone.c",
            "trainer_client/**/ancestry.c",
            "trainer_client/**/applied_batches.c",
        ),
        (
            "ps/applied_batches*",
            "ps/partial",
            "ps/push*",
            "ps/clients",
            "trainer_client/*",
            "ps/ops_*",
            "ps/restore*",
            "ps/save*",
            "sim/cuts_*",
        ),
    ),
    "checkpoint": Area(
        (
            "ps/**/checkpoint*.c",
            "ps/**/restore*.c",
            "ps/**/save*.c",
            "ps/**/block*.c",
            "ps/io/*.c",
            "ps/**/tombstones.c",
            "ps/**/staging.c",
        ),
        (
            "ps/checkpoint*",
            "ps/restore*",
            "ps/save*",
            "ps/block*",
            "ps/read_pool",
            "ps/write_pool*",
            "ps/tombstones",
            "ps/control*",
            "ps/table_delta",
            "sim/cuts_*",
            "tools/ckpt*",
            "fuzz/chain",
            "fuzz/checkpoint",
        ),
    ),
    "index": Area(("ps/**/index*.c",), ("ps/index*", "ps/table*", "ps/property*", "fuzz/index")),
    "tables": Area(
        (
            "ps/**/table*.c",
            "ps/**/slab.c",
            "ps/**/occurrence*.c",
            "ps/**/row_*.c",
            "ps/**/initializer.c",
            "ps/**/variable.c",
        ),
        (
            "ps/table*",
            "ps/slab",
            "ps/occurrence_filter",
            "ps/row_*",
            "ps/initializer",
            "ps/variable",
            "ps/property*",
            "ps/ops_*",
            "ps/save_delta",
            "ps/restore_observations",
            "ps/restore_types",
        ),
    ),
    "rpc": Area(
        ("dataplane/rpc/**/*.c",),
        (
            "rpc/*",
            "integration/rpc",
            "integration/rref",
            "integration/autograd",
            "integration/rpc_optimizer",
            "fuzz/values",
        ),
    ),
}
NO_TESTS = ("*mutant*",)  # of the code itself: they break it on their own, and are to fail


@dataclass
class Test:
    name: str
    command: list[str]
    environment: dict[str, str]
    directory: str
    targets: list[str]
    files: list[str] = field(default_factory=list)  # the targets, and those of our libraries that they load
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

    def __init__(self, directory: Path, sanitized: bool, brief_s: float) -> None:
        self.brief_s = brief_s
        self.tree, self.build, self.scratch = directory / "tree", directory / "tree/build", directory / "tmp"
        self.environment = SANITIZER_ENVIRONMENT if sanitized else {"MALLOC_PERTURB_": "85"}
        self.copy_sources()
        if not (self.build / "build.ninja").is_file():
            shutil.rmtree(self.build, ignore_errors=True)
            # With all warnings: what draws one could not get into the sources.
            exempt = " ".join(f"-Wno-error={name}" for name in EXEMPT)
            self.run(
                [
                    "meson",
                    "setup",
                    "build",
                    "-Dwerror=true",
                    "-Doptimization=1",
                    "-Ddebug=false",
                    f"-Dc_args={exempt}",
                    *(SANITIZERS if sanitized else []),
                ]
            )
        self.run(["ninja", "-C", "build", "build.ninja"])
        self.times = directory / "seconds.json"  # of tests that passed, by what they consist of
        self.seconds: dict[str, float] = json.loads(self.times.read_text()) if self.times.is_file() else {}
        self.objects = {}
        for entry in json.loads((self.build / "compile_commands.json").read_text()):
            source = os.path.relpath(os.path.join(entry["directory"], entry["file"]), self.tree)
            self.objects.setdefault(source, []).append(entry["output"])
        self.hashes: dict[str, str] = {}
        self.sound: dict[str, str] = {}  # what a test consists of as long as nothing is broken

    def copy_sources(self) -> None:
        """What an earlier run left is used again, but for what differs."""
        names = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
        ).stdout.split("\0")
        wanted = {name for name in names if name and (ROOT / name).is_file()}
        for directory, folders, files in os.walk(self.tree):
            folders[:] = [name for name in folders if Path(directory, name) != self.build]
            for name in files:
                if os.path.relpath(os.path.join(directory, name), self.tree) not in wanted:
                    os.unlink(os.path.join(directory, name))
        for name in wanted:
            copy = self.tree / name
            if not copy.is_file() or not filecmp.cmp(ROOT / name, copy, shallow=False):
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.unlink(missing_ok=True)
                shutil.copyfile(ROOT / name, copy)
                shutil.copymode(ROOT / name, copy)

    def seconds_of(self, test: Test) -> float:
        """The code as it is passes it; how long that takes."""
        key = f"{self.sound[test.name]} {test.command[1:]}"
        if key not in self.seconds:
            how, seconds = self.run_test(test, 600)
            if how:  # the machine may be busy
                how, seconds = self.run_test(test, 600)
            if how:
                fail(f"{test.name} fails on the code as it is: {how}")
            self.seconds[key] = seconds
            self.times.write_text(json.dumps(self.seconds))
        return self.seconds[key]

    def run(self, command: list[str]) -> None:
        done = subprocess.run(command, cwd=self.tree, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            fail(f"{' '.join(command)} fails:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")

    def tests(self, patterns: tuple[str, ...]) -> list[Test]:
        def introspect(what: str) -> list[dict]:
            text = subprocess.run(
                ["meson", "introspect", "build", what],
                cwd=self.tree,
                check=True,
                capture_output=True,
                text=True,
            ).stdout
            return json.loads(text)

        files = {
            target["id"]: [os.path.relpath(name, self.build) for name in target["filename"]]
            for target in introspect("--targets")
        }
        tests = {}
        for test in introspect("--tests"):
            name = test["name"]
            if any(fnmatch.fnmatch(name, p) for p in patterns) and not any(
                fnmatch.fnmatch(name, p) for p in NO_TESTS
            ):
                tests[name] = Test(
                    name,
                    test["cmd"],
                    test["env"],
                    test["workdir"] or str(self.build),
                    [f for target in test["depends"] for f in files.get(target, [])],
                )
        return list(tests.values())

    def ninja(self, targets: list[str], jobs: int = 1, cached: bool = True) -> bool:
        environment = os.environ if cached else {**os.environ, "CCACHE_DISABLE": "1"}
        done = subprocess.run(
            ["ninja", f"-j{jobs}", *dict.fromkeys(targets)],
            cwd=self.build,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode == 0

    def hash_files(self, names: list[str]) -> str:
        digest = hashlib.sha256()
        for name in names:
            digest.update((self.build / name).read_bytes())
        return digest.hexdigest()

    def remember(self, tests: list[Test]) -> None:
        """Called when all is built and nothing is broken."""
        for test in tests:
            libraries = {name for target in test.targets for name in self.libraries(target)}
            test.files = [
                name for name in [*test.targets, *sorted(libraries)] if (self.build / name).is_file()
            ]
            self.sound[test.name] = self.hash_files(test.files)

    def libraries(self, target: str) -> list[str]:
        text = subprocess.run(
            ["ldd", target], cwd=self.build, capture_output=True, text=True, check=False
        ).stdout
        paths = [os.path.realpath(path) for path in re.findall(r"=> (/\S+)", text)]
        return [os.path.relpath(path, self.build) for path in paths if path.startswith(f"{self.build}/")]

    def try_fault(self, fault: Fault, tests: list[Test]) -> Outcome | None:
        """None: it does not build, or builds to the same."""
        path, objects = self.tree / fault.path, self.objects[fault.path]
        original = path.read_text(encoding="utf-8")
        if fault.path not in self.hashes:
            if not self.ninja(objects):
                fail(f"{fault.path} does not build")
            self.hashes[fault.path] = self.hash_files(objects)
        try:
            path.write_text(fault.apply(original), encoding="utf-8")
            if not self.ninja(objects, cached=False) or self.hash_files(objects) == self.hashes[fault.path]:
                return None
            return self.try_tests(fault, tests)
        finally:
            path.write_text(original, encoding="utf-8")

    def try_tests(self, fault: Fault, tests: list[Test]) -> Outcome:
        first, count, spent_s = 0, FIRST_TESTS, 0.0
        while first < len(tests) and spent_s < self.brief_s:
            chunk = tests[first : first + count]
            if not self.ninja([name for test in chunk for name in test.targets]):
                return Outcome(fault, "the linker", "does not link")
            for test in chunk:
                if (
                    self.hash_files(test.files) != self.sound[test.name]
                ):  # else it does not hold the broken file
                    spent_s += test.seconds
                    how = self.caught(test)
                    if how:
                        return Outcome(fault, test.name, how)
            first, count = first + count, CHUNK_TESTS
        return Outcome(fault)

    def caught(self, test: Test) -> str:
        """A test that fails once and passes then is no proof: it may be the machine's load."""
        limit = max(TIMEOUT_LEAST_S, TIMEOUT_FACTOR * test.seconds)
        how, _ = self.run_test(test, limit)
        if how and how != "time-out":
            how, _ = self.run_test(test, limit)
        return how

    def run_test(self, test: Test, limit_s: float) -> tuple[str, float]:
        """Why it failed, or nothing; and the seconds that it took, as far as others left it the
        processors."""
        self.scratch.mkdir(exist_ok=True)
        mark = f"MILLRACE_MUTATION={self.scratch}"
        environment = {
            **os.environ,
            **self.environment,
            **test.environment,
            "TMPDIR": str(self.scratch),
            "MILLRACE_MUTATION": str(self.scratch),
        }
        with subprocess.Popen(
            test.command,
            cwd=test.directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as process:
            spent, last, how = 0.0, time.monotonic(), ""
            while process.poll() is None and not how:
                if spent > limit_s:
                    how = "time-out"
                elif rss_bytes(process.pid) > RSS_BYTES_MAX:
                    how = "memory"
                time.sleep(0.01)
                now = time.monotonic()
                spent, last = spent + (now - last) * processor_share(), now
            kill_marked(mark)
            process.wait()
        shutil.rmtree(self.scratch, ignore_errors=True)
        if not how and process.returncode not in (0, 77):
            how = f"signal {-process.returncode}" if process.returncode < 0 else f"exit {process.returncode}"
        return how, spent


def processor_share() -> float:
    """What each runnable thread gets of a processor now: the limits of tests hold on a busy machine, too."""
    runnable = int(Path("/proc/loadavg").read_text(encoding="ascii").split()[3].split("/")[0])
    return min(1.0, CORES / max(1, runnable - 1))  # without the one that reads this


def kill_marked(mark: str) -> None:
    """Ends what a test left behind, whatever group it is in: a child's environment is its parent's."""
    for directory in glob.glob("/proc/[0-9]*"):
        try:
            if mark.encode() in Path(directory, "environ").read_bytes().split(b"\0"):
                os.kill(int(directory[6:]), signal.SIGKILL)
        except (OSError, ProcessLookupError):
            pass


def rss_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * os.sysconf(
            "SC_PAGESIZE"
        )
    except (OSError, IndexError):
        return 0


class Order:
    """Which tests run first: those that are quick for how likely they notice, by their name and by what they
    caught before."""

    def __init__(self) -> None:
        self.caught: dict[tuple[str, str], int] = {}  # by file and test

    def note(self, outcome: Outcome) -> None:
        key = (outcome.fault.path, outcome.caught_by)
        self.caught[key] = self.caught.get(key, 0) + 1

    def sorted(self, path: str, tests: list[Test]) -> list[Test]:
        stem = Path(path).stem
        words = set(stem.split("_"))

        def cost(test: Test) -> float:
            name = test.name.split("/", 1)[1]
            likely = (
                1
                + 30 * (name == stem)
                + 4 * len(words & set(re.split(r"[_/]", name)))
                + 10 * self.caught.get((path, test.name), 0)
            )
            return (0.2 + test.seconds) / likely

        return sorted(tests, key=cost)


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
    names: set[str] | None = None  # try these, whatever the others
    queues: dict[str, list[Fault]] = field(default_factory=dict)
    given: dict[str, int] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def fill(self) -> None:
        known = equivalents()
        chance = random.Random(self.seed)
        for area in self.areas:
            paths = sorted(
                {
                    path
                    for pattern in AREAS[area].sources
                    for path in glob.glob(pattern, root_dir=ROOT, recursive=True)
                }
            )
            faults = [
                fault
                for path in paths
                if fnmatch.fnmatch(path, self.only)
                for fault in faults_of(path, (ROOT / path).read_text(encoding="utf-8"))
                if (fault.name in self.names if self.names is not None else fault.name not in known)
            ]
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


class Stage:
    """Trees of one kind of build, and their tests."""

    def __init__(self, directory: Path, areas: list[str], jobs: int, sanitized: bool, brief_s: float) -> None:
        self.shops = [Workshop(directory / str(n), sanitized, brief_s) for n in range(jobs)]
        self.tests = [{area: shop.tests(AREAS[area].tests) for area in areas} for shop in self.shops]
        for shop, by_area in zip(self.shops, self.tests):
            every = [test for of_area in by_area.values() for test in of_area]
            if not shop.ninja([name for test in every for name in test.targets], CORES):
                fail("the tree does not build")
            shop.remember(every)
        self.time_tests()

    def time_tests(self) -> None:
        """The code as it is passes them all; how long each takes."""
        seconds: dict[str, float] = {}
        for area, tests in self.tests[0].items():
            for test in tests:
                if test.name not in seconds:
                    seconds[test.name] = self.shops[0].seconds_of(test)
            print(
                f"mutation: {area}: {len(tests)} tests, {sum(seconds[test.name] for test in tests):.0f} s",
                flush=True,
            )
        for test in (test for by_area in self.tests for of_area in by_area.values() for test in of_area):
            test.seconds = seconds[test.name]

    def work(
        self,
        draw: Callable[[], tuple[str, Fault] | None],
        order: Order,
        done: Callable[[str, Fault, Outcome | None], None],
    ) -> None:
        """Tries what is drawn until nothing is left, in each tree on a thread of its own."""
        lock = threading.Lock()

        def work_in(workshop: Workshop, tests: dict[str, list[Test]]) -> None:
            while (drawn := draw()) is not None:
                area, fault = drawn
                outcome = workshop.try_fault(fault, order.sorted(fault.path, tests[area]))
                with lock:
                    if outcome is not None:
                        order.note(outcome)
                    done(area, fault, outcome)

        threads = [threading.Thread(target=work_in, args=both) for both in zip(self.shops, self.tests)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


SURVIVED = "SURVIVED"


def report(number: int, fault: Fault, result: str) -> None:
    print(f"{number:4} {result:40} line {fault.line}\t{fault.name}", flush=True)


def results_of(output: str) -> dict[str, str]:
    """What came of the faults that an earlier run's output names: by which test each was caught, or SURVIVED.
    Later lines count."""
    lines = Path(output).read_text(encoding="utf-8").splitlines()
    found = (re.fullmatch(r" *\d+ (.*\S) +line \d+\t(.*)", line) for line in lines)
    return {match[2]: match[1] for match in found if match}


def survivors_of(output: str) -> set[str]:
    return {name for name, result in results_of(output).items() if result == SURVIVED}


def summarize(outcomes: dict[Fault, tuple[str, bool]], areas: list[str], seed: int) -> float:
    for area in areas:
        caught = [is_caught for name, is_caught in outcomes.values() if name == area]
        print(f"mutation: {area}: {sum(caught)} of {len(caught)} caught")
    count = sum(is_caught for _, is_caught in outcomes.values())
    share = 100 * count / max(1, len(outcomes))
    print(f"mutation: {count} of {len(outcomes)} caught, {share:.1f} %, seed {seed}")
    return share


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="mutation", description=__doc__)
    parser.add_argument("--sample", type=int, default=300, help="faults to try (default %(default)s)")
    parser.add_argument(
        "--seed", type=int, default=None, help="draws the same ones again (default: the time)"
    )
    parser.add_argument("--area", action="append", choices=sorted(AREAS), help="only these (default: all)")
    parser.add_argument("--only", default="*", metavar="GLOB", help="only files whose path matches")
    parser.add_argument(
        "--again", metavar="FILE", help="instead of a sample, the survivors in this output of an earlier run"
    )
    parser.add_argument(
        "--resume", metavar="FILE", help="what this output of an earlier run has decided is not tried again"
    )
    parser.add_argument(
        "--jobs", type=int, default=CORES, help="trees worked in at a time (default: all processors)"
    )
    parser.add_argument(
        "--least",
        type=float,
        default=85.0,
        metavar="PERCENT",
        help="exit status 1 when fewer are caught (default %(default)s)",
    )
    parser.add_argument(
        "--brief",
        type=float,
        default=math.inf,
        metavar="SECONDS",
        help="run about so many seconds of tests for a fault, the likeliest; --again runs all for survivors",
    )
    parser.add_argument(
        "--trees",
        type=Path,
        default=ROOT / "build/mutation",
        metavar="DIR",
        help="where trees are kept (default %(default)s)",
    )
    parser.add_argument(
        "--no-sanitizers", action="store_true", help="do not try the survivors again under ASan and UBSan"
    )
    parser.add_argument(
        "--list", action="store_true", help="name the faults that the sample draws from, and try none"
    )
    return parser.parse_args()


def main() -> int:
    options = parse_options()
    areas = options.area or list(AREAS)
    seed = options.seed if options.seed is not None else int(time.time())
    sample = Sample(
        areas, options.sample, seed, options.only, survivors_of(options.again) if options.again else None
    )
    sample.fill()
    if options.list:
        for area in areas:
            print("\n".join(sorted(fault.name for fault in sample.queues[area])))
        return 0
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES_MAX, FILE_BYTES_MAX))
    print(f"mutation: seed {seed}, {sum(map(len, sample.queues.values()))} faults to draw from", flush=True)
    outcomes: dict[Fault, tuple[str, bool]] = {}
    order = Order()
    known = results_of(options.resume) if options.resume else {}

    def done(area: str, fault: Fault, outcome: Outcome | None) -> None:
        if outcome is None and fault not in outcomes:
            sample.give_back(area)
            return
        note(
            area, fault, f"{outcome.caught_by} ({outcome.how})" if outcome and outcome.caught_by else SURVIVED
        )

    def note(area: str, fault: Fault, result: str) -> None:
        outcomes[fault] = (area, result != SURVIVED)
        report(len(outcomes), fault, result)

    def draw() -> tuple[str, Fault] | None:
        while (drawn := sample.next()) is not None and drawn[1].name in known:
            note(*drawn, known[drawn[1].name])
        return drawn

    Stage(options.trees, areas, options.jobs, False, options.brief).work(draw, order, done)
    survivors = [(area, fault) for fault, (area, is_caught) in outcomes.items() if not is_caught]
    if survivors and not options.no_sanitizers:
        print(f"mutation: {len(survivors)} survived so far: with sanitizers", flush=True)
        concerned = [area for area in areas if any(area == of for of, _ in survivors)]
        Stage(options.trees / "sanitized", concerned, options.jobs, True, options.brief).work(
            lambda: survivors.pop() if survivors else None, order, done
        )
    return 0 if summarize(outcomes, areas, seed) >= options.least else 1


if __name__ == "__main__":
    sys.exit(main())
