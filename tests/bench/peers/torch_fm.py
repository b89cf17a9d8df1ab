#!/usr/bin/env python3
"""The demo's factorization machine on the flights, trained through PyTorch's RPC: a parameter server and two
trainers, for peers.py.

usage: torch_fm.py autograd|plain|ahead --rank 0|1|2 --master-addr HOST [--interface NAME] [--lines N]
[--workers N]

autograd: an EmbeddingBag at the server, whose forward trainers call in contexts of distributed autograd, with
a DistributedOptimizer.
plain: rpc_sync pulls of rows summed by slot and rpc_sync pushes of their gradients. ahead: the same, but a
batch's rows are asked for while the one before is computed, and pushes are not waited for until two more are
in flight. Rank 0 serves and says "ready". Trainers print a line of JSON; rank 1's has AUC and log loss of the
held-out part at the end. The same model, slots, batches of 512, split and two passes as `fm train`, and
Adagrad with its rates. Weight decay as there, but for
autograd: torch's Adagrad refuses it for sparse gradients.
"""
import argparse
import collections
import json
import pathlib
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import torch_rpc  # noqa: E402

BATCH, EPOCHS, TRAINERS, AHEAD = 512, 2, 2, 2
FACTORS, RATE, ACCUMULATOR, EPSILON, DECAY, DEVIATION = 8, 0.05, 0.5, 1e-8, 0.05, 0.01
SERVER = "server"


class Server:
    """What trainers call. Keys are i64 [samples, slots]; rows f32 [samples, slots, 9]: a first-order weight,
    then 8 factors."""

    lock, together = threading.Lock(), threading.Barrier(TRAINERS)
    bag = bias = squares = bias_square = None

    @classmethod
    def make(cls, keys):
        import torch

        with cls.lock:
            if cls.bag is not None:
                return
            torch.manual_seed(1)
            cls.bag = torch.nn.EmbeddingBag(keys, 1 + FACTORS, mode="sum", sparse=True)
            torch.nn.init.normal_(cls.bag.weight, std=DEVIATION)
            cls.bias = torch.nn.Parameter(torch.zeros(1))
            cls.squares = torch.full_like(cls.bag.weight, ACCUMULATOR, requires_grad=False)
            cls.bias_square = torch.full((1,), ACCUMULATOR)

    @classmethod
    def meet(cls):
        cls.together.wait()

    @classmethod
    def parameters(cls):
        import torch.distributed.rpc as rpc

        return [rpc.RRef(cls.bag.weight), rpc.RRef(cls.bias)]

    @classmethod
    def forward(cls, keys):
        samples, slots = keys.shape
        return cls.bag(keys.view(-1, 1)).view(samples, slots, -1), cls.bias + 0

    @classmethod
    def pull(cls, keys):
        import torch

        with torch.no_grad():
            return cls.forward(keys)

    @classmethod
    def push(cls, keys, gradients, bias_gradient):
        """Adagrad on the keys' rows; repeated keys are summed first."""
        import torch

        with torch.no_grad(), cls.lock:
            distinct, places = torch.unique(keys.view(-1), return_inverse=True)
            total = torch.zeros(len(distinct), 1 + FACTORS).index_put_(
                (places,), gradients.view(-1, 1 + FACTORS), accumulate=True
            )
            rows = cls.bag.weight.index_select(0, distinct)
            total.add_(rows, alpha=DECAY)
            squares = cls.squares.index_select(0, distinct).addcmul_(total, total)
            cls.squares.index_copy_(0, distinct, squares)
            cls.bag.weight.index_copy_(
                0, distinct, rows.addcdiv_(total, squares.sqrt_().add_(EPSILON), value=-RATE)
            )
            cls.bias_square += bias_gradient * bias_gradient
            cls.bias -= RATE * bias_gradient / (cls.bias_square.sqrt() + EPSILON)


def scores(rows, bias):
    factors = rows[:, :, 1:]
    total = factors.sum(1)
    return bias + rows[:, :, 0].sum(1) + 0.5 * ((total * total).sum(1) - (factors * factors).sum((1, 2)))


class Trainer:
    def __init__(self, rpc, mode, keys, labels):
        import torch

        self.rpc, self.mode, self.torch = rpc, mode, torch
        self.keys, self.labels = torch.from_numpy(keys), torch.from_numpy(labels)
        self.pushes = collections.deque()
        if mode == "autograd":
            from torch.distributed.optim import DistributedOptimizer

            self.optimizer = DistributedOptimizer(
                torch.optim.Adagrad,
                rpc.rpc_sync(SERVER, Server.parameters),
                lr=RATE,
                initial_accumulator_value=ACCUMULATOR,
                eps=EPSILON,
            )

    def batches(self, train, rank):
        """This trainer's places in the shuffled training part: every other batch of each pass."""
        for epoch in range(EPOCHS):
            order = self.torch.from_numpy(train)[
                self.torch.randperm(len(train), generator=self.torch.Generator().manual_seed(epoch))
            ]
            yield from order.split(BATCH)[rank::TRAINERS]

    def loss(self, rows, bias, labels):
        return self.torch.nn.functional.binary_cross_entropy_with_logits(
            scores(rows, bias), labels, reduction="sum"
        )

    def step_autograd(self, places):
        import torch.distributed.autograd as dist_autograd

        with dist_autograd.context() as context:
            rows, bias = self.rpc.rpc_sync(SERVER, Server.forward, (self.keys[places],))
            dist_autograd.backward(context, [self.loss(rows, bias, self.labels[places])])
            self.optimizer.step(context)

    def gradients(self, places, rows, bias):
        rows.requires_grad_()
        bias.requires_grad_()
        self.loss(rows, bias, self.labels[places]).backward()
        return rows.grad, bias.grad

    def step_plain(self, places):
        keys = self.keys[places]
        gradients = self.gradients(places, *self.rpc.rpc_sync(SERVER, Server.pull, (keys,)))
        self.rpc.rpc_sync(SERVER, Server.push, (keys, *gradients))

    def run(self, batches):
        """Samples that were learnt."""
        samples = 0
        if self.mode == "ahead":
            return self.run_ahead(batches)
        step = self.step_autograd if self.mode == "autograd" else self.step_plain
        for places in batches:
            step(places)
            samples += len(places)
        return samples

    def finish(self, asked):
        places, keys, rows = asked.popleft()
        self.pushes.append(
            self.rpc.rpc_async(SERVER, Server.push, (keys, *self.gradients(places, *rows.wait())))
        )
        if len(self.pushes) > AHEAD:
            self.pushes.popleft().wait()
        return len(places)

    def run_ahead(self, batches):
        asked, samples = collections.deque(), 0
        for places in batches:
            keys = self.keys[places]
            asked.append((places, keys, self.rpc.rpc_async(SERVER, Server.pull, (keys,))))
            if len(asked) > AHEAD:
                samples += self.finish(asked)
        while asked:
            samples += self.finish(asked)
        while self.pushes:
            self.pushes.popleft().wait()
        return samples

    def evaluate(self, places):
        """AUC and log loss."""
        import flights

        found = []
        with self.torch.no_grad():
            for part in self.torch.from_numpy(places).split(8 * BATCH):
                found.append(scores(*self.rpc.rpc_sync(SERVER, Server.pull, (self.keys[part],))))
            all_scores, labels = self.torch.cat(found), self.labels[places]
            loss = self.torch.nn.functional.binary_cross_entropy_with_logits(all_scores, labels)
        return float(flights.auc(all_scores.numpy(), labels.numpy())), float(loss)


def train(rpc, mode, rank, lines):
    import flights

    keys, labels, held_out, key_count = flights.read(lines)
    rpc.rpc_sync(SERVER, Server.make, (key_count,))
    trainer = Trainer(rpc, mode, keys, labels)
    train_places = (~held_out).nonzero()[0]
    batches = trainer.batches(train_places, rank - 1)
    rpc.rpc_sync(SERVER, Server.meet, timeout=0)
    start = time.perf_counter()
    samples = trainer.run(batches)
    seconds = time.perf_counter() - start
    rpc.rpc_sync(SERVER, Server.meet, timeout=0)
    line = {
        "name": "torch_fm",
        "samples": samples,
        "seconds": seconds,
        "value": samples / seconds,
        "unit": "samples/s",
        "keys": key_count,
        "train_samples": len(train_places),
        "held_out": int(held_out.sum()),
    }
    if rank == 1:
        line["auc"], line["logloss"] = trainer.evaluate(held_out.nonzero()[0])
    print(json.dumps(line), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("mode", choices=["autograd", "plain", "ahead"])
    torch_rpc.add_arguments(parser, 1 + TRAINERS)
    parser.add_argument("--lines", type=int, help="of the data (default: all)")
    parser.add_argument("--workers", type=int, default=16, help="threads that run calls")
    arguments = parser.parse_args()
    torch_rpc.use_interface(arguments.interface)
    import torch
    import torch.distributed.rpc as rpc

    torch.set_num_threads(arguments.threads)
    if arguments.rank == 0:
        print("ready", flush=True)
    options = torch_rpc.options_of(rpc, arguments, num_worker_threads=arguments.workers)
    name = SERVER if arguments.rank == 0 else f"trainer{arguments.rank}"
    rpc.init_rpc(name, rank=arguments.rank, world_size=1 + TRAINERS, rpc_backend_options=options)
    if arguments.rank > 0:
        train(rpc, arguments.mode, arguments.rank, arguments.lines)
        if arguments.rank == 1:
            print(json.dumps(torch_rpc.settings_of(torch, arguments, options)), flush=True)
    rpc.shutdown()


if __name__ == "__main__":
    main()
