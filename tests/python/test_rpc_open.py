"""A world without a world_size: workers join and leave one by one."""
from __future__ import annotations

import os

import pytest

torch = pytest.importorskip("torch")

import rpc_functions as there  # noqa: E402
from rpc_world import HERE, finish, free_port, key_file, start  # noqa: E402

import millrace  # noqa: E402
import millrace.autograd as dist_autograd  # noqa: E402
import millrace.rpc as rpc  # noqa: E402

_JOINS = """
import sys
sys.path.insert(0, {here!r})
import torch
import rpc_functions
import millrace.rpc as rpc
rpc.init_rpc({name!r}, rank={rank}, rpc_backend_options=rpc.RpcBackendOptions(
    init_method="tcp://127.0.0.1:{port}", allow_python_functions=True, key_file={key!r}, init_timeout_s=300))
assert rpc.rpc_sync("w0", rpc_functions.my_name) == "w0"
for other in {calls!r}:
    assert rpc.rpc_sync(other, rpc_functions.my_name) == other
print("joined", flush=True)
rpc_functions.sleep(300)
rpc.shutdown()
"""


def test_workers_join_and_leave(tmp_path, monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    port, key, programs = free_port(), key_file(tmp_path), []

    def add(name: str, rank: int, calls: tuple[str, ...] = ()):
        programs.append(
            start(_JOINS.format(here=HERE, name=name, rank=rank, port=port, key=key, calls=calls))
        )
        assert programs[-1].stdout.readline() == "joined\n"
        return programs[-1]

    try:
        rpc.init_rpc(
            "w0",
            rank=0,
            rpc_backend_options=rpc.RpcBackendOptions(
                init_method=f"tcp://127.0.0.1:{port}", allow_python_functions=True, key_file=key
            ),
        )
        with pytest.raises(millrace.UnknownWorker, match="w1"):
            rpc.rpc_sync("w1", there.nothing)
        first = add("w1", 1)
        kept = rpc.remote("w1", there.Counter, (5,))
        assert kept.rpc_sync().add(2) == 7 and kept.owner() == rpc.WorkerInfo("w1", 1)
        second = add("w2", 5, ("w1",))
        assert rpc.rpc_sync("w1", there.relay, ("w2", there.my_name)) == "w2"
        p = torch.nn.Parameter(torch.tensor([2.0]))
        with dist_autograd.context() as context_id:
            dist_autograd.backward(context_id, [rpc.rpc_sync("w1", there.relay, (5, torch.mul, p, p)).sum()])
            assert dist_autograd.get_gradients(context_id)[p].item() == 4.0
        rpc.rpc_sync("w1", there.wake)
        finish(first)
        with pytest.raises(millrace.WorkerDied, match="has left the world"):
            rpc.rpc_sync("w1", there.nothing)
        with pytest.raises(millrace.UnknownWorker, match="rank 3"):
            rpc.rpc_sync(3, there.nothing)
        third = add("w1", 2, ("w2",))
        assert rpc.get_worker_info("w1").id == 2 and rpc.rpc_sync("w2", there.relay, ("w1", os.getpid)) > 0
        for name, program in (("w1", third), ("w2", second)):
            rpc.rpc_sync(name, there.wake)
            finish(program)
        rpc.shutdown()
    finally:
        for program in programs:
            program.kill()
            program.communicate()
