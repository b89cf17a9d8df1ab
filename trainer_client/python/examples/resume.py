#!/usr/bin/env python3
"""Training that survives its server: each step is applied once, and the model ends with the same bits as if
nothing had happened.

    resume.py --server 10.77.0.1 --data flights-3m.csv --steps 300 --save-every 100

Kill the server at any moment and start it again: the loop below does not notice, but for the wait. The client
is made with `replay`, so it gives a server that comes back from its newest checkpoint the gradients that it
lacks. If this program ends as well, start it again after the server: checkpoints are cut at a step, and it
continues with the next.

It learns whether flights are late from seven features of each, with a trainer of its own and no hub; a ledger
at the server, a variable with an element for each step, counts what was applied.
"""
from __future__ import annotations

import argparse
import csv
import hashlib
import json
import os
import sys
import zlib

os.environ.setdefault(
    "OPENBLAS_NUM_THREADS", "1"
)  # before torch: the order of its sums must not depend on threads

import numpy as np
import torch

import millrace

LATE_MINUTES = 15
SLOTS = 7


def read_samples(path: str, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The first `count` flights: keys i64 [count, SLOTS], labels f32 [count]."""
    keys, labels = [], []
    with open(path, newline="", encoding="ascii") as file:
        for row in csv.DictReader(file):
            hour, day = row["date"][4:6], row["date"][:4]
            origin, destination = row["origin"], row["destination"]
            values = (origin, destination, origin + destination, hour, day, origin + hour, destination + day)
            keys.append([slot << 32 | zlib.crc32(value.encode()) for slot, value in enumerate(values)])
            labels.append(float(row["delay"]) > LATE_MINUTES)
            if len(labels) == count:
                break
    if len(labels) < count:
        raise SystemExit(
            f"resume: {path} has {len(labels)} flights, and {count} are needed: lower --steps or --batch"
        )
    return np.array(keys, np.int64), np.array(labels, np.float32)


class Model(torch.nn.Module):
    """Rows of a flight's features, and a layer over them; all at the server."""

    def __init__(self, client: millrace.Client, name: str, steps: int) -> None:
        super().__init__()
        adagrad = millrace.optim.Adagrad(lr=0.05, initial_accumulator_value=0.1)
        self.rows = millrace.EmbeddingBag(
            client,
            f"{name}.rows",
            SLOTS,
            "sum",
            dim=8,
            optimizer=adagrad,
            initializer=millrace.init.normal(0.0, 0.05, seed=1),
        )
        self.hidden = millrace.nn.Linear(client, f"{name}.hidden", SLOTS * 8, 16, optimizer=adagrad)
        self.out = millrace.nn.Linear(client, f"{name}.out", 16, 1, optimizer=adagrad)
        # A gradient of -1 under plain descent at rate 1 adds one.
        self.ledger = millrace.nn.Variable(
            client, f"{name}.ledger", (steps,), optimizer=millrace.optim.SGD(lr=1)
        )

    def forward(self, keys: torch.Tensor) -> torch.Tensor:
        """keys [samples, SLOTS] -> scores [samples]"""
        x = self.rows(keys.view(-1, 1)).flatten(1)
        return self.out(torch.relu(self.hidden(x))).squeeze(1)


def first_step(client: millrace.Client) -> int:
    """1, or the step after the checkpoint that the server was restored from."""
    info = client.checkpoint_info()
    if info.restored_id and info.restored_step and not info.restored_is_at_step:
        raise SystemExit(
            f"resume: checkpoint {info.restored_id} was not cut at a step: training cannot continue "
            "from it to the bit"
        )
    if info.restored_id:
        return info.restored_step + 1
    if info.step:
        raise SystemExit(
            f"resume: the server is at step {info.step} of another training: restore a checkpoint, or start "
            "it empty"
        )
    return 1


def checkpoint(client: millrace.Client, step: int) -> None:
    """Has the server cut a checkpoint after this step; if that fails, a later one will do."""
    try:
        client.save(at_step=step, trainers=1)
    except millrace.CheckpointRunning:
        print(f"resume: step {step}: the last checkpoint is still being written", file=sys.stderr)


def checkpoint_whole(client: millrace.Client) -> None:
    """Returns when all that was learnt is in a checkpoint."""
    while True:
        try:
            client.wait_for_save(client.save(queue=True))
            return
        except millrace.CheckpointNotFound:  # the server was restarted, and knows nothing of that save
            continue


def train(
    options: argparse.Namespace,
    client: millrace.Client,
    model: Model,
    first: int,
    keys: np.ndarray,
    labels: np.ndarray,
) -> float:
    """Steps `first` to the last; the log loss of the last."""
    loss = torch.zeros(())
    for step in range(first, options.steps + 1):
        millrace.nn.set_call_options(model, step=step)
        part = slice((step - 1) * options.batch, step * options.batch)
        logits = model(torch.from_numpy(keys[part]))
        loss = torch.nn.functional.binary_cross_entropy_with_logits(
            logits, torch.from_numpy(labels[part]), reduction="sum"
        )
        (loss - model.ledger()[step - 1]).backward()
        millrace.nn.flush(model)  # trainers that are to be repeated to the bit wait for each step
        if options.save_every and step % options.save_every == 0 and step < options.steps:
            checkpoint(client, step)
        if options.progress:
            print(f"resume: step {step}", flush=True)
    return loss.item() / options.batch


def digest(model: Model, keys: np.ndarray) -> str:
    """Of every bit that was learnt."""
    sha = hashlib.sha256(model.rows.table.lookup(np.unique(keys), read_only=True).tobytes())
    for module in model.modules():
        if isinstance(module, millrace.nn.Variable):
            sha.update(module.variable.pull().tobytes())
    return sha.hexdigest()


def run(options: argparse.Namespace, client: millrace.Client, keys: np.ndarray, labels: np.ndarray) -> dict:
    """What came of it."""
    first = first_step(client)
    model = Model(client, options.name, options.steps)
    if first == 1:
        checkpoint_whole(client)  # a server that is lost before its next must know what there is to learn
    loss = train(options, client, model, first, keys, labels)
    model.eval()
    with torch.no_grad():
        counts = model.ledger()
    checkpoint_whole(client)
    return {
        "first_step": first,
        "steps": options.steps,
        "logloss": round(loss, 4),
        "steps_lost": int((counts < 1).sum()),
        "steps_twice": int((counts > 1).sum()),
        "pushes_replayed": client.replay_info().replayed,
        "digest": digest(model, keys),
    }


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--server",
        required=True,
        metavar="HOST[:PORT],...",
        help="the parameter server, or nodes of a cluster",
    )
    parser.add_argument(
        "--key-file", help="pre-shared key, 64 hexadecimal digits (default $MILLRACE_KEY_FILE)"
    )
    parser.add_argument(
        "--connect", type=float, default=10, metavar="S", help="wait so long for the server (default 10)"
    )
    parser.add_argument(
        "--data", required=True, metavar="FILE", help="flights: date,delay,distance,origin,destination"
    )
    parser.add_argument("--steps", type=int, default=300, help="(default %(default)s)")
    parser.add_argument("--batch", type=int, default=256, help="flights in a step (default %(default)s)")
    parser.add_argument(
        "--save-every", type=int, default=100, metavar="N", help="steps; 0: never (default %(default)s)"
    )
    parser.add_argument(
        "--deadline", type=float, default=120, metavar="S", help="how long a server may be away (default 120)"
    )
    parser.add_argument("--name", default="resume", help="of the model (default %(default)s)")
    parser.add_argument("--progress", action="store_true", help="say each step")
    options = parser.parse_args()
    torch.set_num_threads(1)
    try:
        keys, labels = read_samples(options.data, options.steps * options.batch)
        with millrace.Client(
            options.server,
            key_file=options.key_file,
            connect_s=options.connect,
            deadline_s=options.deadline,
            replay=True,
        ) as client:
            result = run(options, client, keys, labels)
    except (millrace.Error, OSError) as error:
        sys.exit(f"resume: {error}")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
