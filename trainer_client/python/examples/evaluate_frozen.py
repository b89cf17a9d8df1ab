#!/usr/bin/env python3
"""Scores held-out samples with a model that deepfm.py has trained, and shows that nothing changes it
meanwhile.

    evaluate_frozen.py --server 10.77.0.1 --hub 127.0.0.1 --data flights-3m.csv

The node is frozen for the time, unless it serves a checkpoint read only (millraced --serve DIRECTORY):
trainers would get the error FROZEN. The hub's batches of a held-out part are fed read only, so keys that the
model has not met get no row either way: they count with their first values.
"""
from __future__ import annotations

import argparse
import contextlib
import json
import sys
from typing import Iterator

from deepfm import TABLE, arguments, connect, evaluate  # first: it sets torch's threads

import torch

import millrace


@contextlib.contextmanager
def frozen(client: millrace.Client) -> Iterator[None]:
    """No row comes, goes or changes inside."""
    client.freeze("all")
    try:
        yield
    finally:
        with contextlib.suppress(millrace.Frozen):  # it serves a checkpoint: it always is
            client.freeze("off")


def refuses_gradients(client: millrace.Client) -> bool:
    """Whether a push is refused: one of zeros, to one key."""
    table = client.table(TABLE)
    try:
        table.push_gradients([0], [[0.0] * table.dim])
    except millrace.Frozen:
        return True
    return False


def rows(client: millrace.Client) -> int:
    """Of the model's table."""
    return next(info.rows for info in client.features() if info.name == TABLE)


def run(options: argparse.Namespace, client: millrace.Client, hub: millrace.Hub) -> dict:
    """What the model makes of the samples."""
    try:
        client.table(TABLE)
    except LookupError:
        raise SystemExit(
            f"evaluate_frozen: {options.server} has no table {TABLE!r}: train one first, by deepfm.py"
        ) from None
    with frozen(client):
        before = rows(client)
        result = evaluate(options, client, hub)
        return {
            **result,
            "rows": before,
            "rows_made": rows(client) - before,
            "refuses_gradients": refuses_gradients(client),
        }


def main() -> None:
    """The command line."""
    options = arguments(__doc__).parse_args()
    torch.set_num_threads(options.threads)
    try:
        client, hub = connect(options)
        with client, hub:
            result = run(options, client, hub)
    except millrace.Error as error:
        sys.exit(f"evaluate_frozen: {error}")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
