"""A world for tests of remote calls: the test's own process is rank 0, the others are processes that only
serve."""
from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from typing import Iterator, Union

from torch_programs import TorchProgram

Started = Union[subprocess.Popen, TorchProgram]

HERE = os.path.dirname(os.path.abspath(__file__))
_SERVE = """
import sys
sys.path.insert(0, {here!r})
import torch
torch.set_num_threads(1)
import rpc_functions
import millrace.rpc as rpc
rpc.init_rpc("w{rank}", rank={rank}, world_size={world_size}, rpc_backend_options=rpc.RpcBackendOptions(
    init_method="tcp://127.0.0.1:{port}", allow_python_functions={python}, key_file={key!r},
    init_timeout_s=300))
rpc.shutdown()
"""


def free_port() -> int:
    """On loopback, free a moment ago."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(script: str, as_users_do: bool = False, **environment: str) -> Started:
    """A Python program; its stdout and stderr are in finish(). It is a fork of a process that has imported
    torch, or started as users do."""
    environment = {**os.environ, **environment}
    if not as_users_do:
        return TorchProgram(["-c", script], environment, together=True)
    return subprocess.Popen(
        [sys.executable, "-c", script],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(program: Started, timeout_s: float = 300) -> str:
    """What it said, once it has ended with exit code 0."""
    try:
        said, _ = program.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        program.kill()
        said, _ = program.communicate()
        raise AssertionError(f"it did not end in {timeout_s} s, and said:\n{said}") from None
    assert program.returncode == 0, f"exit code {program.returncode}:\n{said}"
    return said


def key_file(directory) -> str:
    """A key."""
    path = os.path.join(str(directory), "key")
    with open(path, "w", encoding="ascii") as file:
        file.write("00112233445566778899aabbccddeeff" * 2 + "\n")
    os.chmod(path, 0o600)
    return path


class Servers:
    """Ranks 1 and on, which leave when this process does."""

    def __init__(self, world_size: int, key: str | None, python: bool = True, first: int = 1) -> None:
        self.port = free_port()
        self.programs = [
            start(
                _SERVE.format(
                    here=HERE, rank=rank, world_size=world_size, port=self.port, python=python, key=key
                )
            )
            for rank in range(first, world_size)
        ]

    def finish(self) -> None:
        """All have left well."""
        for program in self.programs:
            finish(program)

    def kill(self) -> None:
        """Whoever is left."""
        for program in self.programs:
            if program.poll() is None:
                program.kill()
            program.communicate()


@contextlib.contextmanager
def joined(world_size: int, directory, **options) -> Iterator[None]:
    """This process as w0, with these options, beside servers with Python functions; all leave well at the
    end. directory: for the key."""
    from millrace import rpc

    key = key_file(directory)
    servers = Servers(world_size, key)
    try:
        rpc.init_rpc(
            "w0",
            rank=0,
            world_size=world_size,
            rpc_backend_options=rpc.RpcBackendOptions(
                init_method=f"tcp://127.0.0.1:{servers.port}",
                key_file=key,
                allow_python_functions=True,
                init_timeout_s=300,
                **options,
            ),
        )
        yield
        rpc.shutdown(timeout=120)
        servers.finish()
    finally:
        servers.kill()
