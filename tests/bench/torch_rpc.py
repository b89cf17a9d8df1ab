#!/usr/bin/env python3
"""PyTorch's RPC, doing what bench_rpc and the example mnist do, for tests/bench/run.py to stand beside them.

usage: torch_rpc.py calls|mnist --rank 0|1 --master-addr HOST [--master-port PORT] [--interface NAME] [--batch
N] [--steps N] [--threads N] needs Debian's python3-torch; run it with /usr/bin/python3

calls: rank 0 calls an empty function of rank 1. mnist: rank 0 holds the network of torch's parameter server
tutorial, rank 1 trains it on pictures made up here, through distributed autograd and optimizer. TensorPipe
goes over TCP (its transport uv), as between two machines. Rank 0 of calls and rank 1 of mnist print a line of
JSON for each figure; the other prints "ready" when it begins to wait.
"""
import argparse
import json
import os
import statistics
import sys
import time

OUTSTANDING = 64
WARM_CALLS, CALLS, SECONDS = 200, 3000, 2.0
WARM_STEPS = 5


def empty():
    """What is called."""


def say(name, value, unit):
    print(json.dumps({"name": name, "value": value, "unit": unit}), flush=True)


def call_sync(rpc):
    times = []
    for i in range(WARM_CALLS + CALLS):
        start = time.perf_counter()
        rpc.rpc_sync("worker1", empty)
        if i >= WARM_CALLS:
            times.append((time.perf_counter() - start) * 1e6)
    say("torch_rpc_sync_empty", statistics.median(times), "us")


def call_async(rpc):
    futures = [rpc.rpc_async("worker1", empty) for _ in range(OUTSTANDING)]
    calls, start, now = 0, time.perf_counter(), 0.0
    while now < start + SECONDS:
        for i, future in enumerate(futures):
            future.wait()
            futures[i] = rpc.rpc_async("worker1", empty)
        calls += OUTSTANDING
        now = time.perf_counter()
    say("torch_rpc_async_64", calls / (now - start), "calls/s")
    for future in futures:
        future.wait()


def mnist_network():
    """The network of torch's parameter server tutorial."""
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(1, 32, 3),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout(0.25),
        nn.Flatten(),
        nn.Linear(9216, 128),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(128, 10),
        nn.LogSoftmax(1),
    )


def mnist_pictures(batch):
    """So many pictures that are made up here, and their labels."""
    import torch

    return (torch.rand(batch, 1, 28, 28) < 0.2).float(), torch.arange(batch) % 10


class Server:
    """The model, and what trainers call."""

    model = None

    @classmethod
    def parameters(cls):
        import torch.distributed.rpc as rpc

        cls.model = mnist_network()
        return [rpc.RRef(parameter) for parameter in cls.model.parameters()]

    @classmethod
    def forward(cls, images):
        return cls.model(images)


def train(rpc, batch, steps):
    import torch
    import torch.distributed.autograd as dist_autograd
    from torch.distributed.optim import DistributedOptimizer

    optimizer = DistributedOptimizer(torch.optim.SGD, rpc.rpc_sync("worker0", Server.parameters), lr=0.03)
    images, labels = mnist_pictures(batch)
    start = 0.0
    for step in range(WARM_STEPS + steps):
        if step == WARM_STEPS:
            start = time.perf_counter()
        with dist_autograd.context() as context:
            loss = torch.nn.functional.nll_loss(rpc.rpc_sync("worker0", Server.forward, (images,)), labels)
            dist_autograd.backward(context, [loss])
            optimizer.step(context)
    say("torch_mnist_1_trainer", batch * steps / (time.perf_counter() - start), "images/s")


def use_interface(interface):
    """Before torch is imported."""
    for library in ("TP", "GLOO"):
        os.environ[f"{library}_SOCKET_IFNAME"] = interface
    # Debian's torch is built without it, and takes it for there from 2.4 on.
    os.environ.setdefault("USE_LIBUV", "0")


def options_of(rpc, arguments, **more):
    """TensorPipe over TCP, as between two machines."""
    return rpc.TensorPipeRpcBackendOptions(
        init_method=f"tcp://{arguments.master_addr}:{arguments.master_port}",
        _transports=["uv"],
        _channels=["basic"],
        **more,
    )


def settings_of(torch, arguments, options):
    return {
        "name": "torch_settings",
        "version": torch.__version__,
        "threads": arguments.threads,
        "cpus": sorted(os.sched_getaffinity(0)),
        "rpc_threads": options.num_worker_threads,
    }


def add_arguments(parser, ranks):
    parser.add_argument("--rank", type=int, choices=range(ranks), required=True)
    parser.add_argument("--master-addr", default="127.0.0.1", help="of rank 0")
    parser.add_argument("--master-port", type=int, default=29500)
    parser.add_argument("--interface", default="lo", help="by which the other rank is reached")
    parser.add_argument("--threads", type=int, default=1, help="that compute a tensor")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("what", choices=["calls", "mnist"])
    add_arguments(parser, 2)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=60)
    arguments = parser.parse_args()
    use_interface(arguments.interface)
    try:
        import torch
        import torch.distributed.rpc as rpc
    except ImportError:
        sys.exit(
            "torch_rpc: no torch: apt-get install --no-install-recommends python3-torch python3-numpy "
            "libopenblas0-pthread, and "
            "run this with /usr/bin/python3"
        )
    torch.set_num_threads(arguments.threads)
    caller = arguments.rank == (0 if arguments.what == "calls" else 1)
    if not caller:
        print("ready", flush=True)
    options = options_of(rpc, arguments)
    rpc.init_rpc(f"worker{arguments.rank}", rank=arguments.rank, world_size=2, rpc_backend_options=options)
    if caller and arguments.what == "calls":
        call_sync(rpc)
        call_async(rpc)
    elif caller:
        train(rpc, arguments.batch, arguments.steps)
    if caller:
        print(json.dumps(settings_of(torch, arguments, options)), flush=True)
    rpc.shutdown()


if __name__ == "__main__":
    main()
