"""A model in DistributedDataParallel with remote calls in its middle, in each of that one's modes: the
gradients that two trainers get. No tutorial of torch, which has the calls before the model."""
import contextlib
import os

import torch
import torch.distributed as dist
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc
from torch import nn
from torch.distributed.rpc import TensorPipeRpcBackendOptions
from torch.nn.parallel import DistributedDataParallel as DDP

WORLD_SIZE = 3
STEPS = 3


class Far(nn.Module):
    """What the server computes."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        return torch.tanh(self.fc(x))


far = Far()


def far_forward(x):
    """On the server."""
    return far(x)


def far_gradients(context_id):
    """The server's gradients in a context."""
    found = dist_autograd.get_gradients(context_id)
    return [found[parameter].sum().item() for parameter in far.parameters()]


def reduce_halves(_state, bucket):
    """A communication hook: half of the mean."""
    reduced = dist.all_reduce(bucket.buffer() / 4, async_op=True).get_future()
    return reduced.then(lambda future: future.value()[0])


class Net(nn.Module):
    """Layers with a call between each two. shared: they are one layer. unused: one that no loss depends
    on."""

    def __init__(self, calls, shared=False, unused=False):
        super().__init__()
        torch.manual_seed(3)
        first = nn.Linear(4, 4)
        self.layers = nn.ModuleList([first if shared else nn.Linear(4, 4) for _ in range(calls + 1)])
        self.rest = nn.Linear(4, 4) if unused else None

    def forward(self, x):
        for i, layer in enumerate(self.layers):
            if i > 0:
                x = rpc.rpc_sync("ps", far_forward, args=(x,))
            x = torch.tanh(layer(x))
        return x


class Mode:
    """Calls in the middle, DDP's arguments, and what is special."""

    def __init__(self, calls=1, shared=False, unused=False, special="", **arguments):
        self.net = {"calls": calls, "shared": shared, "unused": unused}
        self.special, self.arguments = special, arguments


MODES = {
    "no call": Mode(calls=0),
    "one call": Mode(),
    "two calls": Mode(calls=2),
    "small buckets": Mode(calls=2, bucket_cap_mb=1e-5),
    "bucket views": Mode(gradient_as_bucket_view=True),
    "small bucket views": Mode(calls=2, bucket_cap_mb=1e-5, gradient_as_bucket_view=True),
    "one layer on both sides": Mode(shared=True),
    "static graph": Mode(static_graph=True),
    "static graph, small buckets": Mode(calls=2, static_graph=True, bucket_cap_mb=1e-5),
    "no_sync": Mode(special="no_sync"),
    "no_sync, bucket views": Mode(special="no_sync", gradient_as_bucket_view=True),
    "two passes": Mode(special="two passes"),
    "accumulation": Mode(special="accumulation"),
    "accumulation, bucket views": Mode(special="accumulation", gradient_as_bucket_view=True),
    "uneven inputs": Mode(special="join"),
    "communication hook": Mode(special="communication hook", calls=2),
    "hooks of tensors": Mode(special="hooks", calls=2),
    "find unused": Mode(unused=True, find_unused_parameters=True),
}


def sums(net, gradients):
    """Of each parameter's gradient; -999 for none."""
    return [gradients[p].sum().item() if p in gradients else -999.0 for p in net.parameters()]


def one_pass(ddp, x, gradients):
    """Adds what a context of its own finds."""
    with dist_autograd.context() as context_id:
        dist_autograd.backward(context_id, [ddp(x).sum()])
        return add(gradients, dist_autograd.get_gradients(context_id))


def add(gradients, more):
    """Of the same parameters."""
    return {parameter: gradients.get(parameter, 0) + gradient for parameter, gradient in more.items()}


def two_passes(ddp, x, first):
    """Both in one context, which torch's engine cannot do where remote calls are: it has the sum of two.
    first: what the first pass is within."""
    if rpc.__name__.startswith("torch."):
        return one_pass(ddp, x, one_pass(ddp, x * 2, {}))
    with dist_autograd.context() as context_id:
        with first():
            dist_autograd.backward(context_id, [ddp(x * 2).sum()])
        dist_autograd.backward(context_id, [ddp(x).sum()])
        return dist_autograd.get_gradients(context_id)


def step(ddp, mode, rank, number):
    """One context's gradients, here and at the server."""
    torch.manual_seed(10 * number + rank)
    x = torch.randn(6, 4)
    if mode.special == "two passes":
        return sums(ddp.module, two_passes(ddp, x, contextlib.nullcontext))
    if mode.special == "accumulation":
        return sums(ddp.module, two_passes(ddp, x, ddp.no_sync))
    with dist_autograd.context() as context_id:
        with ddp.no_sync() if mode.special == "no_sync" and number != 1 else contextlib.nullcontext():
            dist_autograd.backward(context_id, [ddp(x).sum()])
        said = sums(ddp.module, dist_autograd.get_gradients(context_id))
        return said + (rpc.rpc_sync("ps", far_gradients, args=(context_id,)) if mode.net["calls"] else [])


def train(mode, rank):
    """What one trainer sees in some steps; its parameters have no `.grad` afterwards."""
    ddp = DDP(Net(**mode.net), process_group=train.group, **mode.arguments)
    if mode.special == "communication hook":
        ddp.register_comm_hook(None, reduce_halves)
    if mode.special == "hooks":
        for parameter in ddp.parameters():
            parameter.register_hook(lambda gradient: gradient.clamp(-1.0, 1.0))
    said = []
    with dist.algorithms.join.Join([ddp]) if mode.special == "join" else contextlib.nullcontext():
        for number in range(STEPS + (rank if mode.special == "join" else 0)):
            said += step(ddp, mode, rank, number)
    return said + [float(parameter.grad is None) for parameter in ddp.parameters()]


def refused_or(mode, rank):
    """As train(), or that it was refused."""
    try:
        return train(mode, rank)
    except RuntimeError as error:
        if os.environ.get("DDP_MODES_SHOWN"):
            print(error, flush=True)
        return [-1.0, float("unused" in str(error) or "ready" in str(error))]


def run_worker(rank, world_size):
    """Two trainers and a server."""
    options = TensorPipeRpcBackendOptions()
    options.init_method = f"tcp://{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    name = ["trainer0", "trainer1", "ps"][rank]
    said = []
    if rank == 2:
        rpc.init_rpc(name, rank=rank, world_size=world_size, rpc_backend_options=options)
    else:
        ddp_init = f"tcp://{os.environ['MASTER_ADDR']}:{os.environ['DDP_PORT']}"
        if not dist.is_initialized():
            dist.init_process_group("gloo", rank=rank, world_size=2, init_method=ddp_init)
        train.group = dist.group.WORLD
        rpc.init_rpc(name, rank=rank, world_size=world_size, rpc_backend_options=options)
        for mode_name, mode in MODES.items():
            numbers = refused_or(mode, rank)
            if os.environ.get("DDP_MODES_SHOWN"):
                print(mode_name, rank, [round(number, 4) for number in numbers], flush=True)
            said += numbers
    rpc.shutdown()
    if rank <= 1:
        dist.destroy_process_group()
    return said
