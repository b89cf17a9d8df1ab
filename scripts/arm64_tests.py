#!/usr/bin/env python3
"""Which tests scripts/arm64.sh runs, and what came of them.

usage: arm64_tests.py names BUILD      prints the tests, a line each
       arm64_tests.py targets BUILD    prints what has to be built for them and those in the guest, for ninja
       arm64_tests.py results BUILD
           prints each test that failed, with the end of its output, each that was skipped and why, and
           "N passed, N failed, N skipped"; exit status 1 when one failed, or none ran
       arm64_tests.py report BUILD     the same, with those that are not run at all, as of a whole run

The tests: all unit tests, and the integration tests that need no port but sockets, of which
MILLRACE_DRIVER=socket tells them. The others count as skipped.
"""
import glob
import json
import os
import re
import sys

LAST_LINES = 30
# DPDK's ports: emulation of programs has no packet sockets.
PORTS = (
    r"integration/(dataplane|vlan|steering|telemetry|path|offload|lossy|memif|port|capture_af_packet|cores)$"
)
# Nor has it io_uring. Both run in a guest with a kernel of arm64 (tests/guest/test_arm64.py).
IO_URING = r"(ps/checkpoint_(writer|faults|reader)|integration/(checkpoint|cuts_4_cores|disk_full))$"
# Tests that are not run, by what they lack: the first that matches.
LEFT_OUT = {
    r"(bench|scripts)/": "of programs for this machine",
    PORTS: "emulation has no packet sockets, which DPDK's ports are made of",
    r"integration/(garbage|garbage_load|config|tools)$": "emulation has no packet sockets, either",
    r"integration/(second_client|autograd|rpc_optimizer|cluster_client|cluster_checkpoint_.*)$": (
        "needs an arm64 Python, or a store's server, in the root"
    ),
    r"integration/service$": "emulation cannot trace a thread",
    r"(ps|integration)/privileges$": "emulation has a thread that takes no signal and keeps capabilities",
    r"integration/key_memory$": "emulation does not pass MADV_DONTDUMP on to the kernel",
    r"integration/torchrec_failures_.*$": "emulation adds a line to what a program says that aborts",
    r"rpc/call(_in_parts)?$": "it has 500 threads, which an emulated machine does not come to an end with",
    r"integration/rpc_examples$": "its networks train for minutes in emulation, beyond the calls' time-outs",
    r"integration/(demo_.*|kills_.*|a9a|bench_.*|perf.*|architectures)$": (
        "long; the demo and test_architectures.py run instead"
    ),
}
PROGRAMS = (
    "ps/millraced",
    "tools/millrace",
    "trainer_client/hub/millrace-hub",
    "trainer_client/examples/fm",
    "tests/integration/step_trainer",
)
PASSED = ("OK", "EXPECTEDFAIL")


def known_tests(build):
    """Unit and integration tests, as meson describes them."""
    with open(os.path.join(build, "meson-info", "intro-tests.json"), encoding="utf-8") as tests:
        for test in json.load(tests):
            suites = {suite.split(":")[-1] for suite in test["suite"]}
            if suites & {"unit", "integration"}:
                yield test


def why_left_out(name):
    """None: it runs."""
    return next((why for pattern, why in LEFT_OUT.items() if re.match(pattern, name)), None)


def chosen(build):
    """The tests that run, as meson describes them."""
    return [test for test in known_tests(build) if why_left_out(test["name"]) is None]


def in_guest(build):
    """The tests for a guest, as meson describes them."""
    return [test for test in known_tests(build) if re.match(f"{PORTS}|{IO_URING}", test["name"])]


def targets(build):
    """The files that the tests, and what else scripts/arm64.sh runs, are made of."""
    with open(os.path.join(build, "meson-info", "intro-targets.json"), encoding="utf-8") as known:
        files = {target["id"]: target["filename"] for target in json.load(known)}
    wanted = {
        os.path.relpath(f, os.path.realpath(build))
        for t in chosen(build) + in_guest(build)
        for d in t["depends"]
        for f in files[d]
    }
    return sorted(wanted.union(PROGRAMS))


def why_skipped(test):
    """The line in which the test says so; cmocka's lines name single functions."""
    lines = [
        line
        for line in ((test.get("stdout") or "") + (test.get("stderr") or "")).splitlines()
        if line.strip()
    ]
    says = [line for line in lines if re.search(r"skip|needs|no ", line, re.IGNORECASE)]
    return (says or lines or ["no reason"])[-1].strip()


def report(build, is_whole):
    """Prints how the tests ended; returns the exit status."""
    results = []
    for log in glob.glob(os.path.join(build, "meson-logs", "testlog*.json")):
        with open(log, encoding="utf-8") as lines:
            results += [json.loads(line) for line in lines]
    failed = [r for r in results if r["result"] not in PASSED + ("SKIP",)]
    skipped = [r for r in results if r["result"] == "SKIP"]
    for result in failed:
        lines = (result.get("stdout") or "").splitlines() + (result.get("stderr") or "").splitlines()
        print(f"failed: {result['name']} ({result['result']}, {result.get('returncode')})")
        print("".join(f"    {line}\n" for line in lines[-LAST_LINES:]), end="")
    for result in skipped:
        print(f"skipped: {result['name']}: {why_skipped(result)}")
    left_out = [t["name"] for t in known_tests(build) if is_whole and why_left_out(t["name"])]
    for name in left_out:
        print(f"skipped: {name}: {why_left_out(name)}")
    for result in results:
        why = re.findall(r"^skipped: (.*)$", result.get("stdout") or "", re.MULTILINE)
        for line in sorted(set(why)) if result["result"] in PASSED else []:
            print(f"skipped in part: {result['name']}: {line}")
    passed = len(results) - len(failed) - len(skipped)
    print(f"{passed} passed, {len(failed)} failed, {len(skipped) + len(left_out)} skipped")
    return 1 if failed or passed == 0 else 0


def main(arguments):
    """Does what the command line says; returns the exit status."""
    if len(arguments) != 2 or arguments[0] not in ("names", "targets", "results", "report"):
        print(__doc__, file=sys.stderr)
        return 2
    if arguments[0] in ("results", "report"):
        return report(arguments[1], arguments[0] == "report")
    names = targets(arguments[1]) if arguments[0] == "targets" else [t["name"] for t in chosen(arguments[1])]
    print(*names, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
