"""A model on a parameter server that trainers reach by an RRef, as in torch's tutorial "Implementing a
Parameter Server Using Distributed RPC Framework": the server is made by the first trainer that asks for it.
"""
import threading

import torch
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc
import torch.nn.functional as F
from torch import nn, optim
from torch.distributed.optim import DistributedOptimizer

WORLD_SIZE = 3
STEPS = 5

server = None
server_lock = threading.Lock()


def call_method(method, rref, *args, **kwargs):
    """At the owner."""
    return method(rref.local_value(), *args, **kwargs)


def remote_method(method, rref, *args, **kwargs):
    """A method of the value, at its owner."""
    return rpc.rpc_sync(rref.owner(), call_method, args=[method, rref] + list(args), kwargs=kwargs)


class Net(nn.Module):
    """[n, 1, 8, 8] -> [n, 4]"""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, 3, 1)
        self.dropout = nn.Dropout2d(0.0)
        self.fc1 = nn.Linear(4 * 9, 16)
        self.fc2 = nn.Linear(16, 4)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = self.dropout(F.max_pool2d(x, 2))
        x = F.relu(self.fc1(torch.flatten(x, 1)))
        return F.log_softmax(self.fc2(x), dim=1)


class ParameterServer(nn.Module):
    """Owns the model."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.model = Net()
        self.input_device = torch.device("cpu")

    def forward(self, inp):
        return self.model(inp.to(self.input_device)).to("cpu")

    def get_dist_gradients(self, cid):
        """Of the context, by parameter."""
        grads = dist_autograd.get_gradients(cid)
        return {k.to("cpu"): v.to("cpu") for k, v in grads.items()}

    def get_param_rrefs(self):
        """For the optimizer."""
        return [rpc.RRef(param) for param in self.model.parameters()]


def get_parameter_server():
    """The only one of this process."""
    global server
    with server_lock:
        if not server:
            server = ParameterServer()
        return server


class TrainerNet(nn.Module):
    """A trainer's view of the model."""

    def __init__(self):
        super().__init__()
        self.param_server_rref = rpc.remote("parameter_server", get_parameter_server, args=())

    def get_global_param_rrefs(self):
        """References to the server's parameters."""
        return remote_method(ParameterServer.get_param_rrefs, self.param_server_rref)

    def forward(self, x):
        return remote_method(ParameterServer.forward, self.param_server_rref, x)


def run_training_loop(net):
    """Trains for some steps. -> losses, and the sums of the last gradients"""
    opt = DistributedOptimizer(optim.SGD, net.get_global_param_rrefs(), lr=0.1)
    generator = torch.Generator().manual_seed(4)
    said = []
    for _ in range(STEPS):
        data = torch.rand(6, 1, 8, 8, generator=generator)
        target = torch.randint(0, 4, (6,), generator=generator)
        with dist_autograd.context() as cid:
            loss = F.nll_loss(net(data), target)
            dist_autograd.backward(cid, [loss])
            gradients = remote_method(ParameterServer.get_dist_gradients, net.param_server_rref, cid)
            assert gradients and all(k.shape == v.shape for k, v in gradients.items())
            opt.step(cid)
        said.append(loss.item())
    return said + sorted(float(v.abs().sum()) for v in gradients.values())


def run_worker(rank, world_size):
    """The server, a trainer, and one that trains when the first has done: two at once overwrite each other's
    values between forward and backward, which torch refuses."""
    names = ["parameter_server", "trainer_1", "trainer_2"]
    rpc.init_rpc(name=names[rank], rank=rank, world_size=world_size)
    said = []
    if rank == 1:
        said = run_training_loop(TrainerNet())
        said += rpc.rpc_sync("trainer_2", train_too)
    rpc.shutdown()
    return said


def train_too():
    """A trainer, by order of another one."""
    return run_training_loop(TrainerNet())
