"""Tables and variables on a real node, by synchronous calls."""

import numpy as np
import pytest

import millrace
from millrace import init, optim

try:
    import torch
except ImportError:
    torch = None


@pytest.fixture(scope="module")
def client(node):
    with millrace.Client(node.address, deadline_s=30.0) as client:
        yield client


def test_rows_learn_by_adagrad(client):
    table = client.table("adagrad", 4, optimizer=optim.Adagrad(lr=0.5), initializer=init.constant(1.0))
    keys = np.array([3, 1 << 63, 7, 3], dtype=np.uint64)
    assert np.array_equal(table.lookup(keys), np.ones((4, 4), np.float32))
    table.push_gradients(keys[:2], [[1, 2, 3, 4], [0, 0, 2, 0]])
    rows = table.lookup(keys)
    assert rows.dtype == np.float32
    np.testing.assert_allclose(rows[0], 0.5, rtol=1e-6)
    np.testing.assert_allclose(rows[1], [1, 1, 0.5, 1], rtol=1e-6)
    assert np.array_equal(rows[2], np.ones(4)) and np.array_equal(rows[3], rows[0])


def test_a_learning_rate_of_0_is_0(client):
    for optimizer in (optim.SGD(lr=0), optim.Adam(lr=0), optim.Ftrl(lr=0)):
        name = type(optimizer).__name__
        table = client.table(f"still_{name}", 2, optimizer=optimizer, initializer=init.constant(1.0))
        assert client.table(f"still_{name}").spec.optimizer.lr == 0
        variable = client.variable(
            f"still_{name}_too", 2, optimizer=optimizer, initializer=init.constant(1.0)
        )
        table.lookup([1])
        table.push_gradients([1], [[1, 2]])
        variable.push_gradient([1, 2])
        assert np.array_equal(table.lookup([1]), np.ones((1, 2))) and np.array_equal(
            variable.pull(), np.ones(2)
        )
        table.push_gradients([1], [[1, 2]], learning_rate=0.5)
        assert np.all(table.lookup([1]) < 1)
    table = client.table("falls", 1, optimizer=optim.Ftrl(lr=0.5), schedule=optim.schedule.Linear(steps=10))
    table.lookup([1])
    table.push_gradients([1], [[1]], step=5)
    before = table.lookup([1])
    table.push_gradients([1], [[1]], step=10)
    assert before != 0 and np.array_equal(table.lookup([1]), before)


def test_keys_of_any_whole_type_and_shape(client):
    table = client.table("types", 3, initializer=init.uniform(-1, 1, seed=5))
    expected = table.lookup(np.array([1, 2, 3, 4], np.uint64))
    assert len(np.unique(expected)) == 12
    for keys in (
        [1, 2, 3, 4],
        (1, 2, 3, 4),
        np.array([1, 2, 3, 4], np.int32),
        np.arange(9)[1:5],
        np.arange(0, 9, 1)[1:5].copy(),
    ):
        assert np.array_equal(table.lookup(keys), expected)
    assert np.array_equal(table.lookup(np.array([[1, 2], [3, 4]])), expected.reshape(2, 2, 3))
    assert np.array_equal(table.lookup(np.arange(8)[::2]), table.lookup([0, 2, 4, 6]))
    assert np.array_equal(table.lookup([-1]), table.lookup(np.array([2**64 - 1], np.uint64)))
    assert table.lookup([]).shape == (0, 3)
    assert table.lookup(5).shape == (3,)


def test_bags(client):
    rows = {}
    for pooling in ("sum", "mean", "sqrtn"):
        table = client.table(f"bags_{pooling}", 2, pooling=pooling, initializer=init.uniform(0, 1, seed=1))
        rows[pooling] = table.lookup([10, 11, 12])
        keys, offsets = [10, 11, 12, 10], [0, 2, 2, 4]
        factor = {"sum": 1, "mean": 0.5, "sqrtn": 0.5**0.5}[pooling]
        expected = np.stack([rows[pooling][:2].sum(0), [0, 0], rows[pooling][[2, 0]].sum(0)]) * factor
        np.testing.assert_allclose(table.lookup_bags(keys, offsets), expected, rtol=1e-6)
        np.testing.assert_allclose(
            table.lookup_bags(keys, offsets[:-1], include_last_offset=False), expected, rtol=1e-6
        )
        weighted = table.lookup_bags(keys, offsets, [1, 3, 2, 2])
        divisor = {"sum": 1, "mean": 4, "sqrtn": 10**0.5}[pooling]
        np.testing.assert_allclose(
            weighted[0], (rows[pooling][0] + 3 * rows[pooling][1]) / divisor, rtol=1e-6
        )
        table.push_gradients_bags(keys, offsets, np.ones((3, 2)), learning_rate=0.25)
        np.testing.assert_allclose(table.lookup([11]), rows[pooling][1:2] - 0.25 * factor, rtol=1e-5)
        table.push_gradients_bags([11], [0, 1], np.ones((1, 2)), weights=[2.0], learning_rate=0.25)


def test_a_table_is_looked_up_by_name(client):
    made = client.table(
        "named", 8, optimizer=optim.Adam(lr=0.002, weight_decay=0.1), pooling="mean", clip_norm=2.0
    )
    found = client.table("named")
    assert (found.id, found.spec) == (made.id, made.spec)
    with pytest.raises(millrace.UnknownTable, match="no table 'nowhere'"):
        client.table("nowhere")
    with pytest.raises(LookupError, match="is a table"):
        client.variable("named")
    with pytest.raises(millrace.FeatureMismatch, match="named.*dim"):
        client.table("named", 9)


def test_variables(client):
    variable = client.variable("matrix", (2, 3), optimizer=optim.SGD(lr=0.5), initializer=init.constant(2.0))
    assert np.array_equal(variable.pull(), np.full((2, 3), 2.0))
    variable.push(np.arange(6).reshape(2, 3))
    assert np.array_equal(variable.pull(), np.arange(6).reshape(2, 3))
    assert np.array_equal(variable.pull(2, 3), [2, 3, 4])
    assert np.array_equal(variable.pull(4), [4, 5])
    variable.push([9, 9], first=1)
    variable.push_gradient(np.full((2, 3), 2.0))
    assert np.array_equal(variable.pull(), [[-1, 8, 8], [2, 3, 4]])
    bias = client.variable("bias", ())
    bias.push(3.5)
    assert bias.pull().shape == () and bias.pull() == 3.5
    assert client.variable("matrix").spec == variable.spec
    with pytest.raises(millrace.UnknownVariable, match="no variable 'nothing'"):
        client.variable("nothing")


def test_variables_in_ranges(client):
    wanted = {"optimizer": optim.Adagrad(lr=0.5), "initializer": init.normal(0, 1, seed=3)}
    spread = client.variable("in_ranges", (7, 9), range_values=8, **wanted)
    whole = client.variable("in_one", (7, 9), range_values=millrace.WHOLE, **wanted)
    for _ in range(3):
        assert np.array_equal(spread.pull(), whole.pull())
        assert np.array_equal(spread.pull(6, 30), whole.pull()[0:].reshape(-1)[6:36])
        for variable in (spread, whole):
            variable.push_gradient(np.arange(63).reshape(7, 9))
            variable.push(np.arange(20), first=5)
    assert client.variable("in_ranges").spec.range_values == 8
    large = client.variable("large", (300, 400))
    assert client.variable("large").spec.range_values == 65536
    large.push(np.arange(120000).reshape(300, 400))
    large.push_gradient(np.full((300, 400), 100.0))  # SGD, lr 0.01
    assert np.array_equal(large.pull(), (np.arange(120000) - 1).reshape(300, 400))
    with pytest.raises(millrace.InvalidArgument, match="range_values is 5.*need the whole variable"):
        client.variable("clipped", (7, 9), range_values=5, clip_norm=1.0)


def test_features_and_freeze(client):
    table = client.table("frozen", 2)
    table.lookup([1, 2, 3])
    info = next(info for info in client.features() if info.name == "frozen")
    assert (info.id, info.rows, info.is_table, info.spec) == (
        table.id,
        3,
        True,
        table.spec,
    ) and info.bytes > 0
    client.freeze("all")
    try:
        with pytest.raises(millrace.Frozen):
            table.push_gradients([1], [[1, 1]])
    finally:
        client.freeze("off")
    table.push_gradients([1], [[1, 1]])


def test_several_are_created_at_once(client):
    table, variable = client.create([millrace.TableSpec("one", 2), millrace.VariableSpec("other", 5)])
    assert (
        isinstance(table, millrace.Table)
        and isinstance(variable, millrace.Variable)
        and variable.shape == (5,)
    )


def test_rows_may_travel_in_fewer_bits(client):
    table = client.table("wire", 16, initializer=init.uniform(-1, 1, seed=3))
    exact = table.lookup(np.arange(100))
    for name, error in (("f16", 1e-3), ("bf16", 8e-3), ("i8", 1e-2)):
        rows = table.lookup(np.arange(100), wire_dtype=name)
        assert rows.dtype == np.float32 and 0 < np.abs(rows - exact).max() < error


def test_shapes_that_do_not_fit_are_refused(client):
    table, variable = client.table("shapes", 4), client.variable("shaped", (2, 2))
    for refused, says in (
        (lambda: table.push_gradients([1, 2], np.ones((2, 3))), r"shape \(2, 3\).*\[2, 4\]"),
        (lambda: table.push_gradients([1, 2], np.ones((4, 2))), r"shape \(4, 2\)"),
        (lambda: table.push_gradients([1], 1.0), r"shape \(\)"),
        (lambda: table.lookup_bags([1, 2], [0, 3]), "last offset is 3.*number of keys, 2"),
        (lambda: table.lookup_bags([1, 2], []), "offsets are empty"),
        (lambda: table.lookup_bags([1, 2], [[0, 2]]), "one row of numbers"),
        (lambda: table.lookup_bags([1, 2], [0, -1, 2]), "from -1 to 2"),
        (lambda: table.lookup_bags([1, 2], [0, 2**32, 2]), "from 0 to 4294967296"),
        (lambda: table.lookup_bags([1, 2], [0, 2, 1, 2]), "offsets"),
        (lambda: table.lookup_bags([1, 2], [0, 2], [1.0]), "weights is 1, for 2 keys"),
        (lambda: table.lookup_bags([1, 2], [0, 2], [1.0, float("nan")]), "finite"),
        (lambda: table.push_gradients_bags([1, 2], [0, 2], np.ones((2, 4))), "1 bag "),
        (lambda: variable.push([1, 2, 3]), r"\(2, 2\)"),
        (lambda: variable.push([]), "no values"),
        (lambda: variable.push_gradient([1, 2, 3, 4, 5]), r"\(2, 2\)"),
        (lambda: variable.pull(4), "count is 0"),
        (lambda: variable.pull(5), "count is -1"),
        (lambda: variable.pull(0, 5), ""),
        (lambda: table.lookup([1], deadline_s=0), "deadline_s is 0"),
        (lambda: table.lookup([1], priority=8), "priority is 8"),
        (lambda: table.lookup([1], wire_dtype="f64"), "wire_dtype is 'f64'"),
        (lambda: table.push_gradients([1], np.ones((1, 4)), learning_rate=-1.0), "learning_rate"),
        (lambda: client.freeze("thaw"), "level is 'thaw'"),
    ):
        with pytest.raises(ValueError, match=says):
            refused()
    for refused, says in (
        (lambda: table.lookup([1.5]), "whole numbers, not float64"),
        (lambda: table.lookup(["a"]), "whole numbers, not str.*slot_keys"),
        (lambda: table.lookup([1, 2**64]), "64 bits; 18446744073709551616 is not"),
        (lambda: table.lookup([1, None]), "64 bits; None is not"),
        (lambda: table.lookup(np.array([1, 2], object)), "astype"),
        (lambda: client.alter("shapes", capacity=3), "did you mean 'capacity_rows'"),
        (lambda: table.push_gradients([1], [["a"] * 4]), "numbers are needed"),
        (lambda: table.lookup([1], deadlines=3), "'deadlines' is no argument"),
        (lambda: client.table("shapes", pooling="sum"), "made with its dim"),
        (lambda: table.lookup([1], step=1.5), "step is 1.5"),
    ):
        with pytest.raises(TypeError, match=says):
            refused()
    assert table.lookup([1]).shape == (1, 4)  # nothing of all that was kept


def test_gradients_that_are_no_numbers_change_nothing(client):
    table = client.table("nan", 2, initializer=init.constant(1.0))
    table.lookup([1, 2])
    table.push_gradients([1, 2], [[float("nan"), 1], [1, 1]])
    np.testing.assert_allclose(table.lookup([1, 2]), [[1, 1], [0.99, 0.99]])


def test_rows_outlive_the_client(node):
    with millrace.Client(node.address) as client:
        rows = client.table("outlives", 64, initializer=init.constant(3.0)).lookup(np.arange(5000))
    assert client.closed and rows.flags.writeable
    assert np.array_equal(rows, np.full((5000, 64), 3.0))
