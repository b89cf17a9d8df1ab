"""Rows set and read as they are stored, in tables of every optimizer, and torch's weights in modules."""
import numpy as np
import pytest

import millrace
from millrace import optim, stored

DIM = 4
KEYS = np.array([3, 2**63 + 5, 17, 4], np.uint64)
OPTIMIZERS = [
    optim.SGD(lr=0.1),
    optim.SGD(lr=0.1, momentum=0.9),
    optim.SGD(lr=0.1, momentum=0.9, dampening=0.5),
    optim.Adagrad(lr=0.1, initial_accumulator_value=0.25),
    optim.RowWiseAdagrad(lr=0.1),
    optim.Adam(),
    optim.AdamW(),
    optim.Ftrl(lr=0.1),
    optim.GroupFtrl(lr=0.1),
    optim.Assign(),
]


def numbers(*shape):
    return np.random.default_rng(7).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda o: f"{type(o).__name__}.{o.number}")
def test_training_goes_on_in_another_table(client, name, optimizer):
    """With its state a row learns on as in the table that it comes from."""
    there, here = (client.table(f"{name[-50:]}.{i}", DIM, optimizer=optimizer) for i in range(2))
    there.lookup(KEYS)
    there.push_gradients(KEYS, numbers(4, DIM))
    rows = there.rows(KEYS, state=True)
    assert rows.is_stored.all() and rows.values.shape == (4, DIM)
    assert {part.name for part in stored.parts_of(optimizer, DIM)} == set(rows.state)
    pushed = here.set_rows(KEYS, rows.values, rows.state)
    assert (pushed.applied, pushed.sent) == (4, 4)
    for table in (there, here):
        table.push_gradients(KEYS, numbers(4, DIM) ** 2)
    again, expected = here.rows(KEYS, state=True), there.rows(KEYS, state=True)
    assert np.array_equal(again.values, expected.values)
    assert all(np.array_equal(again.state[part], expected.state[part]) for part in expected.state)


def test_without_state_a_row_starts_anew(client, name):
    table = client.table(name, DIM, optimizer=optim.Adam())
    table.lookup([1])
    table.push_gradients([1], numbers(1, DIM))
    assert table.rows([1], state=True).state["step"].tolist() == [1]
    table.set_rows([[1, 2]], np.ones((1, 2, DIM), np.float64))
    rows = table.rows([[1, 2, 3]], state=True)
    assert rows.values.shape == (1, 3, DIM) and rows.values[0, :2].min() == 1
    assert rows.is_stored.tolist() == [[True, True, False]]
    assert rows.state["step"].tolist() == [[0, 0, 0]] and not rows.state["v"].any()
    assert repr(rows) == "<millrace.Rows (1, 3, 4), 2 stored, m, v, step>"
    assert not table.rows([3]).is_stored[0]  # reading made none
    table.set_rows([1], numbers(1, DIM), {"m": numbers(1, DIM), "v": np.zeros((1, DIM)), "step": 7})
    assert table.rows_async([1], state=True).result().state["step"][0] == 7
    table.set_rows_async([1], np.zeros((1, DIM))).result()
    assert not table.rows([1]).values.any()


def test_many_rows_go_in_pieces(client, name, monkeypatch, tmp_path, capsys):
    """Of a mapped file, with a bar; of a key that is repeated in another piece the last row counts."""
    monkeypatch.setattr(stored, "PIECE_BYTES", 32 * DIM * 4)
    values = numbers(1000, DIM)
    np.save(tmp_path / "rows.npy", values)
    table, keys = client.table(name, DIM), np.arange(1000)
    pushed = millrace.Pushed()
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    assert table.set_rows(keys, mapped, progress=True, pushed=pushed) is pushed
    assert (pushed.applied, pushed.sent, pushed.is_known) == (1000, 1000, True)
    assert "set " in capsys.readouterr().err
    assert np.array_equal(table.rows(keys).values, values)
    keys[900] = keys[5]
    table.set_rows(keys, values[::-1])
    assert np.array_equal(table.rows([5]).values[0], values[::-1][900])


def test_rows_that_are_not_set_are_counted(client, name):
    table = client.table(name, DIM, capacity_rows=client.core_count)
    rows = numbers(100, DIM)
    rows[3, 1] = np.nan
    pushed = table.set_rows(np.arange(100), rows)
    assert pushed.sent == 100 and pushed.refused > 90 and pushed.not_finite <= 1
    assert table.rows(np.arange(100)).is_stored.sum() == client.core_count


def test_mistakes_are_told(client, name):
    table = client.table(name, DIM, optimizer=optim.Adam())
    with pytest.raises(ValueError, match=r"rows have the shape \[3, 4\]; for 2 keys it is \[2, 4\]"):
        table.set_rows([1, 2], numbers(3, DIM))
    with pytest.raises(ValueError, match="state has m; that of .*Adam.* has m, v, step"):
        table.set_rows([1], numbers(1, DIM), {"m": numbers(1, DIM)})
    state = table.rows([1], state=True).state
    with pytest.raises(ValueError, match="'step' are whole numbers"):
        table.set_rows([1], numbers(1, DIM), {**state, "step": 1.5})
    with pytest.raises(millrace.InvalidArgument, match="learning_rate"):
        table.set_rows([1], numbers(1, DIM), learning_rate=1.0)
    with pytest.raises(millrace.InvalidArgument, match="wire_dtype"):
        table.rows([1], wire_dtype="f16")
    assert not table.rows([1]).is_stored[0]


def test_a_set_is_replayed(new_node):
    """It is kept like a push until it is in a checkpoint, and comes again after a restart."""
    node = new_node()
    with millrace.Client(node.address, deadline_s=60, connect_s=60, replay=True) as client:
        table = client.table("t", DIM, optimizer=optim.Adagrad(lr=0.1))
        client.wait_for_save(client.save())
        table.set_rows(KEYS, numbers(4, DIM))
        before = table.rows(KEYS, state=True)
        node.kill()
        node.restart()
        after = table.rows(KEYS, state=True)
        assert after.is_stored.all() and np.array_equal(after.values, before.values)


# ---- modules ----


def test_from_pretrained_is_torch_s(client, name):
    torch = pytest.importorskip("torch")
    weight = torch.from_numpy(numbers(20, DIM))
    keys, offsets = torch.arange(20), torch.tensor([0, 3, 9])
    theirs = torch.nn.EmbeddingBag.from_pretrained(weight.clone(), freeze=False, mode="sum")
    ours = millrace.EmbeddingBag.from_pretrained(
        client, name, weight, freeze=False, mode="sum", optimizer=optim.SGD(lr=0.5)
    )
    optimizer = torch.optim.SGD(theirs.parameters(), lr=0.5)
    for _ in range(2):
        torch.testing.assert_close(ours(keys, offsets), theirs(keys, offsets))
        for bag in (ours, theirs):
            (bag(keys, offsets) ** 2).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    frozen = millrace.Embedding.from_pretrained(client.table(f"{name[-50:]}.f", DIM), weight, keys=keys + 5)
    assert not frozen.learns and torch.equal(frozen(keys + 5), weight)
    with pytest.raises(ValueError, match="it is .n, dim."):
        millrace.Embedding.from_pretrained(client, name, weight[0])
    with pytest.raises(millrace.RowsNotSet, match="of 1 rows 1 hold NaN or Inf"):
        frozen.load_rows(torch.full((1, DIM), float("nan")))


def test_a_state_dict_of_torch_s_sets_the_rows(client, name):
    torch = pytest.importorskip("torch")

    class Model(torch.nn.Module):
        def __init__(self, items):
            super().__init__()
            self.items, self.out = items, torch.nn.Linear(DIM, 1)

    theirs = Model(torch.nn.Embedding(9, DIM))
    ours = Model(millrace.Embedding(client, name, dim=DIM))
    ours.load_state_dict(theirs.state_dict())
    assert torch.equal(ours.items(torch.arange(9)), theirs.items.weight)
    assert torch.equal(ours.out.weight, theirs.out.weight)
    ours.load_state_dict(ours.state_dict())
    assert torch.equal(ours.items(torch.arange(9)), theirs.items.weight)
    with pytest.raises(RuntimeError, match="size mismatch for items.weight"):
        ours.load_state_dict(Model(torch.nn.Embedding(9, DIM + 1)).state_dict())


def test_a_state_dict_of_torch_s_sets_a_linear(client, name):
    torch = pytest.importorskip("torch")
    theirs, ours = torch.nn.Linear(3, 2), millrace.nn.Linear(client, name, 3, 2)
    ours.load_state_dict(theirs.state_dict())
    inputs = torch.randn(4, 3)
    torch.testing.assert_close(ours(inputs), theirs(inputs))
    with pytest.raises(RuntimeError, match="size mismatch for weight"):
        ours.load_state_dict(torch.nn.Linear(4, 2).state_dict())


def test_rows_that_are_set_are_new_to_a_prefetch(client, name):
    torch = pytest.importorskip("torch")
    row = millrace.Embedding(client, name, dim=DIM)
    loader = millrace.prefetch([torch.tensor([1]), torch.tensor([7, 8])], {row: lambda keys: keys}, depth=2)
    for step, keys in enumerate(loader):
        rows = row(keys)
        if step == 0:
            row.table.set_rows([7], np.full((1, DIM), 2.0))
    assert (rows[0] == 2).all() and not (rows[1] == 2).any()
