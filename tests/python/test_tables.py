"""Several tables in one call, beside a call for each."""
import numpy as np
import pytest

import millrace

DIMS = (4, 6)


@pytest.fixture
def tables(client, name):
    pools = ("sum", "mean")
    return [
        client.table(f"{name[-50:]}.{pool}", dim, pooling=pool, optimizer=millrace.optim.SGD(lr=1.0))
        for pool, dim in zip(pools, DIMS)
    ]


KEYS, OFFSETS = np.arange(9) % 5, np.array([0, 3, 3, 9])
WEIGHTS = np.linspace(-1, 2, 9)


def test_a_lookup_of_tables_is_that_of_each(client, tables):
    a, b = tables
    asked = [
        (a, KEYS),
        (b, KEYS, OFFSETS),
        (a, KEYS, OFFSETS, WEIGHTS),
        (b, KEYS.reshape(3, 3), None, None),
        (a, []),
    ]
    alone = [
        a.lookup(KEYS),
        b.lookup_bags(KEYS, OFFSETS),
        a.lookup_bags(KEYS, OFFSETS, WEIGHTS),
        b.lookup(KEYS.reshape(3, 3)),
        a.lookup([]),
    ]
    for together in (client.lookup_tables(asked), client.lookup_tables_async(asked).result()):
        assert len(together) == len(alone)
        for mine, theirs in zip(together, alone):
            assert mine.shape == theirs.shape and mine.dtype == np.float32
            assert np.array_equal(mine, theirs)
    assert client.lookup_tables([(a, KEYS)], wire_dtype="bf16")[0].shape == (9, DIMS[0])
    assert [one.shape for one in client.lookup_tables([(a, []), (b, [], [0, 0])])] == [(0, 4), (1, 6)]
    assert client.lookup_tables([(a, [])])[0].shape == (0, 4)


def test_an_answer_s_memory_lives_as_long_as_any_of_it(client, tables):
    a, b = tables
    kept = client.lookup_tables([(a, KEYS), (b, KEYS)])[1]
    expected = b.lookup(KEYS)
    others = [client.lookup_tables([(a, KEYS), (b, KEYS)]) for _ in range(20)]
    for one in others:
        one[0][:] = one[1][:] = 7
    assert np.array_equal(kept, expected)


def test_a_push_to_tables_is_that_to_each(client, tables):
    a, b = tables
    before = client.lookup_tables([(a, KEYS), (b, KEYS)])
    pushed = millrace.Pushed()
    client.push_gradients_tables(
        [(a, KEYS, np.ones((9, DIMS[0]))), (b, KEYS, OFFSETS, np.ones((3, DIMS[1])), WEIGHTS)], pushed=pushed
    )
    assert pushed.applied == 10
    rows, pooled = client.lookup_tables([(a, KEYS), (b, KEYS)])
    times = np.bincount(KEYS)[KEYS]
    assert np.allclose(rows, before[0] - times[:, None])
    over = np.add.reduceat(WEIGHTS, OFFSETS[[0, 2]])
    each = WEIGHTS / np.repeat(over, (3, 6))
    assert np.allclose(pooled, before[1] - np.bincount(KEYS, each)[KEYS][:, None], atol=1e-5)
    client.push_gradients_tables_async([(a, KEYS, None, np.zeros((9, DIMS[0])))]).result()


def test_what_tensors_come_as(client, tables):
    torch = pytest.importorskip("torch")
    keys = torch.tensor([1, 2])
    rows, same = client.lookup_tables([(tables[0], keys), (tables[0], keys.numpy())])
    assert isinstance(rows, torch.Tensor) and isinstance(same, np.ndarray)
    assert np.array_equal(rows.numpy(), same)


def test_refusals(client, tables):
    a, b = tables
    with pytest.raises(ValueError, match="weights without offsets"):
        client.lookup_tables([(a, KEYS, None, WEIGHTS)])
    with pytest.raises(ValueError, match="the last offset is 3"):
        client.lookup_tables([(a, KEYS, [0, 3])])
    with pytest.raises(ValueError, match=r"\(2, 4\); for 9 keys of .* they are \[9, 4\]"):
        client.push_gradients_tables([(a, KEYS, np.ones((2, 4)))])
    with pytest.raises(ValueError, match=r"\(\); for 1 key of .* they are \[1, 1\]"):
        narrow = client.table(a.name + ".narrow", dim=1)
        client.push_gradients_tables([(narrow, [1], np.float32(1))])
    with pytest.raises(millrace.InvalidArgument, match="a push has each once"):
        client.push_gradients_tables([(a, [1], np.ones((1, 4))), (a, [2], np.ones((1, 4)))])
    with pytest.raises(millrace.InvalidArgument, match="table_count is 0"):
        client.lookup_tables([])
