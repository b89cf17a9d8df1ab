"""Batches that are fed, looked up and applied exactly once."""
import numpy as np
import pytest

import millrace
from millrace import init, optim

STREAM = 9


@pytest.fixture(scope="module")
def table(client):
    return client.table(
        "batches", 4, optimizer=optim.SGD(lr=1.0), pooling="sum", initializer=init.uniform(0, 1, seed=1)
    )


def batch_id(number):
    return STREAM << 48 | number


def test_a_batch_is_looked_up_and_applied_once(client, table):
    bias = client.variable("batch_bias", 4, optimizer=optim.SGD(lr=1.0))
    keys, offsets = np.arange(6), [0, 2, 3, 3, 6]  # two samples of two slots
    expected = table.lookup_bags(keys, offsets)
    client.feed(batch_id(0), [(table, keys, offsets)], 2)
    bags = client.lookup_batch(batch_id(0), table)
    assert bags.shape == (2, 2, 4)
    np.testing.assert_allclose(bags.reshape(4, 4), expected, rtol=1e-6)
    before = table.lookup([0])
    gradients = [(table, np.ones((2, 2, 4))), (bias, np.full(4, -2.0))]
    assert client.push_gradients_batch(batch_id(0), gradients) is True
    assert client.push_gradients_batch(batch_id(0), gradients) is False
    np.testing.assert_allclose(table.lookup([0]), before - 1, rtol=1e-5)
    assert np.array_equal(bias.pull(), np.full(4, 2.0))
    state = client.batch_state(STREAM)
    assert 0 in state and 1 not in state and 10**6 not in state


def test_weights_and_futures(client, table):
    futures = [
        client.feed_async(batch_id(10 + i), [(table, [i, i + 1], [0, 2], [2.0, 3.0])], 1) for i in range(3)
    ]
    for future in futures:
        assert future.result() is None
    for i in range(3):
        rows = table.lookup([i, i + 1])
        bags = client.lookup_batch_async(batch_id(10 + i), table).result()
        np.testing.assert_allclose(bags[0], 2 * rows[:1] + 3 * rows[1:], rtol=1e-5)
        assert (
            client.push_gradients_batch_async(batch_id(10 + i), [(table, np.zeros((1, 1, 4)))]).result()
            is True
        )
    assert 12 in client.batch_state_async(STREAM).result()


def test_read_only_and_forgotten(client, table):
    client.feed(batch_id(20), [(table, [123456], [0, 1])], 1, read_only=True)
    client.lookup_batch(batch_id(20), table)
    client.feed(batch_id(21), [(table, [1], [0, 1])], 1)
    client.forget_batches([batch_id(21)])
    client.forget_batches_async([batch_id(21)]).result()
    for number in (20, 21, 22):
        with pytest.raises(millrace.UnknownBatch):
            client.lookup_batch(batch_id(number), table)


def test_what_does_not_fit_is_refused(client, table):
    for refused, says in (
        (
            lambda: client.feed(batch_id(30), [(table, [1, 2, 3], [0, 1, 2, 3])], 2),
            "3 bags of 'batches' for 2 samples",
        ),
        (lambda: client.feed(batch_id(30), [(table, [1], [0, 1])], 0), "for 0 samples"),
        (lambda: client.feed(-1, [(table, [1], [0, 1])], 1), "batch_id is -1"),
        (lambda: client.feed(batch_id(30), [(table, [1], [0, 1], [1.0, 2.0])], 1), "weights is 2, for 1 key"),
        (
            lambda: client.push_gradients_batch(batch_id(30), [(table, np.zeros((1, 1, 1, 1, 1)))]),
            "up to 4 dimensions",
        ),
    ):
        with pytest.raises(ValueError, match=says):
            refused()
    with pytest.raises(TypeError, match="whole number"):
        client.lookup_batch("5", table)
    client.feed(batch_id(31), [(table, [1, 2], [0, 1, 2])], 1)
    with pytest.raises(ValueError):
        client.push_gradients_batch(batch_id(31), [(table, np.zeros((1, 2, 5)))])
    client.forget_batches([batch_id(31)])


def test_streams_are_listed_and_forgotten(client, table):
    def listed():
        return {stream.stream: stream for stream in client.streams()}

    first, other = 40 << 48, 41 << 48
    for number in (first, first + 1, other):
        client.feed(number, [(table, [1, 2], [0, 1, 2])], 2)
        client.lookup_batch(number, table)
        assert client.push_gradients_batch(number, [(table, np.ones((2, 1, 4)))]) is True
    found = listed()
    assert (found[40].applied, found[40].plan, found[40].differs, found[40].twice) == (2, "", False, 0)
    assert found[41].applied == 1 and found[40].used < found[41].used
    client.forget_streams([40])
    assert 40 not in listed() and client.streams_async().result()[-1].stream == 41
    client.feed(other + 1, [(table, [1, 2], [0, 1, 2])], 2)
    with pytest.raises(millrace.AlreadyStarted, match="stream 41 is in use"):
        client.forget_streams([41])
    client.forget_batches([other + 1])
    client.forget_streams_async([41]).result()
    assert 41 not in listed()
    with pytest.raises(ValueError, match="stream is 65536"):
        client.forget_streams([1 << 16])
