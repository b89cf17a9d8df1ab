#!/usr/bin/env python3
"""A parameter server in Python, as in torch's tutorial: rank 0 holds a ConvNet, trainers call its forward
through references.

    export PYTHONPATH=build/trainer_client/python MILLRACE_PYTHON_FUNCTIONS=on MASTER_ADDR=127.0.0.1
    MASTER_PORT=29500 trainer_client/python/examples/parameter_server.py --world-size 3 --rank 0 &
    trainer_client/python/examples/parameter_server.py --world-size 3 --rank 1 &
    trainer_client/python/examples/parameter_server.py --world-size 3 --rank 2

It is torch's script but for its imports: with `import torch.distributed.rpc as rpc` and so on instead it runs
on torch's RPC, with one trainer.
"""
from __future__ import annotations

import argparse
import os
import threading
from typing import Any, Callable

import torch
import torch.nn.functional as F
from torch import nn, optim

import millrace.autograd as dist_autograd
import millrace.rpc as rpc
from millrace.optim import DistributedOptimizer
from mnist import Pictures, shuffled


class ConvNet(nn.Module):
    """[n, 1, 28, 28] -> logarithms of probabilities [n, 10]."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 32, 3), nn.Conv2d(32, 64, 3)
        self.fc1, self.fc2 = nn.Linear(9216, 128), nn.Linear(128, 10)
        self.drop1, self.drop2 = nn.Dropout(0.25), nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """One forward."""
        x = F.relu(self.conv2(F.relu(self.conv1(x))))
        x = self.drop1(F.max_pool2d(x, 2)).flatten(1)
        return F.log_softmax(self.fc2(self.drop2(F.relu(self.fc1(x)))), dim=1)


# ---- the server ----


class ParameterServer:
    """The model, and what trainers call of it."""

    def __init__(self) -> None:
        torch.manual_seed(1)
        self.model = ConvNet()

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        """In the trainer's context."""
        return self.model(pictures)

    def evaluate(self, pictures: torch.Tensor) -> torch.Tensor:
        """Classes, without dropout and gradients."""
        with torch.no_grad():
            self.model.eval()
            classes = self.model(pictures).argmax(1)
            self.model.train()
        return classes

    def gradients(self, context_id: int) -> dict[torch.Tensor, torch.Tensor]:
        """Of the parameters, in that context."""
        return {
            parameter.cpu(): gradient.cpu()
            for parameter, gradient in dist_autograd.get_gradients(context_id).items()
        }

    def parameters(self) -> list[rpc.RRef]:
        """References, for the optimizer."""
        return [rpc.RRef(parameter) for parameter in self.model.parameters()]


_server: ParameterServer | None = None
_lock = threading.Lock()


def get_server() -> ParameterServer:
    """The one, whoever asks first."""
    global _server
    with _lock:
        if _server is None:
            _server = ParameterServer()
        return _server


def run_parameter_server(rank: int, world_size: int) -> None:
    """Serves until all trainers have left."""
    rpc.init_rpc("parameter_server", rank=rank, world_size=world_size)
    rpc.shutdown()
    print("parameter_server: all have left")


# ---- a trainer ----


def call_method(method: Callable, reference: rpc.RRef, *args: Any) -> Any:
    """At the owner."""
    return method(reference.local_value(), *args)


def remote_method(method: Callable, reference: rpc.RRef, *args: Any) -> Any:
    """The method, of what the reference stands for."""
    return rpc.rpc_sync(reference.owner(), call_method, args=[method, reference, *args])


class TrainerNet(nn.Module):
    """Its forward is the server's."""

    def __init__(self) -> None:
        super().__init__()
        self.server = rpc.remote("parameter_server", get_server)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        """One forward."""
        return remote_method(ParameterServer.forward, self.server, pictures)


def train(args: argparse.Namespace, net: TrainerNet) -> None:
    """This trainer's share of the pictures."""
    pictures = Pictures(args.data, "train")
    optimizer = DistributedOptimizer(
        optim.SGD, remote_method(ParameterServer.parameters, net.server), lr=args.learning_rate
    )
    share = shuffled(len(pictures), args.seed)[args.rank - 1 :: args.world_size - 1]
    for i, which in enumerate(share.split(args.batch)):
        data, target = pictures.batch(which)
        with dist_autograd.context() as context_id:
            loss = F.nll_loss(net(data), target)
            if i % 5 == 0:
                print(f"Rank {args.rank} training batch {i} loss {loss.item():.4f}", flush=True)
            dist_autograd.backward(context_id, [loss])
            assert remote_method(ParameterServer.gradients, net.server, context_id) != {}
            optimizer.step(context_id)


def test(args: argparse.Namespace, net: TrainerNet) -> None:
    """Over the test set."""
    pictures, right = Pictures(args.data, "t10k"), 0
    for which in torch.arange(len(pictures)).split(250):
        data, target = pictures.batch(which)
        right += int((remote_method(ParameterServer.evaluate, net.server, data) == target).sum())
    print(f"Rank {args.rank}: accuracy {right / len(pictures):.4f}")


def run_worker(args: argparse.Namespace) -> None:
    """A trainer."""
    rpc.init_rpc(f"trainer_{args.rank}", rank=args.rank, world_size=args.world_size)
    net = TrainerNet()
    train(args, net)
    test(args, net)
    rpc.shutdown()


def main() -> None:
    """Of the command line."""
    parser = argparse.ArgumentParser(description="A parameter server in Python, and its trainers.")
    parser.add_argument(
        "--world-size", "--world_size", type=int, default=2, help="the server and all trainers"
    )
    parser.add_argument("--rank", type=int, required=True, help="0: the server")
    parser.add_argument(
        "--master-addr",
        "--master_addr",
        default=os.environ.get("MASTER_ADDR", "127.0.0.1"),
        help="where rank 0 is",
    )
    parser.add_argument(
        "--master-port", "--master_port", default=os.environ.get("MASTER_PORT", "29500"), help="its port"
    )
    parser.add_argument("--data", default="build/data/mnist", help="directory of MNIST's files")
    parser.add_argument("--batch", type=int, default=32, help="images of a step")
    parser.add_argument("--seed", type=int, default=1, help="of shuffling")
    parser.add_argument("--learning-rate", "--learning_rate", type=float, default=0.03, help="of SGD")
    args = parser.parse_args()
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = args.master_addr, args.master_port
    if args.rank == 0:
        run_parameter_server(args.rank, args.world_size)
    else:
        run_worker(args)


if __name__ == "__main__":
    main()
