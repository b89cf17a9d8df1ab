"""What programs do with parameters, gradients and optimizers of torch's, beside torch's own EmbeddingBag:
rows at a server do the same, or an error says what to write instead."""
import copy
import gc
import os
import subprocess
import sys
import textwrap
import weakref

import numpy as np
import pytest
from torch_programs import TorchProgram

import millrace

torch = pytest.importorskip("torch")

KEYS, DIM, LR = 30, 4, 0.25
SCALE = 65536.0


class Model(torch.nn.Module):
    def __init__(self, bag):
        super().__init__()
        self.bag, self.dense = bag, torch.nn.Linear(DIM, 1)

    def forward(self, keys):
        return self.dense(self.bag(keys))


@pytest.fixture
def models(client, name):
    """A model with its rows at the server, and torch's, which are the same. Adagrad: steps do not add up."""

    def make(mode="mean", optimizer=None):
        bag = millrace.EmbeddingBag(
            client, name, dim=DIM, mode=mode, optimizer=optimizer or millrace.optim.Adagrad(lr=LR)
        )
        weight = torch.from_numpy(bag.table.lookup(np.arange(KEYS)))
        ours, theirs = Model(bag), Model(torch.nn.EmbeddingBag(KEYS, DIM, mode=mode, _weight=weight))
        theirs.dense.load_state_dict(ours.dense.state_dict())
        return ours, theirs

    return make


def adagrad(model):
    return torch.optim.Adagrad(model.parameters(), lr=LR)


def batch(seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(KEYS, (8, 3), generator=generator), torch.randn(8, 1, generator=generator)


def loss_of(model, seed):
    keys, factors = batch(seed)
    return (model(keys) * factors).sum()


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def check_same(ours, theirs):
    ours.bag.flush()
    close(torch.from_numpy(ours.bag.table.lookup(np.arange(KEYS), read_only=True)), theirs.bag.weight.data)
    close(ours.dense.weight.data, theirs.dense.weight.data)


def rows_of(model):
    model.bag.flush()
    return model.bag.table.lookup(np.arange(KEYS), read_only=True)


def both(models, train, **arguments):
    pair = models(**arguments)
    for model in pair:
        train(model)
    check_same(*pair)


# ---- what torch does ----


@pytest.mark.parametrize("how", ["module", "model", "parameters"])
def test_frozen_rows_stay(models, how):
    ours, theirs = models()
    for model in (ours, theirs):
        if how == "module":
            model.bag.requires_grad_(False)
        elif how == "model":
            model.requires_grad_(False)
            model.dense.requires_grad_(True)
        else:
            for param in model.bag.parameters():
                param.requires_grad = False
        optimizer = adagrad(model)
        loss_of(model, 1).backward()
        optimizer.step()
    check_same(ours, theirs)
    before = rows_of(ours)
    assert not ours.bag(torch.tensor([[1]])).requires_grad
    assert (before == rows_of(ours)).all()
    for model in (ours, theirs):
        model.requires_grad_(True)
        optimizer = adagrad(model)
        loss_of(model, 2).backward()
        optimizer.step()
    check_same(ours, theirs)
    assert (before != rows_of(ours)).any()


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_several_backwards_are_one_step(models, mode):
    def train(model):
        optimizer = adagrad(model)
        for step in range(3):
            optimizer.zero_grad(set_to_none=step == 1)
            for part in range(4):
                (loss_of(model, 10 * step + part) / 4).backward()
            optimizer.step()

    both(models, train, mode=mode)


# ---- a hundred steps ----

STEPS = 100


def some(generator):
    """Keys of a step, some of them repeated; most rows have no gradient."""
    return torch.randint(KEYS, (4, 3), generator=generator)


def every(generator):
    """The same with a gradient for each row."""
    keys = torch.cat(
        [torch.randperm(KEYS, generator=generator), torch.randint(KEYS, (18,), generator=generator)]
    )
    return keys.view(-1, 3)


class RowByRow(torch.nn.Module):
    """An EmbeddingBag with a parameter for each row: torch's optimizers pass over those without a
    gradient."""

    def __init__(self, weight):
        super().__init__()
        self.rows = torch.nn.ParameterList([torch.nn.Parameter(row.clone()) for row in weight])

    @property
    def weight(self):
        return torch.stack(list(self.rows))

    def forward(self, keys):
        used, places = keys.unique(return_inverse=True)
        weight = torch.stack([self.rows[key] for key in used])
        return torch.nn.functional.embedding_bag(places.view(keys.shape), weight, mode="sum")


def train_rows(model, optimizers, keys_of):
    generator = torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        keys = keys_of(generator)
        wanted = torch.randn(len(keys), 1, generator=generator)
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=True)
        ((model(keys) - wanted) ** 2).mean().backward()
        for optimizer in optimizers:
            optimizer.step()


def check_a_hundred_steps(client, name, ours, make_theirs, their_optimizer, keys_of):
    torch.manual_seed(1)
    bag = millrace.EmbeddingBag(client, name, dim=DIM, mode="sum", optimizer=ours)
    mine = Model(bag)
    theirs = Model(make_theirs(torch.from_numpy(bag.table.lookup(np.arange(KEYS)))))
    theirs.dense.load_state_dict(mine.dense.state_dict())
    before = theirs.bag.weight.detach().clone()
    train_rows(mine, [torch.optim.SGD(mine.parameters(), lr=0.05)], keys_of)
    train_rows(
        theirs,
        [their_optimizer(theirs.bag.parameters()), torch.optim.SGD(theirs.dense.parameters(), lr=0.05)],
        keys_of,
    )
    rows = torch.from_numpy(rows_of(mine))
    torch.testing.assert_close(rows, theirs.bag.weight.detach(), rtol=0, atol=1e-5)
    torch.testing.assert_close(mine.dense.weight.data, theirs.dense.weight.data, rtol=0, atol=1e-5)
    assert ((rows - before).abs().amax(1) > 0.01).all()


DECAY = {"weight_decay": 0.02}
MOMENTUM = {"momentum": 0.9}
TABLES = {
    "sgd": (some, "SGD", {}, False),
    "sgd_decay": (every, "SGD", DECAY, False),
    "momentum": (every, "SGD", MOMENTUM, False),
    "nesterov_decay": (every, "SGD", {**MOMENTUM, "nesterov": True, **DECAY}, False),
    "adagrad": (some, "Adagrad", {}, False),
    "adagrad_decay": (every, "Adagrad", DECAY, False),
    "sparse_adam": (some, "SparseAdam", {}, True),
    "adam_decay": (every, "Adam", DECAY, False),
    "adamw": (every, "AdamW", {"weight_decay": 0.1}, False),
}


@pytest.mark.parametrize("case", TABLES)
def test_a_hundred_steps_of_a_table_are_torch_s(client, name, case):
    """Of torch's own module, with all rows in a parameter."""
    keys_of, kind, arguments, sparse = TABLES[case]

    def table(weight):
        return torch.nn.EmbeddingBag(KEYS, DIM, mode="sum", sparse=sparse, _weight=weight)

    check_a_hundred_steps(
        client,
        name,
        getattr(millrace.optim, kind)(lr=0.05, **arguments),
        table,
        lambda parameters: getattr(torch.optim, kind)(list(parameters), lr=0.05, **arguments),
        keys_of,
    )


ROWS = {
    "sgd_decay": ("SGD", DECAY),
    "momentum_dampening": ("SGD", {**MOMENTUM, "dampening": 0.4, **DECAY}),
    "nesterov": ("SGD", {**MOMENTUM, "nesterov": True, **DECAY}),
    "adam_decay": ("Adam", DECAY),
    "adamw": ("AdamW", {"weight_decay": 0.1}),
}


@pytest.mark.parametrize("case", ROWS)
def test_a_row_without_a_gradient_is_a_parameter_without_one(client, name, case):
    """Where torch would move such rows of a table, too: by momentum, decay or old moments."""
    kind, arguments = ROWS[case]
    check_a_hundred_steps(
        client,
        name,
        getattr(millrace.optim, kind)(lr=0.05, **arguments),
        RowByRow,
        lambda parameters: getattr(torch.optim, kind)(parameters, lr=0.05, **arguments),
        some,
    )


def test_steps_go_on_where_the_server_is(node, client, name):
    """Of a table that has rows already: after a restart of the trainer, or of both."""
    optimizer = millrace.optim.SparseAdam(lr=0.05)
    bag = millrace.EmbeddingBag(client, name, dim=DIM, mode="sum", optimizer=optimizer)
    bag.options["step"] = client.checkpoint_info().step + 5  # one that the program names
    bag(torch.tensor([[1, 2]])).sum().backward()
    bag.flush()
    with millrace.Client(node.address, deadline_s=60) as other:
        reached = other.checkpoint_info().step
        assert reached == bag.options["step"]
        again = millrace.EmbeddingBag(other.table(name))
        assert again.table.spec.optimizer == optimizer
        for _ in range(3):
            again(torch.tensor([[1, 3]])).sum().backward()
        again.flush()
        assert client.checkpoint_info().step == reached + 3


# ---- when gradients are pushed ----


def test_nothing_is_pushed_before_the_step(models):
    ours, _ = models()
    optimizer = adagrad(ours)
    before = rows_of(ours)
    loss_of(ours, 1).backward()
    assert (rows_of(ours) == before).all()
    optimizer.zero_grad()
    optimizer.step()
    assert (rows_of(ours) == before).all()
    loss_of(ours, 1).backward()
    optimizer.step()
    assert (rows_of(ours) != before).any()


def test_norms_and_clipping(models):
    ours, theirs = models()
    norms = []
    for model in (ours, theirs):
        optimizer = adagrad(model)
        for step in range(3):
            optimizer.zero_grad()
            loss_of(model, step).backward()
            if step == 2:
                torch.nn.utils.clip_grad_value_(model.parameters(), 0.1)
            norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)))
            optimizer.step()
    check_same(ours, theirs)
    close(torch.tensor(norms[:3]), torch.tensor(norms[3:]))
    assert min(norms) > 0


def test_a_scaled_loss_is_unscaled_before_the_step(models):
    """As GradScaler does, whose own work needs CUDA."""

    def train(model):
        optimizer = adagrad(model)
        for step in range(2):
            optimizer.zero_grad()
            (loss_of(model, step) * SCALE).backward()
            for group in optimizer.param_groups:
                for param in group["params"]:
                    if param.grad is not None:
                        param.grad.mul_(1 / SCALE)
            optimizer.step()

    both(models, train)


@pytest.mark.skipif(
    not hasattr(torch, "amp") or not hasattr(torch.amp, "GradScaler"), reason="needs torch 2.3"
)
def test_grad_scaler(models):
    def train(model):
        optimizer, scaler = adagrad(model), torch.amp.GradScaler("cpu", init_scale=SCALE, growth_interval=2)
        for step in range(6):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=step == 5):
                loss = loss_of(model, step).float() * (float("inf") if step == 3 else 1.0)
            scaler.scale(loss).backward()
            if step == 4:
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            scaler.step(optimizer)
            scaler.update()
        assert scaler.get_scale() == SCALE * 2  # twice as much, half, and twice again

    both(models, train)


def test_a_step_left_out_learns_nothing(models):
    """As GradScaler leaves one out that has Inf."""

    def train(model):
        optimizer = adagrad(model)
        (loss_of(model, 0) * float("inf")).backward()
        optimizer.zero_grad(set_to_none=True)
        loss_of(model, 1).backward()
        optimizer.step()

    both(models, train)


def test_closures_schedulers_and_retained_graphs(models):
    def train(model):
        optimizer = torch.optim.SGD(model.parameters(), lr=LR)
        scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1.0)

        def closure():
            optimizer.zero_grad()
            loss = loss_of(model, 3)
            loss.backward()
            return loss

        assert optimizer.step(closure).item() != 0
        scheduler.step()
        optimizer.zero_grad()
        loss = loss_of(model, 4)
        loss.backward(retain_graph=True)
        loss.backward()
        optimizer.step()

    both(models, train, optimizer=millrace.optim.SGD(lr=LR))


def test_schedulers_change_the_rows_rate_as_well(models):
    def train(model):
        optimizer = adagrad(model)
        schedulers = [
            torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, step / 3)),  # from 0 on
            torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8),
        ]
        for step in range(8):
            optimizer.zero_grad()
            loss_of(model, step).backward()
            optimizer.step()
            schedulers[step >= 3].step()

    both(models, train)


def test_a_rate_that_is_named_goes_before_a_scheduler_s(models, client, name):
    ours, _ = models(mode="sum", optimizer=millrace.optim.SGD(lr=LR))
    schedule = millrace.optim.schedule.Linear(steps=10, end=0.5)
    its_own = millrace.EmbeddingBag(
        client, name + "s", dim=DIM, mode="sum", optimizer=millrace.optim.SGD(lr=1.0), schedule=schedule
    )
    ours.bag.options["learning_rate"] = 0.5
    optimizer = torch.optim.SGD([*ours.bag.parameters(), *its_own.parameters()], lr=LR)
    torch.optim.lr_scheduler.ConstantLR(optimizer, factor=0.1)
    for bag, rate in ((ours.bag, 0.5), (its_own, 1.0)):
        before = bag.table.lookup([1])
        bag(torch.tensor([[1]])).sum().backward()
        optimizer.step()
        bag.flush()
        assert np.allclose(bag.table.lookup([1]), before - rate)


def test_two_modules_of_one_table_are_one_step(client, name):
    first = millrace.EmbeddingBag(client, name, dim=DIM, mode="sum", optimizer=millrace.optim.Adagrad(lr=LR))
    second = millrace.Embedding(first.table)
    weight = torch.from_numpy(first.table.lookup(np.arange(KEYS)))
    theirs = torch.nn.Embedding(KEYS, DIM, _weight=weight)
    mine = torch.optim.Adagrad([*first.parameters(), *second.parameters()], lr=LR)
    other = torch.optim.Adagrad(theirs.parameters(), lr=LR)
    keys = batch(5)[0]
    (first(keys).sum() + second(keys[:3]).pow(2).sum()).backward()
    (theirs(keys).sum() + theirs(keys[:3]).pow(2).sum()).backward()
    mine.step()
    other.step()
    first.flush()
    close(torch.from_numpy(first.table.lookup(np.arange(KEYS))), theirs.weight.data)


def test_a_variable_waits_for_its_step(client, name):
    ours = millrace.nn.Linear(client, name, DIM, 2, optimizer=millrace.optim.Adagrad(lr=LR))
    theirs = torch.nn.Linear(DIM, 2)
    theirs.load_state_dict({"weight": ours.weight().detach(), "bias": ours.bias().detach()})
    x = batch(6)[1][:, :1].expand(8, DIM)
    for model in (ours, theirs):
        optimizer = adagrad(model)
        for part in (1, 2):
            (model(x) * part).sum().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    close(ours.weight().detach(), theirs.weight.data)
    close(ours.bias().detach(), theirs.bias.data)


def test_a_copy_is_frozen_for_itself(models):
    ours, _ = models()
    twin = copy.deepcopy(ours)
    twin.requires_grad_(False)
    assert ours.bag.learns and not twin.bag.learns
    assert "bag.anchor" not in ours.state_dict()
    ours.load_state_dict(twin.state_dict())
    optimizer = adagrad(ours)
    optimizer.load_state_dict(adagrad(ours).state_dict())


@pytest.mark.skipif(not hasattr(torch, "compiler"), reason="torch.compile() needs torch 2")
@pytest.mark.parametrize("kind", ["EmbeddingBag", "Embedding"])
def test_compiled_models_break_once(client, name, kind):
    """Before the lookup and after it there is a graph each."""
    bag = getattr(millrace, kind)(client, name, dim=DIM, optimizer=millrace.optim.Adagrad(lr=LR))
    weight = torch.from_numpy(bag.table.lookup(np.arange(KEYS)))
    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return graph.forward

    class Shifted(Model):
        def forward(self, keys):
            return self.dense(torch.relu(self.bag(keys + 1).view(-1, DIM)))

    ours, theirs = Shifted(bag), Shifted(getattr(torch.nn, kind)(KEYS, DIM, _weight=weight))
    theirs.dense.load_state_dict(ours.dense.state_dict())
    torch.compiler.reset()
    for model, run in ((ours, torch.compile(ours, backend=backend)), (theirs, theirs)):
        optimizer = adagrad(model)
        for step in range(3):
            optimizer.zero_grad()
            (run(batch(step)[0] % (KEYS - 1)) ** 2).sum().backward()
            optimizer.step()
    check_same(ours, theirs)
    assert len(graphs) == 2


# ---- optimizers, and what hangs on them ----

IMPORT = """
    import importlib, pkgutil, sys, types
    import torch, torch.futures, torch.nn.parallel, torch.optim.lr_scheduler, torch.utils.data
    if torch.distributed.is_available():
        import torch.distributed.rpc

    def of_torch(thing):
        return isinstance(thing, type) and str(thing.__module__).split(".")[0] in ("torch", "numpy")

    def spaces():
        named = [name for name in list(sys.modules) if name.split(".")[0] in ("torch", "numpy")]
        modules = {name: sys.modules[name] for name in named}
        found = {name: vars(its) for name, its in modules.items() if type(its) is types.ModuleType}
        kinds = {kind for its in list(found.values()) for kind in list(its.values()) if of_torch(kind)}
        found.update((kind, vars(kind)) for kind in kinds)
        return {place: dict(its) for place, its in found.items()}

    before = spaces()
    import millrace
    names = [its.name for its in pkgutil.walk_packages(millrace.__path__, "millrace.")]
    assert {"millrace.nn", "millrace._nn.anchor", "millrace.torchrec", "millrace.rpc.api"} <= set(names)
    for name in names:
        importlib.import_module(name)
    after = spaces()
    for place, its in before.items():
        for name, value in its.items():
            if after[place].get(name) is not value:
                print(place, name, "was replaced")
        for name in after[place].keys() - its.keys():
            if not isinstance(after[place][name], types.ModuleType) and not name.startswith("__"):
                print(place, name, "is new")
    print("end")
"""


def test_importing_replaces_nothing_of_torch_s():
    program = TorchProgram(["-c", textwrap.dedent(IMPORT)], dict(os.environ))
    assert program.communicate(timeout=120)[0] == "end\n"


def test_an_optimizer_that_was_there_before_takes_rows(models):
    def train(model):
        optimizer = torch.optim.SGD(model.dense.parameters(), lr=LR)
        torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1.0)
        optimizer.add_param_group({"params": model.bag.parameters()})
        for step in range(2):
            optimizer.zero_grad()
            loss_of(model, step).backward()
            optimizer.step()

    both(models, train, optimizer=millrace.optim.SGD(lr=LR))


def test_an_optimizer_that_did_not_take_the_rows_does_not_have_them(models):
    ours, _ = models()
    optimizer = torch.optim.SGD(ours.dense.parameters(), lr=LR)
    with pytest.raises(ValueError, match="more than one parameter group"):
        optimizer.add_param_group({"params": list(ours.parameters())})
    before = rows_of(ours)
    loss_of(ours, 1).backward()
    assert (rows_of(ours) != before).any()


def test_rows_go_with_the_optimizer_that_they_were_given_to_last(models):
    def train(model):
        optimizers = []
        for step in range(4):
            if step % 2 == 0:
                optimizers.append(torch.optim.SGD(model.parameters(), lr=LR))
            optimizers[-1].zero_grad()
            loss_of(model, step).backward()
            optimizers[-1].step()
        model.zero_grad()
        optimizers[0].step()

    both(models, train, optimizer=millrace.optim.SGD(lr=LR))


def test_optimizers_are_freed(models):
    ours, _ = models()
    gone = []
    for _ in range(3):
        optimizer = adagrad(ours)
        optimizer.step()
        gone.append(weakref.ref(optimizer))
    loss_of(ours, 1).backward()
    del optimizer
    gc.collect()
    assert [its() for its in gone] == [None] * 3
    before = rows_of(ours)
    ours.zero_grad()
    loss_of(ours, 2).backward()  # no optimizer has them any more
    assert (rows_of(ours) != before).any()


class Again(torch.optim.SGD):
    """A step() around another one, both of which torch calls hooks of."""

    def step(self, closure=None):
        return super().step(closure)


def test_a_step_around_a_step_pushes_once(models):
    def train(model):
        torch.optim.SGD(model.dense.parameters(), lr=LR).step()
        optimizer = Again(model.parameters(), lr=LR)
        loss_of(model, 1).backward()
        optimizer.step()
        optimizer.zero_grad()

        def closure():
            loss = loss_of(model, 2)
            loss.backward()
            return loss

        optimizer.step(closure=closure)

    both(models, train, optimizer=millrace.optim.SGD(lr=LR))


@pytest.mark.skipif(not hasattr(torch.optim.SGD, "register_step_pre_hook"), reason="needs torch 2.0")
def test_hooks_before_a_step_change_what_is_pushed(models):
    def train(model):
        optimizer = adagrad(model)
        optimizer.register_step_pre_hook(
            lambda *_: (torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1), None)[1]
        )
        for step in range(2):
            optimizer.zero_grad()
            loss_of(model, step).backward()
            optimizer.step()

    both(models, train)


@pytest.mark.skipif(not hasattr(torch.Tensor, "register_post_accumulate_grad_hook"), reason="needs torch 2.1")
def test_an_optimizer_for_each_parameter_steps_in_backward(models):
    """As torch's tutorial of this name has it."""

    def train(model):
        optimizers = {param: torch.optim.Adagrad([param], lr=LR) for param in model.parameters()}

        def step(param):
            optimizers[param].step()
            optimizers[param].zero_grad()

        for param in model.parameters():
            param.register_post_accumulate_grad_hook(step)
        for number in range(3):
            loss_of(model, number).backward()

    both(models, train)


@pytest.mark.skipif(
    not hasattr(torch, "amp") or not hasattr(torch.amp, "GradScaler"), reason="needs torch 2.3"
)
def test_grad_scaler_of_a_fused_optimizer(models):
    """Which unscales by itself, and leaves out steps by itself."""

    def train(model):
        optimizer = torch.optim.Adagrad(model.parameters(), lr=LR, fused=True)
        scaler = torch.amp.GradScaler("cpu", init_scale=SCALE)
        for step in range(4):
            optimizer.zero_grad()
            loss = loss_of(model, step) * (float("inf") if step == 1 else 1.0)
            scaler.scale(loss).backward()
            if step == 2:
                scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()

    both(models, train)


# ---- what it does not ----


def test_gradients_that_have_left_cannot_be_changed(models):
    ours, _ = models()
    loss_of(ours, 1).backward()  # no optimizer of torch's has the rows: they leave
    for change in (
        lambda: torch.nn.utils.clip_grad_norm_(ours.parameters(), 1.0),
        lambda: torch.nn.utils.clip_grad_value_(ours.parameters(), 1.0),
        lambda: [p.grad.div_(SCALE) for p in ours.parameters()],
    ):
        with pytest.raises(RuntimeError, match=r"pushed by backward.*torch.optim.SGD\(model.parameters"):
            change()
    ours.zero_grad()
    loss_of(ours, 2).backward()


def test_batches_of_a_loader_are_steps_of_their_own(client, name):
    bag = millrace.EmbeddingBag(client, name, dim=DIM, mode="sum", optimizer=millrace.optim.SGD(lr=LR))
    dense = torch.nn.Linear(DIM, 1)
    optimizer = torch.optim.SGD([*bag.parameters(), *dense.parameters()], lr=LR)

    def forward(number):
        number += (1 + bag.table.id) << 48
        client.feed(number, [(bag.table, [1, 2], [0, 2])], 1)
        return dense(bag(millrace.data.Batch(number, 1))).sum()

    forward(0).backward()
    with pytest.raises(RuntimeError, match="each batch as a step of its own"):
        torch.nn.utils.clip_grad_norm_(bag.parameters(), 1.0)
    with pytest.raises(RuntimeError, match="accumulating gradients.*step.. or zero_grad.. after each batch"):
        forward(1).backward()
    optimizer.step()
    forward(2).backward()
    optimizer.zero_grad()
    forward(3).backward()
    optimizer.step()
    bag.flush()


def test_lbfgs_is_refused(models):
    ours, _ = models()
    optimizer = torch.optim.LBFGS(ours.parameters())
    with pytest.raises(RuntimeError, match="LBFGS.*numel"):
        optimizer.step(lambda: loss_of(ours, 1))


# ---- several processes ----

DDP = """
    import sys
    import numpy as np
    import torch
    import millrace
    from torch.nn.parallel import DistributedDataParallel

    address, name, file, rank, mode = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5]
    KEYS, DIM, LR = 20, 4, 0.25
    torch.distributed.init_process_group("gloo", init_method="file://" + file, rank=rank, world_size=2)
    with millrace.Client(address, deadline_s=60) as client:
        bag = millrace.EmbeddingBag(client, name, dim=DIM, mode="sum", optimizer=millrace.optim.SGD(lr=LR))
        weight = torch.from_numpy(bag.table.lookup(np.arange(KEYS)))
        torch.distributed.barrier()
        torch.manual_seed(1)
        ours = torch.nn.Sequential(bag, torch.nn.Linear(DIM, 1))
        torch_bag = torch.nn.EmbeddingBag(KEYS, DIM, mode="sum", _weight=weight)
        theirs = torch.nn.Sequential(torch_bag, torch.nn.Linear(DIM, 1))
        theirs[1].load_state_dict(ours[1].state_dict())
        for model in (ours, theirs):
            parallel = DistributedDataParallel(model)
            params = model.parameters() if mode == "step" or model is theirs else ours[1].parameters()
            optimizer = torch.optim.SGD(params, lr=LR)
            for step in range(3):
                optimizer.zero_grad()
                if mode == "step":
                    with parallel.no_sync():
                        parallel(torch.tensor([[5, step], [rank, 3]])).sum().backward()
                (parallel(torch.tensor([[1, 2 + rank], [step, 7 * rank]])) * (1 + rank)).sum().backward()
                optimizer.step()
                bag.flush()
                torch.distributed.barrier()
        rows = torch.from_numpy(bag.table.lookup(np.arange(KEYS), read_only=True))
        torch.testing.assert_close(rows, theirs[0].weight.data, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(ours[1].weight.data, theirs[1].weight.data, rtol=1e-4, atol=1e-5)
        torch.distributed.barrier()
    print("same")
"""


@pytest.mark.parametrize("mode", ["backward", "step"])
def test_processes_of_ddp_average(node, name, tmp_path, mode):
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    workers = [
        TorchProgram(
            ["-c", textwrap.dedent(DDP), node.address, name, str(tmp_path / "rendezvous"), str(rank), mode],
            environment,
        )
        for rank in range(2)
    ]
    try:
        for worker in workers:
            out, error = worker.communicate(timeout=300)
            assert (worker.returncode, out) == (0, "same\n"), error
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()


# ---- the end ----

EXIT = """
    import sys
    import torch
    import millrace

    client = millrace.Client(sys.argv[1], deadline_s=60)
    bag = millrace.EmbeddingBag(client, sys.argv[2], dim=4, mode="sum", optimizer=millrace.optim.SGD(lr=1.0))
    out = bag(torch.tensor([[1]]))
    if sys.argv[3] == "fails":
        client.freeze("all")
    out.sum().backward()
    print("end", flush=True)
    if len(sys.argv) > 4:
        sys.exit(int(sys.argv[4]))
"""


@pytest.mark.parametrize(
    "what, as_users_do, code",
    [(["works"], False, 0), (["fails"], True, 1), (["fails"], False, 1), (["fails", "7"], True, 7)],
)
def test_a_last_push_that_failed_is_an_exit_code(node, client, name, what, as_users_do, code):
    """Of programs started by the interpreter, as users do, and of forks."""
    arguments = ["-c", textwrap.dedent(EXIT), node.address, name, *what]
    try:
        if as_users_do:
            done = subprocess.run(
                [sys.executable, *arguments], capture_output=True, text=True, timeout=120, check=False
            )
            status, out, error = done.returncode, done.stdout, done.stderr
        else:
            program = TorchProgram(arguments, dict(os.environ))
            out, error = program.communicate(timeout=120)
            status = program.returncode
    finally:
        client.freeze("off")
    assert (status, out) == (code, "end\n"), error
    lines = error.splitlines()
    assert (
        not lines
        if code == 0
        else len(lines) == 1 and lines[0].startswith("millrace: a push of gradients failed: ")
    )
