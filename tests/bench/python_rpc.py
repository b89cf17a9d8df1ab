#!/usr/bin/env python3
"""What Python adds to a remote call: bench_rpc's functions, called by its own caller in C and by
millrace.rpc, over loopback.

usage: python_rpc.py BENCH_RPC [--runs N] [--check]     both over loopback
       python_rpc.py --rendezvous HOST:PORT [--runs N]  the caller in Python alone, where `bench_rpc --rank 1`
       serves
with PYTHONPATH and MILLRACE_LIBRARY as for the package. Prints a line of JSON for each figure. --check: exit
code 1 if Python adds more than 15 us to
an empty call.
"""
import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time

LIMIT_US = 15.0
OUTSTANDING, SECONDS, WARM_S, PARTS = 64, 2.0, 1.0, 5


def say(name, value, unit):
    print(json.dumps({"name": name, "value": round(value, 2), "unit": unit}), flush=True)


def free_address():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def serve(bench_rpc, address):
    server = subprocess.Popen(
        [bench_rpc, "--rank", "1", "--rendezvous", address], stdout=subprocess.PIPE, text=True
    )
    server.stdout.readline()  # "ready"
    return server


def median_us(call, runs):
    """Of the quietest fifth. The first second does not count: until then both programs may be on one
    processor."""
    until = time.perf_counter() + WARM_S
    while time.perf_counter() < until:
        call()
    medians = []
    for _ in range(PARTS):
        times = []
        for _ in range(max(runs // PARTS, 1)):
            start = time.perf_counter()
            call()
            times.append((time.perf_counter() - start) * 1e6)
        medians.append(statistics.median(times))
    return min(medians)


def calls_per_second(begin):
    in_flight = [begin() for _ in range(OUTSTANDING)]
    calls, start, now = 0, time.perf_counter(), 0.0
    while now < start + SECONDS:
        for i, future in enumerate(in_flight):
            future.wait()
            in_flight[i] = begin()
        calls += OUTSTANDING
        now = time.perf_counter()
    for future in in_flight:
        future.wait()
    return calls / (now - start)


def in_c(bench_rpc, runs):
    address = free_address()
    server = serve(bench_rpc, address)
    said = subprocess.run(
        [bench_rpc, "--rank", "0", "--rendezvous", address, "--runs", str(runs)],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    server.wait(60)
    rows = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    return {row["name"]: row for row in rows}


def in_python(address, runs):
    import torch
    import millrace.rpc as rpc

    rpc.init_rpc(
        "caller",
        rank=0,
        world_size=2,
        rpc_backend_options=rpc.RpcBackendOptions(init_method="tcp://" + address),
    )
    four, megabyte = torch.zeros(4), torch.zeros(1 << 18)
    figures = {
        "empty": median_us(lambda: rpc.rpc_sync(1, "empty"), runs),
        "inline": median_us(lambda: rpc.rpc_sync(1, "empty_inline"), runs),
        "sum": median_us(lambda: rpc.rpc_sync(1, "sum", (four,)), runs),
        "megabyte": median_us(lambda: rpc.rpc_sync(1, "sum", (megabyte,)), runs // 20 + 1),
    }
    say("python_rpc_async_64", calls_per_second(lambda: rpc.rpc_async(1, "empty")), "calls/s")
    rpc.shutdown()
    for name, value in figures.items():
        say(f"python_rpc_sync_{name}", value, "us")
    return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("bench_rpc", nargs="?")
    parser.add_argument("--rendezvous")
    parser.add_argument("--runs", type=int, default=3000)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    if args.rendezvous:
        in_python(args.rendezvous, args.runs)
        return 0
    c = in_c(os.path.abspath(args.bench_rpc), args.runs)
    address = free_address()
    server = serve(os.path.abspath(args.bench_rpc), address)
    python = in_python(address, args.runs)
    server.wait(60)
    for name, row in (
        ("empty", "rpc_sync_empty"),
        ("inline", "rpc_sync_empty_inline"),
        ("megabyte", "rpc_sync_1mb_both_ways"),
    ):
        say(f"c_rpc_sync_{name}", c[row]["value"], "us")
    added = python["empty"] - c["rpc_sync_empty"]["value"]
    say("python_rpc_added", added, "us")
    return 1 if args.check and added > LIMIT_US else 0


if __name__ == "__main__":
    sys.exit(main())
