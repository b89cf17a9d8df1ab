"""From torch's backward to the servers: no gradient is lost, applied twice or changed on the way."""
import gc
import threading
from types import SimpleNamespace

import numpy as np
import pytest

import millrace

torch = pytest.importorskip("torch")
from millrace._nn import backward, pushes  # noqa: E402

DIM = 6
ONE = torch.tensor([[1]])


def bag_of(client, name, optimizer=None):
    """An EmbeddingBag whose rows are zeros at first."""
    return millrace.EmbeddingBag(
        client,
        name,
        dim=DIM,
        mode="sum",
        optimizer=optimizer or millrace.optim.SGD(lr=1),
        initializer=millrace.init.constant(0),
    )


def learnt(bag):
    """The first number of row 1."""
    bag.flush()
    return bag.table.lookup(np.array([1]))[0, 0]


@pytest.mark.parametrize("where", ["add_rows", "queue"])
def test_what_comes_after_an_interrupted_backward_is_pushed(client, name, monkeypatch, where):
    bag = bag_of(client, name)
    kept = []  # as a notebook keeps the last error, and what its frames hold

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        if where == "add_rows":
            patch.setattr(backward.Backward, "add_rows", interrupted)
        else:
            run = torch.autograd.Variable._execution_engine.run_backward
            engine = SimpleNamespace(queue_callback=interrupted, run_backward=run)
            patch.setattr(torch.autograd.Variable, "_execution_engine", engine)
        out = bag(ONE).sum()
        try:
            out.backward()
        except KeyboardInterrupt as error:
            kept.append(error)
    assert len(kept) == 1 and learnt(bag) == 0
    bag(ONE).sum().backward()
    assert learnt(bag) == -1


def test_modules_with_the_same_options_in_another_order_share_a_push(client, name):
    a = bag_of(client, name, millrace.optim.Adagrad(lr=1))
    b = millrace.EmbeddingBag(a.table)
    a.options, b.options = {"step": 1, "priority": 2}, {"priority": 2, "step": 1}
    (a(ONE) + b(ONE)).sum().backward()
    assert learnt(a) == pytest.approx(-1)  # one step of Adagrad; two would be -1.7


def test_others_may_change_their_gradients_before_the_pass_ends(client, name):
    bag = bag_of(client, name)
    weight = torch.nn.Parameter(torch.zeros(DIM, 1))
    transposed = weight.t()  # before the bag: its gradient comes later, and is a view of the bag's
    accumulates = weight.expand_as(weight).grad_fn.next_functions[0][0]

    def scale(*_):
        weight.grad.mul_(100)

    accumulates.register_hook(scale)
    (2 * (bag(ONE) + transposed)).sum().backward()
    assert weight.grad[0] == 200 and learnt(bag) == -2


def test_pushes_to_several_servers_leave_with_the_backward(node, client, name):
    """Each client's last one is not held back for a packet that another client's calls would share."""
    sent = []
    with millrace.Client(node.address) as first, millrace.Client(node.address) as second:
        bags = [bag_of(c, f"{name[-50:]}.{c is first}.{i}") for c in (first, second) for i in range(3)]
        for i, bag in enumerate(bags):
            bag.options["priority"] = i % 3 // 2  # the third has a call of its own
        for c in (first, second):
            c.push_gradients_tables_async = lambda tables, c=c, push=c.push_gradients_tables_async, **o: (
                sent.append((c, [table.name[-1] for table, *_ in tables], o["more"])),
                push(tables, **o),
            )[1]
        sum(bag(ONE).sum() for bag in bags).backward()
        for c in (first, second):
            its = [(sorted(names), more) for of, names, more in sent if of is c]
            assert sorted(names for names, _ in its) == [["0", "1"], ["2"]]
            assert [more for _, more in its] == [True, False]
        assert [learnt(bag) for bag in bags] == [-1] * 6


def test_a_push_is_waited_for_by_all_threads_that_want_it(client, name):
    bag = bag_of(client, name)
    begun, applied, seen = threading.Event(), threading.Event(), []

    def wait():
        begun.set()
        assert applied.wait(60)

    pushes.pushes_of(client).add(bag.table.id, wait)
    threads = [
        threading.Thread(target=lambda: (bag.flush(), seen.append(applied.is_set()))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
        assert begun.wait(60)
    threads[0].join(0.05)
    applied.set()
    for thread in threads:
        thread.join()
    assert seen == [True] * 3


def test_pushes_that_others_have_waited_for_are_not_kept(client, name):
    """As those of batches, which a DataLoader waits for."""
    bag = bag_of(client, name)
    bag.table.lookup(np.array([1]))
    in_flight, count = pushes.Pushes(), 50
    for _ in range(count):
        future = bag.table.push_gradients_async(np.array([1]), np.ones((1, DIM)))
        in_flight.add(bag.table.id, future.result, future._is_taken)
        future.result()
    del future
    gc.collect()
    kept = [f for f in gc.get_objects() if type(f) is millrace.Future and f._connection is client]
    assert len(kept) == 1 and learnt(bag) == -count


def test_a_batch_has_one_learning_rate(client, name):
    bag = bag_of(client, name)
    other = millrace.Embedding(bag.table)
    one, gradient = backward.Backward(), np.ones((1, 1, DIM), np.float32)
    batch = SimpleNamespace(id=7, samples=1)
    one.add_batch(batch, bag.table, gradient, {"learning_rate": 0.5, "priority": 1})
    one.add_batch(batch, other.table, gradient, {"learning_rate": 0.5})
    with pytest.raises(ValueError, match="learning_rate=0.5 and, for .* learning_rate=None"):
        one.add_batch(batch, other.table, gradient, {})


@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputed_segments_push_once(client, name, reentrant):
    from torch.utils.checkpoint import checkpoint

    bag = bag_of(client, name)
    x = torch.ones(1, DIM, requires_grad=True)
    for i in range(2):
        y = checkpoint(lambda x: bag(ONE) + x, x, use_reentrant=reentrant)
        checkpoint(lambda y: bag(ONE) + y, y, use_reentrant=reentrant).sum().backward()
        assert learnt(bag) == -2 * (i + 1)


def test_each_backward_counts_and_hooks_change_what_is_pushed(client, name):
    bag = bag_of(client, name)
    out = bag(ONE)
    out.register_hook(lambda gradient: gradient / 4)  # as for the factor of a GradScaler
    out.sum().backward(retain_graph=True)
    assert learnt(bag) == -0.25
    (out.sum() * 3).backward()
    assert learnt(bag) == -1


def test_each_result_of_one_call_learns_by_itself(client, name):
    bags = [bag_of(client, f"{name}.{part}") for part in "abc"]
    a, b, c = millrace.nn.forward_all(bags, [ONE] * 3)
    a.add_(1)  # in its place
    a.sum().backward()
    assert [learnt(bag) for bag in bags] == [-1, 0, 0]
    ((a * 2).sum() + c.sum()).backward()
    assert [learnt(bag) for bag in bags] == [-3, 0, -1]
    seen = []
    b.register_hook(lambda gradient: seen.append(gradient) or gradient * 5)
    b.sum().backward()
    assert [learnt(bag) for bag in bags] == [-3, -5, -1] and len(seen) == 1


def test_gradients_for_others_alone_push_nothing(client, name):
    bag = bag_of(client, name)
    w = torch.ones(DIM, requires_grad=True)
    out = bag(ONE)
    torch.autograd.grad((out * w).sum(), w, retain_graph=True)
    torch.autograd.grad((out * w).sum(), out, retain_graph=True)
    (out * w).sum().backward(inputs=[w], retain_graph=True)
    assert learnt(bag) == 0
    (out * w).sum().backward()
    assert learnt(bag) == -1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("needs", [False, True])
def test_weights_of_the_module_s_type(client, name, dtype, needs):
    bag = bag_of(client, name).to(dtype)
    weights = torch.full((1, 2), 0.5, dtype=dtype, requires_grad=needs)
    bag(torch.tensor([[1, 2]]), per_sample_weights=weights).sum().backward()
    assert learnt(bag) == -0.5
    assert not needs or weights.grad.dtype == dtype


def test_keys_without_bags(client, name):
    bag = bag_of(client, name)
    keys, none = torch.tensor([1, 2]), torch.tensor([], dtype=torch.int64)
    weights = torch.ones(2, requires_grad=True)
    for arguments in ((keys, none), (keys, none, weights)):
        out = bag(*arguments)
        assert out.shape == torch.nn.EmbeddingBag(3, DIM, mode="sum")(*arguments).shape == (0, DIM)
        out.sum().backward()
    assert torch.equal(weights.grad, torch.zeros(2))
    assert learnt(bag) == 0
