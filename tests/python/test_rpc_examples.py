"""The examples mnist.py (trainers of the C server's model) and parameter_server.py, on pictures made up here,
and calls of a C worker's functions."""
from __future__ import annotations

import os
import re
import struct
import subprocess
import sys

import numpy as np
import pytest
from rpc_world import Started, finish, free_port, start
from torch_programs import TorchProgram, skip_without_torch

skip_without_torch()

EXAMPLES = os.environ["MILLRACE_EXAMPLES"]
SERVER = os.environ.get("MILLRACE_MNIST_SERVER", "")
needs_server = pytest.mark.skipif(
    not os.path.exists(SERVER), reason="the C example is not built: it needs oneDNN"
)


def _write(directory, name: str, count: int, draw: np.random.Generator) -> None:
    labels = draw.integers(0, 10, count, dtype=np.uint8)
    pictures = draw.integers(0, 64, (count, 28, 28), dtype=np.uint8)
    for picture, label in zip(pictures, labels):  # a white square whose place says the class
        row, column = 2 + 13 * (label // 5), 1 + 5 * (label % 5)
        picture[row : row + 9, column : column + 5] = 255
    with open(directory / f"{name}-images-idx3-ubyte", "wb") as file:
        file.write(struct.pack(">4I", 0x803, count, 28, 28) + pictures.tobytes())
    with open(directory / f"{name}-labels-idx1-ubyte", "wb") as file:
        file.write(struct.pack(">2I", 0x801, count) + labels.tobytes())


@pytest.fixture(scope="module")
def pictures(tmp_path_factory) -> str:
    """A directory like MNIST's."""
    directory = tmp_path_factory.mktemp("pictures")
    draw = np.random.default_rng(1)
    _write(directory, "train", 1600, draw)
    _write(directory, "t10k", 200, draw)
    return str(directory)


@pytest.fixture
def run():
    """Starts programs, Python's by forks of a process that has imported torch, unless as users do; those that
    are left are killed."""
    programs: list[Started] = []

    def one(*command: str, as_users_do: bool = False, **environment: str) -> Started:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
        if command[0] == sys.executable and not as_users_do:
            programs.append(TorchProgram([*command[1:]], environment, together=True))
            return programs[-1]
        programs.append(
            subprocess.Popen(
                command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
        )
        return programs[-1]

    yield one
    for program in programs:
        if program.poll() is None:
            program.kill()
            program.communicate()


def example(name: str) -> tuple[str, str]:
    """Its command."""
    return sys.executable, os.path.join(EXAMPLES, name)


@needs_server
@pytest.mark.parametrize("trainers", [1, pytest.param(3, marks=pytest.mark.once)])
def test_mnist_on_the_server_in_c(run, pictures, trainers):
    place = [
        "--world_size",
        str(trainers + 1),
        "--master_addr",
        "127.0.0.1",
        "--master_port",
        str(free_port()),
    ]
    server = run(SERVER, *place, "--rank", "0", "--accuracy", "0.9", "--threads", "2")
    others = [
        run(*example("mnist.py"), *place, "--rank", str(rank), "--data", pictures, as_users_do=trainers == 1)
        for rank in range(1, trainers + 1)
    ]
    said = [finish(program, 300) for program in others]
    assert all(f"Rank {i + 1} training batch 0 loss " in text for i, text in enumerate(said))
    assert sum(": accuracy " in text for text in said) == 1
    assert re.search(rf"mnist: ok accuracy=\S+ images_per_s=\d+ trainers={trainers}\n", finish(server, 300))


@needs_server
@pytest.mark.once
def test_trainers_in_python_and_in_c_together(run, pictures):
    place = ["--world-size", "3", "--master-port", str(free_port())]
    server = run(SERVER, *place, "--rank", "0", "--accuracy", "0.9")
    others = [
        run(*example("mnist.py"), *place, "--rank", "1", "--data", pictures),
        run(SERVER, *place, "--rank", "2", "--data", pictures),
    ]
    for program in others:
        finish(program, 300)
    assert "trainers=2" in finish(server, 300)


@pytest.mark.parametrize("trainers", [1, pytest.param(2, marks=pytest.mark.once)])
def test_the_parameter_server_in_python(run, pictures, trainers):
    place = ["--world-size", str(trainers + 1), "--master-port", str(free_port())]
    how = {"as_users_do": trainers == 1, "MILLRACE_PYTHON_FUNCTIONS": "on"}
    server = run(*example("parameter_server.py"), *place, "--rank", "0", **how)
    others = [
        run(*example("parameter_server.py"), *place, "--rank", str(rank), "--data", pictures, **how)
        for rank in range(1, trainers + 1)
    ]
    accuracies = [float(re.search(r"accuracy (\S+)", finish(program, 400)).group(1)) for program in others]
    assert max(accuracies) >= 0.9  # whoever was done last
    assert "all have left" in finish(server, 300)


def test_examples_say_what_is_wrong(run):
    for name in ("mnist.py", "parameter_server.py"):
        program = run(*example(name), "--help", as_users_do=True)
        assert "--world-size" in finish(program)
    program = run(*example("mnist.py"), "--rank", "1", "--data", "/nonexistent")
    said, _ = program.communicate(timeout=120)
    assert program.returncode == 1 and "scripts/fetch-mnist.sh" in said and "Traceback" not in said
    program = run(*example("mnist.py"), "--rank", "0")
    said, _ = program.communicate(timeout=120)
    assert program.returncode == 2 and "rank 0 is the C program" in said


_CALLS = """
import torch, millrace
import millrace.rpc as rpc, millrace.autograd as dist_autograd
from millrace.optim import DistributedOptimizer
torch.set_num_threads(1)

def expect(kind, part, function, *args, **kwargs):
    try:
        function(*args, **kwargs)
    except kind as error:
        assert part in str(error), str(error)
        return
    raise AssertionError(f"no {{kind}}")

options = rpc.RpcBackendOptions(init_method="tcp://127.0.0.1:{port}")
rpc.init_rpc("trainer_1", rank=1, world_size=2, rpc_backend_options=options)
network, parameter = rpc.rpc_sync(0, "mnist.begin")
assert network.owner_name() == "parameter_server" and not parameter.is_owner()
values = parameter.to_here()
assert values.dtype == torch.float32 and values.numel() >= 1199882
expect(TypeError, "layers.forward", rpc.rpc_sync, 0, "layers.forward", (network, 1))  # WrongSignature is one
expect(millrace.UnknownFunction, "no.such", rpc.rpc_sync, 0, "no.such")
expect(millrace.Unauthorized, "MILLRACE_PYTHON_FUNCTIONS", rpc.rpc_sync, 0, len, ((),))
expect(ValueError, "RMSprop", DistributedOptimizer, torch.optim.RMSprop, [parameter])
SGD = torch.optim.SGD
expect(millrace.FunctionFailed, "parameter 0 is none", DistributedOptimizer, SGD, [network], lr=0.1)

small = rpc.remote(0, "layers.network", ("input 6; linear 6 4", 3))
weights = rpc.rpc_sync(0, "layers.parameter", (small,))
optimizer = DistributedOptimizer(torch.optim.SGD, [weights], lr=0.5)
start = weights.to_here().flatten().clone()  # 24 weights, room up to 32, 4 biases, room
x = torch.rand(5, 6, requires_grad=True)
with dist_autograd.context() as context_id:
    y = rpc.rpc_async(0, "layers.forward", (small, 0, x * 2.0)).wait()
    dist_autograd.backward(context_id, [y.pow(2).sum()])
    found = dist_autograd.get_gradients(context_id)[x]
    optimizer.step(context_id)
local = torch.nn.Linear(6, 4)
with torch.no_grad():
    local.weight.copy_(start[:24].reshape(4, 6))
    local.bias.copy_(start[32:36])
x1 = x.detach().requires_grad_()
z = local(x1 * 2.0)
assert torch.allclose(z, y, atol=1e-5)
z.pow(2).sum().backward()
assert torch.allclose(found, x1.grad, rtol=1e-4, atol=1e-5)
expected = start.clone()
expected[:24] -= 0.5 * local.weight.grad.flatten()
expected[32:36] -= 0.5 * local.bias.grad
assert torch.allclose(weights.to_here().flatten(), expected, rtol=1e-4, atol=1e-5)
assert rpc.rpc_sync(0, "mnist.trained", (7,)) == 0
rpc.rpc_sync(0, "mnist.tested", (1, 1))
rpc.shutdown()
"""


@needs_server
def test_functions_of_a_worker_in_c(run):
    port = free_port()
    server = run(SERVER, "--world-size", "2", "--rank", "0", "--master-port", str(port))
    finish(start(_CALLS.format(port=port)), 120)
    assert "trainers=1" in finish(server)
