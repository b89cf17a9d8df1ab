"""Futures in coroutines: the loop is never blocked, and hears of calls whoever completes them."""
import asyncio
import threading
import time

import numpy as np
import pytest

import millrace
from millrace import init


@pytest.fixture(scope="module", params=[False, True], ids=["loop", "progress_thread"])
def client(node, request):
    with millrace.Client(node.address, deadline_s=60.0, progress_thread=request.param) as client:
        yield client


@pytest.fixture(scope="module")
def table(client):
    return client.table("rows", 8, initializer=init.uniform(-1, 1, seed=1))


def test_one_after_the_other(table):
    async def main():
        return [await table.lookup_async([i]) for i in range(200)]

    assert np.array_equal(np.concatenate(asyncio.run(main())), table.lookup(np.arange(200)))


def test_hundreds_at_once_and_loops_one_after_another(table):
    async def look(i):
        return await table.lookup_async(np.arange(i, i + 50))

    async def main():
        return await asyncio.gather(
            *(look(i) for i in range(500)), *(table.lookup_async([i]) for i in range(100))
        )

    expected = table.lookup(np.arange(600))
    for _ in range(3):
        results = asyncio.run(main())
        assert all(np.array_equal(results[i], expected[i : i + 50]) for i in range(500))
        assert all(np.array_equal(results[500 + i], expected[i : i + 1]) for i in range(100))


def test_the_loop_goes_on_meanwhile(new_node):
    """Calls that nobody answers: other coroutines run until they end by their deadlines."""
    node = new_node()
    with millrace.Client(node.address, deadline_s=60.0) as client:
        table = client.table("t", 4)
        node.kill()

        async def main():
            long = asyncio.ensure_future(take(table.lookup_async([1], deadline_s=600.0)))
            short = asyncio.ensure_future(take(table.lookup_async([1], deadline_s=0.5)))
            for _ in range(100):
                await asyncio.sleep(0)
            with pytest.raises(millrace.Error):
                await short
            assert not long.done()
            long.cancel()

        async def take(future):
            return await future

        asyncio.run(main())


def test_a_server_that_comes_back(new_node):
    node = new_node()
    with millrace.Client(node.address, deadline_s=60.0) as client:
        table = client.table("t", 4, initializer=init.constant(2.0))
        client.wait_for_save(client.save())

        async def main():
            node.kill()
            calls = [
                asyncio.ensure_future(asyncio.wait_for(take(table.lookup_async([i])), 60)) for i in range(10)
            ]
            await asyncio.sleep(0)
            node.launch()
            return await asyncio.gather(*calls)

        async def take(future):
            return await future

        assert np.array_equal(np.concatenate(asyncio.run(main())), np.full((10, 4), 2.0))


def test_a_coroutine_that_is_cancelled_leaves_the_others_alone(new_node):
    node = new_node()
    with millrace.Client(node.address, deadline_s=60.0) as client:
        table = client.table("t", 4)
        client.wait_for_save(client.save())

        async def main():
            node.kill()
            waiting = table.lookup_async([1])
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(take(waiting), 0.05)
            node.launch()
            return await waiting

        async def take(future):
            return await future

        assert asyncio.run(main()).shape == (1, 4)


def test_beside_threads_that_call(client, table):
    """Threads drive the client, too: a loop hears of its own calls all the same, and several loops do not
    disturb each other."""
    expected = table.lookup(np.arange(400))
    failures: list = []
    stop = threading.Event()

    def call():
        while not stop.is_set():
            if not np.array_equal(table.lookup(np.arange(100, 164)), expected[100:164]):
                failures.append("rows differ")

    async def main():
        for i in range(100):
            rows = await asyncio.gather(*(table.lookup_async(np.arange(i + j, i + j + 20)) for j in range(5)))
            assert all(np.array_equal(rows[j], expected[i + j : i + j + 20]) for j in range(5))

    def run_loop():
        try:
            asyncio.run(main())
        except BaseException as error:
            failures.append(error)

    callers = [threading.Thread(target=call) for _ in range(2)]
    loops = [threading.Thread(target=run_loop) for _ in range(3)]
    for thread in callers + loops:
        thread.start()
    for thread in loops:
        thread.join()
    stop.set()
    for thread in callers:
        thread.join()
    assert not failures


def test_one_future_in_two_loops_and_a_thread(table):
    expected = table.lookup(np.arange(300))
    for _ in range(10):
        future, seen = table.lookup_async(np.arange(300)), []

        async def take():
            seen.append(await future)

        threads = [threading.Thread(target=lambda: asyncio.run(take())) for _ in range(2)]
        threads.append(threading.Thread(target=lambda: seen.append(future.result())))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(seen) == 3 and all(np.array_equal(rows, expected) for rows in seen)


def test_closing_wakes_a_coroutine(new_node):
    node = new_node()
    client = millrace.Client(node.address, deadline_s=60.0)
    table = client.table("t", 4)
    node.kill()

    async def main(closer):
        loop = asyncio.get_running_loop()
        waiting = asyncio.ensure_future(take(table.lookup_async([1])))
        await asyncio.sleep(0)
        await closer(loop)
        with pytest.raises(millrace.ClientClosed):
            await waiting

    async def take(future):
        return await future

    async def from_a_thread(loop):
        await loop.run_in_executor(None, client.close)

    started = time.monotonic()
    asyncio.run(main(from_a_thread))
    assert time.monotonic() - started < 30  # of a deadline of 60


def test_errors_are_raised_where_it_is_awaited(client):
    async def main():
        with pytest.raises(millrace.FeatureMismatch):
            await client.create_async([millrace.TableSpec("rows", 9)])
        return await client.features_async()

    assert any(info.name == "rows" for info in asyncio.run(main()))


def test_the_client_s_own_descriptor_serves_any_loop(node):
    """What other event loops need: descriptor, time, progress."""
    import select

    with millrace.Client(node.address, deadline_s=60.0) as client:
        table = client.table("select", 4)
        future = table.lookup_async([1, 2])
        while not future.done():
            timeout_s = client.timeout_s()
            select.select([client.fileno()], [], [], 1.0 if timeout_s is None else timeout_s)
            client.progress()
        assert future.result().shape == (2, 4)
