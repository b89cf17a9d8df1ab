#!/usr/bin/env python3
"""What torch makes of layers and networks, for tests/unit/ps/modules/layers/test_layers_torch.c, which needs
no torch.

    layers_torch.py --write    writes layers_torch.txt beside this script
    layers_torch.py --check    computes it again; fails if a number is another (exit 77 without torch)

A case: "case NAME BATCH RANK DIM*3 STEPS LOSS OPTIMIZER LEARNING_RATE ARG*6 LAYERS", LAYERS lines "layer KIND
INPUTS OUTPUTS KERNEL*2 STRIDE*2 PAD*2 NO_BIAS PROBABILITY", and then tensors: "tensor NAME COUNT EVERY
LARGEST" and of each EVERY-th element a line
of two numbers: in double precision, and as torch computes it in single precision. LARGEST is the largest
magnitude of the whole tensor. Numbers are hexadecimal floats. Inputs and first values of parameters are
drawn(); so are output gradients where LOSS is 0, else it is the negative log likelihood of drawn labels.
"""
import math
import pathlib
import sys

try:
    import numpy
    import torch
    import torch.nn.functional as F
except ImportError:
    print("no torch here: nothing compared")
    sys.exit(77)

FILE = pathlib.Path(__file__).with_suffix(".txt")
INPUT, GRADIENT, LABEL, PARAMETER = (
    1 << 40,
    2 << 40,
    3 << 40,
    4 << 40,
)  # streams of drawn(), and the step or parameter's number
DROP_SEED = 7
ELEMENTS_SHOWN = 24  # about so many of a tensor
CONV2D, LINEAR, RELU, MAX_POOL2D, DROPOUT, FLATTEN, LOG_SOFTMAX = range(1, 8)
SGD, MOMENTUM, ADAGRAD, ADAM = 1, 2, 3, 5
U32, U64 = numpy.uint32, numpy.uint64


def layer(kind, inputs=0, outputs=0, kernel=(0, 0), stride=(0, 0), pad=(0, 0), no_bias=0, probability=0.0):
    return kind, inputs, outputs, *kernel, *stride, *pad, no_bias, probability


def conv2d(inputs, outputs, kernel, stride=(1, 1), pad=(0, 0), no_bias=0):
    return layer(CONV2D, inputs, outputs, kernel, stride, pad, no_bias)


def linear(inputs, outputs, no_bias=0):
    return layer(LINEAR, inputs, outputs, no_bias=no_bias)


def max_pool2d(kernel, stride=None, pad=(0, 0)):
    return layer(MAX_POOL2D, kernel=kernel, stride=stride or kernel, pad=pad)


def dropout(probability):
    return layer(DROPOUT, probability=probability)


RELU_, FLATTEN_, LOG_SOFTMAX_ = layer(RELU), layer(FLATTEN), layer(LOG_SOFTMAX)
CONV_NET = [
    conv2d(1, 32, (3, 3)),
    RELU_,
    conv2d(32, 64, (3, 3)),
    RELU_,
    max_pool2d((2, 2)),
    dropout(0.25),
    FLATTEN_,
    linear(9216, 128),
    RELU_,
    dropout(0.5),
    linear(128, 10),
    LOG_SOFTMAX_,
]
NO_OPTIMIZER = (0, 0.0, ())

CASES = [  # name, layers, sample, batch, steps, with negative log likelihood, optimizer
    ("conv2d", [conv2d(3, 5, (3, 3))], (3, 8, 7), 2, 1, 0, NO_OPTIMIZER),
    ("conv2d_one_channel", [conv2d(1, 32, (3, 3))], (1, 12, 12), 3, 1, 0, NO_OPTIMIZER),
    ("conv2d_wide", [conv2d(32, 48, (3, 3))], (32, 9, 9), 2, 1, 0, NO_OPTIMIZER),
    ("conv2d_stride_pad", [conv2d(4, 6, (5, 3), (2, 1), (2, 1))], (4, 11, 6), 2, 1, 0, NO_OPTIMIZER),
    ("conv2d_no_bias", [conv2d(16, 16, (1, 1), no_bias=1)], (16, 4, 4), 3, 1, 0, NO_OPTIMIZER),
    ("conv2d_whole", [conv2d(2, 3, (4, 4))], (2, 4, 4), 1, 1, 0, NO_OPTIMIZER),
    ("conv2d_relu", [conv2d(3, 20, (3, 3)), RELU_], (3, 9, 9), 2, 1, 0, NO_OPTIMIZER),
    ("linear", [linear(37, 11)], (37,), 5, 1, 0, NO_OPTIMIZER),
    ("linear_no_bias", [linear(64, 32, no_bias=1)], (64,), 1, 1, 0, NO_OPTIMIZER),
    ("linear_relu", [linear(50, 40), RELU_], (50,), 7, 1, 0, NO_OPTIMIZER),
    ("relu", [RELU_], (3, 5, 4), 2, 1, 0, NO_OPTIMIZER),
    ("max_pool2d", [max_pool2d((2, 2))], (3, 8, 6), 2, 1, 0, NO_OPTIMIZER),
    ("max_pool2d_left_over", [max_pool2d((3, 2))], (2, 10, 7), 2, 1, 0, NO_OPTIMIZER),
    ("max_pool2d_overlap_pad", [max_pool2d((3, 3), (2, 2), (1, 1))], (2, 9, 8), 2, 1, 0, NO_OPTIMIZER),
    ("dropout", [dropout(0.25)], (4, 5, 6), 3, 2, 0, NO_OPTIMIZER),
    ("dropout_all", [dropout(1.0)], (9,), 2, 1, 0, NO_OPTIMIZER),
    ("flatten", [FLATTEN_], (2, 3, 4), 2, 1, 0, NO_OPTIMIZER),
    ("log_softmax", [LOG_SOFTMAX_], (10,), 6, 1, 0, NO_OPTIMIZER),
    ("nll_loss", [LOG_SOFTMAX_], (7,), 5, 1, 1, NO_OPTIMIZER),
    (
        "conv_dropout_conv",
        [conv2d(3, 16, (3, 3)), dropout(0.3), RELU_, conv2d(16, 8, (2, 2)), max_pool2d((2, 2)), RELU_],
        (3, 10, 10),
        2,
        1,
        0,
        NO_OPTIMIZER,
    ),
    (
        "conv_relu_pool",
        [conv2d(16, 32, (3, 3)), RELU_, max_pool2d((2, 2))],
        (16, 9, 11),
        3,
        1,
        0,
        NO_OPTIMIZER,
    ),
    ("conv_net_first_half", CONV_NET[:6], (1, 28, 28), 2, 1, 0, NO_OPTIMIZER),
    ("conv_net_momentum", CONV_NET, (1, 28, 28), 8, 3, 1, (MOMENTUM, 0.03, (0.5,))),
    ("conv_net_adagrad", CONV_NET, (1, 28, 28), 4, 3, 1, (ADAGRAD, 0.01, (0.0, 1e-3))),
    ("conv_net_adam", CONV_NET, (1, 28, 28), 4, 3, 1, (ADAM, 0.001, (0.9, 0.999, 1e-3))),
]


def mixed64(z):
    with numpy.errstate(over="ignore"):
        z = z + U64(0x9E3779B97F4A7C15)
        z = (z ^ z >> U64(30)) * U64(0xBF58476D1CE4E5B9)
        z = (z ^ z >> U64(27)) * U64(0x94D049BB133111EB)
    return z ^ z >> U64(31)


def drawn(stream, count):
    """Of [-1, 1), every value exact in single precision. The C test draws the same."""
    z = mixed64(numpy.arange(count, dtype=U64) ^ U64(stream))
    return ((z >> U64(40)).astype(numpy.float64) - (1 << 23)) * 2.0**-23


def mixed32(x):
    with numpy.errstate(over="ignore"):
        x = (x ^ x >> U32(16)) * U32(0x7FEB352D)
        x = (x ^ x >> U32(15)) * U32(0x846CA68B)
    return x ^ x >> U32(16)


def kept(step, number, batch, each, probability):
    """What dropout keeps: docs/layers.md says how it is drawn."""
    mask = numpy.zeros((batch, each), dtype=bool)
    key = mixed64(mixed64(numpy.array([DROP_SEED], dtype=U64)) ^ U64(step))
    for sample in range(batch):
        z = mixed64(key ^ U64(number << 32 | sample))
        first, second = (z & U64(0xFFFFFFFF)).astype(U32), (z >> U64(32)).astype(U32)
        with numpy.errstate(over="ignore"):
            bits = mixed32(mixed32(numpy.arange(each, dtype=U32) ^ first) + second)
        mask[sample] = bits.astype(numpy.float64) >= math.floor(numpy.float32(probability) * 2.0**32)
    return mask


def apply(layers, parameters, x, step):
    parameters = iter(parameters)
    for number, (kind, _, _, kh, kw, sh, sw, ph, pw, no_bias, probability) in enumerate(layers):
        if kind == CONV2D:
            x = F.conv2d(x, next(parameters), None if no_bias else next(parameters), (sh, sw), (ph, pw))
        elif kind == LINEAR:
            x = F.linear(x, next(parameters), None if no_bias else next(parameters))
        elif kind == RELU:
            x = F.relu(x)
        elif kind == MAX_POOL2D:
            x = F.max_pool2d(x, (kh, kw), (sh, sw), (ph, pw))
        elif kind == DROPOUT:
            mask = torch.from_numpy(kept(step, number, len(x), x[0].numel(), probability)).reshape(x.shape)
            x = x * mask.to(x.dtype) * (1 / (1 - probability) if probability < 1 else 0.0)
        elif kind == FLATTEN:
            x = torch.flatten(x, 1)
        elif kind == LOG_SOFTMAX:
            x = F.log_softmax(x, 1)
    return x


def first_parameters(layers, dtype):
    made = []
    for kind, inputs, outputs, kh, kw, _, _, _, _, no_bias, _ in layers:
        if kind not in (CONV2D, LINEAR):
            continue
        shape = (outputs, inputs, kh, kw) if kind == CONV2D else (outputs, inputs)
        fan_in = math.prod(shape[1:])
        for s in [shape] if no_bias else [shape, (outputs,)]:
            scale = 2.0 ** -round(math.log2(fan_in) / 2)
            values = drawn(PARAMETER + len(made), math.prod(s)) * scale
            made.append(torch.from_numpy(values).to(dtype).reshape(s).requires_grad_())
    return made


def optimizer_of(number, rate, args, parameters):
    if number == MOMENTUM:
        return torch.optim.SGD(parameters, rate, momentum=args[0])
    if number == ADAGRAD:
        return torch.optim.Adagrad(parameters, rate, initial_accumulator_value=args[0], eps=args[1])
    if number == ADAM:
        return torch.optim.Adam(parameters, rate, args[:2], eps=args[2])
    return None


def run(case, dtype):
    """Names and tensors."""
    _, layers, sample, batch, steps, has_loss, (number, rate, args) = case
    parameters = first_parameters(layers, dtype)
    optimizer = optimizer_of(number, rate, args, parameters)
    for step in range(1, steps + 1):
        x = torch.from_numpy(drawn(INPUT + step, batch * math.prod(sample))).to(dtype)
        x = x.reshape(batch, *sample).requires_grad_()
        y = apply(layers, parameters, x, step)
        yield f"{step}.output", y
        for p in parameters:
            p.grad = None
        if has_loss:
            labels = numpy.floor((drawn(LABEL + step, batch) + 1) / 2 * y.shape[1]).astype(numpy.int64)
            loss = F.nll_loss(y, torch.from_numpy(labels))
            yield f"{step}.loss", loss.reshape(1)
            loss.backward()
        else:
            y.backward(torch.from_numpy(drawn(GRADIENT + step, y.numel())).to(dtype).reshape(y.shape))
        yield f"{step}.input_gradient", x.grad
        for i, p in enumerate(parameters):
            yield f"{step}.gradient.{i}", p.grad
        if optimizer is not None:
            optimizer.step()
    if optimizer is not None:
        for i, p in enumerate(parameters):
            yield f"values.{i}", p


def words(values):
    return " ".join(float(v).hex() for v in values)


def lines():
    for case in CASES:
        name, layers, sample, batch, steps, has_loss, (number, rate, args) = case
        dims = [*sample, 0, 0][:3]
        yield (
            f"case {name} {batch} {len(sample)} {dims[0]} {dims[1]} {dims[2]} {steps} {has_loss} {number} "
            f"{words([rate, *args, *[0.0] * (6 - len(args))])} {len(layers)}"
        )
        for made in layers:
            yield f"layer {' '.join(map(str, made[:-1]))} {words(made[-1:])}"
        for (tensor, exact), (_, single) in zip(run(case, torch.float64), run(case, torch.float32)):
            exact, single = exact.detach().reshape(-1), single.detach().reshape(-1)
            every = max(1, len(exact) // ELEMENTS_SHOWN) | 1
            yield f"tensor {tensor} {len(exact)} {every} {words([exact.abs().max()])}"
            for i in range(0, len(exact), every):
                yield words([exact[i], single[i]])


def differs(a, b):
    """Numbers that another machine computes in another order."""
    a, b = a.split(), b.split()
    if len(a) != len(b):
        return True
    for v, w in zip(a, b):
        if v != w and not (
            "0x" in v
            and "0x" in w
            and math.isclose(float.fromhex(v), float.fromhex(w), rel_tol=1e-4, abs_tol=1e-6)
        ):
            return True
    return False


def main():
    if sys.argv[1:] == ["--write"]:
        FILE.write_text("\n".join(lines()) + "\n", encoding="ascii")
        return
    if sys.argv[1:] != ["--check"]:
        sys.exit(__doc__)
    stored, made = FILE.read_text(encoding="ascii").splitlines(), list(lines())
    wrong = [i for i, (a, b) in enumerate(zip(stored, made), 1) if differs(a, b)]
    if wrong or len(stored) != len(made):
        sys.exit(
            f"{FILE.name}: {len(wrong)} lines of {len(stored)} differ from the {len(made)} of torch "
            f"{torch.__version__}, "
            f"the first is {wrong[:1]}"
        )
    print(f"{FILE.name}: as torch {torch.__version__} has it")


if __name__ == "__main__":
    main()
