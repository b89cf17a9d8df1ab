#!/usr/bin/env python3
"""DeepFM on click data: rows of features in a table, the deep part in variables, all at a Millrace server.

    millrace-hub --server 10.77.0.1 --allow . &
    deepfm.py --server 10.77.0.1 --hub 127.0.0.1 --data flights-3m.csv --format flights

Any number of trainers may run at once: they share model and batches. Start the others with --part train; the
one without it scores the held-out samples in the end. --predict scores a file without labels, such as
Criteo's test file, and changes nothing:

    millrace-hub --server 10.77.0.1 --allow . --format configs/formats/criteo_test.ini &
    deepfm.py --server 10.77.0.1 --hub 127.0.0.1 --data test.txt --format criteo_test --predict clicks.txt
"""
from __future__ import annotations

import argparse
import json
import os
import sys
import time
from typing import Iterator

os.environ.setdefault(
    "OPENBLAS_NUM_THREADS", "1"
)  # before torch: trainers that share CPUs must not spin on them

import numpy as np
import torch

import millrace

TABLE = "deepfm"


class DeepFM(torch.nn.Module):
    """Guo et al., 2017: a factorization machine and a perceptron over the same factors; forward gives a score
    per sample.

    A row holds a first-order weight and the factors. All parameters are at the server, so trainers share
    them.
    """

    def __init__(
        self,
        client: millrace.Client,
        slots: int,
        dense: int,
        factors: int = 8,
        hidden: tuple[int, ...] = (64, 32),
        table: str = TABLE,
    ) -> None:
        super().__init__()
        adagrad = {"optimizer": millrace.optim.Adagrad(lr=0.05, initial_accumulator_value=0.5, eps=1e-8)}
        adam = {
            "optimizer": millrace.optim.Adam(lr=0.0003, betas=(0.5, 0.999))
        }  # little momentum: gradients come late
        rows = millrace.optim.Adagrad(lr=0.05, weight_decay=0.05, initial_accumulator_value=0.5, eps=1e-8)
        self.rows = millrace.EmbeddingBag(
            client,
            table,
            slots,
            "sum",
            dim=1 + factors,
            optimizer=rows,
            initializer=millrace.init.normal(0.0, 0.01, seed=1),
        )
        self.bias = millrace.nn.Variable(client, f"{table}.bias", (1,), **adagrad)
        self.linear = (
            millrace.nn.Linear(client, f"{table}.linear", dense, 1, bias=False, **adagrad) if dense else None
        )
        widths = (slots * factors + dense, *hidden, 1)
        self.layers = torch.nn.ModuleList(
            millrace.nn.Linear(client, f"{table}.layer{i}", n, m, **adam)
            for i, (n, m) in enumerate(zip(widths, widths[1:]))
        )

    def variables(self) -> list[millrace.nn.Variable]:
        """The modules of dense parameters, for a loader to pull ahead."""
        return [module for module in self.modules() if isinstance(module, millrace.nn.Variable)]

    def forward(self, batch: millrace.data.Batch) -> torch.Tensor:
        """[samples]"""
        rows = self.rows(batch)
        weights, factors = rows[..., 0], rows[..., 1:]
        sums = factors.sum(1)
        score = (
            self.bias(batch) + weights.sum(1) + 0.5 * ((sums * sums).sum(1) - (factors * factors).sum((1, 2)))
        )
        if self.linear is not None:
            score = score + self.linear(batch.dense, batch).squeeze(1)
        x = torch.cat((factors.flatten(1), batch.dense), 1)
        for layer in self.layers[:-1]:
            x = torch.relu(layer(x, batch))
        return score + self.layers[-1](x, batch).squeeze(1)


def auc(scores: np.ndarray, labels: np.ndarray) -> float:
    """The share of pairs of a positive and a negative sample that are in the right order, ties half."""
    values, index, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[index]
    positive = int(labels.sum())
    pairs = positive * (len(labels) - positive)
    return float((ranks[labels > 0.5].sum() - positive * (positive + 1) / 2) / pairs) if pairs else 0.5


def plan(options: argparse.Namespace, part: str) -> dict:
    """What the hub is to hand out."""
    return {
        "path": options.data,
        "format": options.format,
        "batch_samples": options.batch,
        "table": TABLE,
        "epochs": options.epochs if part == "train" else 1,
        "shuffle_seed": 1,
        "held_out_share": options.held_out,
        "part": part,
        "run": options.run,
    }


def train(options: argparse.Namespace, client: millrace.Client, hub: millrace.Hub) -> dict:
    """Learns this trainer's share of the batches; what came of it."""
    info = hub.start(**plan(options, "train"), deadline_s=600)
    model = DeepFM(client, info.slots, info.dense, options.factors)
    loader = millrace.DataLoader(
        hub,
        **plan(options, "train"),
        tables=[model.rows],
        variables=model.variables(),
        staleness=options.staleness,
        give_up_s=options.give_up,
    )
    loss_of = torch.nn.BCEWithLogitsLoss(reduction="sum")
    total, begin = 0.0, time.monotonic()
    for batch in loader:
        loss = loss_of(model(batch), batch.labels)
        loss.backward()
        total += loss.item()
    seconds, counts = time.monotonic() - begin, loader.counts
    return {
        "samples": counts.samples,
        "seconds": round(seconds, 3),
        "samples_per_s": round(counts.samples / seconds),
        "train_logloss": round(total / max(1, counts.samples), 4),
        "batches": info.batches,
        "batches_applied": counts.applied,
        "batches_known": counts.known,
        "batches_dropped": counts.dropped,
    }


def scores(options: argparse.Namespace, client: millrace.Client, hub: millrace.Hub) -> Iterator[tuple]:
    """(scores, labels) of each held-out batch."""
    info = hub.start(**plan(options, "held_out"), deadline_s=600)
    model = DeepFM(client, info.slots, info.dense, options.factors).eval()
    loader = millrace.DataLoader(
        hub, **plan(options, "held_out"), tables=[model.rows], variables=model.variables()
    )
    for batch in loader:
        with torch.no_grad():
            yield model(batch).numpy(), batch.labels.numpy()


def evaluate(options: argparse.Namespace, client: millrace.Client, hub: millrace.Hub) -> dict:
    """AUC and log loss of the held-out samples."""
    parts = list(scores(options, client, hub))
    if not parts:
        raise SystemExit("deepfm: there are no held-out samples: --held-out is 0")
    score, label = (np.concatenate(arrays) for arrays in zip(*parts))
    loss = np.logaddexp(0, np.where(label > 0.5, -score, score))
    return {
        "auc": round(auc(score, label), 4),
        "logloss": round(float(loss.mean()), 4),
        "samples_evaluated": len(label),
    }


def predictions(
    options: argparse.Namespace, client: millrace.Client, hub: millrace.Hub
) -> Iterator[np.ndarray]:
    """How likely each sample of a file without labels is a positive one, in the order of its lines. Nothing
    comes into the model, and nothing changes it."""
    try:
        client.table(TABLE)
    except LookupError:
        raise SystemExit(f"deepfm: {options.server} has no table {TABLE!r}: train a model first") from None
    wanted = {**plan(options, "held_out"), "shuffle_seed": 0, "held_out_share": 0.0, "strict": True}
    info = hub.start(**wanted, deadline_s=600)
    if info.samples == 0:
        raise SystemExit(
            f"deepfm: {options.data} has no samples to predict: either it is empty, or the format "
            f"{options.format} has labels; give the hub one with label = none"
        )
    model = DeepFM(client, info.slots, info.dense, options.factors).eval()
    loader = millrace.DataLoader(hub, **wanted, tables=[model.rows], variables=model.variables())
    waiting, number = {}, 0  # batches that came before their turn
    for batch in loader:
        with torch.no_grad():
            waiting[batch.id & ((1 << 48) - 1)] = torch.sigmoid(model(batch)).numpy()
        while number in waiting:
            yield waiting.pop(number)
            number += 1
    if number != info.batches:
        raise SystemExit(f"deepfm: {number} of {info.batches} batches of {options.data} were predicted")


def predict(options: argparse.Namespace, client: millrace.Client, hub: millrace.Hub) -> dict:
    """Writes a prediction for each sample, one a line; the file is there once it is complete."""
    count, total = 0, 0.0
    try:
        with open(options.predict + ".part", "w", encoding="ascii") as file:
            for values in predictions(options, client, hub):
                file.writelines(f"{value:.6g}\n" for value in values)
                count, total = count + len(values), total + float(values.sum())
        os.replace(options.predict + ".part", options.predict)
    except OSError as error:
        raise SystemExit(f"deepfm: {error}") from None
    return {"samples_predicted": count, "mean_prediction": round(total / count, 4)}


def arguments(description: str) -> argparse.ArgumentParser:
    """Those that the examples with a hub share."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--server",
        required=True,
        metavar="HOST[:PORT],...",
        help="the parameter server, or nodes of a cluster",
    )
    parser.add_argument(
        "--hub", required=True, metavar="HOST[:PORT]", help="the hub; port 7800 when left out"
    )
    parser.add_argument(
        "--key-file", help="pre-shared key, 64 hexadecimal digits (default $MILLRACE_KEY_FILE)"
    )
    parser.add_argument(
        "--connect", type=float, default=10, metavar="S", help="wait so long for server and hub (default 10)"
    )
    parser.add_argument("--data", required=True, metavar="FILE", help="samples, on the hub's machine")
    parser.add_argument(
        "--format",
        default="flights",
        help="flights, criteo, libsvm, or another that the hub knows (default %(default)s)",
    )
    parser.add_argument("--batch", type=int, default=512, help="samples in a batch (default %(default)s)")
    parser.add_argument("--epochs", type=int, default=2, help="(default %(default)s)")
    parser.add_argument(
        "--held-out",
        type=float,
        default=0.2,
        help="share of the samples to evaluate on (default %(default)s)",
    )
    parser.add_argument(
        "--run", type=int, default=0, help="another number trains the same data afresh (default %(default)s)"
    )
    parser.add_argument("--factors", type=int, default=8, help="(default %(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="of torch (default %(default)s)")
    return parser


def connect(options: argparse.Namespace) -> tuple[millrace.Client, millrace.Hub]:
    """To server and hub."""
    hub = options.hub if ":" in options.hub else options.hub + ":7800"
    client = millrace.Client(
        options.server, key_file=options.key_file, connect_s=options.connect, progress_thread=True
    )
    try:
        return client, millrace.Hub(hub, key_file=options.key_file, connect_s=options.connect)
    except BaseException:
        client.close()
        raise


def main() -> None:
    """The command line."""
    parser = arguments(__doc__)
    parser.add_argument(
        "--part", default="both", choices=("train", "evaluate", "both"), help="(default %(default)s)"
    )
    parser.add_argument(
        "--staleness", type=int, default=2, help="batches in flight per trainer (default %(default)s)"
    )
    parser.add_argument(
        "--give-up", type=float, default=60, metavar="S", help="without progress for so long (default 60)"
    )
    parser.add_argument(
        "--predict",
        metavar="FILE",
        help="train nothing: write a prediction for each sample of --data, which have no labels, one a line",
    )
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    try:
        client, hub = connect(options)
        with client, hub:
            if options.predict is not None:
                result = predict(options, client, hub)
            else:
                result = train(options, client, hub) if options.part != "evaluate" else {}
                if options.part != "train":
                    result.update(evaluate(options, client, hub))
    except millrace.Error as error:
        sys.exit(f"deepfm: {error}")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
