"""A parameter server that applies the gradients of all trainers at once, as in torch's tutorial "Implementing
Batch RPC Processing Using Asynchronous Executions": each call returns a future of the updated model."""
import threading

import torch
import torch.distributed.rpc as rpc
from torch import nn, optim

WORLD_SIZE = 4
STEPS = 4


class BatchUpdateParameterServer:
    """The model, and a future of its next values."""

    def __init__(self, batch_update_size):
        torch.manual_seed(5)
        self.model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
        self.lock = threading.Lock()
        self.future_model = torch.futures.Future()
        self.batch_update_size = batch_update_size
        self.curr_update_size = 0
        self.optimizer = optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        for p in self.model.parameters():
            p.grad = torch.zeros_like(p)

    def get_model(self):
        """As it is."""
        return self.model

    @staticmethod
    @rpc.functions.async_execution
    def update_and_fetch_model(ps_rref, grads):
        """The model, once all trainers have sent their gradients of this step."""
        self = ps_rref.local_value()
        with self.lock:
            self.curr_update_size += 1
            for p, g in zip(self.model.parameters(), grads):
                p.grad += g
            fut = self.future_model
            if self.curr_update_size >= self.batch_update_size:
                for p in self.model.parameters():
                    p.grad /= self.batch_update_size
                self.curr_update_size = 0
                self.optimizer.step()
                for p in self.model.parameters():  # another tensor: the last may be on its way
                    p.grad = torch.zeros_like(p)
                fut.set_result(self.model)
                self.future_model = torch.futures.Future()
        return fut


class Trainer:
    """Computes gradients on its own copies of the model."""

    def __init__(self, ps_rref):
        self.ps_rref = ps_rref
        self.loss_fn = nn.MSELoss()
        self.generator = torch.Generator().manual_seed(rpc.get_worker_info().id)

    def get_next_batch(self):
        """Some steps of them."""
        for _ in range(STEPS):
            yield torch.rand(5, 6, generator=self.generator), torch.rand(5, 3, generator=self.generator)

    def train(self):
        """-> the model's values at the end"""
        m = self.ps_rref.rpc_sync().get_model()
        for inputs, labels in self.get_next_batch():
            m.zero_grad()
            self.loss_fn(m(inputs), labels).backward()
            m = rpc.rpc_sync(
                self.ps_rref.owner(),
                BatchUpdateParameterServer.update_and_fetch_model,
                args=(self.ps_rref, [p.grad for p in m.cpu().parameters()]),
            )
        return [float(p.detach().abs().sum()) for p in m.parameters()]


def run_trainer(ps_rref):
    """On a trainer."""
    return Trainer(ps_rref).train()


def run_ps(trainers):
    """-> the values that each trainer has at the end"""
    ps_rref = rpc.RRef(BatchUpdateParameterServer(len(trainers)))
    futs = [rpc.rpc_async(trainer, run_trainer, args=(ps_rref,)) for trainer in trainers]
    return torch.futures.wait_all(futs)


def run_worker(rank, world_size):
    """A parameter server and trainers."""
    options = rpc.TensorPipeRpcBackendOptions(num_worker_threads=16, rpc_timeout=120)
    name = f"trainer{rank}" if rank != 0 else "ps"
    rpc.init_rpc(name, rank=rank, world_size=world_size, rpc_backend_options=options)
    said = run_ps([f"trainer{r}" for r in range(1, world_size)]) if rank == 0 else []
    rpc.shutdown()
    return said
