"""A model that Python trains on a node: what is named there outlives the world and, saved, the node."""
from __future__ import annotations

import os

import pytest

torch = pytest.importorskip("torch")

import millrace  # noqa: E402
import millrace.autograd as dist_autograd  # noqa: E402
import millrace.rpc as rpc  # noqa: E402
from millrace.optim import DistributedOptimizer  # noqa: E402

LAYERS = os.environ.get("MILLRACE_LAYERS", "")
SETTINGS = ("rpc.world_size=2", "rpc.name=server", "rpc.rank=0", f"rpc.module={LAYERS} parts 1")


def train(node, steps: int, optimizer: str = "trainer_1"):
    """Joins the node's world, makes some steps, and leaves: the optimizer's steps before, and the values
    after."""
    options = rpc.RpcBackendOptions(init_method=f"tcp://{node.address}", init_timeout_s=120)
    rpc.init_rpc("trainer_1", rank=1, world_size=2, rpc_backend_options=options)
    network = rpc.remote(0, "layers.network", ("input 6; linear 6 4", 3, "net"))
    weights = rpc.rpc_sync(0, "layers.parameter", (network,))
    named = DistributedOptimizer(torch.optim.SGD, [weights], lr=0.1, momentum=0.9, name=optimizer)
    before = named.steps()
    for step in range(before, before + steps):
        with dist_autograd.context() as context_id:
            x = torch.full((5, 6), 0.1 * (step + 1))
            y = rpc.rpc_sync(0, "layers.forward", (network, step, x))
            dist_autograd.backward(context_id, [y.pow(2).sum()])
            named.step(context_id)
    values = weights.to_here().clone()
    rpc.shutdown()
    return before, values


@pytest.mark.skipif(not os.path.exists(LAYERS), reason="the module of layers is not built: it needs oneDNN")
def test_an_optimizer_of_a_name_goes_on_after_the_node_was_killed(new_node):
    node = new_node(settings=SETTINGS, near=True)
    assert train(node, 3)[0] == 0
    saved = train(node, 0)
    assert saved[0] == 3
    with millrace.Client(node.address, deadline_s=60, connect_s=60) as client:
        client.wait_for_save(client.save())
        client.wait_for_save(client.save(names=["net"]))
    _, expected = train(node, 2)
    node.kill()
    node.restart()
    before, values = train(node, 0)
    assert before == 3 and torch.equal(values, saved[1])
    assert torch.equal(train(node, 2)[1], expected)  # to the bit, with its momentum
    assert train(node, 0, "another")[0] == 0
    with millrace.Client(node.address, deadline_s=60, connect_s=60) as client:
        restored = client.restore(f"{node.checkpoints}/partial", names=["net"], replace=True)
        assert (restored.parameters, restored.tables, restored.variables) == (1, 0, 0)
    before, values = train(node, 0)
    assert before == 3 and torch.equal(values, saved[1])
