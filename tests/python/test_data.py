"""DataLoader and batches: what a hub hands out is applied once, whatever happens to the hub, the node and the
loop."""
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

import millrace
import samples

torch = pytest.importorskip("torch")

SAMPLES, BATCH, DIM, LR = 500, 32, 4, 0.5
BATCHES = -(-SAMPLES // BATCH)
SEQUENCE = (1 << 48) - 1


class World:
    """A node, a hub that feeds it, a file of samples, and a model: a table and a ledger with a place for each
    batch."""

    def __init__(self, node, hub):
        self.node, self.hub_program = node, hub
        self.path = os.path.join(node.directory, "samples.tsv")
        samples.write(self.path, SAMPLES)
        self.clients = []
        self.client = self.connect(millrace.Client, node.address)
        self.hub = self.connect(millrace.Hub, hub.address)
        self.bag, self.ledger = self.model()

    def connect(self, kind, address, deadline_s=20):
        client = kind(address, deadline_s=deadline_s, connect_s=60)
        self.clients.append(client)
        return client

    def model(self, client=None):
        client = client or self.client
        bag = millrace.EmbeddingBag(
            client,
            "clicks",
            samples.SLOTS,
            "sum",
            dim=DIM,
            optimizer=millrace.optim.SGD(lr=LR),
            initializer=millrace.init.constant(0.25),
        )
        return bag, millrace.nn.Variable(client, "ledger", (4 * BATCHES,), optimizer=millrace.optim.SGD(lr=1))

    def loader(self, hub=None, bag=None, ledger=None, **options):
        return millrace.DataLoader(
            hub or self.hub,
            self.path,
            "criteo",
            BATCH,
            **{
                "table": "clicks",
                "tables": [bag or self.bag],
                "variables": [ledger or self.ledger],
                **options,
            },
        )

    def close(self):
        for client in self.clients:
            client.close()


@pytest.fixture
def new_world(new_node, new_hub):
    worlds = []

    def make(*hub_options, cores=2):
        node = new_node(cores=cores)
        worlds.append(World(node, new_hub(node, *(hub_options or ("--trainer-timeout", "600")))))
        return worlds[-1]

    yield make
    for world in worlds:
        world.close()


def learn(batch, bag, ledger):
    """A gradient of ones for all rows of the batch, and a count in the ledger."""
    (bag(batch).sum() - ledger(batch)[batch.id & SEQUENCE]).backward()


def counts_of(world):
    return world.ledger.variable.pull().round().astype(int)


def check_applied(world, batches):
    counts = counts_of(world)
    assert (counts[:batches] == 1).all() and (counts[batches:] == 0).all(), counts


# ---- batches that the program feeds itself ----


def fed(client, table, batch_id, shape=(3, 2)):
    keys = np.arange(shape[0] * shape[1] * 2) % 7
    client.feed(batch_id, [(table, keys, np.arange(0, len(keys) + 1, 2))], shape[0])
    return keys.reshape(-1, 2)


def own_bag(client, request, **options):
    name = "".join(c if c.isalnum() else "." for c in request.node.name)[-60:]
    return millrace.EmbeddingBag(
        client, name, mode="sum", dim=DIM, optimizer=millrace.optim.SGD(lr=LR), **options
    )


def test_a_batch_is_applied_once(client, request):
    bag = own_bag(client, request)
    other = millrace.EmbeddingBag(bag.table, num_slots=2)
    variable = millrace.nn.Variable(
        client, f"{bag.table.name[-50:]}.v", (2,), optimizer=millrace.optim.SGD(lr=1)
    )
    keys = torch.from_numpy(fed(client, bag.table, 1))
    weight = torch.nn.Parameter(torch.from_numpy(bag.table.lookup(np.arange(7))))
    batch = millrace.data.Batch(1, 3)
    ours = bag(batch)
    assert ours.shape == other(batch).shape == (3, 2, DIM)
    theirs = weight[keys].sum(1).view(3, 2, DIM)
    torch.testing.assert_close(ours, theirs)
    factors = torch.randn(3, 2, DIM)
    ((ours + other(batch)) * factors + variable(batch).sum()).sum().backward()
    ((theirs + theirs) * factors).sum().backward()
    assert batch.pushed and batch.wait()
    weight.data -= LR * weight.grad
    torch.testing.assert_close(torch.from_numpy(bag.table.lookup(np.arange(7))), weight.data)
    assert variable.variable.pull().tolist() == [-3 * 2 * DIM] * 2

    with pytest.raises(RuntimeError, match="batch 1 has been pushed"):
        bag(batch).sum().backward()
    fed(client, bag.table, 1)
    again = millrace.data.Batch(1, 3)
    (bag(again).sum() + variable(again).sum()).backward()
    assert not again.wait()
    bag.flush()
    torch.testing.assert_close(torch.from_numpy(bag.table.lookup(np.arange(7))), weight.data)
    assert variable.variable.pull().tolist() == [-3 * 2 * DIM] * 2


def test_errors_of_batches(client, request):
    bag = own_bag(client, request)
    fed(client, bag.table, 2)
    batch = millrace.data.Batch(2, 3)
    with pytest.raises(ValueError, match="has 2 slots, not 5"):
        millrace.EmbeddingBag(bag.table, num_slots=5)(batch)
    with pytest.raises(ValueError, match="at the server"):
        bag(batch, torch.tensor([0]))
    with pytest.raises(millrace.UnknownBatch):
        bag(millrace.data.Batch(77, 3))
    out = bag(batch)
    client.forget_batches([2])
    out.sum().backward()
    with pytest.raises(millrace.UnknownBatch):
        bag.flush()


def test_a_read_only_batch_takes_no_gradients(client, request):
    bag = own_bag(client, request)
    client.feed(3, [(bag.table, np.arange(4), np.arange(5))], 2, read_only=True)
    batch = millrace.data.Batch(3, 2, read_only=True)
    assert not bag(batch).requires_grad and not batch.pushed
    bag(batch)[:] = 9  # what comes out is the caller's own
    assert torch.equal(bag(batch), bag(batch)) and bag(batch).max() < 9
    assert next(info.rows for info in client.features() if info.id == bag.table.id) == 0


def test_as_the_hub_s_own_batch(client, request):
    bag = own_bag(client, request)
    fed(client, bag.table, 4)
    from millrace.hub import Batch

    bag(Batch(4, 3, 0, np.zeros((3, 0)), np.zeros(3))).sum().backward()
    bag.flush()
    assert (4 in client.batch_state(0)) and not client.push_gradients_batch(
        4, [(bag.table, np.zeros((3, 2, DIM)))]
    )


# ---- plans ----


@pytest.mark.parametrize("staleness", [0, 1, 3])
def test_a_pass(new_world, staleness):
    world = new_world()
    loader = world.loader(staleness=staleness, epochs=2, shuffle_seed=5)
    assert loader.info.batches == 2 * BATCHES and loader.info.slots == samples.SLOTS
    seen, in_flight = np.zeros(SAMPLES, int), 0
    for batch in loader:
        assert batch.dense.shape == (batch.samples, samples.DENSE) and batch.labels.dtype == torch.float32
        numbers = torch.expm1(batch.dense[:, 0]).round().long()
        assert torch.equal(batch.labels, (numbers % 3 == 0).float())
        np.add.at(seen, numbers.numpy(), 1)
        learn(batch, world.bag, world.ledger)
        in_flight = max(
            in_flight, sum(not push.done() for each in loader._handed for push in each._pushes.values())
        )
    assert (seen == 2).all() and in_flight <= staleness + 1
    assert next(loader, None) is None
    assert (loader.counts.applied, loader.counts.samples, loader.counts.known) == (
        2 * BATCHES,
        2 * SAMPLES,
        0,
    )
    check_applied(world, 2 * BATCHES)


def test_rows_learn_what_batches_bring(new_world):
    world = new_world("--prefetch", "1")
    for batch in world.loader(staleness=0):
        learn(batch, world.bag, world.ledger)
    evaluation = world.loader(
        part="held_out", held_out_share=0.9, run=1
    )  # all of these were in the first plan, too
    world.bag.eval()
    values = torch.cat([world.bag(batch).flatten() for batch in evaluation])
    assert not values.requires_grad
    times = (0.25 - values) / LR
    assert torch.equal(times, times.round()) and times.min() >= 1
    assert evaluation.counts.samples == evaluation.info.samples > 400 and evaluation.counts.applied == 0


def test_two_trainers_share_a_plan(new_world):
    world = new_world("--trainer-timeout", "60")
    total = []

    def train():
        hub, client = world.connect(millrace.Hub, world.hub.server), world.connect(
            millrace.Client, world.client.server
        )
        bag, ledger = world.model(client)
        loader = world.loader(hub, bag, ledger, staleness=1, epochs=2)
        for batch in loader:
            learn(batch, bag, ledger)
        total.append(loader.counts.applied)

    threads = [threading.Thread(target=train) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(total) == 2 * BATCHES
    check_applied(world, 2 * BATCHES)


def test_a_batch_without_gradients_is_told(new_world):
    world = new_world()
    loader = world.loader(staleness=0)
    next(loader)
    with pytest.raises(RuntimeError, match="has got no gradients"):
        next(loader)
    for batch in loader:  # the loop may go on: the hub hands it out again
        learn(batch, world.bag, world.ledger)
    check_applied(world, BATCHES)


def test_a_batch_that_is_given_back_comes_again(new_world):
    world = new_world()
    loader = world.loader(staleness=2)
    refused = set()
    for batch in loader:
        if len(refused) < 3 and batch.id not in refused:
            refused.add(batch.id)
            batch.give_back()
        else:
            learn(batch, world.bag, world.ledger)
    assert (loader.counts.given_back, loader.counts.applied, len(refused)) == (3, BATCHES, 3)
    check_applied(world, BATCHES)


def test_a_loop_may_stop_and_go_on(new_world):
    world = new_world()
    loader = world.loader(staleness=1)
    for batch in loader:
        learn(batch, world.bag, world.ledger)
        break
    loader.flush()
    assert counts_of(world).sum() == 1
    for batch in loader:
        learn(batch, world.bag, world.ledger)
    check_applied(world, BATCHES)


def test_the_server_is_killed_and_restored(new_world):
    world = new_world("--trainer-timeout", "5")
    loader = world.loader(staleness=2, epochs=2)
    for i, batch in enumerate(loader):
        learn(batch, world.bag, world.ledger)
        if i == 8:
            world.client.wait_for_save(world.client.save())
        if i == 14:
            world.node.kill()
            world.node.restart()
    assert loader.counts.applied + loader.counts.dropped > 2 * BATCHES
    check_applied(world, 2 * BATCHES)


def test_the_hub_is_killed_and_started_again(new_world):
    world = new_world("--trainer-timeout", "5")
    loader = world.loader(staleness=1, epochs=2)
    for i, batch in enumerate(loader):
        learn(batch, world.bag, world.ledger)
        if i == 9:
            world.hub_program.kill()
            world.hub_program.restart()
    check_applied(world, 2 * BATCHES)


def test_it_gives_up(new_world):
    world = new_world()
    loader = world.loader(hub=world.connect(millrace.Hub, world.hub.server, deadline_s=0.5), staleness=0)
    learn(next(loader), world.bag, world.ledger)
    loader.flush()
    world.hub_program.kill()
    loader.give_up_s = 0.5
    with pytest.raises(millrace.data.PASSING, match=world.hub.server):
        for batch in loader:
            learn(batch, world.bag, world.ledger)


def test_it_says_why_there_is_no_batch(new_world, monkeypatch):
    world = new_world()
    loader = world.loader(table="clickz", give_up_s=0.1)
    with pytest.raises(millrace.NotReady, match="no batch for 0.1 s: .*no table 'clickz'"):
        next(loader)

    def no_reason(*_):
        raise millrace.errors.error_of(millrace.errors.lib.MR_NOT_READY)

    monkeypatch.setattr(world.hub, "_run", no_reason)
    with pytest.raises(millrace.NotReady, match="another trainer does not end its batches"):
        next(loader)


def test_errors_of_plans(new_world):
    world = new_world()
    with pytest.raises(millrace.InvalidArgument, match="/nowhere/samples"):
        millrace.DataLoader(world.hub, "/nowhere/samples", "criteo", BATCH, table="clicks")
    with pytest.raises(ValueError, match="staleness"):
        world.loader(staleness=-1)
    with pytest.raises(TypeError, match=r"millrace.Hub\("):
        world.loader(hub=world.hub.server)
    world.loader()
    other = world.connect(millrace.Hub, world.hub.server)
    with pytest.raises(millrace.AlreadyStarted, match="samples.tsv"):
        world.loader(hub=other, run=5, give_up_s=0.1)


def test_without_torch(new_world):
    world = new_world()
    program = """
import sys
sys.modules["torch"] = None
import numpy as np, millrace
with millrace.Client(sys.argv[1], deadline_s=60) as client, millrace.Hub(sys.argv[2], deadline_s=60) as hub:
    table, ledger = client.table("clicks"), client.variable("ledger")
    loader = millrace.DataLoader(hub, sys.argv[3], "criteo", 32, table="clicks", tables=[table], staleness=1)
    for batch in loader:
        assert type(batch.dense) is np.ndarray
        count = np.zeros(ledger.shape, np.float32)
        count[batch.id & (1 << 48) - 1] = -1
        batch.push([(table, np.ones_like(batch.values(table))), (ledger, count)])
    print(loader.counts.applied)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, world.client.server, world.hub.server, world.path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{BATCHES}\n", "")
    check_applied(world, BATCHES)


def test_importing_millrace_does_not_import_torch():
    program = (
        "import sys, millrace; millrace.DataLoader; assert 'torch' not in sys.modules; "
        "millrace.EmbeddingBag; "
        "assert 'torch' in sys.modules; millrace.nonsense"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "module 'millrace' has no attribute 'nonsense'" in done.stderr
