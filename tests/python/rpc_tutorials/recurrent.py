"""A recurrent net whose embedding and decoder are on a parameter server, as in torch's tutorial "Getting
Started with Distributed RPC Framework": the trainer passes its input and its LSTM's output to them by their
RRefs."""
import torch
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc
from torch import nn, optim
from torch.distributed.optim import DistributedOptimizer
from torch.distributed.rpc import RRef

WORLD_SIZE = 2
NTOKEN, NINP, NHID, NLAYERS, BATCH, BPTT = 10, 4, 6, 2, 3, 5


def _call_method(method, rref, *args, **kwargs):
    return method(rref.local_value(), *args, **kwargs)


def _remote_method(method, rref, *args, **kwargs):
    args = [method, rref] + list(args)
    return rpc.rpc_sync(rref.owner(), _call_method, args=args, kwargs=kwargs)


def _parameter_rrefs(module):
    return [RRef(param) for param in module.parameters()]


def _draw(weight, seed):
    # Not by torch's own generator: two modules are made at once.
    weight.data.uniform_(-0.1, 0.1, generator=torch.Generator().manual_seed(seed))


class EmbeddingTable(nn.Module):
    """[t, n] -> [t, n, ninp]"""

    def __init__(self, ntoken, ninp, dropout):
        super().__init__()
        self.drop = nn.Dropout(dropout)
        self.encoder = nn.Embedding(ntoken, ninp)
        _draw(self.encoder.weight, 1)

    def forward(self, input):
        return self.drop(self.encoder(input)).cpu()


class Decoder(nn.Module):
    """[t, n, nhid] -> [t, n, ntoken]"""

    def __init__(self, ntoken, nhid, dropout):
        super().__init__()
        self.drop = nn.Dropout(dropout)
        self.decoder = nn.Linear(nhid, ntoken)
        nn.init.zeros_(self.decoder.bias)
        _draw(self.decoder.weight, 2)

    def forward(self, output):
        return self.decoder(self.drop(output))


class RNNModel(nn.Module):
    """An LSTM here, the rest at `ps`."""

    def __init__(self, ps, ntoken, ninp, nhid, nlayers, dropout=0.0):
        super().__init__()
        self.emb_table_rref = rpc.remote(ps, EmbeddingTable, args=(ntoken, ninp, dropout))
        torch.manual_seed(3)
        self.rnn = nn.LSTM(ninp, nhid, nlayers, dropout=dropout)
        self.decoder_rref = rpc.remote(ps, Decoder, args=(ntoken, nhid, dropout))
        self.nhid, self.nlayers = nhid, nlayers

    def forward(self, input, hidden):
        emb = _remote_method(EmbeddingTable.forward, self.emb_table_rref, input)
        output, hidden = self.rnn(emb, hidden)
        decoded = _remote_method(Decoder.forward, self.decoder_rref, output)
        return decoded, hidden

    def parameter_rrefs(self):
        """Of all parts."""
        remote_params = []
        remote_params.extend(_remote_method(_parameter_rrefs, self.emb_table_rref))
        remote_params.extend(_parameter_rrefs(self.rnn))
        remote_params.extend(_remote_method(_parameter_rrefs, self.decoder_rref))
        return remote_params

    def init_hidden(self, bsz):
        """Zeros."""
        shape = (self.nlayers, bsz, self.nhid)
        return torch.zeros(shape), torch.zeros(shape)


def _run_trainer():
    model = RNNModel("ps", NTOKEN, NINP, NHID, NLAYERS)
    hidden = model.init_hidden(BATCH)
    opt = DistributedOptimizer(optim.SGD, model.parameter_rrefs(), lr=0.05)
    criterion = nn.CrossEntropyLoss()
    generator = torch.Generator().manual_seed(4)
    losses = []
    for _ in range(2):
        for _ in range(3):
            data = torch.randint(0, NTOKEN, (BPTT, BATCH), generator=generator)
            target = torch.randint(0, NTOKEN, (BPTT * BATCH,), generator=generator)
            with dist_autograd.context() as context_id:
                hidden[0].detach_()
                hidden[1].detach_()
                output, hidden = model(data, hidden)
                loss = criterion(output.view(-1, NTOKEN), target)
                dist_autograd.backward(context_id, [loss])
                opt.step(context_id)
            losses.append(loss.item())
    table = model.emb_table_rref.to_here()
    return losses + table.encoder.weight.flatten().tolist()


def run_worker(rank, world_size):
    """A parameter server and a trainer."""
    if rank == 1:
        rpc.init_rpc("trainer", rank=rank, world_size=world_size)
        said = _run_trainer()
    else:
        rpc.init_rpc("ps", rank=rank, world_size=world_size)
        said = []
    rpc.shutdown()
    return said
