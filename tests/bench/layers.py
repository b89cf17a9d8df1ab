#!/usr/bin/env python3
"""Training steps of the MNIST example's network on one processor: ps/modules/layers beside torch, which take
turns.

usage: tests/bench/layers.py [--batch N] [--rounds N] [--steps N] [--build DIR]
needs Debian's python3-torch and libopenblas0-pthread; run it with /usr/bin/python3, build first

Both compute forward, negative log likelihood, backward and a step with momentum, in one thread. Times are of
the processor, not of the wall, so that
other work on the machine matters less. Prints a line of JSON: the median of the rounds in images/s, and that
of the ratios.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import torch_rpc

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGET = 1.0  # at least torch's own speed


def torch_trainer(batch):
    """A function that trains so many steps."""
    import torch

    torch.set_num_threads(1)
    network = torch_rpc.mnist_network()
    optimizer = torch.optim.SGD(network.parameters(), 0.03, momentum=0.5)
    images, labels = torch_rpc.mnist_pictures(batch)

    def train(steps):
        for _ in range(steps):
            optimizer.zero_grad()
            torch.nn.functional.nll_loss(network(images), labels).backward()
            optimizer.step()

    return train


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=20, help="of a round")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    arguments = parser.parse_args()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    try:
        train = torch_trainer(arguments.batch)
    except ImportError:
        sys.exit(
            "layers: no torch: apt-get install --no-install-recommends python3-torch python3-numpy "
            "libopenblas0-pthread, and "
            "run this with /usr/bin/python3"
        )
    images, ours, torchs = arguments.batch * arguments.steps, [], []
    with subprocess.Popen(
        [arguments.build / "tests/bench/bench_layers", str(arguments.batch)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as bench:
        for number in range(arguments.rounds + 1):
            steps = arguments.steps if number > 0 else 3  # the first warms up
            print(steps, file=bench.stdin, flush=True)
            ours.append(images / float(bench.stdout.readline().split()[0]))
            start = time.process_time()
            train(steps)
            torchs.append(images / (time.process_time() - start))
    ours, torchs = ours[1:], torchs[1:]
    ratio = statistics.median(a / b for a, b in zip(ours, torchs))
    print(
        json.dumps(
            {
                "name": f"layers_train_{arguments.batch}",
                "value": round(statistics.median(ours)),
                "unit": "images/s",
                "limit": round(statistics.median(torchs)),
                "ratio": round(ratio, 3),
                "better": "higher",
                "target": TARGET,
            }
        )
    )


if __name__ == "__main__":
    main()
