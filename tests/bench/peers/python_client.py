#!/usr/bin/env python3
"""Millrace from Python, over arrays of numpy, for peers.py; the package has to be on PYTHONPATH.

usage: python_client.py --server ADDRESS:PORT [--rows NAME,...] [--seconds S]
"""
import argparse

import millrace
import python_bench
import workload


class Caller:
    """What python_bench.run() calls."""

    expected = staticmethod(workload.after_adagrad)

    def __init__(self, client):
        self.client = client
        self.rows = client.table("rows", workload.DIM, optimizer=millrace.optim.Assign())
        self.learning = client.table(
            "learning", workload.DIM, optimizer=millrace.optim.Adagrad(lr=workload.RATE, eps=workload.EPSILON)
        )
        self.pull, self.pushed = self.rows.lookup, self.learning.lookup
        self.push, self.set = self.learning.push_gradients, self.rows.push_gradients
        self.empty, self.start = client.echo, client.echo_async

    @staticmethod
    def array(values):
        return values

    def fill(self):
        """Every row exists before anything is measured."""
        for first in range(0, workload.KEYS, workload.ROWS):
            keys = workload.key_range(first, min(first + workload.ROWS, workload.KEYS))
            self.rows.push_gradients(keys, workload.row_values(keys))
            self.learning.lookup(keys)

    def lookup(self, keys, offsets):
        return self.rows.lookup_bags(keys, offsets, include_last_offset=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--server", required=True)
    python_bench.add_arguments(parser)
    arguments = parser.parse_args()
    with millrace.Client(arguments.server) as client:
        caller = Caller(client)
        caller.fill()
        python_bench.run(caller, arguments.rows.split(","), arguments.seconds)


if __name__ == "__main__":
    main()
