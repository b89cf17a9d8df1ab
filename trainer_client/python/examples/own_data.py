#!/usr/bin/env python3
"""Logistic regression on a program's own data: a generator reads them and feeds the trainer, by numpy alone.

    own_data.py --data flights-3m.csv
    zcat flights.csv.gz | own_data.py --server 10.77.0.1 --data -
    own_data.py --data "flights/*.parquet"

Without --server it starts one for itself. Whether a flight is late is learnt from where it goes, when, and
how far: the features have a row each in a table. Each batch is scored before it is trained on: the loss that
it prints is of flights that it has not seen, the last quarter.
"""
from __future__ import annotations

import argparse
import contextlib
import csv
import itertools
import json
import sys
from typing import Any, Iterator, TextIO

import numpy as np

import millrace

LATE_MINUTES = 15
READ_ROWS = 4096


def from_csv(file: TextIO) -> Iterator[dict[str, Any]]:
    """Batches of the flights of a CSV file with a header."""
    reader = csv.reader(file)
    columns = next(reader)
    while rows := list(itertools.islice(reader, READ_ROWS)):
        of = dict(zip(columns, np.array(rows).T))
        hour, day = of["date"].astype("U6").astype(int) % 100, of["date"].astype("U4")
        features = {
            "origin": of["origin"],
            "destination": of["destination"],
            "route": np.char.add(of["origin"], of["destination"]),
            "hour": hour,
            "day": day,
            "origin x hour": np.char.add(of["origin"], hour.astype(str)),
        }
        yield {
            "labels": of["delay"].astype(float) > LATE_MINUTES,
            "dense": np.log1p(of["distance"].astype(float)),
            "slots": {
                name: millrace.slot_keys(of_name, slot)
                for slot, (name, of_name) in enumerate(features.items())
            },
        }


def from_parquet(pattern: str) -> Iterator[Any]:
    """The same of Parquet files, with columns as they are."""
    slots = ["origin", "destination", "date"]
    for batch in millrace.read_parquet(pattern, label="delay", dense=["distance"], slots=slots):
        yield {**batch, "labels": batch["labels"] > LATE_MINUTES, "dense": np.log1p(batch["dense"])}


def batches_of(data: str) -> Iterator[Any]:
    """Of a CSV file, standard input or Parquet files."""
    if data.endswith(".parquet"):
        yield from from_parquet(data)
    elif data == "-":
        yield from from_csv(sys.stdin)
    else:
        with open(data, newline="", encoding="utf-8") as file:
            yield from from_csv(file)


def train(client: millrace.Client, arguments: argparse.Namespace) -> dict[str, Any]:
    """One pass; returns what came of it."""
    adagrad = millrace.optim.Adagrad(lr=0.05)
    rows = client.table("own_data", 1, optimizer=adagrad, initializer=millrace.init.constant(0))
    bias = client.variable("own_data.bias", (2,), optimizer=adagrad)
    losses = []
    with millrace.feed(batches_of(arguments.data), client, key_file=arguments.key_file) as feed:
        loader = feed.loader(arguments.batch, table=rows, tables=[rows], variables=[bias])
        for batch in loader:
            labels = np.asarray(batch.labels)
            inputs = np.column_stack([np.ones(batch.samples), np.asarray(batch.dense)[:, 0] / 10])
            score = batch.values(rows).sum((1, 2)) + inputs @ batch.values(bias)
            losses.append(np.logaddexp(0, np.where(labels > 0, -score, score)).mean())
            gradient = (1 / (1 + np.exp(-score)) - labels) / batch.samples
            each = np.broadcast_to(gradient[:, None, None], batch.values(rows).shape)
            batch.push([(rows, each), (bias, gradient @ inputs)])
    last = losses[-max(len(losses) // 4, 1) :]
    return {
        "samples": loader.counts.samples,
        "batches_applied": loader.counts.applied,
        "logloss_at_end": float(np.mean(last)),
    }


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", required=True, help="a CSV file, - for standard input, or a pattern of Parquet files"
    )
    parser.add_argument("--server", help="address of the parameter server; default: one is started")
    parser.add_argument("--key-file", help="file with the pre-shared key")
    parser.add_argument("--batch", type=int, default=256, help="samples of a batch; default 256")
    arguments = parser.parse_args()
    try:
        with contextlib.ExitStack() as stack:
            address = arguments.server or stack.enter_context(millrace.dev()).address
            client = stack.enter_context(millrace.Client(address, key_file=arguments.key_file, deadline_s=60))
            print(json.dumps(train(client, arguments)))
    except (millrace.Error, OSError, ValueError) as error:
        raise SystemExit(f"own_data: {error}") from None


if __name__ == "__main__":
    main()
