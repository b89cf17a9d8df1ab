"""Futures: results that stay, outputs that outlive their call, closing under them, and a server that goes
away."""
import contextlib
import gc
import threading
import time

import numpy as np
import pytest
from waits import wait_until

import millrace
from millrace import init, optim


def test_a_result_is_computed_once_and_kept(client):
    table = client.table("kept", 4, initializer=init.uniform(0, 1, seed=1))
    future = table.lookup_async([1, 2, 3])
    rows = future.result()
    assert future.result() is rows and future.wait() is rows and future.done()
    assert np.array_equal(rows, table.lookup([1, 2, 3]))


def test_many_are_under_way_and_may_be_taken_in_any_order(client):
    table = client.table("many", 8, initializer=init.uniform(0, 1, seed=2))
    futures = [table.lookup_async(np.arange(i, i + 10), more=i % 4 != 3) for i in range(300)]
    expected = table.lookup(np.arange(310))
    for i in reversed(range(300)):
        assert np.array_equal(futures[i].result(), expected[i : i + 10])


def test_inputs_may_be_reused_at_once(client):
    table = client.table("reused", 4, initializer=init.uniform(0, 1, seed=3))
    expected = table.lookup(np.arange(1000))
    keys = np.arange(1000, dtype=np.uint64)
    future = table.lookup_async(keys)
    keys[:] = 7
    assert np.array_equal(future.result(), expected)


def test_outputs_live_until_they_are_waited_for(client):
    """Ids, lists and flags are written when the future is waited for, long after the call was made."""
    makes = [
        client.create_async(
            [millrace.TableSpec(f"outputs_{i}", 4), millrace.VariableSpec(f"outputs_v{i}", 3)]
        )
        for i in range(20)
    ]
    gc.collect()
    np.ones(1 << 20)  # other memory takes the place of what was freed too early
    made = [future.result() for future in makes]
    assert len({feature.id for pair in made for feature in pair}) == 40
    listed = client.features_async()
    states = client.heartbeat_async()
    counters = [client.stats_async(core) for core in range(client.core_count)]
    gc.collect()
    assert {info.name for info in listed.result()} >= {f"outputs_{i}" for i in range(20)}
    assert [state.core for state in states.result()] == list(range(client.core_count))
    assert all("ps.step" in counter.result() for counter in counters)


def test_errors_come_with_the_result_and_again(client):
    table = client.table("wrong", 4)
    table.id = 4000
    future = table.lookup_async([1]) if client.core_count == 1 else None
    if future is None:  # with several cores the client asks what the table is, before it sends
        with pytest.raises(millrace.UnknownTable, match="4000"):
            table.lookup_async([1])
        return
    for _ in range(2):
        with pytest.raises(millrace.UnknownTable):
            future.result()


def test_one_that_is_dropped_goes_on(client):
    table = client.table("dropped", 1, optimizer=optim.SGD(lr=1.0))
    table.lookup([1])
    for _ in range(50):
        table.push_gradients_async([1], [[-1.0]])
    wait_until(lambda: table.lookup([1])[0, 0] == 50, "all pushes are applied")


def test_one_from_several_threads(client):
    table = client.table("shared", 4, initializer=init.uniform(0, 1, seed=4))
    expected = table.lookup(np.arange(500))
    for _ in range(20):
        future = table.lookup_async(np.arange(500))
        seen: list = []
        threads = [threading.Thread(target=lambda: seen.append(future.result())) for _ in range(4)]
        for thread in threads:
            thread.start()
        while not future.done():
            pass
        for thread in threads:
            thread.join()
        assert (
            len(seen) == 4
            and all(rows is future.result() for rows in seen)
            and np.array_equal(seen[0], expected)
        )


def test_a_wait_has_a_limit_of_its_own(new_node):
    node = new_node()
    with millrace.Client(node.address, deadline_s=60.0) as client:
        table = client.table("t", 4)
        client.wait_for_save(client.save())
        node.kill()
        future = table.lookup_async([1])
        assert not future.done()
        with pytest.raises(TimeoutError, match="still in flight"):
            future.result(timeout_s=0.05)
        with pytest.raises(TimeoutError):
            future.result(timeout_s=0)
        node.restart()
        assert future.result().shape == (1, 4)


def test_a_call_ends_by_its_deadline(new_node):
    node = new_node()
    with millrace.Client(node.address, deadline_s=60.0) as client:
        table = client.table("t", 4)
        node.kill()
        future = table.lookup_async([1], deadline_s=0.3)
        started = time.monotonic()
        with pytest.raises((millrace.DeadlineExceeded, millrace.Unreachable), match=node.address):
            table.lookup([1], deadline_s=0.3)
        assert time.monotonic() - started >= 0.3
        with pytest.raises(millrace.Error):
            future.result()


def test_closing_under_futures(node):
    client = millrace.Client(node.address)
    table = client.table("closing", 4)
    waiting, taken = table.lookup_async([1]), table.lookup_async([2])
    rows = taken.result()
    client.close()
    client.close()
    assert client.closed and waiting.done() and np.array_equal(taken.result(), rows)
    for refused in (
        waiting.result,
        lambda: table.lookup([1]),
        lambda: table.lookup_async([1]),
        client.features,
        client.fileno,
        lambda: client.core_count,
        client.progress,
        client.replay_info,
        client.__enter__().features,
    ):
        with pytest.raises(millrace.ClientClosed, match=f"{node.address} is closed"):
            refused()
    assert "closed" in repr(client)


def test_closing_while_others_wait(new_node):
    """Threads in the midst of calls get an error, soon, and never crash."""
    node = new_node()
    client = millrace.Client(node.address, deadline_s=60.0)
    table = client.table("t", 4)
    node.kill()
    future, errors = table.lookup_async([0]), []

    def call(i):
        try:
            future.result() if i % 2 else table.lookup([i])
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=call, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(client._inside) > 0, "a thread is in the library")
    client.close()
    for thread in threads:
        thread.join()
    assert len(errors) == 8 and all(isinstance(error, millrace.ClientClosed) for error in errors)


def test_futures_keep_a_client_that_nobody_else_has(node):
    future = millrace.Client(node.address).table("last", 4).lookup_async([1, 2])
    gc.collect()
    assert future.result().shape == (2, 4)


def test_answers_that_came_while_the_program_was_elsewhere_count(node, client):
    """Nobody is in the library for longer than the deadline, and than a server may be silent."""
    deadline_s, tables, futures = 5.0, {}, {}
    with contextlib.ExitStack() as clients:
        for use in ("result", "done", "lookup"):
            client.table(f"elsewhere_{use}", 4, optimizer=optim.SGD(lr=1)).lookup([1])
            other = clients.enter_context(millrace.Client(node.address, deadline_s=60.0))
            tables[use] = other.table(f"elsewhere_{use}")
            futures[use] = tables[use].push_gradients_async([1], np.ones((1, 4)), deadline_s=deadline_s)
        for use in tables:
            wait_until(
                lambda: client.table(f"elsewhere_{use}").lookup([1])[0, 0] == -1, "the push is applied"
            )
        time.sleep(deadline_s + 0.5)
        futures["done"].done()
        assert tables["lookup"].lookup([1])[0, 0] == -1
        for future in futures.values():
            future.result()
