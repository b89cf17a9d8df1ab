#!/usr/bin/env python3
"""What torch.optim makes of fixed gradients, for tests/unit/dataplane/optimizer/test_rule_torch.c, which
needs no torch.

    rule_torch.py --write    writes rule_torch.txt beside this script
    rule_torch.py --check    computes it again; fails if a number is another (exit 77 without torch)

Lines: "case NAME OPTIMIZER LEARNING_RATE WEIGHT_DECAY CLIP_VALUE ARG*6", then per recorded step "step N" and
ELEMENTS lines
of two numbers: the weight in double precision, and as torch computes it in single precision. Numbers are
hexadecimal floats. Parameters are single precision numbers, also in the double precision run. Every element
has a gradient in every step.
"""
import pathlib
import struct
import sys

try:
    import torch
except ImportError:
    print("no torch here: nothing compared")
    sys.exit(77)

ELEMENTS = 24
STEPS = (1, 2, 10, 100, 400)
FIRST_VALUES = 1 << 32  # the step that the first values are drawn for
MASK = (1 << 64) - 1
FILE = pathlib.Path(__file__).with_suffix(".txt")

SGD, MOMENTUM, ADAGRAD, ADAM, ADAMW = 1, 2, 3, 5, 6
CASES = (  # name, optimizer, learning rate, weight decay, clip value, arguments
    ("sgd", SGD, 0.1, 0, 0, ()),
    ("sgd_decay_clip", SGD, 0.1, 0.01, 0.7, ()),
    ("momentum", MOMENTUM, 0.05, 0, 0, (0.9,)),
    ("momentum_decay", MOMENTUM, 0.05, 0.02, 0, (0.5,)),
    ("momentum_dampening", MOMENTUM, 0.05, 0.01, 0, (0.9, 0.4)),
    ("nesterov", MOMENTUM, 0.05, 0, 0, (0.9, 0, 1)),
    ("nesterov_decay_clip", MOMENTUM, 0.01, 0.05, 1.5, (0.95, 0, 1)),
    ("adagrad", ADAGRAD, 0.1, 0, 0, (0, 1e-10)),
    ("adagrad_start_decay", ADAGRAD, 0.3, 0.01, 0, (0.1, 1e-6)),
    ("adam", ADAM, 0.001, 0, 0, (0.9, 0.999, 1e-8)),
    ("adam_decay_clip", ADAM, 0.02, 0.1, 1, (0.8, 0.99, 1e-6)),
    ("adam_short_memory", ADAM, 0.01, 0, 0, (0, 0.5, 1e-4)),
    ("adamw", ADAMW, 0.001, 0.01, 0, (0.9, 0.999, 1e-8)),
    ("adamw_strong", ADAMW, 0.05, 0.5, 0, (0.7, 0.95, 1e-8)),
)


def single(x):
    """The single precision number nearest to x."""
    return struct.unpack("f", struct.pack("f", x))[0]


def drawn(step, element):
    """Of [-2, 2), every value exact; sometimes 0, sometimes 16 times as large. The C test draws the same."""
    z = ((step * ELEMENTS + element + 1) * 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ z >> 27) * 0x94D049BB133111EB) & MASK
    z ^= z >> 31
    x = ((z >> 40) - (1 << 23)) * 2.0**-22
    if step != FIRST_VALUES:
        x *= {0: 0.0, 1: 16.0}.get(z & 15, 1.0)
    return x


def make(optimizer, weights, rate, decay, args):
    args = [single(a) for a in args] + [0.0] * (3 - len(args))
    if optimizer == SGD:
        return torch.optim.SGD([weights], lr=rate, weight_decay=decay)
    if optimizer == MOMENTUM:
        return torch.optim.SGD(
            [weights], lr=rate, weight_decay=decay, momentum=args[0], dampening=args[1], nesterov=args[2] == 1
        )
    if optimizer == ADAGRAD:
        return torch.optim.Adagrad(
            [weights], lr=rate, weight_decay=decay, initial_accumulator_value=args[0], eps=args[1]
        )
    kind = torch.optim.Adam if optimizer == ADAM else torch.optim.AdamW
    return kind([weights], lr=rate, weight_decay=decay, betas=(args[0], args[1]), eps=args[2])


def trajectory(case, dtype):
    _, optimizer, rate, decay, bound, args = case
    weights = torch.tensor([drawn(FIRST_VALUES, i) for i in range(ELEMENTS)], dtype=dtype, requires_grad=True)
    opt = make(optimizer, weights, single(rate), single(decay), args)
    found = {}
    for step in range(1, STEPS[-1] + 1):
        weights.grad = torch.tensor([drawn(step, i) for i in range(ELEMENTS)], dtype=dtype)
        if bound > 0:
            torch.nn.utils.clip_grad_value_([weights], single(bound))
        opt.step()
        if step in STEPS:
            found[step] = weights.detach().tolist()
    return found


def text():
    lines = []
    for case in CASES:
        name, optimizer, rate, decay, bound, args = case
        numbers = [rate, decay, bound] + list(args) + [0.0] * (6 - len(args))
        lines.append(f"case {name} {optimizer} " + " ".join(single(x).hex() for x in numbers))
        exact, rounded = trajectory(case, torch.float64), trajectory(case, torch.float32)
        for step in STEPS:
            lines.append(f"step {step}")
            lines += [f"{a.hex()} {b.hex()}" for a, b in zip(exact[step], rounded[step])]
    return "\n".join(lines) + "\n"


def is_same(line, other):
    """Double precision may differ in its last bits between versions of torch; single precision in a few
    units."""
    if not line.startswith(("0x", "-0x")):
        return line == other
    pairs = zip(line.split(), other.split(), (1e-12, 1e-5))
    return all(
        abs(float.fromhex(a) - float.fromhex(b)) <= share * (1 + abs(float.fromhex(a)))
        for a, b, share in pairs
    )


def main():
    torch.set_num_threads(1)
    if sys.argv[1:] == ["--write"]:
        FILE.write_text(text())
        return 0
    if sys.argv[1:] != ["--check"]:
        print(__doc__)
        return 2
    stored, again = FILE.read_text().splitlines(), text().splitlines()
    if len(stored) != len(again):
        print(f"{FILE.name} has {len(stored)} lines, not {len(again)}")
        return 1
    for number, (a, b) in enumerate(zip(stored, again), 1):
        if not is_same(a, b):
            print(f"{FILE.name}:{number}: {a}\nnow {b}")
            return 1
    print(f"{len(CASES)} cases as torch {torch.__version__} has them")
    return 0


if __name__ == "__main__":
    sys.exit(main())
