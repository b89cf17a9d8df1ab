"""Gradients over two and three Python workers, against torch's own."""
from __future__ import annotations

import random
import threading

import pytest

torch = pytest.importorskip("torch")

import rpc_functions as there  # noqa: E402
from rpc_world import joined  # noqa: E402
from waits import wait_until  # noqa: E402

import millrace  # noqa: E402
import millrace.autograd as dist_autograd  # noqa: E402
import millrace.rpc as rpc  # noqa: E402

WORLD_SIZE = 3


@pytest.fixture(scope="module", autouse=True)
def world(tmp_path_factory):
    """w0 is this process."""
    with joined(WORLD_SIZE, tmp_path_factory.mktemp("key")):
        yield


def close(a, b) -> bool:
    """Equal but for the order of sums."""
    return a.shape == b.shape and torch.allclose(a, b, rtol=1e-4, atol=1e-5)


def test_torch_s_own_example():
    with dist_autograd.context() as context_id:
        assert isinstance(context_id, int)
        t1, t2 = torch.rand(3, 3, requires_grad=True), torch.rand(3, 3, requires_grad=True)
        t3 = rpc.rpc_sync("w1", torch.add, (t1, t2))
        t4 = torch.rand(3, 3, requires_grad=True)
        loss = torch.mul(t3, t4).sum()
        dist_autograd.backward(context_id, [loss])
        gradients = dist_autograd.get_gradients(context_id)
        assert set(gradients) == {t1, t2, t4}
        assert (
            close(gradients[t1], t4.detach())
            and close(gradients[t2], t4.detach())
            and close(gradients[t4], (t1 + t2).detach())
        )
        assert t1.grad is None and t4.grad is None


def test_references_in_a_context():
    with dist_autograd.context() as context_id:
        t1, t2 = torch.rand(2, requires_grad=True), torch.rand(2, requires_grad=True)
        r1, r2 = rpc.remote("w1", torch.mul, (t1, 3.0)), rpc.remote("w2", torch.mul, (t2, t1))
        loss = (r1.to_here() + r2.to_here()).sum()
        dist_autograd.backward(context_id, [loss])
        gradients = dist_autograd.get_gradients(context_id)
        assert close(gradients[t1], 3.0 + t2.detach()) and close(gradients[t2], t1.detach())


def test_gradients_stay_where_parameters_live():
    rpc.rpc_sync(1, there.make_net, (5,))
    net = there.Net(5)
    x = torch.rand(4, 1, 8, 8)
    with dist_autograd.context() as context_id:
        out = rpc.rpc_sync(1, there.net_forward, (x,))
        loss = torch.nn.functional.cross_entropy(out, torch.arange(4))
        dist_autograd.backward(context_id, [loss])
        told = rpc.rpc_sync(1, there.net_gradients, (context_id,))
        as_tutorial = rpc.rpc_sync(1, there.gradients_as_told, (context_id,))
        assert dist_autograd.get_gradients(context_id) == {}
    torch.nn.functional.cross_entropy(net(x), torch.arange(4)).backward()
    assert len(as_tutorial) == len(told) == 6
    assert all(close(g, p.grad) for g, p in zip(told, net.parameters()))


def test_a_local_loss_needs_no_worker():
    x = torch.rand(3, requires_grad=True)
    with dist_autograd.context() as context_id:
        dist_autograd.backward(context_id, [(x * x).sum()])
        assert close(dist_autograd.get_gradients(context_id)[x], 2 * x.detach())


def test_several_results_and_constants():
    a, b = torch.rand(3, requires_grad=True), torch.rand(3, requires_grad=True)
    with dist_autograd.context() as context_id:
        got = rpc.rpc_sync(2, there.mixed, (a, b))
        assert got["count"] == 3 and not got["plain"].requires_grad and got["first"].requires_grad
        loss = (got["sum"] * got["product"] + got["first"].exp()).sum()
        dist_autograd.backward(context_id, [loss])
        gradients = dist_autograd.get_gradients(context_id)
    a1, b1 = a.detach().requires_grad_(), b.detach().requires_grad_()
    ((a1 + b1) * (a1 * b1) + a1.exp()).sum().backward()
    assert close(gradients[a], a1.grad) and close(gradients[b], b1.grad)


def test_a_worker_in_between_computes_too():
    rpc.rpc_sync(2, there.make_scale, ("k", torch.full((4,), 1.5)))
    x = torch.rand(4, requires_grad=True)
    with dist_autograd.context() as context_id:
        dist_autograd.backward(context_id, [rpc.rpc_sync(1, there.through, (2, "k", x)).pow(2).sum()])
        got, scale = dist_autograd.get_gradients(context_id)[x], rpc.rpc_sync(
            2, there.gradient_of, ("k", context_id)
        )
    x1, k = x.detach().requires_grad_(), torch.full((4,), 1.5, requires_grad=True)
    ((x1 * 2) * k + (x1 * 2).sin()).pow(2).sum().backward()
    assert close(got, x1.grad) and close(scale, k.grad)


def test_back_and_forth_between_the_same_workers():
    for rank in (0, 1):
        rpc.rpc_sync(rank, there.make_scale, ("a", torch.tensor([0.5, -0.3]) * (rank + 1)))
    x = torch.rand(2, requires_grad=True)
    with dist_autograd.context() as context_id:
        dist_autograd.backward(context_id, [rpc.rpc_sync(1, there.chain, (0, x, 6)).sum()])
        got = [dist_autograd.get_gradients(context_id)[x]] + [
            rpc.rpc_sync(r, there.gradient_of, ("a", context_id)) for r in (0, 1)
        ]
    x1 = x.detach().requires_grad_()
    a = [(torch.tensor([0.5, -0.3]) * (r + 1)).requires_grad_() for r in (0, 1)]
    y = x1
    for i in range(6):
        y = torch.tanh(y * a[(i + 1) % 2]) + y
    y.sum().backward()
    assert all(close(g, t.grad) for g, t in zip(got, (x1, *a)))


def test_more_than_96_tensors_that_came():
    x = torch.rand(2, requires_grad=True)
    with dist_autograd.context() as context_id:
        came = [rpc.rpc_sync(1 + i % 2, torch.mul, (x, float(i))) for i in range(200)]
        dist_autograd.backward(context_id, [sum(c.pow(2).sum() for c in came)])
        assert close(
            dist_autograd.get_gradients(context_id)[x],
            2 * x.detach() * sum(float(i) ** 2 for i in range(200)),
        )


def test_more_than_96_tensors_in_one_message():
    xs = [torch.rand(2, requires_grad=True) for _ in range(150)]
    with dist_autograd.context() as context_id:
        back = rpc.rpc_sync(1, there.same, xs)
        assert all(b.requires_grad for b in back)
        dist_autograd.backward(context_id, [sum((b * float(i)).sum() for i, b in enumerate(back))])
        gradients = dist_autograd.get_gradients(context_id)
    assert all(close(gradients[x], torch.full((2,), float(i))) for i, x in enumerate(xs))


def test_tensors_of_many_dimensions():
    x = torch.rand(2, 1, 2, 1, 3, requires_grad=True)
    with dist_autograd.context() as context_id:
        dist_autograd.backward(context_id, [rpc.rpc_sync(1, torch.exp, (x,)).sum()])
        assert close(dist_autograd.get_gradients(context_id)[x], x.detach().exp())


def test_a_loss_on_another_worker():
    x = torch.rand(3, requires_grad=True)
    with dist_autograd.context() as context_id:
        loss = rpc.remote(1, torch.dot, (x, x))
        loss.backward(context_id)
        assert close(dist_autograd.get_gradients(context_id)[x], 2 * x.detach())
    y = torch.rand(3, requires_grad=True)
    rpc.RRef(y.sum()).backward()
    assert close(y.grad, torch.ones(3))


def test_backward_twice():
    x = torch.rand(3, requires_grad=True)
    with dist_autograd.context() as context_id:
        loss = rpc.rpc_sync(1, torch.mul, (x, x)).sum()
        dist_autograd.backward(context_id, [loss], retain_graph=True)
        dist_autograd.backward(context_id, [loss])
        assert close(dist_autograd.get_gradients(context_id)[x], 4 * x.detach())
        with pytest.raises(millrace.InvalidArgument):
            dist_autograd.backward(context_id, [loss])


def test_passes_over_different_graphs_need_not_retain():
    x, y = torch.rand(3, requires_grad=True), torch.rand(3, requires_grad=True)
    with dist_autograd.context() as context_id:
        first = rpc.rpc_sync(1, torch.mul, (x * 2, 3.0)).sum()
        second = rpc.rpc_sync(1, torch.mul, (x * y, 5.0)).sum()
        dist_autograd.backward(context_id, [first])
        assert set(dist_autograd.get_gradients(context_id)) == {x}
        dist_autograd.backward(context_id, [second])
        gradients = dist_autograd.get_gradients(context_id)
        assert close(gradients[x], 6 + 5 * y.detach()) and close(gradients[y], 5 * x.detach())


def test_hooks_of_leaves_see_the_whole_gradient_once():
    """Of a leaf that is on both sides of remote calls, and of its node in torch's graph."""
    x = torch.rand(3, requires_grad=True)
    node = x.view_as(x).grad_fn.next_functions[0][0]
    seen, seen_by_node = [], []

    def halve(gradient):
        seen.append(gradient.clone())
        return gradient / 2

    handle = x.register_hook(halve)
    node.register_hook(lambda _inputs, gradients: seen_by_node.append(gradients[0].clone()))
    for factor in (0.5, 1.0):  # with the tensor's hook, and without
        seen.clear(), seen_by_node.clear()
        with dist_autograd.context() as context_id:
            y = rpc.rpc_sync(1, torch.mul, (x * 2, 3.0)) + rpc.rpc_sync(2, torch.mul, (x, 4.0))
            dist_autograd.backward(context_id, [(y * x).sum()])
            found = dist_autograd.get_gradients(context_id)[x]
        whole = 2 * 10 * x.detach()
        assert close(found, whole * factor) and x.grad is None
        assert len(seen_by_node) == 1
        if factor == 1.0:
            assert not seen and close(seen_by_node[0], whole)
        else:  # torch 1 shows the node's hooks the gradient from before the tensor's
            assert len(seen) == 1 and close(seen[0], whole)
        handle.remove()
    x.register_hook(halve)
    (x * 2).sum().backward()  # torch's own backward is as it was
    assert close(x.grad, torch.ones(3))


def test_several_roots():
    x = torch.rand(3, requires_grad=True)
    with dist_autograd.context() as context_id:
        y = rpc.rpc_sync(1, torch.mul, (x, 2.0))
        dist_autograd.backward(context_id, [y.sum(), y.pow(2).sum()])
        assert close(dist_autograd.get_gradients(context_id)[x], 2 + 8 * x.detach())


def test_gradients_in_double_precision():
    """As by torch alone, to the last bits, also where gradients of several calls add up."""
    torch.manual_seed(3)
    a = torch.rand(4, dtype=torch.float64, requires_grad=True)
    rpc.rpc_sync(1, there.make_scale, ("double", torch.rand(4, dtype=torch.float64)))
    with dist_autograd.context() as context_id:
        x = rpc.rpc_sync(1, there.scaled, ("double", a))
        mixed = rpc.rpc_sync(2, torch.mul, (x.float(), 3.0)).double()
        z = rpc.rpc_sync(2, torch.mul, (x, x)) + rpc.rpc_sync(2, torch.add, (x, a)) + mixed
        dist_autograd.backward(context_id, [z.sum()])
        found = dist_autograd.get_gradients(context_id)[a]
        scale = rpc.rpc_sync(1, there.kept_value, ("double",)).detach()
        of_scale = rpc.rpc_sync(1, there.gradient_of, ("double", context_id))
    assert found.dtype == of_scale.dtype == torch.float64
    local = a.detach().clone().requires_grad_()
    local_scale = scale.clone().requires_grad_()
    x = local * local_scale
    (x * x + x + local + (x.float() * 3.0).double()).sum().backward()
    assert torch.allclose(found, local.grad, rtol=1e-15, atol=0)
    assert torch.allclose(of_scale, local_scale.grad, rtol=1e-15, atol=0)


def test_what_is_refused():
    x = torch.rand(3, requires_grad=True)
    with dist_autograd.context() as context_id:
        with pytest.raises(ValueError, match="scalar"):
            dist_autograd.backward(context_id, [x * 2])
        with pytest.raises(ValueError, match="no roots"):
            dist_autograd.backward(context_id, [])
        with pytest.raises(ValueError, match="require grad"):
            dist_autograd.backward(context_id, [torch.ones(())])
        with pytest.raises(TypeError, match="float32 or float64"):
            rpc.rpc_sync(1, there.same, (torch.ones(2, dtype=torch.float16, requires_grad=True),))
        with pytest.raises(RuntimeError, match="already"):
            with dist_autograd.context():
                pass
    for call in (
        lambda: dist_autograd.get_gradients(context_id),
        lambda: dist_autograd.backward(context_id, [x.sum()]),
    ):
        with pytest.raises(ValueError, match="no autograd context"):
            call()


def test_a_function_s_failure_in_backward_is_told():
    class Bad(torch.autograd.Function):
        @staticmethod
        def forward(_ctx, x):
            return x * 1

        @staticmethod
        def backward(_ctx, _g):
            raise RuntimeError("bad backward")

    x = torch.rand(3, requires_grad=True)
    with dist_autograd.context() as context_id:
        y = rpc.rpc_sync(1, torch.mul, (Bad.apply(x), 2.0))
        with pytest.raises(millrace.FunctionFailed, match="bad backward"):
            dist_autograd.backward(context_id, [y.sum()])


def test_a_pass_follows_one_that_failed():
    """What the first one has found here, and never came to its end, is no part of the gradient."""
    x = torch.rand(3, requires_grad=True)
    rpc.rpc_sync(1, there.keep, ("fails", True))
    with dist_autograd.context() as context_id:
        loss = (rpc.rpc_sync(1, there.fails_at_will, (2 * x,)) + x).sum()
        for _ in range(3):
            with pytest.raises(RuntimeError, match="fails at will"):
                dist_autograd.backward(context_id, [loss], retain_graph=True)
        assert dist_autograd.get_gradients(context_id) == {}
        rpc.rpc_sync(1, there.keep, ("fails", False))
        for times in (1, 2):
            dist_autograd.backward(context_id, [loss], retain_graph=True)
            assert close(dist_autograd.get_gradients(context_id)[x], torch.full((3,), 3.0 * times))


def test_a_tensor_changed_in_place_is_found():
    x = torch.rand(3, requires_grad=True)
    with dist_autograd.context() as context_id:
        y = x * 2
        z = y * y
        y.add_(1)
        with pytest.raises(millrace.FunctionFailed, match="inplace"):
            dist_autograd.backward(context_id, [z.sum()])


def test_contexts_go_everywhere():
    x = torch.rand(3, requires_grad=True)
    for _ in range(5):
        with dist_autograd.context() as context_id:
            dist_autograd.backward(context_id, [rpc.rpc_sync(1, there.relay, (2, torch.mul, x, x)).sum()])
    for rank in range(WORLD_SIZE):
        wait_until(lambda: rpc.rpc_sync(rank, there.contexts_here) == 0, f"worker {rank} has no contexts")


def test_contexts_of_several_threads_keep_apart():
    rpc.rpc_sync(1, there.make_scale, ("k", torch.ones(4)))
    errors = []

    def work(n):
        for i in range(10):
            x = torch.full((4,), float(n + 1), requires_grad=True)
            with dist_autograd.context() as context_id:
                y = rpc.rpc_sync(1, there.through, (2 if n % 2 else 0, "k", x))
                dist_autograd.backward(context_id, [(y * (i + 1)).sum()])
                expected = (i + 1) * (2.0 + 2.0 * torch.cos(2 * x.detach()))
                if not close(dist_autograd.get_gradients(context_id)[x], expected):
                    errors.append((n, i))

    for rank in (0, 2):
        rpc.rpc_sync(rank, there.make_scale, ("k", torch.ones(4)))
    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


OPS = [
    ("add", 2, torch.add),
    ("mul", 2, torch.mul),
    ("tanh", 1, torch.tanh),
    ("sin", 1, torch.sin),
    ("sub", 2, torch.sub),
    ("sigmoid", 1, torch.sigmoid),
]


@pytest.mark.parametrize("seed", range(12))
def test_random_graphs(seed):
    """The same graph twice: all here, and with each operation on some worker, by value, by reference or
    through another worker."""
    draw = random.Random(seed)
    torch.manual_seed(seed)
    leaves = [torch.randn(5, requires_grad=True) for _ in range(3)]
    local = [leaf.detach().clone().requires_grad_() for leaf in leaves]
    with dist_autograd.context() as context_id:
        far, near = list(leaves), list(local)
        for _ in range(25):
            _, arity, op = draw.choice(OPS)
            picked = [draw.randrange(len(far)) for _ in range(arity)]
            near.append(op(*[near[i] for i in picked]))
            args = tuple(far[i] for i in picked)
            way, to = draw.randrange(5), draw.randrange(WORLD_SIZE)
            if way == 0:
                far.append(op(*args))
            elif way == 1:
                far.append(rpc.remote(to, op, args).to_here())
            elif way == 2:
                far.append(rpc.rpc_sync(to, there.relay, (draw.randrange(WORLD_SIZE), op, *args)))
            elif way == 3:
                far.append(rpc.rpc_async(to, op, args).wait())
            else:
                far.append(rpc.rpc_sync(to, op, args))
        used = [draw.randrange(3, len(far)) for _ in range(4)]
        dist_autograd.backward(context_id, [sum(far[i].sum() for i in used)])
        gradients = dist_autograd.get_gradients(context_id)
    sum(near[i].sum() for i in used).backward()
    for far_leaf, near_leaf in zip(leaves, local):
        if near_leaf.grad is None:
            assert far_leaf not in gradients
        else:
            assert close(gradients[far_leaf], near_leaf.grad)
