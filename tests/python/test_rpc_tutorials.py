"""Programs after torch's tutorials of remote calls, by torch.distributed.rpc and with only their imports
changed: both come to the same."""
from __future__ import annotations

import json
import os
import socket

import pytest
from rpc_world import HERE, finish, key_file
from torch_programs import TorchProgram, skip_without_torch

skip_without_torch()

WORKERS = {
    "parameter_server": 3,
    "remote_module": 2,
    "reinforcement": 3,
    "recurrent": 2,
    "batch_update": 4,
    "batch_actions": 3,
    "pipeline": 3,
    "ddp_rpc": 4,
    "ddp_modes": 3,
}


def _free_ports(count: int) -> list[str]:
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_STREAM) for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [str(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return ports


def _start(backend: str, names: list[str], directory: str) -> list[TorchProgram]:
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MILLRACE_PYTHON_FUNCTIONS": "on",
        "MILLRACE_KEY_FILE": key_file(directory),
        "TUTORIALS_MEET": directory,
        "GLOO_SOCKET_IFNAME": "lo",
        "TP_SOCKET_IFNAME": "lo",
        "USE_LIBUV": "0",  # which Debian's torch is built without, and takes for there from 2.4 on
    }
    ports = _free_ports(2 * len(names))
    wanted = [f"{name}:{ports[2 * i]}:{ports[2 * i + 1]}" for i, name in enumerate(names)]
    script = os.path.join(HERE, "rpc_tutorials", "run.py")
    return [
        TorchProgram([script, backend, str(rank), *wanted], environment, together=True)
        for rank in range(max(WORKERS[name] for name in names))
    ]


def _ended(workers: list[TorchProgram]) -> dict[str, list[float]]:
    """What each program came to, all its workers in a row."""
    came_to: dict[str, list[float]] = {}
    try:
        for worker in workers:
            line = finish(worker).rpartition("came to ")[2].partition("\n")[0]
            for name, numbers in json.loads(line).items():
                came_to.setdefault(name, []).extend(_flat(numbers or []))
    finally:
        for worker in workers:
            worker.kill()
    return came_to


def _flat(numbers) -> list[float]:
    return [x for some in numbers for x in (_flat(some) if isinstance(some, list) else [some])]


@pytest.fixture(scope="module")
def by_millrace(tmp_path_factory) -> dict[str, list[float]]:
    """All programs, in the same processes."""
    return _ended(_start("millrace", list(WORKERS), str(tmp_path_factory.mktemp("millrace"))))


@pytest.mark.parametrize("name", WORKERS)
def test_the_same_with_changed_imports(name, by_millrace, tmp_path):
    by_torch = _ended(_start("torch", [name], str(tmp_path)))[name]
    assert by_torch
    assert by_millrace[name] == pytest.approx(by_torch, rel=1e-5, abs=1e-6)
