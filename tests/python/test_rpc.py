"""Remote calls between Python workers: each function of millrace.rpc."""
from __future__ import annotations

import asyncio
import pickle
import threading

import pytest

torch = pytest.importorskip("torch")

import rpc_functions as there  # noqa: E402
from rpc_world import joined  # noqa: E402
from waits import is_in_package, wait_until  # noqa: E402

import millrace  # noqa: E402
import millrace.rpc as rpc  # noqa: E402

WORLD_SIZE = 3


@pytest.fixture(scope="module", autouse=True)
def world(tmp_path_factory):
    """w0 is this process."""
    with joined(WORLD_SIZE, tmp_path_factory.mktemp("key")):
        yield


# ---- workers ----


def test_workers_are_known_by_name_rank_and_info():
    assert rpc.get_worker_info() == rpc.WorkerInfo("w0", 0)
    info = rpc.get_worker_info("w2")
    assert (info.name, info.id) == ("w2", 2)
    assert [rpc.rpc_sync(to, there.my_name) for to in ("w1", 1, rpc.get_worker_info("w1"))] == ["w1"] * 3
    assert rpc.rpc_sync("w0", there.my_name) == "w0"  # also our own


@pytest.mark.parametrize(
    "to, error",
    [
        ("nobody", millrace.UnknownWorker),
        (7, millrace.UnknownWorker),
        (-1, millrace.UnknownWorker),
        (1.5, ValueError),
    ],
)
def test_a_worker_that_is_not_there(to, error):
    for call in (rpc.rpc_sync, rpc.rpc_async, rpc.remote):
        with pytest.raises(error):
            call(to, there.nothing)
    with pytest.raises(millrace.UnknownWorker, match="nobody"):
        rpc.get_worker_info("nobody")


# ---- arguments and results ----

DTYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "shape", [(), (0,), (3,), (2, 0, 3), (70, 33), (2, 3, 4, 5), (2, 1, 3, 1, 2, 2)], ids=str
)
def test_tensors_come_back_as_they_went(dtype, shape):
    tensor = (torch.rand(shape) * 100).to(dtype)
    (back,) = rpc.rpc_sync(1, there.same, (tensor,))
    assert back.dtype == dtype and back.shape == tensor.shape
    assert torch.equal(back, tensor)


def test_all_kinds_of_arguments():
    tensor = torch.arange(12.0).reshape(3, 4)
    sparse = torch.eye(3).to_sparse()
    args = (
        None,
        True,
        5,
        2**80,
        1.5,
        "text\0äöü",
        b"bytes",
        [tensor, {"a": tensor}],
        torch.complex(torch.ones(2), torch.ones(2)),
        sparse,
    )
    back, kwargs = rpc.rpc_sync(1, there.same, args, {"key": tensor.t()})
    assert back[:7] == args[:7]
    assert back[7][0] is back[7][1]["a"] and torch.equal(back[7][0], tensor)
    assert torch.equal(back[8], args[8]) and torch.equal(back[9].to_dense(), sparse.to_dense())
    assert torch.equal(kwargs["key"], tensor.t())


def _layouts():
    base = torch.arange(120.0)
    images = base[:96].reshape(2, 3, 4, 4)
    return [
        images.contiguous(memory_format=torch.channels_last),
        images.transpose(1, 3),
        images[:, 1:, 1:3],
        base.reshape(10, 12)[:, ::2],
        base.reshape(10, 12).t()[3:8],
        base[:96].reshape(4, 24).to(torch.bfloat16).t(),
        torch.arange(24).reshape(2, 3, 4).bool().permute(2, 0, 1),
    ]


@pytest.mark.parametrize("tensor", _layouts(), ids=lambda tensor: str(tuple(tensor.stride())))
def test_strides_come_back_as_they_went(tensor):
    assert not tensor.is_contiguous()
    (back,) = rpc.rpc_sync(1, there.same, (tensor,))
    assert back.stride() == tensor.stride() and torch.equal(back, tensor)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(3.0).expand(5, 3),
        torch.arange(9.0).as_strided((4, 3), (2, 1)),
        torch.ones(900, 900)[::300, 0],
    ],
    ids=["expanded", "overlapping", "far apart"],
)
def test_tensors_without_memory_of_their_own_come_contiguous(tensor):
    (back,) = rpc.rpc_sync(1, there.same, (tensor,))
    assert back.is_contiguous() and torch.equal(back, tensor)


def test_parameters_stay_parameters_outside_of_contexts():
    layer = torch.nn.Linear(3, 2)
    (back,) = rpc.rpc_sync(1, there.same, (layer,))
    assert isinstance(back.weight, torch.nn.Parameter) and back.weight.requires_grad
    assert torch.equal(back.weight, layer.weight) and torch.equal(back(torch.ones(3)), layer(torch.ones(3)))
    (plain,) = rpc.rpc_sync(1, there.same, (torch.ones(2, requires_grad=True),))
    assert not plain.requires_grad


def test_large_results_are_views_that_live_as_long_as_they_are_held():
    tensor = torch.rand(1 << 20)
    held = [
        rpc.rpc_sync(1, there.same, (tensor + i,))[0] for i in range(60)
    ]  # more than the memory of messages: the rest are copies
    parts = [h[10:20] for h in held]
    del held
    for i, part in enumerate(parts):
        assert torch.equal(part, (tensor + i)[10:20])


def test_values_longer_than_a_message_of_the_transport():
    tensor = torch.arange(18 << 20, dtype=torch.float32)  # 72 MiB
    (back,) = rpc.rpc_sync(1, there.same, (tensor,), timeout=0)
    assert torch.equal(back, tensor)
    (text,) = rpc.rpc_sync(1, there.same, ("x" * (66 << 20),), timeout=0)
    assert len(text) == 66 << 20
    reference = rpc.remote(1, there.same, (tensor,), timeout=0)
    assert torch.equal(reference.to_here(timeout=0)[0], tensor)


def test_values_longer_than_any_message():
    tensor = torch.empty((1 << 28) + 1, dtype=torch.float32)  # which nobody looks at
    with pytest.raises(millrace.Error, match=r"1025 MiB.*at most 1024 MiB.*message_bytes"):
        rpc.rpc_sync(1, there.same, (tensor,))


def test_more_values_than_a_message_takes():
    tensors = there.many(301)
    assert rpc.rpc_sync(1, there.total, (tensors,)) == sum(2.0 * i for i in range(301))
    back = rpc.rpc_sync(2, there.many, (251,))
    assert len(back) == 251 and all(torch.equal(b, torch.full((2,), float(i))) for i, b in enumerate(back))
    references = rpc.rpc_sync(1, there.many_references, (200,))
    assert [r.to_here() for r in references[::40]] == [0, 40, 80, 120, 160]
    assert rpc.rpc_sync(2, there.total, (references,)) == sum(range(200))


def test_functions_of_torch_and_methods():
    assert torch.equal(rpc.rpc_sync(1, torch.add, (torch.ones(2), 3)), torch.full((2,), 4.0))
    assert torch.equal(rpc.rpc_sync(1, torch.relu, (torch.tensor([-1.0, 2.0]),)), torch.tensor([0.0, 2.0]))
    assert rpc.rpc_sync(1, "abc".upper) == "ABC"


def test_what_cannot_be_pickled():
    with pytest.raises(Exception, match="pickle"):
        rpc.rpc_sync(1, lambda: 1)
    with pytest.raises(Exception, match="pickle"):
        rpc.rpc_sync(1, there.kept_value, (threading.Lock(),))
    rpc.rpc_sync(1, there.nothing)


def test_calls_go_on_to_others_and_back():
    assert rpc.rpc_sync(1, there.relay, (2, there.my_name)) == "w2"
    assert rpc.rpc_sync(1, there.call_back, (0, 40)) == 40  # deeper than a worker has threads


# ---- futures ----


def test_futures():
    future = rpc.rpc_async(1, there.add, (1, 2))
    assert (
        future.wait() == 3
        and future.wait() == 3
        and future.done()
        and future.value() == 3
        and future.exception() is None
    )
    slow = rpc.rpc_async(1, there.wait_until_kept, ("futures",))
    assert not slow.done()
    with pytest.raises(RuntimeError, match="not done"):
        slow.value()
    rpc.rpc_sync(1, there.keep, ("futures", 3))
    assert slow.wait() == 3
    assert rpc.wait_all([rpc.rpc_async(1 + i % 2, there.add, (i, 1)) for i in range(50)]) == list(
        range(1, 51)
    )


def test_then_and_callbacks():
    ran = []
    future = rpc.rpc_async(1, there.sleep, (0.05,))
    after = future.then(lambda f: f.value() + 1).then(lambda f: f.wait() * 2)
    future.add_done_callback(lambda f: ran.append(f.value()))
    assert after.wait() == pytest.approx(2.1) and future.wait() == 0.05
    assert future.then(lambda f: "late").wait() == "late"
    wait_until(lambda: ran == [0.05], "the callback runs")
    failing = rpc.rpc_async(1, there.fail, (ValueError, "x"))
    assert failing.then(lambda f: type(f.exception())).wait() is ValueError
    with pytest.raises(RuntimeError, match="ZeroDivisionError: division by zero") as raised:
        rpc.rpc_async(1, there.nothing).then(lambda f: 1 / 0).wait()
    assert isinstance(raised.value.__cause__, ZeroDivisionError)
    with pytest.raises(TypeError, match="a function of one argument"):
        rpc.rpc_async(1, there.nothing).then(None)


def test_a_callback_that_fails_says_so(capfd):
    def broken(_future):
        raise RuntimeError("broken callback")

    rpc.rpc_async(1, there.nothing).add_done_callback(broken)
    said = []

    def is_said():
        said.append(capfd.readouterr().err)
        return "broken callback" in "".join(said)

    wait_until(is_said, "the callback's error is said")


def test_awaiting():
    async def run():
        values = await asyncio.gather(*[_awaited(i) for i in range(20)])
        with pytest.raises(ValueError, match="awaited"):
            await rpc.rpc_async(2, there.fail, (ValueError, "awaited"))
        return values

    async def _awaited(i):
        return await rpc.rpc_async(1 + i % 2, there.add, (i, i))

    assert asyncio.run(run()) == [2 * i for i in range(20)]


def test_cancelled_and_dropped():
    futures = [rpc.rpc_async(1, there.sleep, (0.2,)) for _ in range(80)]
    futures.append(rpc.rpc_async(1, there.wait_until_kept, ("dropped",)))  # which does not end before
    futures[-1].cancel()
    with pytest.raises(millrace.Cancelled):
        futures[-1].wait()
    del futures
    rpc.rpc_sync(1, there.keep, ("dropped", None))
    assert rpc.rpc_sync(1, there.add, (1, 1)) == 2


def test_one_waits_and_another_cancels():
    future = rpc.rpc_async(1, there.wait_until_kept, ("cancelled",))
    got = []
    thread = threading.Thread(target=lambda: got.append(future.exception()))
    thread.start()
    wait_until(lambda: is_in_package(thread), "it waits")
    assert not future.done()
    future.cancel()
    thread.join()
    rpc.rpc_sync(1, there.keep, ("cancelled", None))
    assert isinstance(got[0], millrace.Cancelled) and future.done()


def test_many_threads_wait_for_one_future():
    future = rpc.rpc_async(1, there.sleep, (0.2,))
    got = []
    threads = [threading.Thread(target=lambda: got.append(future.wait())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == [0.2] * 8


def test_many_threads_call():
    errors = []

    def work(n):
        for i in range(100):
            if rpc.rpc_sync(1 + i % 2, there.add, (torch.full((3,), float(n)), i)).tolist() != [n + i] * 3:
                errors.append((n, i))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


# ---- errors ----


@pytest.mark.parametrize(
    "kind", [ValueError, KeyError, ZeroDivisionError, StopIteration, NotImplementedError, there.Own]
)
def test_exceptions_keep_their_type_and_tell_where(kind):
    with pytest.raises(kind) as caught:
        rpc.rpc_sync("w1", there.fail, (kind, "reason"))
    said = str(caught.value)
    assert "w1" in said and "rank 1" in said and "reason" in said and "rpc_functions.py" in said


def test_exceptions_that_cannot_be_made_here():
    for function, args, part in (
        (there.fail, (there.Odd, 1, 2), "Odd"),
        (there.fail_locally, (), "hidden reason"),
        (there.fail, (SystemExit, 3), "SystemExit"),
    ):
        with pytest.raises(rpc.RemoteError, match=part) as caught:
            rpc.rpc_sync(1, function, args)
        assert isinstance(caught.value, (millrace.FunctionFailed, RuntimeError))
    assert rpc.rpc_sync(1, there.my_name) == "w1"


def test_time_outs():
    """Of calls that do not end before they may."""
    with pytest.raises(millrace.DeadlineExceeded) as caught:
        rpc.rpc_sync(1, there.wait_until_kept, ("time_outs",), timeout=0.2)
    assert isinstance(caught.value, TimeoutError)
    with pytest.raises(TimeoutError):
        rpc.rpc_async(1, there.wait_until_kept, ("time_outs",), timeout=0.1).wait()
    with pytest.raises(ValueError, match="timeout"):
        rpc.rpc_sync(1, there.nothing, timeout=-3)
    assert rpc.rpc_sync(1, there.sleep, (0.3,), timeout=0) == 0.3  # none
    reference = rpc.remote(1, there.wait_until_kept, ("time_outs",))
    with pytest.raises(TimeoutError):
        reference.to_here(timeout=0.1)
    rpc.rpc_sync(1, there.keep, ("time_outs", 2))
    assert reference.to_here() == 2


def test_registered_functions_that_are_not_there_or_take_something_else():
    with pytest.raises(millrace.UnknownFunction, match="no.such"):
        rpc.rpc_sync(1, "no.such")
    with pytest.raises(millrace.WrongSignature):
        rpc.rpc_sync(1, "python.rest", (1,))
    with pytest.raises(TypeError, match="keyword"):
        rpc.rpc_sync(1, "no.such", kwargs={"a": 1})
    with pytest.raises(TypeError, match="list"):
        rpc.rpc_sync(1, "no.such", ([1],))
    with pytest.raises(ValueError, match="97 arguments"):
        rpc.rpc_sync(1, "no.such", [1] * 97)
    with pytest.raises(TypeError, match="callable"):
        rpc.rpc_sync(1, 5)


def test_one_world_at_a_time():
    with pytest.raises(millrace.InvalidArgument, match="w0.*already"):
        rpc.init_rpc(
            "again",
            rank=0,
            world_size=1,
            rpc_backend_options=rpc.RpcBackendOptions(init_method="tcp://127.0.0.1:1"),
        )


# ---- references ----


def test_references_to_values_of_others():
    reference = rpc.remote("w1", there.add, (torch.ones(2), 1))
    assert (
        reference.owner() == rpc.WorkerInfo("w1", 1)
        and reference.owner_name() == "w1"
        and not reference.is_owner()
    )
    assert reference.to_here().tolist() == [2.0, 2.0]
    wait_until(reference.confirmed_by_owner, "the owner confirms it")
    with pytest.raises(millrace.InvalidArgument, match="w1"):
        reference.local_value()
    assert rpc.rpc_sync(2, there.value_of, (reference,)).tolist() == [2.0, 2.0]  # a third one's
    assert "w1" in repr(reference)


def test_references_to_our_values():
    value = object()
    reference = rpc.RRef(value)
    assert reference.is_owner() and reference.confirmed_by_owner()
    assert reference.local_value() is value and reference.to_here() is value
    tensor = torch.arange(3.0)
    assert rpc.rpc_sync(1, there.value_of, (rpc.RRef(tensor),)).tolist() == [0.0, 1.0, 2.0]
    own = rpc.remote("w0", there.add, (1, 2))
    assert own.is_owner() and own.local_value() == 3


def test_a_reference_that_comes_home_is_the_same_value():
    rpc.rpc_sync(1, there.keep, ("home", [1, 2]))
    there_kept = rpc.remote(1, there.kept_value, ("home",))
    assert rpc.rpc_sync(1, there.is_same_object, (there_kept, "home"))
    assert rpc.rpc_sync(2, there.relay, (1, there.is_same_object, there_kept, "home"))
    rpc.rpc_sync(1, there.forget, ("home",))


def test_values_go_with_their_last_reference():
    reference = rpc.remote(1, there.watched, ("watched",))
    assert rpc.rpc_sync(1, there.add, (1, 1)) == 2
    rpc.rpc_sync(2, there.keep, ("reference", reference))
    wait_until(lambda: rpc.rpc_sync(1, there.same, (there.kept,)) is not None, "something is kept")
    del reference
    assert rpc.rpc_sync(1, there.kept_value, ("watched",)) is True  # w2 holds it
    assert rpc.rpc_sync(2, there.forget, ("reference",))

    def is_gone():
        try:
            rpc.rpc_sync(1, there.kept_value, ("watched",))
        except KeyError:
            return True
        return False

    wait_until(is_gone, "the value is gone")


def test_a_reference_to_what_failed():
    for reference in (
        rpc.remote(1, there.fail, (ValueError, "never made")),
        rpc.remote(0, there.fail, (ValueError, "never made")),
    ):
        with pytest.raises(ValueError, match="never made"):
            reference.to_here()
    assert isinstance(
        rpc.rpc_sync(2, there.same, (rpc.remote(1, there.fail, (ValueError, "x")),))[0], rpc.RRef
    )
    unknown = rpc.remote(1, "no.such")
    with pytest.raises(millrace.UnknownFunction):
        unknown.to_here()


def test_proxies():
    counter = rpc.remote(1, there.Counter, (10,))
    assert counter.rpc_sync().add(5) == 15
    assert counter.rpc_async().add(1, times=3).wait() == 18
    assert counter.remote().add(2).to_here() == 20
    with pytest.raises(KeyError):
        counter.rpc_sync().fail()
    with pytest.raises(AttributeError):
        counter.rpc_sync().no_such()
    with pytest.raises(TimeoutError):
        counter.rpc_sync(timeout=0.1).wait_until_kept("proxies")
    rpc.rpc_sync(1, there.keep, ("proxies", None))
    local = rpc.RRef(there.Counter())
    assert local.rpc_sync(timeout=60).add(1) == 1 and local.local_value().value == 1


def test_references_are_pickled_by_calls_only():
    with pytest.raises(RuntimeError, match="remote call"):
        pickle.dumps(rpc.RRef(1))


# ---- options ----


def test_options_are_torch_s():
    options = rpc.TensorPipeRpcBackendOptions(
        num_worker_threads=8, rpc_timeout=20.0, init_method="tcp://h:1", device_maps=None
    )
    assert (options.num_worker_threads, options.rpc_timeout) == (8, 20.0)
    with pytest.raises(ValueError, match="device_maps"):
        rpc.RpcBackendOptions(device_maps={"w1": {0: 1}})


def test_where_workers_meet(monkeypatch):
    from millrace.rpc._options import find_place

    def place(options, rank, world_size):
        found = find_place(options, rank, world_size)
        return found.rendezvous, found.rank, found.world_size

    for name in ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    options = rpc.RpcBackendOptions
    assert place(options(init_method="tcp://10.0.0.1:77"), 1, 2) == ("10.0.0.1:77", 1, 2)
    assert place(options(init_method="tcp://[fd00::1]:77?rank=3&world_size=9"), -1, None) == (
        "[fd00::1]:77",
        3,
        9,
    )
    with pytest.raises(ValueError, match="MASTER_ADDR"):
        place(options(), 0, 1)
    monkeypatch.setenv("MASTER_ADDR", "localhost")
    monkeypatch.setenv("MASTER_PORT", "29500")
    with pytest.raises(ValueError, match="RANK"):
        place(options(), -1, 1)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert place(options(), -1, None) == ("localhost:29500", 1, 4)
    assert place(options(init_method="tcp://a:77,[fd00::1]:78,b:79"), 1, 2) == (
        "a:77,[fd00::1]:78,b:79",
        1,
        2,
    )
    for wrong in ("file://x", "tcp://a", "tcp://a:1,b", "tcp://a:1,b:x", "tcp://a:1,,b:2"):
        with pytest.raises(ValueError, match="init_method"):
            place(options(init_method=wrong), 0, 1)
