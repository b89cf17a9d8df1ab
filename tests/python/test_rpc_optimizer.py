"""The distributed optimizer over parameters of Python workers, and any number of trainers on one model."""
from __future__ import annotations

import threading

import pytest

torch = pytest.importorskip("torch")

import rpc_functions as there  # noqa: E402
from rpc_world import joined  # noqa: E402

import millrace  # noqa: E402
import millrace.autograd as dist_autograd  # noqa: E402
import millrace.optim  # noqa: E402
import millrace.rpc as rpc  # noqa: E402
from millrace.optim import DistributedOptimizer  # noqa: E402

WORLD_SIZE = 5


@pytest.fixture(scope="module", autouse=True)
def world(tmp_path_factory):
    """w0 is this process."""
    with joined(WORLD_SIZE, tmp_path_factory.mktemp("key")):
        yield


def apart(a, b) -> float:
    """The largest difference."""
    return max(float((x - y).abs().max()) for x, y in zip(a, b))


OPTIMIZERS = [
    (torch.optim.SGD, {"lr": 0.1}),
    (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    (torch.optim.Adagrad, {"lr": 0.05}),
    (torch.optim.Adam, {"lr": 0.01, "amsgrad": True}),
    (torch.optim.AdamW, {"lr": 0.01}),
    (torch.optim.RMSprop, {"lr": 0.01}),
    (millrace.optim.SGD, {"lr": 0.1}),
]


@pytest.mark.parametrize(
    "kind, arguments",
    OPTIMIZERS,
    ids=lambda o: o.__module__ + "." + o.__name__ if isinstance(o, type) else str(len(o)),
)
def test_steps_are_torch_s(kind, arguments):
    rpc.rpc_sync(1, there.make_net, (3,))
    local = there.Net(3)
    optimizer = DistributedOptimizer(kind, rpc.rpc_sync(1, there.net_parameters), **arguments)
    alone = getattr(torch.optim, kind.__name__)(local.parameters(), **arguments)
    for i in range(4):
        x, labels = torch.rand(5, 1, 8, 8), torch.arange(5)
        with dist_autograd.context() as context_id:
            dist_autograd.backward(
                context_id,
                [torch.nn.functional.cross_entropy(rpc.rpc_sync(1, there.net_forward, (x,)), labels)],
            )
            optimizer.step(context_id)
        alone.zero_grad()
        torch.nn.functional.cross_entropy(local(x), labels).backward()
        alone.step()
        assert apart(rpc.rpc_sync(1, there.net_values), local.parameters()) < 1e-4, f"step {i}"


def test_owners_on_several_workers_and_here():
    start = torch.tensor([1.0, 2.0])
    for rank in (1, 2):
        rpc.rpc_sync(rank, there.make_scale, ("s", start))
    own = torch.nn.Parameter(start.clone())
    parameters = [
        rpc.remote(1, there.kept_value, ("s",)),
        rpc.remote(2, there.kept_value, ("s",)),
        rpc.RRef(own),
    ]
    optimizer = DistributedOptimizer(torch.optim.SGD, parameters, lr=0.5)
    with dist_autograd.context() as context_id:
        y = rpc.rpc_sync(2, there.scaled, ("s", rpc.rpc_sync(1, there.scaled, ("s", own * 1.0))))
        dist_autograd.backward(context_id, [y.sum()])
        optimizer.step(context_id)
    expected = start - 0.5 * start * start
    assert all(
        apart([value], [expected]) < 1e-6
        for value in (
            rpc.rpc_sync(1, there.kept_value, ("s",)),
            rpc.rpc_sync(2, there.kept_value, ("s",)),
            own.detach(),
        )
    )


def test_parameters_without_a_gradient_stay():
    rpc.rpc_sync(1, there.make_net, (3,))
    before = rpc.rpc_sync(1, there.net_values)
    optimizer = DistributedOptimizer(torch.optim.Adam, rpc.rpc_sync(1, there.net_parameters))
    with dist_autograd.context() as context_id:
        optimizer.step(context_id)
    assert apart(before, rpc.rpc_sync(1, there.net_values)) == 0


@pytest.mark.parametrize("trainers", [2, 4])
def test_trainers_at_once_in_processes(trainers):
    """Ranks 1 and on train the model of rank 0, which torch's own tutorial cannot with more than one."""
    lr, steps = 0.02, 12
    there.make_net(11)
    start = there.net_values()
    futures = [rpc.rpc_async(rank, there.train, (0, rank, steps, lr)) for rank in range(1, trainers + 1)]
    told = rpc.wait_all(futures)
    assert max(error for _, error in told) < 1e-5
    expected = [s - lr * sum(applied[i] for applied, _ in told) for i, s in enumerate(start)]
    assert apart(there.net_values(), expected) < 1e-4  # each gradient once


def test_trainers_at_once_in_threads():
    lr, told = 0.02, []
    rpc.rpc_sync(2, there.make_net, (12,))
    start = rpc.rpc_sync(2, there.net_values)
    threads = [threading.Thread(target=lambda t=t: told.append(there.train(2, t, 8, lr))) for t in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(told) == 4 and max(error for _, error in told) < 1e-5
    expected = [s - lr * sum(applied[i] for applied, _ in told) for i, s in enumerate(start)]
    assert apart(rpc.rpc_sync(2, there.net_values), expected) < 1e-4


def test_a_step_goes_on_beside_a_function_that_sleeps():
    rpc.rpc_sync(1, there.make_scale, ("p", torch.ones(2)))
    optimizer = DistributedOptimizer(torch.optim.SGD, [rpc.remote(1, there.kept_value, ("p",))], lr=1.0)
    asleep = rpc.rpc_async(1, there.sleep, (600,), timeout=0)
    for _ in range(3):
        with dist_autograd.context() as context_id:
            dist_autograd.backward(context_id, [rpc.rpc_sync(1, there.scaled, ("p", torch.ones(2))).sum()])
            optimizer.step(context_id)
    assert rpc.rpc_sync(1, there.kept_value, ("p",)).tolist() == [-2.0, -2.0]
    assert not asleep.done(), asleep.exception()
    rpc.rpc_sync(1, there.wake)


def test_what_is_refused():
    with pytest.raises(ValueError, match="no parameter"):
        DistributedOptimizer(torch.optim.SGD, [], lr=0.1)
    with pytest.raises(TypeError, match="list, not a tensor"):
        DistributedOptimizer(torch.optim.SGD, [rpc.RRef([1])], lr=0.1)
    with pytest.raises(TypeError):  # torch's own, from the owner
        DistributedOptimizer(
            torch.optim.SGD, [rpc.RRef(torch.nn.Parameter(torch.ones(1)))], lr=0.1, no_such=1
        )
    optimizer = DistributedOptimizer(torch.optim.SGD, [rpc.RRef(torch.nn.Parameter(torch.ones(1)))], lr=0.1)
    with pytest.raises(ValueError, match="no autograd context"):
        optimizer.step(12345)


REFUSED = [
    (torch.optim.SGD, {"lr": 0.1, "dampening": 0.5}, "dampening"),
    (torch.optim.SGD, {}, "lr is missing"),
    (torch.optim.RMSprop, {}, "RMSprop"),
    (torch.optim.Adam, {"amsgrad": True}, "amsgrad"),
    (torch.optim.Adam, {"betas": (0.0, 0.9)}, "betas"),
    (torch.optim.Adam, {"eps": 0}, "eps"),
    (torch.optim.Adagrad, {"lr_decay": 0.1}, "lr_decay"),
    (torch.optim.SGD, {"lr": 0.1, "maximize": True}, "maximize"),
    (torch.optim.SGD, {"lr": 0.1, "no_such": 1}, "no_such"),
]


@pytest.mark.parametrize("kind, arguments, says", REFUSED, ids=[r[2] for r in REFUSED])
def test_what_owners_in_c_do_not_have(kind, arguments, says):
    from millrace.rpc._dist_optimizer import native_options

    with pytest.raises(ValueError, match=says):
        native_options(kind, (), arguments)


def test_options_of_owners_in_c():
    from millrace.rpc._dist_optimizer import native_options
    from millrace._base.library import lib

    sgd = native_options(torch.optim.SGD, (0.25,), {"momentum": 0.5, "nesterov": True, "foreach": None})
    assert (sgd.kind, sgd.learning_rate, sgd.momentum, sgd.nesterov) == (lib.MR_DIST_SGD, 0.25, 0.5, True)
    still = native_options(torch.optim.Adam, (), {"lr": 0})
    assert still.has_learning_rate and still.learning_rate == 0
    adam = native_options(millrace.optim.Adam, (), {"weight_decay": 0.125})
    assert adam.kind == lib.MR_DIST_ADAM and adam.weight_decay == 0.125 and adam.beta2 == pytest.approx(0.999)
    adagrad = native_options(torch.optim.Adagrad, (), {"initial_accumulator_value": 0.5})
    assert (
        adagrad.kind == lib.MR_DIST_ADAGRAD
        and adagrad.initial_accumulator == 0.5
        and adagrad.learning_rate == pytest.approx(0.01)
    )
