#!/usr/bin/env python3
"""The tables of a step from Python, against a running node: one call for 26 tables of 512 keys beside a call
for each, and steps of a model of as many EmbeddingBags with and without prefetching. One JSON object per
line.

usage: python_tables.py --server ADDRESS:PORT [--runs N] [--rows N]    with PYTHONPATH and MILLRACE_LIBRARY
set
"""
import argparse

import numpy as np

import millrace
from millrace import init, optim
from python_calls import measure

TABLES, KEYS, DIM = 26, 512, 16  # the categories of Criteo's samples
DEPTH = 2


def calls(client, tables, rows, runs):
    rng = np.random.default_rng(1)
    keys = [rng.integers(0, rows, KEYS).astype(np.uint64) for _ in tables]
    gradients = np.full((KEYS, DIM), 1e-3, np.float32)
    asked = list(zip(tables, keys))
    pushed = [(table, these, gradients) for table, these in asked]

    def look_up_each():
        for table, these in asked:
            table.lookup(these)

    def push_each():
        for future in [table.push_gradients_async(these, values) for table, these, values in pushed]:
            future.result()

    measure("tables_lookup_each", look_up_each, runs, 20)
    measure("tables_lookup_one_call", lambda: client.lookup_tables(asked), runs, 20)
    measure("tables_push_each", push_each, runs, 20)
    measure("tables_push_one_call", lambda: client.push_gradients_tables(pushed), runs, 20)


class Steps:
    """Training steps, one at a time: of a loader that begins again when it is over."""

    def __init__(self, bags, loader, forward):
        import torch

        self.bags, self.loader, self.forward, self.batches = bags, loader, forward, iter(())
        self.head = torch.nn.Sequential(
            torch.nn.Linear(TABLES * DIM, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1)
        )
        self.torch = torch

    def __call__(self):
        batch = next(self.batches, None)
        if batch is None:
            self.batches = iter(self.loader)
            batch = next(self.batches)
        pooled = self.forward(self.bags, batch)
        self.head(self.torch.cat(pooled, 1)).square().mean().backward()
        for parameter in self.head.parameters():
            parameter.grad = None


def steps(tables, rows, runs):
    try:
        import torch
    except ImportError:
        return
    torch.set_num_threads(1)
    rng = np.random.default_rng(2)
    batches = [torch.from_numpy(rng.integers(0, rows, (TABLES, KEYS, 1))) for _ in range(64)]
    bags = [millrace.EmbeddingBag(table) for table in tables]
    given = {bag: (lambda batch, i=i: batch[i]) for i, bag in enumerate(bags)}

    def each(bags, batch):
        return [bag(keys) for bag, keys in zip(bags, batch)]

    def at_once(bags, batch):
        return millrace.nn.forward_all(bags, list(batch))

    measure("step_each", Steps(bags, batches, each), runs, 20)
    measure("step_one_call", Steps(bags, batches, at_once), runs, 20)
    ahead = millrace.prefetch(batches, given, depth=DEPTH)
    measure("step_prefetch", Steps(bags, ahead, at_once), runs, 20)
    assert ahead.counts.missed == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--server", required=True)
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--rows", type=int, default=20000, help="of each table")
    arguments = parser.parse_args()
    with millrace.Client(arguments.server) as client:
        tables = [
            client.table(
                f"bench.{i}",
                DIM,
                pooling="sum",
                optimizer=optim.Adagrad(lr=0.1),
                initializer=init.uniform(-0.01, 0.01),
            )
            for i in range(TABLES)
        ]
        for table in tables:
            table.lookup(np.arange(arguments.rows))
        calls(client, tables, arguments.rows, arguments.runs)
        steps(tables, arguments.rows, arguments.runs)


if __name__ == "__main__":
    main()
