"""What torch.distributed has beside calls: functions that answer later, futures, modules on other workers, a
file to meet by, and tensors that are changed in place once they have come."""
from __future__ import annotations

import os
import threading

import pytest

torch = pytest.importorskip("torch")

import rpc_functions as there  # noqa: E402
from rpc_world import free_port, finish, joined, key_file, start  # noqa: E402

import millrace  # noqa: E402
import millrace.autograd as dist_autograd  # noqa: E402
import millrace.futures as futures  # noqa: E402
import millrace.rpc as rpc  # noqa: E402
from millrace.optim import DistributedOptimizer  # noqa: E402

WORLD_SIZE = 2


@pytest.fixture(scope="module", autouse=True)
def world(tmp_path_factory):
    """w0 is this process; w1 has two threads for functions."""
    with joined(WORLD_SIZE, tmp_path_factory.mktemp("key"), num_worker_threads=2):
        yield


# ---- functions that answer later ----


@pytest.mark.parametrize("to", [0, 1])
def test_more_calls_wait_than_there_are_threads(to):
    """Each waits for the last one: were a thread held by each, that one would never run. 64 calls from one
    worker to another may be in flight."""
    count = 60
    calls = [rpc.rpc_async(to, there.wait_for_all, ("all", count, i)) for i in range(count)]
    assert [call.wait() for call in calls] == [(i, count) for i in range(count)]


@pytest.mark.parametrize("to", [0, 1])
def test_a_function_may_return_any_future(to):
    assert rpc.rpc_sync(to, there.later_by_torch, (torch.ones(2),)).tolist() == [2.0, 2.0]
    assert rpc.rpc_sync(to, there.later_by_a_call, (to, 5)) == 6
    assert rpc.rpc_sync(to, there.Batcher.static_later, (4,)) == 8
    assert rpc.rpc_sync(to, there.Batcher.class_later, (4,)) == 12
    assert rpc.remote(to, there.later_by_a_call, (to, 6)).to_here() == 7
    batcher = rpc.remote(to, there.Batcher)
    assert batcher.rpc_sync().own_later(5) == 20
    assert batcher.rpc_async().own_later(6).wait() == 24


@pytest.mark.parametrize("to", [0, 1])
def test_what_a_late_answer_raises_reaches_the_caller(to):
    with pytest.raises(there.Own, match="too late"):
        rpc.rpc_sync(to, there.later_fails)
    with pytest.raises(RuntimeError, match="must return a Future"):
        rpc.rpc_sync(to, there.not_later)
    with pytest.raises(Exception, match="pickle"):
        rpc.rpc_sync(to, there.later_unpicklable)
    with pytest.raises(millrace.DeadlineExceeded):
        rpc.rpc_sync(to, there.never, timeout=0.2)


def test_gradients_go_through_a_late_answer():
    p = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
    with dist_autograd.context() as context_id:
        dist_autograd.backward(context_id, [rpc.rpc_sync(1, there.later_square, (p,)).sum()])
        assert torch.equal(dist_autograd.get_gradients(context_id)[p], 2 * p.detach())


# ---- futures ----


def test_a_future_of_one_s_own():
    future = futures.Future()
    assert not future.done()
    threading.Timer(0.05, future.set_result, (5,)).start()
    assert future.then(lambda done: done.value() + 1).wait() == 6
    with pytest.raises(RuntimeError, match="already"):
        future.set_result(6)
    failed = futures.Future()
    failed.set_exception(ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        failed.wait()
    with pytest.raises(RuntimeError, match="a call's"):
        rpc.rpc_async(1, there.nothing).set_result(1)
    with pytest.raises(ValueError, match="main memories"):
        futures.Future(devices=["cuda:0"])


def test_futures_are_collected():
    calls = [rpc.rpc_async(i % 2, there.add, (i, 1)) for i in range(4)]
    assert [call.value() for call in futures.collect_all(calls).wait()] == [1, 2, 3, 4]
    assert futures.wait_all([rpc.rpc_async(1, there.add, (2, 3))]) == [5]
    assert futures.collect_all([]).wait() == []
    some = [rpc.rpc_async(1, there.fail, (ValueError, "one")), rpc.rpc_async(1, there.add, (1, 1))]
    assert [type(call.exception()) for call in futures.collect_all(some).wait()] == [ValueError, type(None)]


def test_torch_s_functions_take_our_futures():
    of_torch: torch.futures.Future = torch.futures.Future()
    both = [rpc.rpc_async(1, there.add, (1, 2)), of_torch]
    collected = torch.futures.collect_all(both)
    assert not collected.done()
    of_torch.set_result(4)
    assert collected.wait() == both and torch.futures.wait_all(both) == [3, 4]
    assert torch.futures.wait_all([of_torch]) == [4] and torch.futures.wait_all([]) == []
    with pytest.raises(ValueError, match="no"):
        torch.futures.wait_all([rpc.rpc_async(1, there.fail, (ValueError, "no")), of_torch])


def test_a_call_is_cancelled_although_somebody_waits_for_its_end():
    call = rpc.rpc_async(1, there.never)
    after = call.then(lambda done: type(done.exception()))
    call.cancel()
    assert after.wait() is millrace.Cancelled
    call.cancel()  # does nothing


# ---- in place ----


def test_what_came_may_be_changed_in_place():
    p = torch.nn.Parameter(torch.tensor([1.0, -2.0, 3.0]))
    with dist_autograd.context() as context_id:
        y = rpc.rpc_sync(1, torch.mul, (p, 2.0))
        y += 1
        y = torch.nn.ReLU(inplace=True)(y)
        z = rpc.rpc_sync(1, there.relu_in_place, (y,))
        dist_autograd.backward(context_id, [(z * z).sum()])
        values = torch.relu(2 * p.detach() + 1)
        assert torch.equal(z.detach(), values)
        assert torch.equal(dist_autograd.get_gradients(context_id)[p], 4 * values)


def test_what_came_and_is_passed_on_as_it_is_needs_no_step_of_its_own():
    p = torch.nn.Parameter(torch.tensor([3.0]))
    with dist_autograd.context() as context_id:
        y = rpc.rpc_sync(1, torch.mul, (p, 2.0))
        z = rpc.rpc_sync(1, torch.mul, (y, y))
        with torch.no_grad():
            y.zero_()  # after it left
        dist_autograd.backward(context_id, [z.sum()])
        assert dist_autograd.get_gradients(context_id)[p].tolist() == [24.0]


# ---- modules on other workers ----


@pytest.mark.parametrize("place", ["w1/cpu", "rank:1/cpu", "w1", "w0/cpu"])
def test_a_remote_module_trains(place):
    torch.manual_seed(5)
    ours = torch.nn.Linear(3, 2)
    module = rpc.RemoteModule(place, there.linear, (3, 2), {"seed": 5})
    parameters = module.remote_parameters()
    assert len(parameters) == 2 and module.get_module_rref().owner_name() == place[:2].replace("ra", "w1")
    x = torch.tensor([[1.0, 2.0, 3.0]])
    assert torch.equal(module(x), ours(x)) and torch.equal(module.forward_async(x).wait(), ours(x))
    optimizer = DistributedOptimizer(torch.optim.SGD, parameters, lr=0.5)
    with dist_autograd.context() as context_id:
        dist_autograd.backward(context_id, [module(x).sum()])
        optimizer.step(context_id)
    own = torch.optim.SGD(ours.parameters(), lr=0.5)
    ours(x).sum().backward()
    own.step()
    assert torch.allclose(module(x), ours(x))
    again = rpc.RemoteModule.init_from_module_rref(place, module.get_module_rref())
    assert torch.equal(again(x), module(x))
    assert torch.equal(rpc.rpc_sync(1, there.call_module, (module, x)), module(x))


def test_what_a_remote_module_refuses():
    with pytest.raises(ValueError, match="not supported for RemoteModule"):
        rpc.RemoteModule("w1", torch.nn.Linear, (2, 2)).parameters()
    with pytest.raises(ValueError, match="main memories"):
        rpc.RemoteModule("w1/cuda:0", torch.nn.Linear, (2, 2))
    with pytest.raises(ValueError, match="not a torch.nn.Module"):
        rpc.RemoteModule("w1", dict)
    with pytest.raises(ValueError, match="WORKER/cpu"):
        rpc.RemoteModule("/cpu", torch.nn.Linear, (2, 2))
    with pytest.raises(ValueError, match="TorchScript"):
        rpc.RemoteModule("w1", torch.nn.Linear, (2, 2), _module_interface_cls=dict)


# ---- a file to meet by ----

_BY_FILE = """
import os, sys
sys.path.insert(0, {here!r})
import rpc_functions
import millrace.rpc as rpc
rank = int(sys.argv[1]) if len(sys.argv) > 1 else {rank}
rpc.init_rpc(f"f{{rank}}", rank=rank, world_size=2, rpc_backend_options=rpc.RpcBackendOptions(
    init_method="file://{path}", allow_python_functions=True, key_file={key!r}, init_timeout_s=300))
assert rpc.rpc_sync(1 - rank, rpc_functions.my_name) == f"f{{1 - rank}}"
rpc.shutdown()
"""


def test_workers_meet_by_a_file(tmp_path):
    import os

    path, key = str(tmp_path / "meet"), key_file(tmp_path)
    here = os.path.dirname(os.path.abspath(__file__))
    for _ in range(2):  # nothing is left of the first world
        programs = [start(_BY_FILE.format(here=here, rank=rank, path=path, key=key)) for rank in (1, 0)]
        for program in programs:
            finish(program)
        assert os.listdir(tmp_path) == ["key"]


def test_what_a_world_left_is_known_as_old(tmp_path):
    """The file of the name is there, as NamedTemporaryFile makes it; who is early waits for one that
    listens."""
    import os

    path, key = tmp_path / "meet", key_file(tmp_path)
    path.touch()
    old = tmp_path / "meet.millrace"
    old.write_text(f"127.0.0.1:{free_port()}\n")
    here = os.path.dirname(os.path.abspath(__file__))
    programs = [start(_BY_FILE.format(here=here, rank=rank, path=path, key=key)) for rank in (1, 0)]
    for program in programs:
        finish(program)
    assert path.read_text() == "" and not old.exists()


def test_a_file_that_rank_0_never_writes(tmp_path):
    from millrace.rpc._options import RpcBackendOptions, find_place

    path = tmp_path / "meet.millrace"
    options = RpcBackendOptions(init_method=f"file://{tmp_path}/meet", init_timeout_s=0.05)
    path.write_text("")
    with pytest.raises(TimeoutError, match="it says nothing"):
        find_place(options, 1, 2)
    place = f"127.0.0.1:{free_port()}"
    path.write_text(place)
    with pytest.raises(TimeoutError, match=f"nobody listens at {place}"):
        find_place(options, 1, 2)


def test_rank_0_writes_through_no_link(tmp_path):
    """Another user of the folder may have made one under a name that is easily guessed."""
    from millrace.rpc import _file_rendezvous

    victim = tmp_path / "victim"
    victim.write_text("precious")
    for name in ("meet.millrace", f"meet.millrace.{os.getpid()}"):
        (tmp_path / name).symlink_to(victim)
    place = _file_rendezvous.write(f"{tmp_path}/meet", "127.0.0.1")
    assert victim.read_text() == "precious"
    assert (tmp_path / "meet.millrace").read_text() == place + "\n"


def test_files_that_nobody_can_meet_by(tmp_path):
    from millrace.rpc._options import RpcBackendOptions, find_place

    nowhere = RpcBackendOptions(init_method="file:///nonexistent/meet", init_timeout_s=0.05)
    with pytest.raises(ValueError, match="cannot write it: No such file"):
        find_place(nowhere, 0, 2)
    with pytest.raises(TimeoutError, match="rank 0 has not written"):
        find_place(nowhere, 1, 2)
    wrong = tmp_path / "wrong"
    (tmp_path / "wrong.millrace").write_text("what is this?")
    with pytest.raises(ValueError, match="init_method"):
        find_place(RpcBackendOptions(init_method=f"file://{wrong}"), 1, 2)
    (tmp_path / "directory.millrace").mkdir()
    with pytest.raises(ValueError, match="cannot read it"):
        find_place(RpcBackendOptions(init_method=f"file://{tmp_path}/directory"), 1, 2)
