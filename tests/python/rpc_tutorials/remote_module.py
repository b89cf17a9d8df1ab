"""An embedding on a parameter server as a RemoteModule, as torch's reference of RemoteModule and the tutorial
"Combining Distributed DataParallel with Distributed RPC Framework" use it, with both kinds of forward."""
import torch
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc
from torch import nn, optim
from torch.distributed.nn.api.remote_module import RemoteModule
from torch.distributed.optim import DistributedOptimizer

WORLD_SIZE = 2
STEPS = 4


class SeededLinear(nn.Linear):
    """The same start everywhere."""

    def __init__(self, inputs, outputs, seed):
        torch.manual_seed(seed)
        super().__init__(inputs, outputs)


class Trainer(nn.Module):
    """A remote layer between two of its own."""

    def __init__(self):
        super().__init__()
        self.first = SeededLinear(3, 5, 1)
        self.middle = RemoteModule("ps/cpu", SeededLinear, args=(5, 5), kwargs={"seed": 2})
        self.last = SeededLinear(5, 2, 3)

    def forward(self, x):
        x = torch.tanh(self.first(x))
        y = self.middle.forward_async(x)
        return self.last(self.middle(x) + y.wait())


def train(model):
    """-> losses, and the remote weights at the end"""
    params = model.middle.remote_parameters()
    params += [rpc.RRef(p) for m in (model.first, model.last) for p in m.parameters()]
    opt = DistributedOptimizer(optim.Adam, params, lr=0.05)
    generator = torch.Generator().manual_seed(8)
    losses = []
    for _ in range(STEPS):
        x, y = torch.rand(4, 3, generator=generator), torch.rand(4, 2, generator=generator)
        with dist_autograd.context() as context_id:
            loss = nn.functional.mse_loss(model(x), y)
            dist_autograd.backward(context_id, [loss])
            opt.step(context_id)
        losses.append(loss.item())
    return losses + model.middle.get_module_rref().to_here().weight.flatten().tolist()


def run_worker(rank, world_size):
    """A trainer and a parameter server."""
    rpc.init_rpc(["trainer", "ps"][rank], rank=rank, world_size=world_size)
    said = train(Trainer()) if rank == 0 else []
    rpc.shutdown()
    return said
