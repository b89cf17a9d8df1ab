#!/usr/bin/env python3
"""torch's parameter server tutorial as a trainer in Python: the network is the C server's, whose layers are
called by name.

    build/trainer_client/examples/mnist --world-size 3 --rank 0 &
    PYTHONPATH=build/trainer_client/python trainer_client/python/examples/mnist.py --world-size 3 --rank 1 &
    PYTHONPATH=build/trainer_client/python trainer_client/python/examples/mnist.py --world-size 3 --rank 2

Together the trainers, in Python and in C, go over the training set once in each epoch; whoever is done last
tests the model.
"""
from __future__ import annotations

import argparse
import os
import sys
from typing import Iterator

import numpy as np
import torch
import torch.nn.functional as F

import millrace
import millrace.autograd as dist_autograd
import millrace.rpc as rpc
from millrace.optim import DistributedOptimizer

MEAN, DEVIATION = 0.1307, 0.3081
SAY_EVERY = 5  # batches
TEST_BATCH = 250
SERVER = 0


# ---- data ----


def read_idx(directory: str, name: str, rank: int) -> np.ndarray:
    """u8, of one of MNIST's files."""
    path = os.path.join(directory, name)
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError as error:
        raise SystemExit(
            f"mnist.py: cannot read {path}: {error.strerror}: scripts/fetch-mnist.sh DIR brings MNIST's files"
        ) from None
    head = np.frombuffer(content[: 4 + 4 * rank], dtype=">u4")
    if (
        len(head) != 1 + rank
        or head[0] != 0x800 + rank
        or len(content) != 4 + 4 * rank + int(np.prod(head[1:]))
    ):
        raise SystemExit(
            f"mnist.py: {path} is no idx file of bytes in {rank} dimensions: scripts/fetch-mnist.sh DIR "
            "brings "
            f"MNIST's files"
        )
    return np.frombuffer(content, dtype=np.uint8, offset=4 + 4 * rank).reshape(head[1:].astype(int))


class Pictures:
    """Of a set, "train" or "t10k"."""

    def __init__(self, directory: str, name: str) -> None:
        self.bytes = torch.from_numpy(read_idx(directory, f"{name}-images-idx3-ubyte", 3).copy())
        self.labels = torch.from_numpy(read_idx(directory, f"{name}-labels-idx1-ubyte", 1).astype(np.int64))

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, which: torch.Tensor | slice) -> tuple[torch.Tensor, torch.Tensor]:
        """f32 [n, 1, 28, 28], i64 [n]."""
        return (self.bytes[which].unsqueeze(1).float() / 255 - MEAN) / DEVIATION, self.labels[which]


def shuffled(count: int, seed: int) -> torch.Tensor:
    """As the trainers in C shuffle, so that both may share an epoch."""
    order = list(range(count))
    for i in range(count, 1, -1):
        seed = (seed * 6364136223846793005 + 1442695040888963407) & (1 << 64) - 1
        j = (seed >> 33) % i
        order[i - 1], order[j] = order[j], order[i - 1]
    return torch.tensor(order)


# ---- training ----


class TrainerNet:
    """The network of the server."""

    def __init__(self) -> None:
        self.network, self.parameter = rpc.rpc_sync(SERVER, "mnist.begin")

    def forward(self, step: int, pictures: torch.Tensor) -> torch.Tensor:
        """Logarithms of probabilities, [n, 10]. Dropout follows from the step."""
        return rpc.rpc_sync(SERVER, "layers.forward", (self.network, step, pictures))

    def evaluate(self, pictures: torch.Tensor) -> torch.Tensor:
        """Without dropout and gradients."""
        return rpc.rpc_sync(SERVER, "layers.evaluate", (self.network, pictures))


def batches_of(args: argparse.Namespace, count: int) -> Iterator[tuple[int, torch.Tensor]]:
    """This trainer's share: step and samples."""
    trainers, batches = args.world_size - 1, -(-count // args.batch)
    for epoch in range(args.epochs):
        order = shuffled(count, args.seed << 32 | epoch)
        for b in range(args.rank - 1, batches, trainers):
            yield epoch * batches + b, order[b * args.batch : (b + 1) * args.batch]


def run_training_loop(args: argparse.Namespace, net: TrainerNet, train: Pictures) -> int:
    """How many pictures it was trained on."""
    optimizer = DistributedOptimizer(
        torch.optim.SGD, [net.parameter], lr=args.learning_rate, momentum=args.momentum
    )
    images = 0
    for i, (step, which) in enumerate(batches_of(args, len(train))):
        pictures, labels = train.batch(which)
        with dist_autograd.context() as context_id:
            loss = F.nll_loss(net.forward(step, pictures), labels)
            dist_autograd.backward(context_id, [loss])
            optimizer.step(context_id)
        images += len(labels)
        if i % SAY_EVERY == 0:
            print(f"Rank {args.rank} training batch {i} loss {loss.item():.4f}", flush=True)
    return images


def test(args: argparse.Namespace, net: TrainerNet, pictures: Pictures) -> None:
    """Over the whole test set; reported to the server."""
    right = 0
    for first in range(0, len(pictures), TEST_BATCH):
        batch, labels = pictures.batch(slice(first, first + TEST_BATCH))
        right += int((net.evaluate(batch).argmax(1) == labels).sum())
    print(f"Rank {args.rank}: accuracy {right / len(pictures):.4f}")
    rpc.rpc_sync(SERVER, "mnist.tested", (right, len(pictures)))


def run_worker(args: argparse.Namespace) -> None:
    """A trainer, from its joining to its leaving."""
    train, tested = Pictures(args.data, "train"), Pictures(args.data, "t10k")
    options = rpc.RpcBackendOptions(init_method=f"tcp://{args.master_addr}:{args.master_port}")
    rpc.init_rpc(
        f"trainer_{args.rank}", rank=args.rank, world_size=args.world_size, rpc_backend_options=options
    )
    net = TrainerNet()
    images = run_training_loop(args, net, train)
    if rpc.rpc_sync(SERVER, "mnist.trained", (images,)) == 0:  # the last one
        test(args, net, tested)
    rpc.shutdown()


def arguments() -> argparse.Namespace:
    """Of the command line, as the tutorial's."""
    parser = argparse.ArgumentParser(description="A trainer of the MNIST network of the C example's server.")
    for name, kind, default, about in (
        ("world-size", int, 2, "the server and all trainers"),
        ("rank", int, None, "1 and on"),
        ("master-addr", str, "127.0.0.1", "where rank 0 is"),
        ("master-port", int, 29500, "its port"),
        ("data", str, "build/data/mnist", "directory of MNIST's files"),
        ("batch", int, 32, "images of a step"),
        ("epochs", int, 1, "passes of all trainers together"),
        ("seed", int, 1, "of shuffling"),
        ("learning-rate", float, 0.01, "of SGD"),
        ("momentum", float, 0.9, "of SGD"),
    ):
        parser.add_argument(
            *dict.fromkeys((f"--{name}", f"--{name.replace('-', '_')}")),
            type=kind,
            default=default,
            required=default is None,
            help=about if default is None else f"{about} (default {default})",
        )
    args = parser.parse_args()
    if not 1 <= args.rank < args.world_size:
        parser.error(
            "trainers have ranks from 1 to world_size - 1; rank 0 is the C program, "
            "build/trainer_client/examples/mnist"
        )
    return args


if __name__ == "__main__":
    try:
        run_worker(arguments())
    except millrace.Error as error:
        sys.exit(f"mnist.py: {error}")
