#!/usr/bin/env python3
"""Random graphs over several workers, and the gradients that torch finds, for test_autograd.c.

    autograd_torch.py WORLD_SIZE GRAPHS SEED

prints, for each graph, tokens: "graph LEAVES OPS PASSES", then
    "leaf ROWS COLS VALUES..."
    "op HOW RANK OVER NAME INPUTS id... OUTPUTS": how and where it runs, see HOW; ids count leaves first, then
    outputs as they come "pass RETAIN LOSSES id..."
    "gradient ID HAS [VALUES...]" for each leaf, after all passes, in double precision
and "end". Exit 77 without torch.
"""
import random
import sys

try:
    import torch
except ImportError:
    print("no torch here: nothing compared")
    sys.exit(77)

APPLY, CALL, NESTED, KEEP = range(
    4
)  # here; on RANK; on RANK, called by OVER; on RANK, where its result stays
SIZE = 4
FULL, HALF, SCALAR = (SIZE, SIZE), (SIZE // 2, SIZE), ()

OPS = {  # name: what it does, shapes of its inputs (None: any, the same for all)
    "add": (lambda a, b: (a + b,), None, 2),
    "mul": (lambda a, b: (a * b,), None, 2),
    "tanh": (lambda a: (a.tanh(),), None, 1),
    "sigmoid": (lambda a: (a.sigmoid(),), None, 1),
    "matmul": (lambda a, b: (a @ b,), (None, FULL), 2),
    "chunk": (lambda a: a.chunk(2), (FULL,), 1),
    "concat": (lambda a, b: (torch.cat((a, b)),), (HALF, HALF), 2),
    "pair": (lambda a, b: (a.tanh(), b.sigmoid()), (None, None), 2),
}
NAMES = ["add", "mul", "tanh", "tanh", "sigmoid", "matmul", "chunk", "concat", "pair"]


class Graph:
    def __init__(self, draw, world_size):
        self.draw, self.world_size = draw, world_size
        self.values, self.owner = [], []  # owner: the rank where a value stayed; None: it is at hand
        self.lines = []
        self.leaves = draw.randint(2, 4)
        for _ in range(self.leaves):
            shape = draw.choice((FULL, FULL, HALF))
            value = torch.tensor(
                [[draw.uniform(-1, 1) for _ in range(shape[1])] for _ in range(shape[0])]
            ).float()
            self.lines.append(
                f"leaf {shape[0]} {shape[1]} " + " ".join(v.hex() for v in value.flatten().tolist())
            )
            self.values.append(value.double().requires_grad_())
            self.owner.append(None)
        self.ops = 0

    def pick(self, shape, owner):
        """A value of that shape that an op which runs on `owner` can have; any, if owner is None, that is at
        hand."""
        ids = [
            i
            for i, v in enumerate(self.values)
            if v.dim() == 2 and shape in (None, tuple(v.shape)) and self.owner[i] in (None, owner)
        ]
        return self.draw.choice(ids) if ids else None

    def run(self, name, inputs, how, rank, over):
        self.lines.append(f"op {how} {rank} {over} {name} {len(inputs)} " + " ".join(map(str, inputs)))
        results = (
            OPS[name][0](*(self.values[i] for i in inputs))
            if name in OPS
            else (self.values[inputs[0]].mean(),)
        )
        self.lines[-1] += f" {len(results)}"
        for result in results:
            self.values.append(result)
            self.owner.append(rank if how == KEEP else None)
        self.ops += 1
        return len(self.values) - 1

    def place(self, outputs):
        how = self.draw.choice((APPLY, CALL, CALL, NESTED, KEEP if outputs == 1 else CALL))
        return (
            how,
            0 if how == APPLY else self.draw.randrange(self.world_size),
            self.draw.randrange(self.world_size),
        )

    def step(self):
        name = self.draw.choice(NAMES)
        _, shapes, count = OPS[name]
        how, rank, over = self.place(2 if name in ("chunk", "pair") else 1)
        owner = None if how == APPLY else rank
        first = self.pick(shapes[0] if shapes else None, owner)
        if first is None:
            return
        inputs = [first]
        if count == 2:
            second = self.pick(shapes[1] if shapes else tuple(self.values[first].shape), owner)
            if second is None:
                return
            inputs.append(second)
        self.run(name, inputs, how, rank, over)

    def loss(self):
        at = self.draw.choice(
            [
                i
                for i, v in enumerate(self.values)
                if v.dim() == 2 and (i >= self.leaves or len(self.values) < 6)
            ]
        )
        how, rank, over = self.place(2)
        if self.owner[at] is not None:
            how, rank = self.draw.choice((CALL, NESTED)), self.owner[at]
        return self.run("mean", [at], how, rank, over)

    def text(self):
        for _ in range(self.draw.randint(3, 25)):
            self.step()
        passes = self.draw.randint(1, 3)
        losses = [[self.loss() for _ in range(self.draw.randint(1, 3))] for _ in range(passes)]
        for number, ids in enumerate(losses):
            retain = number + 1 < passes
            torch.autograd.backward([self.values[i] for i in ids], retain_graph=retain)
            self.lines.append(f"pass {int(retain)} {len(ids)} " + " ".join(map(str, ids)))
        for i in range(self.leaves):
            gradient = self.values[i].grad
            numbers = [] if gradient is None else [v.hex() for v in gradient.flatten().tolist()]
            self.lines.append(f"gradient {i} {int(gradient is not None)} " + " ".join(numbers))
        return f"graph {self.leaves} {self.ops} {passes}\n" + "\n".join(self.lines) + "\n"


def main():
    world_size, graphs, seed = map(int, sys.argv[1:])
    draw = random.Random(seed)
    sys.stdout.write("".join(Graph(draw, world_size).text() for _ in range(graphs)) + "end\n")


main()
