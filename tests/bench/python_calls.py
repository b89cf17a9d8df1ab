#!/usr/bin/env python3
"""The calls of bench_calls.c from Python, against a running node; one JSON object per line, with the same
names and sizes.

usage: python_calls.py --server ADDRESS:PORT [--runs N] [--rows N]    with PYTHONPATH and MILLRACE_LIBRARY set
"""
import argparse
import json
import statistics
import time

import numpy as np

import millrace
from millrace import init, optim

ROWS, DIM = 13312, 16  # as in bench_calls.c


def measure(name, call, runs, warm_up):
    for _ in range(warm_up):
        call()
    times_us = []
    for _ in range(runs):
        begun = time.perf_counter()
        call()
        times_us.append((time.perf_counter() - begun) * 1e6)
    p99 = sorted(times_us)[int(len(times_us) * 0.99)]
    print(
        json.dumps(
            {"name": name, "value": statistics.median(times_us), "unit": "us", "p99": p99, "runs": runs}
        ),
        flush=True,
    )


def kinds(keys, gradients):
    """The arrays as numpy's and, where there is torch, as its tensors."""
    yield "numpy", keys, gradients
    try:
        import torch
    except ImportError:
        return
    torch.set_num_threads(1)
    yield "torch", torch.from_numpy(keys.astype(np.int64)), torch.from_numpy(gradients)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--server", required=True)
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--rows", type=int, default=163840)
    arguments = parser.parse_args()
    with millrace.Client(arguments.server) as client:
        table = client.table(
            "bench", DIM, optimizer=optim.Adagrad(lr=0.1), initializer=init.uniform(-0.01, 0.01)
        )
        for first in range(0, arguments.rows, ROWS):
            table.lookup(np.arange(first, first + ROWS) % arguments.rows)
        keys = np.random.default_rng(1).integers(0, arguments.rows, ROWS).astype(np.uint64)
        gradients = (1e-3 * (np.arange(ROWS * DIM) % 7 - 3)).astype(np.float32).reshape(ROWS, DIM)
        for kind, these, values in kinds(keys, gradients):
            for count in (1, 64):
                few = these[:count]
                measure(f"{kind}_lookup_{count}", lambda: table.lookup(few), arguments.runs * 20, 1000)
            measure(f"{kind}_pull_13312x16", lambda: table.lookup(these), arguments.runs, 20)
            measure(f"{kind}_push_13312x16", lambda: table.push_gradients(these, values), arguments.runs, 20)


if __name__ == "__main__":
    main()
