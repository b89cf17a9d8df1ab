"""Saves, restores, and clients that replay what a killed server lacks."""

import numpy as np
import pytest

import millrace
from millrace import init, optim


@pytest.fixture(params=[1, 2], ids=["1_core", "2_cores"])
def own_node(new_node, request):
    return new_node(cores=request.param)


def test_save_and_restore(own_node):
    with millrace.Client(own_node.address, deadline_s=60.0) as client:
        table = client.table("t", 4, optimizer=optim.SGD(lr=1.0), initializer=init.uniform(0, 1, seed=1))
        bias = client.variable("bias", 3)
        keys = np.arange(1000)
        rows = table.lookup(keys, step=1)
        bias.push([1, 2, 3])
        number = client.save()
        info = client.wait_for_save(number, timeout_s=60)
        assert info.committed_ms > 0 and (info.remote, info.remote_ms) == ("none", 0)
        with pytest.raises(millrace.InvalidArgument, match="is checkpoint.remote set"):
            client.wait_for_save(number, timeout_s=60, remote=True)
        assert (info.number, info.state, info.status, info.kind) == (
            number,
            "ended",
            "OK",
            "full",
        ) and info.bytes > 16000
        status = client.checkpoint_info()
        assert (status.state, status.last_good_id, status.last_status) == ("idle", info.id, "OK")
        table.push_gradients(keys, np.ones((1000, 4)), step=2)
        bias.push([9, 9, 9])
        restored = client.restore(id=info.id)
        assert (restored.id, restored.tables, restored.variables) == (info.id, 1, 1)
        assert np.array_equal(client.table("t").lookup(keys), rows)
        assert client.variable("bias").pull().tolist() == [1, 2, 3]
        known = client.checkpoint_info()
        assert known.restored_id == info.id and [save.number for save in known.saves] == [number]


def test_parts_of_a_checkpoint_under_other_names(new_node):
    with millrace.Client(new_node().address, deadline_s=60.0) as client:
        table = client.table("old", 2, initializer=init.uniform(0, 1, seed=2))
        client.table("other", 2)
        rows = table.lookup([1, 2, 3])
        client.wait_for_save(client.save_async(kind="full").result())
        restored = client.restore_async(names={"old": "copy"}).result()
        assert (restored.tables, restored.variables) == (1, 0)
        assert np.array_equal(client.table("copy").lookup([1, 2, 3]), rows)
        with pytest.raises(ValueError, match="old"):
            client.restore(names=["old"])
        assert client.restore(names=["old", "other"], replace=True).tables == 2
        with pytest.raises(ValueError, match="names are empty"):
            client.restore(names=[])
        with pytest.raises(millrace.CheckpointNotFound):
            client.restore(id=999)


def test_saves_of_single_tables(new_node):
    node = new_node()
    partial = f"{node.checkpoints}/partial"
    with millrace.Client(node.address, deadline_s=60.0) as client:
        client.table("other", 2)
        table = client.table("user", 2, initializer=init.uniform(0, 1, seed=3))
        rows = table.lookup([1, 2, 3])
        info = client.wait_for_save(client.save(names=["user"]), timeout_s=60)
        assert (info.kind, info.id, client.checkpoint_info().last_good_id) == ("partial", 1, 0)
        queued = client.save_async(names=["user", "other"], queue=True).result()
        assert client.wait_for_save(queued, timeout_s=60).id == 2
        with pytest.raises(millrace.InvalidArgument, match="is partial"):
            client.restore(partial)
        assert client.restore(partial, id=1, names={"user": "user_old"}).tables == 1
        assert np.array_equal(client.table("user_old").lookup([1, 2, 3]), rows)
        for names in ([], "user"):
            with pytest.raises(ValueError, match="names must be a list"):
                client.save(names=names)
        with pytest.raises(millrace.UnknownTable, match="nobody"):
            client.save(names=["nobody"])


def test_dropped_tables_stay_away(own_node):
    """Pushes that a client has kept for one are lost and counted; those to others arrive once."""
    with millrace.Client(own_node.address, deadline_s=60.0, replay=True) as client:
        gone = client.table("gone", 2, optimizer=optim.SGD(lr=1.0))
        stays = client.table("stays", 2, optimizer=optim.SGD(lr=1.0))
        keys = np.arange(16)
        for table in (gone, stays):
            table.lookup(keys)
        client.wait_for_save(client.save(), timeout_s=60)
        for table in (gone, stays, gone):
            table.push_gradients(keys, np.full((16, 2), -1.0))
        client.drop("gone")
        with pytest.raises(millrace.UnknownTable):
            gone.lookup(keys)
        with pytest.raises(millrace.UnknownTable, match="gone"):
            client.drop_async("stays", "gone").result()
        own_node.kill()
        own_node.restart(cores=own_node.cores)
        assert np.array_equal(stays.lookup(keys), np.ones((16, 2)))
        assert [info.spec.name for info in client.features()] == ["stays"]
        assert client.replay_info().dropped >= 2
        made = client.table("gone", 2)
        assert made.id > stays.id
        assert not made.lookup(keys).any()
        with pytest.raises(ValueError, match="at least one"):
            client.drop()


def test_altered_options_outlive_the_node(own_node):
    """Also without a save since; the table can still be made as it was."""
    with millrace.Client(own_node.address, deadline_s=60.0, replay=True) as client:
        table = client.table("t", 2, optimizer=optim.SGD(lr=1.0))
        keys, gradients = np.arange(16), np.full((16, 2), -1.0)
        table.lookup(keys)
        client.wait_for_save(client.save(), timeout_s=60)
        client.alter("t", optimizer=optim.SGD(lr=4.0), capacity_rows=1000)
        table.push_gradients(keys, gradients)
        own_node.kill()
        own_node.restart(cores=own_node.cores)
        table.push_gradients(keys, gradients)
        assert np.array_equal(table.lookup(keys), np.full((16, 2), 8.0))
        assert client.table("t", 2, optimizer=optim.SGD(lr=1.0)).id == table.id
        spec = client.features()[0].spec
        assert (spec.optimizer.lr, spec.capacity_rows) == (4.0, 1000)
        with pytest.raises(millrace.Unsupported, match="dim cannot be altered"):
            client.alter("t", dim=3)
        with pytest.raises(millrace.UnknownTable, match="nobody"):
            client.alter("nobody", clip_norm=1.0)


def test_a_freeze_outlives_the_node(own_node):
    """What replay sends again precedes the freeze, and arrives; nothing else changes."""
    with millrace.Client(own_node.address, deadline_s=60.0, replay=True) as client:
        table = client.table("t", 2, optimizer=optim.SGD(lr=1.0))
        keys, gradients = np.arange(16), np.full((16, 2), -1.0)
        table.lookup(keys)
        client.wait_for_save(client.save(), timeout_s=60)
        table.push_gradients(keys, gradients)
        client.freeze("all")
        own_node.kill()
        own_node.restart(cores=own_node.cores)
        with pytest.raises(millrace.Frozen):
            table.push_gradients(keys, gradients)
        assert np.array_equal(table.lookup(keys), np.ones((16, 2)))
        assert client.replay_info().dropped == 0
        client.freeze("off")
        table.push_gradients(keys, gradients)
        assert np.array_equal(table.lookup(keys), np.full((16, 2), 2.0))


def test_saves_that_wait_and_are_withdrawn(new_node):
    with millrace.Client(new_node().address, deadline_s=60.0) as client:
        table = client.table("t", 2)
        table.lookup([1], step=1)
        number = client.save(at_step=100, trainers=1)
        with pytest.raises(TimeoutError, match="waits_for_step"):
            client.wait_for_save(number, timeout_s=0.0)
        queued = client.save(queue=True)
        client.cancel_save(number)
        with pytest.raises(millrace.Cancelled):
            client.wait_for_save(number)
        client.wait_for_save(queued, timeout_s=60)
        with pytest.raises(ValueError, match="ended"):
            client.cancel_save(queued)
        with pytest.raises(millrace.CheckpointNotFound):
            client.cancel_save_async(999).result()
        with pytest.raises(millrace.CheckpointNotFound):
            client.checkpoint_info(999)
        for refused, says in (
            (lambda: client.save(kind="half"), "kind is 'half'"),
            (lambda: client.save(at_step=-1), "step is -1"),
            (lambda: client.save(kind="delta"), "delta"),
        ):
            with pytest.raises(ValueError, match=says):
                refused()
        assert client.checkpoint_info_async().result().state == "idle"


def test_a_directory_that_is_not_listed_or_cannot_be_written(new_node):
    node = new_node(settings=("checkpoint.allow=/proc",))
    with millrace.Client(node.address, deadline_s=60.0) as client:
        client.table("t", 2)
        for refused in (client.save, client.restore):
            with pytest.raises(
                millrace.InvalidArgument, match="/sys/nowhere is not below .* checkpoint.allow"
            ):
                refused("/sys/nowhere")
        with pytest.raises(OSError, match="/proc/nowhere"):
            client.wait_for_save(client.save("/proc/nowhere"), timeout_s=60)


def test_pushes_survive_a_server_that_is_killed(own_node):
    """With replay each push counts once, though the server comes back from a checkpoint without most of them,
    with other cores, too."""
    with millrace.Client(own_node.address, deadline_s=60.0, replay=True) as client:
        table = client.table("t", 2, optimizer=optim.SGD(lr=1.0))
        keys = np.arange(64)
        table.lookup(keys)
        for step in range(1, 4):
            table.push_gradients(keys, np.full((64, 2), -1.0), step=step)
        client.wait_for_save(client.save(), timeout_s=60)
        for step in range(4, 9):
            table.push_gradients(keys, np.full((64, 2), -1.0), step=step)
        info = client.replay_info()
        assert info.on and info.kept > 0 and info.kept_bytes > 0
        before = client.incarnation
        own_node.kill()
        late = [table.push_gradients_async(keys, np.full((64, 2), -1.0), step=step) for step in range(9, 12)]
        own_node.restart(cores=3 - own_node.cores)
        for future in late:
            future.result()
        assert np.array_equal(table.lookup(keys), np.full((64, 2), 11.0))
        assert client.incarnation != before and client.replay_info().replayed > 0


def test_what_a_killed_server_leaves_open_is_said(new_node):
    """Without replay nobody knows whether a push that was in flight was applied."""
    node = new_node()
    with millrace.Client(node.address, deadline_s=60.0) as client:
        table = client.table("t", 2)
        client.wait_for_save(client.save(), timeout_s=60)
        futures = [
            table.push_gradients_async(np.arange(20000), np.ones((20000, 2)), step=7) for _ in range(5)
        ]
        node.kill()
        node.restart()
        outcomes = []
        for future in futures:
            try:
                outcomes.append(future.result())
            except millrace.UnknownOutcome as error:
                assert "step 7" in str(error) and isinstance(error, ConnectionError)
                outcomes.append(error)
        assert len(outcomes) == 5
        assert table.lookup([1]).shape == (1, 2)
