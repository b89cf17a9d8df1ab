"""Feeds: what a program's iterable brings is applied once, as a file's samples are; and the inputs of a hub
that are read once."""

import gzip
import itertools
import json
import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

import millrace
import samples
from millrace.samples import END, blocks, samples_of
from waits import process_runs, wait_until

DIM = 2
LIMIT_S = 60.0
# Feeds that end early leave batches at the node. One that it had no room for comes after its next.
NODE_SETTINGS = ("batches.count_max=64",)


# ---- batches as arrays ----


def unpacked(batch):
    """Of a batch in one block: labels, or None, dense values, and of each sample the keys and weights of its
    slots."""
    (buffers,) = blocks(samples_of(batch))
    data = b"".join(bytes(buffer) for buffer in buffers)
    magic, flags, count, slots, dense, keys = (data[:4], *np.frombuffer(data[4:24], "<u4"))
    has_weights, has_labels = int(flags & 1), not flags & 8
    assert magic == b"MRSB" and flags in (0, 1, 8, 9) and data[24:32] == bytes(8)
    at = 32
    arrays = []
    for kind, size in (
        ("<u8", keys),
        ("<f4", count * has_labels),
        ("<f4", count * dense),
        ("<u4", count * slots + 1),
        ("<f4", keys * has_weights),
    ):
        arrays.append(np.frombuffer(data, kind, size, at))
        at += arrays[-1].nbytes
    assert at == len(data)
    ids, labels, values, offsets, weights = arrays
    bags = [ids[a:b].tolist() for a, b in zip(offsets, offsets[1:])]
    factors = [weights[a:b].tolist() for a, b in zip(offsets, offsets[1:])] if has_weights else None
    return labels.tolist() if has_labels else None, values.reshape(count, dense).tolist(), bags, factors


def test_batches_in_every_form():
    labels, dense = [0, 1], [[1, 2], [3, 4]]
    assert unpacked((labels, np.array([[1, 2, 3], [4, 5, 6]]))) == (
        [0, 1],
        [[], []],
        [[1], [2], [3], [4], [5], [6]],
        None,
    )
    slots = {"one": [7, 8], "two": [[1, 2], [3, 4]], "bags": ([5, 6, 6], [0, 1]), "last": ([9], [0, 0, 1])}
    bags = [[7], [1, 2], [5], [], [8], [3, 4], [6, 6], [9]]
    for batch in (
        (labels, dense, slots),
        {"labels": labels, "dense": dense, "slots": slots},
        [np.array(labels), np.array(dense, np.float64), list(slots.values())],
    ):
        assert unpacked(batch) == ([0, 1], [[1, 2], [3, 4]], bags, None)
    weighted = (labels, [9.5, 8.5], [([5, 6, 6], [0, 1], [0.5, 1.5, 2.5]), np.array([-1, 2])])
    assert unpacked(weighted) == (
        [0, 1],
        [[9.5], [8.5]],
        [[5], [2**64 - 1], [6, 6], [2]],
        [[0.5], [1.0], [1.5, 2.5], [1.0]],
    )
    assert len(END) == 32 and list(blocks(samples_of(([], np.empty((0, 3), int))))) == []


def test_batches_without_labels():
    slots = [([5, 6, 6], [0, 1], [0.5, 1.5, 2.5]), [7, 8]]
    bags, weights = [[5], [7], [6, 6], [8]], [[0.5], [1], [1.5, 2.5], [1]]
    assert unpacked((None, [9, 8], slots)) == (None, [[9], [8]], bags, weights)
    assert unpacked({"labels": None, "slots": slots}) == (None, [[], []], bags, weights)
    assert unpacked((None, [([5, 6, 6], [0, 1])])) == (None, [[], []], [[5], [6, 6]], None)
    assert unpacked((None, np.array([[1], [2], [3]]))) == (None, [[]] * 3, [[1], [2], [3]], None)


def test_tensors_are_batches():
    torch = pytest.importorskip("torch")
    batch = (
        torch.tensor([0.0, 1.0]),
        torch.ones(2, 1),
        [torch.tensor([5, -1]), (torch.arange(3), torch.tensor([0, 1]))],
    )
    assert unpacked(batch) == ([0, 1], [[1], [1]], [[5], [0], [2**64 - 1], [1, 2]], None)


def test_large_batches_are_cut():
    count = 150000
    batch = samples_of(
        (np.arange(count), [np.arange(count), (np.arange(2 * count), np.arange(0, 2 * count, 2))])
    )
    parts = list(blocks(batch))
    sizes = [int(np.frombuffer(part[0], "<u4", 1, 8)[0]) for part in parts]
    assert sizes == [65536, 65536, 18928]
    assert np.concatenate([np.frombuffer(part[1], "<u8") for part in parts]).tolist() == batch.keys.tolist()


@pytest.mark.parametrize(
    "batch, says",
    [
        (7, "it is int; a batch is"),
        ({"label": [1], "slots": [[1]]}, "it has 'label', 'slots'; a batch has 'labels' .*, 'slots'"),
        (([1, np.nan], [[1], [2]]), "sample 1: its label is nan; it is a finite number"),
        (([1, 2], [[3, 1], [4, -np.inf]], [[1], [2]]), "sample 1: dense value 1 is -inf; it is"),
        (([1, 2], [3, np.nan], [[1], [2]]), "sample 1: dense value 0 is nan"),
        (
            ([1, 2, 3], {"a": ([1, 2, 3], [0, 0, 1], [1, 1, np.inf])}),
            "slot 'a': sample 2: the weight of key 1 is inf; it is a finite number",
        ),
        (([1], [[1, 2], [3, 4]]), r"slot 0: keys have the shape \(2,\) for 1 sample"),
        (([1], np.array([[1], [2]])), r"slots have the shape \(2, 1\) for 1 sample"),
        (([1], [[1.5]]), "slot 0: keys are whole numbers, not float64"),
        (([1], {"a": ([1, 2], [0, 3])}), "slot 'a': the last offset is 3"),
        (([1, 2, 3], {"a": ([1, 2], [0, 2])}), "slot 'a': it has 1 bag for 3 samples"),
        (([1, 2], {"a": ([1, 2], [0, 2, 1])}), "slot 'a': the last offset is 1"),
        (([1, 2], {"a": ([1, 2], [1, 0])}), "slot 'a': its offsets do not rise from 0"),
        (([1], {"a": ([1], [0], [1.0, 2.0])}), "slot 'a': the number of weights is 2, for 1 key"),
        (([1], [[1], [2]], [[1]]), r"dense values have the shape \(2, 1\) for 1 sample"),
        (([1], []), "it has 0 slots"),
        ((None, []), "it has 0 slots"),
        ((None, [[1], [2, 3]]), r"slot 1: keys have the shape \(2,\) for 1 sample"),
        ((None, [[1], [2]], [[1]]), r"slot 0: keys have the shape \(1,\) for 2 samples"),
    ],
)
def test_what_is_no_batch_is_refused(batch, says):
    with pytest.raises((TypeError, ValueError), match=says):
        samples_of(batch)


def test_slot_keys_in_every_form():
    words = ["", "a", "ß", "68fd1e64"]
    keys = millrace.slot_keys(words, 3)
    assert keys.dtype == np.uint64 and len(set(keys)) == 4
    for same in (np.array(words), np.array(words, object), [word.encode() for word in words]):
        assert np.array_equal(millrace.slot_keys(same, 3), keys)
    assert not set(keys) & set(millrace.slot_keys(words, 4))
    numbers = np.array([[0, -7], [1 << 62, 12]])
    assert np.array_equal(millrace.slot_keys(numbers), millrace.slot_keys(numbers.astype(str)))
    assert np.array_equal(millrace.slot_keys([True, False]), millrace.slot_keys(["1", "0"]))
    assert millrace.slot_keys(np.empty((0, 2), int)).shape == (0, 2)
    with pytest.raises(TypeError, match="strings, bytes or whole numbers, not float64"):
        millrace.slot_keys([1.5])
    with pytest.raises(ValueError, match="slot is -1"):
        millrace.slot_keys(["a"], -1)


# ---- feeds ----


def sgd_table(client, name):
    return client.table(name, DIM, optimizer=millrace.optim.SGD(lr=1), initializer=millrace.init.constant(0))


def numbered(count, size=70, first=0):
    """Batches whose sample n has the label n % 2, the dense value n, and the key n."""
    for begin in range(first, first + count, size):
        n = np.arange(begin, min(begin + size, first + count))
        yield n % 2, n, n.reshape(-1, 1)


def push(batch, table):
    """A gradient of -1 for each sample's row: it counts how often the sample was applied."""
    values = batch.values(table)
    batch.push([(table, np.full_like(values, -1))])


def train(loader, table, batches=None):
    for batch in itertools.islice(loader, batches):
        numbers = np.asarray(batch.dense)[:, 0].astype(int)
        assert np.array_equal(np.asarray(batch.labels), numbers % 2)
        push(batch, table)
    loader.flush()


def check_applied(table, count, times=1):
    assert (table.lookup(np.arange(count), read_only=True)[:, 0] == times).all()
    assert next(info.rows for info in table.client.features() if info.id == table.id) == count


def loader_of(feed, table, batch_samples=32, **options):
    return feed.loader(batch_samples, table=table, tables=[table], **options)


def test_each_sample_is_applied_once(client, name):
    table = sgd_table(client, name)
    with millrace.feed(numbered(1000), client) as feed:
        assert feed.is_running and "running" in repr(feed)
        loader = loader_of(feed, table)
        assert (loader.info.slots, loader.info.dense) == (1, 1)
        train(loader, table)
        assert (loader.counts.applied, loader.counts.samples) == (32, 1000)
        feed.wait(LIMIT_S)
        assert not feed.is_running and "stopped" in repr(feed)
    check_applied(table, 1000)


def test_the_clients_key_opens_the_server_and_the_feed():
    with millrace.dev() as server, server.client() as client:  # it has a key
        table = sgd_table(client, "t")
        with millrace.feed(numbered(100), client) as feed:
            train(loader_of(feed, table), table)
        check_applied(table, 100)


def test_weights_and_bags_reach_the_table(client, name):
    table = sgd_table(client, name)
    batch = ([1, 1], [([1, 2, 2, 3], [0, 3], [0.5, 1.0, 2.0, 4.0]), [7, 8]])
    with millrace.feed([batch], client) as feed:
        for got in loader_of(feed, table, 2):
            assert got.values(table).shape == (2, 2, DIM)
            push(got, table)
    assert table.lookup([1, 2, 3, 7, 8])[:, 0].tolist() == [0.5, 3.0, 4.0, 1.0, 1.0]


def test_batches_without_labels_are_scored(client, name):
    """No row comes, and what one sample was looked up for is handed out once."""
    table = sgd_table(client, name)
    table.set_rows([0, 1, 2], [[5, 5], [6, 6], [7, 7]])
    unlabelled = ({**dict(zip(("dense", "slots"), batch[1:])), "labels": None} for batch in numbered(1000))
    seen = []
    with millrace.feed(unlabelled, client) as feed:
        for batch in loader_of(feed, table, part="held_out"):
            assert np.isnan(np.asarray(batch.labels)).all()
            numbers = np.asarray(batch.dense)[:, 0].astype(int)
            values = np.asarray(batch.values(table)).reshape(-1, DIM)[:, 0]
            assert values.tolist() == [5 + n if n < 3 else 0 for n in numbers]
            seen += numbers.tolist()
        feed.wait(LIMIT_S)
    assert sorted(seen) == list(range(1000))
    assert next(info.rows for info in client.features() if info.id == table.id) == 3


def test_labels_decide_on_the_part(client, name):
    table = sgd_table(client, name)
    for labels, part, says in (
        (None, "train", "it has no labels to train on"),
        ([1], "held_out", "it has labels"),
    ):
        with pytest.raises(millrace.BadMessage, match=says):
            with millrace.feed([(labels, np.array([[1]]))], client) as feed:
                loader_of(feed, table, 1, part=part)


def test_trainers_share_a_feed(client, name):
    table, counts = sgd_table(client, name), []
    with millrace.feed(numbered(2000), client) as feed:

        def work():
            loader = loader_of(feed, table)
            train(loader, table)
            counts.append(loader.counts.samples)

        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        feed.wait(LIMIT_S)
        for thread in threads:
            thread.join()
    assert sum(counts) == 2000
    check_applied(table, 2000)


def test_an_endless_feed_is_finished(client, name):
    table, given = sgd_table(client, name), 0

    def endless():
        nonlocal given
        for batch in numbered(1 << 40):
            yield batch
            given += len(batch[0])

    with millrace.feed(endless(), client) as feed:
        loader = loader_of(feed, table)
        train(loader, table, 5)
        with pytest.raises(TimeoutError):
            feed.wait(0.0)
        end = threading.Thread(target=feed.finish)
        end.start()
        train(loader, table)
        end.join()
    assert 5 * 32 < loader.counts.samples <= given + 70
    check_applied(table, loader.counts.samples)


def test_a_feed_is_new_unless_it_is_repeatable(client, name):
    table = sgd_table(client, name)
    for times in (1, 2):
        with millrace.feed(numbered(300), client) as feed:
            train(loader_of(feed, table), table)
        check_applied(table, 300, times)
    table = sgd_table(client, name[:-2] + ".r")
    for batches in (4, None):
        with millrace.feed(numbered(300), client, repeatable=True) as feed:
            train(loader_of(feed, table), table, batches)
    check_applied(table, 300)


def test_the_server_is_killed_and_restored(new_node):
    node = new_node(cores=2)
    with millrace.Client(node.address, deadline_s=20, connect_s=60) as client:
        table = sgd_table(client, "t")
        with millrace.feed(numbered(2000), client) as feed:
            loader = loader_of(feed, table, staleness=2)
            for i, batch in enumerate(loader):
                push(batch, table)
                if i == 10:
                    client.wait_for_save(client.save())
                if i == 25:
                    node.kill()
                    node.restart()
        check_applied(table, 2000)


def test_what_the_iterable_raises_is_raised(client, name):
    table = sgd_table(client, name)

    def failing():
        yield from numbered(100)
        raise KeyError("no more")

    with pytest.raises(KeyError, match="no more"):
        with millrace.feed(failing(), client) as feed:
            with pytest.raises(millrace.IoError, match="has failed: KeyError: 'no more'"):
                train(loader_of(feed, table), table)
    with pytest.raises(
        millrace.FeedError, match="batch 1 of the feed: slot 0: sample 2: the weight of key 0"
    ):
        n = np.arange(4)
        batches = [(n % 2, n, [(n, n, weights)]) for weights in (np.ones(4), [1, 1, np.nan, 1])]
        with millrace.feed(batches, client) as feed:
            with pytest.raises(millrace.IoError, match="has failed: batch 1 of the feed: slot 0: sample 2"):
                train(loader_of(feed, table, 4), table)
    with pytest.raises(millrace.FeedError, match="batch 2 of the feed: it is int"):
        with millrace.feed([*numbered(140), 7], client) as feed:
            train(loader_of(feed, table), table)


def test_blocks_that_differ_end_the_feed(client, name):
    table = sgd_table(client, name)
    with pytest.raises(millrace.BadMessage, match="another number of slots than the first block"):
        with millrace.feed([([1], [[1]]), ([1], [[1], [2]])], client) as feed:
            train(loader_of(feed, table, 1), table)


def test_a_hub_that_cannot_start_says_why(client, monkeypatch):
    with pytest.raises(millrace.FeedError, match="--prefetch"):
        millrace.feed([], client, prefetch=0)
    with pytest.raises(millrace.FeedError, match="nowhere"):
        millrace.feed([], client, key_file="/nowhere")
    monkeypatch.setenv("MILLRACE_HUB", "/nowhere/hub")
    with pytest.raises(millrace.FeedError, match="/nowhere/hub cannot be run: .*MILLRACE_HUB"):
        millrace.feed([], client)
    monkeypatch.delenv("MILLRACE_HUB")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(millrace.FeedError, match="is not in .PATH"):
        millrace.feed([], client)


def test_the_hub_ends_with_its_process(client):
    program = """
import itertools, sys, time, millrace
feed = millrace.feed(itertools.repeat(([1], [[1]])), sys.argv[1])
print(feed._process.pid, flush=True)
time.sleep(600)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", program, client.server], stdout=subprocess.PIPE, text=True
    )
    pid = int(process.stdout.readline())
    assert process_runs(pid)
    process.kill()
    process.communicate()
    wait_until(lambda: not process_runs(pid), "the hub ends")


@pytest.mark.forks
def test_a_child_process_leaves_the_feed_alone(client, name):
    table = sgd_table(client, name)
    with millrace.feed(numbered(100), client) as feed:
        child = os.fork()
        if child == 0:
            os._exit(int(feed.is_running))
        assert os.waitpid(child, 0)[1] == 0
        train(loader_of(feed, table), table)
    check_applied(table, 100)


# ---- a hub's own inputs ----


@pytest.fixture
def start_hub():
    """Starts hubs that read this standard input, and returns them and their addresses."""
    hubs = []

    def start(node, stdin, *options):
        hubs.append(started(node, stdin, *options))
        said = map(json.loads, hubs[-1].stderr)  # a warning that it has no key comes first
        port = next(line["port"] for line in said if line["event"] == "listening")
        return hubs[-1], f"127.0.0.1:{port}"

    yield start
    for hub in hubs:
        if hub.poll() is None:
            hub.kill()
            hub.communicate()


def started(node, stdin, *options):
    return subprocess.Popen(
        [
            os.environ["MILLRACE_HUB"],
            "--server",
            node.address,
            "--listen",
            "127.0.0.1:0",
            "--log-format",
            "json",
            "--allow",
            "/",
        ]
        + list(options),
        stdin=stdin,
        stderr=subprocess.PIPE,
        text=True,
    )


def numbers_of(batch):
    return np.rint(np.expm1(np.asarray(batch.dense)[:, 0])).astype(int).tolist()


def test_a_compressed_file_through_standard_input(client, node, name, tmp_path, start_hub):
    samples.write(str(tmp_path / "samples"), 300)
    with gzip.open(tmp_path / "samples.gz", "wb") as out:
        out.write((tmp_path / "samples").read_bytes())
    table, seen = sgd_table(client, name), []
    unpack = subprocess.Popen(["gzip", "-dc", str(tmp_path / "samples.gz")], stdout=subprocess.PIPE)
    process, address = start_hub(node, unpack.stdout)
    unpack.stdout.close()
    with millrace.Hub(address, deadline_s=60) as hub:
        loader = millrace.DataLoader(hub, "-", "criteo", 64, table=table, tables=[table])
        for batch in loader:
            seen += numbers_of(batch)
            push(batch, table)
        assert hub.status().at_end
    assert seen == list(range(300)) and unpack.wait() == 0
    for slot in (0, 25):  # keys are those that a program makes of the fields
        values = [f"{i * (slot + 1) % (7 + slot * slot):08x}" for i in range(300)]
        rows = table.lookup(millrace.slot_keys(np.unique(values), slot), read_only=True)
        assert np.array_equal(rows[:, 0], np.unique(values, return_counts=True)[1])
    process.send_signal(signal.SIGTERM)
    assert "stopped" in process.communicate()[1] and process.returncode == 0


def test_a_file_is_followed_through_a_restart(client, node, name, tmp_path, start_hub):
    path, seen = str(tmp_path / "log.tsv"), []
    table = sgd_table(client, name)
    for part, (more_at, stop_at) in enumerate([(32, 160), (224, 336)]):
        samples.write(path, 100, 200 * part)
        process, address = start_hub(node, subprocess.DEVNULL, "--follow")
        with millrace.Hub(address, deadline_s=60) as hub:
            loader = millrace.DataLoader(hub, path, "criteo", 16, table=table, tables=[table])
            assert loader.info.batches == 0
            for batch in loader:
                seen += numbers_of(batch)
                push(batch, table)
                if len(seen) == more_at:  # more comes while it trains
                    samples.write(path, 100, 200 * part + 100)
                if len(seen) == stop_at:  # and the hub is told to stop, with what is in flight
                    process.send_signal(signal.SIGTERM)
        assert "stopped" in process.communicate()[1] and process.returncode == 0
    assert len(seen) in range(336, 416, 16) and seen == list(range(len(seen)))
