"""Lookups that are made ahead: the same training as without them, to the bit, and what becomes of errors."""
import gc
import types

import numpy as np
import pytest

import millrace

torch = pytest.importorskip("torch")
from millrace._base import changes  # noqa: E402
from millrace._nn import lookups  # noqa: E402
from millrace.nn import forward_all  # noqa: E402

DIM, KEYS, STEPS = 4, 30, 12


@pytest.fixture
def modules(client, name):
    """An EmbeddingBag and an Embedding, and others over tables of the same start."""
    made = []
    for part in "ab":
        tables = [
            client.table(
                f"{name[-40:]}.{part}.{pooling}",
                DIM,
                pooling=pooling,
                optimizer=optimizer(lr=0.3),
                initializer=millrace.init.uniform(-1, 1, seed=5),
            )
            for pooling, optimizer in (("mean", millrace.optim.Adagrad), ("none", millrace.optim.SparseAdam))
        ]
        made.append([millrace.EmbeddingBag(tables[0]), millrace.Embedding(tables[1])])
    return made


def batches(seed=1, steps=STEPS):
    """Bags with weights, empty ones too, and keys: few keys, so that batches share most of them."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(steps):
        sizes = rng.integers(0, 4, 6)
        made.append(
            {
                "keys": torch.from_numpy(rng.integers(0, KEYS, sizes.sum())),
                "offsets": torch.from_numpy(np.cumsum([0, *sizes[:-1]])),
                "weights": torch.from_numpy(rng.random(sizes.sum(), np.float32) + 0.1),
                "items": torch.from_numpy(rng.integers(0, KEYS, (3, 2))),
            }
        )
    return made


def bag_of(batch):
    return batch["keys"], batch["offsets"], batch["weights"]


def train(loader, bag, row, together=False):
    results = []
    for batch in loader:
        if together:
            a, b = forward_all([bag, row], [bag_of(batch), batch["items"]])
        else:
            a, b = bag(*bag_of(batch)), row(batch["items"])
        results += [a.detach().numpy().copy(), b.detach().numpy().copy()]
        ((a - 0.5).square().sum() + b.square().sum()).backward()
    bag.flush(), row.flush()
    return results


def rows_of(module):
    return module.table.lookup(np.arange(KEYS), read_only=True)


def test_a_step_that_is_named_changes_no_answer(modules):
    _, (bag, row) = modules
    loader = millrace.prefetch(batches(), {bag: bag_of, row: "items"}, depth=2)
    for step, batch in enumerate(loader, 1):
        millrace.nn.set_call_options(bag, step=step)
        millrace.nn.set_call_options(row, step=step + 1)
        train([batch], bag, row)
    assert loader.counts.missed == 0 and loader.counts.batches == STEPS


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("depth", [1, 3, 50])
def test_it_trains_as_without(modules, depth, together):
    plain, (bag, row) = modules
    expected = train(batches(), *plain)
    loader = millrace.prefetch(batches(), {bag: bag_of, row: "items"}, depth=depth)
    assert len(loader) == STEPS
    for got, one in zip(train(loader, bag, row, together), expected):
        assert np.array_equal(got, one)
    for mine, theirs in zip((bag, row), plain):
        assert np.array_equal(rows_of(mine), rows_of(theirs))
    counts = loader.counts
    assert counts.batches == STEPS and counts.missed == 0 and counts.stale == 0
    assert counts.rows == STEPS * (6 + 6) and 0 < counts.again < counts.rows
    assert not lookups._current


def test_its_filter_grows_and_numbers_begin_anew(client, modules, monkeypatch):
    monkeypatch.setattr(changes, "_BITS_MIN", 2)
    monkeypatch.setattr(changes, "_NUMBERS", 4)
    monkeypatch.setattr(client, "_changes", None)
    plain, (bag, row) = modules
    expected = train(batches(), *plain)
    loader = millrace.prefetch(batches(), {bag: bag_of, row: "items"}, depth=2)
    for got, one in zip(train(loader, bag, row), expected):
        assert np.array_equal(got, one)
    noted = client._changes
    assert noted._base > 0 and noted._number > 4 >= noted._last.max() and noted._bits > 8
    assert loader.counts.missed == 0 and 0 < loader.counts.again < loader.counts.rows


def test_the_next_lookups_begin_when_a_batch_has_its_rows(client, modules):
    """A server would do them first; and what is pushed until then they need not be looked up again for."""
    bag, row = modules[0]
    loader = millrace.prefetch([torch.tensor([3, 4])] * 4, {row: lambda keys: keys}, depth=2)
    steps = iter(loader)
    next(steps)
    assert not client._futures
    row.table.push_gradients([3], np.ones((1, DIM)))
    row(torch.tensor([3, 4]))
    assert len(client._futures) == 2 and loader.counts.again == 1
    next(steps), next(steps)  # without a forward
    assert np.array_equal(row(torch.tensor([3, 4])).detach().numpy(), row.table.lookup([3, 4]))
    assert loader.counts.again == 1 and loader.counts.missed == 0
    steps.close()
    assert not client._futures


def test_steps_of_a_new_table_begin_with_1(client, name):
    """Though the lookups that are made ahead make its rows, and the server is at another training's step."""
    optimizer, others = millrace.optim.SparseAdam(lr=0.1), client.table(name[-50:] + ".other", 1)
    others.push_gradients([1], [[1.0]], step=client.checkpoint_info().step + 500)
    found = []
    for part in "ab":
        bag = millrace.EmbeddingBag(
            client,
            f"{name[-50:]}.{part}",
            dim=DIM,
            optimizer=optimizer,
            initializer=millrace.init.constant(1),
        )
        made = batches()
        for batch in made if part == "a" else millrace.prefetch(made, {bag: bag_of}, depth=3):
            bag(*bag_of(batch)).square().sum().backward()
        bag.flush()
        found.append(rows_of(bag))
    assert np.array_equal(*found)


def test_only_what_has_changed_is_looked_up_again(modules, monkeypatch):
    bag, row = modules[0]
    loader = millrace.prefetch(batches(steps=1), {bag: bag_of, row: "items"})
    for batch in loader:
        key = int(batch["items"][0, 0])
        row.table.push_gradients([key], np.ones((1, DIM)))
        changed = int((batch["items"] == key).sum())
        asked = []

        def asks(table, keys, *rest):
            asked.append(keys.tolist())
            return look_up(table, keys, *rest)

        with monkeypatch.context() as patch:
            look_up = lookups.lookup_of
            patch.setattr(lookups, "lookup_of", asks)
            found = row(batch["items"]).detach().numpy()
        assert asked == [[key] * changed]
        assert np.array_equal(found, row.table.lookup(batch["items"].numpy()))
        assert loader.counts.again == changed


def test_rows_that_could_not_be_brought_up_to_date_are_not_used(client, modules):
    bag, row = modules[0]
    for keys in millrace.prefetch([torch.tensor([3, 4])], {row: lambda keys: keys}):
        row.table.push_gradients([3], np.ones((1, DIM)))

        def fails(call, options):
            raise millrace.DeadlineExceeded("late")

        client._run = fails
        try:
            with pytest.raises(millrace.DeadlineExceeded):
                row(keys)
        finally:
            del client._run
        assert np.array_equal(row(keys).detach().numpy(), row.table.lookup([3, 4]))


@pytest.mark.parametrize("how", ["bags", "tables", "async", "batch", "set", "before"])
def test_whatever_this_client_pushes_is_seen(client, modules, how):
    bag, row = modules[0]
    table, one = row.table, np.ones((1, DIM), np.float32)
    if how == "before":  # in flight when the first lookup is made
        client._changes = None
        pushed = [table.push_gradients_async([3], one)]
    loader = millrace.prefetch(
        [torch.tensor([3, 4])] * 3, {row: lambda keys: keys, bag: lambda keys: keys[:, None]}, depth=2
    )
    for number, keys in enumerate(loader):
        if how == "bags":
            bag.table.push_gradients_bags([3], [0, 1], one)
            table.push_gradients([3], one)
        elif how == "tables":
            client.push_gradients_tables([(bag.table, [3], one), (table, [4], one)])
        elif how == "async":
            table.push_gradients_async([4], one).result()
        elif how == "batch":
            id = (bag.table.id << 48) + number
            client.feed(id, [(bag.table, [3], [0, 1])], 1)
            client.push_gradients_batch(id, [(bag.table, one.reshape(1, 1, DIM))])
        elif how == "set":
            bag.table.set_rows([4], one + number)
            table.set_rows_async([3, 4], np.full((2, DIM), number, np.float32)).result()
        else:
            while pushed:
                pushed.pop().result()
        assert np.array_equal(row(keys).detach().numpy(), table.lookup([3, 4]))
        assert np.array_equal(bag(keys[:, None]).detach().numpy(), bag.table.lookup([3, 4]))
    assert loader.counts.missed == 0 and loader.counts.again >= 3 - (how == "before")


def test_stale_rows_stay_and_are_counted(modules):
    plain, (bag, row) = modules
    loader = millrace.prefetch(batches(), {bag: bag_of, row: "items"}, depth=2, stale=True)
    results = train(loader, bag, row)
    counts = loader.counts
    assert counts.again == 0 and 0 < counts.stale <= counts.rows and 1 <= counts.stale_pushes <= 5
    # two after its lookup, and the three that may have been in flight then
    first = train(batches(steps=1), *plain)
    assert np.array_equal(results[0], first[0])  # nothing had been pushed


def test_keys_that_were_not_looked_up_are(modules):
    bag, row = modules[0]
    loader = millrace.prefetch([torch.tensor([1, 2])], {row: lambda keys: keys})
    for keys in loader:
        assert np.array_equal(row(keys + 1).detach().numpy(), row.table.lookup([2, 3]))
        assert loader.counts.missed == 1
        ours = row(keys)
        assert np.array_equal(ours.detach().numpy(), row.table.lookup([1, 2]))
        assert (loader.counts.missed, loader.counts.rows) == (1, 2)
        again = row(keys)  # once
        ours.data.zero_()
        assert loader.counts.missed == 2 and not np.array_equal(again.detach().numpy(), ours.detach().numpy())
        row.eval()  # another kind of lookup
        assert row(keys).shape == (2, DIM)
        row.train()


def test_it_makes_no_rows_in_evaluation(modules):
    bag, row = modules[0]
    row.eval()
    keys = torch.tensor([1000, 1001])
    for batch in millrace.prefetch([keys], {row: lambda keys: keys}):
        row(batch)
    info = next(i for i in row.table.client.features() if i.id == row.table.id)
    assert info.rows == 0


def test_errors_are_their_batches(modules):
    bag, row = modules[0]

    def keys_of(batch):
        if batch == 2:
            raise KeyError("no keys")
        return torch.tensor([batch])

    seen = []
    with pytest.raises(KeyError, match="no keys"):
        for batch in millrace.prefetch(range(5), {row: keys_of}, depth=3):
            seen.append(batch)
    assert seen == [0, 1]

    def loader():
        yield torch.tensor([1])
        raise OSError("disk")

    seen = []
    with pytest.raises(OSError, match="disk"):
        for batch in millrace.prefetch(loader(), {row: lambda keys: keys}, depth=5):
            seen.append(row(batch))
    assert len(seen) == 1
    with pytest.raises(TypeError, match="int32 or int64, not torch.float32"):
        list(millrace.prefetch([torch.tensor([1.5])], {row: lambda keys: keys}))


def test_an_error_of_a_lookup_is_its_batch_s(client, modules, name):
    bag, row = modules[0]
    gone = millrace.Embedding(client, name[-50:] + ".gone", dim=DIM)
    loader = millrace.prefetch([torch.tensor([n]) for n in range(3)], {gone: lambda keys: keys})
    steps = iter(loader)
    assert next(steps)[0] == 0 and next(steps)[0] == 1
    client.drop(gone.table.name)
    with pytest.raises(millrace.UnknownTable):
        gone(torch.tensor([5]))
    steps.close()
    with pytest.raises(millrace.UnknownTable):
        list(loader)


def test_a_loop_that_is_left_leaves_nothing(client, modules):
    bag, row = modules[0]
    loader = millrace.prefetch(batches(), {bag: bag_of, row: "items"}, depth=4)
    for batch in loader:
        break
    gc.collect()
    assert not client._futures and not lookups._current
    with pytest.raises(ZeroDivisionError):
        for batch in loader:
            row(batch["items"])
            raise ZeroDivisionError
    gc.collect()
    assert not client._futures and not lookups._current
    assert len(list(loader)) == STEPS  # from the start


def test_validation_inside_of_training(modules):
    bag, row = modules[0]
    train_loader = millrace.prefetch([torch.tensor([n]) for n in range(3)], {row: lambda keys: keys})
    test_loader = millrace.prefetch([torch.tensor([7])] * 2, {row: lambda keys: keys})
    for keys in train_loader:
        row.eval()
        for others in test_loader:
            row(others)
        row.train()
        row(keys).sum().backward()
    assert train_loader.counts.missed == test_loader.counts.missed == 0


def test_asking_for_pushes_changes_no_counts():
    """Other threads go over the counts as they begin to watch."""
    noted = changes.Changes(types.SimpleNamespace(_futures={}, _inside=[]))
    watch = noted.watch()
    assert watch.pushes_to(7) == 0 and not noted._counts
    noted.begin([(7, None)])
    assert watch.pushes_to(7) == 1 and noted.watch().pushes_to(7) == 1


def test_refusals(modules):
    bag, row = modules[0]
    for depth in (0, True, 1.5):
        with pytest.raises(ValueError, match="1 or more"):
            millrace.prefetch([], {row: "items"}, depth=depth)
    with pytest.raises(TypeError, match="bags say for each module"):
        millrace.prefetch([], [row])
    with pytest.raises(TypeError, match="Linear is no millrace.nn.EmbeddingBag"):
        millrace.prefetch([], {torch.nn.Linear(1, 1): "items"})
    assert "depth=1" in repr(millrace.prefetch([], {row: "items"}))
