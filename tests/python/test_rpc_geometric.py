"""PyTorch Geometric's distributed/rpc.py, as it is on PyPI and with its imports changed, between two workers:
its router, its registered calls, its barrier and its gathering."""
from __future__ import annotations

import importlib.util
import os

import pytest
from rpc_world import HERE, finish, free_port, key_file, start
from torch_programs import skip_without_torch

skip_without_torch()
if importlib.util.find_spec("torch_geometric") is None:
    pytest.skip("there is no torch_geometric: scripts/torch2.py installs it", allow_module_level=True)

# Its two modules alone: the whole package needs others that remote calls do not.
_WORKER = """
import os, sys, types
sys.path.insert(0, {here!r})
import torch
torch.set_num_threads(1)
import millrace.rpc

def load(name, *changes):
    with open(os.path.join({directory!r}, name + ".py"), encoding="utf-8") as file:
        source = file.read()
    for old, new in changes:
        assert old in source, old
        source = source.replace(old, new)
    path = "torch_geometric.distributed." + name
    module = sys.modules[path] = types.ModuleType(path)
    exec(compile(source, name, "exec"), module.__dict__)
    return module

for package in ("torch_geometric", "torch_geometric.distributed"):
    sys.modules[package] = types.ModuleType(package)
context = load("dist_context")
rpc = load(
    "rpc",
    ("from torch.distributed import rpc", "from millrace import rpc"),
    ("from torch._C._distributed_rpc import", "from millrace.rpc.api import"),
)
rank = {rank}
own = context.DistContext(
    rank=rank, global_rank=rank, world_size=2, global_world_size=2, group_name="sampler"
)
assert not rpc.rpc_is_initialized()
try:
    rpc.global_barrier()
except RuntimeError:
    pass
else:
    raise AssertionError("a barrier without a world")
rpc.init_rpc(own, "127.0.0.1", {port}, num_rpc_threads=4)
assert rpc.rpc_is_initialized()
rpc.init_rpc(own, "127.0.0.1", {port})  # nothing, since it is
assert rpc.global_all_gather(("of", rank)) == {{"sampler-0": ("of", 0), "sampler-1": ("of", 1)}}
assert rpc.global_all_gather(torch.full((3,), rank), timeout=100)["sampler-1"].tolist() == [1, 1, 1]

class Features(rpc.RPCCallBase):
    def __init__(self):
        self.rows = torch.arange(10.0).reshape(5, 2) + 100 * rank

    def rpc_sync(self, keys):
        return self.rows[keys]

    def rpc_async(self, keys, scale=1):
        return self.rows[keys] * scale

call = rpc.rpc_register(Features())
router = rpc.RPCRouter(rpc.rpc_partition_to_workers(own, num_partitions=2, current_partition_idx=1 - rank))
assert router.partition_to_workers == [["sampler-1"], ["sampler-0"]]
keys = torch.tensor([4, 0, 2])
for partition in (0, 1):
    rows = torch.arange(10.0).reshape(5, 2)[keys] + 100 * (1 - partition)
    owner = router.get_to_worker(partition)
    assert torch.equal(rpc.rpc_sync(owner, call, args=(keys,)), rows)
    future = rpc.rpc_async(owner, call, args=(keys,), kwargs={{"scale": 3}})
    twice = future.then(lambda done: done.value() * 2)
    assert torch.equal(future.wait(), rows * 3) and torch.equal(twice.wait(), rows * 6)
for _ in range(20):
    rpc.global_barrier()
rpc.shutdown_rpc("sampler")
assert not rpc.rpc_is_initialized()
rpc.shutdown_rpc("sampler")
"""


def test_its_calls_between_two_workers(tmp_path):
    [package] = importlib.util.find_spec("torch_geometric").submodule_search_locations
    directory, port = os.path.join(package, "distributed"), free_port()
    environment = {"MILLRACE_PYTHON_FUNCTIONS": "on", "MILLRACE_KEY_FILE": key_file(tmp_path)}
    workers = [
        start(_WORKER.format(here=HERE, directory=directory, rank=rank, port=port), **environment)
        for rank in range(2)
    ]
    try:
        for worker in workers:
            finish(worker)
    finally:
        for worker in workers:
            worker.kill()
