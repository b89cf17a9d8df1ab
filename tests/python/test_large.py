"""Calls that are larger than a message: the library divides them, and nobody notices."""
import asyncio
import os
import signal
import threading

import numpy as np
import pytest
from waits import wait_until

import millrace
from millrace import init, optim

NODE_SETTINGS = ("transport.message_mib_max=1",)
KEYS, DISTINCT, BAGS, DIM = 20000, 3000, 2500, 5
OPTIMIZERS = {"adagrad": optim.Adagrad(lr=0.5), "adam": optim.Adam(lr=0.1)}


@pytest.fixture(scope="module")
def little(node):
    """A client that has memory for messages of 224 KiB, and divides what `client` sends as it is."""
    with millrace.Client(node.address, deadline_s=60, connect_s=60, memory_bytes=1 << 20) as client:
        yield client


def drawn(dim=DIM):
    """Keys that come several times, in bags some of which are empty, with weights and gradients."""
    rng = np.random.default_rng(7)
    keys = rng.integers(0, DISTINCT, KEYS)
    offsets = np.concatenate([[0], np.sort(rng.integers(0, KEYS + 1, BAGS)), [KEYS]])
    weights = rng.random(KEYS, np.float32) + 0.5
    return keys, offsets, weights, rng.standard_normal((KEYS, dim), np.float32)


@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
@pytest.mark.parametrize("pooling", ["sum", "mean", "sqrtn"])
def test_calls_in_parts_do_what_one_does(client, little, name, pooling, optimizer):
    """Bit by bit, with all that can be counted."""
    keys, offsets, weights, gradients = drawn()
    gradients[keys == 3][1:] = np.nan
    bags = gradients[: len(offsets) - 1]
    results = []
    for caller in (client, little):
        table = caller.table(f"{name[-40:]}_{len(results)}", DIM, optimizer=optimizer, pooling=pooling)
        pushed, found = millrace.Pushed(), []
        found.append(table.lookup(keys.reshape(200, 100)))
        table.push_gradients(keys, gradients, pushed=pushed)
        found.append([pushed.sent, pushed.applied, pushed.not_finite, pushed.is_known])
        found.append(table.lookup_bags(keys, offsets, weights))
        table.push_gradients_bags(keys, offsets, bags, weights)
        table.push_gradients_bags(np.arange(KEYS), offsets, bags)  # each key once
        table.push_gradients_bags_async(keys, offsets, bags, wire_dtype="f16").result()
        found.append(table.lookup_bags_async(keys, offsets, wire_dtype="bf16").result())
        found.append(table.lookup(np.arange(DISTINCT), read_only=True))
        state = table.rows(np.arange(DISTINCT), state=True)
        found.extend([state.values, *state.state.values()])
        results.append(found)
    for one, other in zip(*results):
        assert np.array_equal(one, other)


def test_tables_in_parts(client, little, name):
    keys, offsets, weights, gradients = drawn(DIM + 2)
    results = []
    for caller in (client, little):
        tables = [
            caller.table(f"{name}_{len(results)}_{i}", DIM + i, optimizer=optim.SGD(lr=1.0)) for i in range(3)
        ]
        asked, pushes = [], []
        for i, table in enumerate(tables):
            given = np.ascontiguousarray(gradients[:, : table.dim])
            if i == 1:
                asked.append((table, keys[:20].reshape(4, 5)))
                pushes.append((table, keys[:20], given[:20]))
            else:
                asked.append((table, keys, offsets, weights))
                pushes.append((table, keys, offsets, given[: len(offsets) - 1], weights))
        caller.lookup_tables(asked)
        caller.push_gradients_tables(pushes)
        results.append(caller.lookup_tables(asked))
    for one, other in zip(*results):
        assert other.any() and np.array_equal(one, other)


def test_rows_are_set_in_parts(little, name):
    """The last row of a key counts."""
    table = little.table(name, DIM, optimizer=optim.Adagrad(lr=1.0))
    keys, _, _, rows = drawn()
    table.set_rows_async(keys, rows).result()
    last = dict(zip(keys.tolist(), rows))
    stored = table.rows_async(np.arange(DISTINCT)).result()
    for key in range(DISTINCT):
        assert stored.is_stored[key] == (key in last)
        assert key not in last or np.array_equal(stored.values[key], last[key])


def test_more_than_a_message_carries(client, name):
    """24 MiB to a node that takes messages of 1 MiB."""
    table = client.table(name, 1024, initializer=init.constant(0.5), optimizer=optim.SGD(lr=1.0))
    keys = np.arange(6000) * 7
    assert (table.lookup(keys) == 0.5).all()
    client.push_gradients_tables([(table, keys, np.full((6000, 1024), 0.25, np.float32))])
    assert (table.lookup_bags(keys, np.arange(6001)) == 0.25).all()
    with pytest.raises(millrace.TooLarge, match="message_mib_max"):
        table.push_gradients(np.zeros(300, int), np.ones((300, 1024)))


def test_futures_of_calls_in_parts(little, name):
    table = little.table(name, 4, initializer=init.uniform(-1, 1), optimizer=optim.SGD(lr=1.0))
    keys = np.arange(KEYS)
    rows = table.lookup(keys)

    async def future_of(future):
        return await future

    async def three():
        future = table.lookup_async(keys)
        return await asyncio.gather(future_of(future), future_of(future), future_of(table.lookup_async(keys)))

    for found in asyncio.run(three()):
        assert np.array_equal(found, rows)
    future = table.lookup_async(keys)
    assert np.array_equal(future.result(30), rows) and future.done() and np.array_equal(future.wait(), rows)
    little.freeze("all")
    try:
        with pytest.raises(millrace.Frozen):
            table.push_gradients(keys, np.ones((KEYS, 4)))
        pushed = table.push_gradients_async(keys, np.ones((KEYS, 4)))
        for _ in range(2):
            with pytest.raises(millrace.Frozen):
                pushed.result()
        with pytest.raises(millrace.Frozen):
            asyncio.run(future_of(table.push_gradients_async(keys, np.ones((KEYS, 4)))))
    finally:
        little.freeze("off")
    with pytest.raises(millrace.InvalidArgument, match="offsets"):
        table.lookup_bags(keys, [0, 200, 100, KEYS])
    assert np.array_equal(table.lookup(keys), rows)


def interrupt_a_call():
    """Sends SIGINT once the library is making a call that takes long."""
    wait_until(
        lambda: any(thread.name == "millrace-call" for thread in threading.enumerate()), "a call is made"
    )
    os.kill(os.getpid(), signal.SIGINT)


def test_an_interrupted_push_goes_on(new_node):
    """Ctrl-C ends the wait, not the push: no part of it is missing afterwards."""
    node = new_node(settings=NODE_SETTINGS)
    with millrace.Client(node.address, deadline_s=60, connect_s=60, replay=True) as client:
        table = client.table("t", 16, optimizer=optim.SGD(lr=1.0))
        keys, gradients = np.arange(1 << 17), np.full((1 << 17, 16), -1.0, np.float32)  # 9 MiB
        table.lookup(keys)
        client.wait_for_save(client.save())
        node.kill()
        thread = threading.Thread(target=interrupt_a_call)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            table.push_gradients(keys, gradients)
        thread.join()
        node.restart()
        wait_until(lambda: (table.lookup(keys) == 1).all(), "all parts of the push are applied")


@pytest.mark.parametrize("settings", [(), ("fault.direction=both", "fault.loss_ppm=10000")], ids=["", "loss"])
def test_a_node_that_is_killed_in_the_middle(new_node, settings):
    """Nothing is lost, and nothing comes twice: the node goes back to its checkpoint, and gets all parts."""
    node = new_node(2, NODE_SETTINGS + settings)
    with millrace.Client(node.address, deadline_s=120, connect_s=60, replay=True) as client:
        table = client.table("t", 16, optimizer=optim.SGD(lr=1.0))
        keys = np.arange(1 << 17)  # 9 MiB
        table.lookup(keys)
        client.wait_for_save(client.save())
        pushed = []
        thread = threading.Thread(
            target=lambda: pushed.append(table.push_gradients(keys, np.full((len(keys), 16), -1.0)))
        )
        with millrace.Client(node.address, deadline_s=120, connect_s=60) as other:
            rows = other.table("t")
            thread.start()
            while not rows.lookup(keys, read_only=True).any():
                pass
        node.kill()
        node.restart()
        thread.join()
        assert pushed == [None]
        assert (table.lookup(keys) == 1).all()
