"""The Python package over a cluster, by a list of some of its nodes: python_client.py SERVERS NODES."""
import sys
import time
from pathlib import Path

import numpy as np

import millrace
from millrace import init, optim

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))
from waits import wait_until  # noqa: E402


def tables(client: millrace.Client, cores: int) -> None:
    """Rows on every core, pushed to and looked up, one by one and by bags."""
    keys = np.arange(1000)
    before = [state.rows for state in client.heartbeat()]
    table = client.table("python", 4, optimizer=optim.SGD(lr=1.0))
    table.lookup(keys)
    table.push_gradients(keys, np.repeat(keys, 4).reshape(1000, 4))
    assert np.array_equal(table.lookup(keys)[:, 2], -keys.astype(np.float32))
    bags = table.lookup_bags(keys, np.arange(0, 1001, 10))
    assert np.array_equal(bags[:, 0], -keys.reshape(100, 10).sum(1).astype(np.float32))
    now = [state.rows for state in client.heartbeat()]
    assert len(now) == cores and all(b > a for a, b in zip(before, now))
    assert next(info for info in client.features() if info.name == "python").rows == 1000


def stored_rows(client: millrace.Client) -> None:
    """Set and read with their state, each on the node that owns it; some while all of a node's partitions
    go."""
    table = client.table("python/set", 4, optimizer=optim.Adam())
    keys = np.arange(1000)
    values = np.arange(4000, dtype=np.float32).reshape(1000, 4)
    pushed = table.set_rows(keys, values, {"m": -values, "v": values, "step": 3})
    assert pushed.applied == pushed.sent == 1000
    rows = table.rows(np.arange(1100), state=True)
    assert rows.state is not None and rows.is_stored.tolist() == [True] * 1000 + [False] * 100
    assert np.array_equal(rows.values[:1000], values) and np.array_equal(rows.state["m"][:1000], -values)
    assert (rows.state["step"] == np.where(rows.is_stored, 3, 0)).all()


def variables(client: millrace.Client) -> None:
    """In ranges and whole, the same."""
    wanted = {"optimizer": optim.Adagrad(lr=0.5), "initializer": init.normal(0, 1, seed=3)}
    spread = client.variable("python/in-ranges", (50, 9), range_values=16, **wanted)
    whole = client.variable("python/in-one", (50, 9), range_values=millrace.WHOLE, **wanted)
    for step in range(3):
        assert np.array_equal(spread.pull(), whole.pull())
        for variable in (spread, whole):
            variable.push_gradient_async(np.full((50, 9), step + 0.5)).result()
            variable.push(np.arange(200), first=7)
    assert np.array_equal(spread.pull_async(5, 300).result(), whole.pull(5, 300))


def batches(client: millrace.Client) -> None:
    """Fed, looked up and pushed, on all nodes as one."""
    table = client.table("python/fed", 2, optimizer=optim.SGD(lr=1.0))
    bias = client.variable("python/bias", 40, optimizer=optim.SGD(lr=1.0), range_values=8)
    keys, offsets = np.arange(60), np.arange(61)
    client.feed(7, [(table, keys, offsets)], samples=60)
    rows = client.lookup_batch(7, table)
    assert rows.shape == (60, 1, 2)
    assert client.push_gradients_batch(7, [(table, np.ones((60, 1, 2))), (bias, np.ones(40))])
    assert np.array_equal(table.lookup(keys), np.full((60, 2), -1.0))
    assert np.array_equal(bias.pull(), np.full(40, -1.0))


def nodes(client: millrace.Client, node_count: int) -> None:
    """What there is on each of them."""
    cluster = client.cluster()
    assert len(cluster.nodes) == node_count
    for core in range(client.core_count):
        assert client.stats(core)["ps.features"] > 0
        assert client.memory(core).limit_bytes > 0
    client.alter("python", optimizer=optim.SGD(lr=0.5))
    client.freeze("off")


def moves(client: millrace.Client) -> None:
    """All of a node's partitions go, and come back; the rows stay what they are."""
    table = client.table("python/moved", 2, optimizer=optim.SGD(lr=1.0))
    keys = np.arange(500)
    table.lookup(keys)
    table.push_gradients(keys, np.ones((500, 2)))
    names = [node.name for node in client.cluster().nodes]

    def owned() -> list[int]:
        return [node.partitions for node in client.cluster().nodes]

    turn = 0
    with millrace.Client(sys.argv[1], deadline_s=60, connect_s=60, replay=True) as setter:
        placed = setter.table("python/set")
        client.drain(names[2])
        while turn == 0 or owned()[2] > 0:
            assert client.moves().drained == 1
            turn += 1
            placed.set_rows(np.arange(1000), np.full((1000, 4), turn))
            time.sleep(0.05)
    assert np.array_equal(table.lookup(keys), np.full((500, 2), -1.0))
    rows = client.table("python/set").rows(np.arange(1000), state=True)
    assert rows.state is not None and (rows.values == turn).all() and not rows.state["step"].any()
    client.rebalance(mib_s=100)
    wait_until(
        lambda: owned()[2] > 0 and not client.moves().moves and not client.moves().balances,
        "the partitions are spread again",
    )
    assert max(owned()) - min(owned()) <= 1
    client.cancel_moves()
    try:
        client.forget_node(names[2])
    except millrace.InvalidArgument as refused:
        assert f"node {names[2]} is there" in str(refused)
    else:
        raise AssertionError("a node that is there was forgotten")
    try:
        client.move(names[0], "nobody", 1)
    except millrace.InvalidArgument as refused:
        assert "nobody" in str(refused)
    else:
        raise AssertionError("a move to nobody was taken")


def main() -> None:
    servers, node_count = sys.argv[1], int(sys.argv[2])
    with millrace.Client(servers, deadline_s=60, connect_s=60) as client:
        tables(client, client.core_count)
        stored_rows(client)
        variables(client)
        batches(client)
        nodes(client, node_count)
        moves(client)


main()
