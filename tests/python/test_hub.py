"""Batches from a hub, applied on the node that it feeds."""
import os
import subprocess

import numpy as np
import pytest

import millrace
from millrace import optim

SAMPLES, SLOTS, DENSE = 1000, 26, 13  # of the Criteo format


def write_samples(path, broken_behind=None):
    with open(path, "w", encoding="ascii") as out:
        for i in range(SAMPLES):
            dense = "\t".join(str(i + d) for d in range(DENSE))
            slots = "\t".join(f"{i * (slot + 1) % (7 + slot * slot):08x}" for slot in range(SLOTS))
            out.write(f"{int(i % 3 == 0)}\t{dense}\t{slots}\n")
            if i == broken_behind:
                out.write("1\tseven\t8\n")


@pytest.fixture(params=[1, 2], ids=["1_core", "2_cores"])
def parts(new_node, new_hub, request):
    node = new_node(cores=request.param)
    process = new_hub(node)
    with millrace.Client(node.address, deadline_s=60.0) as client, millrace.Hub(
        process.address, deadline_s=60.0
    ) as hub:
        yield node, client, hub


def learn_all(client, hub, table):
    """The numbers of all samples that came, in order of their coming."""
    seen, done = [], []
    while True:
        try:
            batch = hub.read(done)
        except millrace.EndOfData:
            return seen
        done = []
        if batch is None:
            continue
        bags = client.lookup_batch(batch.id, table)
        assert bags.shape == (batch.samples, SLOTS, table.dim)
        assert batch.dense.shape == (batch.samples, DENSE) and batch.labels.shape == (batch.samples,)
        numbers = np.rint(np.expm1(batch.dense[:, 0])).astype(int)
        assert np.array_equal(batch.labels, numbers % 3 == 0)
        seen += numbers.tolist()
        assert client.push_gradients_batch(batch.id, [(table, np.ones_like(bags))])
        done = [batch.id]


def test_each_sample_comes_once(parts, tmp_path):
    _, client, hub = parts
    write_samples(tmp_path / "samples.tsv", broken_behind=10)
    table = client.table("clicks", 4, optimizer=optim.Adagrad(lr=0.1))
    info = hub.start(str(tmp_path / "samples.tsv"), "criteo", 64, table)
    assert (info.samples, info.slots, info.dense, info.broken_lines) == (SAMPLES, SLOTS, DENSE, 1)
    assert info.batches == (SAMPLES + 63) // 64 and info.keys > 100
    assert hub.start_async(str(tmp_path / "samples.tsv"), "criteo", 64, "clicks").result() == info
    with pytest.raises(millrace.AlreadyStarted):
        hub.start(str(tmp_path / "samples.tsv"), "criteo", 32, table)
    assert sorted(learn_all(client, hub, table)) == list(range(SAMPLES))
    status = hub.status_async().result()
    assert status.at_end and status.batches_applied == info.batches and status == hub.status()
    state = client.batch_state(info.stream)
    assert all(number in state for number in range(info.batches))


def test_shuffled_and_held_out(parts, tmp_path):
    _, client, hub = parts
    write_samples(tmp_path / "samples.tsv")
    table = client.table("clicks", 4)
    plan = dict(epochs=1, shuffle_seed=5, held_out_share=0.25)
    hub.start(str(tmp_path / "samples.tsv"), "criteo", 100, table, **plan)
    trained = learn_all(client, hub, table)
    assert trained != sorted(trained) and 600 < len(trained) < 900
    info = hub.start(str(tmp_path / "samples.tsv"), "criteo", 100, table, part="held_out", **plan)
    assert info.samples == SAMPLES - len(trained)
    held_out, done = [], []
    while True:
        try:
            batch = hub.read_async(done).result()
        except millrace.EndOfData:
            break
        done = []
        if batch is not None:
            held_out += np.rint(np.expm1(batch.dense[:, 0])).astype(int).tolist()
            done = [batch.id]
    assert sorted(trained + held_out) == list(range(SAMPLES))


def test_what_cannot_be_read_is_said(parts, tmp_path):
    _, client, hub = parts
    table = client.table("clicks", 4)
    with pytest.raises(millrace.NotStarted):
        hub.read()
    with pytest.raises(ValueError, match="nothing.tsv"):
        hub.start(str(tmp_path / "nothing.tsv"), "criteo", 64, table)
    write_samples(tmp_path / "samples.tsv", broken_behind=10)
    with pytest.raises(millrace.BadMessage, match="samples.tsv.*12"):
        hub.start(str(tmp_path / "samples.tsv"), "criteo", 64, table, strict=True)
    for refused, says in (
        ({"part": "all"}, "part is 'all'"),
        ({"epochs": -1}, "epochs is -1"),
        ({"held_out_share": 0.95}, "held"),
    ):
        with pytest.raises(ValueError, match=says):
            hub.start(str(tmp_path / "samples.tsv"), "criteo", 64, table, **refused)
    with pytest.raises(ValueError, match="format|parquet"):
        hub.start(str(tmp_path / "samples.tsv"), "parquet", 64, table)


DATA = os.path.dirname(os.environ["MILLRACE_FLIGHTS"])


def test_formats_of_ones_own(new_node, new_hub, tmp_path):
    """A description of a real file, packed; several files of another, with weights."""
    (tmp_path / "weighted.ini").write_text(
        "[format]\nname = weighted\nlayout = libsvm\nslots = 1\nvalues = weights\n"
    )
    for part in (1, 2):
        lines = [f"{part - 1} {i}:{i} 5000:0.5\n" for i in range(1, 101)]
        (tmp_path / f"part{part}.libsvm").write_text("".join(lines))
    node = new_node(cores=2)
    process = new_hub(
        node, "--format", os.path.join(DATA, "weather.ini"), "--format", str(tmp_path / "weighted.ini")
    )
    with millrace.Client(node.address, deadline_s=60.0) as client, millrace.Hub(
        process.address, deadline_s=60.0
    ) as hub:
        client.table("sun", 4)
        loader = millrace.DataLoader(
            hub, os.path.join(DATA, "seattle-weather.csv.gz"), "weather", 500, table="sun", shuffle_seed=3
        )
        assert (loader.info.samples, loader.info.slots, loader.info.dense) == (1461, 4, 2)
        suns = 0.0
        for batch in loader:
            assert batch.dense.shape == (batch.samples, 2) and np.isfinite(np.asarray(batch.dense)).all()
            suns += float(batch.labels.sum())
            batch.give_back()
            break
        assert 150 < suns < 350  # 714 of 1461 days

        table = client.table("weighted", 2, initializer=millrace.init.constant(1.0))
        other = new_hub(node, "--format", str(tmp_path / "weighted.ini"))
        with millrace.Hub(other.address, deadline_s=60.0) as hub2:
            loader = millrace.DataLoader(
                hub2, str(tmp_path / "part*.libsvm"), "weighted", 64, table="weighted", tables=[table]
            )
            assert loader.info.samples == 200
            sums = []
            for batch in loader:
                bags = np.asarray(batch.values(table))
                sums += bags[:, 0, 0].tolist()
                batch.push([(table, np.zeros_like(bags))])
            assert sums == [i + 0.5 for i in range(1, 101)] * 2
    with pytest.raises(subprocess.CalledProcessError) as refused:
        subprocess.run(
            [os.environ["MILLRACE_HUB"], "--check-format", "criteo", os.path.join(DATA, "weather.ini")],
            check=True,
            capture_output=True,
            text=True,
        )
    assert "weather.ini is not in the format criteo" in refused.value.stderr
    shown = subprocess.run(
        [
            os.environ["MILLRACE_HUB"],
            "--check-format",
            os.path.join(DATA, "weather.ini"),
            os.path.join(DATA, "seattle-weather.csv.gz"),
        ],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert "1 file, 1461 samples, 0 broken lines" in shown and "month_temperature" in shown
