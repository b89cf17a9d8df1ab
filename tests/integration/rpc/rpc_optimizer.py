#!/usr/bin/env python3
"""What torch.optim makes of the steps of tests/integration/rpc/test_rpc_optimizer.c: two models, two trainers
that take turns, each with an optimizer of its own over both.

    rpc_optimizer.py FLOATS STEPS CASE ...     a CASE is one argument: SGD, Adagrad or Adam of torch.optim,
    and NAME=VALUE for its own

Prints for each case the values of both parameters in the end. Exit 77 without torch.
"""
import sys

try:
    import torch
except ImportError:
    sys.exit(77)

MASK = (1 << 32) - 1


def drawn(stream, element):
    """As line_drawn() of tests/unit/dataplane/rpc/line_model.c."""
    z = (stream * 1009 + element) & MASK
    z = ((z ^ z >> 16) * 0x7FEB352D) & MASK
    z = ((z ^ z >> 15) * 0x846CA68B) & MASK
    return ((z ^ z >> 16) >> 8) * 2.0**-23 - 1.0


def value(text):
    if text in ("True", "False"):
        return text == "True"
    numbers = [float(part) for part in text.split(",")]
    return tuple(numbers) if len(numbers) > 1 else numbers[0]


def train(floats, steps, case):
    optimizer, *words = case.split()
    arguments = {name: value(text) for name, text in (word.split("=") for word in words)}
    models = [
        torch.tensor([drawn(p, i) for i in range(floats)], dtype=torch.double, requires_grad=True)
        for p in range(2)
    ]
    trainers = [getattr(torch.optim, optimizer)(models, **arguments) for _ in range(2)]
    for step in range(steps):
        x = torch.tensor([drawn(100 + step, i) for i in range(floats)], dtype=torch.double)
        t = drawn(100 + step, floats)
        trainer = trainers[step % 2]
        trainer.zero_grad()
        sum((torch.dot(w, x) - t) ** 2 for w in models).backward()
        trainer.step()
    for w in models:
        print(*(f"{v:.9g}" for v in w.tolist()))


for case in sys.argv[3:]:
    train(int(sys.argv[1]), int(sys.argv[2]), case)
