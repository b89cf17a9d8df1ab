"""Gradients where torch's own are easily missed, and workers that wait, leave or call back at an awkward
moment."""
from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

torch = pytest.importorskip("torch")

import rpc_functions as there  # noqa: E402
from rpc_world import Servers, finish, joined, key_file, start  # noqa: E402

import millrace.autograd as dist_autograd  # noqa: E402
import millrace.rpc as rpc  # noqa: E402
from millrace.errors import Cancelled  # noqa: E402
from millrace.rpc._gate import Gate  # noqa: E402

WORLD_SIZE = 2


@pytest.fixture(scope="module", autouse=True)
def world(tmp_path_factory):
    """w0 is this process."""
    with joined(WORLD_SIZE, tmp_path_factory.mktemp("key"), num_worker_threads=2):
        yield


def gradient_of(parameter, compute):
    """Over the workers: compute(parameter) gives the loss."""
    with dist_autograd.context() as context_id:
        dist_autograd.backward(context_id, [compute(parameter)])
        return dist_autograd.get_gradients(context_id)[parameter]


def test_a_tensor_changed_in_place_after_it_left():
    """What left first has the history of that moment."""

    def compute(q):
        h = q * 3
        first = rpc.rpc_sync(1, torch.mul, (h, h))
        h.mul_(2)
        return (first + rpc.rpc_sync(1, torch.mul, (h, 1.0))).sum()

    p = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
    assert torch.equal(gradient_of(p, compute), 18 * p.detach() + 6)


def test_a_tensor_sent_twice_in_one_call():
    p = torch.nn.Parameter(torch.tensor([2.0, 3.0]))
    gradient = gradient_of(
        p, lambda q: (rpc.rpc_sync(1, torch.mul, (q, q)) + rpc.rpc_sync(1, there.same, (q, [q]))[0]).sum()
    )
    assert torch.equal(gradient, 2 * p.detach() + 1)


def test_without_grad_nothing_is_recorded():
    p = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
    rpc.rpc_sync(1, there.make_scale, ("factor", torch.tensor([5.0, 5.0])))

    def compute(q):
        with torch.no_grad():
            constant = rpc.rpc_sync(1, torch.mul, (q, 2.0))
            scaled = rpc.rpc_async(1, there.scaled, ("factor", q)).wait()
            kept = rpc.remote(1, torch.mul, (q, 2.0)).to_here()
        assert not constant.requires_grad and not scaled.requires_grad and not kept.requires_grad
        return (rpc.rpc_sync(1, torch.mul, (q, 2.0)) * constant + scaled + kept).sum()

    assert torch.equal(gradient_of(p, compute), torch.tensor([4.0, 8.0]))


def test_gradients_of_an_embedding_that_are_sparse_and_dense():
    for order in (1, -1):
        table = torch.nn.Embedding(3, 2, sparse=True)

        def compute(weight, order=order):
            uses = [
                lambda: rpc.rpc_sync(1, torch.mul, (table(torch.tensor([1])), 2.0)).sum(),
                lambda: rpc.rpc_sync(1, torch.mul, (weight, 3.0)).sum(),
            ]
            return sum(use() for use in uses[::order])

        gradient = gradient_of(table.weight, compute)
        assert torch.equal(
            gradient.to_dense() if gradient.is_sparse else gradient,
            torch.tensor([[3.0, 3.0], [5.0, 5.0], [3.0, 3.0]]),
        )


@pytest.mark.parametrize("make", [lambda p: torch.complex(p, p), lambda p: p.to_sparse()])
def test_what_would_lose_its_gradient_is_refused(make):
    p = torch.nn.Parameter(torch.eye(2))
    with dist_autograd.context():
        with pytest.raises(TypeError, match="cannot leave within an autograd context"):
            rpc.rpc_sync(1, there.same, (make(p),))
        rpc.rpc_sync(1, there.same, (make(p).detach(),))
    rpc.rpc_sync(1, there.same, (make(p).detach().requires_grad_(),))


def test_what_came_in_another_context_is_refused():
    p = torch.nn.Parameter(torch.tensor([1.0]))
    with dist_autograd.context():
        old = rpc.rpc_sync(1, torch.mul, (p, 2.0))
    with dist_autograd.context() as context_id:
        with pytest.raises(RuntimeError, match="gradients do not go from one context to another"):
            rpc.rpc_sync(1, torch.mul, (old * 2, 2.0))
        with pytest.raises(RuntimeError, match="gradients do not go from one context to another"):
            dist_autograd.backward(context_id, [(old * p).sum()])
        dist_autograd.backward(context_id, [(old.detach() * p).sum()])
        assert torch.equal(dist_autograd.get_gradients(context_id)[p], torch.tensor([2.0]))


def test_callbacks_run_while_all_threads_wait_for_them():
    """There are two threads for functions here."""
    calls = [rpc.rpc_async(0, there.wait_for_callback, (1,), timeout=30) for _ in range(6)]
    assert rpc.wait_all(calls) == [7] * 6


def test_calls_are_cancelled_while_other_threads_end_them():
    """Each ends once, as its value or as cancelled, for everybody the same."""
    for _ in range(40):
        calls = [rpc.rpc_async(1, there.add, (i, 1)) for i in range(64)]
        told: list[object] = []
        heard = [call.then(lambda ended: told.append(ended.exception())) for call in calls[::4]]
        with ThreadPoolExecutor(3) as pool:
            cancelling = pool.submit(lambda: [call.cancel() for call in reversed(calls)])
            waiting = [pool.submit(lambda: [call.exception() for call in calls]) for _ in range(2)]
            cancelling.result()
            first, second = (waiter.result() for waiter in waiting)
        rpc.wait_all(heard)
        assert all(one is other for one, other in zip(first, second))
        for i, (call, error) in enumerate(zip(calls, first)):
            assert call.done() and (isinstance(error, Cancelled) if error else call.wait() == i + 1)
        assert sorted(map(id, told)) == sorted(map(id, first[::4]))


def test_an_event_loop_that_is_closed_keeps_nobody_waiting():
    call = rpc.rpc_async(1, there.sleep, (0.3,))

    async def give_up():
        await asyncio.wait_for(call, 0.01)

    with pytest.raises(asyncio.TimeoutError):
        asyncio.run(give_up())
    assert call.then(lambda ended: ended.done()).wait()


def test_who_comes_to_a_closed_gate_is_not_taken_for_slow():
    """Though it was seen inside for a moment, as the gate closed."""

    class Tickets(set):
        def add(self, ticket):
            super().add(ticket)
            ticket.is_slow = gate.is_closed

        def discard(self, ticket):
            super().discard(ticket)
            gate.is_closed = False

    gate = Gate()
    gate.tickets, gate.is_closed = Tickets(), True
    ticket = gate.enter()
    assert ticket in gate.tickets and not ticket.is_slow


_LEAVES = """
import sys, threading, time
sys.path.insert(0, {here!r})
import rpc_functions as there
import millrace.rpc as rpc
rpc.init_rpc("w0", rank=0, world_size=2, rpc_backend_options=rpc.RpcBackendOptions(
    init_method="tcp://127.0.0.1:{port}", allow_python_functions=True, key_file={key!r}))
call = rpc.rpc_async(1, there.wait_until_kept, ("never",), timeout=0)
said = []
waiter = threading.Thread(target=lambda: said.append(call.exception()))
waiter.start()
while call._open:  # until the thread has it
    pass
rpc.shutdown(graceful=False)
waiter.join()
print(type(said[0]).__name__)
"""


def test_leaving_while_a_thread_waits(tmp_path):
    """It does not wait for the call, which never ends."""
    import os

    key = key_file(tmp_path)
    servers = Servers(2, key)
    try:
        here = os.path.dirname(os.path.abspath(__file__))
        said = finish(start(_LEAVES.format(here=here, port=servers.port, key=key)), timeout_s=100)
        assert "ShuttingDown" in said or "Cancelled" in said
    finally:
        servers.kill()


def test_what_is_kept_of_a_call_with_many_tensors_is_bounded():
    tensors = [torch.ones(1000) for _ in range(200)]
    before, refused, _ = rpc.rpc_sync(1, there.limit_parts, (500_000,))
    try:
        with pytest.raises(MemoryError, match="long_memory_bytes"):
            rpc.rpc_sync(1, there.total, (tensors,))
        assert rpc.rpc_sync(1, there.total, (tensors[:100],)) == 100_000
    finally:
        _, now, left = rpc.rpc_sync(1, there.limit_parts, (before,))
    assert now == refused + 1 and left == 0
    assert rpc.rpc_sync(1, there.total, (tensors,)) == 200_000


def test_parts_that_nobody_has_asked_for_give_way():
    from millrace.rpc._parts import Parts

    parts = Parts(0, 1 << 20, 0)
    parts.add("0.1", [(torch.zeros(1 << 17), 0)])
    with pytest.raises(MemoryError):
        parts.add("0.2", [(torch.zeros(1 << 18), 0)])
    parts.timeout_s = 1e-9
    parts.add("0.2", [(torch.zeros(1 << 18), 0)])
    assert parts.bytes == 1 << 20 and parts.refused == 1
    with pytest.raises(KeyError):
        parts.take("0.1")
    assert len(parts.some("0.2", 0, 1)) == 1 and len(parts) == 0 and parts.bytes == 0
