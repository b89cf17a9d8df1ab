"""An embedding on a parameter server and a dense layer that trainers share by DistributedDataParallel, as in
torch's tutorial "Combining Distributed DataParallel with Distributed RPC Framework"."""
import os

import torch
import torch.distributed as dist
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc
from torch import nn, optim
from torch.distributed.nn import RemoteModule
from torch.distributed.optim import DistributedOptimizer
from torch.distributed.rpc import RRef, TensorPipeRpcBackendOptions
from torch.nn.parallel import DistributedDataParallel as DDP

WORLD_SIZE = 4
NUM_EMBEDDINGS, EMBEDDING_DIM = 20, 6


class Bags(nn.EmbeddingBag):
    """The same start everywhere."""

    def __init__(self, *args, **kwargs):
        torch.manual_seed(1)
        super().__init__(*args, **kwargs)


class HybridModel(nn.Module):
    """The embedding at the server, the dense layer here."""

    def __init__(self, remote_emb_module):
        super().__init__()
        self.remote_emb_module = remote_emb_module
        torch.manual_seed(2)
        self.fc = DDP(nn.Linear(EMBEDDING_DIM, 4))

    def forward(self, indices, offsets):
        emb_lookup = self.remote_emb_module.forward(indices, offsets)
        return self.fc(emb_lookup)


def _run_trainer(remote_emb_module, rank):
    model = HybridModel(remote_emb_module)
    model_parameter_rrefs = model.remote_emb_module.remote_parameters()
    for param in model.fc.parameters():
        model_parameter_rrefs.append(RRef(param))
    opt = DistributedOptimizer(optim.SGD, model_parameter_rrefs, lr=0.05)
    criterion = nn.CrossEntropyLoss()
    generator = torch.Generator().manual_seed(5)
    losses = []
    for step in range(4):
        indices = torch.randint(0, NUM_EMBEDDINGS // 2, (9,), generator=generator) + rank * 10
        offsets = torch.LongTensor([0, 2, 5])
        target = torch.randint(0, 4, (3,), generator=generator)
        with dist_autograd.context() as context_id:
            output = model(indices, offsets)
            loss = criterion(output, target)
            dist_autograd.backward(context_id, [loss])
            opt.step(context_id)
        losses.append(loss.item())
    return losses + model.fc.module.weight.flatten().tolist()


def run_worker(rank, world_size):
    """Two trainers, a master and a parameter server."""
    options = TensorPipeRpcBackendOptions()
    options.init_method = f"tcp://{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    said = []
    if rank == 2:
        rpc.init_rpc("master", rank=rank, world_size=world_size, rpc_backend_options=options)
        remote_emb_module = RemoteModule(
            "ps", Bags, args=(NUM_EMBEDDINGS, EMBEDDING_DIM), kwargs={"mode": "sum"}
        )
        futs = []
        for trainer_rank in [0, 1]:
            futs.append(
                rpc.rpc_async(f"trainer{trainer_rank}", _run_trainer, args=(remote_emb_module, trainer_rank))
            )
        for fut in futs:
            said += fut.wait()
        said += remote_emb_module.get_module_rref().to_here().weight.flatten().tolist()
    elif rank <= 1:
        dist.init_process_group(
            backend="gloo",
            rank=rank,
            world_size=2,
            init_method=f"tcp://{os.environ['MASTER_ADDR']}:{os.environ['DDP_PORT']}",
        )
        rpc.init_rpc(f"trainer{rank}", rank=rank, world_size=world_size, rpc_backend_options=options)
    else:
        rpc.init_rpc("ps", rank=rank, world_size=world_size, rpc_backend_options=options)
    rpc.shutdown()
    if rank <= 1:
        dist.destroy_process_group()
    return said
