"""What tests call on other workers."""
from __future__ import annotations

import os
import threading
import time

import torch

import millrace.autograd as dist_autograd
import millrace.rpc as rpc

kept: dict = {}
_changed = threading.Condition()  # of kept


class Own(Exception):
    """A type that both sides know."""


class Odd(Exception):
    """It cannot be made of a text."""

    def __init__(self, a, b):
        super().__init__(a, b)


def nothing():
    """Nothing."""


def same(*args, **kwargs):
    """Its arguments."""
    return args if not kwargs else (args, kwargs)


def add(a, b):
    """a + b"""
    return a + b


def my_name():
    """Of the worker it runs on."""
    return rpc.get_worker_info().name


def process_id():
    """Of the worker it runs on."""
    return os.getpid()


def fail(kind, *args):
    """Raises."""
    raise kind(*args)


def fail_locally():
    """Raises what nobody else can name."""

    class Hidden(Exception):
        pass

    raise Hidden("hidden reason")


_woken = threading.Event()


def sleep(seconds):
    """That long, or until wake()."""
    _woken.wait(seconds)
    return seconds


def wake():
    """Ends all sleeps, now and later."""
    _woken.set()


def wait_for_callback(to):
    """A function that waits for a callback of its own call."""
    return rpc.rpc_async(to, nothing).then(lambda future: 7).wait()


def wait_until_kept(name):
    """Until keep() keeps something under that name, which it returns."""
    with _changed:
        _changed.wait_for(lambda: name in kept)
        return kept[name]


def die():
    """The worker ends at once."""
    os._exit(9)


def call_back(rank, depth):
    """Calls back and forth."""
    return 0 if depth == 0 else 1 + rpc.rpc_sync(rank, call_back, (rpc.get_worker_info().id, depth - 1))


def relay(to, function, *args):
    """Calls on."""
    return rpc.rpc_sync(to, function, args)


def value_of(rref):
    """Fetches it."""
    return rref.to_here()


def is_same_object(rref, name):
    """Whether the reference's value is what keep() kept."""
    return rref.local_value() is kept[name]


def keep(name, value):
    """Keeps a value, for later calls."""
    with _changed:
        kept[name] = value
        _changed.notify_all()


def kept_value(name):
    """What keep() kept."""
    return kept[name]


def forget(name):
    """Drops it."""
    return kept.pop(name, None) is not None


def many(n):
    """Tensors."""
    return [torch.full((2,), float(i)) for i in range(n)]


def many_references(n):
    """To values of this worker."""
    return [rpc.RRef(i) for i in range(n)]


def limit_parts(bytes_max):
    """Of what is kept of calls with many tensors. -> the limit before, how many were refused, how many
    wait"""
    from millrace.rpc._world import current

    parts = current().parts
    before, parts.bytes_max = parts.bytes_max, bytes_max
    return before, parts.refused, len(parts)


def total(values):
    """Of tensors or references."""
    return sum(float((v.to_here() if isinstance(v, rpc.RRef) else v.sum())) for v in values)


class Counter:
    """For proxies."""

    def __init__(self, start=0):
        self.value = start
        self.lock = threading.Lock()

    def add(self, n, times=1):
        """Adds n, that many times."""
        with self.lock:
            self.value += n * times
            return self.value

    def fail(self):
        """Raises."""
        raise KeyError("counter")

    def wait_until_kept(self, name):
        """As the function of that name."""
        return wait_until_kept(name)


class Watched:
    """Says when it is gone."""

    def __init__(self, name):
        self.name = name
        kept[name] = True

    def __del__(self):
        kept.pop(self.name, None)


def watched(name):
    """One that stays with its reference."""
    return Watched(name)


# ---- models ----


class Net(torch.nn.Module):
    """A small convolutional network, the same on all workers."""

    def __init__(self, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.conv = torch.nn.Conv2d(1, 4, 3)
        self.hidden = torch.nn.Linear(4 * 6 * 6, 16)
        self.out = torch.nn.Linear(16, 5)

    def forward(self, x):
        """[n, 1, 8, 8] -> [n, 5]"""
        x = torch.relu(self.conv(x)).flatten(1)
        return self.out(torch.tanh(self.hidden(x)))


def make_net(seed):
    """A new model, kept here."""
    kept["net"] = Net(seed)


def net_parameters():
    """References to them."""
    return [rpc.RRef(p) for p in kept["net"].parameters()]


def net_values():
    """Copies of them."""
    return [p.detach().clone() for p in kept["net"].parameters()]


def net_forward(x, seen=None):
    """Of the kept model. seen: keeps the parameters that it computes with under that name."""
    if seen is not None:
        kept[seen] = [p.detach().clone() for p in kept["net"].parameters()]
    return kept["net"](x)


def net_gradients(context_id, of="net"):
    """In the order of the parameters."""
    gradients = dist_autograd.get_gradients(context_id)
    return [gradients.get(p) for p in kept[of].parameters()]


def gradients_as_told(context_id):
    """As torch's tutorial asks for them."""
    return {k.to("cpu"): v.to("cpu") for k, v in dist_autograd.get_gradients(context_id).items()}


def make_scale(name, value):
    """A parameter by name."""
    kept[name] = torch.nn.Parameter(value.clone())


def scaled(name, x):
    """x times the parameter."""
    return x * kept[name]


def mixed(a, b):
    """Several results, one without a gradient, one an argument as it came."""
    return {"sum": a + b, "product": a * b, "count": 3, "plain": torch.arange(3), "first": a}


def through(to, name, x):
    """Scales here, and by another worker, and uses both."""
    here = x * 2.0
    there = rpc.rpc_sync(to, scaled, (name, here))
    return there + here.sin()


def gradient_of(name, context_id):
    """Of a parameter by name; None: there is none."""
    return dist_autograd.get_gradients(context_id).get(kept[name])


def contexts_here():
    """How many contexts this worker knows."""
    from millrace.rpc._world import current

    return len(current().contexts)


def chain(to, x, depth):
    """Goes back and forth between workers, computing on each."""
    if depth == 0:
        return x
    me = rpc.get_worker_info().id
    return rpc.rpc_sync(to, chain, (me, torch.tanh(x * kept["a"]) + x, depth - 1))


# ---- trainers ----


def _gradients_again(values, x, labels):
    """What torch alone computes at these values."""
    net = Net()
    with torch.no_grad():
        for parameter, value in zip(net.parameters(), values):
            parameter.copy_(value)
    torch.nn.functional.cross_entropy(net(x), labels).backward()
    return [p.grad for p in net.parameters()]


def train(owner, trainer, steps, lr):
    """Trains the owner's model. -> the sum of the gradients it had applied, and by how much they were not
    those of the values that were used."""
    from millrace.optim import DistributedOptimizer

    optimizer = DistributedOptimizer(torch.optim.SGD, rpc.rpc_sync(owner, net_parameters), lr=lr)
    draw = torch.Generator().manual_seed(trainer)
    applied, error = None, 0.0
    for _ in range(steps):
        x, labels = torch.rand(6, 1, 8, 8, generator=draw), torch.randint(0, 5, (6,), generator=draw)
        with dist_autograd.context() as context_id:
            out = rpc.rpc_sync(owner, net_forward, (x, f"seen{trainer}"))
            time.sleep(float(torch.rand(1, generator=draw)) * 0.01)  # others step meanwhile
            dist_autograd.backward(context_id, [torch.nn.functional.cross_entropy(out, labels)])
            got = rpc.rpc_sync(owner, net_gradients, (context_id,))
            optimizer.step(context_id)
        expected = _gradients_again(rpc.rpc_sync(owner, kept_value, (f"seen{trainer}",)), x, labels)
        error = max([error] + [float((g - e).abs().max()) for g, e in zip(got, expected)])
        applied = got if applied is None else [a + g for a, g in zip(applied, got)]
    return [a.detach() for a in applied], error


def forever():
    """Computes, and never ends."""
    while True:
        sum(range(1000))


# ---- functions that answer later ----

_waiting: dict = {}
_waiting_lock = threading.Lock()


@rpc.functions.async_execution
def wait_for_all(name, count, number):
    """(number, how many there were), once so many have called."""
    with _waiting_lock:
        futures = _waiting.setdefault(name, [])
        futures.append(rpc.Future())
        mine, is_last = futures[-1].then(lambda done: (number, done.wait())), len(futures) == count
    if is_last:
        for future in _waiting.pop(name):
            future.set_result(count)
    return mine


@rpc.functions.async_execution
def later_by_torch(tensor):
    """tensor + 1, by a future of torch."""
    future: torch.futures.Future = torch.futures.Future()
    threading.Timer(0.02, lambda: future.set_result(tensor + 1)).start()
    return future


@rpc.functions.async_execution
def later_by_a_call(to, number):
    """number + 1, by another worker."""
    return rpc.rpc_async(to, add, (number, 1))


@rpc.functions.async_execution
def later_square(tensor):
    """tensor * tensor, recorded when it is there."""
    future = rpc.Future()
    future.set_result(tensor)
    return future.then(lambda done: done.wait() * done.wait())


@rpc.functions.async_execution
def later_fails():
    """Raises, later."""
    future = rpc.Future()
    threading.Timer(0.02, future.set_exception, (Own("too late"),)).start()
    return future


@rpc.functions.async_execution
def later_unpicklable():
    """What cannot travel."""
    future = rpc.Future()
    future.set_result(threading.Lock())
    return future


@rpc.functions.async_execution
def not_later():
    """No future."""
    return 5


@rpc.functions.async_execution
def never():
    """A future that nobody ends."""
    return kept.setdefault("never", rpc.Future())


class Batcher:
    """Methods that answer later."""

    @staticmethod
    @rpc.functions.async_execution
    def static_later(number):
        """2 number"""
        return rpc.rpc_async(rpc.get_worker_info(), add, (number, number))

    @classmethod
    @rpc.functions.async_execution
    def class_later(cls, number):
        """3 number"""
        return rpc.rpc_async(rpc.get_worker_info(), add, (number, 2 * number))

    @rpc.functions.async_execution
    def own_later(self, number):
        """4 number"""
        return rpc.rpc_async(rpc.get_worker_info(), add, (number, 3 * number))


# ---- modules ----


def linear(inputs, outputs, seed=0):
    """A layer of known weights."""
    torch.manual_seed(seed)
    return torch.nn.Linear(inputs, outputs)


def relu_in_place(tensor):
    """It changes what came."""
    return torch.nn.functional.relu_(tensor)


def call_module(module, x):
    """A RemoteModule that was passed on."""
    return module(x)


class _FailsAtWill(torch.autograd.Function):
    """The same, whose backward fails as long as this worker keeps something as "fails"."""

    @staticmethod
    def forward(ctx, x):
        """The same."""
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        """The same, or RuntimeError."""
        if kept_value("fails"):
            raise RuntimeError("fails at will")
        return gradient


def fails_at_will(x):
    """x; its backward fails while kept_value("fails") is true."""
    return _FailsAtWill.apply(x)
