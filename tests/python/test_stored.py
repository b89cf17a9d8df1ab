"""Rows set and read as they are stored, in tables of every optimizer, and torch's weights in modules."""
import inspect
import re

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


class Parts:
    """The same model twice: of torch's modules, and of those at a server."""

    def __init__(self, client, name, bias=True):
        torch = pytest.importorskip("torch")

        class Model(torch.nn.Module):
            def __init__(self, row, bag, tower):
                super().__init__()
                self.row, self.bag, self.tower = row, bag, torch.nn.Sequential(torch.nn.ReLU(), tower)

            def forward(self, keys):
                return self.tower(self.row(keys) + self.bag(keys.view(-1, 1)))

        self.theirs = Model(
            torch.nn.Embedding(9, DIM),
            torch.nn.EmbeddingBag(9, DIM, mode="sum"),
            torch.nn.Linear(DIM, 2, bias),
        )
        self.ours = Model(
            millrace.Embedding(client, f"{name[-50:]}.row", dim=DIM),
            millrace.EmbeddingBag(client, f"{name[-50:]}.bag", dim=DIM, mode="sum"),
            millrace.nn.Linear(client, f"{name[-50:]}.tower", DIM, 2, bias),
        )
        self.state = self.theirs.state_dict()

    def check_same(self):
        torch = pytest.importorskip("torch")
        torch.testing.assert_close(self.ours(torch.arange(9)), self.theirs(torch.arange(9)))


@pytest.mark.parametrize(
    "arguments", [{}, {"strict": False}, {"assign": True}], ids=["strict", "lax", "assign"]
)
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no_bias"])
def test_a_state_dict_of_torch_s_is_taken_whole(client, name, bias, arguments):
    torch = pytest.importorskip("torch")
    if not set(arguments) <= set(inspect.signature(torch.nn.Module.load_state_dict).parameters):
        pytest.skip("assign needs torch 2.1")
    parts = Parts(client, name, bias)
    result = parts.ours.load_state_dict(parts.state, **arguments)
    assert not result.missing_keys and not result.unexpected_keys
    parts.check_same()
    assert not parts.ours.state_dict()  # whose rows the server has
    parts.ours.load_state_dict(parts.ours.state_dict(), **arguments)
    parts.check_same()
    lacking = parts.theirs.load_state_dict(parts.ours.state_dict(), strict=False)
    assert lacking.missing_keys == list(parts.state) and not lacking.unexpected_keys


def test_a_state_dict_comes_back_from_the_server(client, name):
    torch = pytest.importorskip("torch")
    parts = Parts(client, name)
    keys = torch.arange(9)
    with torch.no_grad():
        state = {
            "row.weight": parts.ours.row(keys),
            "bag.weight": parts.ours.bag(keys.view(-1, 1)),
            "tower.1.weight": parts.ours.tower[1].weight(),
            "tower.1.bias": parts.ours.tower[1].bias(),
        }
    parts.theirs.load_state_dict(state)
    parts.check_same()


@pytest.mark.parametrize("how", ["keep_vars", "bfloat16", "float64", "numpy"])
def test_a_state_dict_has_tensors_of_any_kind(client, name, how):
    torch = pytest.importorskip("torch")
    parts = Parts(client, name)
    if how in ("bfloat16", "float64"):
        parts.theirs.to(getattr(torch, how))
    state = parts.theirs.state_dict(keep_vars=how == "keep_vars")
    if how == "numpy":
        state = {key: values.numpy() for key, values in state.items()}
    parts.ours.load_state_dict(state)
    parts.theirs.float()
    parts.check_same()


def test_keys_that_no_module_takes_are_reported(client, name):
    torch = pytest.importorskip("torch")
    parts = Parts(client, name, bias=False)
    more = {
        **parts.state,
        "row.bias": torch.zeros(1),
        "bag.weight.more": torch.zeros(1),
        "tower.1.bias": torch.zeros(2),
        "tower.1.more": torch.zeros(1),
    }
    with pytest.raises(RuntimeError, match="Unexpected key") as error:
        parts.ours.load_state_dict(more)
    assert re.findall('"(.*?)"', str(error.value)) == [
        "row.bias",
        "bag.weight.more",
        "tower.1.bias",
        "tower.1.more",
    ]
    result = parts.ours.load_state_dict(more, strict=False)
    assert not result.missing_keys
    assert result.unexpected_keys == ["row.bias", "bag.weight.more", "tower.1.bias", "tower.1.more"]
    parts.check_same()


@pytest.mark.parametrize("key", ["row.weight", "bag.weight", "tower.1.weight", "tower.1.bias"])
def test_values_that_do_not_fit_are_reported(client, name, key):
    torch = pytest.importorskip("torch")
    parts = Parts(client, name)
    parts.ours.load_state_dict(parts.state)
    for wrong in (torch.zeros(3, DIM + 1), torch.zeros(())):
        with pytest.raises(RuntimeError, match=f"size mismatch for {key}"):
            parts.ours.load_state_dict({key: wrong})
    with pytest.raises(RuntimeError, match=f"{key} is a str; values are a tensor or an array"):
        parts.ours.load_state_dict({key: "values"})
    parts.check_same()


def test_rows_that_are_set_are_new_to_a_prefetch(client, name):
    torch = pytest.importorskip("torch")
    row = millrace.Embedding(client, name, dim=DIM)
    loader = millrace.prefetch([torch.tensor([1]), torch.tensor([7, 8])], {row: lambda keys: keys}, depth=2)
    for step, keys in enumerate(loader):
        rows = row(keys)
        if step == 0:
            row.table.set_rows([7], np.full((1, DIM), 2.0))
    assert (rows[0] == 2).all() and not (rows[1] == 2).any()
