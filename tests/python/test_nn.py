"""EmbeddingBag and Embedding beside torch's: values, gradients and what the optimizer makes of them; and what
is refused."""
import copy
import pickle
import random
import threading

import numpy as np
import pytest

import millrace

torch = pytest.importorskip("torch")
from millrace._nn.pushes import pushes_of  # noqa: E402

KEYS, DIM, LR = 40, 6, 0.25
STEPS = 4
PADDING = 7


def bag_and_weights(client, name, mode, optimizer=None, **arguments):
    """An EmbeddingBag, and its rows as torch has them. The last is not asked for by random inputs."""
    bag = millrace.EmbeddingBag(
        client, name, dim=DIM, mode=mode, optimizer=optimizer or millrace.optim.SGD(lr=LR), **arguments
    )
    return bag, torch.nn.Parameter(torch.from_numpy(bag.table.lookup(np.arange(KEYS))))


def rows_of(bag):
    bag.flush()
    return torch.from_numpy(bag.table.lookup(np.arange(KEYS)))


def reference(weight, bags, mode, weights=None):
    """Bags pooled by torch's plain operations, so that it can do what its own EmbeddingBag cannot."""
    results = []
    at = 0
    for bag in bags:
        if not bag:
            results.append(torch.zeros(DIM))
            continue
        w = torch.ones(len(bag)) if weights is None else weights[at : at + len(bag)]
        at += len(bag)
        over = {"sum": torch.tensor(1.0), "mean": w.sum(), "sqrtn": (w * w).sum().sqrt()}[mode]
        results.append((weight[torch.tensor(bag)] * w[:, None]).sum(0) / over)
    return torch.stack(results)


def random_bags(rng, count, empty=True):
    return [
        [rng.randrange(KEYS - 1) for _ in range(rng.choice([0, 1, 2, 5, 9] if empty else [1, 3]))]
        for _ in range(count)
    ]


def csr(bags, dtype):
    begins = np.cumsum([0] + [len(bag) for bag in bags])
    return torch.tensor([key for bag in bags for key in bag], dtype=dtype), torch.tensor(begins, dtype=dtype)


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


# ---- beside torch ----


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_it_is_torch_s_embedding_bag(client, name, mode, last, dtype):
    bag, weight = bag_and_weights(client, name, mode, include_last_offset=last, padding_idx=PADDING)
    theirs = torch.nn.EmbeddingBag(
        KEYS, DIM, mode=mode, include_last_offset=last, padding_idx=PADDING, _weight=weight.data
    )
    optimizer = torch.optim.SGD(theirs.parameters(), lr=LR)
    rng = random.Random(name)
    for step in range(STEPS):
        keys, offsets = csr(random_bags(rng, rng.choice([1, 3, 17])), dtype)
        arguments = (keys, offsets if last else offsets[:-1])
        if step == 3 and not last:  # with include_last_offset, torch 1.13 reads beyond the end
            arguments = (torch.randint(KEYS - 1, (5, 4), dtype=dtype),)
        ours, other = bag(*arguments), theirs(*arguments)
        close(ours, other)
        factors = torch.randn_like(ours)
        optimizer.zero_grad()
        (ours * factors).sum().backward()
        (other * factors).sum().backward()
        optimizer.step()
    close(rows_of(bag), theirs.weight.data)


@pytest.mark.parametrize("mode", ["sum", "mean", "sqrtn"])
def test_bags_of_one_key_each_go_as_rows(client, name, mode):
    bag, weight = bag_and_weights(client, name, mode, padding_idx=PADDING)
    optimizer = torch.optim.SGD([weight], lr=LR)
    keys = torch.tensor([3, 1, 3, 2])
    for arguments, are_single in (
        ((keys[:, None],), True),
        ((keys, torch.arange(4)), True),
        ((keys, torch.tensor([0, 0, 2, 3])), False),
        ((torch.tensor([[3], [PADDING], [1]]),), False),
        ((keys.view(2, 2),), False),
    ):
        assert (bag._needs(*arguments).offsets is None) == are_single
    for arguments in ((keys[:, None],), (keys, torch.arange(4))):
        ours, theirs = bag(*arguments), reference(weight, [[key] for key in keys.tolist()], mode)
        close(ours, theirs)
        for one in (ours, theirs):
            (one - 0.5).square().sum().backward()
        optimizer.step(), optimizer.zero_grad()
    close(rows_of(bag), weight.data)


@pytest.mark.parametrize("mode", ["sum", "mean", "sqrtn"])
@pytest.mark.parametrize("needs", [False, True])
def test_weights_and_their_gradients(client, name, mode, needs):
    bag, weight = bag_and_weights(client, name, mode, include_last_offset=True)
    rng = random.Random(name)
    for _ in range(STEPS):
        bags = random_bags(rng, 9)
        keys, offsets = csr(bags, torch.int64)
        ours = (torch.rand(len(keys)) + 0.5).requires_grad_(needs)
        theirs = ours.detach().clone().requires_grad_(needs)
        a, b = bag(keys, offsets, ours), reference(weight, bags, mode, theirs)
        close(a, b)
        factors = torch.randn_like(a)
        weight.grad = None
        (a * factors).sum().backward()
        (b * factors).sum().backward()
        if needs:
            close(ours.grad, theirs.grad)
        weight.data -= LR * weight.grad
    close(rows_of(bag), weight.data)


def test_a_bag_whose_weights_cancel_is_zeros(client, name):
    bag, _ = bag_and_weights(client, name, "mean")
    for needs in (False, True):
        weights = torch.tensor([1.0, -1.0]).requires_grad_(needs)
        out = bag(torch.tensor([1, 2]), torch.tensor([0]), weights)
        assert torch.equal(out, torch.zeros(1, DIM))
        if needs:
            out.sum().backward()
            assert torch.isfinite(weights.grad).all()


def test_weights_leave_padding_out(client, name):
    bag, weight = bag_and_weights(client, name, "sum", padding_idx=PADDING)
    theirs = torch.nn.EmbeddingBag(KEYS, DIM, mode="sum", padding_idx=PADDING, _weight=weight.data)
    keys = torch.tensor([[1, PADDING, 2], [PADDING, PADDING, PADDING]])
    mine, other = (torch.full((2, 3), 0.5, requires_grad=True) for _ in range(2))
    a, b = bag(keys, per_sample_weights=mine), theirs(keys, per_sample_weights=other)
    close(a, b)
    (a.sum() * 2).backward()
    (b.sum() * 2).backward()
    close(mine.grad, other.grad)


def test_what_one_backward_has_for_a_table_is_one_step_of_adagrad(client, name):
    bag, weight = bag_and_weights(client, name, "sum", optimizer=millrace.optim.Adagrad(lr=LR))
    same = millrace.EmbeddingBag(client.table(name), padding_idx=PADDING)
    rows = millrace.Embedding(client.table(name))
    theirs = torch.nn.EmbeddingBag(KEYS, DIM, mode="sum", _weight=weight.data)
    optimizer = torch.optim.Adagrad(theirs.parameters(), lr=LR)
    for _ in range(STEPS):
        a, b, c = (torch.randint(KEYS - 1, (4, 3)) for _ in range(3))
        b[b == PADDING] = 0
        scale = torch.rand(4, 3)
        ours = [bag(a), same(b), rows(c).sum(1), bag(a, per_sample_weights=scale)]
        others = [theirs(a), theirs(b), theirs(c), theirs(a, per_sample_weights=scale)]
        factors = torch.randn(4, DIM)
        optimizer.zero_grad()
        sum((x * factors).sum() for x in ours).backward()
        sum((x * factors).sum() for x in others).backward()
        optimizer.step()
    close(rows_of(bag), theirs.weight.data)


def test_embedding_is_torch_s(client, name):
    emb = millrace.Embedding(
        client, name, padding_idx=PADDING, dim=DIM, optimizer=millrace.optim.SGD(lr=LR), pooling="none"
    )
    weight = torch.from_numpy(emb.table.lookup(np.arange(KEYS)))
    weight[PADDING] = 0
    theirs = torch.nn.Embedding(KEYS, DIM, padding_idx=PADDING, _weight=weight)
    optimizer = torch.optim.SGD(theirs.parameters(), lr=LR)
    for shape in ((), (5,), (2, 3), (2, 0), (2, 3, 4)):
        keys = torch.randint(KEYS, shape)
        a, b = emb(keys), theirs(keys)
        assert a.shape == b.shape == (*shape, DIM)
        close(a, b)
        optimizer.zero_grad()
        (a * a).sum().backward()
        (b * b).sum().backward()
        optimizer.step()
    ours = rows_of(emb)
    ours[PADDING] = 0
    close(ours, theirs.weight.data)
    assert torch.equal(emb(torch.full((2, 2), PADDING)), torch.zeros(2, 2, DIM))


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_gradients_over_frequencies(client, name, mode):
    """scale_grad_by_freq: over how often a key is in the whole input. The bags are made from the rows of
    torch's Embedding, as its EmbeddingBag of 1.13 counts other keys."""
    bag, weight = bag_and_weights(client, name, mode, scale_grad_by_freq=True, padding_idx=PADDING)
    rows = millrace.Embedding(bag.table, scale_grad_by_freq=True, padding_idx=PADDING)
    weight.data[PADDING] = 0
    theirs = torch.nn.Embedding(KEYS, DIM, scale_grad_by_freq=True, padding_idx=PADDING, _weight=weight.data)
    optimizer = torch.optim.SGD(theirs.parameters(), lr=LR)
    rng = random.Random(name)
    for step in range(STEPS):
        bags = [[key for key in some if key != PADDING] for some in random_bags(rng, 9)]
        keys, offsets = csr(bags, torch.int64)
        factors = torch.rand(len(keys)) + 0.5 if step > 1 else torch.ones(len(keys))
        if step == 0:
            ours, other = rows(keys), theirs(keys)
        else:
            places = [list(range(begin, end)) for begin, end in zip(offsets, offsets[1:])]
            weights = None if step == 1 else factors.requires_grad_(step == 3)
            ours = bag(keys, offsets[:-1], weights)
            other = reference(theirs(keys), places, mode, factors.detach())
        optimizer.zero_grad()
        (ours**2).sum().backward()
        (other**2).sum().backward()
        optimizer.step()
    mine = rows_of(bag)
    mine[PADDING] = 0
    close(mine, theirs.weight.data)
    with pytest.raises(ValueError, match="scale_grad_by_freq cannot be had for a loader's batch"):
        bag(millrace.data.Batch(1, 1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_largest_of_a_bag(client, name, dtype):
    bag = millrace.EmbeddingBag(
        client, name, embedding_dim=DIM, mode="max", padding_idx=PADDING, optimizer=millrace.optim.SGD(lr=LR)
    ).to(dtype)
    assert (bag.mode, bag.table.pooling) == ("max", "none")
    weight = torch.from_numpy(bag.table.lookup(np.arange(KEYS)))
    theirs = torch.nn.EmbeddingBag(KEYS, DIM, mode="max", padding_idx=PADDING, _weight=weight)
    optimizer = torch.optim.SGD(theirs.parameters(), lr=LR)
    rng = random.Random(name)
    for step in range(STEPS):
        keys, offsets = csr(random_bags(rng, 9), torch.int32)
        arguments = (keys, offsets[:-1]) if step < 2 else (torch.randint(KEYS - 1, (5, 4)),)
        ours, other = bag(*arguments), theirs(*arguments)
        assert ours.dtype == dtype
        optimizer.zero_grad()
        if dtype == torch.float32:
            close(ours, other)
            (ours**2).sum().backward()
            (other**2).sum().backward()
            optimizer.step()
        else:
            torch.testing.assert_close(ours.float(), other, rtol=1e-2, atol=1e-2)
            ours.sum().backward()
            bag.flush()
            theirs.weight.data[:] = torch.from_numpy(bag.table.lookup(np.arange(KEYS)))
    close(rows_of(bag), theirs.weight.data)
    empty = bag(torch.tensor([], dtype=torch.int64), torch.tensor([0, 0]))
    assert torch.equal(empty, torch.zeros(2, DIM, dtype=dtype))
    empty.sum().backward()
    other_pooling = millrace.EmbeddingBag(client, name + "s", dim=DIM, mode="sum")
    assert millrace.EmbeddingBag(other_pooling.table, mode="max").mode == "max"
    for says, call in (
        (
            "per_sample_weights go with sum",
            lambda: bag(keys[None], per_sample_weights=torch.ones(1, len(keys))),
        ),
        ("mode 'max' cannot be had for a loader's batch", lambda: bag(millrace.data.Batch(1, 1))),
    ):
        with pytest.raises(ValueError, match=says):
            call()


def test_torch_s_other_arguments(client, name):
    make = {millrace.EmbeddingBag: name + "b", millrace.Embedding: name + "e"}
    for kind, table in make.items():
        module = kind(
            client,
            table,
            embedding_dim=DIM,
            dtype=torch.float16,
            device="cpu",
            sparse=True,
            max_norm=None,
            norm_type=1.0,
            _freeze=True,
        )
        assert (module.embedding_dim, module.table.spec.dtype, module.sparse) == (DIM, "f16", True)
        assert not module.learns and module(torch.tensor([[1]])).dtype == torch.float16
        again = kind(client.table(table), dtype=torch.float64)
        assert again.learns and again(torch.tensor([[1]])).dtype == torch.float64
        assert kind(client, table + "2", dim=DIM, dtype=torch.float64).table.spec.dtype == "f32"
        for error, says, more in (
            (
                ValueError,
                "num_embeddings cannot be had: rows are made as.*capacity_rows",
                {"num_embeddings": 9},
            ),
            (ValueError, "max_norm cannot be had: .*clip_norm", {"max_norm": 1.0}),
            (ValueError, "_weight cannot be had: .*from_pretrained", {"_weight": torch.zeros(2, DIM)}),
            (ValueError, "dtype torch.int64 cannot be had", {"dtype": torch.int64}),
            (TypeError, "dim and embedding_dim are the same", {"dim": DIM}),
        ):
            with pytest.raises(error, match=f"{kind.__name__}: {says}"):
                kind(client, table, **{"embedding_dim": DIM, **more})
        with pytest.raises(AttributeError, match="has no weight: rows live at the server"):
            module.weight
        assert not hasattr(module, "num_embeddings")
        with pytest.raises(AttributeError, match="no attribute 'wieght'"):
            module.wieght


def test_empty_inputs(client, name):
    bag, _ = bag_and_weights(client, name, "mean")
    none = torch.tensor([], dtype=torch.int64)
    theirs = torch.nn.EmbeddingBag(KEYS, DIM)
    for arguments in ((none, none), (none, torch.tensor([0, 0])), (torch.zeros(0, 3, dtype=torch.int64),)):
        assert torch.equal(bag(*arguments), theirs(*arguments))
    assert torch.equal(bag(torch.zeros(3, 0, dtype=torch.int64)), torch.zeros(3, DIM))
    bag(none, torch.tensor([0])).sum().backward()


def test_slots(client, name):
    bag, weight = bag_and_weights(client, name, "sum", num_slots=3)
    keys = torch.randint(KEYS - 1, (12, 2))
    assert bag(keys).shape == (4, 3, DIM)
    close(bag(keys).view(12, DIM), weight[keys].sum(1).data)
    with pytest.raises(ValueError, match="10 bags are no multiple of num_slots, 3"):
        bag(keys[:10])


def test_keys_are_any_64_bits(client, name):
    bag = millrace.EmbeddingBag(client, name, dim=DIM, mode="sum", optimizer=millrace.optim.SGD(lr=1))
    keys = torch.tensor([[-1], [2**62], [-(2**63)]])
    before = bag(keys)
    before.sum().backward()
    close(bag(keys), before - 1)
    assert torch.equal(bag(keys[:1].to(torch.int32)), bag(keys[:1]))


# ---- when gradients go, and how errors come back ----


def table_rows(client, name):
    return next(info.rows for info in client.features() if info.name == name)


@pytest.mark.parametrize("how", ["eval", "no_grad"])
def test_evaluation_makes_no_rows_and_learns_nothing(client, name, how):
    bag = millrace.EmbeddingBag(client, name, dim=DIM, mode="sum", optimizer=millrace.optim.SGD(lr=LR))
    emb = millrace.Embedding(bag.table)
    keys = torch.arange(10).view(5, 2)
    for module in (bag, emb):
        if how == "eval":
            bag.eval()
            emb.eval()
            out = module(keys)
        else:
            with torch.no_grad():
                out = module(keys)
        assert not out.requires_grad
        weights = torch.ones(5, 2, requires_grad=True)
        if how == "eval" and module is bag:
            (bag(keys, per_sample_weights=weights) * 2).sum().backward()
            close(weights.grad.view(-1), emb(keys).sum(-1).view(-1) * 2)
    assert table_rows(client, name) == 0
    bag.train()(keys)
    assert table_rows(client, name) == 10


def test_a_backward_that_fails_pushes_nothing(client, name):
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            raise ArithmeticError("on purpose")

    bag, weight = bag_and_weights(client, name, "sum")
    keys = torch.tensor([[1, 2]])
    x = torch.ones(1, requires_grad=True)
    with pytest.raises(ArithmeticError, match="on purpose"):
        (bag(keys).sum() + Fails.apply(x).sum()).backward()
    with pytest.raises(ArithmeticError, match="on purpose"):  # the rows first, then the failure
        (bag(keys) * Fails.apply(x * 1)).sum().backward()
    assert torch.equal(rows_of(bag), weight.data)
    bag(keys).sum().backward()
    close(rows_of(bag)[1:3], weight.data[1:3] - LR)


def test_gradients_of_gradients_are_refused(client, name):
    bag, weight = bag_and_weights(client, name, "sum")
    out = bag(torch.tensor([[1, 2]]))
    with pytest.raises(RuntimeError, match="create_graph"):
        (out * out).sum().backward(create_graph=True)
    assert torch.equal(rows_of(bag), weight.data)
    out = bag(torch.tensor([[1, 2]]))
    (gradient,) = torch.autograd.grad((out**3).sum(), out, create_graph=True)
    close(torch.autograd.grad(gradient.sum(), out)[0], 6 * out)


def test_staleness_counts_pushes_under_way(client, name):
    bag, _ = bag_and_weights(client, name, "sum", staleness=2)
    pushes = pushes_of(client)
    waited = []
    for i in range(5):
        pushes.add(bag.table.id, lambda i=i: waited.append(i))
    bag(torch.tensor([[1]]))
    assert waited == [0, 1, 2]
    bag.flush()
    assert waited == [0, 1, 2, 3, 4]


def test_a_push_that_failed_is_told_at_the_next_use_and_once(client, name):
    bag, weight = bag_and_weights(client, name, "sum")
    keys = torch.tensor([[1]])
    for use in (lambda: bag(keys), bag.flush, lambda: millrace.nn.flush(torch.nn.ModuleList([bag]))):
        out = bag(keys)
        client.freeze("all")
        out.sum().backward()
        with pytest.raises(millrace.Frozen):
            use()
        client.freeze("off")
        use()
    assert torch.equal(rows_of(bag), weight.data)


def test_a_push_to_several_tables_that_failed_is_told_once(client, name):
    a, b = (bag_and_weights(client, f"{name[:50]}.{i}", "sum")[0] for i in range(2))
    keys = torch.tensor([[1]])
    out = a(keys) + b(keys)
    client.freeze("all")
    out.sum().backward()
    client.freeze("off")
    with pytest.raises(millrace.Frozen):
        b(keys)
    a(keys)
    a.flush(), b.flush()


def test_closing_the_client_waits_for_pushes(node, client, name):
    bag, weight = bag_and_weights(client, name, "sum")
    with millrace.Client(node.address) as other:
        millrace.EmbeddingBag(other.table(name))(torch.tensor([[3]])).sum().backward()
    close(rows_of(bag)[3], weight.data[3] - LR)
    other = millrace.Client(node.address)
    out = millrace.EmbeddingBag(other.table(name))(torch.tensor([[3]]))
    client.freeze("all")
    out.sum().backward()
    with pytest.raises(millrace.Frozen):
        other.close()
    client.freeze("off")
    assert other.closed


def test_an_error_of_the_block_is_not_hidden_by_one_of_the_close(node, client, name):
    bag_and_weights(client, name, "sum")
    with pytest.raises(ArithmeticError):
        with millrace.Client(node.address) as other:
            out = millrace.EmbeddingBag(other.table(name))(torch.tensor([[3]]))
            client.freeze("all")
            out.sum().backward()
            raise ArithmeticError
    client.freeze("off")


# ---- as a module ----


def test_its_parameter_has_no_elements_and_it_has_no_state(client, name):
    bag, _ = bag_and_weights(client, name, "sum")
    model = torch.nn.Sequential(bag, torch.nn.Linear(DIM, 1))
    assert [n for n, p in model.named_parameters() if p.numel()] == ["1.weight", "1.bias"] and not list(
        bag.buffers()
    )
    assert list(model.state_dict()) == ["1.weight", "1.bias"]
    model.load_state_dict(model.state_dict())
    with pytest.raises(TypeError, match="lives? at"):
        pickle.dumps(bag)
    assert copy.deepcopy(model)[0].table is bag.table
    assert name in repr(bag)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_results_follow_the_module_s_type_and_gradients_any(client, name, dtype):
    bag, weight = bag_and_weights(client, name, "sum")
    out = bag.to(dtype)(torch.tensor([[1, 2]]))
    assert out.dtype == dtype
    out.sum().backward()
    close(rows_of(bag)[1:3], weight.data[1:3] - LR)
    assert bag.to("cpu").float()(torch.tensor([[1]])).dtype == torch.float32


def test_autocast(client, name):
    bag, weight = bag_and_weights(client, name, "sum")
    linear = torch.nn.Linear(DIM, 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = linear(bag(torch.tensor([[1]])))
    assert out.dtype == torch.bfloat16
    out.float().sum().backward()
    torch.testing.assert_close(
        rows_of(bag)[1], weight.data[1] - LR * linear.weight.sum(0).data, rtol=2e-2, atol=2e-2
    )


def test_options_of_calls(client, name):
    bag, weight = bag_and_weights(client, name, "sum", wire_dtype="bf16", priority=3, deadline_s=30)
    model = torch.nn.ModuleList([bag])
    millrace.nn.set_call_options(model, learning_rate=1.0, step=5)
    assert bag.options == {
        "wire_dtype": "bf16",
        "priority": 3,
        "deadline_s": 30,
        "learning_rate": 1.0,
        "step": 5,
    }
    bag(torch.tensor([[1]])).sum().backward()
    close(rows_of(bag)[1], weight.data[1] - 1)
    millrace.nn.set_call_options(model, learning_rate=None)
    assert "learning_rate" not in bag.options
    bag.options["nonsense"] = 1
    with pytest.raises(TypeError, match="nonsense"):
        bag(torch.tensor([[1]]))


def test_many_threads_have_backwards_of_their_own(client, name):
    bags = [bag_and_weights(client, f"{name[-50:]}.{i}", "sum") for i in range(4)]

    def train(bag):
        for _ in range(20):
            bag(torch.tensor([[1, 2], [2, 3]])).sum().backward()

    threads = [threading.Thread(target=train, args=(bag,)) for bag, _ in bags]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for bag, weight in bags:
        torch.testing.assert_close(
            rows_of(bag)[1:4],
            weight.data[1:4] - 20 * LR * torch.tensor([[1.0], [2], [1]]),
            rtol=1e-4,
            atol=1e-4,
        )


# ---- what is refused ----


def test_refusals_when_made(client, name):
    table = client.table(name, DIM, pooling="mean")
    none = client.table(name[-55:] + ".none", DIM, pooling="none")
    for error, says, arguments, more in (
        (ValueError, "mode is 'median'; it is one of sum, mean", (table,), {"mode": "median"}),
        (ValueError, "pools by mean, not sum", (table,), {"mode": "sum"}),
        (ValueError, "pools by none", (none,), {}),
        (TypeError, "is there already: dim", (table,), {"dim": 3}),
        (TypeError, "needs a dim", (client, name), {"optimizer": millrace.optim.SGD(lr=1)}),
        (TypeError, "come first", (30, 4), {}),
        (
            TypeError,
            r"optimizer is a torch[\w.]*\.SGD; it is one of millrace.optim",
            (client, name + "y"),
            {"dim": 3, "optimizer": torch.optim.SGD([torch.zeros(1)], lr=1)},
        ),
        (LookupError, "nowhere", (client, "nowhere"), {}),
        (ValueError, "staleness is -1", (table,), {"staleness": -1}),
        (ValueError, "dim", (client, name + "x", None, "sum"), {"dim": 0}),
    ):
        with pytest.raises(error, match=says):
            millrace.EmbeddingBag(*arguments, **more)
    with pytest.raises(millrace.FeatureMismatch, match="pooling"):
        millrace.EmbeddingBag(client, name, dim=DIM, mode="sum", initializer=millrace.init.constant(0))


def test_refusals_of_forward(client, name):
    bag, _ = bag_and_weights(client, name, "sum")
    last = millrace.EmbeddingBag(bag.table, include_last_offset=True)
    keys = torch.tensor([1, 2, 3])
    for error, says, call in (
        (TypeError, "int32 or int64, not torch.float32", lambda: bag(keys.float(), torch.tensor([0]))),
        (TypeError, "not list", lambda: bag([1, 2])),
        (ValueError, "1D or 2D", lambda: bag(keys.view(1, 1, 3))),
        (ValueError, "offsets has to be None", lambda: bag(keys.view(1, 3), torch.tensor([0]))),
        (ValueError, "got None", lambda: bag(keys)),
        (ValueError, "1D tensor", lambda: bag(keys, torch.tensor([[0]]))),
        (ValueError, r"offsets\[0\] has to be 0", lambda: bag(keys, torch.tensor([1, 2]))),
        (ValueError, "must not fall", lambda: bag(keys, torch.tensor([0, 4]))),
        (ValueError, "must not fall", lambda: bag(keys, torch.tensor([0, 2, 1]))),
        (ValueError, "last offset is 2, for 3 keys", lambda: last(keys, torch.tensor([0, 2]))),
        (ValueError, "at least 1", lambda: last(keys, torch.tensor([], dtype=torch.int64))),
        (
            ValueError,
            "per_sample_weights have the shape",
            lambda: bag(keys, torch.tensor([0]), torch.ones(2)),
        ),
    ):
        with pytest.raises(error, match=says):
            call()


# ---- dense parameters ----


def test_a_variable_is_a_tensor_that_learns(client, name):
    variable = millrace.nn.Variable(
        client, name, (2, 3), optimizer=millrace.optim.Adagrad(lr=LR), initializer=millrace.init.constant(0.5)
    )
    theirs = torch.nn.Parameter(torch.full((2, 3), 0.5))
    optimizer = torch.optim.Adagrad([theirs], lr=LR)
    x = torch.randn(4, 3)
    for _ in range(STEPS):
        ours = x @ variable().T + (variable() ** 2).sum()  # twice in one backward: one step
        other = x @ theirs.T + (theirs**2).sum()
        close(ours, other)
        optimizer.zero_grad()
        ours.pow(2).sum().backward()
        other.pow(2).sum().backward()
        optimizer.step()
    close(variable.eval()(), theirs.data)
    assert not variable().requires_grad
    assert torch.equal(millrace.nn.Variable(client, name)(), millrace.nn.Variable(client.variable(name))())
    with pytest.raises(LookupError):
        millrace.nn.Variable(client, "nowhere")


def test_a_scalar_variable(client, name):
    bias = millrace.nn.Variable(client, name, (), optimizer=millrace.optim.SGD(lr=1))
    (bias() * 3).backward()
    assert bias().item() == -3


def test_linear_is_torch_s(client, name):
    ours = millrace.nn.Linear(client, name[-50:], 5, 3, optimizer=millrace.optim.SGD(lr=LR))
    theirs = torch.nn.Linear(5, 3)
    theirs.weight.data, theirs.bias.data = ours.weight().detach().clone(), ours.bias().detach().clone()
    assert 0.2 < theirs.weight.abs().max() <= 5**-0.5 and not torch.equal(
        theirs.weight[0], theirs.weight[1]
    )
    optimizer = torch.optim.SGD(theirs.parameters(), lr=LR)
    for _ in range(STEPS):
        x = torch.randn(7, 5)
        optimizer.zero_grad()
        ours(x).pow(2).mean().backward()
        theirs(x).pow(2).mean().backward()
        optimizer.step()
    close(ours(x), theirs(x).detach())
    assert (
        millrace.nn.Linear(client, name[-50:], 5, 3, bias=False, optimizer=millrace.optim.SGD(lr=LR)).bias
        is None
    )


# ---- several modules at once ----


def test_forward_all_is_each_module_s_forward(client, name):
    bags, _ = bag_and_weights(client, name + ".b", "mean", padding_idx=PADDING)
    rows = millrace.Embedding(client, name + ".r", dim=3, optimizer=millrace.optim.SGD(lr=LR))
    keys, offsets = csr(random_bags(random.Random(name), 5), torch.int64)
    weights = torch.rand(len(keys))
    inputs = [
        (keys, offsets[:-1], weights),
        torch.tensor([[3, 3], [7, 8]]),
        (torch.empty(0, dtype=torch.int64), torch.zeros(2, dtype=torch.int64)),
        torch.tensor([[1, 2, PADDING]]),
    ]
    modules = [bags, rows, bags, bags]
    together = millrace.nn.forward_all(modules, inputs)
    assert len(together) == len(modules)
    for module, one, result in zip(modules, inputs, together):
        alone = module(*one) if isinstance(one, tuple) else module(one)
        assert result.shape == alone.shape
        close(result, alone)


@pytest.mark.parametrize("trainable", [True, False], ids=["all", "one_frozen"])
def test_forward_all_learns_as_torch_does(client, name, trainable):
    bag, bag_rows = bag_and_weights(client, name + ".a", "sum")
    row, row_rows = bag_and_weights(client, name + ".b", "mean")
    row.requires_grad_(trainable)
    optimizer = torch.optim.SGD([bag_rows, row_rows] if trainable else [bag_rows], lr=LR)
    rng = random.Random(name)
    for _ in range(STEPS):
        bags = [random_bags(rng, 4) for _ in range(3)]
        inputs = [csr(one, torch.int64) for one in bags]
        keys = [(k, offsets[:-1]) for k, offsets in inputs]
        ours = millrace.nn.forward_all([bag, row, bag], keys)
        theirs = [
            reference(bag_rows, bags[0], "sum"),
            reference(row_rows, bags[1], "mean"),
            reference(bag_rows, bags[2], "sum"),
        ]
        for results in (ours, theirs):
            sum((one - 0.5).square().sum() for one in results).backward()
        for one, other in zip(ours, theirs):
            close(one, other)
        optimizer.step()
        optimizer.zero_grad()
    close(rows_of(bag), bag_rows.data)
    close(rows_of(row), row_rows.data)


def test_forward_all_refuses(client, name):
    bag, _ = bag_and_weights(client, name, "sum")
    keys = torch.tensor([[1]])
    with pytest.raises(ValueError, match="1 modules and 2 inputs"):
        millrace.nn.forward_all([bag], [keys, keys])
    with pytest.raises(TypeError, match=r"modules\[1\] is a Linear"):
        millrace.nn.forward_all([bag, torch.nn.Linear(1, 1)], [keys, keys])
    assert millrace.nn.forward_all([], []) == []
