"""Times a peer's calls from Python and checks what comes back, as peer_bench.c does for C. Needs numpy."""
import json
import statistics
import sys
import time

import numpy

import workload

OUTSTANDING, RUNS_MIN, WARM_SHARE = 64, 10, 0.1
ROWS = "empty_1,empty_64,pull,lookup,push,set"


def add_arguments(parser):
    parser.add_argument("--rows", default=ROWS, help=f"names between commas (default {ROWS})")
    parser.add_argument("--seconds", type=float, default=1.0, help="that a row is measured for")


def say(name, value, unit):
    print(json.dumps({"name": name, "value": value, "unit": unit}), flush=True)


def expect(what, right):
    if not right:
        sys.exit(f"python_bench: {what}: what came back is wrong")


def measure(name, seconds, call):
    """Prints the median; returns what the last call did."""
    times, now = [], time.perf_counter()
    warm, end = now + WARM_SHARE * seconds, now + (1 + WARM_SHARE) * seconds
    while True:
        start = time.perf_counter()
        result = call()
        now = time.perf_counter()
        if start >= warm:
            times.append((now - start) * 1e6)
        if now >= end and len(times) >= RUNS_MIN:
            break
    say(name, statistics.median(times), "us")
    return result


def empty_many(peer, seconds):
    futures = [peer.start() for _ in range(OUTSTANDING)]
    calls, start, now = 0, time.perf_counter(), 0.0
    while now < start + seconds:
        for i, future in enumerate(futures):
            future.wait()
            futures[i] = peer.start()
        calls += OUTSTANDING
        now = time.perf_counter()
    say("empty_64", calls / (now - start), "calls/s")
    for future in futures:
        future.wait()


def run(peer, rows, seconds):
    """peer: empty(), start() for a future of it, pull(keys), lookup(keys, offsets), push(keys, gradients),
    pushed(keys), set(keys, rows); array() makes its arguments of arrays of numpy; expected(keys): what the
    rows are after one push."""
    keys = workload.make_keys()
    its_keys, offsets = peer.array(keys), peer.array(
        numpy.arange(0, workload.ROWS, workload.ROWS // workload.BAGS)
    )
    gradients, new = peer.array(workload.gradients()), peer.array(workload.new_rows(keys))
    checks = {"name": "checks"}

    def check(name, values, wanted):
        expect(name, numpy.array_equal(values, wanted))
        checks[name] = workload.checksum(values)

    if "empty_1" in rows:
        measure("empty_1", seconds, peer.empty)
    if "empty_64" in rows:
        empty_many(peer, seconds)
    if "pull" in rows:
        check(
            "pull",
            numpy.asarray(measure("pull", seconds, lambda: peer.pull(its_keys))),
            workload.row_values(keys),
        )
    if "lookup" in rows:
        check(
            "lookup",
            numpy.asarray(measure("lookup", seconds, lambda: peer.lookup(its_keys, offsets))),
            workload.sums(keys),
        )
    if "push" in rows:
        peer.push(its_keys, gradients)
        expect(
            "push",
            numpy.allclose(numpy.asarray(peer.pushed(its_keys)), peer.expected(keys), rtol=0, atol=1e-5),
        )
        measure("push", seconds, lambda: peer.push(its_keys, gradients))
        expect("rows after all pushes", numpy.isfinite(numpy.asarray(peer.pushed(its_keys))).all())
    if "set" in rows:
        measure("set", seconds, lambda: peer.set(its_keys, new))
        check("set", numpy.asarray(peer.pull(its_keys)), workload.new_rows(keys))
    print(json.dumps(checks), flush=True)
