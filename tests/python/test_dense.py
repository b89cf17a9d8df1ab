"""Tables whose optimizer is dense beside torch's nn.EmbeddingBag and nn.Embedding with sparse=False, which
move all rows in each step: every forward of a hundred steps, and all rows at their end."""
import copy
import types
import zlib

import numpy as np
import pytest

import millrace
from millrace.importer import import_rows

torch = pytest.importorskip("torch")

KEYS, DIM, LR, STEPS = 60, 4, 0.05, 100
ALL = torch.arange(KEYS)
MOMENTUM = {"momentum": 0.9}
OPTIMIZERS = {
    "sgd_decay": ("SGD", {"weight_decay": 0.02}),
    "momentum": ("SGD", MOMENTUM),
    "dampening": ("SGD", {**MOMENTUM, "dampening": 0.4}),
    "nesterov_decay": ("SGD", {**MOMENTUM, "nesterov": True, "weight_decay": 0.02}),
    "adagrad_decay": ("Adagrad", {"weight_decay": 0.02}),
    "adam": ("Adam", {}),
    "adam_decay": ("Adam", {"weight_decay": 0.02}),
    "adamw": ("AdamW", {"weight_decay": 0.1}),
}


def close(a, b):
    torch.testing.assert_close(a, b, rtol=0, atol=1e-5)


def rows_of(module, **options):
    """As a program reads them: after the step that is reached."""
    module.flush()
    return module.table.rows(ALL, **options)


class Pair:
    """A module with its rows at the server, and torch's, which are the same; each with the optimizers that
    drive it."""

    def __init__(self, client, name, case="momentum", bag=True):
        kind, arguments = OPTIMIZERS[case]
        self.make = lambda parameters: getattr(torch.optim, kind)(list(parameters), lr=LR, **arguments)
        self.optimizer = getattr(millrace.optim, kind)(lr=LR, **arguments, dense=True)
        self.client, self.is_bag = client, bag
        self.mine = self.server_module(name)
        weight = rows_of(self.mine).values
        self.first = weight.clone()
        self.theirs = self.torch_module(weight)
        self.optimizers = [
            torch.optim.SGD(self.mine.parameters(), lr=LR),
            self.make(self.theirs.parameters()),
        ]
        self.generator, self.shape = torch.Generator().manual_seed(1), (2, 2)

    def server_module(self, name):
        if self.is_bag:
            return millrace.EmbeddingBag(self.client, name, dim=DIM, mode="sum", optimizer=self.optimizer)
        return millrace.Embedding(self.client, name, dim=DIM, optimizer=self.optimizer)

    def torch_module(self, weight):
        if self.is_bag:
            return torch.nn.EmbeddingBag(KEYS, DIM, mode="sum", _weight=weight, sparse=False)
        return torch.nn.Embedding(KEYS, DIM, _weight=weight, sparse=False)

    def batch(self):
        """Keys of a step, some of them several times: a few of all rows, and some rows in no step at all."""
        keys = torch.randint(KEYS - 3, self.shape, generator=self.generator)
        return keys, torch.randn(1, generator=self.generator)

    def forwards(self, keys):
        return self.mine(keys), self.theirs(keys)

    def backwards(self, results, wanted):
        close(*[result.detach() for result in results])
        for result in results:
            (result - wanted).square().mean().backward()

    def step(self):
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad()

    def train(self, steps=STEPS):
        for _ in range(steps):
            keys, wanted = self.batch()
            self.backwards(self.forwards(keys), wanted)
            self.step()

    def check(self):
        close(rows_of(self.mine).values, self.theirs.weight.detach())


# ---- a hundred steps ----


@pytest.mark.parametrize("case", OPTIMIZERS)
def test_a_hundred_steps_are_torch_s(client, name, case):
    pair = Pair(client, name, case)
    pair.train()
    pair.check()
    moved = (pair.theirs.weight.detach() - pair.first).abs().amax(1)
    assert (moved[:-3] > 0.01).all() and (moved[-3:] > 0).all() == ("decay" in case or case == "adamw")


def test_an_embedding_is_torch_s(client, name):
    pair = Pair(client, name, "adam", bag=False)
    pair.train()
    pair.check()


def test_schedulers_change_the_rate_of_rows_that_a_step_does_not_touch(client, name):
    """A core learns of a step's rate by its keys; so many that each has some."""
    pair = Pair(client, name, "nesterov_decay")
    pair.shape = (4, 4)
    schedulers = [torch.optim.lr_scheduler.ExponentialLR(its, 0.97) for its in pair.optimizers]
    for _ in range(STEPS):
        pair.train(1)
        for scheduler in schedulers:
            scheduler.step()
    pair.check()


def test_two_modules_of_a_forward(client, name):
    pairs = [Pair(client, name + "a", "adamw"), Pair(client, name + "b", "dampening", bag=False)]
    for _ in range(STEPS):
        keys, wanted = pairs[0].batch()
        results = millrace.nn.forward_all([pair.mine for pair in pairs], [keys, keys + 3])
        for pair, mine, its in zip(pairs, results, [keys, keys + 3]):
            pair.backwards((mine, pair.theirs(its)), wanted)
            pair.step()
    for pair in pairs:
        pair.check()


def test_rows_with_their_state_go_on_elsewhere(client, name):
    """As a state_dict of model and optimizer does."""
    pair = Pair(client, name + "a", "adam_decay")
    pair.train(STEPS // 2)
    rows = rows_of(pair.mine, state=True)
    its = pair.optimizers[1].state[pair.theirs.weight]
    close(rows.state["m"], its["exp_avg"])
    close(rows.state["v"], its["exp_avg_sq"])
    assert (rows.state["step"] == STEPS // 2).all() and (rows.state["last_step"] == STEPS // 2).all()
    saved = [part.state_dict() for part in (pair.theirs, pair.optimizers[1])]
    pair.mine = pair.server_module(name + "b")
    pair.mine.load_rows(rows.values, state=rows.state)
    pair.theirs = pair.torch_module(torch.zeros(KEYS, DIM))
    pair.optimizers = [torch.optim.SGD(pair.mine.parameters(), lr=LR), pair.make(pair.theirs.parameters())]
    pair.theirs.load_state_dict(saved[0])
    pair.optimizers[1].load_state_dict(saved[1])
    pair.check()
    pair.train(STEPS // 2)
    pair.check()


def test_a_state_that_torch_has_saved_goes_on(client, name, tmp_path):
    pair = Pair(client, name, "adam")
    pair.train(20)
    file, table = tmp_path / "model.pt", name + "b"
    state = pair.optimizers[1].state[pair.theirs.weight]
    its = {f"state.{part}": torch.as_tensor(value).clone() for part, value in state.items()}
    torch.save({"weight": pair.theirs.weight.detach().clone(), **its}, file)
    options = {"optimizer": pair.optimizer, "pooling": "sum"}
    import_rows(client, file, {"weight": table}, state={"state": table}, create=options)
    pair.mine = millrace.EmbeddingBag(client, table)
    pair.optimizers[0] = torch.optim.SGD(pair.mine.parameters(), lr=LR)
    pair.check()
    pair.train(20)
    pair.check()


def test_training_goes_on_after_the_step_of_a_checkpoint(new_node, name):
    with millrace.Client(new_node().address, deadline_s=60) as client:
        pair = Pair(client, name, "adamw")
        pair.train(20)
        saved = copy.deepcopy([part.state_dict() for part in (pair.theirs, pair.optimizers[1])])
        pair.mine.flush()
        id = client.wait_for_save(client.save()).id
        pair.train(10)
        pair.mine.flush()
        client.restore(id=id)
        pair.mine = pair.server_module(name)
        pair.optimizers[0] = torch.optim.SGD(pair.mine.parameters(), lr=LR)
        for part, its in zip((pair.theirs, pair.optimizers[1]), saved):
            part.load_state_dict(its)
        pair.check()
        pair.train(20)
        pair.check()
        with millrace.Client(client.server, deadline_s=60) as other:  # another trainer
            pair.mine = millrace.EmbeddingBag(other.table(name))
            pair.mine.eval()
            close(*[result.detach() for result in pair.forwards(ALL[:, None])])
            pair.mine.train()
            pair.optimizers[0] = torch.optim.SGD(pair.mine.parameters(), lr=LR)
            pair.train(20)
            pair.check()


def test_weights_of_torch_s_are_not_moved_by_steps_before(client, name):
    pair = Pair(client, name, "sgd_decay")
    pair.train(STEPS // 2)
    weight = torch.randn(KEYS, DIM, generator=pair.generator)
    for module in (pair.mine, pair.theirs):
        module.load_state_dict({"weight": weight}, strict=module is pair.theirs)
    pair.check()
    assert (rows_of(pair.mine).values == weight).all()
    pair.train(STEPS // 2)
    pair.check()


def test_momentum_without_a_step_is_that_of_the_step_reached(client, name):
    pair = Pair(client, name)
    pair.train(20)
    velocity = pair.optimizers[1].state[pair.theirs.weight]["momentum_buffer"]
    pair.mine.load_rows(pair.theirs.weight.detach(), state={"velocity": velocity})
    pair.check()
    pair.train(20)
    pair.check()


def test_several_backwards_are_one_step(client, name):
    pair = Pair(client, name, "adamw")
    for _ in range(40):
        for _ in range(3):
            keys, wanted = pair.batch()
            pair.backwards(pair.forwards(keys), wanted / 3)
        pair.step()
    pair.check()


def test_steps_without_a_gradient_move_rows(client, name):
    """Of no keys, and one that zero_grad() has left. One without any is none."""
    pair = Pair(client, name)
    nothing, begins = torch.zeros(0, dtype=torch.int64), torch.zeros(2, dtype=torch.int64)
    for step in range(30):
        if step % 3 == 0:
            pair.train(1)
        elif step % 3 == 1:
            for module in (pair.mine, pair.theirs):
                module(nothing, begins).sum().backward()
            pair.step()
        else:
            keys, wanted = pair.batch()
            pair.backwards(pair.forwards(keys), wanted)
            for optimizer in pair.optimizers:
                optimizer.zero_grad(set_to_none=step % 2 == 0)
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
    pair.check()


# ---- which step a lookup shows ----


def test_without_an_optimizer_of_torch_s_each_backward_is_a_step(client, name):
    pair = Pair(client, name)
    bag = millrace.EmbeddingBag(pair.mine.table)  # given to none
    theirs = pair.optimizers.pop()
    pair.optimizers = [theirs]
    pair.mine = bag
    pair.train(30)
    pair.check()


def test_evaluation_shows_the_step_that_is_reached(client, name):
    pair = Pair(client, name)
    for _ in range(10):
        pair.train(2)
        rows = [info.rows for info in client.features() if info.name == name]
        with torch.no_grad():
            close(*pair.forwards(ALL[:, None]))
        pair.mine.eval(), pair.theirs.eval()
        close(*pair.forwards(ALL[:, None]))
        pair.mine.train(), pair.theirs.train()
        assert [info.rows for info in client.features() if info.name == name] == rows
    lookup = torch.from_numpy(pair.mine.table.lookup(ALL.numpy(), read_only=True))
    assert (lookup - pair.theirs.weight.detach()).abs().max() > 0.01  # it names no step
    close(
        torch.from_numpy(pair.mine.table.lookup(ALL.numpy(), step=21, read_only=True)),
        rows_of(pair.mine).values,
    )


def test_steps_that_the_program_names(client, name):
    pair = Pair(client, name, "adamw")
    for step in range(1, 31):
        millrace.nn.set_call_options(pair.mine, step=step)
        pair.train(1)
        with torch.no_grad():
            close(*pair.forwards(ALL[:, None]))
    pair.check()
    millrace.nn.set_call_options(pair.mine, step=None)
    pair.train(10)
    pair.check()


def test_batches_that_were_fed(client, name):
    """A feed looks rows up, so it names the step, and then the program does so for its modules as well."""
    pair = Pair(client, name)
    first_id = zlib.crc32(name.encode()) % 4096 << 48  # of a stream of its own
    for step in range(1, 31):
        keys, wanted = pair.batch()
        offsets = np.arange(0, keys.numel() + 1, keys.shape[1], dtype=np.uint32)
        pair.mine.options["step"] = step
        batch = types.SimpleNamespace(id=first_id + step, samples=len(keys))
        client.feed(batch.id, [(pair.mine.table, keys.numpy().ravel(), offsets)], batch.samples, step=step)
        pair.backwards((pair.mine(batch)[:, 0], pair.theirs(keys)), wanted)
        pair.step()
        pair.mine.flush()
    pair.check()


def test_batches_go_on_where_the_server_is(node, client, name):
    pair = Pair(client, name)
    pair.train(3)
    pair.mine.flush()
    with millrace.Client(node.address, deadline_s=60) as other:
        bag, reached = millrace.EmbeddingBag(other.table(name)), other.checkpoint_info().step
        batch = types.SimpleNamespace(id=(zlib.crc32(name.encode()) % 4096 + 4096) << 48, samples=2)
        other.feed(batch.id, [(bag.table, [1, 2], [0, 1, 2])], batch.samples)
        bag(batch).sum().backward()
        bag.flush()
        assert other.checkpoint_info().step == reached + 1


# ---- lookups ahead ----


def test_lookups_ahead_are_exact_or_refused(client, name):
    pair = Pair(client, name)
    batches = [pair.batch()[0] for _ in range(6)]

    def its(**arguments):
        return millrace.prefetch(batches, {pair.mine: lambda keys: keys}, **arguments)

    with pytest.raises(ValueError, match=f"table '{name}' cannot be looked up ahead.*stale=True"):
        next(iter(its()))
    loader = its(stale=True)
    for keys in loader:
        pair.mine(keys).sum().backward()
        pair.step()
    assert loader.counts.missed == 0 and loader.counts.batches == len(batches)
    pair.mine.eval()
    loader = its()
    for keys in loader:
        close(pair.mine(keys).detach(), rows_of(pair.mine).values[keys].sum(1))
    assert loader.counts.missed == 0
    pair.mine.train()
    other = millrace.EmbeddingBag(pair.mine.table).eval()  # whose rows another module moves meanwhile
    loader = millrace.prefetch(batches, {other: lambda keys: keys})
    for keys in loader:
        pair.mine(keys + 1).sum().backward()
        pair.step()
        close(other(keys).detach(), rows_of(pair.mine).values[keys].sum(1))
    assert loader.counts.missed == len(batches)
