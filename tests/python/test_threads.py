"""Eight threads over one client, and clients that are used as they must not be."""
import gc
import random
import threading

import numpy as np
import pytest

import millrace
from millrace import init, optim

THREADS, ROUNDS = 8, 60
# Of clients that are made one after another: meson's MALLOC_PERTURB_ has each fill its memory, 256 MiB per
# core by default.
SMALL = {"deadline_s": 60.0, "connect_s": 60.0, "memory_bytes": 16 << 20}
torch = pytest.importorskip("torch")


def in_threads(work):
    """Runs work(i) in threads; raises what one of them raised."""
    failures = []

    def run(i):
        try:
            work(i)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


@pytest.mark.parametrize("progress_thread", [False, True], ids=["waiting_threads_drive", "progress_thread"])
def test_calls_of_all_kinds_at_once(node, progress_thread):
    with millrace.Client(node.address, deadline_s=60.0, progress_thread=progress_thread) as client:
        table = client.table("threads", 8, initializer=init.uniform(0, 1, seed=1))
        counts = client.table(f"counts_{progress_thread}", 1, optimizer=optim.SGD(lr=1.0))
        expected = table.lookup(np.arange(2000))
        counts.lookup([5])

        def work(i):
            dice = random.Random(i)
            held = []
            for _ in range(ROUNDS):
                first, many = dice.randrange(1000), dice.choice([1, 7, 64, 1000])
                keys = np.arange(first, first + many)
                if dice.random() < 0.5:
                    rows = table.lookup(torch.from_numpy(keys)).numpy()
                else:
                    rows = table.lookup_async(keys).result()
                assert np.array_equal(rows, expected[first : first + many])
                bags = table.lookup_bags(keys, [0, many], priority=dice.randrange(8))
                np.testing.assert_allclose(bags[0], expected[first : first + many].sum(0), rtol=1e-3)
                counts.push_gradients([5], [[-1.0]])
                held.append((table.lookup_async(keys), rows[:1]))
                if dice.random() < 0.3:
                    held.clear()
                with pytest.raises(ValueError):
                    table.push_gradients(keys, np.ones((many, 3)))
            gc.collect()

        in_threads(work)
        assert counts.lookup([5])[0, 0] == THREADS * ROUNDS


def test_clients_are_made_and_closed_at_once(node):
    def work(i):
        for _ in range(5):
            client = millrace.Client(node.address, **SMALL)
            table = client.table("made", 4)
            futures = [table.lookup_async([j]) for j in range(10)]
            if i % 2:
                client.close()
                with pytest.raises(millrace.ClientClosed):
                    futures[0].result()
            else:
                assert futures[9].result().shape == (1, 4)

    in_threads(work)


def test_one_is_closed_under_all_the_others(node):
    for _ in range(10):
        client = millrace.Client(node.address, **SMALL)
        table = client.table("closed", 4)
        ready = threading.Barrier(THREADS)

        def work(i):
            ready.wait()
            if i == 0:
                client.close()
            try:
                for _ in range(1000):
                    table.lookup_async([i]).result() if i % 2 else table.lookup([i])
            except millrace.ClientClosed:
                return
            raise AssertionError("it was not closed")

        in_threads(work)
