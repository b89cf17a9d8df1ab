"""What a node says of itself, and echo."""
import os

import numpy as np
import pytest

import millrace

torch = pytest.importorskip("torch")


def test_heartbeat(client, node):
    table = client.table("beats", 4)
    table.lookup(np.arange(100))
    states = client.heartbeat()
    assert [state.core for state in states] == list(range(node.cores))
    assert sum(state.rows for state in states) >= 100
    assert all(
        state.state == "serving" and state.memory_bytes > 0 and 0 <= state.busy_share <= 1 for state in states
    )
    assert {state.incarnation for state in states} == {client.incarnation}
    assert {state.node for state in states} == {""}


def test_a_node_by_itself_is_in_no_cluster(client):
    assert client.cluster() is None and client.cluster_async().result() is None


def test_pushes_tell_what_became_of_them(client, node):
    table = client.table("told", 2, optimizer=millrace.optim.Assign(), capacity_rows=node.cores)
    pushed = millrace.Pushed()
    assert not pushed.is_known and repr(pushed) == "<millrace.Pushed: not known>"
    keys = np.arange(1000)
    rows = np.ones((1000, 2), np.float32)
    rows[7] = np.nan
    table.push_gradients(keys, rows, pushed=pushed)
    assert pushed.is_known and pushed.sent == 1000 and pushed.applied <= node.cores
    assert pushed.applied + pushed.refused + pushed.not_finite == 1000 and pushed.without_row == 0
    assert f"{pushed.applied} of 1000 applied, refused {pushed.refused}" in repr(pushed)
    learns = client.table("told_later", 2)
    learns.lookup([1, 2])
    learns.push_gradients_async([1, 2, 3], [[1, 1], [np.inf, 1], [1, 1]], pushed=pushed).result()
    assert (pushed.sent, pushed.applied, pushed.without_row, pushed.not_finite) == (3, 1, 1, 1)
    variable = client.variable("told_too", 2)
    variable.push_gradient([1, np.nan], pushed=pushed)
    assert (pushed.sent, pushed.not_finite) == (1, 1)
    client.feed(1 << 48, [(learns, [1], [0, 1])], 1)
    assert client.push_gradients_batch(1 << 48, [(learns, np.ones((1, 1, 2)))], pushed=pushed) is True
    assert (pushed.sent, pushed.applied) == (1, 1)
    assert client.push_gradients_batch(1 << 48, [(learns, np.ones((1, 1, 2)))], pushed=pushed) is False
    assert not pushed.is_known and pushed.sent == 0
    with pytest.raises(TypeError, match="millrace.Pushed"):
        table.push_gradients(keys, rows, pushed=True)
    found = {info.name: info for info in client.features()}
    assert found["told"].rows_refused >= 999 - node.cores
    assert (found["told_later"].gradients_without_row, found["told_later"].gradients_skipped) == (1, 1)
    assert found["told_too"].gradients_skipped == 1
    states = client.heartbeat()
    assert sum(state.rows_refused for state in states) >= found["told"].rows_refused
    assert sum(state.gradients_skipped for state in states) >= 2 and states[0].steps_ignored >= 0


def test_latencies_of_cores_and_of_the_client(client, node):
    calls = 20
    for _ in range(calls):
        client.echo([np.zeros(3, np.float32)], core=0)
    cores = [client.latencies(core) for core in range(node.cores)]
    own = client.own_latencies()
    assert own["echo"].count >= calls
    assert 0 < own["echo"].p50_s <= own["echo"].p99_s <= own["echo"].max_s < 60
    for phase in ("wait", "work", "send"):
        assert cores[0]["echo", phase].count >= calls
    assert client.latencies_async(0).result()["latency", "work"].count >= 1
    with pytest.raises(ValueError, match="core"):
        client.latencies(-1)


def test_recent_calls_of_a_core(client, node):
    values = [np.zeros(3, np.float32)]
    client.echo(values, core=0)
    recent = client.recent_calls(core=0, position=max(0, client.recent_calls(core=0).next - 8))
    echo = [call for call in recent.calls if call.op == "echo"][-1]
    assert echo.table == echo.keys == echo.status == 0 and echo.request_bytes == echo.reply_bytes > 12
    assert echo.wait_s is not None and echo.wait_s + echo.work_s <= echo.total_s < echo.age_s < 60
    assert ":" in echo.client and [call.number for call in recent.calls] == sorted(
        call.number for call in recent.calls
    )
    table = client.table("recent", 4)
    table.lookup(np.arange(100, dtype=np.uint64))
    cores = [client.recent_calls_async(core).result() for core in range(node.cores)]
    lookups = [call for core in cores for call in core.calls if call.op == "lookup"]
    assert sum(call.keys for call in lookups if call.table == table.id) == 100
    slow = client.recent_calls(core=0, slow_s=1e-9)
    client.echo(values, core=0)
    after = client.recent_calls(core=0, slow_s=1e-9, position=slow.next)
    assert "echo" in [call.op for call in after.calls] and after.lost == 0
    with pytest.raises(ValueError, match="slow_s"):
        client.recent_calls(slow_s=-1)
    with pytest.raises(millrace.InvalidArgument, match="too many"):
        client.recent_calls(slow_s=1e5)


def test_the_clock_of_a_node_on_this_machine_is_the_own_one(client):
    offset = client.clock_offset()
    assert offset.own_clock == offset.peer_clock != 0
    assert (offset.offset_ns, offset.error_ns) == (0, 0)
    with pytest.raises(ValueError, match="core"):
        client.clock_offset(-1)


def test_stats_by_name_and_core(client, node):
    table = client.table("counted", 4)
    before = [client.stats(core) for core in range(node.cores)]
    table.lookup(np.arange(1000))
    after = [client.stats_async(core).result() for core in range(node.cores)]
    assert all(len(counters) > 50 for counters in after)
    changed = {name for old, new in zip(before, after) for name in new if new[name] > old.get(name, 0)}
    assert any("lookup" in name or "keys" in name for name in changed)
    with pytest.raises(ValueError, match="core"):
        client.stats(node.cores)
    with pytest.raises(ValueError, match="core is -1"):
        client.stats(-1)


def test_what_a_client_counts_in_a_file(client, node, tmp_path):
    path = tmp_path / "trainer.prom"
    client.echo([np.arange(3)])
    client.write_metrics(path, name="trainer0")
    lines = path.read_text(encoding="utf-8").splitlines()
    assert f'millrace_client_links{{client="trainer0"}} {node.cores}' in lines
    assert any(
        line.startswith('millrace_client_call_seconds_count{client="trainer0",op="echo"}') for line in lines
    )
    client.write_metrics(os.fspath(path))
    assert "trainer0" not in path.read_text(encoding="utf-8")
    with pytest.raises(millrace.Error, match="nowhere"):
        client.write_metrics(tmp_path / "nowhere" / "trainer.prom")


def test_memory_tells_where_the_bytes_are(client, node):
    table = client.table("held", 16)
    table.lookup(np.arange(5000))
    cores = [client.memory(core) for core in range(node.cores)]
    parts = [part for memory in cores for part in memory.tables if part.id == table.id]
    assert sum(part.rows for part in parts) == 5000 and all(
        part.values_bytes >= 64 * part.rows for part in parts
    )
    assert all(memory.allocated_bytes <= memory.mapped_bytes <= memory.limit_bytes for memory in cores)


def test_a_node_outside_of_any_world_says_so(client):
    with pytest.raises(millrace.UnknownOp):
        client.world()


def test_the_world_of_a_node_that_works(new_node):
    node = new_node(settings=("rpc.name=ps0", "rpc.rank=0", "rpc.world_size=2"))
    with millrace.Client(node.address, deadline_s=60.0) as client:
        world = client.world()
        assert (world.is_worker, world.world_size, world.is_complete) == (True, 2, False)
        assert [(member.name, member.rank, member.has_joined) for member in world.members][0] == (
            "ps0",
            0,
            True,
        )
        assert all(isinstance(line, str) for line in client.world_async().result().functions)


def test_replay_info_of_a_client_without(client):
    info = client.replay_info()
    assert (info.on, info.replaying, info.kept) == (False, False, 0)


@pytest.mark.parametrize(
    "value",
    [
        np.arange(24, dtype=np.float64).reshape(2, 3, 4),
        np.array(5, np.uint8),
        np.zeros((0, 7), np.int32),
        np.arange(5, dtype=np.uint64),
        torch.arange(6).reshape(2, 3),
        torch.tensor([1.5, -2.5], dtype=torch.bfloat16),
        torch.ones(2, 2, dtype=torch.float16),
    ],
    ids=lambda value: f"{type(value).__name__}-{str(value.dtype).split('.')[-1]}",
)
def test_echo_gives_back_what_it_got(client, value):
    for back in client.echo([value])[0], client.echo_async([value]).result()[0]:
        assert (
            type(back) is type(value)
            and back.dtype == value.dtype
            and back.shape == value.shape
            and (back == value).all()
        )


def test_echo_of_many_and_of_none(client, node):
    assert client.echo() == []
    tensors = [np.full(i + 1, i, np.float32) for i in range(8)]
    backs = client.echo(tensors, core=node.cores - 1)
    tail = backs[7][2:]
    del backs[:7]
    assert (tail == 7).all()
    for refused in (lambda: client.echo([], core=node.cores), lambda: client.echo([np.zeros((1,) * 5)])):
        with pytest.raises(ValueError):
            refused()


def test_facts(client, node):
    facts = client.facts()
    assert facts["config.port.udp_port"] == node.address.rpartition(":")[2]
    assert facts["config.cores.count"] == str(node.cores) and "(empty)" in facts.values()
    assert facts["machine.kernel"].startswith("Linux ") and facts["dpdk"].startswith("DPDK")
    assert facts["port.driver"] and client.facts_async().wait() == facts


def test_annotations(client):
    """For recordings; the node's own log is among them."""
    before = client.annotations()[-1].sequence
    client.annotate("epoch 3")
    client.annotate_async("epoch 4 \u00e4").wait()
    annotations = client.annotations(since=before)
    said = [("annotation", "epoch 3"), ("annotation", "epoch 4 \u00e4")]
    assert [(it.event, it.text) for it in annotations] == said
    assert [it.sequence for it in annotations] == [before + 1, before + 2] and ":" in annotations[0].client
    assert 0 <= annotations[1].age_s <= annotations[0].age_s < 60
    assert client.annotations_async(since=before + 2).wait() == []
    with pytest.raises(ValueError, match="143"):
        client.annotate("x" * 300)
    with pytest.raises(ValueError, match="one line"):
        client.annotate("two\nlines")
