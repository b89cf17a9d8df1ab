"""A model in two shards on two workers, fed with micro-batches, as in torch's tutorial "Distributed Pipeline
Parallelism Using RPC": the master passes each shard's output on by its RRef."""
import threading

import torch
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc
from torch import nn, optim
from torch.distributed.optim import DistributedOptimizer
from torch.distributed.rpc import RRef

WORLD_SIZE = 3
BATCHES, BATCH_SIZE, SPLIT_SIZE = 3, 8, 2


class Block(nn.Module):
    """A residual block with ReLUs in place."""

    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        out = self.conv2(self.relu(self.conv1(x)))
        out += x
        return self.relu(out)


class ShardBase(nn.Module):
    """One at a time computes."""

    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self._lock = threading.Lock()

    def parameter_rrefs(self):
        """References to its parameters."""
        return [RRef(p) for p in self.parameters()]


class Shard1(ShardBase):
    """[n, 1, 6, 6] -> [n, 2, 6, 6]"""

    def __init__(self, device):
        super().__init__(1)
        self.device = device
        self.seq = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.ReLU(inplace=True), Block(2)).to(device)

    def forward(self, x_rref):
        x = x_rref.to_here().to(self.device)
        with self._lock:
            out = self.seq(x)
        return out.cpu()


class Shard2(ShardBase):
    """[n, 2, 6, 6] -> [n, 3]"""

    def __init__(self, device):
        super().__init__(2)
        self.device = device
        self.seq = nn.Sequential(nn.ReLU(inplace=True), Block(2), nn.AvgPool2d(6)).to(device)
        self.fc = nn.Linear(2, 3).to(device)

    def forward(self, x_rref):
        x = x_rref.to_here().to(self.device)
        with self._lock:
            out = self.fc(torch.flatten(self.seq(x), 1))
        return out.cpu()


class DistResNet(nn.Module):
    """Both."""

    def __init__(self, split_size, workers, *args, **kwargs):
        super().__init__()
        self.split_size = split_size
        self.p1_rref = rpc.remote(workers[0], Shard1, args=("cpu",) + args, kwargs=kwargs)
        self.p2_rref = rpc.remote(workers[1], Shard2, args=("cpu",) + args, kwargs=kwargs)

    def forward(self, xs):
        out_futures = []
        for x in iter(xs.split(self.split_size, dim=0)):
            x_rref = RRef(x)
            y_rref = self.p1_rref.remote().forward(x_rref)
            z_fut = self.p2_rref.rpc_async().forward(y_rref)
            out_futures.append(z_fut)
        return torch.cat(torch.futures.wait_all(out_futures))

    def parameter_rrefs(self):
        """Of both."""
        remote_params = []
        remote_params.extend(self.p1_rref.remote().parameter_rrefs().to_here())
        remote_params.extend(self.p2_rref.remote().parameter_rrefs().to_here())
        return remote_params


def run_master():
    """-> losses, and the sums of the parameters after the training"""
    model = DistResNet(SPLIT_SIZE, ["worker1", "worker2"])
    loss_fn = nn.MSELoss()
    opt = DistributedOptimizer(optim.SGD, model.parameter_rrefs(), lr=0.05)
    generator = torch.Generator().manual_seed(7)
    said = []
    for _ in range(BATCHES):
        inputs = torch.randn(BATCH_SIZE, 1, 6, 6, generator=generator)
        labels = torch.rand(BATCH_SIZE, 3, generator=generator)
        with dist_autograd.context() as context_id:
            outputs = model(inputs)
            loss = loss_fn(outputs, labels)
            dist_autograd.backward(context_id, [loss])
            opt.step(context_id)
        said.append(loss.item())
    return said + [float(rref.to_here().abs().sum()) for rref in model.parameter_rrefs()]


def run_worker(rank, world_size):
    """A master and two shards."""
    options = rpc.TensorPipeRpcBackendOptions(num_worker_threads=32)
    name = "master" if rank == 0 else f"worker{rank}"
    rpc.init_rpc(name, rank=rank, world_size=world_size, rpc_backend_options=options)
    said = run_master() if rank == 0 else []
    rpc.shutdown()
    return said
